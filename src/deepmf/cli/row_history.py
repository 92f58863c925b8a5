"""A history: what somebody new has an entry for, a column and a value per line, as a matrix of one new row."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.cli.fields import read_fields
from deepmf.cli.inputs import Reading, called, local_file
from deepmf.errors import BadEntries, DeepMFWarning, DuplicateEntries, OffScale, UnknownLabel

if TYPE_CHECKING:
    import polars as pl

    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.model import Model

_NAMED_AT_MOST = 5


def read_history(path: Path, model: Model) -> ObservedMatrix:
    """Read the entries of a new row from a file; columns that the model does not know are left out with a warning.

    In text, a first line that has a usual name for the column, or neither a number nor a gap, is the header.
    """
    with local_file(path) as file:
        fields = read_fields(file, ("column", "value"), Reading(), is_header=_is_header)
    return _one_row(_entries(fields, called(path), model), called(path), model)


def _is_header(fields: list[str]) -> bool:
    from deepmf.data.delimited import is_missing
    from deepmf.matrix.frames import has_usual_names

    return has_usual_names(fields, ["column"]) or not any(_is_number(field) or is_missing(field) for field in fields)


def _entries(fields: pl.DataFrame, source: str, model: Model) -> dict[Any, float]:
    """Return the values by the model's own column labels, without the columns that it does not know."""
    known = {str(label): label for label in model.column_labels_.tolist()}
    entries: dict[Any, float] = {}
    unknown = []
    for column, text in fields.iter_rows():
        if column is None or text is None:
            raise BadEntries(f"{source}: a column and a value are needed in each line; one has {column!r} and {text!r}")
        value = _checked_value(text, column, source, model)
        if str(column) not in known:
            unknown.append(column)
        elif known[str(column)] in entries:
            raise DuplicateEntries(f"{source}: the column {column!r} occurs twice")
        else:
            entries[known[str(column)]] = value
    shown = ", ".join(map(repr, unknown[:_NAMED_AT_MOST])) + (", ..." if len(unknown) > _NAMED_AT_MOST else "")
    if not entries:
        raise UnknownLabel(f"{source}: the model knows none of the {len(unknown)} columns: {shown}")
    if unknown:
        message = f"{source}: the model does not know {len(unknown)} of the columns, which are left out: {shown}"
        warnings.warn(message, DeepMFWarning, stacklevel=1)
    return entries


def _checked_value(text: Any, column: Any, source: str, model: Model) -> float:
    if not _is_number(text):
        raise BadEntries(f"{source}: the column {column!r} has the value {text!r}, which is not a number")
    value = float(text)
    if not model.scale_.holds(value):
        raise OffScale(f"{source}: the column {column!r} has the value {value:g}; the scale is {model.scale_}")
    return value


def _one_row(entries: dict[Any, float], source: str, model: Model) -> ObservedMatrix:
    """Return the entries as a matrix with one row, of a label that no row of the model has."""
    from deepmf.matrix.matrix import ObservedMatrix

    rows = model.row_labels_.tolist()
    label: Any = source if isinstance(rows[0], str) else max(rows) + 1
    while label in rows:
        label += " (new)"
    return ObservedMatrix.from_entries([label] * len(entries), list(entries), list(entries.values()), model.scale_)


def _is_number(value: Any) -> bool:
    from deepmf.data.delimited import is_number

    return is_number(value) if isinstance(value, str) else isinstance(value, int | float | Decimal)
