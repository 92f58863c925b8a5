"""Completers: predict the missing cells of rows by a model, by a Gaussian, or by a blend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.models.base import Model
from deepmf.models.fold_in import FoldedRows, fold_in_matrix
from deepmf.sklearn.table import ColumnUnits, MaskArray, TableEntries


class Completer(ABC):
    """Predicts missing cells of rows, each row from its own entries."""

    @abstractmethod
    def predict(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return predictions (cells,) for cells of rows with these entries and features, in their units."""

    def features_of(self, rows: IndexArray) -> FeatureVectors | None:
        """Return the features of some rows of the fit; None if the completer uses none."""
        return None

    @property
    def name(self) -> str:
        """The name in messages."""
        return type(self).__name__

    @property
    def gives_distribution(self) -> bool:
        """Whether it predicts a distribution."""
        return False


class WholeRows(Completer):
    """Predicts all cells of a row at once, in standardised columns."""

    @abstractmethod
    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows (rows, columns) with predictions where they have NaN."""

    def predict(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return some cells of the completed rows."""
        return self.complete(entries.to_array())[rows, columns]


@dataclass(frozen=True, eq=False)
class ByModel(Completer):
    """Completes by a model that folds in each row."""

    model: Model

    def predict(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return the model's predictions."""
        return self.fold_in(entries, features).predict_at(rows, self.model.column_labels_[columns])

    def fold_in(self, entries: TableEntries, features: FeatureVectors | None) -> FoldedRows:
        """Fold rows into the model."""
        matrix = entries.matrix(self.model.scale_, column_labels=self.model.column_labels_)
        return fold_in_matrix(self.model.rankers_, self.model.predictor_, matrix, features)

    def features_of(self, rows: IndexArray) -> FeatureVectors | None:
        """Return the features of some rows of the fit."""
        known = self.model.entries_.row_features
        return None if known is None else known.take(rows)

    @property
    def name(self) -> str:
        """The class of the model."""
        return type(self.model).__name__

    @property
    def gives_distribution(self) -> bool:
        """Whether the model gives a distribution."""
        return self.model.gives_distribution


@dataclass(frozen=True, eq=False)
class ByMeans(WholeRows):
    """Completes rows by a value for each column, (columns,): its mean, or its median."""

    values: FloatArray

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with the value of the column where they have NaN."""
        return np.where(np.isnan(table), self.values, table)


@dataclass(frozen=True, eq=False)
class Stacked(Completer):
    """Completes by the weighted mean of several completers, each clipped to the range of the column.

    weights: (completers, columns).
    """

    parts: tuple[Completer, ...]
    weights: FloatArray
    units: ColumnUnits

    def predict(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return the weighted mean of all predictions."""
        found = np.zeros(columns.size)
        for part, weights in zip(self.parts, self.weights, strict=True):
            own = weights[columns]
            if own.any():
                found += own * self.units.clip(part.predict(entries, rows, columns, features), columns)
        return found


PASSES = 30  # at most

_STILL = 5e-3  # expected cells that move less, in standard deviations, have arrived

_JITTER = 1e-4  # a variance that every column has of its own: columns may be copies of others

_LEAST_SPREAD = 0.02  # of what a start has in any direction

_MOST_ROWS = 10_000  # that are learned from; a covariance is no better for more

_MOST_WORK = 2e9  # multiplications of a pass: a few seconds. Rows of wide tables are fewer, but no less than

_ROWS_OF_A_COLUMN = 4  # for each column

# Groups of rows, at most on either side: with more, each takes longer to handle than its smaller blocks save.
_GROUPS = 4

_FEW_COLUMNS = 10  # in which many rows have the same gaps

_CELLS_AT_A_TIME = 1 << 20  # of the inverses of some rows: 8 MB


class Expected(NamedTuple):
    """What a Gaussian lets expect of rows: all cells (rows, columns), and the sum of their covariances."""

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
        passes: int = PASSES,
        still: float = _STILL,
        most_rows: int = _MOST_ROWS,
        most_work: float = _MOST_WORK,
    ) -> Gaussian:
        """Fit rows with NaN by EM; `shrinkage` acts like that many more rows of independent columns.

        Of more than `most_rows` rows, or of more than a pass of `most_work` multiplications allows, some are drawn.
        weights: (rows,); None where all are 1.
        """
        rows = sample_rows(table, seed=seed, most_rows=most_rows, most_work=most_work)
        table, counted = table[rows], np.ones(rows.size) if weights is None else weights[rows]
        observed = ~np.isnan(table)
        totals = counted @ observed
        means = (np.where(observed, table, 0.0) * counted[:, None]).sum(axis=0) / np.where(totals > 0, totals, 1.0)
        best, last = cls(means, _start(table - means, counted, shrinkage)), None
        gaps, total = Gaps(table), counted.sum()
        for taken in range(passes):
            cells, covariance = best.expect(table, counted, gaps=gaps)
            if last is not None and np.sqrt(counted @ np.mean(np.square(cells - last), axis=1) / total) < still:
                break
            means = counted @ cells / (total + 1e-9)
            deviations = cells - means
            scatter = (deviations * counted[:, None]).T @ deviations + covariance
            shrunk = _shrink(scatter / total, total, shrinkage) + _JITTER * np.eye(means.size)
            best, last = cls(means, shrunk, taken + 1), cells
        return best

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with expected values in place of NaN."""
        return self.expect(table).cells

    @cached_property
    def precision(self) -> FloatArray:
        """The inverse of the covariance."""
        return _Factors.of(self.covariance).invert()

    def expect(self, table: FloatArray, weights: FloatArray | None = None, *, gaps: Gaps | None = None) -> Expected:
        """Return the expected cells of rows with NaN.

        `weights` (rows,) weight the covariances of rows; None: these stay 0. `gaps` are those of the table, if known.
        """
        gaps = gaps or Gaps(table)
        deviations = np.where(gaps.observed, table - self.means, 0.0)
        if gaps.patterns is not None:
            found = self._solve_patterns(deviations, gaps, weights)
            return found._replace(cells=self.means + found.cells)
        covariance = np.zeros_like(self.covariance)
        for rows, few_observed in gaps.groups:
            solve = self._solve_observed if few_observed else self._solve_missing
            some = solve(deviations[rows], gaps.observed[rows], None if weights is None else weights[rows])
            deviations[rows] = some.cells
            covariance += some.covariance
        return Expected(self.means + deviations, covariance)

    def draw(self, table: FloatArray, random: np.random.Generator, *, gaps: Gaps | None = None) -> FloatArray:
        """Return rows with NaN completed by a draw; the missing cells of a row are drawn together."""
        gaps = gaps or Gaps(table)
        deviations = np.where(gaps.observed, table - self.means, 0.0)
        if gaps.patterns is not None:
            noise = self._draw_rows(len(deviations), random)
            known = np.where(gaps.observed, deviations - noise, 0.0)
            deviations = self._solve_patterns(known, gaps, None).cells + noise
        for rows, few_observed in gaps.groups:
            some, observed = deviations[rows], gaps.observed[rows]
            if few_observed:
                noise = self._draw_rows(len(some), random)
                deviations[rows] = self._solve_observed(np.where(observed, some - noise, 0.0), observed, None).cells
                deviations[rows] += noise
            else:
                deviations[rows] = self._draw_missing(some, observed, random)
        return np.where(gaps.observed, table, self.means + deviations)

    def _solve_patterns(self, deviations: FloatArray, gaps: Gaps, weights: FloatArray | None) -> Expected:
        assert gaps.patterns is not None
        known, of_rows = gaps.patterns
        both = known[:, :, None] & known[:, None, :]
        inverses = _Factors.of(np.where(both, self.covariance, np.eye(self.means.size))).invert() * both
        solved = np.einsum("rij,rj->ri", inverses[of_rows], deviations)
        covariance = np.zeros_like(self.covariance)
        if weights is not None:
            added = np.tensordot(np.bincount(of_rows, weights, minlength=len(known)), inverses, axes=1)
            covariance = weights.sum() * self.covariance - self.covariance @ added @ self.covariance
        return Expected(np.where(gaps.observed, deviations, solved @ self.covariance), covariance)

    def _solve_observed(self, deviations: FloatArray, observed: MaskArray, weights: FloatArray | None) -> Expected:
        blocks = _Blocks(observed)
        factors, own = _Factors.of(blocks.take(self.covariance)), blocks.cells(deviations)
        covariance = np.zeros_like(self.covariance)
        if weights is None:
            solved = factors.solve(own)
        else:
            inverses = factors.invert()
            solved = (inverses @ own[:, :, None])[:, :, 0]
            explained = self.covariance @ blocks.add_up(inverses, weights) @ self.covariance
            covariance = weights.sum() * self.covariance - explained
        return Expected(np.where(observed, deviations, blocks.spread(solved) @ self.covariance), covariance)

    def _solve_missing(self, deviations: FloatArray, observed: MaskArray, weights: FloatArray | None) -> Expected:
        """Solve with the precision of the missing cells of each row, which is faster where they are few."""
        blocks = _Blocks(~observed)
        pulls = deviations @ self.precision
        factors, own = _Factors.of(blocks.take(self.precision)), blocks.cells(pulls)
        covariance = np.zeros_like(self.covariance)
        if weights is None:
            solved = -factors.solve(own)
        else:
            inverses = factors.invert()
            solved = -(inverses @ own[:, :, None])[:, :, 0]
            covariance = blocks.add_up(inverses, weights)
        return Expected(deviations + blocks.spread(solved), covariance)

    def _draw_rows(self, n_rows: int, random: np.random.Generator) -> FloatArray:
        """Draw deviations of whole rows, to be corrected by what their errors in the observed cells let expect.

        The deviation of a drawn row from its own expected cells has the conditional distribution of the missing cells
        (Matheron's rule).
        """
        drawn: FloatArray = random.standard_normal((n_rows, self.means.size)) @ np.linalg.cholesky(self.covariance).T
        return drawn

    def _draw_missing(self, deviations: FloatArray, observed: MaskArray, random: np.random.Generator) -> FloatArray:
        blocks = _Blocks(~observed)
        factors = _Factors.of(blocks.take(self.precision))
        own = blocks.cells(deviations @ self.precision)
        noise = blocks.own_cells(random.standard_normal(own.shape))
        return deviations + blocks.spread(factors.draw(own, noise))


class Patterns(NamedTuple):
    """The different patterns of observed cells (patterns, columns), and the pattern of each row (rows,)."""

    observed: MaskArray
    of_rows: IndexArray

    @classmethod
    def of(cls, observed: MaskArray) -> Patterns:
        """Find the patterns of rows (rows, columns) of few columns."""
        codes = observed @ (1 << np.arange(observed.shape[1]))
        _, first, of_rows = np.unique(codes, return_index=True, return_inverse=True)
        return cls(observed[first], of_rows)


class Gaps:
    """The missing cells of rows, and which rows are solved for together.

    observed: (rows, columns). patterns: those of a table of few columns.
    groups: of other tables, rows with about equally many cells to solve for, and whether few are observed.
    """

    def __init__(self, table: FloatArray, *, cells_at_a_time: int = _CELLS_AT_A_TIME) -> None:
        self.observed: MaskArray = ~np.isnan(table)
        narrow = table.shape[1] <= _FEW_COLUMNS
        self.patterns = Patterns.of(self.observed) if narrow else None
        self.groups = [] if narrow else list(_groups(self.observed, cells_at_a_time))


class _Blocks:
    """The masked cells of rows, and the blocks of a matrix that they span, as large as those of the fullest row.

    Rows with fewer masked cells have blocks that end in an identity, so that inverses and determinants are right.
    """

    def __init__(self, mask: MaskArray) -> None:
        self._shape = mask.shape
        counts = np.count_nonzero(mask, axis=1)
        width = int(counts.max())
        self._columns = np.argsort(~mask, axis=1, kind="stable")[:, :width]  # masked ones first, in their order
        self._places = self._columns[:, :, None] * mask.shape[1] + self._columns[:, None, :]
        self._own = None if counts.min() == width else np.arange(width) < counts[:, None]

    def take(self, whole: FloatArray) -> FloatArray:
        """Return the block (rows, cells, cells) of each row."""
        blocks: FloatArray = whole.ravel()[self._places]
        return blocks if self._own is None else np.where(self._both, blocks, np.eye(blocks.shape[1]))

    def add_up(self, blocks: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the weighted sum (columns, columns) of blocks."""
        width = self._shape[1]
        weighted = blocks * weights[:, None, None]
        if self._own is not None:
            weighted = np.where(self._both, weighted, 0.0)
        sums = np.bincount(self._places.ravel(), weighted.ravel(), minlength=width * width).astype(np.float64)
        return sums.reshape(width, width)

    def cells(self, table: FloatArray) -> FloatArray:
        """Return the cells of each row."""
        return self.own_cells(np.take_along_axis(table, self._columns, axis=1))

    def own_cells(self, cells: FloatArray) -> FloatArray:
        """Return cells (rows, cells) with 0 beyond those that a row has."""
        return cells if self._own is None else np.where(self._own, cells, 0.0)

    def spread(self, cells: FloatArray) -> FloatArray:
        """Return a table (rows, columns) of these cells, 0 elsewhere."""
        table = np.zeros(self._shape)
        np.put_along_axis(table, self._columns, cells, axis=1)
        return table

    @property
    def _both(self) -> MaskArray:
        """Whether both cells of a pair (rows, cells, cells) are masked."""
        assert self._own is not None
        both: MaskArray = self._own[:, :, None] & self._own[:, None, :]
        return both


@dataclass(frozen=True, eq=False)
class _Factors:
    """The Cholesky factors (..., cells, cells) of positive definite matrices."""

    lower: torch.Tensor

    @classmethod
    def of(cls, matrices: FloatArray) -> _Factors:
        return cls(torch.linalg.cholesky_ex(torch.from_numpy(np.ascontiguousarray(matrices))).L)

    def invert(self) -> FloatArray:
        """Return the inverses of the matrices."""
        inverses: FloatArray = torch.cholesky_inverse(self.lower).numpy()
        return inverses

    def solve(self, cells: FloatArray) -> FloatArray:
        """Return the inverses times cells (rows, cells)."""
        solved: FloatArray = torch.cholesky_solve(torch.from_numpy(cells)[:, :, None], self.lower)[:, :, 0].numpy()
        return solved

    def draw(self, pulls: FloatArray, noise: FloatArray) -> FloatArray:
        """Return draws (rows, cells) of Gaussians with these precisions and the means that pulls (rows, cells) lead to.

        noise: standard normal numbers (rows, cells).
        """
        half = torch.linalg.solve_triangular(self.lower, torch.from_numpy(pulls)[:, :, None], upper=False)
        shifted = torch.from_numpy(noise)[:, :, None] - half
        drawn: FloatArray = torch.linalg.solve_triangular(self.lower.mT, shifted, upper=True)[:, :, 0].numpy()
        return drawn


def _shrink(covariance: FloatArray, n_rows: float, shrinkage: float) -> FloatArray:
    shrunk: FloatArray = covariance * (n_rows / (n_rows + shrinkage))
    np.fill_diagonal(shrunk, covariance.diagonal())
    return shrunk


def sample_rows(
    table: FloatArray, *, seed: int, most_rows: int = _MOST_ROWS, most_work: float = _MOST_WORK
) -> IndexArray:
    """Return the positions of the rows with entries, or of as many of them as can be learned from in seconds."""
    rows = np.flatnonzero(~np.isnan(table).all(axis=1))
    if rows.size <= (most := _most_rows(table[rows], most_rows, most_work)):
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(rows.size, most, replace=False))]


