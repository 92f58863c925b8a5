"""A history: the entries of a row that the model does not know, by the columns that it knows."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.cli.inputs import Reading, called
from deepmf.errors import BadEntries, BadSetting, DeepMFWarning, DuplicateEntries, OffScale, UnknownLabel

if TYPE_CHECKING:
    import polars as pl

    from deepmf.models.folded import FoldedRows
    from deepmf.models.model import Model

_NAMED_AT_MOST = 5


def check_row(row: str | None, history: Path | None, features: str | None) -> None:
    """Refuse both a known row and a new one, and neither."""
    if (row is None) == (history is None and features is None):
        raise BadSetting("give either --row ID, which the model knows, or --history FILE or --features, for a new row")


def folded_in(model: Model, history: Path | None, features: dict[str, str] | None) -> FoldedRows:
    """Return the new row that has a history, or features, or both."""
    entries = {} if history is None else read_history(history, model)
    return model.fold_in(list(entries), list(entries.values()), features=features)


def read_history(path: Path, model: Model) -> dict[Any, float]:
    """Read the values of a new row by column; columns that the model does not know are left out with a warning."""
    from deepmf.data.roles import HISTORY

    return _entries(Reading().columns(path, HISTORY), called(path), model)


def _entries(frame: pl.DataFrame, source: str, model: Model) -> dict[Any, float]:
    """Return the values by the model's own column labels, without the columns that it does not know."""
    known = {str(label): label for label in model.column_labels_.tolist()}
    entries: dict[Any, float] = {}
    unknown = []
    for column, text in frame.iter_rows():
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


def _is_number(value: Any) -> bool:
    from deepmf.data.delimited import is_number

    return is_number(value) if isinstance(value, str) else isinstance(value, int | float | Decimal)
