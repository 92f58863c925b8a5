"""Completers: predict the missing cells of rows by a model, by a Gaussian, or by a blend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.models.fold_in import FoldedRows, fold_in_matrix
from deepmf.models.neighbours import Neighbours, fit_to_values
from deepmf.sklearn.table import ColumnUnits, MaskArray, TableEntries
from deepmf.training.holdout import HeldOut


class Completer(ABC):
    """Predicts missing cells of rows, each row from its own entries."""

    @abstractmethod
    def predict(self, entries: TableEntries, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return predictions (cells,) for cells of rows with these entries, in their units."""

    def list_rows(self, entries: TableEntries) -> IndexArray:
        """Return the rows that can be completed: those with entries."""
        return np.unique(entries.rows)


class WholeRows(Completer):
    """Predicts all cells of a row at once, in standardised columns."""

    @abstractmethod
    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows (rows, columns) with predictions where they have NaN."""

    def predict(self, entries: TableEntries, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return some cells of the completed rows."""
        return self.complete(entries.to_array())[rows, columns]


@dataclass(frozen=True, eq=False)
class ByModel(Completer):
    """Completes by a model that folds in each row."""

    model: Model

    def predict(self, entries: TableEntries, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the model's predictions."""
        return self.fold_in(entries).predict_at(rows, self.model.column_labels_[columns])

    def fold_in(self, entries: TableEntries) -> FoldedRows:
        """Fold rows into the model."""
        matrix = entries.matrix(self.model.scale_, column_labels=self.model.column_labels_)
        return fold_in_matrix(self.model.rankers_, self.model.predictor_, matrix)


@dataclass(frozen=True, eq=False)
class ByMeans(WholeRows):
    """Completes rows by a value for each column, (columns,): its mean, or its median."""

    values: FloatArray

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with the value of the column where they have NaN."""
        return np.where(np.isnan(table), self.values, table)


@dataclass(frozen=True, eq=False)
class ByNeighbours(WholeRows):
    """Completes each column by ridge regressions on the columns that are most correlated with
    it."""

    neighbours: Neighbours

    @classmethod
    def fit(cls, table: FloatArray, *, seed: int) -> ByNeighbours | None:
        """Fit rows (rows, columns) with NaN; None where few cells are observed, or few rows."""
        scale = Scale(low=float(np.nanmin(table)), high=float(np.nanmax(table)))
        train = ObservedMatrix.from_array(table, scale)
        training, held_out = HeldOut.split(train, seed=seed)
        if held_out is None:
            return None
        fit = fit_to_values(EntryStore.of(training), EntryStore.of(train), held_out)
        return None if fit is None else cls(fit.fitted)

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with predictions in place of NaN."""
        is_observed = ~np.isnan(table)
        starts = np.concatenate([[0], np.cumsum(is_observed.sum(axis=1))])
        entries = AxisEntries(starts, np.nonzero(is_observed)[1], table[is_observed])
        rows, columns = np.arange(len(table)), slice(0, table.shape[1])
        predictions = self.neighbours.fold_in("row", entries).score_block(rows, columns)
        return np.where(is_observed, table, predictions)


@dataclass(frozen=True, eq=False)
class Stacked(Completer):
    """Completes by the weighted mean of several completers, each clipped to the range of the
    column.

    weights: (completers, columns).
    """

    parts: tuple[Completer, ...]
    weights: FloatArray
    units: ColumnUnits

    def predict(self, entries: TableEntries, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the weighted mean of all predictions."""
        blended = np.zeros(columns.size)
        for part, weights in zip(self.parts, self.weights, strict=True):
            column_weights = weights[columns]
            if column_weights.any():
                blended += column_weights * self.units.clip(
                    part.predict(entries, rows, columns), columns
                )
        return blended


JITTER = 1e-4  # a variance that every column has of its own: columns may be copies of others
_LEAST_SPREAD = 0.02  # of what a start has in any direction
_MOST_ROWS = 10_000  # that are learned from; a covariance is no better for more
# multiplications of a pass: a few seconds. Rows of wide tables are fewer, but no less than
MOST_WORK = 2e9
ROWS_OF_A_COLUMN = 4  # for each column

# Groups of rows, at most on either side, and the columns of each at least: smaller groups take
# longer to handle.
_GROUPS, _COLUMNS_OF_A_GROUP = 4, 10


class Expected(NamedTuple):
    """What a Gaussian lets expect of rows: all cells (rows, columns), and the sum of their
    covariances."""

    cells: FloatArray
    covariance: FloatArray


@dataclass(frozen=True, eq=False)
class Gaussian(WholeRows):
    """A Gaussian of whole rows: its means (columns,) and its covariance (columns, columns).

    >>> table = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [-6.0, -12.0]])
    >>> Gaussian.fit(table, shrinkage=0.0).complete(np.array([[2.5, np.nan]])).round(1)
    array([[2.5, 5. ]])
    """

    means: FloatArray
    covariance: FloatArray
    passes: int = 0  # that EM took

    @classmethod
    def fit(
        cls,
        table: FloatArray,
        *,
        weights: FloatArray | None = None,
        shrinkage: float,
        seed: int = 0,
        passes: int = 30,
        still: float = 5e-3,
        start: Gaussian | None = None,
    ) -> Gaussian:
        """Fit rows with NaN by EM; `shrinkage` acts like that many more rows of independent
        columns.

        Of more rows than can be learned from in seconds, some are drawn by the seed.
        weights: (rows,); None where all are 1. still: EM ends where expected cells move less, in
        standard deviations. start: where EM starts; None: at the moments of pairs of columns.
        """
        rows = sample_rows(table, seed=seed)
        table, counted = table[rows], np.ones(rows.size) if weights is None else weights[rows]
        best, last = start or cls._estimate_moments(table, counted, shrinkage), None
        gaps, total = Gaps(table), counted.sum()
        for n_passes in range(passes):
            cells, covariance = best.expect(table, counted, gaps=gaps)
            if (
                last is not None
                and np.sqrt(counted @ np.mean(np.square(cells - last), axis=1) / total) < still
            ):
                break
            means = counted @ cells / (total + 1e-9)
            deviations = cells - means
            scatter = (deviations * counted[:, None]).T @ deviations + covariance
            shrunk = _shrink(scatter / total, total, shrinkage) + JITTER * np.eye(means.size)
            best, last = cls(means, shrunk, n_passes + 1), cells
        return best

    @classmethod
    def _estimate_moments(
        cls, table: FloatArray, weights: FloatArray, shrinkage: float
    ) -> Gaussian:
        """Return the means of observed cells, and the covariance of standardised columns by the rows
        that have both cells, made positive."""
        observed, roots = ~np.isnan(table), np.sqrt(weights)[:, None]
        totals = weights @ observed
        sums = (np.where(observed, table, 0.0) * weights[:, None]).sum(axis=0)
        means = sums / np.where(totals > 0, totals, 1.0)
        cells, counted = np.where(observed, table - means, 0.0) * roots, observed * roots
        pair_totals = counted.T @ counted
        covariance = cells.T @ cells / np.where(pair_totals > 0, pair_totals, 1.0)
        spreads, directions = np.linalg.eigh(_shrink(covariance, weights.sum(), shrinkage))
        positive = (directions * np.maximum(spreads, _LEAST_SPREAD)) @ directions.T
        return cls(means, np.asarray(positive))

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with expected values in place of NaN."""
        return self.expect(table).cells

    def draw(self, table: FloatArray, random: np.random.Generator) -> FloatArray:
        """Return rows with NaN completed by a draw; the missing cells of a row are drawn
        together."""
        return self.expect(table, random=random).cells

    @cached_property
    def precision(self) -> FloatArray:
        """The inverse of the covariance."""
        (root,) = _invert_roots(self.covariance[None])
        return np.asarray(root.T @ root)

    def expect(
        self,
        table: FloatArray,
        weights: FloatArray | None = None,
        *,
        gaps: Gaps | None = None,
        random: np.random.Generator | None = None,
    ) -> Expected:
        """Return the expected cells of rows with NaN, or drawn ones.

        `weights` (rows,) weight the covariances of rows; None: these stay 0. `gaps` are those of
        the table, if known. A row is solved for its missing cells with their precision or, where
        these are more, for its observed cells with their covariance. There, a whole row is drawn
        first: its deviation from what its own observed cells let expect has the conditional
        distribution of the missing cells (Matheron's rule).
        """
        gaps = gaps or Gaps(table)
        deviations = np.where(gaps.observed, table - self.means, 0.0)
        summed_covariance = np.zeros_like(self.covariance)
        explained = np.zeros_like(self.covariance)
        weight_of_explained = 0.0
        for rows, few_observed in gaps.groups:
            row_deviations = deviations[rows]
            observed = gaps.observed[rows]
            blocks = _Blocks(observed if few_observed else ~observed)
            roots = _invert_roots(blocks.take(self.covariance if few_observed else self.precision))
            noise = None if random is None else random.standard_normal(row_deviations.shape)
            if few_observed:
                drawn_rows = 0.0 if noise is None else noise @ np.linalg.cholesky(self.covariance).T
                completed = (
                    drawn_rows + blocks.solve(roots, row_deviations - drawn_rows) @ self.covariance
                )
                deviations[rows] = np.where(observed, row_deviations, completed)
            else:
                implied = row_deviations @ self.precision
                deviations[rows] = row_deviations - blocks.solve(roots, implied, noise)
            if weights is None:
                continue
            inverses = roots.mT @ (roots * weights[rows, None, None])
            if few_observed:
                explained += blocks.add_up(inverses, explained)
                weight_of_explained += weights[rows].sum()
            else:
                summed_covariance += blocks.add_up(inverses, explained)
        if weight_of_explained > 0:
            # Once for all rows: two products of whole matrices take longer than most groups.
            summed_covariance += weight_of_explained * self.covariance
            summed_covariance -= self.covariance @ explained @ self.covariance
        return Expected(self.means + deviations, summed_covariance)


