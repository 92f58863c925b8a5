"""The model file: safetensors for arrays, a JSON header for everything else, and a checksum of both.

Checks of stored content come first, then writing and reading of files."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from deepmf.errors import BadModelFile, FileAbsent, UserError
from deepmf.files import write_atomically

Tensors = Mapping[str, npt.NDArray[Any]]

LARGEST_FILE = 2 << 30  # bytes; larger models are folders


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


FORMAT = 3


_KEY = "deepmf"  # of the header in the safetensors metadata; a single key, whose order cannot vary

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

_ALIGNMENT = 8  # bytes, of the tensors in a file

# Errors of safetensors for unreadable bytes; the last three for tensors that numpy cannot hold.
_UNREADABLE = (SafetensorError, ValueError, TypeError, AttributeError)


class TensorFacts(NamedTuple):
    """The numpy type, the shape and the sha256 of a tensor."""

    type: str
    shape: list[int]
    sha256: str = ""


class StoredFile(NamedTuple):
    """The content of a file: its kind ("model", "checkpoint"), its JSON content and its tensors by name."""

    kind: str
    content: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]


def write_file(path: str | os.PathLike[str], *, kind: str, content: dict[str, Any], tensors: Tensors) -> None:
    """Write one file, whole or not at all; the same arguments give the same bytes.

    `content` is plain JSON content; NaN and infinities become None.
    """
    write_atomically(path, lambda temporary: write_in_place(temporary, kind=kind, content=content, tensors=tensors))


def write_in_place(path: Path, *, kind: str, content: dict[str, Any], tensors: Tensors) -> str:
    """Write a file without a temporary one and return its checksum; no tensor is copied."""
    # Arrays are written as they are in memory, so they must be contiguous and little-endian.
    ordered = {
        name: array.astype(array.dtype.newbyteorder("<"), order="C", copy=False) for name, array in tensors.items()
    }
    facts = {
        name: TensorFacts(array.dtype.name, list(array.shape), _hash(view_bytes(array)))
        for name, array in ordered.items()
    }
    beginning, checksum = encode_beginning(make_header(kind, content), facts)
    with path.open("wb") as file:
        file.write(beginning)
        for name in _order_tensors(facts):
            file.write(view_bytes(ordered[name]))
    return checksum


def make_header(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return the header of a file, without its checksum."""
    return {"format": FORMAT, "version": find_version(), "kind": kind, "content": _make_plain(content)}


def read_file(path: str | os.PathLike[str], *, kind: str | None = None) -> StoredFile:
    """Read one file, of a kind if given; raise `BadModelFile` for any defect.

    The checksum detects damage and edits, but does not prove who wrote the file. Nothing is unpickled.
    """
    file = _check_path(path)
    tensors: dict[str, npt.NDArray[Any]] = {}

    def read(opened: Any, name: str) -> npt.NDArray[Any]:
        tensors[name] = opened.get_tensor(name)
        return tensors[name]

    header = _verify(file, read)
    if kind is not None and header["kind"] != kind:
        raise BadModelFile(f"{file} holds a {header['kind']}; a {kind} is needed")
    return StoredFile(header["kind"], header["content"], tensors)


def verify_file(path: str | os.PathLike[str]) -> None:
    """Compare a file with its checksum, in the memory of its largest tensor."""
    _verify(_check_path(path), lambda opened, name: opened.get_tensor(name))


def _verify(file: Path, read: Callable[[Any, str], npt.NDArray[Any]]) -> dict[str, Any]:
    """Read the tensors of a file one by one, compare them with its checksum and return its header."""
    with _open(file) as (header, opened):
        wanted = header.pop("sha256")
        found = {
            name: facts._replace(sha256=_hash(view_bytes(read(opened, name))))
            for name, facts in _describe_tensors(opened).items()
        }
    check_sum(file, wanted, header, found)
    return header


def check_sum(file: Path, wanted: str, header: dict[str, Any], facts: Mapping[str, TensorFacts]) -> None:
    """Refuse a file that does not have the checksum that it states."""
    try:
        is_whole = compute_checksum(header, facts) == wanted
    except (ValueError, RecursionError):  # JSON that can be read but not written (NaN) was not written by us
        is_whole = False
    if not is_whole:
        raise BadModelFile(f"{file} is damaged: its content does not match its checksum")


class MappedFile(NamedTuple):
    """A file with memory-mapped tensors: its kind, its stated checksum and its tensors."""

    kind: str
    checksum: str
    tensors: dict[str, npt.NDArray[Any]]


