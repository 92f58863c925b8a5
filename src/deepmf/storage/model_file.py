"""The model file: safetensors for arrays, a JSON header for everything else, and a checksum of
both.

Checks of stored content come first, then writing and reading of files."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from deepmf.errors import BadModelFile, UserError
from deepmf.files import AnyPath, check_path, write_atomically

Tensors = Mapping[str, npt.NDArray[Any]]

ENDING = ".model"  # of the names of models that are memory-mapped, whatever their size

LARGEST_READ = 2 << 30  # bytes; larger models are memory-mapped, too


class MappedTensors(dict[str, npt.NDArray[Any]]):
    """Memory-mapped tensors: types and shapes are checked, values are read when needed."""


class Packed(NamedTuple):
    """A part of a file: its JSON content and its tensors, whose names share a prefix."""

    content: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]


def has_values_to_check(tensors: Tensors) -> bool:
    """Whether values are checked on loading; memory-mapped values are not."""
    return not isinstance(tensors, MappedTensors)


def check_finite(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse a tensor with NaN or infinities; good tensors take one pass and no further array."""
    if array.dtype.kind != "f":
        return
    with np.errstate(all="ignore"):
        suspicious = not np.isfinite(array.sum())  # or the sum overflows
    if suspicious and not np.isfinite(array).all():
        raise BadModelFile(f"the tensor {name} must have finite numbers; some are not")


@contextmanager
def refuse_stored(what: str) -> Iterator[None]:
    """Turn user errors into `BadModelFile`."""
    try:
        yield
    except BadModelFile:
        raise
    except UserError as error:
        raise BadModelFile(f"the stored {what} cannot be used: {error}") from error


FORMAT = 5

_KEY = "deepmf"  # of the header in the safetensors metadata; a single key, whose order cannot vary
# of the JSON of a file, after its length of 8 bytes
_BEGINNING = f'{{"__metadata__":{{"{_KEY}":'.encode()

# numpy types by their names in safetensors.
_TYPES = {"BOOL": "bool"} | {
    f"{letter}{bits}": f"{name}{bits}"
    for letter, name, sizes in (
        ("F", "float", (16, 32, 64)),
        ("I", "int", (8, 16, 32, 64)),
        ("U", "uint", (8, 16, 32, 64)),
    )
    for bits in sizes
}

_CODES = {name: code for code, name in _TYPES.items()}

# Errors for unreadable bytes; the last ones for tensors that numpy cannot hold, and a file that
# changes meanwhile.
_UNREADABLE = (SafetensorError, ValueError, TypeError, AttributeError, KeyError)


class TensorFacts(NamedTuple):
    """The numpy type and the shape of a tensor."""

    type: str
    shape: list[int]


class TensorPlace(NamedTuple):
    """A tensor in a file, and the position of its first byte."""

    facts: TensorFacts
    start: int


class StoredFile(NamedTuple):
    """The content of a file.

    kind: "model", "checkpoint" or "matrix". content: JSON content. tensors: tensors by name.
        version: of the deepmf that wrote it. values: the sha256 of all tensors that the file
        states.
    """

    kind: str
    content: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]
    version: str
    values: str


def is_mapped(path: AnyPath, n_bytes: int) -> bool:
    """Whether a model of this name and size is memory-mapped."""
    return Path(path).suffix == ENDING or n_bytes > LARGEST_READ


def write_file(path: AnyPath, *, kind: str, content: dict[str, Any], tensors: Tensors) -> None:
    """Write one file, whole or not at all; the same arguments give the same bytes, and no tensor is
    copied.

    `content` is plain JSON content; NaN and infinities become None.
    """
    # Arrays are written as they are in memory, so they must be contiguous and little-endian.
    ordered = {
        name: array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        for name, array in tensors.items()
    }
    facts = {
        name: TensorFacts(array.dtype.name, list(array.shape)) for name, array in ordered.items()
    }
    beginning = encode_beginning(
        make_header(kind, content) | {"values": _hash_values(ordered)}, facts
    )

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(beginning)
            for name in _order_tensors(facts):
                file.write(view_bytes(ordered[name]))

    write_atomically(path, write)


