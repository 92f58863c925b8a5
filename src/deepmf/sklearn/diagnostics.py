"""A look at gaps and at what filled them: patterns of missing cells, and observed beside imputed
values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, suggest_name
from deepmf.sklearn.table import MaskArray, is_missing


class MissingPatterns(NamedTuple):
    """Which columns are missing together, the most frequent pattern first.

    columns: names of the columns. missing: (patterns, columns) whether a column is missing. counts:
        (patterns,) rows with the pattern.
    """

    columns: tuple[str, ...]
    missing: MaskArray
    counts: npt.NDArray[np.int64]

    def __str__(self) -> str:
        """The table: a line for each pattern with its rows, and the names of its missing
        columns."""
        lines = [
            f"{count:>8,}  {', '.join(np.array(self.columns)[pattern].tolist()) or '(complete)'}"
            for count, pattern in zip(self.counts.tolist(), self.missing, strict=True)
        ]
        return "\n".join(["    rows  missing columns", *lines])


def missing_patterns(X: Any, *, missing_values: Any = np.nan) -> MissingPatterns:  # noqa: N803
    """Count which columns of a table are missing together.

    Parameters
    ----------
    X
        An array or a frame.
    missing_values
        Mark of missing values beside NaN and None.

    >>> table = np.array([[1.0, np.nan], [2.0, 3.0], [4.0, np.nan], [np.nan, 5.0], [6.0, np.nan]])
    >>> print(missing_patterns(table))
        rows  missing columns
           3  x1
           1  (complete)
           1  x0
    """
    names, columns = _read_columns(X)
    mask = np.column_stack([_find_missing(column, missing_values) for column in columns])
    _, first, counts = np.unique(
        np.packbits(mask, axis=1), axis=0, return_index=True, return_counts=True
    )
    patterns = mask[first]
    order = np.lexsort((patterns.sum(axis=1), -counts))
    return MissingPatterns(names, patterns[order], counts[order])


class ImputedValues(NamedTuple):
    """The observed values of a column, and the imputed ones, for `deepmf.plots.plot_imputed`."""

    observed: npt.NDArray[Any]
    imputed: npt.NDArray[Any]


def imputed_values(
    table: Any, completed: Any, column: Any, *, missing_values: Any = np.nan
) -> ImputedValues:
    """Return the observed and the imputed values of a column, by its name (`x0`, `x1`, ... in an
    array).

    >>> table = np.array([[1.0], [np.nan], [3.0]])
    >>> imputed_values(table, np.array([[1.0], [2.0], [3.0]]), "x0")
    ImputedValues(observed=array([1., 3.]), imputed=array([2.]))
    """
    values = []
    for part in (table, completed):
        names, columns = _read_columns(part)
        if str(column) not in names:
            raise BadEntries(
                f"the table has no column {column!r}; {suggest_name(str(column), names)}"
            )
        values.append(columns[names.index(str(column))])
    if len(values[0]) != len(values[1]):
        raise BadEntries(
            f"the table has {len(values[0])} rows, the completed table {len(values[1])}"
        )
    gaps = _find_missing(values[0], missing_values)
    return ImputedValues(values[1][~gaps], values[1][gaps])


def _read_columns(table: Any) -> tuple[tuple[str, ...], list[npt.NDArray[Any]]]:
    if hasattr(table, "columns"):
        import narwhals as nw

        frame = nw.from_native(table, eager_only=True)
        names = tuple(map(str, frame.columns))
        return names, [frame[:, at].to_numpy() for at in range(len(names))]
    array = np.asarray(table)
    if array.ndim != 2:
        raise BadEntries(f"a table has two dimensions; got an array of shape {array.shape}")
    return tuple(f"x{at}" for at in range(array.shape[1])), list(array.T)


def _find_missing(values: npt.NDArray[Any], mark: Any) -> MaskArray:
    if values.dtype.kind in "fiub":
        return np.asarray(np.isnan(values.astype(np.float64)) | (values == mark), dtype=bool)
    return np.array([is_missing(value, mark) for value in values.tolist()], dtype=bool)
