"""The store: a matrix of any size in a folder of memory-mapped arrays, in row order and in column order.

The file `manifest.json` holds the sizes, the scale, and the type, length and checksum of each part. This module opens
and checks stores; `packed_writer.py` writes them.
"""

from __future__ import annotations

import json
import reprlib
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from deepmf.errors import UnreadableFile, UserError
from deepmf.matrix.arrays import (
    MOST_CODES,
    CodedValues,
    IndexArray,
    ValueArray,
    count_codes,
    iterate_pieces,
)
from deepmf.matrix.extras import FIRST_TIME, LAST_TIME, NO_TIME, PLAIN_EXTRAS, Extras, are_weights
from deepmf.matrix.labels import AS_TEXT, Labels
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import ByColumn, ByRow, are_positions
from deepmf.matrix.table_form import TableForm

MANIFEST = "manifest.json"
KIND = "deepmf store"
FORMAT = 2
NUMBERED = "numbered"  # kind of labels that are 0, 1, 2, ... and take no space

# Types of stored arrays: little-endian on every machine.
TYPES = {name: np.dtype(name).newbyteorder("<") for name in ("uint8", "int32", "int64", "float32", "float64")}
_INDEX_TYPES = ("int32", "int64")
_VALUE_TYPES = ("uint8", "float32", "float64")

PIECE = 1 << 22  # entries read or written at a time
_COUNTS = ("n_rows", "n_columns", "n_entries")
_LARGEST_MANIFEST = 1 << 20  # bytes


class StoreOrigin(NamedTuple):
    """The store that a matrix comes from, and the size and modification time of each file when it was opened.

    The files of a temporary part have no names, so nothing can change them and `states` is empty.
    """

    folder: Path
    states: Mapping[str, tuple[int, int]]

    def check_unchanged(self) -> None:
        """Raise an error if a file has another size or modification time than when it was opened."""
        for name, state in self.states.items():
            if _read_state(self.folder / name) != state:
                raise UnreadableFile(f"{self.folder} was changed while it was open ({name}); read it again")


class MatrixParts(NamedTuple):
    """Everything that an `ObservedMatrix` holds."""

    rows: Labels
    columns: Labels
    scale: Scale
    form: TableForm
    by_row: ByRow
    by_column: ByColumn
    values: ValueArray  # (entries,) in row order
    mean: float
    extras: Extras = PLAIN_EXTRAS  # (entries,) each, in row order
    origin: StoreOrigin | None = None


# The manifest


