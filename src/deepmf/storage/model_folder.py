"""The folder: memory-mapped shards and their manifest, for models too large for one file, and for stores of entries."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deepmf.errors import BadModelFile, FileAbsent
from deepmf.files import write_folder_atomically
from deepmf.storage.model_file import (
    LARGEST_FILE,
    MappedFile,
    MappedTensors,
    StoredFile,
    Tensors,
    check_sum,
    compute_checksum,
    encode_json,
    make_header,
    map_file,
    parse_header,
    read_version,
    verify_file,
    write_in_place,
)
from deepmf.storage.parts import Check, Form, Part

ENDING = ".model"  # of the names of folders of models

SHARD_BYTES = 1 << 30  # a larger tensor is a shard of its own, because a tensor that is cut cannot be mapped

_SHARD = "shard"  # kind of the files beside the manifest


class Shard(NamedTuple):
    """A file of a model folder: its name, its length and its checksum."""

    file: str
    bytes: int
    sha256: str


_WANTED = {"model": "a model file or a model folder", "matrix": "a file, or a store that deepmf pack wrote,"}

_MANIFEST = Form(
    Part("content", "object"),
    Part(
        "shards",
        Form(
            Part("file", "text", (), Check("be a plain name", lambda found, _: Path(found).name == found)),
            Part("bytes", "whole"),
            Part("sha256", "text"),
        ),
        ("shards",),
    ),
)


def name_manifest(kind: str) -> str:
    """Return the name of the manifest of a folder of a kind ("model", "matrix"); it is written last."""
    return f"{kind}.json"


def is_folder_of(kind: str, path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder with the manifest of a kind."""
    return Path(path, name_manifest(kind)).is_file()


def is_model_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a model."""
    return is_folder_of("model", path)


def goes_to_folder(path: str | os.PathLike[str], n_bytes: int, *, largest_file: int = LARGEST_FILE) -> bool:
    """Whether a model is written as a folder: because of its name, an existing folder, or its size."""
    return Path(path).suffix == ENDING or n_bytes > largest_file or is_model_folder(path)


def write_folder(
    path: str | os.PathLike[str],
    *,
    kind: str,
    content: dict[str, Any],
    tensors: Tensors,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write one folder, whole or not at all; it replaces a file or another model folder.

    A shard holds tensors of up to `shard_bytes`, or one larger tensor.
    """

    def fill(folder: Path) -> None:
        shards: list[Shard] = []
        for number, names in enumerate(_cut_into_shards(tensors, shard_bytes), 1):
            file = folder / f"{number:05}.safetensors"
            some = {name: tensors[name] for name in names}
            checksum = write_in_place(file, kind=_SHARD, content={}, tensors=some)
            shards.append(Shard(file.name, file.stat().st_size, checksum))
        header = make_header(kind, {"content": content, "shards": [shard._asdict() for shard in shards]})
        text = encode_json(header | {"sha256": compute_checksum(header, {})})
        (folder / name_manifest(kind)).write_text(text, encoding="utf-8")

    write_folder_atomically(path, fill, replaces=is_replaceable)


def is_replaceable(path: Path) -> bool:
    """Whether a model folder may replace a path: a file or a model folder that can be written."""
    return (path.is_file() or is_model_folder(path)) and os.access(path, os.W_OK)


def read_folder(path: str | os.PathLike[str], *, kind: str) -> StoredFile:
    """Open one folder with memory-mapped tensors.

    The manifest is compared with its checksum. Shards must exist with the right length, stated checksum, types and
    shapes; `verify_folder` also compares their values with the checksum.
    """
    folder = Path(path)
    header, shards = _read_manifest(folder, kind)
    if header["kind"] != kind:
        raise BadModelFile(f"{folder} holds a {header['kind']}; a {kind} is needed")
    tensors = MappedTensors()
    for shard in shards:
        tensors |= _open_shard(folder, shard).tensors
    return StoredFile(kind, header["content"]["content"], tensors)


def verify_folder(path: str | os.PathLike[str], *, kind: str) -> None:
    """Compare all shards of a folder with their checksums."""
    for shard in _read_manifest(Path(path), kind)[1]:
        _open_shard(Path(path), shard)
        verify_file(Path(path) / shard.file)


def read_model_version(path: str | os.PathLike[str]) -> str:
    """Read the version of deepmf that wrote a model file or folder."""
    if not Path(path).is_dir():
        return read_version(path)
    return str(_read_manifest(Path(path), "model")[0].get("version", "unknown"))


def count_model_bytes(path: str | os.PathLike[str]) -> int:
    """Count the bytes of a model file, or of all shards of a model folder."""
    if not Path(path).is_dir():
        return Path(path).stat().st_size
    return sum(shard.bytes for shard in _read_manifest(Path(path), "model")[1])


def compute_model_digest(path: str | os.PathLike[str]) -> str:
    """Return a sha256 that identifies a model: of the bytes of its file, or of the manifest of its folder."""
    file = Path(path, name_manifest("model")) if Path(path).is_dir() else Path(path)
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _cut_into_shards(tensors: Tensors, shard_bytes: int) -> Iterator[list[str]]:
    """Yield the names of the tensors of each shard, in order."""
    names: list[str] = []
    n_bytes = 0
    for name in sorted(tensors):
        if names and n_bytes + tensors[name].nbytes > shard_bytes:
            yield names
            names, n_bytes = [], 0
        names.append(name)
        n_bytes += tensors[name].nbytes
    yield names


def _read_manifest(folder: Path, kind: str) -> tuple[dict[str, Any], list[Shard]]:
    file = folder / name_manifest(kind)
    if not folder.exists():
        raise FileAbsent(f"there is no folder {folder}")
    if not file.is_file():
        raise BadModelFile(f"{folder} is a folder without {file.name}; {_WANTED[kind]} is needed")
    try:
        header = parse_header(file, file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadModelFile(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadModelFile(f"{file} is damaged: it is not UTF-8") from error
    wanted, content = header.pop("sha256"), header["content"]
    check_sum(file, wanted, header, {})
    try:
        return header, [Shard(**shard) for shard in _MANIFEST.read(content)["shards"]]
    except BadModelFile as error:
        raise error.locate(f"{file} is not the manifest of a {kind}") from error


def _open_shard(folder: Path, shard: Shard) -> MappedFile:
    """Open a shard; refuse a missing, incomplete or foreign one."""
    file = folder / shard.file
    if not file.is_file():
        raise BadModelFile(f"{folder} is not whole: its shard {shard.file} is missing")
    n_bytes = file.stat().st_size
    if n_bytes != shard.bytes:
        raise BadModelFile(
            f"{folder} is not whole: its shard {shard.file} has {n_bytes:,} bytes instead of {shard.bytes:,}"
        )
    opened = map_file(file)
    if opened.kind != _SHARD or opened.checksum != shard.sha256:
        raise BadModelFile(f"{folder} is mixed up: its shard {shard.file} is not the one it was saved with")
    return opened
