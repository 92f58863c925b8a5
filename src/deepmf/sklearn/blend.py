"""The default of tables: a Gaussian, trees and means, weighed for each column by cells that are
left out in turn.

No candidate is fitted twice. A Gaussian predicts each cell from the others of its row, with
parameters of other rows where rows are few; a tree predicts the rows that it was not grown from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import scipy.optimize

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.completers import (
    MOST_WORK,
    ROWS_OF_A_COLUMN,
    ByMeans,
    ByNeighbours,
    Completer,
    Gaussian,
    Stacked,
    WholeRows,
    sample_rows,
)
from deepmf.sklearn.table import ColumnUnits, TableEntries
from deepmf.sklearn.trees import CellForest, Trees, start_forest

# What completes whole rows of standardised columns.
WHOLE_ROWS = ("gaussian", "trees", "column-means")

# The errors that are to be small; of each the ways to measure them, and whether these are absolute.
METRICS = {"both": (False, True), "rmse": (False,), "mae": (True,)}

# Covariances of more columns take longer to learn than models do; forests of more take longer than
# that.
MOST_COLUMNS, MOST_COLUMNS_OF_TREES = 500, 64

# By how many rows for each column the columns of a Gaussian are drawn apart, and the rows for each
# column from which on the weaker shrinkage is taken, and cells are predicted by parameters that saw
# them.
SHRINKAGES, _MANY_ROWS = (0.1, 1.0), 20

# The same for more than MOST_COLUMNS columns. These may follow from few factors, and then hardly any
# shrinkage is best.
_STEPS_OF_SHRINKAGE = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)

# Gaussians that are behind neighbours go on while each step leaves at most this share of the squared
# error.
_CATCHING_UP = 0.9

_FEW_PASSES = 8  # that a fit to more than MOST_COLUMNS columns takes

# A Gaussian of more columns is as good after a few passes (RMSE on 280 columns: .485 after 4, .484
# after 10).
_WIDE, _PASSES, _PASSES_OF_WIDE = 200, 30, 5
_PASSES_FROM_START = 2  # where EM starts at a Gaussian of nearly the same cells

_MOST_ROWS = 5_000  # that cells are left out of
_LEFT_OUT = 0.05  # of the cells, where columns are too many to leave out each in turn
# trees to see whether a forest helps, and trees of a forest
EFFORTS = {"normal": (6, 20), "best": (100, 100)}
_LEAST_GAIN = 0.005  # of the error, by the first trees of a forest
_ROWS_OF_A_FOREST = 2_000  # from which on forests have fewer trees, down to half
_FEW_ROWS = 500  # of which forests are grown whole at once
_LEAST_WEIGHT = 0.05  # of a part of a blend; less is not worth its time
_CELLS_OF_ALL = 50  # the weights of all columns count in those of a column as by that many cells
_MOST_CELLS = 20_000  # that weights are solved from

# takes the name of a candidate, the fits that are done, and their number
Show = Callable[[str, int, int], None]


class Residuals(NamedTuple):
    """The residuals of cells that were left out, value minus prediction, in the units of the model;
    and the values.

    rows: of the table.
    """

    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    truths: FloatArray

    def quantiles(self, columns: IndexArray, share: float, *, least: int = 20) -> FloatArray:
        """Return a quantile of the residuals of each column, (cells,); of all residuals for a
        column with fewer than `least`."""
        # Ranks over n + 1: right on average, however few residuals there are.
        quantiles = np.empty(columns.size)
        for column in np.unique(columns):
            residuals = self.values[self.columns == column]
            if residuals.size < least:
                residuals = self.values
            quantiles[columns == column] = np.quantile(residuals, share, method="weibull")
        return quantiles


class Choice(NamedTuple):
    """What completes a table: a blend or the best of several candidates.

    weights: the mean weight of each candidate, the largest first. residuals: of cells that were
        left out; None where none were. errors: root mean squared, of each model that was chosen
        from on these cells, in the units of the model.
    """

    completer: Completer
    weights: dict[str, float]
    residuals: Residuals | None = None
    errors: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """Cells of rows, each left out once, and what the candidates, in the order of `WHOLE_ROWS`,
    predict for them.

    table: the rows, (rows, columns). counted: how much each row counts, (rows,). predictions: by
        whether the error is absolute, (candidates, rows, columns); NaN where a candidate has none.
    """

    table: FloatArray
    counted: FloatArray
    cells: list[IndexArray]
    predictions: dict[bool, FloatArray]

    def take(
        self, absolute: bool, columns: IndexArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return predictions (cells, candidates) that no candidate lacks, the values, and their
        weights (cells,)."""
        predictions = np.moveaxis(self.predictions[absolute][:, :, columns], 0, -1)
        values = self.table[:, columns]
        is_complete = ~np.isnan(predictions).any(axis=-1) & ~np.isnan(values)
        shares = np.repeat(self.counted[:, None] / columns.size, columns.size, axis=1)
        return predictions[is_complete], values[is_complete], shares[is_complete]

    def gain_by_trees(self, columns: IndexArray) -> bool:
        """Return whether trees lower an error of the cell of some columns."""
        return any(self._gains(is_absolute, columns) for is_absolute in self.predictions)

    def _gains(self, is_absolute: bool, columns: IndexArray) -> bool:
        predictions, values, shares = self.take(is_absolute, columns)
        if values.size == 0:
            return False
        absolute = is_absolute and columns.size == 1
        errors = []
        for candidates in (predictions[:, [0, 2]], predictions):
            weights = _solve(candidates, values, shares, absolute=absolute)
            errors.append(_compare(candidates @ weights, values, shares, absolute=absolute))
        without_trees, with_trees = errors
        return with_trees < (1.0 - _LEAST_GAIN) * without_trees

    def weigh(self, absolute: bool) -> FloatArray:
        """Return weights (candidates, columns); where a column has no trees, the Gaussian stands in
        for them."""
        gaussian, trees, means = self.predictions[absolute]
        has_trees = ~np.all(np.isnan(trees), axis=0)
        filled = np.stack([gaussian, np.where(has_trees, trees, gaussian), means])
        left_out = replace(self, predictions={absolute: filled})
        cells_of_columns = [left_out.take(absolute, columns) for columns in self.cells]
        weights = np.zeros((len(WHOLE_ROWS), self.table.shape[1]))
        weights[0] = 1.0
        all_cells = [np.concatenate(arrays) for arrays in zip(*cells_of_columns, strict=True)]
        n_cells = len(all_cells[0])
        if n_cells == 0:
            return weights
        step = max(1, n_cells // _MOST_CELLS)
        weights_of_all = _solve(*(array[::step] for array in all_cells), absolute=absolute)
        for columns, (predictions, values, shares) in zip(
            self.cells, cells_of_columns, strict=True
        ):
            if values.size == 0:
                continue
            is_absolute = absolute and columns.size == 1
            column_weights = _solve(predictions, values, shares, absolute=is_absolute)
            share = values.size / (values.size + _CELLS_OF_ALL * columns.size)
            column_weights = share * column_weights + (1.0 - share) * weights_of_all
            if not has_trees[columns[0]]:
                column_weights[:2] = column_weights[0] + column_weights[1], 0.0
            column_weights[column_weights < _LEAST_WEIGHT] = 0.0
            weights[:, columns] = (column_weights / column_weights.sum())[:, None]
        return weights


def can_fit_blend(entries: TableEntries) -> bool:
    """Return whether a Gaussian of a table is fitted in seconds."""
    n_rows, n_columns = entries.shape
    if n_columns <= MOST_COLUMNS:
        return True
    n_observed = np.bincount(entries.rows, minlength=n_rows)
    n_solved = np.minimum(n_observed, n_columns - n_observed).astype(np.float64)
    n_learned = min(n_rows, ROWS_OF_A_COLUMN * n_columns)
    return n_columns**3 + n_learned * float(np.mean(n_solved**3)) <= _FEW_PASSES * MOST_WORK


def fit_gaussian(
    table: FloatArray,
    *,
    weights: FloatArray,
    seed: int,
    shrinkage: float = SHRINKAGES[0],
    start: Gaussian | None = None,
) -> Gaussian:
    """Fit a Gaussian to rows with NaN.

    shrinkage: by how many rows for each column its columns are drawn apart. start: where EM starts.
    """
    passes = _PASSES
    if table.shape[1] > _WIDE:
        passes = _PASSES_OF_WIDE if start is None else _PASSES_FROM_START
    rows = shrinkage * table.shape[1]
    return Gaussian.fit(
        table, weights=weights, shrinkage=rows, seed=seed, passes=passes, start=start
    )


def fit_whole_rows(
    name: str,
    entries: TableEntries,
    sources: IndexArray,
    *,
    seed: int,
    metric: str = "both",
    effort: str = "normal",
) -> WholeRows:
    """Fit one of `WHOLE_ROWS` to standardised entries; columns of the same source are one cell
    together."""
    table, weights, medians = entries.to_array(), entries.row_weights, np.mean(METRICS[metric])
    if name == "column-means":
        return ByMeans(_find_medians(table, sources) * (metric == "mae"))
    gaussian = fit_gaussian(table, weights=weights, seed=seed)
    if name == "gaussian":
        return gaussian
    forests = []
    for columns in _list_cells(sources):
        completed = gaussian.complete(_leave_out(table, columns))
        started = start_forest(table, completed, columns, weights=weights, seed=seed)
        if started is not None:
            started[0].forest.grow(EFFORTS[effort][1]).drop_inputs()
            forests.append(started[0])
    return Trees(gaussian, tuple(forests), np.full(sources.size, medians))


def fit_blend(
    entries: TableEntries,
    sources: IndexArray,
    units: ColumnUnits,
    *,
    seed: int,
    metric: str = "both",
    effort: str = "normal",
    show: Show = lambda name, done, total: None,
) -> Choice:
    """Fit all of `WHOLE_ROWS` to standardised entries, and weigh them for each column by cells that
    are left out.

    Weights are not negative, and their sum is 1 (Breiman, Stacked regressions, 1996).

    Parameters
    ----------
    entries
        Standardised entries.
    sources
        Of each column the cell of a row that it belongs to: the columns of a category are left out
        together.
    units
        Their ranges clip predictions.
    metric
        The error that weights make least: "rmse"; "mae", by medians; or "both", the mean of what
        these two predict.
    effort
        "normal", or "best" for larger forests.
    """
    table = entries.to_array()
    cells = _list_cells(sources)
    are_absolute = METRICS[metric]
    rows = sample_rows(table, seed=seed, most_rows=_MOST_ROWS)
    sample, counted = table[rows], entries.row_weights[rows]
    show("gaussian", 0, len(cells))
    gaussian, by_gaussian = _fit_left_out(
        table, entries.row_weights, sample, counted, cells, units, seed=seed
    )
    if isinstance(gaussian, ByNeighbours):
        shares = np.ones((1, table.shape[1]))
        residuals = _subtract(by_gaussian, sample, rows)
        return Choice(Stacked((gaussian,), shares, units), {"neighbours": 1.0}, residuals)
    medians = _find_medians(table, sources)
    by_trees = np.full(sample.shape, np.nan)
    predictions = {}
    for is_absolute in are_absolute:
        by_centres = np.tile(medians * is_absolute, (len(sample), 1))
        predictions[is_absolute] = np.stack([by_gaussian, by_trees, by_centres])
    left_out = _LeftOut(sample, counted, cells, predictions)
    forests = _grow_forests(gaussian, left_out, seed=seed, effort=effort, show=show)
    # Both errors count the same; columns of two values, whose medians are either, are predicted by
    # means.
    share_of_medians = np.full(sample.shape[1], np.mean(are_absolute))
    if len(are_absolute) > 1:
        is_binary = [np.unique(column[~np.isnan(column)]).size <= 2 for column in sample.T]
        share_of_medians[is_binary] = 0.0
    weights_of_errors = {}
    for is_absolute in are_absolute:
        share = share_of_medians if is_absolute else 1.0 - share_of_medians
        weights_of_errors[is_absolute] = share * left_out.weigh(is_absolute)
    weights: FloatArray = np.sum(list(weights_of_errors.values()), axis=0)
    by_medians = weights_of_errors.get(True, 0.0 * weights) / np.maximum(weights, 1e-12)
    used_forests = tuple(forest for forest in forests if weights[1, forest.columns[0]] > 0)
    trees = Trees(gaussian, used_forests, by_medians[1])
    widths = np.bincount(sources)[sources]
    mean_weights = np.average(weights, axis=1, weights=1.0 / widths)
    order = np.argsort(-mean_weights, kind="stable")
    return Choice(
        Stacked((gaussian, trees, ByMeans(medians * by_medians[2])), weights, units),
        {WHOLE_ROWS[at]: float(mean_weights[at]) for at in order if mean_weights[at] > 0},
        _subtract(_blend_left_out(left_out, weights_of_errors), sample, rows),
    )


def _grow_forests(
    gaussian: Gaussian, left_out: _LeftOut, *, seed: int, effort: str, show: Show
) -> list[CellForest]:
    """Return the forests that lower the errors of left-out cells, and write down their predictions
    of these."""
    table, cells = left_out.table, left_out.cells
    first_trees, n_trees = EFFORTS[effort]
    # of many rows, fewer do
    n_trees = round(n_trees * np.clip(_ROWS_OF_A_FOREST / max(len(table), 1), 0.5, 1.0))
    sizes = (min(first_trees, n_trees), n_trees) if len(table) > _FEW_ROWS else (n_trees,)
    forests = []
    for place, columns in enumerate(cells if table.shape[1] <= MOST_COLUMNS_OF_TREES else []):
        show("trees", place, len(cells))
        completed = gaussian.complete(_leave_out(table, columns))
        started = start_forest(
            table, completed, columns, weights=left_out.counted, seed=seed + place
        )
        if started is None:
            continue
        forest, rows = started
        for size in sizes:
            forest.forest.grow(size)
            for is_absolute, predictions in left_out.predictions.items():
                predictions[1][np.ix_(rows, columns)] = forest.forest.predict_own(
                    medians=float(is_absolute)
                )
            if not left_out.gain_by_trees(columns):
                for predictions in left_out.predictions.values():
                    predictions[1][:, columns] = np.nan
                break
        else:
            forests.append(forest._replace(forest=forest.forest.drop_inputs()))
    return forests


def _list_cells(sources: IndexArray) -> list[IndexArray]:
    return [np.flatnonzero(sources == source) for source in np.unique(sources)]


def _leave_out(table: FloatArray, columns: IndexArray) -> FloatArray:
    shown = table.copy()
    shown[:, columns] = np.nan
    return shown


def _find_medians(table: FloatArray, sources: IndexArray) -> FloatArray:
    """Return the medians of numbers, and 0, the mean, for the columns of categories."""
    medians, numbers = np.zeros(table.shape[1]), np.flatnonzero(np.bincount(sources)[sources] == 1)
    medians[numbers] = np.nanmedian(table[:, numbers], axis=0)
    return medians


def _fit_left_out(
    table: FloatArray,
    table_weights: FloatArray,
    sample: FloatArray,
    weights: FloatArray,
    cells: list[IndexArray],
    units: ColumnUnits,
    *,
    seed: int,
) -> tuple[Gaussian | ByNeighbours, FloatArray]:
    """Return what completes all rows, a Gaussian or neighbours, and predictions (rows, columns) of
    cells of the sampled rows that are left out."""
    n_columns = sample.shape[1]
    if n_columns > MOST_COLUMNS_OF_TREES:
        candidates = _hide_some_cells(sample, weights, cells, seed=seed)
    elif len(sample) >= _MANY_ROWS * n_columns:
        gaussian = fit_gaussian(table, weights=table_weights, seed=seed)
        left_out = _predict_left_out(gaussian, sample, cells)
        return gaussian, units.clip(left_out, np.arange(n_columns))
    else:
        candidates = _leave_out_folds(sample, weights, cells, seed=seed)
    predictions = [
        units.clip(candidate.predictions, np.arange(n_columns)) for candidate in candidates
    ]
    errors = [_average_squares(prediction - sample) for prediction in predictions]
    best = int(np.argmin(errors))
    shrinkage, start = candidates[best].shrinkage, candidates[best].start
    neighbours = ByNeighbours.fit(table, seed=seed) if shrinkage is None else None
    if neighbours is not None:
        return neighbours, predictions[best]
    gaussian = fit_gaussian(
        table,
        weights=table_weights,
        seed=seed,
        shrinkage=SHRINKAGES[0] if shrinkage is None else shrinkage,
        start=start,
    )
    return gaussian, predictions[best]


class _LeftOutGaussian(NamedTuple):
    """Predictions (rows, columns) of cells that Gaussians of a shrinkage did not see, and where a
    Gaussian of all cells starts; without a shrinkage, those of neighbours."""

    shrinkage: float | None
    predictions: FloatArray
    start: Gaussian | None = None


def _average_squares(errors: FloatArray) -> float:
    """Return the mean of squared errors; 0 where all are NaN."""
    squares = np.square(errors[~np.isnan(errors)])
    return float(squares.mean()) if squares.size else 0.0


def _hide_some_cells(
    table: FloatArray, weights: FloatArray, cells: list[IndexArray], *, seed: int
) -> list[_LeftOutGaussian]:
    """Predict some cells of wide rows that are hidden, by Gaussians of several shrinkages.

    Fewer rows would need more shrinkage than all do. Of more than `MOST_COLUMNS` columns, shrinkage
    becomes weaker while that helps, and each Gaussian starts at the one before, which saves passes.
    There, neighbours come first where no column is a part of a cell, and no row counts more.
    """
    random = np.random.default_rng(seed)
    hidden = np.zeros(table.shape, dtype=bool)
    for columns in cells:
        hidden[:, columns] = random.random((len(table), 1)) < _LEFT_OUT
    shown = np.where(hidden, np.nan, table)
    in_steps = table.shape[1] > MOST_COLUMNS
    candidates: list[_LeftOutGaussian] = []
    start, least_error, error_of_neighbours = None, np.inf, np.inf
    if in_steps and len(cells) == table.shape[1] and np.ptp(weights) == 0:
        neighbours = ByNeighbours.fit(shown, seed=seed)
        if neighbours is not None:
            predictions = np.where(hidden, neighbours.complete(shown), np.nan)
            candidates.append(_LeftOutGaussian(None, predictions))
            error_of_neighbours = _average_squares(predictions - table)
    for shrinkage in _STEPS_OF_SHRINKAGE if in_steps else SHRINKAGES:
        gaussian = fit_gaussian(shown, weights=weights, seed=seed, shrinkage=shrinkage, start=start)
        start = gaussian if in_steps else None
        predictions = np.where(hidden, gaussian.complete(shown), np.nan)
        candidates.append(_LeftOutGaussian(shrinkage, predictions, start))
        error = _average_squares(predictions - table)
        is_behind = error >= error_of_neighbours and error > _CATCHING_UP * least_error
        if in_steps and (error >= least_error or is_behind):
            break
        least_error = error
    return candidates


def _leave_out_folds(
    table: FloatArray, weights: FloatArray, cells: list[IndexArray], *, seed: int, n_folds: int = 4
) -> list[_LeftOutGaussian]:
    """Predict all cells of rows, each by a Gaussian of the rows of other folds, by each
    shrinkage."""
    fold_of = np.random.default_rng(seed).permutation(len(table)) % min(n_folds, len(table) or 1)
    candidates = []
    for shrinkage in SHRINKAGES:
        predictions = np.full(table.shape, np.nan)
        for fold in np.unique(fold_of):
            inside, outside = fold_of == fold, fold_of != fold
            if np.count_nonzero(outside) > 1:
                gaussian = fit_gaussian(
                    table[outside], weights=weights[outside], seed=seed, shrinkage=shrinkage
                )
                predictions[inside] = _predict_left_out(gaussian, table[inside], cells)
        candidates.append(_LeftOutGaussian(shrinkage, predictions))
    return candidates


def _predict_left_out(gaussian: Gaussian, table: FloatArray, cells: list[IndexArray]) -> FloatArray:
    """Return predictions (rows, columns) of all cells, each from the others of its row."""
    return np.hstack(
        [gaussian.complete(_leave_out(table, columns))[:, columns] for columns in cells]
    )


def _blend_left_out(left_out: _LeftOut, weights: dict[bool, FloatArray]) -> FloatArray:
    """Return the sum of predictions with these weights (candidates, columns) by error."""
    blended: FloatArray = np.zeros(left_out.table.shape)
    for is_absolute, shares in weights.items():
        for share, predictions in zip(shares, left_out.predictions[is_absolute], strict=True):
            blended += np.where(share > 0, share * predictions, 0.0)
    return blended


def _subtract(predictions: FloatArray, table: FloatArray, rows: IndexArray) -> Residuals | None:
    """Return the residuals of the rows of a table where it has values and predictions."""
    at, columns = np.nonzero(~np.isnan(predictions) & ~np.isnan(table))
    truths = table[at, columns]
    residuals = truths - predictions[at, columns]
    return Residuals(rows[at], columns, residuals, truths) if at.size else None


def _solve(
    predictions: FloatArray, values: FloatArray, shares: FloatArray, *, absolute: bool
) -> FloatArray:
    """Return the weights (candidates,) with which predictions (cells, candidates) are nearest to
    the values."""
    if absolute:
        return _solve_absolute(predictions, values, shares)
    roots = np.sqrt(shares)
    predictions, values = predictions * roots[:, None], values * roots
    # The last equation, that their sum is 1, counts more than all cells together.
    heavy = 1e3 * max(1.0, float(np.linalg.norm(values)))
    equations = np.vstack([predictions, np.full(predictions.shape[1], heavy)])
    weights = scipy.optimize.nnls(equations, np.append(values, heavy))[0]
    return np.asarray(weights / weights.sum())


def _compare(
    predictions: FloatArray, values: FloatArray, shares: FloatArray, *, absolute: bool
) -> float:
    """Return the mean absolute or squared error of predictions, weighted by shares."""
    errors = np.abs(predictions - values) if absolute else np.square(predictions - values)
    return float(np.average(errors, weights=shares))


def _solve_absolute(predictions: FloatArray, values: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the weights of least absolute error: start at the best candidate, and step to others
    while that helps."""
    corners: FloatArray = np.eye(predictions.shape[1])
    measured = [_compare(predictions @ corner, values, shares, absolute=True) for corner in corners]
    weights: FloatArray = corners[int(np.argmin(measured))]
    least = min(measured)
    for step in (0.3, 0.1, 0.05):
        for corner in np.tile(corners, (5, 1)):
            tried = (1.0 - step) * weights + step * corner
            error = _compare(predictions @ tried, values, shares, absolute=True)
            if error < least:
                weights, least = tried, error
    return weights
