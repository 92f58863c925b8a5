"""Completers: predict the missing cells of rows by a model, by Gaussians, by neighbours, or by a blend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
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


class ByMeans(WholeRows):
    """Completes rows by the means of the columns."""

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with 0 where they have NaN."""
        return np.nan_to_num(table)


@dataclass(frozen=True, eq=False)
class Stacked(Completer):
    """Completes by the weighted mean of several completers, each clipped to the range of the column."""

    parts: tuple[Completer, ...]
    weights: FloatArray
    units: ColumnUnits

    def predict(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return the weighted mean of all predictions."""
        every = [part.predict(entries, rows, columns, features) for part in self.parts]
        found = np.stack([self.units.clip(each, columns) for each in every])
        mean: FloatArray = self.weights @ found
        return mean


PASSES = 30  # at most

_FIRST_PASSES = 5  # of the one Gaussian that several start from

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
    """What a Gaussian lets expect of rows: all cells, the sum of their covariances, and how likely rows are.

    cells: (rows, columns), observed ones as they are. covariance: (columns, columns). log_densities: (rows,).
    """

    cells: FloatArray
    covariance: FloatArray
    log_densities: FloatArray


class Gaussian:
    """One Gaussian: its means (columns,) and its covariance (columns, columns)."""

    def __init__(self, means: FloatArray, covariance: FloatArray) -> None:
        self.means, self.covariance = means, covariance

    @cached_property
    def _factor(self) -> _Factors:
        return _Factors.of(self.covariance)

    @cached_property
    def precision(self) -> FloatArray:
        """The inverse of the covariance."""
        return self._factor.invert()

    def expect(self, table: FloatArray, weights: FloatArray | None = None, *, gaps: Gaps | None = None) -> Expected:
        """Return the expected cells of rows with NaN.

        `weights` (rows,) weight the covariances of rows; None: these stay 0. `gaps` are those of the table, if known.
        """
        gaps = gaps or Gaps(table)
        deviations = np.where(gaps.observed, table - self.means, 0.0)
        if gaps.patterns is not None:
            found = self._solve_patterns(deviations, gaps, weights)
            return found._replace(cells=self.means + found.cells)
        covariance, log_densities = np.zeros_like(self.covariance), np.zeros(len(table))
        for rows, few_observed in gaps.groups:
            solve = self._solve_observed if few_observed else self._solve_missing
            some = solve(deviations[rows], gaps.observed[rows], None if weights is None else weights[rows])
            deviations[rows], log_densities[rows] = some.cells, some.log_densities
            covariance += some.covariance
        return Expected(self.means + deviations, covariance, log_densities)

    def draw(self, table: FloatArray, random: np.random.Generator, *, gaps: Gaps | None = None) -> FloatArray:
        """Return rows with NaN completed by a draw; the missing cells of a row are drawn together."""
        gaps = gaps or Gaps(table)
        deviations = np.where(gaps.observed, table - self.means, 0.0)
        if gaps.patterns is not None:
            deviations = self._draw_patterns(deviations, gaps, random)
        for rows, few_observed in gaps.groups:
            draw = self._draw_given_observed if few_observed else self._draw_missing
            deviations[rows] = draw(deviations[rows], gaps.observed[rows], random)
        return np.where(gaps.observed, table, self.means + deviations)

    def _solve_patterns(self, deviations: FloatArray, gaps: Gaps, weights: FloatArray | None) -> Expected:
        """Solve with the covariance of the observed cells of each pattern."""
        assert gaps.patterns is not None
        known, of_rows = gaps.patterns
        both = known[:, :, None] & known[:, None, :]
        factors = _Factors.of(np.where(both, self.covariance, np.eye(self.means.size)))
        inverses = factors.invert() * both
        solved = np.einsum("rij,rj->ri", inverses[of_rows], deviations)
        covariance = np.zeros_like(self.covariance)
        if weights is not None:
            added = np.tensordot(np.bincount(of_rows, weights, minlength=len(known)), inverses, axes=1)
            covariance = weights.sum() * self.covariance - self.covariance @ added @ self.covariance
        log_densities = -0.5 * ((solved * deviations).sum(axis=1) - factors.log_determinants[of_rows])
        return Expected(np.where(gaps.observed, deviations, solved @ self.covariance), covariance, log_densities)

    def _solve_observed(self, deviations: FloatArray, observed: MaskArray, weights: FloatArray | None) -> Expected:
        """Solve with the covariance of the observed cells of each row."""
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
        log_densities = -0.5 * ((solved * own).sum(axis=1) - factors.log_determinants)
        cells = np.where(observed, deviations, blocks.spread(solved) @ self.covariance)
        return Expected(cells, covariance, log_densities)

    def _solve_missing(self, deviations: FloatArray, observed: MaskArray, weights: FloatArray | None) -> Expected:
        """Solve with the precision of the missing cells of each row, which is faster where they are few."""
        blocks = _Blocks(~observed)
        pulls = deviations @ self.precision
        squares = (pulls * deviations).sum(axis=1)
        factors, own = _Factors.of(blocks.take(self.precision)), blocks.cells(pulls)
        covariance = np.zeros_like(self.covariance)
        if weights is None:
            solved = -factors.solve(own)
        else:
            inverses = factors.invert()
            solved = -(inverses @ own[:, :, None])[:, :, 0]
            covariance = blocks.add_up(inverses, weights)
        squares += (solved * own).sum(axis=1)
        cells = deviations + blocks.spread(solved)
        log_densities = -0.5 * (squares - self._factor.log_determinants - factors.log_determinants)
        return Expected(cells, covariance, log_densities)

    def _draw_given_observed(
        self, deviations: FloatArray, observed: MaskArray, random: np.random.Generator
    ) -> FloatArray:
        """Draw the missing cells of each row by its observed cells."""
        noise = self._draw_rows(len(deviations), random)
        return self._solve_observed(np.where(observed, deviations - noise, 0.0), observed, None).cells + noise

    def _draw_patterns(self, deviations: FloatArray, gaps: Gaps, random: np.random.Generator) -> FloatArray:
        """Draw the missing cells of rows by the observed cells of their pattern."""
        noise = self._draw_rows(len(deviations), random)
        return self._solve_patterns(np.where(gaps.observed, deviations - noise, 0.0), gaps, None).cells + noise

    def _draw_rows(self, n_rows: int, random: np.random.Generator) -> FloatArray:
        """Draw deviations of whole rows, to be corrected by what their errors in the observed cells let expect.

        The deviation of a drawn row from its own expected cells has the conditional distribution of the missing cells
        (Matheron's rule).
        """
        drawn: FloatArray = random.standard_normal((n_rows, self.means.size)) @ np.linalg.cholesky(self.covariance).T
        return drawn

    def _draw_missing(self, deviations: FloatArray, observed: MaskArray, random: np.random.Generator) -> FloatArray:
        """Draw the missing cells of each row by the Cholesky factor of their precision."""
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
class Gaussians(WholeRows):
    """Gaussians and the share of rows (Gaussians,) that each has.

    >>> table = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [-6.0, -12.0]])
    >>> gaussian = Gaussians.fit(table, shrinkage=0.0)
    >>> gaussian.complete(np.array([[2.5, np.nan]])).round(1)
    array([[2.5, 5. ]])
    """

    parts: tuple[Gaussian, ...]
    shares: FloatArray
    passes: int = 0  # that EM took

    @classmethod
    def fit(
        cls,
        table: FloatArray,
        *,
        weights: FloatArray | None = None,
        n_parts: int = 1,
        shrinkage: float,
        seed: int = 0,
        passes: int = PASSES,
        still: float = _STILL,
        most_rows: int = _MOST_ROWS,
        most_work: float = _MOST_WORK,
        start: Gaussians | None = None,
    ) -> Gaussians:
        """Fit rows with NaN by EM; `shrinkage` acts like that many more rows of independent columns.

        Of more than `most_rows` rows, or of more than a pass of `most_work` multiplications allows, some are drawn.
        `start` are Gaussians of similar rows: as many, or one that several are split from.
        weights: (rows,); None where all are 1.
        """
        rows = sample_rows(table, seed=seed, most_rows=most_rows, most_work=most_work / n_parts)
        table, counted = table[rows], np.ones(rows.size) if weights is None else weights[rows]
        if start is not None and len(start.parts) == n_parts:
            chances = np.ones((len(table), 1)) if n_parts == 1 else start._weights(start._expect(table))
            return start._improve(table, chances, counted, shrinkage, passes, still)
        if n_parts == 1:
            observed = ~np.isnan(table)
            totals = counted @ observed
            means = (np.where(observed, table, 0.0) * counted[:, None]).sum(axis=0) / np.where(totals > 0, totals, 1.0)
            first = cls((Gaussian(means, _start(table - means, counted, shrinkage)),), np.ones(1))
            return first._improve(table, np.ones((len(table), 1)), counted, shrinkage, passes, still)
        single = start or cls.fit(table, weights=counted, shrinkage=shrinkage, seed=seed, passes=_FIRST_PASSES)
        completed = single.complete(table)
        chances = _split(completed, counted, n_parts)
        nothing = np.zeros((table.shape[1], table.shape[1]))
        found = [Expected(completed, nothing, np.zeros(len(table)))] * n_parts
        parted = _maximise(found, chances * counted[:, None], counted.sum(), shrinkage)
        return parted._improve(table, chances, counted, shrinkage, passes, still)

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with expected values in place of NaN."""
        found = self._expect(table)
        return self._mix(found, self._weights(found))

    def choose_parts(self, table: FloatArray, random: np.random.Generator) -> IndexArray:
        """Draw the Gaussian of each row, (rows,), given its observed cells."""
        if len(self.parts) == 1:
            return np.zeros(len(table), dtype=np.int64)
        ends = np.cumsum(self._weights(self._expect(table)), axis=1)
        return np.asarray((ends[:, :-1] < random.random((len(table), 1))).sum(axis=1), dtype=np.int64)

    def draw(self, table: FloatArray, parts: IndexArray, random: np.random.Generator) -> FloatArray:
        """Return rows with NaN completed by a draw from the Gaussian of each; missing cells are drawn together."""
        drawn = table.copy()
        for number, part in enumerate(self.parts):
            own = np.flatnonzero(parts == number)
            drawn[own] = part.draw(table[own], random)
        return drawn

    def _improve(
        self,
        table: FloatArray,
        chances: FloatArray,
        counted: FloatArray,
        shrinkage: float,
        passes: int,
        still: float,
    ) -> Gaussians:
        """Alternate expectation and maximisation until the expected cells stop changing.

        chances: the probability of each Gaussian for each row, (rows, Gaussians). counted: the weight of each row.
        """
        best, last, total, gaps = self, None, counted.sum(), Gaps(table)
        for taken in range(passes):
            # Covariances have the weights of the pass before: those of this one are not known before all densities are.
            weights = chances * counted[:, None]
            found = [part.expect(table, own, gaps=gaps) for part, own in zip(best.parts, weights.T, strict=True)]
            chances = best._weights(found)
            cells = best._mix(found, chances)
            if last is not None and np.sqrt(counted @ np.mean(np.square(cells - last), axis=1) / total) < still:
                break
            better = _maximise(found, chances * counted[:, None], total, shrinkage)
            best, last = replace(better, passes=taken + 1), cells
        return best

    def _expect(self, table: FloatArray) -> list[Expected]:
        """Return what each Gaussian lets expect of rows with NaN."""
        gaps = Gaps(table)
        return [part.expect(table, gaps=gaps) for part in self.parts]

    def _weights(self, found: list[Expected]) -> FloatArray:
        """Return the probability of each Gaussian for each row, (rows, Gaussians)."""
        logs = np.stack([each.log_densities for each in found], axis=1) + np.log(self.shares)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        normalised: FloatArray = weights / weights.sum(axis=1, keepdims=True)
        return normalised

    def _mix(self, found: list[Expected], weights: FloatArray) -> FloatArray:
        return np.asarray(sum(own[:, None] * each.cells for own, each in zip(weights.T, found, strict=True)))


