"""The ground truth of a generated matrix: a low-rank signal with row and column effects, and noise cut into levels."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from scipy.special import ndtr

from deepmf.data.random_stream import RandomStream
from deepmf.data.synthetic.known_features import features_of_columns, features_of_rows
from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.labels import Labels
from deepmf.matrix.scale import Scale

# Where latent values lie on [0, 1], which the levels share evenly: off the middle, so that high levels are common.
_CENTRE, _SPREAD = 0.56, 0.26
# Factors and effects are multiples of 1/1024: their products and sums are exact in any order, on any machine.
_GRID = 1024.0


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """What generated the entries: latent = row effect + column effect + row factors . column factors + noise.

    A matrix with levels shows the level between whose boundaries the latent falls; one of real values shows
    the latent divided by `unit`. All methods take pairs of labels and compute from the factors.

    >>> from deepmf.data.synthetic import generate
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

    >>> people, films = Labels(["Ada", "Bela"], axis="row"), Labels.numbered(3, axis="column")
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
