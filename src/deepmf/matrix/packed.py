"""Matrices on disk: the declared form of a matrix in model files and stores.

A store is a file with one matrix, memory-mapped, in row order and in column order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.files import check_absent
from deepmf.matrix.arrays import iterate_pieces
from deepmf.matrix.extras import FIRST_TIME, LAST_TIME, NO_TIME, TIME_TYPES, Extras, are_weights
from deepmf.matrix.labels import AS_TEXT, Labels, TextLabels, find_stored_kind, is_increasing
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import ByColumn, ByRow, compact, turn_to_columns
from deepmf.matrix.table_form import PLAIN, TableForm
from deepmf.storage.model_file import (
    Packed,
    Tensors,
    has_values_to_check,
    refuse_stored,
    write_file,
)
from deepmf.storage.parts import (
    Check,
    Form,
    Part,
    check_ends,
    not_falling,
    not_negative,
    one_of,
    positions_of,
)

STORE = "matrix"  # kind of the file, and prefix of its tensors


# Labels

KINDS = ("int", "float", *AS_TEXT)

# The bytes of all texts, and the first byte of each.
TEXTS = Form(
    Part("text", "uint8", ("bytes",)),
    Part(
        "starts", "int64", ("labels + 1",), check_ends("bytes"), not_falling._replace(is_lazy=True)
    ),
)

_KIND = Part("kind", "text", (), one_of(*KINDS))

_LABELS = {
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
    kind = find_stored_kind(labels)
    if kind in AS_TEXT:
        return _LABELS[kind].pack(TextLabels.from_labels(labels, kind), prefix=prefix)
    return _LABELS[kind].pack(kind=kind, labels=labels.array, prefix=prefix)


def unpack_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    """Return the packed labels; texts of a memory-mapped file are decoded one by one."""
    kind = Form(_KIND, prefix=prefix).read(content)["kind"]
    parts = _LABELS[kind].read(content, tensors, prefix=prefix)
    with refuse_stored(f"{axis} labels"):
        if kind not in AS_TEXT:
            return (Labels if has_values_to_check(tensors) else Labels.from_distinct)(
                parts["labels"], axis=axis
            )
        labels = TextLabels(**parts, axis=axis)
        if not has_values_to_check(tensors):
            return labels
        decoded = Labels(labels.array, axis=axis)
    if is_increasing(labels.array) != labels.is_sorted:
        raise BadModelFile(f"the stored {axis} labels are sorted, or not, other than is said")
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
    scale_parts = {name: part for name, part in _SCALE.read(content).items() if part is not None}
    with refuse_stored("scale"):
        if scale_parts.pop("interactions", False):
            return Scale.interactions()
        return Scale(**scale_parts)


_FORM = Form(
    *(Part(name, "text") for name in ("row", "column", "value")),
    Part("wide", "flag"),
    *(Part(name, "text", optional=True) for name in ("time", "weight")),
    Part("time_type", "text", (), one_of(*TIME_TYPES), optional=True),
)

_MATRIX = Form(
    Part("rows", "object"),
    Part("columns", "object"),
    Part("scale", "object"),
    Part("form", _FORM, optional=True),
)

_INDEX = "int32 int64"

# Times lie in the years 1 to 9999.
_are_times = Check(
    "lie in the years 1 to 9999",
    lambda found, _: np.all((found == NO_TIME) | ((found >= FIRST_TIME) & (found <= LAST_TIME))),
)
_are_weights = Check("lie in their range", lambda found, _: are_weights(found).all())

_BY_ROW = Form(
    Part("values", "float32 float64", ("entries",)),
    Part("starts", _INDEX, ("rows + 1",), check_ends("entries"), not_falling),
    Part("columns", _INDEX, ("entries",), positions_of("columns")),
    Part("times", "int64", ("entries",), _are_times, optional=True),
    Part("weights", "float32 float64", ("entries",), _are_weights, optional=True),
    Part("places", "int32", ("entries",), not_negative, optional=True),
)

_BY_COLUMN = Form(
    Part("starts", _INDEX, ("columns + 1",), check_ends("entries"), not_falling),
    Part("rows", _INDEX, ("entries",), positions_of("rows")),
    Part("entries", _INDEX, ("entries",), positions_of("entries")),
)


def pack_matrix(matrix: Any, prefix: str) -> Packed:
    """Return a matrix for a file: the start of each row, and the column and value of each entry."""
    of_rows = pack_labels(matrix.rows, f"{prefix}.rows")
    of_columns = pack_labels(matrix.columns, f"{prefix}.columns")
    content = {
        "rows": of_rows.content,
        "columns": of_columns.content,
        "scale": matrix.scale.to_dict(),
    }
    content |= {} if matrix.form == PLAIN else {"form": matrix.form.to_dict()}
    arrays = matrix.by_row._asdict() | matrix.extras._asdict() | {"values": matrix.values}
    packed = _BY_ROW.pack(arrays, prefix=f"{prefix}.entries")
    return Packed(content, of_rows.tensors | of_columns.tensors | packed.tensors)


def pack_mapped_matrix(matrix: Any, prefix: str) -> Packed:
    """Return a matrix for a file that is memory-mapped: its entries by row and by column."""
    packed = pack_matrix(matrix, prefix)
    by_column = _BY_COLUMN.pack(matrix.by_column, prefix=f"{prefix}.by_column")
    return Packed(packed.content, packed.tensors | by_column.tensors)


def unpack_parts(prefix: str, content: Any, tensors: Tensors) -> dict[str, Any]:
    """Return the parts of a matrix that was packed for a file; raise `BadModelFile` for impossible
    content."""
    described = _MATRIX.read(content, prefix=prefix)
    rows = unpack_labels(f"{prefix}.rows", described["rows"], tensors, axis="row")
    columns = unpack_labels(f"{prefix}.columns", described["columns"], tensors, axis="column")
    form = PLAIN if described["form"] is None else TableForm(**described["form"])
    shape = len(rows), len(columns)
    arrays = _BY_ROW.read({}, tensors, prefix=f"{prefix}.entries", rows=shape[0], columns=shape[1])
    by_row = ByRow(arrays["starts"], arrays["columns"])
    values = arrays["values"]
    scale = unpack_scale(described["scale"])
    if not all(scale.holds(piece).all() for piece in iterate_pieces(values)):
        raise BadModelFile(
            f"the stored matrix {prefix!r} has values that are not on its scale, {scale}"
        )
    if is_mapped := f"{prefix}.by_column.starts" in tensors:
        sizes = {"rows": shape[0], "columns": shape[1], "entries": values.size}
        by_column = ByColumn(**_BY_COLUMN.read({}, tensors, prefix=f"{prefix}.by_column", **sizes))
    else:
        by_column = turn_to_columns(by_row, shape)
    if has_values_to_check(tensors):
        values = compact(values.astype(np.float64))
        _check_order(prefix, by_row, by_column if is_mapped else None, shape)
    extras = Extras(arrays["times"], arrays["weights"], arrays["places"])
    parts = {"rows": rows, "columns": columns, "scale": scale, "form": form, "extras": extras}
    return parts | {"by_row": by_row, "by_column": by_column, "values": values}


def _check_order(
    prefix: str, by_row: ByRow, by_column: ByColumn | None, shape: tuple[int, int]
) -> None:
    """Check that the entries are in order, and the same by row and by column."""
    starts, columns = by_row
    is_first = np.zeros(columns.size + 1, dtype=bool)
    is_first[starts] = True
    rises = np.all((np.diff(columns) > 0) | is_first[1 : columns.size])
    if not rises or not (
        by_column is None or all(map(np.array_equal, turn_to_columns(by_row, shape), by_column))
    ):
        raise BadModelFile(
            f"the stored matrix {prefix!r} is not in order, or not the same by row and by column"
        )


def write_store(matrix: Any, path: str | Path) -> None:
    """Write a matrix as a new store, atomically."""
    check_absent(path)
    write_file(path, kind=STORE, **pack_mapped_matrix(matrix, STORE)._asdict())