def _maximise(found: list[Expected], weights: FloatArray, n_rows: float, shrinkage: float) -> Gaussians:
    """Return the Gaussians of highest likelihood given the expected cells.

    The covariance of each is drawn to the one that all have together, as by as many rows as there are columns.
    n_rows: the sum of all weights (rows, Gaussians).
    """
    n_columns = found[0].cells.shape[1]
    sizes = weights.sum(axis=0) + 1e-9
    means = [own @ each.cells / size for own, each, size in zip(weights.T, found, sizes, strict=True)]
    scatters = []
    for own, each, mean in zip(weights.T, found, means, strict=True):
        deviations = each.cells - mean
        scatters.append((deviations * own[:, None]).T @ deviations + each.covariance)
    together = np.asarray(sum(scatters)) / n_rows
    parts = []
    for mean, scatter, size in zip(means, scatters, sizes, strict=True):
        covariance = (scatter + n_columns * together) / (size + n_columns)
        parts.append(Gaussian(mean, _shrink(covariance, n_rows, shrinkage) + _JITTER * np.eye(n_columns)))
    return Gaussians(tuple(parts), (sizes + 1.0) / (sizes + 1.0).sum())


@dataclass(frozen=True, eq=False)
class _Factors:
    """The Cholesky factors (..., cells, cells) of positive definite matrices."""

    lower: torch.Tensor

    @classmethod
    def of(cls, matrices: FloatArray) -> _Factors:
        return cls(torch.linalg.cholesky_ex(torch.from_numpy(np.ascontiguousarray(matrices))).L)

    @cached_property
    def log_determinants(self) -> FloatArray:
        """Of the inverses, (...)."""
        logs: FloatArray = (-2.0 * self.lower.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)).numpy()
        return logs

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
    """Shrink the covariances between columns towards 0."""
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
    """Return the number of rows to fit, so that a pass over them takes seconds."""
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


