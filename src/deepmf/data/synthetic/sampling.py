"""Which cells of a generated matrix are observed: drawn without replacement by popularity, activity and taste."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import boxcox, inv_boxcox

from deepmf.data.random_stream import RandomStream
from deepmf.data.synthetic.ground_truth import Truth
from deepmf.matrix.arrays import FloatArray, IndexArray

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

    >>> from deepmf.data.synthetic import checkerboard
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
