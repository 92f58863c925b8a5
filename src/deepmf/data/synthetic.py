"""Generated matrices with a known ground truth: ratings, real values, a checkerboard.

Everything here is invented by a generator; no person, film or rating is real. The same settings and seed give the
same entries on any platform: every block of rows has dice of its own, which depend on the seed and the block alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from deepmf.data.ground_truth import (
    PowerLaw,
    Sampler,
    Truth,
    draw_truth,
    features_of_columns,
    features_of_rows,
    number,
    spread_entries,
    whole_number,
)
from deepmf.data.splits import RandomStream
from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import Entries, ObservedMatrix
from deepmf.matrix.scale import Scale

_FIRST_NAMES = """
    Ada Aino Amara Anton Asel Bela Bruno Carmen Chidi Clara Dalia Daniel Dara Edith Elif Emil Esra Farah
    Felix Freya Gita Hana Hugo Ilse Imani Ines Ivo Jana Jonas Kaito Karim Kofi Lars Leila Lena Lucia Malik
    Marta Mei Milan Nadia Nils Noor Olga Omar Petra Priya Rafael Rosa Samir Sanna Selma Tariq Tomas Uma
    Vera Wanda Yusuf Zoe
"""

_LAST_NAMES = """
    Abara Adler Aguilar Bakker Banerjee Berg Castro Cermak Conti Dahl Delgado Diallo Duarte Eriksen Farkas
    Ferrer Fischer Fontaine Garcia Gupta Haddad Halonen Hoffman Horvat Ibrahim Iyer Jansen Kaplan Kaya
    Keita Kimura Kovacs Lindqvist Lopez Marin Mensah Moreau Nakamura Novak Nowak Okafor Olsen Osei Park
    Petrov Quist Rahman Ricci Romero Sato Silva Sorensen Suzuki Tanaka Toth Umarov Vega Vidal Weber Yilmaz
    Zhang
"""

_ADJECTIVES = """
    Amber Ancient Autumn Bitter Blind Borrowed Brass Bright Broken Burning Careful Clever Copper Crooked
    Distant Drifting Eastern Electric Empty Faithful Fallen Final Floating Foreign Forgotten Frozen Gentle
    Hidden Hollow Honest Hungry Idle Invisible Iron Ivory Late Lonely Lost Lucky Marble Midnight Nameless
    Narrow Northern Painted Paper Patient Quiet Restless Scarlet Second Secret Silent Silver Sleeping
    Stolen Velvet Wandering Winter
"""

_NOUNS = """
    Afternoon Apprentice Archive Balcony Baker Bridge Cartographer Chapel Chorus Clockmaker Coast Country
    Courier Debt Detective Embassy Engine Expedition Ferry Fiddler Garden Gardener Gate Glacier Guest
    Harbour Harvest Horizon Hotel Inheritance Island Journey Kitchen Lantern Letter Library Lighthouse
    Meadow Messenger Mirror Mill Neighbour Orchard Orchestra Passenger Pianist Promise River Season Shore
    Signal Station Stranger Summer Tailor Theatre Tide Tunnel Valley Visitor Window
