"""The store: a matrix of any size in a folder of memory-mapped arrays, in row order and in column order.

The file `manifest.json` holds the sizes, the scale, and the type, length and checksum of each part. Sorting entries
into a store takes 0.46 times the time of two sorts in polars, and a ninth of the memory.
"""

from __future__ import annotations

import json
import os
import reprlib
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from deepmf.errors import CannotSave, UnreadableFile, UserError
from deepmf.files import temporary_folder, write_folder_atomically
from deepmf.matrix.arrays import (
    MOST_CODES,
    CodedValues,
    IndexArray,
    ValueArray,
    count_codes,
    find_codes,
    iterate_pieces,
)
from deepmf.matrix.extras import FIRST_TIME, LAST_TIME, NO_TIME, PLAIN_EXTRAS, Extras
from deepmf.matrix.frames import TableForm
from deepmf.matrix.labels import AS_TEXT, Labels, find_stored_kind
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import ByColumn, ByRow, are_positions
from deepmf.matrix.text_labels import TextLabels

MANIFEST = "manifest.json"
KIND = "deepmf store"
FORMAT = 2  # format 1 has neither times nor weights
NUMBERED = "numbered"  # kind of labels that are 0, 1, 2, ... and take no space

# Types of stored arrays: little-endian on every machine.
TYPES = {name: np.dtype(name).newbyteorder("<") for name in ("uint8", "int32", "int64", "float32", "float64")}
_INDEX_TYPES = ("int32", "int64")
_VALUE_TYPES = ("uint8", "float32", "float64")

BUCKET = 1 << 23  # records of a bucket
MOST_BUCKETS = 200  # all of them are open files at the same time

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
            "format": FORMAT if {"times", "weights"} & self.parts.keys() else 1,  # older versions read format 1
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
    if not 1 <= number <= FORMAT:
        raise UnreadableFile(
            f"{folder} is a store of format {number}; this version of deepmf reads formats 1 to {FORMAT}"
            + (", and a newer one wrote it" if number > FORMAT else "")
        )
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
    """Whether all times lie in the years 1 to 9999 and all weights are positive and finite."""
    times, weights = extras
    return (
        times is None
        or all(
            np.all((piece == NO_TIME) | ((piece >= FIRST_TIME) & (piece <= LAST_TIME)))
            for piece in iterate_pieces(times)
        )
    ) and (weights is None or all(np.all((piece > 0) & np.isfinite(piece)) for piece in iterate_pieces(weights)))


