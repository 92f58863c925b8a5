"""A matrix as a model folder holds it: labels and both orders of its entries as they lie in memory, to be mapped."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.matrix.entry_orders import ByColumn, ByRow, are_positions
from deepmf.matrix.label_kinds import AS_TEXT, stored_kind
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.table_form import PLAIN
from deepmf.matrix.text_labels import TextLabels
from deepmf.storage.label_tensors import pack_labels, unpack_labels
from deepmf.storage.matrix_tensors import pack_scale, unpack_form, unpack_matrix, unpack_scale
from deepmf.storage.packed import (
    Packed,
    Tensors,
    check_ends,
    check_starts,
    field,
    has_values_to_check,
    number,
    refusing,
    vector,
)

_INDEX = ("int32", "int64")
_ORDERED = "mean"  # what the content of such a matrix has, and that of one in a file has not


def pack_ordered(matrix: ObservedMatrix, prefix: str) -> Packed:
    """Return a matrix by row and by column, so that opening it sorts nothing."""
    labels = {"rows": _pack_labels(matrix.rows, f"{prefix}.rows")}
    labels["columns"] = _pack_labels(matrix.columns, f"{prefix}.columns")
    tensors = {
        f"{prefix}.entries.starts": matrix.by_row.starts,
        f"{prefix}.entries.columns": matrix.by_row.columns,
        f"{prefix}.entries.values": np.asarray(matrix.values),
        f"{prefix}.by_column.starts": matrix.by_column.starts,
        f"{prefix}.by_column.rows": matrix.by_column.rows,
        f"{prefix}.by_column.entries": matrix.by_column.entries,
    }
    content: dict[str, Any] = {axis: packed.content for axis, packed in labels.items()}
    content |= {"scale": pack_scale(matrix.scale), _ORDERED: matrix.mean}
    content |= {} if matrix.form == PLAIN else {"form": matrix.form.to_dict()}
    return Packed(content, tensors | labels["rows"].tensors | labels["columns"].tensors)


def unpack_either(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return a matrix that was packed for a file or for a folder."""
    is_ordered = isinstance(content, dict) and _ORDERED in content
    return (unpack_ordered if is_ordered else unpack_matrix)(prefix, content, tensors)


def unpack_ordered(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return the matrix that was packed; of one that is mapped into memory, lengths and positions alone are checked."""
    rows = _unpack_labels(f"{prefix}.rows", field(content, "rows"), tensors, axis="row")
    columns = _unpack_labels(f"{prefix}.columns", field(content, "columns"), tensors, axis="column")
    values = vector(tensors, f"{prefix}.entries.values", "float32", "float64")
    by_row = ByRow(
        vector(tensors, f"{prefix}.entries.starts", *_INDEX), vector(tensors, f"{prefix}.entries.columns", *_INDEX)
    )
    by_column = ByColumn(*(vector(tensors, f"{prefix}.by_column.{part}", *_INDEX) for part in ByColumn._fields))
    if not by_row.columns.size == by_column.rows.size == by_column.entries.size == values.size:
        raise BadModelFile(f"the stored matrix {prefix!r} has other numbers of rows and columns than of values")
    check_starts(by_row.starts, len(rows), values.size, name=f"{prefix}.entries.starts")
    check_starts(by_column.starts, len(columns), values.size, name=f"{prefix}.by_column.starts")
    _check_positions(by_row, by_column, (len(rows), len(columns)), prefix)
    opened = ObservedMatrix.from_order(
        rows,
        columns,
        unpack_scale(field(content, "scale")),
        by_row,
        by_column,
        values,
        mean=float("nan") if field(content, _ORDERED) is None else number(content[_ORDERED], "a stored mean"),
        form=unpack_form(content["form"]) if "form" in content else PLAIN,
    )
    if has_values_to_check(tensors):
        _check(opened, prefix)
    return opened


def _check_positions(by_row: ByRow, by_column: ByColumn, shape: tuple[int, int], prefix: str) -> None:
    """Refuse entries outside the matrix: whatever computes with them would read other memory."""
    n_rows, n_columns = shape
    positions = (by_row.columns, n_columns), (by_column.rows, n_rows), (by_column.entries, by_row.columns.size)
    if not all(are_positions(array, count) for array, count in positions):
        raise BadModelFile(f"the stored matrix {prefix!r} has entries outside its {n_rows} rows x {n_columns} columns")


def _check(opened: ObservedMatrix, prefix: str) -> None:
    """Refuse entries that are not those of a matrix, or not the same in both orders."""
    (starts, column_of), values = opened.by_row, opened.values
    row_of = np.repeat(np.arange(len(opened.rows), dtype=starts.dtype), np.diff(starts))
    with refusing(f"matrix {prefix!r}"), np.errstate(all="ignore"):
        again = ObservedMatrix.from_positions(
            Labelled(opened.rows, row_of),
            Labelled(opened.columns, column_of),
            values.astype(np.float64),
            scale=opened.scale,
        )
    orders = zip((*again.by_row, *again.by_column), (*opened.by_row, *opened.by_column), strict=True)
    if not all(np.array_equal(one, other) for one, other in orders):
        raise BadModelFile(f"the stored matrix {prefix!r} is not in order, or not the same by row and by column")
    if not np.isclose(again.mean, opened.mean, equal_nan=True):
        raise BadModelFile(f"the stored matrix {prefix!r} has the mean {again.mean:g}, not {opened.mean:g}")


def _pack_labels(labels: Labels, prefix: str) -> Packed:
    """Return labels; those that are stored as text with where each starts in bytes, to be decoded one by one."""
    kind = stored_kind(labels)
    if kind not in AS_TEXT:
        return pack_labels(labels, prefix)
    text = TextLabels.of(labels, kind)
    content = {"kind": kind, "sorted": text.is_sorted}
    return Packed(content, {f"{prefix}.text": text.text, f"{prefix}.starts": text.starts})


def _unpack_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    kind = field(content, "kind")
    if not isinstance(kind, str) or kind not in AS_TEXT:
        if kind not in ("int", "float") or has_values_to_check(tensors):
            return unpack_labels(prefix, content, tensors, axis=axis)
        return Labels.of_distinct(vector(tensors, f"{prefix}.labels", f"{kind}64"), axis=axis)
    is_sorted = field(content, "sorted")
    if not isinstance(is_sorted, bool):
        raise BadModelFile(f"whether the stored {axis} labels are sorted must be true or false; got {is_sorted!r}")
    text, starts = vector(tensors, f"{prefix}.text", "uint8"), vector(tensors, f"{prefix}.starts", "int64")
    check_ends(starts, starts.size - 1, text.size, name=f"{prefix}.starts")
    labels = TextLabels(text, starts, kind=kind, is_sorted=is_sorted, axis=axis)
    if has_values_to_check(tensors):
        _check_labels(labels, prefix)
    return labels


def _check_labels(labels: TextLabels, prefix: str) -> None:
    """Refuse texts that are no labels, or not distinct, or not sorted although they are said to be."""
    check_starts(labels.starts, len(labels), labels.text.size, name=f"{prefix}.starts")
    try:
        array = labels.array
    except ValueError as error:  # also where bytes are no UTF-8
        raise BadModelFile(f"the tensor {prefix}.text holds no labels of type {labels.kind} ({error})") from error
    with refusing(f"{labels.axis} labels"):
        again = Labels(array, axis=labels.axis)
    if TextLabels.of(again, labels.kind).is_sorted != labels.is_sorted:
        raise BadModelFile(f"the stored {labels.axis} labels are{'' if labels.is_sorted else ' not'} said to be sorted")
