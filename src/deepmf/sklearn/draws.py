"""Multiple imputation: completed tables whose missing cells are joint draws from a posterior.

Draws of a Gaussian start at that of highest likelihood and alternate two steps (data augmentation;
Schafer, Analysis of incomplete multivariate data, 1997): the missing cells of all rows given the
parameters, then the parameters given the completed rows. So completed tables differ by as much as
the parameters and the missing values are uncertain, and estimates from them are pooled by `pool`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.special

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.blend import SHRINKAGES
from deepmf.sklearn.completers import JITTER, Completer, Gaussian, Stacked, sample_rows
from deepmf.sklearn.table import WIDE_REACH, ColumnUnits, MaskArray, TableEntries
from deepmf.sklearn.trees import Trees, draw_by_tree

# With fewer rows for each column, covariances need the stronger shrinkage; with more, it would bias
# correlations.
_ROWS_OF_A_COLUMN = 5
# A prediction hardly changes in later passes, but parameters do.
_PASSES, _STILL = 100, 1e-3
# The chain forgets its start as fast as EM converges, so it takes as many steps as EM took passes,
# within these.
_LEAST_STEPS, _MOST_STEPS = 5, 40
_ROWS_AT_A_TIME = 10_000
_LEAST_SHARE = 1e-9  # of a category, so that every category can be drawn
# From this skewness on, residuals of a column may not be those of a Gaussian; regressions of more
# columns take long.
_SKEWNESS, _MOST_COLUMNS_OF_REGRESSIONS = 1.0, 50
_LEAST_VALUES = 10  # that a skewed column has; columns of few levels are not
# Where the knots of curves lie, as shares of the values of a column, and the rows that each
# predictor needs.
_KNOTS, _ROWS_OF_A_PREDICTOR = ((0.05, 0.275, 0.5, 0.725, 0.95), (0.1, 0.5, 0.9)), 5
# Rounds over the columns, and rows with similar predictions that a residual is taken from.
_TURNS, _DONORS = 8, 5
# How far regressions may draw beyond a column, in its ranges: tails that are missing reach far, but
# curves are steep.
_BEYOND = 2.0
_SHRINKAGES_OF_CURVES = (1e-4, 1e-2, 1.0, 100.0)  # shares of their squares
_RIDGE = 1e-3  # of regressions: the shares of one category are dependent
# Share of the cells that are hidden to compare draws, and draws of each. Scores of few draws are
# uncertain.
_HIDDEN, _COMPARED, _TOLERANCE, _LEAST_GAIN = 0.2, 4, 1.1, 0.9


@dataclass(frozen=True, eq=False)
class JointDraws:
    """Draws the missing cells of rows from Gaussians whose parameters are drawn anew each time.

    Parameters
    ----------
    entries
        The entries of the fit, in the units of their columns.
    shrinkage
        By how many rows of independent columns the Gaussian is shrunk.
    bent
        Columns of each cell that trees predict more than anything else.
    categories
        Columns of the shares of each unordered category; their cells become 0 or 1.
    seed
        Of the fit by EM that draws start from.
    """

    entries: TableEntries
    shrinkage: float
    bent: tuple[IndexArray, ...]
    categories: tuple[IndexArray, ...]
    seed: int

    @classmethod
    def of(
        cls,
        entries: TableEntries,
        completer: Completer,
        categories: tuple[IndexArray, ...],
        *,
        seed: int,
    ) -> JointDraws:
        """Return the draws for a table with these entries that a completer predicts."""
        n_rows, n_columns = entries.shape
        shrinkage = SHRINKAGES[0 if n_rows >= _ROWS_OF_A_COLUMN * n_columns else 1] * n_columns
        trees: Completer = completer
        most = np.ones(n_columns)
        if isinstance(completer, Stacked):
            place = next(
                place for place, part in enumerate(completer.parts) if isinstance(part, Trees)
            )
            trees, most = completer.parts[place], completer.weights[place]
        cells_of_forests = (
            [forest.columns for forest in trees.forests] if isinstance(trees, Trees) else []
        )
        bent = tuple(columns for columns in cells_of_forests if most[columns[0]] > 0.5)
        return cls(entries, shrinkage, bent, categories, seed)

    @cached_property
    def units(self) -> ColumnUnits:
        """The units of the columns, each standardised by its own mean and spread."""
        # a clipped outlier would make its column too narrow
        return ColumnUnits.from_columns(self.entries, reach=WIDE_REACH)

    @cached_property
    def rows(self) -> tuple[FloatArray, FloatArray]:
        """Rows of the fit in these units, (rows, columns), with NaN, as many as Gaussians learn
        from; their weights."""
        table = self.units.standardise(self.entries).to_array()
        positions = sample_rows(table, seed=self.seed)
        return table[positions], self.entries.row_weights[positions]

    @cached_property
    def most_likely(self) -> Gaussian:
        """The Gaussian of highest likelihood."""
        table, weights = self.rows
        return Gaussian.fit(
            table,
            weights=weights,
            shrinkage=self.shrinkage,
            seed=self.seed,
            passes=_PASSES,
            still=_STILL,
        )

    def draw(self, table: FloatArray, random: np.random.Generator) -> FloatArray:
        """Return rows (rows, columns) in their own units with all cells that are NaN drawn, those
        of a row together.

        They are drawn by Gaussians, whose parameters are drawn first, or by regressions that start
        there. Drawn numbers may lie beyond the range of their column: cut off there, they would
        bias estimates.
        """
        gaussian = self.draw_parameters(random)
        completed = self._draw_by_gaussians(gaussian, table, random)
        if not self.turns:
            return completed
        return self._draw_in_turn(gaussian, table, completed, self.turns, random)

    def _draw_by_gaussians(
        self, drawn: Gaussian, table: FloatArray, random: np.random.Generator
    ) -> FloatArray:
        completed = np.array(table, dtype=np.float64)
        for start in range(0, len(table), _ROWS_AT_A_TIME):
            batch = completed[start : start + _ROWS_AT_A_TIME]
            rows = self._draw_units(
                drawn, self.units.standardise(TableEntries.of(batch)).to_array(), random
            )
            batch[:] = np.where(np.isnan(batch), self.units.undo(rows), batch)
        return completed

    @cached_property
    def skews(self) -> FloatArray:
        """The sign of the skewness of each column of numbers that is skewed, else 0; (columns,)."""
        table = self.rows[0]
        cubes = np.nanmean((table - np.nanmean(table, axis=0)) ** 3, axis=0)
        skewness = cubes / np.maximum(np.nanstd(table, axis=0), 1e-9) ** 3
        few_values = [
            at for at, column in enumerate(table.T) if np.unique(column).size < _LEAST_VALUES
        ]
        skewness[few_values] = 0.0  # such as shares of categories
        return np.where(np.abs(skewness) > _SKEWNESS, np.sign(skewness), 0.0)

    @cached_property
    def turns(self) -> dict[int, IndexArray]:
        """The cells that are drawn in turn by their first column, with all columns of those that
        trees draw best, and no columns of others.

        Empty where Gaussians draw skewed cells, and cells that trees predict, clearly better than
        turns do. Draws of hidden cells are compared by their continuous ranked probability score,
        in standard deviations.
        """
        table = self.rows[0]
        gappy = set(np.nonzero(np.isnan(table))[1].tolist())
        bent: dict[int, IndexArray] = {
            int(columns_of_cell[0]): columns_of_cell
            for columns_of_cell in self.bent
            if int(columns_of_cell[0]) in gappy
        }
        tried = {int(at): np.array([at]) for at in np.flatnonzero(self.skews)} | bent
        if not tried or table.shape[1] > _MOST_COLUMNS_OF_REGRESSIONS:
            return {}
        random, hidden = np.random.default_rng(self.seed), np.zeros(table.shape, bool)
        for columns in tried.values():
            hidden[:, columns] = random.random((len(table), 1)) < _HIDDEN
        hidden &= ~np.isnan(table)
        partial = replace(self, entries=TableEntries.of(np.where(hidden, np.nan, table)))
        plain: dict[int, IndexArray] = dict.fromkeys(self._numbers.tolist(), np.empty(0, np.intp))
        shown, ways = partial.entries.to_array(), (plain, plain | bent)
        draws_of_ways: list[list[FloatArray]] = [[], [], []]
        for _ in range(_COMPARED):
            gaussian = partial.draw_parameters(random)
            start = partial._draw_by_gaussians(gaussian, shown, random)
            in_turn = [partial._draw_in_turn(gaussian, shown, start, way, random) for way in ways]
            for tables, completed in zip(draws_of_ways, (start, *in_turn), strict=True):
                tables.append(completed)
        scores = [
            {at: _score_draws(np.stack(tables), table, hidden, at) for at in tried}
            for tables in draws_of_ways
        ]
        # Trees draw from leaves, which flattens slopes, so they must be clearly better.
        by_trees = {
            at: bent[at] for at in bent if scores[2][at] <= _LEAST_GAIN * scores[1].get(at, np.inf)
        }
        in_turns = sum(scores[2 if at in by_trees else 1][at] for at in tried)
        tolerance = _TOLERANCE if self.skews.any() else _LEAST_GAIN
        return plain | by_trees if in_turns < tolerance * sum(scores[0].values()) else {}

    @property
    def _numbers(self) -> IndexArray:
        shares = [at for columns in self.categories for at in columns]
        return np.setdiff1d(np.arange(self.entries.shape[1]), shares)

    def _draw_in_turn(
        self,
        drawn: Gaussian,
        table: FloatArray,
        completed: FloatArray,
        turns: dict[int, IndexArray],
        random: np.random.Generator,
    ) -> FloatArray:
        """Return completed rows whose missing cells are drawn again, a column at a time, given all
        other cells.

        A cell that trees draw is that of a donor. Another number is regressed on the other cells,
        on the normal scores of those that are skewed, and on their curves. The residual is that of
        a row with a similar prediction (Schenker and Taylor, Partially parametric techniques for
        multiple imputation, 1996), so that skewed and unequal residuals stay what they are. Draws
        do not go beyond the end of a skewed column where it has no tail.
        """
        learned, weights = self.rows
        units_of_rows = self.units.standardise(TableEntries.of(completed)).to_array()
        cells = np.concatenate([self._draw_units(drawn, learned, random), units_of_rows])
        missing = np.isnan(np.concatenate([learned, table]))
        sorted_values = {
            at: np.sort(learned[~np.isnan(learned[:, at]), at]) for at in self._numbers.tolist()
        }
        ranked = {at: values for at, values in sorted_values.items() if self.skews[at]}
        knots = self._find_knots(sorted_values)
        for column, columns in [*turns.items()] * _TURNS:
            asked = np.flatnonzero(missing[:, column])
            observed_rows = np.flatnonzero(~missing[: len(learned), column])
            if asked.size == 0:
                continue
            if columns.size:
                inputs = np.delete(cells, columns, axis=1)
                values = cells[np.ix_(observed_rows, columns)]
                cells[np.ix_(asked, columns)] = draw_by_tree(
                    inputs[observed_rows], values, weights[observed_rows], inputs[asked], random
                )
                continue
            scores = [
                _to_scores(cells[:, at], values) for at, values in ranked.items() if at != column
            ]
            straight = np.column_stack(
                [np.ones(len(cells)), np.delete(cells, column, axis=1), *scores]
            )
            curves = [_bend(cells[:, at], places) for at, places in knots.items() if at != column]
            design, values = np.hstack([straight, *curves]), cells[observed_rows, column]
            bent = np.arange(design.shape[1]) >= straight.shape[1]
            low, high, skew = values.min(), values.max(), self.skews[column]
            # what leads to a skewed column is a curve
            shrinkages = _SHRINKAGES_OF_CURVES[: 2 if skew else None]
            ways = (shrinkages if bent.any() else (0.0,), random)
            draws = _draw_by_regression(
                design[observed_rows], values, weights[observed_rows], design[asked], bent, *ways
            )
            reach = _BEYOND * (high - low)
            cells[asked, column] = np.clip(
                draws, low - reach * (skew <= 0), high + reach * (skew >= 0)
            )
        return np.where(np.isnan(table), self.units.undo(cells[len(learned) :]), table)

    def _find_knots(self, ranked: dict[int, FloatArray]) -> dict[int, FloatArray]:
        """Return the knots of the curves of each column with enough different values, given its
        sorted values.

        There are as many knots as rows allow for.
        """
        rows = min((values.size for values in ranked.values()), default=0) / _ROWS_OF_A_PREDICTOR
        shares = next(
            (
                candidate_shares
                for candidate_shares in _KNOTS
                if rows >= len(ranked) * (len(candidate_shares) - 1)
            ),
            (),
        )
        knots_of_columns = {
            at: np.unique(np.quantile(values, shares)) for at, values in ranked.items() if shares
        }
        return {at: knots for at, knots in knots_of_columns.items() if knots.size == len(shares)}

    def draw_parameters(self, random: np.random.Generator) -> Gaussian:
        """Return a Gaussian drawn from its posterior given the rows of the fit."""
        *_, gaussian = self.run_chain(random)
        return gaussian

    def run_chain(self, random: np.random.Generator) -> Iterator[Gaussian]:
        """Yield the Gaussian of each step from that of highest likelihood to a posterior draw."""
        gaussian, (table, weights) = self.most_likely, self.rows
        completed = self._draw_start(gaussian, table, random)
        for _ in range(int(np.clip(gaussian.passes, _LEAST_STEPS, _MOST_STEPS))):
            self._draw_round(gaussian, table, completed, random)
            gaussian = draw_gaussian(completed, self.shrinkage, random, weights=weights)
            yield gaussian

    def _draw_units(
        self, drawn: Gaussian, rows: FloatArray, random: np.random.Generator
    ) -> FloatArray:
        """Return rows (rows, columns), standardised, with missing cells drawn from Gaussians, in
        three rounds over categories and numbers."""
        completed = self._draw_start(drawn, rows, random)
        for _ in range(3 * bool(self.categories)):
            self._draw_round(drawn, rows, completed, random)
        return completed

    def _draw_start(
        self, drawn: Gaussian, table: FloatArray, random: np.random.Generator
    ) -> FloatArray:
        """Return rows whose numbers are drawn together, and each category by its expected shares
        given these."""
        completed = drawn.draw(table, random)
        for columns in self.categories:
            completed[:, columns] = table[:, columns]
        for columns in self.categories:
            rows = np.flatnonzero(np.isnan(completed[:, columns]).any(axis=1))
            if rows.size:
                shares = self.units.undo(drawn.complete(completed[rows])[:, columns], columns)
                completed[np.ix_(rows, columns)] = self._choose_category(shares, columns, random)
        return completed

    def _draw_round(
        self, drawn: Gaussian, table: FloatArray, completed: FloatArray, random: np.random.Generator
    ) -> None:
        """Draw the missing cells of rows in place: numbers given the categories, then each category
        given the rest."""
        if self.categories:
            together = np.concatenate(self.categories)
            table = table.copy()
            missing = np.isnan(table)
            table[:, together] = completed[:, together]
        completed[:] = drawn.draw(table, random)
        for columns in self.categories:
            rows = np.flatnonzero(missing[:, columns].any(axis=1))
            if rows.size:
                shares = self._classify(drawn, completed[rows], columns)
                completed[np.ix_(rows, columns)] = self._choose_category(shares, columns, random)

    def _classify(self, part: Gaussian, completed: FloatArray, columns: IndexArray) -> FloatArray:
        """Return the probabilities (rows, categories) of a category given all other cells of rows.

        Given a category, the other cells are a Gaussian of its own mean and of one covariance for
        all categories, so the probabilities are those of linear discriminant analysis.
        """
        remaining = np.setdiff1d(np.arange(part.means.size), columns)
        shares = np.maximum(self.units.undo(part.means[columns], columns), _LEAST_SHARE)
        if remaining.size == 0:
            return np.tile(shares, (len(completed), 1))
        free = columns[:-1]  # the last share follows from the others
        slopes = np.linalg.solve(
            part.covariance[np.ix_(free, free)], part.covariance[np.ix_(free, remaining)]
        )
        within = (
            part.covariance[np.ix_(remaining, remaining)]
            - part.covariance[np.ix_(remaining, free)] @ slopes
        )
        shifts = (
            self.units.convert(np.eye(columns.size), columns)[:, :-1] - part.means[free]
        ) @ slopes
        weights = np.linalg.solve(within + JITTER * np.eye(remaining.size), shifts.T)
        scores = (completed[:, remaining] - part.means[remaining]) @ weights - 0.5 * (
            shifts.T * weights
        ).sum(axis=0)
        scores += np.log(shares)
        return np.asarray(np.exp(scores - scores.max(axis=1, keepdims=True)))

    def _choose_category(
        self, shares: FloatArray, columns: IndexArray, random: np.random.Generator
    ) -> FloatArray:
        """Draw one category for each row by shares (rows, categories); return 1 for it and 0 for
        others, in units."""
        ends = np.cumsum(np.maximum(shares, _LEAST_SHARE), axis=1)
        categories = (ends[:, :-1] < random.random((len(ends), 1)) * ends[:, -1:]).sum(axis=1)
        return self.units.convert(np.eye(columns.size)[categories], columns)


def _to_scores(cells: FloatArray, ranked: FloatArray) -> FloatArray:
    shares = (np.arange(ranked.size) + 0.5) / ranked.size
    return np.asarray(scipy.special.ndtri(np.interp(cells, ranked, shares)))


def _bend(cells: FloatArray, knots: FloatArray) -> FloatArray:
    """Return the curved functions (rows, knots - 2) of a natural cubic spline, in units of the
    distance of its ends."""
    cubes = np.maximum(cells[:, None] - knots, 0.0) ** 3
    slopes = (cubes - cubes[:, -1:])[:, :-1] / (knots[-1] - knots[:-1])
    return np.asarray((slopes[:, :-1] - slopes[:, -1:]) / (knots[-1] - knots[0]))


def _draw_by_regression(
    known: FloatArray,
    values: FloatArray,
    weights: FloatArray,
    asked: FloatArray,
    bent: MaskArray,
    shrinkages: tuple[float, ...],
    random: np.random.Generator,
) -> FloatArray:
    """Draw values for rows `asked` (rows, predictors) by a linear regression whose coefficients are
    drawn.

    known: the predictors of the rows with values (rows,) and weights (rows,). bent: which
        predictors are curves; they are shrunk as generalised cross-validation says, so that
        straight relations stay as certain as they are.
    """
    squares = (known * weights[:, None]).T @ known
    size, products, best = float(weights.sum()), known.T @ (weights * values), np.inf
    for shrinkage in shrinkages:
        tried = np.linalg.inv(squares + np.diag(_RIDGE + shrinkage * bent * squares.diagonal()))
        used = float(np.sum(tried * squares))  # degrees of freedom
        off = (
            float(weights @ np.square(values - known @ (tried @ products)))
            / max(size - used, 1.0) ** 2
        )
        if off < best:
            best, inverse, freedom = off, tried, max(size - used, 1.0)
    coefficients = inverse @ products
    residuals = values - known @ coefficients
    square = weights @ np.square(residuals) / random.chisquare(freedom)
    drawn_coefficients = coefficients + np.sqrt(square) * np.linalg.cholesky(
        inverse
    ) @ random.standard_normal(coefficients.size)
    expected, predictions = known @ drawn_coefficients, asked @ drawn_coefficients
    order = np.argsort(expected)
    first = np.searchsorted(expected[order], predictions) - _DONORS // 2 - 1
    first = np.clip(first, 0, max(values.size - _DONORS, 0))
    donors = order[
        np.minimum(first + random.integers(_DONORS, size=predictions.size), values.size - 1)
    ]
    spread = np.sqrt(square / max(float(np.average(np.square(residuals), weights=weights)), 1e-12))
    return np.asarray(predictions + spread * residuals[donors])


def _score_draws(draws: FloatArray, table: FloatArray, hidden: MaskArray, column: int) -> float:
    """Return the mean continuous ranked probability score of draws (draws, rows, columns) of hidden
    cells."""
    values, drawn_values = table[hidden[:, column], column], draws[:, hidden[:, column], column]
    apart = np.abs(drawn_values[:, None] - drawn_values).sum(axis=(0, 1)) / (
        len(drawn_values) * (len(drawn_values) - 1)
    )
    if values.size:
        return float(np.mean(np.abs(drawn_values - values).mean(axis=0) - 0.5 * apart))
    return 0.0


def draw_gaussian(
    completed: FloatArray, shrinkage: float, random: np.random.Generator, *, weights: FloatArray
) -> Gaussian:
    """Draw the parameters of a Gaussian given complete rows, and weights (rows,).

    The prior is that of EM: `shrinkage` more rows of independent columns.
    """
    n_columns = completed.shape[1]
    size = float(weights.sum())
    mean = np.average(completed, axis=0, weights=weights)
    deviations = (completed - mean) * np.sqrt(weights)[:, None]
    scatter = deviations.T @ deviations
    variances = scatter.diagonal() * (size + shrinkage) / size
    np.fill_diagonal(scatter, variances)
    freedom = max(size - 1 + shrinkage, n_columns + 1.0)
    covariance = _draw_covariance(scatter, freedom, random) + JITTER * np.eye(n_columns)
    noise = np.linalg.cholesky(covariance) @ random.standard_normal(n_columns)
    return Gaussian(mean + noise / np.sqrt(max(size, 1.0)), covariance)


def _draw_covariance(
    scatter: FloatArray, freedom: float, random: np.random.Generator
) -> FloatArray:
    """Draw from the inverse Wishart distribution, by Bartlett's decomposition of the Wishart
    distribution."""
    n_columns = len(scatter)
    factor = np.tril(random.standard_normal(scatter.shape), -1)
    np.fill_diagonal(factor, np.sqrt(random.chisquare(freedom - np.arange(n_columns))))
    # rows may all be the same
    least = max(1e-9 * np.trace(scatter) / n_columns, np.finfo(np.float64).tiny)
    root = np.linalg.cholesky(scatter + least * np.eye(n_columns))
    inverse_root = scipy.linalg.solve_triangular(factor, root.T, lower=True)
    return np.asarray(inverse_root.T @ inverse_root)
