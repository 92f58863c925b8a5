"""A part of a matrix that is mapped from a store, as a store without a name: it lives as long as the part does."""

from __future__ import annotations

import json
import os
import reprlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from deepmf.errors import CannotSave, UnreadableFile, UserError
from deepmf.files import temporary_folder, write_folder_atomically
from deepmf.matrix.arrays import (
    MOST_CODES,
    TYPES,
    ArrayFile,
    CodedValues,
    IndexArray,
    compute_checksum,
    count_codes,
    find_codes,
    iterate_pieces,
    map_array,
)
from deepmf.matrix.axis_entries import are_positions
from deepmf.matrix.frames import TableForm
from deepmf.matrix.labels import AS_TEXT, Labels, find_stored_kind
from deepmf.matrix.scale import Scale
from deepmf.matrix.text_labels import TextLabels

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix


MANIFEST = "manifest.json"

KIND = "deepmf store"

FORMAT = 1


_COUNTS = ("n_rows", "n_columns", "n_entries")

_MOST_BYTES = 1 << 20  # of a manifest


@dataclass(frozen=True)
class StoreManifest:
    """What a store holds.

    labels: for each axis, the kind of its labels and whether they rise.
    table: the value of each code, where values are stored as codes, and how many entries have it.
    parts: for each file, the type and the number of its elements and their checksum (CRC-32).
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
        """Write the manifest into a folder whose parts are written."""
        content = {
            "kind": KIND,
            "format": FORMAT,
            **{name: getattr(self, name) for name in _COUNTS},
            "mean": self.mean,
            "scale": _scale_content(self.scale),
            "form": self.form.to_dict(),
            "labels": self.labels,
            "table": self.table,
            "parts": self.parts,
        }
        (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> StoreManifest:
    """Read the manifest of a store; a folder that is none, or one of a newer version, is refused in one sentence."""
    content = _content(folder)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UnreadableFile(f"{folder} is not a store: its {MANIFEST} does not say so")
    number: Any = content.get("format")
    if not _is_count(number):
        raise _damage_error(folder, "format", number)
    if number != FORMAT:
        raise UnreadableFile(
            f"{folder} is a store of format {number}; this version of deepmf reads format {FORMAT}"
            + (", and a newer one wrote it" if number > FORMAT else "")
        )
    for name in _COUNTS:
        if not _is_count(content.get(name)):
            raise _damage_error(folder, name, content.get(name))
    return StoreManifest(
        **{name: content[name] for name in _COUNTS},
        mean=_number_or_none(folder, content.get("mean")),
        scale=_scale(folder, content.get("scale")),
        form=_form(folder, content.get("form")),
        labels=_labels(folder, content.get("labels")),
        table=_table(folder, content.get("table")),
        parts=_parts(folder, content.get("parts")),
    )


def _content(folder: Path) -> Any:
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        return json.loads(text if len(text) <= _MOST_BYTES else "")
    except FileNotFoundError as error:
        raise UnreadableFile(
            f"{folder} is a directory without a {MANIFEST}; a file, or a store that deepmf pack wrote, is needed"
        ) from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{folder} is not a whole store: its {MANIFEST} is damaged") from error


def _scale_content(scale: Scale) -> dict[str, Any]:
    if scale.levels is not None:
        return {"levels": scale.levels.tolist()}
    return {"low": scale.low, "high": scale.high} | ({} if scale.is_bounded else {"bounded": False})


def _scale(folder: Path, content: Any) -> Scale:
    try:
        if not isinstance(content, dict) or content.keys() - {"bounded"} not in ({"levels"}, {"low", "high"}):
            raise _damage_error(folder, "scale", content)
        return Scale(**content)
    except (UserError, TypeError) as error:
        raise _damage_error(folder, "scale", content) from error


def _form(folder: Path, content: Any) -> TableForm:
    form = TableForm.from_dict(content)
    if form is None:
        raise _damage_error(folder, "form", content)
    return form


def _labels(folder: Path, content: Any) -> dict[str, dict[str, Any]]:
    if (
        not isinstance(content, dict)
        or content.keys() != {"row", "column"}
        or not all(
            isinstance(each, dict) and isinstance(each.get("kind"), str) and isinstance(each.get("sorted"), bool)
            for each in content.values()
        )
    ):
        raise _damage_error(folder, "labels", content)
    return content


def _table(folder: Path, content: Any) -> list[float] | None:
    if content is None:
        return None
    if not isinstance(content, list) or not content or not all(map(_is_number, content)):
        raise _damage_error(folder, "table", content)
    return [float(each) for each in content]


def _parts(folder: Path, content: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(content, dict) or not all(
        isinstance(part, dict)
        and isinstance(part.get("type"), str)
        and part["type"] in TYPES
        and _is_count(part.get("length"))
        and _is_count(part.get("checksum"))
        for part in content.values()
    ):
        raise _damage_error(folder, "parts", content)
    return content


def _number_or_none(folder: Path, content: Any) -> float | None:
    if content is not None and not _is_number(content):
        raise _damage_error(folder, "mean", content)
    return None if content is None else float(content)


def _is_number(content: Any) -> bool:
    return type(content) in (int, float) and abs(content) <= sys.float_info.max


def _is_count(content: Any) -> bool:
    return type(content) is int and 0 <= content < 2**63


def _damage_error(folder: Path, name: str, found: Any) -> UnreadableFile:
    return UnreadableFile(f"{folder} is not a whole store: its {MANIFEST} has {reprlib.repr(found)} as {name!r}")


NUMBERED = "numbered"  # the kind of labels that count from 0 and take no room


_INDEX = ("int32", "int64")

_VALUES = ("uint8", "float32", "float64")


class StoreOrigin(NamedTuple):
    """The store that a matrix comes from, and the size and the time of change of its files when they were opened.

    A part of a store has files without names, which nobody else can change.
    """

    folder: Path
    seen: Mapping[str, tuple[int, int]]

    def check_unchanged(self) -> None:
        """Refuse a store of which a file has another size or time of change than when it was opened."""
        for name, seen in self.seen.items():
            if _state(self.folder / name) != seen:
                raise UnreadableFile(f"{self.folder} was changed while it was open ({name}); read it again")


class StoreParts(NamedTuple):
    """What a store holds, as the parts of a matrix; the arrays are those of its files."""

    rows: Labels
    columns: Labels
    scale: Scale
    form: TableForm
    row_starts: IndexArray
    columns_by_row: IndexArray
    values: npt.NDArray[np.floating[Any]]
    column_starts: IndexArray
    rows_by_column: IndexArray
    entries_by_column: IndexArray
    mean: float
    origin: StoreOrigin


def check_unchanged(*matrices: ObservedMatrix | None) -> None:
    """Refuse matrices of stores that were changed since they were opened, before their entries are read."""
    for matrix in matrices:
        if matrix is not None and matrix.origin is not None:
            matrix.origin.check_unchanged()


def open_store(folder: Path) -> StoreParts:
    """Open a store; its manifest, and the presence and the length of every part, are checked."""
    return _Opening(folder).parts()


def verify_store(folder: Path) -> None:
    """Read all of a store and compare every part with its checksum."""
    opening = _Opening(folder)
    for name, part in opening.manifest.parts.items():
        if compute_checksum(folder / name) != part["checksum"]:
            raise UnreadableFile(f"{folder} is damaged: the content of its part {name} does not match its checksum")
    check_entries(folder, opening.parts())


def check_entries(folder: Path, parts: StoreParts) -> None:
    """Refuse a store with an entry outside its rows, its columns or its scale; every entry is looked at once.

    Whatever computes with the entries takes them as they are: one outside would make it read other memory.
    """
    n_rows, n_columns, n_entries = len(parts.rows), len(parts.columns), parts.columns_by_row.size
    for name, array, count in (
        ("columns", parts.columns_by_row, n_columns),
        ("rows", parts.rows_by_column, n_rows),
        ("entries", parts.entries_by_column, n_entries),
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


class _Opening:
    """A store that is being opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: StoreManifest = read_manifest(folder)
        self._seen = {name: self._check_state(name) for name in self.manifest.parts}

    def parts(self) -> StoreParts:
        """Return the parts of a matrix."""
        manifest = self.manifest
        shape = manifest.n_rows, manifest.n_columns
        row_starts, column_starts = self._starts("row_starts", shape[0]), self._starts("column_starts", shape[1])
        return StoreParts(
            rows=self._labels("row", shape[0]),
            columns=self._labels("column", shape[1]),
            scale=manifest.scale,
            form=manifest.form,
            row_starts=row_starts,
            columns_by_row=self._array("columns", _INDEX, manifest.n_entries),
            values=self._values(),
            column_starts=column_starts,
            rows_by_column=self._array("rows", _INDEX, manifest.n_entries),
            entries_by_column=self._array("entries", _INDEX, manifest.n_entries),
            mean=float("nan") if manifest.mean is None else manifest.mean,
            origin=StoreOrigin(self.folder, self._seen),
        )

    def _check_state(self, name: str) -> tuple[int, int]:
        part = self.manifest.parts[name]
        path = self.folder / name
        if Path(name).name != name:
            raise UnreadableFile(f"{self.folder} is not a whole store: {name!r} cannot be the name of a part")
        state = _state(path)
        if state is None:
            raise UnreadableFile(f"{self.folder} is not a whole store: its part {name} is missing")
        needed = part["length"] * TYPES[part["type"]].itemsize
        if state[0] != needed:
            raise UnreadableFile(
                f"{self.folder} is not a whole store: its part {name} has {state[0]:,} bytes instead of {needed:,}"
            )
        return state

    def _array(self, name: str, kinds: tuple[str, ...], length: int) -> npt.NDArray[Any]:
        part = self.manifest.parts.get(name)
        if part is None:
            raise UnreadableFile(f"{self.folder} is not a whole store: its part {name} is missing")
        if part["type"] not in kinds or part["length"] != length:
            raise UnreadableFile(
                f"{self.folder} is not a whole store: its part {name} has {part['length']:,} elements of "
                f"{part['type']}; {length:,} of {' or '.join(kinds)} are needed"
            )
        try:
            return map_array(self.folder / name, part["type"], length)
        except (OSError, ValueError) as error:
            raise UnreadableFile(f"{self.folder}: its part {name} cannot be read ({error})") from error

    def _starts(self, name: str, count: int, *, total: int | None = None) -> IndexArray:
        """Return where the entries of each row, column or label start, which must rise to their number."""
        starts = self._array(name, _INDEX, count + 1)
        total = self.manifest.n_entries if total is None else total
        if starts[0] != 0 or starts[-1] != total or np.any(starts[1:] < starts[:-1]):
            raise UnreadableFile(f"{self.folder} is damaged: its part {name} does not rise from 0 to {total:,}")
        return starts

    def _values(self) -> npt.NDArray[np.floating[Any]]:
        values = self._array("values", _VALUES, self.manifest.n_entries)
        if values.dtype != np.uint8:
            return values
        table = self.manifest.table
        if table is None or len(table) > MOST_CODES or table != sorted(set(table)):
            raise UnreadableFile(f"{self.folder} is not a whole store: its codes have no table of rising values")
        exact = np.array(table)
        single = exact.astype(np.float32)
        # Stands for an array: see there what is decoded when.
        coded = CodedValues(values, single if np.array_equal(single, exact) else exact)
        return cast("npt.NDArray[np.floating[Any]]", coded)

    def _labels(self, axis: str, count: int) -> Labels:
        kind, is_sorted = (self.manifest.labels[axis][name] for name in ("kind", "sorted"))
        if kind == NUMBERED:
            return Labels.from_range(count, axis=axis)
        if kind in ("int", "float"):
            return Labels.from_distinct(self._array(f"{axis}_labels", (f"{kind}64",), count), axis=axis)
        if kind not in AS_TEXT:
            raise UnreadableFile(f"{self.folder} has {axis} labels of the unknown kind {kind!r}")
        n_bytes = self.manifest.parts.get(f"{axis}_text", {}).get("length", 0)
        text = self._array(f"{axis}_text", ("uint8",), n_bytes)
        starts = self._starts(f"{axis}_text_starts", count, total=n_bytes)
        return TextLabels(text, starts, kind=kind, is_sorted=is_sorted, axis=axis)


