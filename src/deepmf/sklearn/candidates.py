"""The candidates for a table: which there are, which of them suit it, and how those that are no models are fitted."""

from __future__ import annotations

from deepmf.matrix.arrays import FloatArray
from deepmf.sklearn.completer import ByMeans, WholeRows
from deepmf.sklearn.gaussians import PASSES, Gaussians
from deepmf.sklearn.neighbours import Neighbours

# Models, from the simplest on; DMF was better than all of these on no table that was measured.
MODELS = ("means", "als", "dmf-o")

# What completes whole rows of standardised columns. The first is taken where there is too little to compare them by.
WHOLE_ROWS = ("gaussian-shrunk", "gaussian", "mixture", "neighbours", "column-means")

# By how many rows for each column the columns of a Gaussian are drawn apart.
_SHRINKAGES = {"gaussian-shrunk": 1.0, "gaussian": 0.1, "mixture": 0.2}
_PARTS = {"mixture": 2}
_ROWS_OF_A_PART = 4  # for each column: with fewer, two Gaussians were never better than one

# Covariances of more columns take longer to learn than models do.
MOST_COLUMNS = 500
# A table of more columns is wide: two Gaussians take too long, and one is as good after a few passes (RMSE on 280
# columns, of which 260 are categories: .485 after 4, .484 after 10).
_WIDE = 200
_PASSES_OF_WIDE = 5


def suitable(shape: tuple[int, int]) -> tuple[str, ...]:
    """Return which of `WHOLE_ROWS` suit a table of this shape.

    >>> suitable((100, 10))
    ('gaussian-shrunk', 'gaussian', 'mixture', 'neighbours', 'column-means')
    """
    unsuitable = left_out(shape)
    return tuple(name for name in WHOLE_ROWS if name not in unsuitable)


def left_out(shape: tuple[int, int]) -> dict[str, str]:
    """Return which of `WHOLE_ROWS` do not suit a table of this shape, and why.

    >>> left_out((50, 10))
    {'mixture': 'it needs 80 rows for 10 columns; there are 50'}
    """
    n_rows, n_columns = shape
    if n_columns > MOST_COLUMNS:
        return dict.fromkeys(WHOLE_ROWS, f"it is for at most {MOST_COLUMNS} columns; there are {n_columns}")
    unsuitable = {}
    for name, n_parts in _PARTS.items():
        least = n_parts * _ROWS_OF_A_PART * n_columns
        if n_columns > _WIDE:
            unsuitable[name] = f"it is for at most {_WIDE} columns; there are {n_columns}"
        elif n_rows < least:
            unsuitable[name] = f"it needs {least} rows for {n_columns} columns; there are {n_rows}"
    return unsuitable


def fitted(name: str, table: FloatArray, *, seed: int) -> WholeRows:
    """Return one of `WHOLE_ROWS`, fitted to rows with NaN."""
    if name == "column-means":
        return ByMeans()
    if name == "neighbours":
        return Neighbours.fitted(table, seed=seed)
    shrinkage = _SHRINKAGES[name] * table.shape[1]
    passes = PASSES if table.shape[1] <= _WIDE else _PASSES_OF_WIDE
    return Gaussians.fitted(table, n_parts=_PARTS.get(name, 1), shrinkage=shrinkage, seed=seed, passes=passes)
