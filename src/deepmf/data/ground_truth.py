"""The known truth behind a generated matrix: factors, effects, noise, and features that explain a
part of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from deepmf.data.random_numbers import RandomStream
from deepmf.errors import BadSetting, check_count, check_number, show_value
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labels
from deepmf.matrix.scale import Scale

# Sums of signal and noise on [0, 1], which the levels share evenly: off the middle, so that high
# levels are common.
_CENTRE = 0.56
_SPREAD = 0.26

# Factors and effects are multiples of 1/1024: their products and sums are exact in any order, on
# any machine.
_GRID = 1024.0

OCCUPATIONS = ("artist", "clerk", "cook", "engineer", "farmer", "nurse", "student", "teacher")

GENRES = ("Comedy", "Crime", "Documentary", "Drama", "Horror", "Musical", "Sci-Fi", "Western")


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """The process that generated the entries: row effect + column effect + row factors . column
    factors + noise.

    The sum without its noise is the signal. An entry of a matrix with levels is the level between
    whose boundaries the sum falls; an entry of a matrix of real values is the sum divided by
    `unit`. Methods take pairs of labels.

    >>> from deepmf.datasets import generate
    >>> truth = generate(50, 40, n_entries=1000, named=False, seed=0).truth
    >>> truth.distribution([0, 1], [5, 5]).shape
    (2, 5)
    >>> bool(1 < truth.mean([0], [5])[0] < 5)
    True
    """

    rows: Labels
    columns: Labels
    levels: FloatArray | None  # increasing; None for real values
    boundaries: FloatArray  # (levels - 1,) sums that separate two levels
    unit: float  # the sum's standard deviation
    noise: float  # the noise's standard deviation
    row_factors: FloatArray  # (rank, rows)
    column_factors: FloatArray  # (rank, columns)
    row_effects: FloatArray  # (rows,)
    column_effects: FloatArray  # (columns,)

    def signal(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the signal of each pair, (pairs,)."""
        return self.signal_at(self.rows.positions(rows), self.columns.positions(columns))

    def mean(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the mean of each entry given the signal, (pairs,): no prediction has a lower
        squared error."""
        if self.levels is None:
            return self.signal(rows, columns) / self.unit
        return self.distribution(rows, columns) @ self.levels

    def median(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the median of each entry given the signal, (pairs,): no prediction has a lower
        absolute error."""
        return self.convert(self.signal(rows, columns))  # the noise is symmetric

    def distribution(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the probability of each level given the signal, (pairs, levels)."""
        if self.levels is None:
            raise BadSetting(
                "a matrix of real values has no levels; ask for the mean or the median"
            )
        room = self.boundaries - self.signal(rows, columns)[:, None]
        below = ndtr(room / max(self.noise, 1e-9))  # without noise: a step
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    def signal_at(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the signal of pairs of positions, or of any that broadcast, such as (rows, 1) and
        (columns,)."""
        signal: FloatArray = self.row_effects[rows] + self.column_effects[columns]
        for of_rows, of_columns in zip(self.row_factors, self.column_factors, strict=True):
            signal += of_rows.take(rows) * of_columns.take(columns)
        return signal

    def convert(self, sums: FloatArray) -> FloatArray:
        """Turn sums of signal and noise, of any shape, into values: levels or real values."""
        if self.levels is None:
            return sums / self.unit
        return self.levels[np.searchsorted(self.boundaries, sums)]

    def __repr__(self) -> str:
        (rank, n_rows), n_columns = self.row_factors.shape, len(self.columns)
        return f"Truth({n_rows} rows x {n_columns} columns, rank {rank}, noise {self.noise:g})"


def draw_truth(
    rows: Labels,
    columns: Labels,
    *,
    rank: int,
    levels: Iterable[float] | None,
    noise: float,
    row_effect: float,
    column_effect: float,
    explained: float,
    seed: int,
) -> tuple[Truth, list[Features]]:
    """Draw the truth of some rows and columns, and their features, if any; the settings are those
    of `generate`."""
    check_count("rank", rank)
    check_number("noise", noise, 0, 100)
    check_number("row_effect", row_effect, 0, 100)
    check_number("column_effect", column_effect, 0, 100)
    check_number("explained", explained, 0, 1)
    unit = float(np.sqrt(1.0 + noise**2 + row_effect**2 + column_effect**2))
    level_values = None if levels is None else _check_levels(levels)
    n_levels = 1 if level_values is None else level_values.size
    n_rows = len(rows)
    n_columns = len(columns)
    of_rows = RandomStream(seed, 0)
    of_columns = RandomStream(seed, 1)
    # of factors: a few matter much, most matter little
    importance = 1.0 / np.arange(1, rank + 1)[:, None]
    importance /= np.sqrt(np.sum(importance**2))
    row_effects = of_rows.draw_normals(n_rows)
    column_effects = of_columns.draw_normals(n_columns)
    row_factors = of_rows.draw_normals(n_rows * rank).reshape(rank, n_rows)
    column_factors = of_columns.draw_normals(n_columns * rank).reshape(rank, n_columns)
    features = []
    if explained:
        for of_features, effects, factors in (
            (draw_row_features(rows, rank=rank, seed=seed), row_effects, row_factors),
            (draw_column_features(columns, rank=rank, seed=seed), column_effects, column_factors),
        ):
            effects[:] = (
                np.sqrt(explained) * of_features.effects + np.sqrt(1.0 - explained) * effects
            )
            factors[:] = (
                np.sqrt(explained) * of_features.factors + np.sqrt(1.0 - explained) * factors
            )
            features.append(of_features.features)
    truth = Truth(
        rows=rows,
        columns=columns,
        levels=level_values,
        boundaries=unit * (np.arange(1, n_levels) / n_levels - _CENTRE) / _SPREAD,
        unit=unit,
        noise=noise,
        row_effects=_round(row_effect * row_effects),
        column_effects=_round(column_effect * column_effects),
        row_factors=_round(row_factors),
        column_factors=_round(importance * column_factors),
    )
    return truth, features


class DrawnFeatures(NamedTuple):
    """Features of all rows or columns, and the factors and effects that they explain, both of
    variance 1."""

    features: Features
    factors: FloatArray  # (rank, labels)
    effects: FloatArray  # (labels,)


def draw_row_features(rows: Labels, *, rank: int, seed: int) -> DrawnFeatures:
    """Draw an age, which determines a person's effect, and an occupation, which determines the
    factors."""
    dice = RandomStream(seed, 4)
    ages = dice.integers(len(rows), 18, 80)
    jobs = dice.integers(len(rows), 0, len(OCCUPATIONS))
    tastes = dice.draw_normals(rank * len(OCCUPATIONS)).reshape(rank, -1)
    columns: dict[str, Any] = {
        "age": ages,
        "occupation": [OCCUPATIONS[job] for job in jobs.tolist()],
    }
    return DrawnFeatures(
        Features(rows.array, columns, kinds={"age": "number"}), tastes[:, jobs], _standardise(ages)
    )


def draw_column_features(columns: Labels, *, rank: int, seed: int) -> DrawnFeatures:
    """Draw a year, which determines a film's effect, and one or two genres, which determine the
    factors."""
    dice = RandomStream(seed, 5)
    count = len(columns)
    n_genres = len(GENRES)
    years = dice.integers(count, 1950, 2010)
    first = dice.integers(count, 0, n_genres)
    second = (first + dice.integers(count, 1, n_genres)) % n_genres  # never the first
    has_two = dice.draw_uniforms(count) < 0.5
    qualities = dice.draw_normals(rank * n_genres).reshape(rank, -1)
    factors = np.where(
        has_two, (qualities[:, first] + qualities[:, second]) * 0.5**0.5, qualities[:, first]
    )
    genres = [
        [GENRES[first_genre], GENRES[second_genre]][: 1 + two]
        for first_genre, second_genre, two in zip(
            first.tolist(), second.tolist(), has_two.tolist(), strict=True
        )
    ]
    features = Features(
        columns.array, {"year": years, "genres": genres}, kinds={"year": "number", "genres": "list"}
    )
    return DrawnFeatures(features, factors, _standardise(years))


def _standardise(numbers: IndexArray) -> FloatArray:
    spread = float(numbers.std()) or 1.0
    standard: FloatArray = (numbers - numbers.mean()) / spread
    return standard


def _check_levels(levels: Iterable[float]) -> FloatArray:
    level_values = Scale(levels).levels
    if level_values is None or level_values.size < 2:
        raise BadSetting(
            f"a generated matrix needs at least two levels, or None for real values; got {show_value(levels)}"
        )
    return level_values


def _round(array: FloatArray) -> FloatArray:
    return np.round(array * _GRID) / _GRID
