"""Matrices on disk: the declared form of a matrix in model files, model folders and stores.

A store is a folder with one matrix, memory-mapped, in row order and in column order. This module packs and opens
matrices; `packed_writer.py` writes stores piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadModelFile, UnreadableFile
from deepmf.matrix.arrays import (
    MOST_CODES,
    CodedValues,
    IndexArray,
    ValueArray,
    count_codes,
    find_codes,
    iterate_pieces,
)
from deepmf.matrix.extras import FIRST_TIME, LAST_TIME, NO_TIME, PLAIN_EXTRAS, TIME_TYPES, Extras, are_weights
from deepmf.matrix.labels import AS_TEXT, Labels, find_stored_kind
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import ByColumn, ByRow, compact, turn_to_columns
from deepmf.matrix.table_form import PLAIN, WHOLE_TYPES, TableForm
from deepmf.storage.model_file import Packed, Tensors, has_values_to_check, refuse_stored
from deepmf.storage.parts import (
    Form,
    Part,
    are_positions,
    between,
    ends_of,
    not_falling,
    not_negative,
    one_of,
    positions_of,
    rising,
)

STORE = "matrix"  # kind of the folder, and prefix of its tensors
PIECE = 1 << 22  # entries read or written at a time


class StoreOrigin(NamedTuple):
    """The store that a matrix comes from, and the size and modification time of each file when it was opened.

    The files of a temporary part have no names, so nothing can change them and `states` is empty.
    """

    folder: Path
    states: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, folder: Path) -> StoreOrigin:
        """Return the present state of a store."""
        try:
            found = {file.name: file.stat() for file in folder.iterdir()}
        except OSError as error:
            raise UnreadableFile(f"{folder} cannot be read: {error.strerror}") from error
        return cls(folder, {name: (state.st_size, state.st_mtime_ns) for name, state in found.items()})

    def check_unchanged(self) -> None:
        """Raise an error if a file has another size or modification time than when it was opened."""
        if self.states and StoreOrigin.of(self.folder) != self:
            raise UnreadableFile(f"{self.folder} was changed while it was open; read it again")


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


# Labels

NUMBERED = "numbered"  # kind of labels that are 0, 1, 2, ... and take no space

KINDS = (NUMBERED, "int", "float", *AS_TEXT)

# The bytes of all texts, and the first byte of each.
TEXTS = Form(
    Part("text", "uint8", ("bytes",)),
    Part("starts", "int64", ("labels + 1",), ends_of("bytes"), not_falling._replace(is_lazy=True)),
)

_KIND = Part("kind", "text", (), one_of(*KINDS))

_LABELS = {
    NUMBERED: Form(_KIND, Part("count", "whole", (), between(0, 2**40))),
    "int": Form(_KIND, Part("labels", "int64", ("labels",))),
    "float": Form(_KIND, Part("labels", "float64", ("labels",), is_finite=False)),
} | dict.fromkeys(AS_TEXT, Form(_KIND, Part("is_sorted", "flag"), *TEXTS.parts))


def pack_labels(labels: Labels, prefix: str) -> Packed:
    """Return labels as a tensor of numbers, or as one text with the start of each label.

    >>> packed = pack_labels(Labels(["Alien", "Big"], axis="column"), "movies")
    >>> packed.content
    {'kind': 'str', 'is_sorted': True}
    >>> unpack_labels("movies", *packed, axis="column")
    Labels(2 columns: 'Alien', 'Big')
    """
    from deepmf.matrix.text_labels import TextLabels

    kind = NUMBERED if labels.is_numbered else find_stored_kind(labels)
    if kind in AS_TEXT:
        return _LABELS[kind].pack(TextLabels.of(labels, kind), prefix=prefix)
    if kind == NUMBERED:
        return _LABELS[kind].pack(kind=kind, count=len(labels), prefix=prefix)
    return _LABELS[kind].pack(kind=kind, labels=labels.array, prefix=prefix)


def unpack_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    """Return the packed labels; texts of a memory-mapped file are decoded one by one."""
    from deepmf.matrix.text_labels import TextLabels, is_increasing

    kind = Form(_KIND, prefix=prefix).read(content)["kind"]
    found = _LABELS[kind].read(content, tensors, prefix=prefix)
    if kind == NUMBERED:
        return Labels.from_range(found["count"], axis=axis)
    with refuse_stored(f"{axis} labels"):
        if kind not in AS_TEXT:
            return (Labels if has_values_to_check(tensors) else Labels.from_distinct)(found["labels"], axis=axis)
        labels = TextLabels(**found, axis=axis)
        if not has_values_to_check(tensors):
            return labels
        decoded = Labels(labels.array, axis=axis)
    if is_increasing(labels.array) != labels.is_sorted:
        raise BadModelFile(f"the stored {axis} labels are{'' if labels.is_sorted else ' not'} said to be sorted")
    return decoded


# Scale and entries

_SCALE = Form(
    Part("interactions", "flag", optional=True),
    Part("levels", "number", ("levels",), optional=True),
    Part("low", "number", optional=True),
    Part("high", "number", optional=True),
    Part("bounded", "flag", optional=True),
    prefix="scale",
)


def unpack_scale(content: Any) -> Scale:
    """Return the scale whose `to_dict` gave this content; without `bounded` it is bounded."""
    found = {name: part for name, part in _SCALE.read(content).items() if part is not None}
    with refuse_stored("scale"):
        return Scale.interactions() if found.pop("interactions", False) else Scale(**found)


_FORM = Form(
    *(Part(name, "text") for name in ("row", "column", "value")),
    Part("wide", "flag"),
    *(Part(name, "text", (), one_of(*WHOLE_TYPES), optional=True) for name in ("row_type", "column_type")),
    *(Part(name, "text", optional=True) for name in ("time", "weight")),
    Part("time_type", "text", (), one_of(*TIME_TYPES), optional=True),
)

_MATRIX = Form(
    Part("rows", "object"),
    Part("columns", "object"),
    Part("scale", "object"),
    Part("form", _FORM, optional=True),
    Part("mean", "number", optional=True),  # in a folder
)

_INDEX = "int32 int64"

_BY_ROW = Form(
    Part("values", "uint8 float32 float64", ("entries",)),
    # The value of each code; absent if values are no codes.
    Part("table", "float64", ("codes",), rising, optional=True),
    Part("starts", _INDEX, ("rows + 1",), ends_of("entries"), not_falling),
    Part("columns", _INDEX, ("entries",), positions_of("columns")),
    Part("times", "int64", ("entries",), optional=True),
    Part("weights", "float32 float64", ("entries",), optional=True),
    Part("places", "int32", ("entries",), not_negative, optional=True),
)

_BY_COLUMN = Form(
    Part("starts", _INDEX, ("columns + 1",), ends_of("entries"), not_falling),
    Part("rows", _INDEX, ("entries",), positions_of("rows")),
    Part("entries", _INDEX, ("entries",), positions_of("entries")),
)


def choose_code_table(scale: Scale) -> npt.NDArray[np.float64] | None:
    """Return the levels if values are stored as codes; None if they are stored as numbers."""
    return scale.levels if scale.levels is not None and scale.levels.size <= MOST_CODES else None


def pack_axes(rows: Labels, columns: Labels, scale: Scale, form: TableForm, prefix: str) -> Packed:
    """Return everything but the entries and the mean of a matrix for a file."""
    of_rows, of_columns = pack_labels(rows, f"{prefix}.rows"), pack_labels(columns, f"{prefix}.columns")
    content = {"rows": of_rows.content, "columns": of_columns.content, "scale": scale.to_dict()}
    content |= {} if form == PLAIN else {"form": form.to_dict()}
    return Packed(content, of_rows.tensors | of_columns.tensors)


def pack_matrix(matrix: Any, prefix: str) -> Packed:
    """Return a matrix, or its parts, for a file: the start of each row, and the column and value of each entry."""
    values: Any = matrix.values
    table: Any = values.table if isinstance(values, CodedValues) else choose_code_table(matrix.scale)
    if isinstance(values, CodedValues):
        values = values.codes
    elif table is not None:
        pieces = [find_codes(piece.astype(np.float64), table) for piece in iterate_pieces(values)]
        values = np.concatenate([np.empty(0, dtype=np.uint8), *pieces])
    arrays = matrix.by_row._asdict() | matrix.extras._asdict() | {"values": values, "table": table}
    content, tensors = pack_axes(matrix.rows, matrix.columns, matrix.scale, matrix.form, prefix)
    return Packed(content, tensors | _BY_ROW.pack(arrays, prefix=f"{prefix}.entries").tensors)


def pack_mapped_matrix(matrix: Any, prefix: str) -> Packed:
    """Return a matrix, or its parts, for a folder: its entries by row and by column."""
    packed, by_column = pack_matrix(matrix, prefix), _BY_COLUMN.pack(matrix.by_column, prefix=f"{prefix}.by_column")
    return Packed(packed.content | {"mean": matrix.mean}, packed.tensors | by_column.tensors)


def unpack_parts(prefix: str, content: Any, tensors: Tensors) -> MatrixParts:
    """Return a matrix that was packed for a file or a folder; raise `BadModelFile` for impossible content."""
    described = _MATRIX.read(content, prefix=prefix)
    rows = unpack_labels(f"{prefix}.rows", described["rows"], tensors, axis="row")
    columns = unpack_labels(f"{prefix}.columns", described["columns"], tensors, axis="column")
    form = PLAIN if described["form"] is None else TableForm(**described["form"])
    sizes = {"rows": len(rows), "columns": len(columns)}
    found = _BY_ROW.read({}, tensors, prefix=f"{prefix}.entries", **sizes)
    by_row, values = ByRow(found["starts"], found["columns"]), _decode_values(found["values"], found["table"], prefix)
    sizes["entries"] = values.size
    is_stored = f"{prefix}.by_column.starts" in tensors
    by_column = (
        ByColumn(**_BY_COLUMN.read({}, tensors, prefix=f"{prefix}.by_column", **sizes))
        if is_stored
        else turn_to_columns(by_row, (len(rows), len(columns)))
    )
    extras = Extras(found["times"], found["weights"], found["places"])
    mean = float("nan") if described["mean"] is None else described["mean"]
    scale = unpack_scale(described["scale"])
    parts = MatrixParts(rows, columns, scale, form, by_row, by_column, values, mean, extras)
    if has_values_to_check(tensors):
        parts = _check_parts(parts, prefix, is_stored=is_stored)
    return parts


def _decode_values(values: Any, table: npt.NDArray[np.float64] | None, prefix: str) -> ValueArray:
    if values.dtype != np.uint8:
        return cast("ValueArray", values)
    if table is None or table.size > MOST_CODES or not are_positions(values, table.size):
        raise BadModelFile(f"the stored matrix {prefix!r} has codes of values that are not in its table")
    with np.errstate(over="ignore"):
        single = table.astype(np.float32)
    return cast("ValueArray", CodedValues(values, single if np.array_equal(single, table) else table))


def _check_parts(parts: MatrixParts, prefix: str, *, is_stored: bool) -> MatrixParts:
    """Check everything that a memory-mapped matrix is trusted with; return it with decoded values and its mean."""
    check_values(f"the stored matrix {prefix!r}", parts)
    starts, columns = parts.by_row
    is_first = np.zeros(columns.size + 1, dtype=bool)
    is_first[starts] = True
    rises = np.all((np.diff(columns) > 0) | is_first[1 : columns.size])
    turned = turn_to_columns(parts.by_row, (len(parts.rows), len(parts.columns))) if is_stored else parts.by_column
    if not rises or not all(np.array_equal(*each) for each in zip(turned, parts.by_column, strict=True)):
        raise BadModelFile(f"the stored matrix {prefix!r} is not in order, or not the same by row and by column")
    values = compact(np.asarray(parts.values, dtype=np.float64))
    mean = compute_mean(values, parts.extras)
    if is_stored and not np.isclose(mean, parts.mean, equal_nan=True):
        raise BadModelFile(f"the stored matrix {prefix!r} has the mean {mean:g}, not {parts.mean:g}")
    return parts._replace(values=values, mean=mean)


def compute_mean(values: ValueArray, extras: Extras) -> float:
    """Return the mean of some values by their weights; NaN without values."""
    if not values.size:
        return float("nan")
    if extras.weights is None:
        return float(values.mean(dtype=np.float64))
    return float(np.average(np.asarray(values, dtype=np.float64), weights=extras.weights.astype(np.float64)))


# Stores


def open_store(folder: Path) -> MatrixParts:
    """Open a store after a check of its manifest, its positions and its values."""
    from deepmf.storage.model_folder import read_folder

    origin = StoreOrigin.of(folder)
    stored = read_folder(folder, kind=STORE)
    try:
        parts = unpack_parts(STORE, stored.content, stored.tensors)
    except BadModelFile as error:
        raise error.locate(f"{folder} is not a whole store") from error
    check_values(f"{folder} is damaged: it", parts)
    return parts._replace(origin=origin)


def verify_store(folder: Path) -> None:
    """Compare every part of a store with its checksum, and check all entries."""
    from deepmf.storage.model_folder import verify_folder

    verify_folder(folder, kind=STORE)
    open_store(folder)


def check_values(what: str, parts: MatrixParts) -> None:
    """Raise an error if a value is not on the scale, or a time or weight is impossible."""
    values: Any = parts.values
    if isinstance(values, CodedValues):
        values = values.table[count_codes(values.codes, values.table.size) > 0]
    if not all(parts.scale.holds(piece).all() for piece in iterate_pieces(values)):
        raise BadModelFile(f"{what} has values that are not on its scale, {parts.scale}")
    if not are_extras_valid(parts.extras):
        raise BadModelFile(f"{what} has impossible times or weights")


def are_extras_valid(extras: Extras) -> bool:
    """Whether all times lie in the years 1 to 9999, all weights in their range, and no place is negative."""
    checks: list[Callable[[npt.NDArray[Any]], Any]] = [
        lambda times: (times == NO_TIME) | ((times >= FIRST_TIME) & (times <= LAST_TIME)),
        are_weights,
        lambda places: places >= 0,
    ]
    return all(
        check(piece).all()
        for check, field in zip(checks, extras, strict=True)
        if field is not None
        for piece in iterate_pieces(field)
    )


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