def _state(path: Path) -> tuple[int, int] | None:
    """Return the size of a file and when it was last changed; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: what cannot be a name
        return None
    return found.st_size, found.st_mtime_ns


BUCKET = 1 << 23  # records of a bucket

MOST_BUCKETS = 200  # all of which are open files at the same time


class Bucket(NamedTuple):
    """The records whose key is from `first` to below `last`, in the order in which they were added."""

    first: int
    last: int
    fields: list[npt.NDArray[Any]]  # the keys come first


class Buckets:
    """Records of several fields, the first of which is their key; read back once, key range by key range.

    weights: about how many records each key will have, (keys,).
    """

    def __init__(self, folder: Path, weights: npt.NDArray[Any], kinds: list[npt.DTypeLike]) -> None:
        self._folder = folder
        folder.mkdir()
        self._bounds = split_evenly(weights)
        self._kinds = [np.dtype(kind) for kind in kinds]
        n_buckets = self._bounds.size - 1
        # Numpy sorts bytes by counting.
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
        """Yield the buckets by rising keys; the files of each are removed as soon as it is read."""
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
            while content:  # a write may take only a part
                content = content[file.write(content) :]

    def _path(self, at: int) -> Path:
        return self._folder / str(at)


def split_evenly(weights: npt.NDArray[Any]) -> IndexArray:
    """Return ranges of keys of about equal weight, as (buckets + 1,) bounds; a key is never cut."""
    behind = np.cumsum(weights, dtype=np.float64)
    total = behind[-1] if behind.size else 0.0
    n_buckets = int(np.clip(np.ceil(total / BUCKET), 1, MOST_BUCKETS))
    inner = np.searchsorted(behind, total * np.arange(1, n_buckets) / n_buckets) + 1
    return np.unique(np.concatenate([[0], np.minimum(inner, weights.size), [weights.size]]))


def write_store(matrix: ObservedMatrix, path: str | Path) -> None:
    """Write a matrix as a new store, whole or not at all."""
    for labels in (matrix.rows, matrix.columns):
        find_stored_kind(labels)
    write_folder_atomically(path, lambda folder: _write_parts(matrix, folder))


def choose_code_table(scale: Scale) -> npt.NDArray[np.float64] | None:
    """Return the levels whose places are the codes of values; None where values are stored as numbers."""
    return scale.levels if scale.levels is not None and scale.levels.size <= MOST_CODES else None


class StoreWriter:
    """A store that is filled with entries in row order, none of them twice; values are codes where it has a table.

    column_weights: about how many entries each column will have, (columns,). most_entries: at least as many as come.
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
    ) -> None:
        self._parts = _Parts(folder)
        self._rows, self._columns = rows, columns
        self.index = np.int32 if max(most_entries, len(rows), len(columns)) < 2**31 - 1 else np.int64
        self._column_files = self._parts.file("columns", self.index)
        self._value_file = self._parts.file("values", value_kind)
        self._row_counts = np.zeros(len(rows), dtype=np.int64)
        self._buckets = Buckets(scratch, column_weights, [self.index, self.index, self.index])
        self.n_entries = 0
        self.code_counts = np.zeros(MOST_CODES + 1, dtype=np.int64)
        self._sum = 0.0

    def append(self, row_of: IndexArray, column_of: IndexArray, values: npt.NDArray[Any]) -> None:
        """Add entries that follow those before them in row order."""
        if row_of.size == 0:
            return
        first, last = int(row_of[0]), int(row_of[-1])
        self._row_counts[first : last + 1] += np.bincount(row_of - first, minlength=last + 1 - first)
        self._column_files.append(column_of)
        self._value_file.append(values)
        places = np.arange(self.n_entries, self.n_entries + row_of.size, dtype=self.index)
        self._buckets.add(column_of, row_of, places)
        self.n_entries += row_of.size
        if values.dtype == np.uint8:
            self.code_counts += count_codes(values, self.code_counts.size)
        else:
            self._sum += float(values.sum(dtype=np.float64))

    @property
    def values(self) -> npt.NDArray[Any]:
        """The values that were added, or their codes, mapped from their file."""
        return map_array(self._value_file.path, self._value_file.kind, self._value_file.length)

    def finish(self, *, scale: Scale, form: TableForm, table: npt.NDArray[np.float64] | None) -> None:
        """Sort the entries by column, and write all that is left; the manifest comes last."""
        self._parts.put("row_starts", _starts(self._row_counts, self.index))
        rows, entries = self._parts.file("rows", self.index), self._parts.file("entries", self.index)
        column_counts = np.zeros(len(self._columns), dtype=np.int64)
        for bucket in self._buckets:
            column_of, row_of, places = bucket.fields
            column_counts[bucket.first : bucket.last] = np.bincount(
                column_of - bucket.first, minlength=bucket.last - bucket.first
            )
            order = _by_key(bucket)
            rows.append(row_of if order is None else row_of[order])
            entries.append(places if order is None else places[order])
        self._parts.put("column_starts", _starts(column_counts, self.index))
        total = self._sum if table is None else float(self.code_counts[: table.size] @ table)
        mean = total / max(self.n_entries, 1)
        self._parts.finish(
            self._rows, self._columns, n_entries=self.n_entries, scale=scale, form=form, mean=mean, table=table
        )

    def close(self) -> None:
        """Close all files."""
        self._parts.close()
        self._buckets.close()