@dataclass(frozen=True)
class StoreManifest:
    """The content of a store's manifest.

    labels: kind of the labels of each axis, and whether they are sorted.
    table: value of each code; None if values are stored as numbers.
    parts: type, length and checksum (CRC-32) of each file.
    """

    n_rows: int
    n_columns: int
    n_entries: int
    mean: float | None
    scale: Scale
    form: TableForm
    labels: Mapping[str, Mapping[str, Any]]
    table: list[float] | None
    parts: Mapping[str, Mapping[str, Any]]

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder that holds all parts."""
        content = {
            "kind": KIND,
            "format": FORMAT,
            **{name: getattr(self, name) for name in _COUNTS},
            "mean": self.mean,
            "scale": self.scale.to_dict(),
            "form": self.form.to_dict(),
            "labels": self.labels,
            "table": self.table,
            "parts": self.parts,
        }
        (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> StoreManifest:
    """Read the manifest of a store; raise an error if the folder is no store, or a store of another format."""
    content = _read_content(folder)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UnreadableFile(f"{folder} is not a store: its {MANIFEST} does not say so")
    number: Any = content.get("format")
    if not _is_count(number):
        raise _build_damage_error(folder, "format", number)
    if number != FORMAT:
        raise UnreadableFile(f"{folder} is a store of format {number}; this version of deepmf reads format {FORMAT}")
    for name in _COUNTS:
        if not _is_count(content.get(name)):
            raise _build_damage_error(folder, name, content.get(name))
    return StoreManifest(
        **{name: content[name] for name in _COUNTS},
        mean=_check_mean(folder, content.get("mean")),
        scale=_check_scale(folder, content.get("scale")),
        form=_check_form(folder, content.get("form")),
        labels=_check_labels(folder, content.get("labels")),
        table=_check_table(folder, content.get("table")),
        parts=_check_parts(folder, content.get("parts")),
    )


def _read_content(folder: Path) -> Any:
    path = folder / MANIFEST
    if path.exists() and not path.is_file():  # a pipe might never end
        raise UnreadableFile(f"{folder} is not a whole store: its {MANIFEST} is not an ordinary file")
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_MANIFEST + 1)
        return json.loads(text if len(text) <= _LARGEST_MANIFEST else "")
    except FileNotFoundError as error:
        raise UnreadableFile(
            f"{folder} is a directory without a {MANIFEST}; a file, or a store that deepmf pack wrote, is needed"
        ) from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{folder} is not a whole store: its {MANIFEST} is damaged") from error


def _check_scale(folder: Path, content: Any) -> Scale:
    if content == {"interactions": True}:
        return Scale.interactions()
    try:
        if not isinstance(content, dict) or content.keys() - {"bounded"} not in ({"levels"}, {"low", "high"}):
            raise _build_damage_error(folder, "scale", content)
        return Scale(**content)
    except (UserError, TypeError) as error:
        raise _build_damage_error(folder, "scale", content) from error


def _check_form(folder: Path, content: Any) -> TableForm:
    form = TableForm.from_dict(content)
    if form is None:
        raise _build_damage_error(folder, "form", content)
    return form


def _check_labels(folder: Path, content: Any) -> dict[str, dict[str, Any]]:
    if (
        not isinstance(content, dict)
        or content.keys() != {"row", "column"}
        or not all(
            isinstance(each, dict) and isinstance(each.get("kind"), str) and isinstance(each.get("sorted"), bool)
            for each in content.values()
        )
    ):
        raise _build_damage_error(folder, "labels", content)
    return content


def _check_table(folder: Path, content: Any) -> list[float] | None:
    if content is None:
        return None
    if not isinstance(content, list) or not content or not all(map(_is_number, content)):
        raise _build_damage_error(folder, "table", content)
    return [float(each) for each in content]


def _check_parts(folder: Path, content: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(content, dict) or not all(
        isinstance(part, dict)
        and isinstance(part.get("type"), str)
        and part["type"] in TYPES
        and _is_count(part.get("length"))
        and _is_count(part.get("checksum"))
        for part in content.values()
    ):
        raise _build_damage_error(folder, "parts", content)
    return content


def _check_mean(folder: Path, content: Any) -> float | None:
    if content is not None and not _is_number(content):
        raise _build_damage_error(folder, "mean", content)
    return None if content is None else float(content)


def _is_number(content: Any) -> bool:
    return type(content) in (int, float) and abs(content) <= sys.float_info.max


def _is_count(content: Any) -> bool:
    return type(content) is int and 0 <= content < 2**63


def _build_damage_error(folder: Path, name: str, found: Any) -> UnreadableFile:
    return UnreadableFile(f"{folder} is not a whole store: its {MANIFEST} has {reprlib.repr(found)} as {name!r}")


# Opening


def open_store(folder: Path) -> MatrixParts:
    """Open a store after a check of its manifest and of the length of every part."""
    return _Opening(folder).map_parts()


def verify_store(folder: Path) -> None:
    """Compare every part of a store with its checksum, and check all entries."""
    opening = _Opening(folder)
    for name, part in opening.manifest.parts.items():
        if _compute_checksum(folder / name) != part["checksum"]:
            raise UnreadableFile(f"{folder} is damaged: the content of its part {name} does not match its checksum")
    check_entries(folder, opening.map_parts())


def check_entries(folder: Path, parts: MatrixParts) -> None:
    """Raise an error if an entry lies outside the rows, the columns or the scale of its store.

    Compiled code trusts these positions: one outside would make it read other memory.
    """
    for name, array, count in (
        ("columns", parts.by_row.columns, len(parts.columns)),
        ("rows", parts.by_column.rows, len(parts.rows)),
        ("entries", parts.by_column.entries, parts.by_row.columns.size),
    ):
        if not are_positions(array, count):
            raise UnreadableFile(f"{folder} is damaged: its part {name} has numbers outside 0 to {count - 1:,}")
    values: Any = parts.values
    if isinstance(values, CodedValues):
        if not are_positions(values.codes, values.table.size):
            raise UnreadableFile(f"{folder} is damaged: its part values has codes beyond its table")
        values = values.table[count_codes(values.codes, values.table.size) > 0]
    if not all(parts.scale.holds(piece).all() for piece in iterate_pieces(values)):
        raise UnreadableFile(f"{folder} is damaged: its part values has values that are not on its scale")
    if not are_extras_valid(parts.extras):
        raise UnreadableFile(f"{folder} is damaged: its times or weights are impossible")


def are_extras_valid(extras: Extras) -> bool:
    """Whether all times lie in the years 1 to 9999 and all weights in their range."""
    times, weights, places = extras
    return (
        times is None
        or all(
            np.all((piece == NO_TIME) | ((piece >= FIRST_TIME) & (piece <= LAST_TIME)))
            for piece in iterate_pieces(times)
        )
    ) and (
        (weights is None or all(are_weights(piece).all() for piece in iterate_pieces(weights)))
        and (places is None or all((piece >= 0).all() for piece in iterate_pieces(places)))
    )


class _Opening:
    """A store that is being opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        self._states = {name: self._check_state(name) for name in self.manifest.parts}

    def map_parts(self) -> MatrixParts:
        manifest = self.manifest
        n_entries = manifest.n_entries
        by_row = ByRow(
            self._map_starts("row_starts", manifest.n_rows), self._map_array("columns", _INDEX_TYPES, n_entries)
        )
        by_column = ByColumn(
            self._map_starts("column_starts", manifest.n_columns),
            self._map_array("rows", _INDEX_TYPES, n_entries),
            self._map_array("entries", _INDEX_TYPES, n_entries),
        )
        return MatrixParts(
            rows=self._map_labels("row", manifest.n_rows),
            columns=self._map_labels("column", manifest.n_columns),
            scale=manifest.scale,
            form=manifest.form,
            by_row=by_row,
            by_column=by_column,
            values=self._map_values(),
            mean=float("nan") if manifest.mean is None else manifest.mean,
            extras=Extras(
                self._map_optional("times", ("int64",), n_entries),
                self._map_optional("weights", ("float32", "float64"), n_entries),
                self._map_optional("places", ("int32",), n_entries),
            ),
            origin=StoreOrigin(self.folder, self._states),
        )

    def _map_optional(self, name: str, kinds: tuple[str, ...], length: int) -> npt.NDArray[Any] | None:
        return self._map_array(name, kinds, length) if name in self.manifest.parts else None

    def _check_state(self, name: str) -> tuple[int, int]:
        part = self.manifest.parts[name]
        path = self.folder / name
        if Path(name).name != name:
            raise UnreadableFile(f"{self.folder} is not a whole store: {name!r} cannot be the name of a part")
        state = _read_state(path)
        if state is None:
            raise UnreadableFile(f"{self.folder} is not a whole store: its part {name} is missing")
        needed = part["length"] * TYPES[part["type"]].itemsize
        if state[0] != needed:
            raise UnreadableFile(
                f"{self.folder} is not a whole store: its part {name} has {state[0]:,} bytes instead of {needed:,}"
            )
        return state

    def _map_array(self, name: str, kinds: tuple[str, ...], length: int) -> npt.NDArray[Any]:
        part = self.manifest.parts.get(name)
        if part is None:
            raise UnreadableFile(f"{self.folder} is not a whole store: its part {name} is missing")
        if part["type"] not in kinds or part["length"] != length:
            raise UnreadableFile(
                f"{self.folder} is not a whole store: its part {name} has {part['length']:,} elements of "
                f"{part['type']}; {length:,} of {' or '.join(kinds)} are needed"
            )
        try:
            return map_file(self.folder / name, part["type"], length)
        except (OSError, ValueError) as error:
            raise UnreadableFile(f"{self.folder}: its part {name} cannot be read ({error})") from error

    def _map_starts(self, name: str, count: int, *, total: int | None = None) -> IndexArray:
        """Return where the entries of each row, column or label start; they must increase to their number."""
        starts = self._map_array(name, _INDEX_TYPES, count + 1)
        total = self.manifest.n_entries if total is None else total
        if starts[0] != 0 or starts[-1] != total or np.any(starts[1:] < starts[:-1]):
            raise UnreadableFile(f"{self.folder} is damaged: its part {name} does not rise from 0 to {total:,}")
        return starts

    def _map_values(self) -> npt.NDArray[np.floating[Any]]:
        values = self._map_array("values", _VALUE_TYPES, self.manifest.n_entries)
        if values.dtype != np.uint8:
            return values
        table = self.manifest.table
        if table is None or len(table) > MOST_CODES or table != sorted(set(table)):
            raise UnreadableFile(f"{self.folder} is not a whole store: its codes have no table of rising values")
        exact = np.array(table)
        single = exact.astype(np.float32)
        coded = CodedValues(values, single if np.array_equal(single, exact) else exact)
        return cast("npt.NDArray[np.floating[Any]]", coded)

    def _map_labels(self, axis: str, count: int) -> Labels:
        from deepmf.matrix.text_labels import TextLabels

        kind, is_sorted = (self.manifest.labels[axis][name] for name in ("kind", "sorted"))
        if kind == NUMBERED:
            return Labels.from_range(count, axis=axis)
        if kind in ("int", "float"):
            return Labels.from_distinct(self._map_array(f"{axis}_labels", (f"{kind}64",), count), axis=axis)
        if kind not in AS_TEXT:
            raise UnreadableFile(f"{self.folder} has {axis} labels of the unknown kind {kind!r}")
        n_bytes = self.manifest.parts.get(f"{axis}_text", {}).get("length", 0)
        text = self._map_array(f"{axis}_text", ("uint8",), n_bytes)
        starts = self._map_starts(f"{axis}_text_starts", count, total=n_bytes)
        return TextLabels(text, starts, kind=kind, is_sorted=is_sorted, axis=axis)


