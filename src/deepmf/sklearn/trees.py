"""Trees of a column: forests that complete a cell from the other cells of its row, by rows that are
like it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.completers import Gaussian, WholeRows

# The share of the rows, and their most, that a tree is grown from; and the inputs that a split
# chooses from, at most.
_SHARE, _ROWS_OF_A_TREE, _INPUTS_OF_A_SPLIT = 0.632, 2_000, 16

LEAST_ROWS = 20  # that a forest is grown from


class Forest:
    """A forest of extremely randomised trees (Geurts, Ernst and Wehenkel, 2006), each grown from
    some of the rows.

    Means over trees and over the rows of a leaf predict squared errors best, medians absolute
    errors.

    values: (rows, columns) of the cell that is predicted, several for a category.
    """

    def __init__(
        self, inputs: FloatArray, values: FloatArray, weights: FloatArray, *, seed: int
    ) -> None:
        self._inputs, self._values, self._weights = inputs.astype(np.float32), values, weights
        self._random = np.random.default_rng(seed)
        # and the means and medians at their nodes, (2, nodes, columns)
        self._trees: list[tuple[Any, FloatArray]] = []
        # of each tree both (2, rows, columns) for rows that it did not see
        self._unseen: list[FloatArray] = []

    def grow(self, n_trees: int) -> Forest:
        """Grow more trees, up to this number."""
        n_rows, n_inputs = self._inputs.shape
        n_grown = min(ceil(_SHARE * n_rows), _ROWS_OF_A_TREE)
        n_tried = min(n_inputs, _INPUTS_OF_A_SPLIT)
        gappy = np.isnan(self._inputs).any(axis=0)
        for _ in range(len(self._trees), n_trees):
            rows = np.sort(self._random.permutation(n_rows)[:n_grown])
            tree = ExtraTreeRegressor(
                max_features=n_tried, random_state=int(self._random.integers(1 << 31))
            )
            # As scikit-learn's forests grow them: checks take as long as a small tree does.
            unchecked: dict[str, Any] = {
                "check_input": False,
                "missing_values_in_feature_mask": gappy,
            }
            grown = tree._fit(
                self._inputs[rows],
                self._values[rows],
                sample_weight=self._weights[rows],
                **unchecked,
            ).tree_
            leaves, answers = grown.apply(self._inputs), np.tile(grown.value[:, :, 0], (2, 1, 1))
            if self._values.shape[1] == 1:  # the medians of shares would not be shares
                order = np.lexsort((self._values[rows, 0], leaves[rows]))
                leaves_with_rows, starts, counts = np.unique(
                    leaves[rows][order], return_index=True, return_counts=True
                )
                answers[1, leaves_with_rows] = self._values[rows[order[starts + counts // 2]]]
            self._trees.append((grown, answers))
            self._unseen.append(answers[:, leaves])
            self._unseen[-1][:, rows] = np.nan
        return self

    def drop_inputs(self) -> Forest:
        """Forget what is needed to grow alone."""
        self._inputs, self._values, self._weights, self._unseen = (
            np.empty((0, 0), np.float32),
            *np.empty((2, 0)),
            [],
        )
        return self

    def predict(self, inputs: FloatArray, *, medians: float) -> FloatArray:
        """Return predictions (rows, columns): means, medians, or this share of medians and the rest
        of means."""
        read = inputs.astype(np.float32)
        return _average([leaves[:, grown.apply(read)] for grown, leaves in self._trees], medians)

    def predict_own(self, *, medians: float) -> FloatArray:
        """Return predictions (rows, columns) for the rows of the fit by trees that did not see
        them, else NaN."""
        return _average(self._unseen, medians)


def _average(found: list[FloatArray], medians: float) -> FloatArray:
    """Return means over trees of what they find (2, rows, columns), medians, or a share of each;
    NaN is left out."""
    averaged: FloatArray = np.zeros(found[0].shape[1:])
    for place, share in enumerate((1.0 - medians, medians)):
        if share > 0:
            answers = np.stack([leaf_values[place] for leaf_values in found])
            is_missing = np.isnan(answers).all(axis=0)
            answers[:, is_missing] = 0.0
            by_median = place == 1 and averaged.shape[1] == 1
            averaged += share * (
                np.nanmedian(answers, axis=0) if by_median else np.nanmean(answers, axis=0)
            )
            averaged[is_missing] = np.nan
    return averaged


class CellForest(NamedTuple):
    """The forest of a cell, the columns of the cell, and those of the other cells of the row."""

    forest: Forest
    columns: IndexArray
    others: IndexArray
    gappy: IndexArray  # of the others; columns without gaps are not read twice


@dataclass(frozen=True, eq=False)
class Trees(WholeRows):
    """Completes each cell by its forest; cells without one, and the inputs of forests, by a
    Gaussian.

    medians: of each column the share of medians over trees in predictions, beside means.
    """

    gaussian: Gaussian
    forests: tuple[CellForest, ...]
    medians: FloatArray

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with predictions in place of NaN."""
        expected = self.gaussian.complete(table)
        completed = expected.copy()
        for forest, columns, *read in self.forests:
            rows = np.flatnonzero(np.isnan(table[:, columns[0]]))
            if rows.size:
                inputs = _read_inputs(expected[rows], table[rows], *read)
                completed[np.ix_(rows, columns)] = forest.predict(
                    inputs, medians=self.medians[columns[0]]
                )
        return completed