class _Parts:
    """The files of a store, and what its manifest says of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, ArrayFile] = {}

    def file(self, name: str, kind: npt.DTypeLike) -> ArrayFile:
        """Return a new part, to be written piece by piece."""
        self._files[name] = ArrayFile(self._folder / name, kind)
        return self._files[name]

    def put(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write a part at once."""
        self.file(name, array.dtype).append(array)

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
        labels = {each.axis: self._put_labels(each) for each in (rows, columns)}
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

    def _put_labels(self, labels: Labels) -> dict[str, Any]:
        if labels.is_numbered:
            return {"kind": NUMBERED, "sorted": True}
        kind = find_stored_kind(labels)
        if kind in ("int", "float"):
            self.put(f"{labels.axis}_labels", labels.array.astype(f"{kind}64", copy=False))
            return {"kind": kind, "sorted": False}
        text = TextLabels.of(labels, kind)
        self.put(f"{labels.axis}_text", text.text)
        self.put(f"{labels.axis}_text_starts", text.starts)
        return {"kind": kind, "sorted": text.is_sorted}


def _write_parts(matrix: ObservedMatrix, folder: Path) -> None:
    """Write what a matrix holds already by row and by column."""
    parts = _Parts(folder)
    try:
        parts.put("row_starts", matrix.by_row.starts)
        parts.put("columns", matrix.by_row.columns)
        table = _put_values(matrix, parts)
        parts.put("column_starts", matrix.by_column.starts)
        parts.put("rows", matrix.by_column.rows)
        parts.put("entries", matrix.by_column.entries)
        parts.finish(
            matrix.rows,
            matrix.columns,
            n_entries=matrix.n_entries,
            scale=matrix.scale,
            form=matrix.form,
            mean=matrix.mean,
            table=table,
        )
    finally:
        parts.close()