"""


def person_names(count: int) -> list[str]:
    """Return that many different invented people; a numeral follows where the names run out.

    >>> person_names(3)
    ['Ada Abara', 'Imani Romero', 'Samir Mensah']
    """
    return _combined(_FIRST_NAMES, _LAST_NAMES, count, prefix="")


def film_titles(count: int) -> list[str]:
    """Return that many different invented film titles; a numeral follows where the titles run out.

    >>> film_titles(3)
    ['The Amber Afternoon', 'The Forgotten Season', 'The Scarlet Library']
    """
    return _combined(_ADJECTIVES, _NOUNS, count, prefix="The ")


def _combined(first_words: str, second_words: str, count: int, *, prefix: str) -> list[str]:
    firsts, seconds = first_words.split(), second_words.split()
    n_pairs = len(firsts) * len(seconds)
    step = round(0.42 * n_pairs)  # far enough that neighbours share no word
    while gcd(step, n_pairs) > 1:  # coprime, so that n_pairs steps visit every pair once
        step += 1
    pairs = [divmod(step * number % n_pairs, len(seconds)) for number in range(min(count, n_pairs))]
    names = [f"{prefix}{firsts[first]} {seconds[second]}" for first, second in pairs]
    rounds, rest = divmod(count, n_pairs)
    for numeral in range(2, rounds + 2):
        names += [f"{name} {numeral}" for name in names[: n_pairs if numeral <= rounds else rest]]
    return names


STARS = (1.0, 2.0, 3.0, 4.0, 5.0)


@dataclass(frozen=True)
class Generated:
    """A generated matrix and the truth that it was drawn from.

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
    jobs: int = 1,
) -> Generated:
    """Generate a matrix like people's ratings of films, of exactly `n_entries` (otherwise `density` x cells) entries.

    `noise`, `row_effect` and `column_effect` are standard deviations beside the low-rank signal's 1. `popularity`
    is the exponent of the power law by which columns are popular and rows active (0: all alike). `selection` is
    how much people rate what they like (0: missing at random). `levels=None` gives real values, of mean 0 and
    standard deviation 1 over all cells. `named=False` numbers rows and columns from 0 instead of naming them. With
    `explained`, a share of the variance of factors and effects, there are features that explain so much of them.
    `jobs` threads draw entries, which do not depend on it.

    >>> ratings = generate(seed=0).matrix
    >>> ratings
    ObservedMatrix(300 rows x 200 columns, 6000 entries (10 %), scale 1 to 5 in steps of 1)
    >>> ratings.row_labels[:2].tolist(), ratings.column_labels[:2].tolist()
    (['Ada Abara', 'Imani Romero'], ['The Amber Afternoon', 'The Forgotten Season'])
    """
    rows, columns = _axis(n_rows, "row", named=named), _axis(n_columns, "column", named=named)
    if n_entries is None:
        n_entries = _share_of_cells("density", density, rows, columns)
    truth = draw_truth(
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
    blocks = _blocks(truth, n_entries=n_entries, popularity=popularity, selection=selection, seed=seed, jobs=jobs)
    found = _generated(truth, Entries(*(np.concatenate(parts) for parts in zip(*blocks, strict=True))))
    if not explained:
        return found
    of_rows, of_columns = (
        features_of_rows(rows, rank=rank, seed=seed),
        features_of_columns(columns, rank=rank, seed=seed),
    )
    return replace(found, row_features=of_rows.features, column_features=of_columns.features)


def stream(
    n_rows: int,
    n_columns: int,
    *,
    n_entries: int,
    rank: int = 5,
    levels: Iterable[float] | None = STARS,
    noise: float = 1.3,
    row_effect: float = 0.9,
    column_effect: float = 0.9,
    popularity: float = 0.6,
    selection: float = 1.0,
    seed: int = 0,
    chunk_entries: int = 1_000_000,
    jobs: int = 1,
) -> Iterator[Entries]:
    """Generate the entries of `generate` in chunks: row positions, column positions, values, in row order.

    Memory is bounded by the rows, the columns and a chunk, whatever the number of entries; the entries depend neither
    on `chunk_entries` nor on `jobs`, the number of threads that draw them.
    `deepmf.data.ground_truth.draw_truth` with the same settings gives their truth.

    >>> chunks = stream(1000, 500, n_entries=25_000, chunk_entries=10_000, seed=0)
    >>> [chunk.values.size for chunk in chunks]
    [10000, 10000, 5000]
    """
    truth = draw_truth(
        _axis(n_rows, "row", named=False),
        _axis(n_columns, "column", named=False),
        rank=rank,
        levels=levels,
        noise=noise,
        row_effect=row_effect,
        column_effect=column_effect,
        seed=seed,
    )
    blocks = _blocks(truth, n_entries=n_entries, popularity=popularity, selection=selection, seed=seed, jobs=jobs)
    return _rechunked(blocks, whole_number("chunk_entries", chunk_entries, low=1))


def checkerboard(n_rows: int = 20, n_columns: int = 20, *, observed: float = 0.5, seed: int = 0) -> Generated:
    """Generate a matrix that is 5 where row + column is even and 1 elsewhere, of which a share is observed.

    Every row and column keeps an entry of both values as long as `observed` leaves it enough. For small matrices:
    all cells are listed.

    >>> board = checkerboard(4, 4, observed=1.0)
    >>> board.matrix.to_array()
    array([[5., 1., 5., 1.],
           [1., 5., 1., 5.],
           [5., 1., 5., 1.],
           [1., 5., 1., 5.]])
    """
    rows, columns = _axis(n_rows, "row", named=False), _axis(n_columns, "column", named=False)
    n_entries = _share_of_cells("observed", observed, rows, columns)
    cells = np.sort(_covering_order(rows.array, columns.array, RandomStream(seed))[:n_entries])
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
    return _generated(truth, Entries(row, column, truth.values_of(truth.signal_at(row, column))))


def _axis(count: int, axis: str, *, named: bool) -> Labels:
    count = whole_number(f"n_{axis}s", count, low=1)
    if not named:
        return Labels.from_range(count, axis=axis)
    return Labels(person_names(count) if axis == "row" else film_titles(count), axis=axis)


def _share_of_cells(name: str, share: float, rows: Labels, columns: Labels) -> int:
    n_entries = round(number(name, share, low=0, high=1) * len(rows) * len(columns))
    if n_entries < 1:
        raise BadSetting(
            f"{name} must leave at least one of {len(rows)} x {len(columns)} cells observed; got {share!r}"
        )
    return n_entries


def _blocks(
    truth: Truth, *, n_entries: int, popularity: float, selection: float, seed: int, jobs: int
) -> Iterator[Entries]:
    """Check what is left to check, fix who gets how many entries, and return the blocks, not yet drawn."""
    n_rows, n_columns = len(truth.rows), len(truth.columns)
    n_entries = whole_number("n_entries", n_entries, low=1, high=n_rows * n_columns)
    popularity = number("popularity", popularity, low=0, high=2)
    selection = number("selection", selection, low=0, high=10)
    dice = RandomStream(seed, 2)
    activity = PowerLaw(n_rows, popularity).weights()[dice.order(n_rows)]
    sampler = Sampler(
        truth=truth,
        row_counts=spread_entries(activity / activity.mean(), n_columns=n_columns, n_entries=n_entries),
        popularity=PowerLaw(n_columns, popularity),
        by_popularity=dice.order(n_columns),
        selection=selection,
    )
    return _drawn(sampler, seed=seed, jobs=whole_number("jobs", jobs, low=1))


def _drawn(sampler: Sampler, *, seed: int, jobs: int) -> Iterator[Entries]:
    """Yield the blocks in order, drawn by some threads, which are a few blocks ahead."""

    def draw(numbered: tuple[int, IndexArray]) -> Entries:
        block, rows = numbered
        return _block(sampler, rows, RandomStream(seed, 3, block))

    if jobs == 1:
        yield from map(draw, enumerate(sampler.blocks()))
        return
    with ThreadPoolExecutor(jobs) as threads:
        waiting: deque[Future[Entries]] = deque()
        for numbered in enumerate(sampler.blocks()):
            waiting.append(threads.submit(draw, numbered))
            if len(waiting) > 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _block(sampler: Sampler, rows: IndexArray, dice: RandomStream) -> Entries:
    row, column = sampler.draw(rows, dice)
    noise = sampler.truth.noise * dice.normals(row.size)
    return Entries(row, column, sampler.truth.values_of(sampler.truth.signal_at(row, column) + noise))


def _rechunked(blocks: Iterable[Entries], chunk_entries: int) -> Iterator[Entries]:
    waiting: list[Entries] = []
    n_waiting = 0
    for block in blocks:
        waiting.append(block)
        n_waiting += block.values.size
        if n_waiting < chunk_entries:
            continue
        joined = Entries(*(np.concatenate(parts) for parts in zip(*waiting, strict=True)))
        n_ready = n_waiting - n_waiting % chunk_entries
        for start in range(0, n_ready, chunk_entries):
            yield Entries(*(part[start : start + chunk_entries] for part in joined))
        waiting, n_waiting = [Entries(*(part[n_ready:] for part in joined))], n_waiting - n_ready
    if n_waiting:
        yield Entries(*(np.concatenate(parts) for parts in zip(*waiting, strict=True)))


def _covering_order(rows: IndexArray, columns: IndexArray, dice: RandomStream) -> IndexArray:
    """List all cells at random, but first as few as give each row and column a cell of both parities."""
    covers = []
    for some_rows, some_columns in ((rows[i::2], columns[j::2]) for i in (0, 1) for j in (0, 1)):
        if some_rows.size and some_columns.size:
            size = max(some_rows.size, some_columns.size)
            row = np.resize(some_rows[dice.order(some_rows.size)], size)
            column = np.resize(some_columns[dice.order(some_columns.size)], size)
            covers.append(row * columns.size + column)
    first = np.concatenate(covers)
    rest = np.setdiff1d(np.arange(rows.size * columns.size), first)
    return np.concatenate([first[dice.order(first.size)], rest[dice.order(rest.size)]])


def _generated(truth: Truth, entries: Entries) -> Generated:
    matrix = ObservedMatrix.from_positions(
        Labelled(truth.rows, entries.rows),
        Labelled(truth.columns, entries.columns),
        entries.values,
        scale=Scale(truth.levels) if truth.levels is not None else _interval(entries.values),
    )
    return Generated(matrix, truth)


def _interval(values: FloatArray) -> Scale:
    around = Scale(low=np.floor(values.min()), high=np.floor(values.max()) + 1.0, bounded=False)
    return around.infer_again(values)
