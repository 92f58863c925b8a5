"""Trees of a column: forests that complete a cell from the other cells of its row, by rows that are like it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.completers import Gaussian, WholeRows
from deepmf.sklearn.table import MaskArray

# Rows of a leaf, at least; rows that a tree is grown from, at most; and inputs that a split chooses from, at most.
_LEAF, _ROWS_OF_A_TREE, _INPUTS_OF_A_SPLIT = 3, 2_000, 16

_DONORS = 4  # rows that are taken from a leaf

LEAST_ROWS = 20  # that a forest is grown from


class Inputs(NamedTuple):
    """What a forest reads of rows: their completed cells, then their cells with NaN, of these columns."""

    completed: IndexArray
    gappy: IndexArray  # columns without gaps are not read twice

    def read(self, completed: FloatArray, table: FloatArray) -> FloatArray:
        """Return the inputs (rows, inputs) of rows (rows, columns) with NaN and of the same rows completed."""
        return np.hstack([completed[:, self.completed], table[:, self.gappy]])


class Forest:
    """A random forest whose leaves keep their rows: a new row has the donors that are in its leaves.

    Means over donors predict squared errors best, medians absolute errors (Meinshausen, Quantile regression forests,
    2006), and a donor at random is a draw (Doove et al., Recursive partitioning for missing data imputation, 2014).

    values: (rows, columns) of the cell that is predicted, several for a category.
    """

    def __init__(self, inputs: FloatArray, values: FloatArray, weights: FloatArray | None, *, seed: int) -> None:
        self.values, self._inputs, self._weights = values, inputs, weights
        self._forest = RandomForestRegressor(
            0,
            min_samples_leaf=_LEAF,
            max_features=min(max(1, inputs.shape[1] // 2), _INPUTS_OF_A_SPLIT),
            max_samples=None if len(inputs) <= _ROWS_OF_A_TREE else _ROWS_OF_A_TREE,
            random_state=seed,
            warm_start=True,
        )

    def grow(self, n_trees: int) -> Forest:
        """Grow more trees, up to this number."""
        forest, targets = self._forest, self.values if self.values.shape[1] > 1 else self.values[:, 0]
        forest.n_estimators = n_trees
        forest.fit(self._inputs, targets, sample_weight=self._weights)
        leaves = forest.apply(self._inputs)
        self._in_tree: MaskArray = np.zeros(leaves.shape, dtype=bool)
        self._order: list[IndexArray] = []  # of each tree its rows by leaf
        self._starts: list[IndexArray] = []  # of each tree where the rows of a leaf start
        for tree, rows in enumerate(forest.estimators_samples_):
            self._in_tree[rows, tree] = True
            own = np.flatnonzero(self._in_tree[:, tree])
            self._order.append(own[np.argsort(leaves[own, tree], kind="stable")])
            n_leaves = int(leaves[:, tree].max()) + 2
            self._starts.append(np.searchsorted(leaves[self._order[-1], tree], np.arange(n_leaves)))
        self._leaves = leaves
        return self

    def drop_inputs(self) -> Forest:
        """Forget what is needed to grow alone."""
        self._inputs, self._weights = np.empty((0, 0)), None
        self._leaves, self._in_tree = np.empty((0, 0), dtype=np.int64), np.empty((0, 0), dtype=bool)
        return self

    def predict(self, inputs: FloatArray, *, median: bool) -> FloatArray:
        """Return predictions (rows, columns)."""
        return self._average(self._find_donors(self._forest.apply(inputs)), median=median)

    def predict_own(self, *, median: bool) -> FloatArray:
        """Return predictions (rows, columns) for the rows of the fit by trees that did not see them, else NaN."""
        donors = self._find_donors(self._leaves)
        donors[self._in_tree] = -1
        return self._average(donors, median=median)

    def draw(self, inputs: FloatArray, random: np.random.Generator) -> FloatArray:
        """Return values (rows, columns) of donors, for each row from a leaf of one tree, which all rows share.

        Each tree is grown from a bootstrap sample, so trees differ as parameters that are drawn do.
        """
        tree = int(random.integers(self._forest.n_estimators))
        leaves = self._forest.estimators_[tree].apply(np.asarray(inputs, dtype=np.float32))
        starts, ends = self._starts[tree][leaves], self._starts[tree][leaves + 1]
        places = starts + np.floor(random.random(len(inputs)) * (ends - starts)).astype(np.int64)
        drawn: FloatArray = self.values[self._order[tree][places]]
        return drawn

    def _find_donors(self, leaves: IndexArray) -> IndexArray:
        """Return positions of rows (rows, trees, donors) that are spread over each leaf."""
        found = np.empty((*leaves.shape, _DONORS), dtype=np.int64)
        shares = (np.arange(_DONORS) + 0.5) / _DONORS
        for tree, (order, starts) in enumerate(zip(self._order, self._starts, strict=True)):
            first, last = starts[leaves[:, tree]], starts[leaves[:, tree] + 1]
            found[:, tree] = order[(first[:, None] + np.floor(shares * (last - first)[:, None])).astype(np.int64)]
        return found

    def _average(self, donors: IndexArray, *, median: bool) -> FloatArray:
        """Return means or medians over donors (rows, trees, donors); -1 is none."""
        donors = donors.reshape(len(donors), -1)
        values = self.values[donors]
        absent = donors < 0
        if not absent.any():
            return np.asarray(np.median(values, axis=1) if median else values.mean(axis=1))
        found = np.full((len(donors), values.shape[2]), np.nan)
        some = ~absent.all(axis=1)
        values[absent] = np.nan
        found[some] = np.nanmedian(values[some], axis=1) if median else np.nanmean(values[some], axis=1)
        return found


class CellForest(NamedTuple):
    """The forest of a cell, its inputs, and the columns of the cell."""

    forest: Forest
    inputs: Inputs
    columns: IndexArray


@dataclass(frozen=True, eq=False)
class Trees(WholeRows):
    """Completes each cell by its forest; cells without one, and the inputs of forests, by a Gaussian.

    median: whether numbers are medians over donors; categories are always means.
    """

    gaussian: Gaussian
    forests: tuple[CellForest, ...]
    median: bool

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with predictions in place of NaN."""
        expected = self.gaussian.complete(table)
        found = expected.copy()
        for forest, inputs, columns in self.forests:
            rows = np.flatnonzero(np.isnan(table[:, columns[0]]))
            if rows.size:
                read = inputs.read(expected[rows], table[rows])
                found[np.ix_(rows, columns)] = forest.predict(read, median=self.median and columns.size == 1)
        return found


