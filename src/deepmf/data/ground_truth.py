"""Which cells of a generated matrix are observed: drawn without replacement by popularity, activity and taste."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from scipy.optimize import brentq
from scipy.special import boxcox, inv_boxcox, ndtr

from deepmf.data.splits import RandomStream
from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labels
from deepmf.matrix.scale import Scale

OCCUPATIONS = ("artist", "clerk", "cook", "engineer", "farmer", "nurse", "student", "teacher")

GENRES = ("Comedy", "Crime", "Documentary", "Drama", "Horror", "Musical", "Sci-Fi", "Western")

# Every second film has a second genre.
_SECOND_GENRE = 0.5


class KnownFeatures(NamedTuple):
    """Features of all rows, or of all columns, and what they say of factors and effects, both of variance 1."""

    features: Features
    factors: FloatArray  # (rank, labels)
    effects: FloatArray  # (labels,)


def features_of_rows(rows: Labels, *, rank: int, seed: int) -> KnownFeatures:
    """Return an age, which makes a person's effect, and an occupation, which makes tastes."""
    dice = RandomStream(seed, 4)
    ages, jobs = _whole(dice, len(rows), 18, 80), _whole(dice, len(rows), 0, len(OCCUPATIONS))
    tastes = dice.normals(rank * len(OCCUPATIONS)).reshape(rank, -1)
    columns: dict[str, Any] = {"age": ages, "occupation": [OCCUPATIONS[job] for job in jobs.tolist()]}
    return KnownFeatures(Features(rows.array, columns, kinds={"age": "number"}), tastes[:, jobs], _standard(ages))


def features_of_columns(columns: Labels, *, rank: int, seed: int) -> KnownFeatures:
    """Return a year, which makes a film's effect, and one or two genres, which make what it is like."""
    dice = RandomStream(seed, 5)
    count, n_genres = len(columns), len(GENRES)
    years, first = _whole(dice, count, 1950, 2010), _whole(dice, count, 0, n_genres)
    second = (first + _whole(dice, count, 1, n_genres)) % n_genres  # another one
    both = dice.uniforms(count) < _SECOND_GENRE
    qualities = dice.normals(rank * n_genres).reshape(rank, -1)
    factors = np.where(both, (qualities[:, first] + qualities[:, second]) * 0.5**0.5, qualities[:, first])
    genres = [
        [GENRES[one], GENRES[other]] if two else [GENRES[one]]
        for one, other, two in zip(first.tolist(), second.tolist(), both.tolist(), strict=True)
    ]
    known = Features(columns.array, {"year": years, "genres": genres}, kinds={"year": "number", "genres": "list"})
    return KnownFeatures(known, factors, _standard(years))


def _whole(dice: RandomStream, count: int, low: int, high: int) -> IndexArray:
    """Draw whole numbers from low to high - 1."""
    numbers: IndexArray = low + (dice.uniforms(count) * (high - low)).astype(np.int64)
    return numbers


def _standard(numbers: IndexArray) -> FloatArray:
    spread = float(numbers.std()) or 1.0
    standard: FloatArray = (numbers - numbers.mean()) / spread
    return standard


# Where latent values lie on [0, 1], which the levels share evenly: off the middle, so that high levels are common.
_CENTRE, _SPREAD = 0.56, 0.26

