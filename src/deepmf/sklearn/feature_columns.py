"""Feature columns: those of a table that describe its rows, which a model reads and nobody completes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.errors import BadSetting, nearest_name
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.features import Features
from deepmf.sklearn.mixed_table import is_missing
from deepmf.sklearn.observed_table import dense_copy


@dataclass(frozen=True, eq=False)
class FeatureColumns:
    """Where the features of rows stand in a table, and where the columns that are completed do.

    names: of all columns. features, rest: positions of both, in increasing order.
    """

    names: npt.NDArray[np.object_]
    features: IndexArray
    rest: IndexArray

    @classmethod
    def of(cls, names: npt.NDArray[np.object_], given: Any) -> FeatureColumns:
        """Find columns by their names or positions; what is none, or given twice, is refused."""
        if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray):
            raise BadSetting(f"feature_columns must be a list of names or positions of columns; got {given!r}")
        positions = [_position(names.tolist(), one) for one in given]
        twice = [one for at, one in enumerate(given) if positions[at] in positions[:at]]
        if twice:
            raise BadSetting(f"feature_columns has the column {twice[0]!r} twice")
        if len(positions) == names.size:
            raise BadSetting(f"feature_columns has all {names.size} feature(s) of the table; none is left to complete")
        features = np.array(sorted(positions), dtype=np.int64)
        return cls(names, features, np.setdiff1d(np.arange(names.size), features))

    def completed_part(self, table: Any) -> Any:
        """Return a table of the same kind without the feature columns."""
        if hasattr(table, "columns"):
            import narwhals as nw

            return nw.from_native(table, eager_only=True)[:, self.rest.tolist()].to_native()
        return _sliceable(table)[:, self.rest]

    def of_rows(self, table: Any, *, missing: Any) -> Features:
        """Return the features of the rows of a table, which are numbered from 0."""
        columns = {
            str(self.names[at]): [None if is_missing(cell, missing) else cell for cell in cells]
            for at, cells in self.cells(table).items()
        }
        return Features.from_columns(np.arange(len(next(iter(columns.values())))), columns)

    def cells(self, table: Any) -> dict[int, list[Any]]:
        """Return the cells of each feature column of a table, by its position."""
        if hasattr(table, "columns"):
            import narwhals as nw

            frame = nw.from_native(table, eager_only=True)
            return {at: frame[:, at].to_list() for at in self.features.tolist()}
        array = _sliceable(table)[:, self.features]
        columns = dense_copy(array).T.tolist() if scipy.sparse.issparse(array) else array.T.tolist()
        return dict(zip(self.features.tolist(), columns, strict=True))


def are_numbers(cells: list[Any]) -> bool:
    """Say whether all cells of a column are numbers, or missing."""
    return all(
        (isinstance(cell, int | float | np.number) and not isinstance(cell, bool)) or is_missing(cell, np.nan)
        for cell in cells
    )


def as_numbers(cells: list[Any]) -> list[float]:
    """Return the cells of such a column with NaN for what is missing."""
    return [np.nan if is_missing(cell, np.nan) else cell for cell in cells]


def _position(names: list[Any], given: Any) -> int:
    if given in names:
        return names.index(given)
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        if 0 <= given < len(names):
            return int(given)
        raise BadSetting(f"feature_columns has the position {given}; the table has {len(names)} columns, from 0 on")
    hint = nearest_name(str(given), [str(name) for name in names])
    raise BadSetting(f"feature_columns has {given!r}, which is no column of the table; {hint}")


def _sliceable(table: Any) -> Any:
    if scipy.sparse.issparse(table):
        return table.tocsr()
    return np.array(table, dtype=object) if isinstance(table, list | tuple) else np.asanyarray(table)
