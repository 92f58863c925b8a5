"""A matrix, its labels and its scale as tensors and JSON, and back."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.matrix.labels import Labelled
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.table_form import PLAIN, TableForm
from deepmf.storage.label_tensors import pack_labels, unpack_labels
from deepmf.storage.packed import Packed, Tensors, check_starts, field, number, refusing, vector

_A_SCALE = "a stored scale"


def pack_matrix(matrix: ObservedMatrix, prefix: str) -> Packed:
    """Return a matrix by row: where each row starts, the column and the value of each entry."""
    rows = pack_labels(matrix.rows, f"{prefix}.rows")
    columns = pack_labels(matrix.columns, f"{prefix}.columns")
    entries = {
        f"{prefix}.entries.starts": matrix.by_row.starts,
        f"{prefix}.entries.columns": matrix.by_row.columns,
        f"{prefix}.entries.values": np.asarray(matrix.values),
    }
    content: dict[str, Any] = {"rows": rows.content, "columns": columns.content, "scale": pack_scale(matrix.scale)}
    content |= {} if matrix.form == PLAIN else {"form": matrix.form.to_dict()}
    return Packed(content, rows.tensors | columns.tensors | entries)


def unpack_matrix(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return the matrix that was packed; anything that could not have been one raises `BadModelFile`."""
    rows = unpack_labels(f"{prefix}.rows", field(content, "rows"), tensors, axis="row")
    columns = unpack_labels(f"{prefix}.columns", field(content, "columns"), tensors, axis="column")
    scale = unpack_scale(field(content, "scale"))
    form = unpack_form(content["form"]) if "form" in content else PLAIN
    column_of = vector(tensors, f"{prefix}.entries.columns", "int32", "int64")
    values = vector(tensors, f"{prefix}.entries.values", "float32", "float64")
    starts = vector(tensors, f"{prefix}.entries.starts", "int32", "int64")
    check_starts(starts, len(rows), values.size, name=f"{prefix}.entries.starts")
    if column_of.size != values.size:
        raise BadModelFile(f"the stored matrix {prefix!r} has {column_of.size} columns for {values.size} values")
    if column_of.size and not (column_of.min() >= 0 and column_of.max() < len(columns)):
        raise BadModelFile(f"the stored matrix {prefix!r} has entries outside its {len(columns)} columns")
    row_of = np.repeat(np.arange(len(rows), dtype=starts.dtype), np.diff(starts))
    with refusing(f"matrix {prefix!r}"), np.errstate(all="ignore"):
        return ObservedMatrix.from_positions(
            Labelled(rows, row_of), Labelled(columns, column_of), values.astype(np.float64), scale=scale, form=form
        )


def unpack_form(content: Any) -> TableForm:
    """Return the form that was packed."""
    form = TableForm.from_dict(content)
    if form is None:
        raise BadModelFile(
            "the stored form of a table must have three names, a bool, and types of whole numbers if any; "
            f"got {reprlib.repr(content)}"
        )
    return form


def pack_scale(scale: Scale) -> dict[str, Any]:
    """Return a scale as JSON content, exact to the bit; without `bounded`, as in older files, it is bounded."""
    if scale.levels is not None:
        return {"levels": scale.levels.tolist()}
    return {"low": scale.low, "high": scale.high} | ({} if scale.is_bounded else {"bounded": False})


def unpack_scale(content: Any) -> Scale:
    """Return the scale that was packed."""
    with refusing("scale"):
        if not isinstance(content, dict) or "levels" not in content:
            low, high = (number(field(content, end), _A_SCALE) for end in ("low", "high"))
            return Scale(low=low, high=high, bounded=content.get("bounded", True))
        if not isinstance(content["levels"], list):
            raise BadModelFile(f"the levels of a stored scale must be a list; got {reprlib.repr(content['levels'])}")
        return Scale(levels=[number(level, _A_SCALE) for level in content["levels"]])