def _put_values(matrix: ObservedMatrix, parts: _Parts) -> npt.NDArray[np.float64] | None:
    """Write the values; return the table of their codes, where they are codes."""
    values: Any = matrix.values
    if isinstance(values, CodedValues):
        parts.put("values", values.codes)
        return values.table.astype(np.float64)
    table = choose_code_table(matrix.scale)
    if table is None:
        parts.put("values", values)
        return None
    file = parts.file("values", np.uint8)
    for piece in iterate_pieces(values):
        file.append(find_codes(piece.astype(np.float64), table))
    return table


def _by_key(bucket: Bucket) -> IndexArray | None:
    """Return the order that sorts a bucket by its key and keeps records of one key as they are; None: it is so."""
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


def _starts(counts: npt.NDArray[np.int64], index: npt.DTypeLike) -> IndexArray:
    starts = np.zeros(counts.size + 1, dtype=index)
    np.cumsum(counts, dtype=index, out=starts[1:])
    return starts


_PIECE = 1 << 22  # entries that are looked at at a time


class EntryPiece(NamedTuple):
    """Some entries that follow one another in row order; values are codes where the matrix has codes."""

    rows: IndexArray
    columns: IndexArray
    values: npt.NDArray[Any]

    def keep(self, which: npt.NDArray[Any]) -> EntryPiece:
        """Return some of them."""
        return EntryPiece(*(field[which] for field in self))