class _Opening:
    """A store that is being opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        self._states = {name: self._check_state(name) for name in self.manifest.parts}

    def map_parts(self) -> MatrixParts:
        """Return the parts of a matrix, memory-mapped."""
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
            return _map_file(self.folder / name, part["type"], length)
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


# Writing


class Bucket(NamedTuple):
    """The records with `first <= key < last`, in the order in which they were added."""

    first: int
    last: int
    fields: list[npt.NDArray[Any]]  # the keys come first


class Buckets:
    """Records on disk, divided by ranges of their first field, the key; they can be read back once.

    weights: approximate number of records of each key, (keys,).
    """

    def __init__(self, folder: Path, weights: npt.NDArray[Any], kinds: list[npt.DTypeLike]) -> None:
        self._folder = folder
        folder.mkdir()
        self._bounds = split_evenly(weights)
        self._kinds = [np.dtype(kind) for kind in kinds]
        n_buckets = self._bounds.size - 1
        # As bytes, which numpy sorts by counting.
        self._bucket_of_key = np.repeat(np.arange(n_buckets, dtype=np.uint8), np.diff(self._bounds))
        self._files = [self._path(at).open("wb", buffering=0) for at in range(n_buckets)]
        self._counts: list[list[int]] = [[] for _ in range(n_buckets)]  # of each addition

    def add(self, *fields: npt.NDArray[Any]) -> None:
        """Add records."""
        if len(self._files) == 1:
            self._write(0, fields)
            return
        bucket_of = self._bucket_of_key[fields[0]]
        order = np.argsort(bucket_of, kind="stable")
        ends = np.cumsum(np.bincount(bucket_of, minlength=len(self._files)))
        ordered = [field[order] for field in fields]
        for at in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            start = int(ends[at - 1]) if at else 0
            self._write(at, [field[start : ends[at]] for field in ordered])

    def __iter__(self) -> Iterator[Bucket]:
        """Yield the buckets by increasing key; remove the file of each bucket once it is read."""
        for at, counts in enumerate(self._counts):
            self._files[at].close()
            fields = [np.empty(sum(counts), dtype=kind) for kind in self._kinds]
            with self._path(at).open("rb") as file:
                start = 0
                for count in counts:
                    for field, kind in zip(fields, self._kinds, strict=True):
                        field[start : start + count] = np.fromfile(file, dtype=kind, count=count)
                    start += count
            self._path(at).unlink()
            yield Bucket(int(self._bounds[at]), int(self._bounds[at + 1]), fields)

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()

    def _write(self, at: int, fields: Sequence[npt.NDArray[Any]]) -> None:
        file = self._files[at]
        self._counts[at].append(fields[0].size)
        for kind, field in zip(self._kinds, fields, strict=True):
            content = memoryview(np.ascontiguousarray(field, dtype=kind).view(np.uint8).data)
            _write_all(file, content)

    def _path(self, at: int) -> Path:
        return self._folder / str(at)


def split_evenly(weights: npt.NDArray[Any]) -> IndexArray:
    """Return the bounds (buckets + 1,) of ranges of keys that have about equal weight."""
    behind = np.cumsum(weights, dtype=np.float64)
    total = behind[-1] if behind.size else 0.0
    n_buckets = int(np.clip(np.ceil(total / BUCKET), 1, MOST_BUCKETS))
    inner = np.searchsorted(behind, total * np.arange(1, n_buckets) / n_buckets) + 1
    return np.unique(np.concatenate([[0], np.minimum(inner, weights.size), [weights.size]]))


def write_store(matrix: MatrixParts, path: str | Path) -> None:
    """Write a matrix as a new store, atomically."""
    for labels in (matrix.rows, matrix.columns):
        find_stored_kind(labels)  # refuses labels that cannot be stored
    write_folder_atomically(path, lambda folder: _write_parts(matrix, folder))


def choose_code_table(scale: Scale) -> npt.NDArray[np.float64] | None:
    """Return the levels if values are stored as codes; None if they are stored as numbers."""
    return scale.levels if scale.levels is not None and scale.levels.size <= MOST_CODES else None


class StoreWriter:
    """Writes a store from entries in row order without repeats.

    Parameters
    ----------
    folder, scratch : empty folder of the store, and folder of temporary files.
    rows, columns : labels of both axes.
    value_kind : type of the values; uint8 for codes.
    column_weights : approximate number of entries of each column, (columns,).
    most_entries : upper bound of the number of entries.
    extra_kinds : types of the times and of the weights; None where there are none.
    """

    def __init__(
        self,
        folder: Path,
        scratch: Path,
        *,
        rows: Labels,
        columns: Labels,
        value_kind: npt.DTypeLike,
        column_weights: npt.NDArray[Any],
        most_entries: int,
        extra_kinds: tuple[npt.DTypeLike | None, npt.DTypeLike | None] = (None, None),
    ) -> None:
        self._parts = _Parts(folder)
        self._rows, self._columns = rows, columns
        self.index = np.int32 if max(most_entries, len(rows), len(columns)) < 2**31 - 1 else np.int64
        self._column_files = self._parts.add_file("columns", self.index)
        self._value_file = self._parts.add_file("values", value_kind)
        self._extra_files = [
            None if kind is None else self._parts.add_file(name, kind)
            for name, kind in zip(Extras._fields, extra_kinds, strict=True)
        ]
        self._row_counts = np.zeros(len(rows), dtype=np.int64)
        self._buckets = Buckets(scratch, column_weights, [self.index, self.index, self.index])
        self.n_entries = 0
        self.code_counts = np.zeros(MOST_CODES + 1, dtype=np.int64)
        self._code_weights = np.zeros(MOST_CODES + 1)
        self._sum = 0.0
        self._weight = 0.0

    def append(
        self, row_of: IndexArray, column_of: IndexArray, values: npt.NDArray[Any], extras: Extras = PLAIN_EXTRAS
    ) -> None:
        """Add the next entries in row order."""
        if row_of.size == 0:
            return
        first, last = int(row_of[0]), int(row_of[-1])
        self._row_counts[first : last + 1] += np.bincount(row_of - first, minlength=last + 1 - first)
        self._column_files.append(column_of)
        self._value_file.append(values)
        for file, field in zip(self._extra_files, extras, strict=True):
            if file is not None and field is not None:
                file.append(field)
        places = np.arange(self.n_entries, self.n_entries + row_of.size, dtype=self.index)
        self._buckets.add(column_of, row_of, places)
        self.n_entries += row_of.size
        weights = extras.weights
        self._weight += row_of.size if weights is None else float(weights.sum(dtype=np.float64))
        if values.dtype == np.uint8:
            counts = count_codes(values, self.code_counts.size)
            self.code_counts += counts
            self._code_weights += counts if weights is None else np.bincount(values, weights, minlength=counts.size)
        else:
            self._sum += float((values if weights is None else values * weights).sum(dtype=np.float64))

    @property
    def values(self) -> npt.NDArray[Any]:
        """The values, or codes, added so far; memory-mapped."""
        return _map_file(self._value_file.path, self._value_file.kind, self._value_file.length)

    def finish(self, *, scale: Scale, form: TableForm, table: npt.NDArray[np.float64] | None) -> None:
        """Sort the entries by column and write the other parts; the manifest comes last."""
        self._parts.write("row_starts", _accumulate(self._row_counts, self.index))
        rows, entries = self._parts.add_file("rows", self.index), self._parts.add_file("entries", self.index)
        column_counts = np.zeros(len(self._columns), dtype=np.int64)
        for bucket in self._buckets:
            column_of, row_of, places = bucket.fields
            column_counts[bucket.first : bucket.last] = np.bincount(
                column_of - bucket.first, minlength=bucket.last - bucket.first
            )
            order = _sort_by_key(bucket)
            rows.append(row_of if order is None else row_of[order])
            entries.append(places if order is None else places[order])
        self._parts.write("column_starts", _accumulate(column_counts, self.index))
        total = self._sum if table is None else float(self._code_weights[: table.size] @ table)
        mean = total / (self._weight or 1)
        self._parts.finish(
            self._rows, self._columns, n_entries=self.n_entries, scale=scale, form=form, mean=mean, table=table
        )

    def close(self) -> None:
        """Close all files."""
        self._parts.close()
        self._buckets.close()


class _Parts:
    """The files of a store that is being written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, ArrayFile] = {}

    def add_file(self, name: str, kind: npt.DTypeLike) -> ArrayFile:
        """Return a new part, to be written piece by piece."""
        self._files[name] = ArrayFile(self._folder / name, kind)
        return self._files[name]

    def write(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write a part at once."""
        self.add_file(name, array.dtype).append(array)

    def finish(
        self,
        rows: Labels,
        columns: Labels,
        *,
        n_entries: int,
        scale: Scale,
        form: TableForm,
        mean: float,
        table: npt.NDArray[np.float64] | None,
    ) -> None:
        """Write the labels, and the manifest last."""
        labels = {each.axis: self._write_labels(each) for each in (rows, columns)}
        StoreManifest(
            n_rows=len(rows),
            n_columns=len(columns),
            n_entries=n_entries,
            mean=mean if n_entries else None,
            scale=scale,
            form=form,
            labels=labels,
            table=None if table is None else table.tolist(),
            parts={name: file.close() for name, file in self._files.items()},
        ).write(self._folder)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

    def _write_labels(self, labels: Labels) -> dict[str, Any]:
        if labels.is_numbered:
            return {"kind": NUMBERED, "sorted": True}
        kind = find_stored_kind(labels)
        if kind in ("int", "float"):
            self.write(f"{labels.axis}_labels", labels.array.astype(f"{kind}64", copy=False))
            return {"kind": kind, "sorted": False}
        text = TextLabels.of(labels, kind)
        self.write(f"{labels.axis}_text", text.text)
        self.write(f"{labels.axis}_text_starts", text.starts)
        return {"kind": kind, "sorted": text.is_sorted}


def _write_parts(matrix: MatrixParts, folder: Path) -> None:
    parts = _Parts(folder)
    try:
        parts.write("row_starts", matrix.by_row.starts)
        parts.write("columns", matrix.by_row.columns)
        table = _write_values(matrix, parts)
        for name, field in matrix.extras._asdict().items():
            if field is not None:
                parts.write(name, field)
        parts.write("column_starts", matrix.by_column.starts)
        parts.write("rows", matrix.by_column.rows)
        parts.write("entries", matrix.by_column.entries)
        parts.finish(
            matrix.rows,
            matrix.columns,
            n_entries=matrix.values.size,
            scale=matrix.scale,
            form=matrix.form,
            mean=matrix.mean,
            table=table,
        )
    finally:
        parts.close()


def _write_values(matrix: MatrixParts, parts: _Parts) -> npt.NDArray[np.float64] | None:
    """Write the values; return the table of codes, None if there are no codes."""
    values: Any = matrix.values
    if isinstance(values, CodedValues):
        parts.write("values", values.codes)
        return values.table.astype(np.float64)
    table = choose_code_table(matrix.scale)
    if table is None:
        parts.write("values", values)
        return None
    file = parts.add_file("values", np.uint8)
    for piece in iterate_pieces(values):
        file.append(find_codes(piece.astype(np.float64), table))
    return table


def _sort_by_key(bucket: Bucket) -> IndexArray | None:
    """Return the permutation that stably sorts a bucket by its key; None if it is sorted."""
    keys = bucket.fields[0]
    n_keys = bucket.last - bucket.first
    if n_keys <= 1:
        return None
    if n_keys <= 1 << 16:  # numpy sorts two bytes by counting
        return np.argsort((keys - bucket.first).astype(np.uint16), kind="stable")
    place_bits = keys.size.bit_length()
    packed = keys.astype(np.int64)
    packed -= bucket.first
    packed <<= place_bits
    packed |= np.arange(keys.size)
    packed.sort()
    packed &= (1 << place_bits) - 1
    return packed


def _accumulate(counts: npt.NDArray[np.int64], index: npt.DTypeLike) -> IndexArray:
    starts = np.zeros(counts.size + 1, dtype=index)
    np.cumsum(counts, dtype=index, out=starts[1:])
    return starts


class ArrayFile:
    """A file that an array is written to piece by piece; a full disk raises `OSError`."""

    def __init__(self, path: Path, kind: npt.DTypeLike) -> None:
        self.path = path
        self.kind = np.dtype(kind).name
        self.length = 0
        self._checksum = 0
        self._file = path.open("wb", buffering=0)

    def append(self, array: npt.NDArray[Any]) -> None:
        """Write the next piece."""
        for start in range(0, array.size, PIECE):
            piece = np.ascontiguousarray(array[start : start + PIECE], dtype=TYPES[self.kind])
            content = memoryview(piece.view(np.uint8).data)
            self._checksum = zlib.crc32(content, self._checksum)
            _write_all(self._file, content)
        self.length += array.size

    def close(self) -> dict[str, Any]:
        """Close the file; return its entry in the manifest."""
        self._file.close()
        return {"type": self.kind, "length": self.length, "checksum": self._checksum}


def _write_all(file: RawIOBase, content: memoryview) -> None:
    while content:  # an unbuffered write may take only a part
        content = content[file.write(content) :]


def _map_file(path: Path, kind: str, length: int) -> npt.NDArray[Any]:
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


# Parts of a store


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
    starts, values = matrix.by_row.starts, _get_codes(matrix)
    for start in range(0, values.size, PIECE):
        end = min(start + PIECE, values.size)
        first, last = np.searchsorted(starts, [start, end - 1], side="right") - 1
        bounds = np.clip(starts[first : last + 2].astype(np.int64), start, end)
        rows = np.repeat(np.arange(first, last + 1), np.diff(bounds))
        some = slice(start, end)
        yield EntryPiece(rows, matrix.by_row.columns[some], values[some], matrix.extras.take(some))


def _get_codes(matrix: MatrixParts) -> npt.NDArray[Any]:
    """Return the codes of the values if there are codes, otherwise the values."""
    values: Any = matrix.values
    return values.codes if isinstance(values, CodedValues) else values


def get_extra_kinds(extras: Extras) -> tuple[npt.DTypeLike | None, npt.DTypeLike | None]:
    """Return the types of the times and of the weights; None where there are none."""
    times, weights = (None if field is None else field.dtype for field in extras)
    return times, weights


def take_entries_on_disk(matrix: MatrixParts, which: npt.NDArray[Any]) -> MatrixParts:
    """Return some entries, by a mask in row order or by their increasing places, as a temporary store."""
    is_mask = which.dtype == bool

    def choose() -> Iterator[EntryPiece]:
        done = 0
        for piece in iterate_entries(matrix):
            end = done + piece.rows.size
            first, last = (done, end) if is_mask else np.searchsorted(which, [done, end])
            yield piece.keep(which[first:last] if is_mask else which[first:last] - done)
            done = end

    n_kept = int(np.count_nonzero(which)) if is_mask else which.size
    return _write_temporary_store(
        matrix, matrix.rows, matrix.columns, choose(), np.diff(matrix.by_column.starts), n_kept
    )


def take_axes_on_disk(matrix: MatrixParts, rows: IndexArray, columns: IndexArray) -> MatrixParts:
    """Return the submatrix of some rows and columns, by their increasing positions, as a temporary store."""
    new_row, new_column = (
        _renumber(len(axis), kept) for axis, kept in ((matrix.rows, rows), (matrix.columns, columns))
    )

    def choose() -> Iterator[EntryPiece]:
        for piece in iterate_entries(matrix):
            moved = piece._replace(rows=new_row[piece.rows], columns=new_column[piece.columns])
            yield moved.keep((moved.rows >= 0) & (moved.columns >= 0))

    weights = np.diff(matrix.by_column.starts)[columns]
    return _write_temporary_store(
        matrix, matrix.rows.take(rows), matrix.columns.take(columns), choose(), weights, int(weights.sum())
    )


def _renumber(count: int, kept: IndexArray) -> IndexArray:
    positions = np.full(count, -1, dtype=np.int64)
    positions[kept] = np.arange(kept.size)
    return positions


def _write_temporary_store(
    matrix: MatrixParts,
    rows: Labels,
    columns: Labels,
    entries: Iterator[EntryPiece],
    column_weights: IndexArray,
    most_entries: int,
) -> MatrixParts:
    """Write a store and remove its files once they are mapped; the system keeps them while they are in use."""
    values: Any = matrix.values
    assert matrix.origin is not None
    place = _choose_place(matrix.origin.folder.parent)
    with temporary_folder(place) as folder, _convert_errors(place):
        whole = folder / "whole"
        whole.mkdir()
        writer = StoreWriter(
            whole,
            folder / "scratch",
            rows=rows,
            columns=columns,
            value_kind=_get_codes(matrix).dtype,
            column_weights=column_weights,
            most_entries=most_entries,
            extra_kinds=get_extra_kinds(matrix.extras),
        )
        try:
            for piece in entries:
                writer.append(*piece)
            table = values.table.astype(np.float64) if isinstance(values, CodedValues) else None
            writer.finish(scale=matrix.scale, form=matrix.form, table=table)
        finally:
            writer.close()
        origin = StoreOrigin(matrix.origin.folder, {})
        part = open_store(whole)
        return part._replace(rows=rows, columns=columns, extras=part.extras.simplify(), origin=origin)


@contextmanager
def _convert_errors(place: Path) -> Iterator[None]:
    """Turn an `OSError` into `CannotSave` with the place of the files."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise CannotSave(f"a part of a store could not be written to {place} ({error.strerror})") from error


def _choose_place(beside: Path) -> Path:
    """Return the folder beside the store if it is writable, otherwise the folder of temporary files."""
    return beside if beside.is_dir() and os.access(beside, os.W_OK) else Path(gettempdir())
