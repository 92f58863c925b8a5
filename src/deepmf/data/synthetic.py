"""Generated matrices with a known truth: ratings, real values, a checkerboard.

Everything here is invented; no person, film or rating is real. The same settings and seed give the
same entries on every platform: every block of rows has random numbers of its own, which depend on
the seed and the block alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import boxcox, inv_boxcox

from deepmf.data.ground_truth import Truth, draw_truth
from deepmf.data.random_numbers import RandomStream
from deepmf.errors import BadSetting, check_count, check_number
from deepmf.files import read_toml
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import Entries, ObservedMatrix
from deepmf.matrix.scale import Scale

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)

# Entries drawn at a time: a block takes about 300 bytes an entry, which fits a processor's cache.
_BLOCK_ENTRIES = 1 << 16

# Cells of whole rows in memory at a time where every cell gets an arrival time.
_KEYED_CELLS = 1 << 18

# Rows that need more than one column in this many get arrival times; draws would mostly repeat
# their columns.
_CROWDED = 6

# Draws per entry that a row needs (selection rejects half of them), and rounds of drawing for rows
# that fall short.
_OVERDRAW = 1.15
_ROUNDS = 10


@dataclass(frozen=True)
class Generated:
    """A generated matrix, its truth, and its features where `generate` was asked for them
    (`explained`).

    >>> ratings = generate(50, 40, n_entries=1000, seed=0)
    >>> ratings.matrix
    ObservedMatrix(50 rows x 40 columns, 1000 entries (50 %), scale 1 to 5 in steps of 1)
    >>> ratings.truth
    Truth(50 rows x 40 columns, rank 5, noise 1.3)
    >>> generate(50, 40, n_entries=1000, explained=0.5, seed=0).column_features
    Features(40 labels: year (number), genres (list))
    """

    matrix: ObservedMatrix
    truth: Truth
    row_features: Features | None = None
    column_features: Features | None = None


def generate(
    n_rows: int = 300,
    n_columns: int = 200,
    *,
    n_entries: int | None = None,
    density: float = 0.1,
    rank: int = 5,
    levels: Iterable[float] | None = STARS,
    noise: float = 1.3,
    row_effect: float = 0.9,
    column_effect: float = 0.9,
    popularity: float = 0.6,
    selection: float = 1.0,
    explained: float = 0.0,
    named: bool = True,
    seed: int = 0,
) -> Generated:
    """Generate a matrix like people's ratings of films.

    Parameters
    ----------
    n_entries : the exact number of entries; by default `density` times the number of cells.
    rank : number of factors of the low-rank signal, whose standard deviation is 1.
    levels : legal values; None gives real values of mean 0 and standard deviation 1 over all cells.
    noise, row_effect, column_effect : standard deviations.
    popularity : exponent of the power law of popular columns and active rows; 0 makes all alike.
    selection : how strongly people rate films that they like; 0 makes entries missing at random.
    explained : share of the variance of factors and effects that the generated features explain; 0
        gives no features.
    named : whether rows and columns have invented names; otherwise they are numbered from 0.

    Examples
    --------
    >>> ratings = generate(seed=0).matrix
    >>> ratings
    ObservedMatrix(300 rows x 200 columns, 6000 entries (10 %), scale 1 to 5 in steps of 1)
    >>> ratings.row_labels[:2].tolist(), ratings.column_labels[:2].tolist()
    (['Ada Abara', 'Imani Romero'], ['The Amber Afternoon', 'The Forgotten Season'])
    """
    rows = _name_axis(n_rows, "row", named=named)
    columns = _name_axis(n_columns, "column", named=named)
    if n_entries is None:
        n_entries = _count_entries("density", density, rows, columns)
    truth, features = draw_truth(
        rows,
        columns,
        rank=rank,
        levels=levels,
        noise=noise,
        row_effect=row_effect,
        column_effect=column_effect,
        explained=explained,
        seed=seed,
    )
    entries = _draw_entries(
        truth, n_entries=n_entries, popularity=popularity, selection=selection, seed=seed
    )
    return _build(truth, entries, *features)


def checkerboard(
    n_rows: int = 20, n_columns: int = 20, *, observed: float = 0.5, seed: int = 0
) -> Generated:
    """Generate a matrix that is 5 where row + column is even and 1 elsewhere, and observe a share
    of its cells.

    Every row and column has an entry of both values if `observed` allows it. Memory grows with the
    cells.

    >>> board = checkerboard(4, 4, observed=1.0)
    >>> board.matrix.to_array()
    array([[5., 1., 5., 1.],
           [1., 5., 1., 5.],
           [5., 1., 5., 1.],
           [1., 5., 1., 5.]])
    """
    rows = _name_axis(n_rows, "row", named=False)
    columns = _name_axis(n_columns, "column", named=False)
    n_entries = _count_entries("observed", observed, rows, columns)
    cells = np.sort(_order_cells(rows.array, columns.array, RandomStream(seed))[:n_entries])
    truth = Truth(
        rows=rows,
        columns=columns,
        levels=np.array([1.0, 5.0]),
        boundaries=np.zeros(1),
        unit=1.0,
        noise=0.0,
        row_factors=1.0 - 2.0 * (rows.array % 2)[None],
        column_factors=1.0 - 2.0 * (columns.array % 2)[None],
        row_effects=np.zeros(n_rows),
        column_effects=np.zeros(n_columns),
    )
    row, column = np.divmod(cells, n_columns)
    return _build(truth, Entries(row, column, truth.convert(truth.signal_at(row, column))))


def _name_axis(count: int, axis: str, *, named: bool) -> Labels:
    check_count(f"n_{axis}s", count)
    if not named:
        return Labels.from_distinct(np.arange(count), axis=axis)
    return Labels(invent_names(axis, count), axis=axis)


def _count_entries(name: str, share: float, rows: Labels, columns: Labels) -> int:
    check_number(name, share, 0, 1)
    n_entries = round(share * len(rows) * len(columns))
    if n_entries < 1:
        raise BadSetting(
            f"{name} must leave at least one of {len(rows)} x {len(columns)} cells observed; got {share!r}"
        )
    return n_entries


def _draw_entries(
    truth: Truth, *, n_entries: int, popularity: float, selection: float, seed: int
) -> Entries:
    """Check the settings, decide how many entries each row gets, and draw them."""
    n_rows = len(truth.rows)
    n_columns = len(truth.columns)
    check_count("n_entries", n_entries)
    if n_entries > n_rows * n_columns:
        raise BadSetting(
            f"n_entries must be at most the {n_rows * n_columns} cells; got {n_entries!r}"
        )
    check_number("popularity", popularity, 0, 2)
    check_number("selection", selection, 0, 10)
    dice = RandomStream(seed, 2)
    activity = PowerLaw(n_rows, popularity).weights()[dice.order(n_rows)]
    sampler = Sampler(
        truth=truth,
        row_counts=spread_entries(
            activity / activity.mean(), n_columns=n_columns, n_entries=n_entries
        ),
        popularity=PowerLaw(n_columns, popularity),
        by_popularity=dice.order(n_columns),
        selection=selection,
    )
    blocks = []
    for at, rows in enumerate(sampler.cut_blocks()):
        dice = RandomStream(seed, 3, at)
        row, column = sampler.draw(rows, dice)
        noise = truth.noise * dice.draw_normals(row.size)
        blocks.append((row, column, truth.convert(truth.signal_at(row, column) + noise)))
    return Entries(*map(np.concatenate, zip(*blocks, strict=True)))


def _order_cells(rows: IndexArray, columns: IndexArray, dice: RandomStream) -> IndexArray:
    """Return all cells in random order, after a few that give each row and column a cell of both
    parities."""
    covers = []
    for some_rows, some_columns in ((rows[i::2], columns[j::2]) for i in (0, 1) for j in (0, 1)):
        if some_rows.size and some_columns.size:
            size = max(some_rows.size, some_columns.size)
            row = np.resize(some_rows[dice.order(some_rows.size)], size)
            column = np.resize(some_columns[dice.order(some_columns.size)], size)
            covers.append(row * columns.size + column)
    first = np.concatenate(covers)
    remaining = np.setdiff1d(np.arange(rows.size * columns.size), first)
    return np.concatenate([first[dice.order(first.size)], remaining[dice.order(remaining.size)]])


def _build(truth: Truth, entries: Entries, *features: Features) -> Generated:
    values = entries.values
    scale = Scale(truth.levels) if truth.levels is not None else None
    if scale is None:
        around = Scale(low=np.floor(values.min()), high=np.floor(values.max()) + 1.0, bounded=False)
        scale = around.infer_again(values)
    rows = Labelled(truth.rows, entries.rows)
    columns = Labelled(truth.columns, entries.columns)
    return Generated(
        ObservedMatrix.from_positions(rows, columns, values, scale=scale), truth, *features
    )


@dataclass(frozen=True)
class PowerLaw:
    """Weights that fall as rank^-exponent: its integral over [rank, rank + 1), for ranks from 1.

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
    """Return the number of entries of each row, (rows,): at most `n_columns`, together exactly
    `n_entries`.

    A row's share of the columns is 1 - exp(-time * activity), where the time is such that all
    shares add up to `n_entries`. Small shares are proportional to the activity.

    >>> spread_entries(np.array([4.0, 1.0, 1.0]), n_columns=10, n_entries=9)
    array([5, 2, 2])
    """
    n_cells = activity.size * n_columns
    if n_entries == n_cells:
        return np.full(activity.size, n_columns, dtype=np.int64)

    def compute_surplus(time: float) -> float:
        return float(-n_columns * np.expm1(-time * activity).sum() - n_entries)

    time = brentq(
        compute_surplus, 0.0, np.log(2.0 * n_cells) / activity.min(), xtol=1e-30, rtol=1e-14
    )
    expected = -n_columns * np.expm1(-time * activity)
    counts: IndexArray = expected.astype(np.int64)
    n_left = n_entries - int(counts.sum())
    counts[np.argsort(counts - expected, kind="stable")[:n_left]] += 1
    return counts


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws the columns of each row one after the other, without replacement (successive sampling).

    The next column is drawn in proportion to popularity x 1 / (1 + exp(-selection x liking)), where
    the liking is the signal without the row's effect.

    >>> fair = Sampler(checkerboard(2, 9).truth, np.array([3, 1]), PowerLaw(9, 0.0), np.arange(9), selection=0.0)
    >>> fair.draw(np.array([0, 1]), RandomStream(0))[0]
    array([0, 0, 0, 1])
    """

    truth: Truth
    row_counts: IndexArray  # (rows,)
    popularity: PowerLaw
    by_popularity: IndexArray  # (columns,) most popular first
    selection: float

    def cut_blocks(self) -> Iterator[IndexArray]:
        """Yield the rows with entries in blocks of about equally many entries; a row is never
        cut."""
        rows = np.flatnonzero(self.row_counts)
        block_of = (np.cumsum(self.row_counts[rows]) - 1) // _BLOCK_ENTRIES
        yield from np.split(rows, np.flatnonzero(np.diff(block_of)) + 1)

    def draw(self, rows: IndexArray, dice: RandomStream) -> tuple[IndexArray, IndexArray]:
        """Draw the cells of some rows; return their rows and columns, in row order.

        Rows draw columns until they have enough. Crowded rows, and rows that a few rounds leave
        short, take the columns with the earliest arrival times. Both have the same distribution,
        because draws have no memory.
        """
        n_wanted = self.row_counts[rows]
        crowded = np.where(n_wanted * _CROWDED > self._n_columns, n_wanted, 0)
        missing = n_wanted - crowded
        cells = np.empty(0, dtype=np.int64)  # a cell is (position among rows) * n_columns + column
        for _ in range(_ROUNDS):
            if missing.any():
                fresh = self._choose_by_draws(rows, missing, cells, dice)
                cells = np.append(cells, fresh)
                missing -= np.bincount(fresh // self._n_columns, minlength=rows.size)
        cells = np.concatenate(
            [cells, *self._choose_by_arrival(rows, missing + crowded, cells, dice)]
        )
        position, column = np.divmod(np.sort(cells), self._n_columns)
        return rows[position], column

    def _choose_by_draws(
        self, rows: IndexArray, missing: IndexArray, cells: IndexArray, dice: RandomStream
    ) -> IndexArray:
        per_entry = 2 * _OVERDRAW if self.selection else _OVERDRAW
        n_draws = np.where(missing > 0, (per_entry * missing).astype(np.int64) + 8, 0)
        position = np.repeat(np.arange(rows.size), n_draws)
        column = self.by_popularity[self.popularity.draw(dice.draw_uniforms(position.size))]
        if self.selection:
            liked = (
                dice.draw_uniforms(position.size) * self._compute_reluctance(rows[position], column)
                < 1.0
            )
            position = position[liked]
            column = column[liked]
        eligible = cells[missing[cells // self._n_columns] > 0]
        return _keep_first_new(position, position * self._n_columns + column, eligible, missing)

    def _choose_by_arrival(
        self, rows: IndexArray, missing: IndexArray, cells: IndexArray, dice: RandomStream
    ) -> Iterator[IndexArray]:
        """Yield the cells with the earliest of exponential arrival times, whose rates are the
        weights."""
        position, column = np.divmod(cells, self._n_columns)
        short = np.flatnonzero(missing)
        step = max(1, _KEYED_CELLS // self._n_columns)
        for piece in (short[start : start + step] for start in range(0, short.size, step)):
            times = (
                -np.log(dice.draw_uniforms(piece.size * self._n_columns)).reshape(piece.size, -1)
                / self._weights
            )
            if self.selection:
                times *= self._compute_reluctance(rows[piece, None], np.arange(self._n_columns))
            place = np.minimum(np.searchsorted(piece, position), piece.size - 1)
            is_in_piece = piece[place] == position
            times[place[is_in_piece], column[is_in_piece]] = np.inf
            earliest = np.arange(self._n_columns) < missing[piece, None]
            yield (
                np.repeat(piece, missing[piece]) * self._n_columns
                + np.argsort(times, axis=1)[earliest]
            )

    def _compute_reluctance(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return one over the probability that a drawn cell is accepted, for positions that
        broadcast."""
        liking = self.truth.signal_at(rows, columns) - self.truth.row_effects[rows]
        # beyond, exp would overflow
        return 1.0 + np.exp(np.minimum(-self.selection * liking, 500.0))

    @property
    def _n_columns(self) -> int:
        return self.popularity.count

    @cached_property
    def _weights(self) -> FloatArray:
        weights = np.empty(self._n_columns)
        weights[self.by_popularity] = self.popularity.weights()
        return weights