def map_file(path: str | os.PathLike[str]) -> MappedFile:
    """Open one file with memory-mapped tensors; only types, shapes and the length are checked.

    Writing to a tensor does not change the file.
    """
    file = _check_path(path)
    with _open(file) as (header, opened):
        facts = _describe_tensors(opened)
        with file.open("rb") as content:
            whole = _map(content.fileno())
        length = int.from_bytes(whole[:8], "little")
        table = json.loads(whole[8 : 8 + length])
        tensors = {
            name: np.ndarray(shape, kind, buffer=whole, offset=8 + length + table[name]["data_offsets"][0])
            if math.prod(shape)
            else np.empty(shape, kind)
            for name, (kind, shape, _) in facts.items()
        }
    return MappedFile(header["kind"], header["sha256"], tensors)


def _map(handle: int) -> mmap.mmap:
    """Map an open file privately, without reserving memory: it may be larger than the memory."""
    if os.name != "posix":
        return mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
    return mmap.mmap(handle, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def read_version(path: str | os.PathLike[str]) -> str:
    """Read the version of deepmf that wrote a file, without checking the rest."""
    with _open(_check_path(path)) as (header, _):
        return str(header.get("version", "unknown"))


@contextmanager
def _open(file: Path) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the header and the open safetensors file; raise `BadModelFile` for defects of either."""
    try:
        with safe_open(file, framework="np") as opened:
            yield _find_header(file, opened.metadata()), opened
    except BadModelFile:
        raise
    except OSError as error:
        raise BadModelFile(f"{file} cannot be read: {error}") from error
    except _UNREADABLE as error:
        raise BadModelFile(f"{file} is truncated, damaged or not a model file ({error})") from error


def _check_path(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    try:
        found = file.stat()
    except FileNotFoundError as error:
        raise FileAbsent(f"there is no file {file}") from error
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise BadModelFile(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(found.st_mode):
        raise BadModelFile(f"{file} is a directory; a model file is needed")
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would block
        raise BadModelFile(f"{file} is not an ordinary file; a model file is needed")
    if found.st_size == 0:
        raise BadModelFile(f"{file} is empty")
    return file


def _find_header(file: Path, texts: dict[str, str] | None) -> dict[str, Any]:
    if texts is None or _KEY not in texts:
        raise BadModelFile(f"{file} is a safetensors file, but not one of deepmf")
    return parse_header(file, texts[_KEY])


def parse_header(file: Path, text: str) -> dict[str, Any]:
    """Return the header after checking its format and the types of its fields."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadModelFile(f"{file} has a header that is not valid JSON ({error})") from error
    if not isinstance(header, dict):
        raise BadModelFile(f"{file} has a header that is not a JSON object but a {type(header).__name__}")
    number = header.get("format")
    if type(number) is int and number > FORMAT:
        raise BadModelFile(f"{file} was written by a newer deepmf (format {number}; this version reads up to {FORMAT})")
    for name, wanted in {"format": int, "kind": str, "content": dict, "sha256": str}.items():
        if type(header.get(name)) is not wanted:
            raise BadModelFile(f"{file} has a header without a proper {name!r}")
    if number != FORMAT:
        raise BadModelFile(f"{file} is of format {number}, which this version does not read; it reads {FORMAT}")
    return header


def encode_beginning(header: dict[str, Any], facts: Mapping[str, TensorFacts]) -> tuple[bytes, str]:
    """Return the bytes before the tensors of a file, and its checksum."""
    checksum, end = compute_checksum(header, facts), 0
    table: dict[str, Any] = {"__metadata__": {_KEY: encode_json(header | {"sha256": checksum})}}
    for name in _order_tensors(facts):
        kind, shape, _ = facts[name]
        start, end = end, end + math.prod(shape) * np.dtype(kind).itemsize
        table[name] = {"dtype": _CODES[kind], "shape": shape, "data_offsets": [start, end]}
    text = encode_json(table).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, checksum


def _order_tensors(facts: Mapping[str, TensorFacts]) -> list[str]:
    """Return the names of tensors in the order of a file: larger types come first, so that all are aligned."""
    return sorted(facts, key=lambda name: (-np.dtype(facts[name].type).itemsize, name))


def compute_checksum(header: dict[str, Any], facts: Mapping[str, TensorFacts]) -> str:
    """Return the sha256 of the header and of every tensor's name, type, shape and own sha256."""
    return _hash(encode_json([header, [[name, *facts[name]] for name in sorted(facts)]]).encode())


def _describe_tensors(opened: Any) -> dict[str, TensorFacts]:
    """Return the type and the shape of each tensor without reading it."""
    found = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (it has no items)
    for lazy in found.values():
        if lazy.get_dtype() not in _TYPES:
            raise TypeError(f"numpy has no {lazy.get_dtype()}")
    return {name: TensorFacts(_TYPES[lazy.get_dtype()], lazy.get_shape()) for name, lazy in found.items()}


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