def _split(table: FloatArray, counted: FloatArray, n_parts: int) -> FloatArray:
    """Return weights (rows, parts) that divide rows along the direction in which they differ most."""
    deviations = table - np.average(table, axis=0, weights=counted)
    weighted = deviations * np.sqrt(counted)[:, None]
    order = np.argsort(deviations @ np.linalg.eigh(weighted.T @ weighted)[1][:, -1], kind="stable")
    part_of = np.empty(order.size, dtype=np.int64)
    part_of[order] = (np.cumsum(counted[order]) - counted[order]) * n_parts / counted.sum()
    weights: FloatArray = 0.9 * (part_of[:, None] == np.arange(n_parts)) + 0.1 / n_parts
    return weights


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


# How far neighbours count, in standard deviations of the distance over all columns.
WIDTH = 1.25

_MOST_NEIGHBOUR_ROWS = 5_000  # that are kept to compare with

_WEIGHT_OF_MEAN = 1e-9  # where no row that is near has the cell, it is the column's mean

_ROWS_AT_A_TIME = 1_000


@dataclass(frozen=True, eq=False)
class Neighbours(WholeRows):
    """The rows (rows, columns) that others are compared with; a row with a distance of d has a weight exp(-d² / 2 w²).

    The square of a distance is the mean over common cells times the number of columns.
    weights: (rows,) that multiply these; None where all are 1.

    >>> table = np.array([[1.0, 1.0], [1.1, 1.2], [-2.0, -3.0]])
    >>> Neighbours.fit(table).complete(np.array([[1.05, np.nan]])).round(1)
    array([[1. , 1.1]])
    """

    table: FloatArray
    weights: FloatArray | None = None

    @classmethod
    def fit(
        cls,
        table: FloatArray,
        *,
        weights: FloatArray | None = None,
        seed: int = 0,
        most_rows: int = _MOST_NEIGHBOUR_ROWS,
    ) -> Neighbours:
        """Keep rows to compare with, at random where there are more than `most_rows`."""
        rows = np.flatnonzero(~np.isnan(table).all(axis=1))
        if rows.size > most_rows:
            rows = rows[np.sort(np.random.default_rng(seed).choice(rows.size, most_rows, replace=False))]
        return cls(table[rows], None if weights is None else weights[rows])

    def complete(self, table: FloatArray) -> FloatArray:
        """Return rows with means over their neighbours in place of NaN."""
        starts = range(0, len(table), _ROWS_AT_A_TIME)
        means = [self._means(table[start : start + _ROWS_AT_A_TIME]) for start in starts]
        return np.where(np.isnan(table), np.concatenate(means), table)

    def _means(self, table: FloatArray) -> FloatArray:
        known, values = _parts(self.table)
        own_known, own = _parts(table)
        squares = (own * own) @ known.T + own_known @ (values * values).T - 2.0 * own @ values.T
        common = own_known @ known.T
        squares = np.where(common > 0, np.maximum(squares, 0.0) / np.maximum(common, 1.0), np.inf)
        nearest = squares.min(axis=1, keepdims=True)
        away = squares - np.where(np.isfinite(nearest), nearest, 0.0)
        weights = np.exp(-away * table.shape[1] / (2.0 * WIDTH * WIDTH))
        weights = weights if self.weights is None else weights * self.weights
        means: FloatArray = (weights @ values) / (weights @ known + _WEIGHT_OF_MEAN)
        return means


def _parts(table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a 0/1 mask of observed cells, and the values with 0 in missing cells."""
    known = ~np.isnan(table)
    return known.astype(np.float64), np.where(known, table, 0.0)