def iterate_entries(matrix: ObservedMatrix) -> Iterator[EntryPiece]:
    """Yield all entries of a matrix in row order, some at a time."""
    check_unchanged(matrix)
    starts, values = matrix.by_row.starts, get_stored_values(matrix)
    for start in range(0, matrix.n_entries, _PIECE):
        end = min(start + _PIECE, matrix.n_entries)
        first, last = np.searchsorted(starts, [start, end - 1], side="right") - 1
        bounds = np.clip(starts[first : last + 2].astype(np.int64), start, end)
        rows = np.repeat(np.arange(first, last + 1), np.diff(bounds))
        yield EntryPiece(rows, matrix.by_row.columns[start:end], values[start:end])


def get_stored_values(matrix: ObservedMatrix) -> npt.NDArray[Any]:
    """Return the values of a matrix as a store holds them: codes, or numbers."""
    values: Any = matrix.values
    return values.codes if isinstance(values, CodedValues) else values


def take_entries_on_disk(matrix: ObservedMatrix, which: npt.NDArray[Any]) -> StoreParts:
    """Return some of the entries: by a mask over them in row order, or by their rising places."""
    is_mask = which.dtype == bool

    def choose() -> Iterator[EntryPiece]:
        done = 0
        for piece in iterate_entries(matrix):
            end = done + piece.rows.size
            first, last = (done, end) if is_mask else np.searchsorted(which, [done, end])
            yield piece.keep(which[first:last] if is_mask else which[first:last] - done)
            done = end

    n_kept = int(np.count_nonzero(which)) if is_mask else which.size
    return _write_unnamed(matrix, matrix.rows, matrix.columns, choose(), matrix.column_counts, n_kept)