class Gaps:
    """The missing cells of rows, and which rows are solved for together.

    observed: (rows, columns). groups: rows with about equally many cells to solve for, and whether
        few are observed. cells_at_a_time: of the inverses of these rows, by default 8 MB.
    """

    def __init__(self, table: FloatArray, *, cells_at_a_time: int = 1 << 20) -> None:
        self.observed: MaskArray = ~np.isnan(table)
        self.groups = list(self._iterate_groups(cells_at_a_time))

    def _iterate_groups(self, cells_at_a_time: int) -> Iterator[tuple[IndexArray, bool]]:
        n_columns = self.observed.shape[1]
        counts = np.count_nonzero(self.observed, axis=1)
        few_observed = 2 * counts < n_columns
        widths = np.where(few_observed, counts, n_columns - counts)
        steps = np.maximum(np.ceil(widths / max(_COLUMNS_OF_A_GROUP, n_columns / _GROUPS)), 1.0)
        for step, few in sorted(set(zip(steps.tolist(), few_observed.tolist(), strict=True))):
            rows = np.flatnonzero((steps == step) & (few_observed == few))
            width = max(1, int(widths[rows].max()))
            at_a_time = max(1, cells_at_a_time // (width * width))
            # some of about as many cells at a time, so that blocks are no larger than needed
            if rows.size > at_a_time:
                rows = rows[np.argsort(widths[rows], kind="stable")]
            for start in range(0, rows.size, at_a_time):
                yield rows[start : start + at_a_time], few


class _Blocks:
    """The masked cells of rows, and the blocks of a matrix that they span, as large as those of the
    fullest row.

    Rows with fewer masked cells have blocks that end in an identity, so that inverses are right.
    """

    def __init__(self, mask: MaskArray) -> None:
        counts = np.count_nonzero(mask, axis=1)
        width = max(1, int(counts.max()))
        # masked ones first, in their order
        self._columns = np.argsort(~mask, axis=1, kind="stable")[:, :width]
        self._places = self._columns[:, :, None] * mask.shape[1] + self._columns[:, None, :]
        self._own = np.arange(width) < counts[:, None]
        self._both = self._own[:, :, None] & self._own[:, None, :]

    def take(self, whole: FloatArray) -> FloatArray:
        """Return the block (rows, cells, cells) of each row."""
        return np.where(self._both, whole.ravel()[self._places], np.eye(self._own.shape[1]))

    def add_up(self, inverses: FloatArray, whole: FloatArray) -> FloatArray:
        """Return the sum of blocks (rows, cells, cells) as a matrix of the shape of `whole`."""
        blocks = np.where(self._both, inverses, 0.0)
        sums = np.bincount(self._places.ravel(), blocks.ravel(), minlength=whole.size).astype(
            np.float64
        )
        return sums.reshape(whole.shape)

    def solve(
        self, roots: FloatArray, table: FloatArray, noise: FloatArray | None = None
    ) -> FloatArray:
        """Return the inverses times the masked cells of a table (rows, columns), 0 elsewhere, given
        inverted roots.

        noise: standard normal numbers (rows, columns), which become noise with the inverses as
            covariances.
        """
        cells = np.einsum("rij,rj->ri", roots, self._take_cells(table))
        if noise is not None:
            cells -= self._take_cells(noise)
        products = np.zeros_like(table)
        np.put_along_axis(products, self._columns, np.einsum("rji,rj->ri", roots, cells), axis=1)
        return products

    def _take_cells(self, table: FloatArray) -> FloatArray:
        return np.where(self._own, np.take_along_axis(table, self._columns, axis=1), 0.0)


def _invert_roots(matrices: FloatArray) -> FloatArray:
    """Return the inverses of the Cholesky factors of positive definite matrices (rows, cells,
    cells)."""
    roots = np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    for root in roots:
        dtrtri(root.T, overwrite_c=True)  # in the memory of `root`
    return roots


def _shrink(covariance: FloatArray, n_rows: float, shrinkage: float) -> FloatArray:
    shrunk: FloatArray = covariance * (n_rows / (n_rows + shrinkage))
    np.fill_diagonal(shrunk, covariance.diagonal())
    return shrunk


def sample_rows(
    table: FloatArray, *, seed: int, most_rows: int = _MOST_ROWS, most_work: float = MOST_WORK
) -> IndexArray:
    """Return the positions of the rows with entries, or of as many of them as can be learned from
    in seconds."""
    rows, n_columns = np.flatnonzero(~np.isnan(table).all(axis=1)), int(table.shape[1])
    n_observed = np.count_nonzero(~np.isnan(table[rows]), axis=1)
    # to invert a row's
    work = float(np.mean(np.minimum(n_observed, n_columns - n_observed).astype(np.float64) ** 3))
    most = min(most_rows, max(ROWS_OF_A_COLUMN * n_columns, int(most_work / max(work, 1.0))))
    if rows.size <= most:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(rows.size, most, replace=False))]