def _read_inputs(
    completed: FloatArray, table: FloatArray, others: IndexArray, gappy: IndexArray
) -> FloatArray:
    """Return what a forest reads of rows: their completed cells, then their cells with NaN, of
    these columns."""
    return np.hstack([completed[:, others], table[:, gappy]])


def start_forest(
    table: FloatArray, completed: FloatArray, columns: IndexArray, *, weights: FloatArray, seed: int
) -> tuple[CellForest, IndexArray] | None:
    """Return a forest without trees for the cell of these columns, and the rows (rows,) that it
    learns from.

    completed: rows (rows, columns) as a Gaussian completes them without this cell, so that inputs
        of rows that have the cell are like those of rows that miss it. None where too few rows have
        the cell.
    """
    rows = np.flatnonzero(~np.isnan(table[:, columns[0]]))
    other_columns = np.setdiff1d(np.arange(table.shape[1]), columns)
    if rows.size < LEAST_ROWS or other_columns.size == 0:
        return None
    gappy = other_columns[np.isnan(table[:, other_columns]).any(axis=0)]
    inputs = _read_inputs(completed[rows], table[rows], other_columns, gappy)
    forest = Forest(inputs, table[np.ix_(rows, columns)], weights[rows], seed=seed)
    return CellForest(forest, columns, other_columns, gappy), rows


def draw_by_tree(
    known: FloatArray,
    values: FloatArray,
    weights: FloatArray,
    asked: FloatArray,
    random: np.random.Generator,
    *,
    leaf: int = 5,
    most_rows: int = 1_000,
) -> FloatArray:
    """Return values (rows, columns) for rows `asked` (rows, inputs), each that of a donor in the
    same leaf of one tree.

    known: the inputs of the rows with values (rows, columns) and weights (rows,). The tree is grown
        from a bootstrap sample of them, of at most `most_rows`, as parameters are drawn (Doove et
        al., Recursive partitioning for missing data imputation, 2014).
    leaf: the fewest rows of a leaf.
    """
    rows = random.choice(len(known), min(len(known), most_rows), p=weights / weights.sum())
    tree = DecisionTreeRegressor(min_samples_leaf=leaf, random_state=int(random.integers(1 << 31)))
    grown = tree.fit(known[rows], values[rows]).tree_
    leaves_of_donors = grown.apply(known[rows].astype(np.float32))
    leaves = grown.apply(asked.astype(np.float32))
    order = np.argsort(leaves_of_donors, kind="stable")
    starts, ends = (
        np.searchsorted(leaves_of_donors[order], leaves, side) for side in ("left", "right")
    )
    donated: FloatArray = values[
        rows[order[starts + np.floor(random.random(len(asked)) * (ends - starts)).astype(int)]]
    ]
    return donated
