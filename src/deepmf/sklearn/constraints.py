"""Constraints of imputed values: ends, whole numbers, and columns that follow from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deepmf.errors import BadSetting, suggest_name
from deepmf.sklearn.table import MaskArray, with_columns

WHOLE = "whole"


def check_constraints(given: Mapping[Any, Any], names: list[Any]) -> None:
    """Raise `BadSetting` for a column that is not there, or for what is no constraint."""
    for name, constraint in given.items():
        if name not in names:
            hint = suggest_name(str(name), list(map(str, names)))
            raise BadSetting(f"constraints has {name!r}, which is no column that is filled in; {hint}")
        for each in _list_parts(constraint):
            if not (callable(each) or (isinstance(each, str) and each == WHOLE) or _are_ends(each)):
                raise BadSetting(
                    f"the constraint of column {name!r} must be (low, high) with None for no end, 'whole', or a "
                    f"function of the completed table; got {each!r}"
                )


def keep_constraints(completed: Any, missing: Mapping[Any, MaskArray], given: Mapping[Any, Any]) -> Any:
    """Return a completed table whose imputed cells keep their constraints.

    missing: the missing cells (rows,) of each column, by its name, or by its position in an array.
    """
    is_frame = hasattr(completed, "columns")
    # Columns that follow from others come last, when these are right.
    ordered = sorted(given.items(), key=lambda each: any(map(callable, _list_parts(each[1]))))
    for name, constraint in ordered:
        values = np.asarray(completed[name] if is_frame else completed[:, name], dtype=np.float64).copy()
        gaps = missing[name]
        for each in _list_parts(constraint):
            values[gaps] = _apply(each, values[gaps], completed, gaps)
        if is_frame:
            completed = with_columns(
                completed, {column: values if column == name else None for column in completed.columns}
            )
        else:
            completed[:, name] = values
    return completed


def _apply(constraint: Any, values: Any, completed: Any, gaps: MaskArray) -> Any:
    if callable(constraint):
        return np.asarray(constraint(completed), dtype=np.float64)[gaps]
    if isinstance(constraint, str):
        return np.rint(values)
    low, high = constraint
    return np.clip(values, -np.inf if low is None else low, np.inf if high is None else high)


def _list_parts(constraint: Any) -> list[str | tuple[Any, Any] | Callable[[Any], Any]]:
    return list(constraint) if isinstance(constraint, list) else [constraint]


def _are_ends(given: Any) -> bool:
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    low, high = (end if isinstance(end, int | float) else None for end in given)
    known = all(end is None or isinstance(end, int | float) for end in given)
    return known and (low is None or high is None or low <= high)
