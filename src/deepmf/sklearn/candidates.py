"""The candidates for a table: which there are, which of them suit it, and how those that are no models are fitted."""

from __future__ import annotations

from deepmf.matrix.arrays import FloatArray
from deepmf.sklearn.completer import ByMeans, WholeRows
from deepmf.sklearn.gaussians import Gaussians
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
MOST_COLUMNS = 200


def suitable(shape: tuple[int, int]) -> tuple[str, ...]:
    """Return which of `WHOLE_ROWS` suit a table of this shape.

    >>> suitable((100, 10))
    ('gaussian-shrunk', 'gaussian', 'mixture', 'neighbours', 'column-means')
    """
    n_rows, n_columns = shape
    if n_columns > MOST_COLUMNS:
        return ()
    return tuple(name for name in WHOLE_ROWS if n_rows >= _PARTS.get(name, 0) * _ROWS_OF_A_PART * n_columns)


def fitted(name: str, table: FloatArray, *, seed: int) -> WholeRows:
    """Return one of `WHOLE_ROWS`, fitted to rows with NaN."""
    if name == "column-means":
        return ByMeans()
    if name == "neighbours":
        return Neighbours.fitted(table, seed=seed)
    shrinkage = _SHRINKAGES[name] * table.shape[1]
    return Gaussians.fitted(table, n_parts=_PARTS.get(name, 1), shrinkage=shrinkage, seed=seed)
