"""Small generated matrices of many kinds, 1,700 to 9,000 entries: of which the default must be the
right choice."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.data import Split, split_entries
from deepmf.datasets import generate
from deepmf.matrix.matrix import ObservedMatrix

Cells = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
Dice = np.random.Generator


def draw_cells(dice: Dice, shape: tuple[int, int], n_entries: int) -> Cells:
    """Return random cells of a matrix."""
    return np.divmod(dice.choice(shape[0] * shape[1], n_entries, replace=False), shape[1])


def draw_factors(dice: Dice, shape: tuple[int, int], rank: int = 3) -> npt.NDArray[np.float64]:
    """Return a matrix of low rank, of standard deviation 1, with effects of .6."""
    rows, columns = (dice.standard_normal((size, rank)) for size in shape)
    effects = dice.standard_normal((shape[0], 1)) + dice.standard_normal((1, shape[1]))
    return np.asarray(rows @ columns.T / np.sqrt(rank) + 0.6 * effects)


def low_rank(
    shape: tuple[int, int],
    n_entries: int,
    read: Callable[[Dice, npt.NDArray[np.float64]], npt.NDArray[Any]],
    *,
    rank: int = 3,
) -> Callable[[Dice], ObservedMatrix]:
    """Return a kind whose values are read from a matrix of low rank."""

    def make(dice: Dice) -> ObservedMatrix:
        cells = draw_cells(dice, shape, n_entries)
        return ObservedMatrix.from_entries(
            *cells, read(dice, draw_factors(dice, shape, rank)[cells]).astype(float)
        )

    return make


def ratings(
    n_rows: int, n_columns: int, n_entries: int, **more: Any
) -> Callable[[Dice], ObservedMatrix]:
    """Return a kind of `generate`, of rank 4 and noise 1."""

    def make(dice: Dice) -> ObservedMatrix:
        settings = {
            "rank": 4,
            "noise": 1.0,
            "named": False,
            "seed": int(dice.integers(1 << 30)),
        } | more
        return generate(n_rows, n_columns, n_entries=n_entries, **settings).matrix

    return make


def add_outliers(dice: Dice, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return noisy scores, 3 % of them far away."""
    far = (dice.random(scores.size) < 0.03) * dice.choice([-1.0, 1.0], scores.size)
    return np.asarray(
        scores + 0.5 * dice.standard_normal(scores.size) + far * dice.uniform(10, 30, scores.size)
    )


def cut_skewed(dice: Dice, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return three levels, 85, 10 and 5 %."""
    noisy = scores + 0.8 * dice.standard_normal(scores.size)
    return np.searchsorted(np.quantile(noisy, [0.85, 0.95]), noisy)


def near_constant(dice: Dice) -> ObservedMatrix:
    """Return fours, and 4 % of other levels at random."""
    cells = draw_cells(dice, (150, 80), 4000)
    odd = dice.random(4000) < 0.04
    return ObservedMatrix.from_entries(
        *cells, np.where(odd, dice.choice([1.0, 2.0, 3.0, 5.0], 4000), 4.0)
    )


def blocks(dice: Dice) -> ObservedMatrix:
    """Return stars of four groups of rows in four groups of columns."""
    rows, columns = draw_cells(dice, (120, 100), 3000)
    means = dice.integers(1, 6, (4, 4))[
        dice.integers(0, 4, 120)[rows], dice.integers(0, 4, 100)[columns]
    ]
    return ObservedMatrix.from_entries(
        rows, columns, np.clip(np.rint(means + 0.7 * dice.standard_normal(rows.size)), 1, 5)
    )


def drifting(dice: Dice) -> ObservedMatrix:
    """Return values of rows that move slowly from column to column."""
    rows, columns = draw_cells(dice, (200, 60), 4500)
    at, (slopes, waves, effects) = (
        np.linspace(0, 1, 60)[columns],
        dice.standard_normal((3, 200))[:, rows],
    )
    noise = 0.5 * dice.standard_normal(rows.size)
    return ObservedMatrix.from_entries(
        rows,
        columns,
        slopes * (2 * at - 1) + waves * np.sin(6 * at) + 0.5 * effects + 2 * at + noise,
    )


KINDS: dict[str, Callable[[Dice], ObservedMatrix]] = {
    "80 x 60": ratings(80, 60, 2400),
    "300 x 40, 7 levels": ratings(300, 40, 3600, levels=np.arange(1.0, 8.0)),
    "40 x 400": ratings(40, 400, 4000),
    "1500 x 1200, very sparse": ratings(1500, 1200, 9000),
    "counts": low_rank(
        (150, 80),
        4000,
        lambda dice, z: dice.negative_binomial(1.2, 1.2 / (1.2 + np.exp(1 + 0.8 * z))),
    ),
    "three skewed levels": low_rank((200, 100), 5000, cut_skewed),
    "0 / 1": low_rank((200, 100), 5000, lambda dice, z: 1.2 * z + dice.logistic(size=z.size) > 0),
    "outliers": low_rank((120, 90), 3500, add_outliers),
    "near-constant": near_constant,
    "4 x 4 blocks": blocks,
    "drifting columns": drifting,
    "real": low_rank(
        (150, 80), 4000, lambda dice, z: 10 + 3 * z + 1.5 * dice.standard_normal(z.size), rank=4
    ),
    "71 levels": low_rank(
        (240, 120),
        4800,
        lambda dice, z: np.clip(np.rint(35 + 12 * (z + dice.standard_normal(z.size))), 0, 70),
    ),
}


def make_kind(kind: str, seed: int) -> Split:
    """Return a draw of a kind: four fifths to fit, without validation entries, and a fifth to
    test."""
    matrix = KINDS[kind](np.random.default_rng([seed, zlib.crc32(kind.encode())]))
    return split_entries(matrix, train=0.8, validation=0.0, test=0.2, seed=seed)