def start_forest(
    table: FloatArray,
    completed: FloatArray,
    columns: IndexArray,
    *,
    weights: FloatArray | None,
    seed: int,
) -> tuple[CellForest, IndexArray] | None:
    """Return a forest without trees for the cell of these columns, and the rows (rows,) that it learns from.

    completed: rows (rows, columns) as a Gaussian completes them without this cell, so that inputs of rows that have the
    cell are like those of rows that miss it. None where too few rows have the cell.
    """
    rows = np.flatnonzero(~np.isnan(table[:, columns[0]]))
    others = np.setdiff1d(np.arange(table.shape[1]), columns)
    if rows.size < LEAST_ROWS or others.size == 0:
        return None
    inputs = Inputs(others, others[np.isnan(table[:, others]).any(axis=0)])
    own = None if weights is None else weights[rows]
    forest = Forest(inputs.read(completed[rows], table[rows]), table[np.ix_(rows, columns)], own, seed=seed)
    return CellForest(forest, inputs, columns), rows


def compare_errors(predictions: Any, values: FloatArray, shares: FloatArray, *, absolute: bool) -> float:
    """Return the mean absolute or squared error of predictions, weighted by shares."""
    errors = np.abs(predictions - values) if absolute else np.square(predictions - values)
    return float(np.average(errors, weights=shares))
