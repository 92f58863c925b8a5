"""The pairs to predict: a row and a column per line of a text or Parquet file, or of standard input."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.cli.fields import has_usual_names, read_fields
from deepmf.cli.inputs import Reading, called, local_file, name_or_position
from deepmf.errors import BadEntries, UnknownLabel

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from deepmf.models.model import Model

_WHOLE_NUMBER = r"^-?(0|[1-9]\d{0,17})$"


class Pairs(NamedTuple):
    """Row and column labels of one length, of the kinds that the model has."""

    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]


def read_pairs(path: Path, model: Model, reading: Reading) -> Pairs:
    """Read pairs; what else a line holds is ignored.

    In text, a first line that is made of names rather than of ids is the header: one that has usual names (user,
    item, ...), or neither numbers nor an id that the model knows.
    """
    with local_file(path) as file:
        frame = read_fields(
            file, ("row", "column"), reading, is_header=lambda fields: _is_header(fields, model, reading)
        )
    rows, columns = frame.get_columns()
    return Pairs(
        _labels(rows, model.row_labels_, called(path), axis="row"),
        _labels(columns, model.column_labels_, called(path), axis="column"),
    )


def _is_header(fields: list[str], model: Model, reading: Reading) -> bool:
    if any(isinstance(name_or_position(name), str) for name in (reading.row, reading.column)):
        return True
    if has_usual_names(fields, ("row", "column")):
        return True
    seen = model.observations_
    assert seen is not None, "a loaded model is fitted"
    return not any(re.match(_WHOLE_NUMBER, field) or field in seen.rows or field in seen.columns for field in fields)


def _labels(ids: pl.Series, known: npt.NDArray[Any], source: str, *, axis: str) -> npt.NDArray[Any]:
    """Return ids as labels of the kind that the model has."""
    import numpy as np
    import polars

    if ids.null_count():
        raise BadEntries(f"{source}: pair {ids.is_null().arg_max()} has no {axis} id")
    try:
        texts = ids.cast(polars.String)
    except polars.exceptions.PolarsError as error:
        raise BadEntries(f"{source}: the {axis} ids are of type {ids.dtype}; ints or texts are needed") from error
    if known.size == 0 or isinstance(known[0], str):
        return np.array(texts.to_list(), dtype=object)
    kind = "whole numbers" if known.dtype.kind == "i" else "numbers"
    wrong = (
        ~texts.str.contains(_WHOLE_NUMBER)
        if known.dtype.kind == "i"
        else texts.cast(polars.Float64, strict=False).is_null()
    )
    if wrong.any():
        raise UnknownLabel(f"{axis} {texts.filter(wrong)[0]!r} is not known; the model's {axis}s are {kind}")
    return texts.cast(polars.Int64 if known.dtype.kind == "i" else polars.Float64).to_numpy()