def make_header(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return the header of a file, without its checksums."""
    return {
        "format": FORMAT,
        "version": find_version(),
        "kind": kind,
        "content": _make_plain(content),
    }


def read_file(path: AnyPath, *, kind: str) -> StoredFile:
    """Read one file of a kind into memory; raise `BadModelFile` for any defect.

    The checksums detect damage and edits, but do not prove who wrote the file. Nothing is
    unpickled.
    """
    return _check_values(path, _open_file(path, kind, _read_tensors))


def verify_file(path: AnyPath, *, kind: str) -> StoredFile:
    """Open one file as `map_file` does, after comparing all values with their checksum."""
    return _check_values(path, map_file(path, kind=kind))


def map_file(path: AnyPath, *, kind: str | None = None) -> StoredFile:
    """Open one file, of a kind if given, with memory-mapped tensors; types and shapes are checked,
    values are not.

    Writing to a tensor does not change the file.
    """
    return _open_file(path, kind, _map_tensors)


def _open_file(
    path: AnyPath,
    kind: str | None,
    open_tensors: Callable[[BinaryIO, Mapping[str, TensorPlace]], dict[str, npt.NDArray[Any]]],
) -> StoredFile:
    """Open one file, of a kind if given, after checking everything but the values of tensors."""
    file = check_path(path, error=BadModelFile)
    try:
        with safe_open(file, framework="np") as opened, file.open("rb") as content:
            texts = opened.metadata()
            if texts is None or _KEY not in texts:
                raise BadModelFile(f"{file} is a safetensors file, but not one of deepmf")
            header = _parse_header(file, texts[_KEY])
            length = int.from_bytes(content.read(8), "little")
            table = json.loads(content.read(length))
            del table["__metadata__"]
            places = {
                name: TensorPlace(
                    TensorFacts(_TYPES[described["dtype"]], described["shape"]),
                    8 + length + described["data_offsets"][0],
                )
                for name, described in table.items()
            }
            tensors = open_tensors(content, places)
    except BadModelFile:
        raise
    except OSError as error:
        raise BadModelFile(f"{file} cannot be read: {error}") from error
    except _UNREADABLE as error:
        raise BadModelFile(f"{file} is truncated, damaged or not a model file ({error})") from error
    _check_sum(file, header, {name: place.facts for name, place in places.items()})
    if kind not in (None, header["kind"]):
        raise BadModelFile(f"{file} holds a {header['kind']}; a {kind} is needed")
    return StoredFile(
        header["kind"], header["content"], tensors, header["version"], header["values"]
    )


def _read_tensors(file: BinaryIO, places: Mapping[str, TensorPlace]) -> dict[str, npt.NDArray[Any]]:
    """Return tensors in memory, each in its own."""
    tensors = {name: np.empty(facts.shape, facts.type) for name, (facts, _) in places.items()}
    for name, place in places.items():
        file.seek(place.start)
        file.readinto(view_bytes(tensors[name]))  # type: ignore[attr-defined]
    return tensors


def _map_tensors(file: BinaryIO, places: Mapping[str, TensorPlace]) -> dict[str, npt.NDArray[Any]]:
    """Return memory-mapped tensors."""
    mapped = _map(file.fileno())
    return MappedTensors(
        (name, np.ndarray(facts.shape, facts.type, buffer=mapped, offset=start))
        if math.prod(facts.shape)
        else (name, np.empty(facts.shape, facts.type))
        for name, (facts, start) in places.items()
    )


def _check_values(path: AnyPath, stored: StoredFile) -> StoredFile:
    """Return a file after comparing the values of all tensors with their checksum."""
    if _hash_values(stored.tensors) != stored.values:
        raise BadModelFile(f"{path} is damaged: its values do not match their checksum")
    return stored


def _check_sum(file: Path, header: dict[str, Any], facts: Mapping[str, TensorFacts]) -> None:
    """Refuse a file whose header does not have the checksum that it states."""
    stated_checksum = header.pop("sha256")
    try:
        is_whole = compute_checksum(header, facts) == stated_checksum
    except (ValueError, RecursionError):
        # JSON that can be read but not written (NaN) was not written by us
        is_whole = False
    if not is_whole:
        raise BadModelFile(f"{file} is damaged: its header does not match its checksum")


def _map(handle: int) -> mmap.mmap:
    """Map an open file privately, without reserving memory: it may be larger than the memory."""
    if os.name != "posix":
        return mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE | getattr(
        mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0
    )
    return mmap.mmap(handle, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def is_own_file(path: AnyPath) -> bool:
    """Whether a path is an ordinary file that begins like one of deepmf."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(8 + len(_BEGINNING)).endswith(_BEGINNING)
    except (OSError, ValueError):  # ValueError: a null character; readers explain both
        return False


def compute_digest(path: AnyPath) -> str:
    """Return a sha256 that identifies a model file: of its header, which holds the checksum of its
    tensors."""
    with Path(path).open("rb") as file:
        length = file.read(8)
        return _hash(length + file.read(min(int.from_bytes(length, "little"), 100_000_000)))


def _parse_header(file: Path, text: str) -> dict[str, Any]:
    """Return the header after checking its format and the types of its fields."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadModelFile(f"{file} has a header that is not valid JSON ({error})") from error
    fields = header if isinstance(header, dict) else {}
    number = fields.get("format")
    if type(number) is int and number > FORMAT:
        raise BadModelFile(
            f"{file} was written by a newer deepmf (format {number}; this version reads up to {FORMAT})"
        )
    types = {
        "format": int,
        "version": str,
        "kind": str,
        "content": dict,
        "values": str,
        "sha256": str,
    }
    for name, expected_type in types.items():
        if type(fields.get(name)) is not expected_type:
            raise BadModelFile(f"{file} has a header without a proper {name!r}")
    if number != FORMAT:
        raise BadModelFile(
            f"{file} is of format {number}, which this version does not read; it reads {FORMAT}"
        )
    return fields


def encode_beginning(header: dict[str, Any], facts: Mapping[str, TensorFacts]) -> bytes:
    """Return the bytes before the tensors of a file."""
    signed = encode_json(header | {"sha256": compute_checksum(header, facts)})
    table: dict[str, Any] = {"__metadata__": {_KEY: signed}}
    end = 0
    for name in _order_tensors(facts):
        kind, shape = facts[name]
        start, end = end, end + math.prod(shape) * np.dtype(kind).itemsize
        table[name] = {"dtype": _CODES[kind], "shape": shape, "data_offsets": [start, end]}
    text = encode_json(table).encode()
    text += b" " * (-(8 + len(text)) % 8)  # the alignment of tensors
    return len(text).to_bytes(8, "little") + text


def _order_tensors(facts: Mapping[str, TensorFacts]) -> list[str]:
    """Return the names of tensors in the order of a file: larger types come first, so that all are
    aligned."""
    return sorted(facts, key=lambda name: (-np.dtype(facts[name].type).itemsize, name))


def compute_checksum(header: dict[str, Any], facts: Mapping[str, TensorFacts]) -> str:
    """Return the sha256 of the header and of every tensor's name, type and shape."""
    return _hash(encode_json([header, [[name, *facts[name]] for name in sorted(facts)]]).encode())


def _hash_values(tensors: Tensors) -> str:
    """Return the sha256 of every tensor's name and own sha256."""
    return _hash(
        encode_json([[name, _hash(view_bytes(tensors[name]))] for name in sorted(tensors)]).encode()
    )


def _hash(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


def view_bytes(array: npt.NDArray[Any]) -> memoryview:
    """Return the bytes of an array in memory."""
    return array.reshape(-1).view(np.uint8).data


def encode_json(item: Any) -> str:
    """Return JSON without spaces; NaN and infinities raise `ValueError`."""
    return json.dumps(item, allow_nan=False, separators=(",", ":"))


def _make_plain(item: Any) -> Any:
    """Return JSON content with None in place of NaN and infinities."""
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        if not all(isinstance(key, str) for key in item):
            raise TypeError(f"the keys of stored content must be strings; got {list(item)!r}")
        return {key: _make_plain(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_make_plain(value) for value in item]
    return item


def find_version() -> str:
    """Return the version of deepmf that is installed."""
    try:
        return metadata.version("deepmf")
    except metadata.PackageNotFoundError:
        return "unknown"