# Factors and effects are multiples of 1/1024: their products and sums are exact in any order, on any machine.
_GRID = 1024.0


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """What generated the entries: latent = row effect + column effect + row factors . column factors + noise.

    A matrix with levels shows the level between whose boundaries the latent falls; one of real values shows
    the latent divided by `unit`. All methods take pairs of labels and compute from the factors.

    >>> from deepmf.datasets import generate
    >>> truth = generate(50, 40, n_entries=1000, named=False, seed=0).truth
    >>> truth.distribution([0, 1], [5, 5]).shape
    (2, 5)
    >>> bool(1 < truth.expected([0], [5])[0] < 5)
    True
    """

    rows: Labels
    columns: Labels
    levels: FloatArray | None  # increasing; None for real values
    boundaries: FloatArray  # (levels - 1,) in units of the latent
    unit: float  # the latent's standard deviation
    noise: float  # the noise's standard deviation
    row_factors: FloatArray  # (rank, rows)
    column_factors: FloatArray  # (rank, columns)
    row_effects: FloatArray  # (rows,)
    column_effects: FloatArray  # (columns,)

    def signal(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the latent without its noise, (pairs,)."""
        return self.signal_at(self.rows.positions(rows), self.columns.positions(columns))

    def expected(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the mean of each entry given the signal, (pairs,): no prediction has a lower squared error."""
        if self.levels is None:
            return self.signal(rows, columns) / self.unit
        expected: FloatArray = self.distribution(rows, columns) @ self.levels
        return expected

    def median(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the median of each entry given the signal, (pairs,): no prediction has a lower absolute error."""
        return self.values_of(self.signal(rows, columns))  # the noise is symmetric

    def distribution(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the probability of each level given the signal, (pairs, levels)."""
        if self.levels is None:
            raise BadSetting("a matrix of real values has no levels; ask for expected or median")
        room = self.boundaries - self.signal(rows, columns)[:, None]
        below = ndtr(room / max(self.noise, 1e-9))  # without noise: a step
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    def signal_at(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the signal of pairs of positions, (pairs,)."""
        signal: FloatArray = self.row_effects[rows] + self.column_effects[columns]
        for of_rows, of_columns in zip(self.row_factors, self.column_factors, strict=True):
            signal += of_rows.take(rows) * of_columns.take(columns)
        return signal

    def signal_block(self, rows: IndexArray) -> FloatArray:
        """Return the signal of whole rows, (rows, columns); mind its size."""
        taste: FloatArray = self.row_factors[:, rows].T @ self.column_factors
        return taste + self.row_effects[rows, None] + self.column_effects

    def values_of(self, latents: FloatArray) -> FloatArray:
        """Return the values that show such latents, of any shape: levels, or real values."""
        if self.levels is None:
            return latents / self.unit
        shown: FloatArray = self.levels[np.searchsorted(self.boundaries, latents)]
        return shown

    def __repr__(self) -> str:
        (rank, n_rows), n_columns = self.row_factors.shape, len(self.columns)
        return f"Truth({n_rows} rows x {n_columns} columns, rank {rank}, noise {self.noise:g})"


def draw_truth(
    rows: Labels,
    columns: Labels,
    *,
    rank: int = 5,
    levels: Iterable[float] | None = (1, 2, 3, 4, 5),
    noise: float = 1.3,
    row_effect: float = 0.9,
    column_effect: float = 0.9,
    explained: float = 0.0,
    seed: int = 0,
) -> Truth:
    """Draw the truth of `generate` and of `stream` (which numbers its rows and columns) with the same settings.

    `noise`, `row_effect` and `column_effect` are standard deviations; that of the low-rank part is 1. `explained` is
    the share of the variance of factors and effects that features explain.

    >>> people, films = Labels(["Ada", "Bela"], axis="row"), Labels.from_range(3, axis="column")
    >>> draw_truth(people, films, rank=2, seed=0)
    Truth(2 rows x 3 columns, rank 2, noise 1.3)
    """
    rank = whole_number("rank", rank, low=1)
    noise = number("noise", noise, low=0, high=100)
    row_effect = number("row_effect", row_effect, low=0, high=100)
    column_effect = number("column_effect", column_effect, low=0, high=100)
    explained = number("explained", explained, low=0, high=1)
    unit = float(np.sqrt(1.0 + noise**2 + row_effect**2 + column_effect**2))
    known = None if levels is None else _checked_levels(levels)
    n_levels = 1 if known is None else known.size
    n_rows, n_columns = len(rows), len(columns)
    of_rows, of_columns = RandomStream(seed, 0), RandomStream(seed, 1)
    importance = 1.0 / np.arange(1, rank + 1)[:, None]  # few tastes matter much, many matter little
    importance /= np.sqrt(np.sum(importance**2))
    row_effects, column_effects = of_rows.normals(n_rows), of_columns.normals(n_columns)
    row_factors = of_rows.normals(n_rows * rank).reshape(rank, n_rows)
    column_factors = of_columns.normals(n_columns * rank).reshape(rank, n_columns)
    if explained:
        for described, effects, factors in (
            (features_of_rows(rows, rank=rank, seed=seed), row_effects, row_factors),
            (features_of_columns(columns, rank=rank, seed=seed), column_effects, column_factors),
        ):
            effects[:] = np.sqrt(explained) * described.effects + np.sqrt(1.0 - explained) * effects
            factors[:] = np.sqrt(explained) * described.factors + np.sqrt(1.0 - explained) * factors
    return Truth(
        rows=rows,
        columns=columns,
        levels=known,
        boundaries=unit * (np.arange(1, n_levels) / n_levels - _CENTRE) / _SPREAD,
        unit=unit,
        noise=noise,
        row_effects=_on_grid(row_effect * row_effects),
        column_effects=_on_grid(column_effect * column_effects),
        row_factors=_on_grid(row_factors),
        column_factors=_on_grid(importance * column_factors),
    )


def whole_number(name: str, given: SupportsIndex, *, low: int, high: int | None = None) -> int:
    """Return a setting as an int; one that is not whole or not between `low` and `high` raises `BadSetting`.

    >>> whole_number("rank", 5, low=1)
    5
    """
    try:
        value = operator.index(given)
    except TypeError:
        value = low - 1
    if value < low or (high is not None and value > high):
        right = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise BadSetting(f"{name} must be a whole number {right}; got {given!r}")
    return value


def number(name: str, given: float, *, low: float, high: float) -> float:
    """Return a setting as a float; one that is no number between `low` and `high` raises `BadSetting`.

    >>> number("density", 1, low=0, high=1)
    1.0
    """
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = np.nan
    if not low <= value <= high:
        raise BadSetting(f"{name} must be a number from {low:g} to {high:g}; got {given!r}")
    return value


def _checked_levels(levels: Iterable[float]) -> FloatArray:
    known = Scale(levels).levels
    if known is None or known.size < 2:
        raise BadSetting(f"a generated matrix needs at least two levels, or None for real values; got {levels!r}")
    return known


def _on_grid(array: FloatArray) -> FloatArray:
    return np.round(array * _GRID) / _GRID


# Entries drawn at a time: what a block needs in memory, about 300 bytes an entry, stays near a processor's cache.
_BLOCK_ENTRIES = 1 << 16

# Cells of whole rows held at a time where every cell gets a key.
_KEYED_CELLS = 1 << 18

# A row that wants more than one column in this many gets keys; drawing would mostly repeat columns it has.
_CROWDED = 6

# Draws per entry wanted, before and after taste halves them, and how often a row that falls short draws again.
_OVERDRAW, _ROUNDS = 1.15, 10


@dataclass(frozen=True)
class PowerLaw:
    """Weights that fall with the rank as rank^-exponent: the integral over [rank, rank + 1), ranks from 1.

    >>> PowerLaw(3, exponent=1.0).weights() / np.log(2)
    array([1.       , 0.5849625, 0.4150375])
    >>> PowerLaw(3, exponent=1.0).draw(np.array([0.01, 0.5, 0.75, 0.99]))
    array([0, 1, 1, 2])
    """

    count: int
    exponent: float

    def weights(self) -> FloatArray:
        """Return the weight of each rank, (count,), falling."""
        return np.diff(boxcox(np.arange(1.0, self.count + 2), 1.0 - self.exponent))

    def draw(self, uniforms: FloatArray) -> IndexArray:
        """Turn uniform numbers in (0, 1) into ranks from 0, each as likely as its weight."""
        total = boxcox(self.count + 1.0, 1.0 - self.exponent)
        ranks: IndexArray = inv_boxcox(total * uniforms, 1.0 - self.exponent).astype(np.int64) - 1
        return np.clip(ranks, 0, self.count - 1, out=ranks)


def spread_entries(activity: FloatArray, *, n_columns: int, n_entries: int) -> IndexArray:
    """Return how many entries each row gets, (rows,): at most `n_columns`, together exactly `n_entries`.

    A row's share of the columns is 1 - exp(-time * activity), with the time at which all shares make `n_entries`:
    proportional to the activity as long as it is small.

    >>> spread_entries(np.array([4.0, 1.0, 1.0]), n_columns=10, n_entries=9)
    array([5, 2, 2])
    """
    n_cells = activity.size * n_columns
    if n_entries == n_cells:
        return np.full(activity.size, n_columns, dtype=np.int64)

    def surplus(time: float) -> float:
        return float(-n_columns * np.expm1(-time * activity).sum() - n_entries)

    time = brentq(surplus, 0.0, np.log(2.0 * n_cells) / activity.min(), xtol=1e-30, rtol=1e-14)
    expected = -n_columns * np.expm1(-time * activity)
    counts: IndexArray = expected.astype(np.int64)
    n_left = n_entries - int(counts.sum())
    counts[np.argsort(counts - expected, kind="stable")[:n_left]] += 1
    return counts


class Cells(NamedTuple):
    """Positions of the cells to observe, in row order."""

    rows: IndexArray
    columns: IndexArray


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws the columns of each row one after the other, none twice (successive sampling).

    The next column is drawn in proportion to popularity x 1 / (1 + exp(-selection x liking)), where the liking is the
    signal without the row's effect: what a row likes by its own measure.

    >>> from deepmf.datasets import checkerboard
    >>> fair = Sampler(checkerboard(2, 9).truth, np.array([3, 1]), PowerLaw(9, 0.0), np.arange(9), selection=0.0)
    >>> fair.draw(np.array([0, 1]), RandomStream(0)).rows
    array([0, 0, 0, 1])
    """

    truth: Truth
    row_counts: IndexArray  # (rows,)
    popularity: PowerLaw
    by_popularity: IndexArray  # (columns,) most popular first
    selection: float

    def blocks(self) -> Iterator[IndexArray]:
        """Cut the rows that have entries into blocks of about as many entries; a row is never cut."""
        rows = np.flatnonzero(self.row_counts)
        block_of = (np.cumsum(self.row_counts[rows]) - 1) // _BLOCK_ENTRIES
        yield from np.split(rows, np.flatnonzero(np.diff(block_of)) + 1)

    def draw(self, rows: IndexArray, dice: RandomStream) -> Cells:
        """Return row and column positions of the entries of some rows, in row order.

        Rows draw columns until they have enough; what a few rounds leave open, and crowded rows, go by keys. As
        draws have no memory, it does not matter to the result's distribution where one gives way to the other.
        """
        wanted = self.row_counts[rows]
        crowded = np.where(wanted * _CROWDED > self._n_columns, wanted, 0)
        missing = wanted - crowded
        cells = np.empty(0, dtype=np.int64)  # a cell is (position among rows) * n_columns + column
        for _ in range(_ROUNDS):
            if missing.any():
                fresh = self._by_draws(rows, missing, cells, dice)
                cells = np.append(cells, fresh)
                missing -= np.bincount(fresh // self._n_columns, minlength=rows.size)
        cells = np.concatenate([cells, *self._by_keys(rows, missing + crowded, cells, dice)])
        position, column = np.divmod(np.sort(cells), self._n_columns)
        return Cells(rows[position], column)

    def _by_draws(
        self,
        rows: IndexArray,
        missing: IndexArray,
        cells: IndexArray,
        dice: RandomStream,
    ) -> IndexArray:
        per_entry = 2 * _OVERDRAW if self.selection else _OVERDRAW
        n_draws = np.where(missing > 0, (per_entry * missing).astype(np.int64) + 8, 0)
        position = np.repeat(np.arange(rows.size), n_draws)
        column = self.by_popularity[self.popularity.draw(dice.uniforms(position.size))]
        if self.selection:
            row = rows[position]
            liking = self.truth.signal_at(row, column) - self.truth.row_effects[row]
            liked = dice.uniforms(position.size) * self._reluctance(liking) < 1.0
            position, column = position[liked], column[liked]
        known = cells[missing[cells // self._n_columns] > 0]
        return _first_new(position, position * self._n_columns + column, known, missing)

    def _by_keys(
        self,
        rows: IndexArray,
        missing: IndexArray,
        cells: IndexArray,
        dice: RandomStream,
    ) -> Iterator[IndexArray]:
        """Give every free cell an exponential arrival time with its weight as rate, and take the earliest."""
        position, column = np.divmod(cells, self._n_columns)
        short = np.flatnonzero(missing)
        step = max(1, _KEYED_CELLS // self._n_columns)
        for piece in (short[start : start + step] for start in range(0, short.size, step)):
            times = dice.exponentials(piece.size * self._n_columns).reshape(piece.size, -1) / self._weights
            if self.selection:
                row = rows[piece]
                liking = self.truth.signal_block(row) - self.truth.row_effects[row, None]
                times *= self._reluctance(liking)
            place = np.minimum(np.searchsorted(piece, position), piece.size - 1)
            held = piece[place] == position
            times[place[held], column[held]] = np.inf
            earliest = np.arange(self._n_columns) < missing[piece, None]
            yield np.repeat(piece, missing[piece]) * self._n_columns + np.argsort(times, axis=1)[earliest]

    def _reluctance(self, liking: FloatArray) -> FloatArray:
        """Return one over the probability that a cell which is come upon is observed."""
        return 1.0 + np.exp(np.minimum(-self.selection * liking, 500.0))  # beyond, exp would overflow

    @property
    def _n_columns(self) -> int:
        return self.popularity.count

    @cached_property
    def _weights(self) -> FloatArray:
        weights = np.empty(self._n_columns)
        weights[self.by_popularity] = self.popularity.weights()
        return weights


def _first_new(position: IndexArray, drawn: IndexArray, known: IndexArray, missing: IndexArray) -> IndexArray:
    """Return, of each row's drawn cells, the first `missing` that are different and not known."""
    first = np.unique(np.append(known, drawn), return_index=True)[1] - known.size
    is_new = np.zeros(drawn.size, dtype=bool)
    is_new[first[first >= 0]] = True
    n_new = np.append(0, np.cumsum(is_new))
    before = n_new[np.searchsorted(position, np.arange(missing.size))]
    kept: IndexArray = drawn[is_new & (n_new[1:] - before[position] <= missing[position])]
    return kept
