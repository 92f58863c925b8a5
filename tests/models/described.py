"""A matrix whose values follow from features of its rows and columns, some of which have no
entries."""

from typing import Any

import numpy as np

from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale

N_ROWS, N_COLUMNS = 40, 30  # of the matrix; ten more of both have features alone
GROUPS, GENRES = ("low", "middle", "high"), ("Drama", "Comedy", "Horror")
_DICE = np.random.default_rng(0)
_GROUP_OF, _GENRE_OF = _DICE.integers(0, 3, N_ROWS + 10), _DICE.integers(0, 3, N_COLUMNS + 10)
_AGES, _YEARS = _DICE.integers(18, 80, N_ROWS + 10), _DICE.integers(1950, 2000, N_COLUMNS + 10)
TRUTH = 1.0 + _GROUP_OF[:, None] + _GENRE_OF  # (rows, columns) with those that have no entries
ROWS, COLUMNS = (
    [f"{axis} {k}" for k in range(n)]
    for axis, n in (("row", N_ROWS + 10), ("column", N_COLUMNS + 10))
)


def matrix() -> ObservedMatrix:
    """Half of the values of the first rows and columns."""
    seen = np.random.default_rng(1).random((N_ROWS, N_COLUMNS)) < 0.5
    return ObservedMatrix.from_array(
        np.where(seen, TRUTH[:N_ROWS, :N_COLUMNS], np.nan),
        Scale([1, 2, 3, 4, 5]),
        row_labels=ROWS[:N_ROWS],
        column_labels=COLUMNS[:N_COLUMNS],
    )


def row_values(at: int) -> dict[str, Any]:
    """The features of a row; every fifth has no age."""
    return {"group": GROUPS[_GROUP_OF[at]], "age": None if at % 5 == 0 else int(_AGES[at])}


def column_values(at: int) -> dict[str, Any]:
    """The features of a column; every third has a genre more, which says nothing."""
    genres = [GENRES[_GENRE_OF[at]], *(["Short"] if at % 3 == 0 else [])]
    return {"genres": "|".join(genres), "year": int(_YEARS[at])}


def row_features(order: Any = None) -> Features:
    """The features of all rows but the last two of the matrix, in some order."""
    return _features(
        ROWS,
        row_values,
        [k for k in range(N_ROWS + 10) if k not in (N_ROWS - 2, N_ROWS - 1)],
        order,
    )


def column_features(order: Any = None) -> Features:
    """The features of all columns but the last two of the matrix, in some order."""
    known = [k for k in range(N_COLUMNS + 10) if k not in (N_COLUMNS - 2, N_COLUMNS - 1)]
    return _features(COLUMNS, column_values, known, order)


def _features(labels: list[str], values: Any, known: list[int], order: Any) -> Features:
    places = known if order is None else [known[k] for k in order]
    made = [values(k) for k in places]
    return Features.from_columns(
        [labels[k] for k in places], {name: [each[name] for each in made] for name in made[0]}
    )