def _keep_first_new(
    position: IndexArray, drawn: IndexArray, known: IndexArray, missing: IndexArray
) -> IndexArray:
    """Return of each row's drawn cells the first `missing` distinct ones that are not yet known."""
    first = np.unique(np.append(known, drawn), return_index=True)[1] - known.size
    is_new = np.zeros(drawn.size, dtype=bool)
    is_new[first[first >= 0]] = True
    n_new = np.append(0, np.cumsum(is_new))
    before = n_new[np.searchsorted(position, np.arange(missing.size))]
    kept: IndexArray = drawn[is_new & (n_new[1:] - before[position] <= missing[position])]
    return kept


def invent_names(axis: str, count: int) -> list[str]:
    """Return different invented people (rows) or film titles (columns); a numeral follows where
    they run out.

    >>> invent_names("row", 3)
    ['Ada Abara', 'Imani Romero', 'Samir Mensah']
    >>> invent_names("column", 2)
    ['The Amber Afternoon', 'The Forgotten Season']
    """
    words = read_toml(Path(__file__).with_name("names.toml"))
    article, first, second = (
        ("", "first_names", "last_names") if axis == "row" else ("The ", "adjectives", "nouns")
    )
    firsts = words[first].split()
    seconds = words[second].split()
    n_pairs = len(firsts) * len(seconds)
    step = round(0.42 * n_pairs)  # far enough that neighbours share no word
    while gcd(step, n_pairs) > 1:  # coprime, so that n_pairs steps visit every pair once
        step += 1
    pairs = [divmod(step * number % n_pairs, len(seconds)) for number in range(min(count, n_pairs))]
    names = [f"{article}{firsts[at]} {seconds[place]}" for at, place in pairs]
    rounds, n_more = divmod(count, n_pairs)
    for numeral in range(2, rounds + 2):
        names += [f"{name} {numeral}" for name in names[: n_pairs if numeral <= rounds else n_more]]
    return names