def take_axes_on_disk(matrix: ObservedMatrix, rows: IndexArray, columns: IndexArray) -> StoreParts:
    """Return the part with some rows and columns, given by their rising positions."""
    new_row, new_column = (
        _new_positions(len(axis), kept) for axis, kept in ((matrix.rows, rows), (matrix.columns, columns))
    )

    def choose() -> Iterator[EntryPiece]:
        for piece in iterate_entries(matrix):
            moved = EntryPiece(new_row[piece.rows], new_column[piece.columns], piece.values)
            yield moved.keep((moved.rows >= 0) & (moved.columns >= 0))

    weights = matrix.column_counts[columns]
    return _write_unnamed(
        matrix, matrix.rows.take(rows), matrix.columns.take(columns), choose(), weights, int(weights.sum())
    )


def _new_positions(count: int, kept: IndexArray) -> IndexArray:
    positions = np.full(count, -1, dtype=np.int64)
    positions[kept] = np.arange(kept.size)
    return positions


def _write_unnamed(
    matrix: ObservedMatrix,
    rows: Labels,
    columns: Labels,
    entries: Iterator[EntryPiece],
    column_weights: IndexArray,
    most_entries: int,
) -> StoreParts:
    """Write entries to a store whose files are removed once they are mapped: they stay for as long as they are held."""
    values: Any = matrix.values
    assert matrix.origin is not None
    place = _place(matrix.origin.folder.parent)
    with temporary_folder(place) as folder, _name_place(place):
        whole = folder / "whole"
        whole.mkdir()
        writer = StoreWriter(
            whole,
            folder / "scratch",
            rows=rows,
            columns=columns,
            value_kind=get_stored_values(matrix).dtype,
            column_weights=column_weights,
            most_entries=most_entries,
        )
        try:
            for piece in entries:
                writer.append(*piece)
            table = values.table.astype(np.float64) if isinstance(values, CodedValues) else None
            writer.finish(scale=matrix.scale, form=matrix.form, table=table)
        finally:
            writer.close()
        parts = open_store(whole)
        origin = StoreOrigin(matrix.origin.folder, {})
        return parts._replace(rows=rows, columns=columns, origin=origin)


@contextmanager
def _name_place(place: Path) -> Iterator[None]:
    """Say of what cannot be written where that is."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise CannotSave(f"a part of a store could not be written to {place} ({error.strerror})") from error


def _place(beside: Path) -> Path:
    """Return where a part is written: beside the store, or where temporary files are kept if nothing may be there."""
    return beside if beside.is_dir() and os.access(beside, os.W_OK) else Path(gettempdir())