def _most_rows(table: FloatArray, most_rows: int, most_work: float) -> int:
    n_columns = int(table.shape[1])
    n_observed = np.count_nonzero(~np.isnan(table), axis=1)
    work = float(np.mean(np.minimum(n_observed, n_columns - n_observed).astype(np.float64) ** 3))  # to invert a row's
    return min(most_rows, max(_ROWS_OF_A_COLUMN * n_columns, int(most_work / max(work, 1.0))))


def _start(table: FloatArray, weights: FloatArray, shrinkage: float) -> FloatArray:
    """Return the covariance of standardised columns by the rows that have both, made positive."""
    observed, roots = ~np.isnan(table), np.sqrt(weights)[:, None]
    cells, counted = np.where(observed, table, 0.0) * roots, observed * roots
    totals = counted.T @ counted
    covariance = cells.T @ cells / np.where(totals > 0, totals, 1.0)
    spreads, directions = np.linalg.eigh(_shrink(covariance, weights.sum(), shrinkage))
    return np.asarray((directions * np.maximum(spreads, _LEAST_SPREAD)) @ directions.T)


def _groups(observed: MaskArray, cells_at_a_time: int) -> Iterator[tuple[IndexArray, bool]]:
    """Yield rows with about equally many cells to solve for, some of them at a time, and whether few are observed."""
    n_columns = observed.shape[1]
    counts = np.count_nonzero(observed, axis=1)
    few_observed = 2 * counts < n_columns
    widths = np.where(few_observed, counts, n_columns - counts)
    steps = np.maximum(np.ceil(widths / max(_FEW_COLUMNS, n_columns / _GROUPS)), 1.0)
    for step, few in sorted(set(zip(steps.tolist(), few_observed.tolist(), strict=True))):
        rows = np.flatnonzero((steps == step) & (few_observed == few))
        width = max(1, int(widths[rows].max()))
        at_a_time = max(1, cells_at_a_time // (width * width))
        if rows.size > at_a_time:  # those at a time have about as many cells, so that blocks are no larger than needed
            rows = rows[np.argsort(widths[rows], kind="stable")]
        for start in range(0, rows.size, at_a_time):
            yield rows[start : start + at_a_time], few