def _read_state(path: Path) -> tuple[int, int] | None:
    """Return the size and the modification time of a file; None if it does not exist."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a name that cannot exist
        return None
    return found.st_size, found.st_mtime_ns


def map_file(path: Path, kind: str, length: int) -> npt.NDArray[Any]:
    """Return the array of a file, read-only and memory-mapped."""
    if length == 0:  # an empty file cannot be mapped
        empty = np.empty(0, dtype=kind)
        empty.flags.writeable = False
        return empty
    return np.asarray(np.memmap(path, dtype=TYPES[kind], mode="r", shape=(length,)))


def _compute_checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            checksum = zlib.crc32(piece, checksum)
    return checksum


# Entries


class EntryPiece(NamedTuple):
    """Consecutive entries in row order; values are codes if the matrix has codes."""

    rows: IndexArray
    columns: IndexArray
    values: npt.NDArray[Any]
    extras: Extras = PLAIN_EXTRAS

    def keep(self, which: npt.NDArray[Any]) -> EntryPiece:
        """Return some of the entries, by a mask or by their places."""
        return EntryPiece(self.rows[which], self.columns[which], self.values[which], self.extras.take(which))


def iterate_entries(matrix: MatrixParts) -> Iterator[EntryPiece]:
    """Yield all entries in row order, a piece at a time."""
    if matrix.origin is not None:
        matrix.origin.check_unchanged()
    starts, values = matrix.by_row.starts, get_codes(matrix)
    for start in range(0, values.size, PIECE):
        end = min(start + PIECE, values.size)
        first, last = np.searchsorted(starts, [start, end - 1], side="right") - 1
        bounds = np.clip(starts[first : last + 2].astype(np.int64), start, end)
        rows = np.repeat(np.arange(first, last + 1), np.diff(bounds))
        some = slice(start, end)
        yield EntryPiece(rows, matrix.by_row.columns[some], values[some], matrix.extras.take(some))


def get_codes(matrix: MatrixParts) -> npt.NDArray[Any]:
    """Return the codes of the values if there are codes, otherwise the values."""
    values: Any = matrix.values
    return values.codes if isinstance(values, CodedValues) else values
