"""Constraints of imputed values: ends, whole numbers, and columns that follow from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deepmf.errors import BadSetting, suggest_name
from deepmf.sklearn.table import MaskArray

Constraint = str | tuple[Any, Any] | Callable[[Any], Any]
# by the position of a column, in the order in which they are kept
Constraints = dict[int, list[Constraint]]


def read_constraints(given: Mapping[Any, Any], places: Mapping[Any, int]) -> Constraints:
    """Check constraints by what columns of numbers are called; `places` has the positions of these
    columns.

    Columns that follow from others come last, when these are right.
    """
    constraints: Constraints = {}
    for name, constraint in given.items():
        if name not in places:
            hint = suggest_name(str(name), list(map(str, places)))
            raise BadSetting(
                f"constraints has {name!r}, which is no column of numbers that is filled in; {hint}"
            )
        constraints[places[name]] = constraint if isinstance(constraint, list) else [constraint]
        for part in constraints[places[name]]:
            if not (
                callable(part) or (isinstance(part, str) and part == "whole") or _are_ends(part)
            ):
                raise BadSetting(
                    f"the constraint of column {name!r} must be (low, high) with None for no end, 'whole', or a "
                    f"function of the completed table; got {part!r}"
                )
    return dict(sorted(constraints.items(), key=lambda item: any(map(callable, item[1]))))


def _are_ends(given: Any) -> bool:
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    ends = [end for end in given if end is not None]
    return all(isinstance(end, int | float) for end in ends) and ends == sorted(ends)


def keep_constraints(
    columns: dict[int, Any], missing: MaskArray, constraints: Constraints, build: Callable[[], Any]
) -> None:
    """Change the imputed cells of columns (rows,) of numbers, by position, so that they keep their
    constraints.

    `build` returns the completed table of these columns, of which functions take the place of
    imputed cells.
    """
    for at, parts in constraints.items():
        values, gaps = columns[at], missing[:, at]
        for constraint in parts:
            if callable(constraint):
                values[gaps] = np.asarray(constraint(build()), dtype=np.float64)[gaps]
            elif isinstance(constraint, str):
                values[gaps] = np.rint(values[gaps])
            else:
                values[gaps] = np.clip(values[gaps], *constraint)  # None is no end
