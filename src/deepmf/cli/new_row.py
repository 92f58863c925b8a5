"""A new row on the command line: described by a file of its history, by features, or by both; it is not stored."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.cli.inputs import InputOptions, name_file
from deepmf.errors import BadEntries, BadSetting, DeepMFWarning, DuplicateEntries, OffScale, UnknownLabel

if TYPE_CHECKING:
    import polars as pl

    from deepmf.models.base import Model
    from deepmf.models.fold_in import FoldedRows

_NAMED_AT_MOST = 5


def check_one_row(row: str | None, history: Path | None, features: str | None) -> None:
    """Refuse a known row together with a new one, and neither."""
    if (row is None) == (history is None and features is None):
        raise BadSetting("give either --row ID for a known row, or --history FILE or --features for a new one")


def fold_in_row(
    model: Model, history: Path | None, features: dict[str, str] | None, reading: InputOptions | None = None
) -> FoldedRows:
    """Return the new row that a history, features or both describe."""
    entries = {} if history is None else read_history(history, model, reading or InputOptions())
    return model.fold_in(list(entries), list(entries.values()), features=features)


def read_history(path: Path, model: Model, reading: InputOptions) -> dict[Any, float]:
    """Read the values of a new row by column; columns that the model does not know are left out with a warning."""
    from deepmf.data.layout import HISTORY

    if model.scale_.is_interactions:
        return _read_interactions(path, model, reading)
    return _collect_values(reading.read_columns(path, HISTORY).frame, name_file(path), model)


def _read_interactions(path: Path, model: Model, reading: InputOptions) -> dict[Any, float]:
    """Read the columns of a new row, one per line, and how often each occurs; further fields are ignored."""
    from collections import Counter

    from deepmf.data.layout import COLUMNS

    known = {str(label): label for label in model.column_labels_.tolist()}
    columns = reading.read_columns(path, COLUMNS, is_known=lambda field: field in known).frame.to_series()
    counts = Counter(map(str, columns.to_list()))
    _report_unknown([column for column in counts if column not in known], len(counts), name_file(path))
    return {known[column]: float(count) for column, count in counts.items() if column in known}


def _collect_values(frame: pl.DataFrame, source: str, model: Model) -> dict[Any, float]:
    known = {str(label): label for label in model.column_labels_.tolist()}
    values: dict[Any, float] = {}
    unknown = []
    for column, text in frame.iter_rows():
        if column is None or text is None:
            raise BadEntries(f"{source}: each line needs a column and a value; one has {column!r} and {text!r}")
        value = _parse_value(text, column, source, model)
        if str(column) not in known:
            unknown.append(column)
        elif known[str(column)] in values:
            raise DuplicateEntries(f"{source}: column {column!r} occurs twice")
        else:
            values[known[str(column)]] = value
    _report_unknown(unknown, len(unknown) + len(values), source)
    return values


def _report_unknown(unknown: list[Any], n_all: int, source: str) -> None:
    """Warn of the columns of a history that the model does not know; refuse a history of these alone."""
    shown = ", ".join(map(repr, unknown[:_NAMED_AT_MOST])) + (", ..." if len(unknown) > _NAMED_AT_MOST else "")
    if len(unknown) == n_all:
        raise UnknownLabel(f"{source}: the model knows none of the {len(unknown)} columns: {shown}")
    if unknown:
        message = f"{source}: the model does not know {len(unknown)} of the columns, which are left out: {shown}"
        warnings.warn(message, DeepMFWarning, stacklevel=1)


def _parse_value(text: Any, column: Any, source: str, model: Model) -> float:
    if not _is_number(text):
        raise BadEntries(f"{source}: column {column!r} has the value {text!r}, which is not a number")
    value = float(text)
    if not model.scale_.holds(value):
        raise OffScale(f"{source}: column {column!r} has the value {value:g}; the scale is {model.scale_}")
    return value


def _is_number(value: Any) -> bool:
    from deepmf.data.delimited import is_number

    return is_number(value) if isinstance(value, str) else isinstance(value, int | float | Decimal)
