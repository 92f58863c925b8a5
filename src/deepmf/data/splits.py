"""Splits of a matrix: by entries, by folds, by areas, by published masks.

All parts have the scale of the matrix if that was given or has levels. An interval that was inferred is inferred anew
from the training entries, so that nothing of the others is known in training, and all parts have that one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.special import ndtri

from deepmf.errors import BadSetting, BadSplit
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.matrix import AREAS, ObservedMatrix, compute_area_codes

# Normal numbers are multiples of 2^-20, coarse enough to hide in which bit two mathematical libraries differ.
_NORMAL_GRID = 2.0**20


class RandomStream:
    """Random numbers of one seed and one key (the part of the work that they are for).

    They are made from PCG64's raw 64-bit words, which numpy promises to keep; what `numpy.random.Generator` makes of
    the words may change between versions.

    >>> RandomStream(7).uniforms(2)
    array([0.62509547, 0.8972138 ])
    >>> RandomStream(7, 1).order(4)
    array([1, 3, 2, 0])
    """

    def __init__(self, seed: int, *key: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise BadSetting(f"seed must be a whole number that is not negative; got {seed!r}")
        self._words = np.random.PCG64(np.random.SeedSequence(int(seed), spawn_key=key))

    def uniforms(self, count: int) -> FloatArray:
        """Return uniform numbers between 0 and 1, both excluded, (count,)."""
        words = self._words.random_raw(count) >> np.uint64(12)
        return (words.astype(np.float64) + 0.5) * 2.0**-52

    def normals(self, count: int) -> FloatArray:
        """Return normal numbers of mean 0 and standard deviation 1, (count,)."""
        normals: FloatArray = np.round(ndtri(self.uniforms(count)) * _NORMAL_GRID) / _NORMAL_GRID
        return normals

    def exponentials(self, count: int) -> FloatArray:
        """Return exponential numbers of mean 1, (count,)."""
        return -np.log(self.uniforms(count))

    def order(self, count: int) -> IndexArray:
        """Return 0 to count - 1 in a random order."""
        return np.argsort(self._words.random_raw(count), kind="stable")


_DRAWS = 1 << 20  # random numbers drawn at a time

_BINS = 1 << 16  # by which they are counted

_BIN_SHIFT = np.uint64(48)


@dataclass(frozen=True)
class Split:
    """Three parts of one matrix with the same rows and columns, disjoint and together complete."""

    train: ObservedMatrix
    validation: ObservedMatrix
    test: ObservedMatrix


@dataclass(frozen=True)
class AreaSplit:
    """A matrix cut into known and new rows and columns, and each of the four areas into parts.

    `train` and `validation` have the known rows and columns only (area I). `extension` holds the observed entries of
    areas II and III, which describe the new rows and columns; `test` maps each area to the entries to predict.
    `new_validation` holds the validation share of areas II to IV, for choosing settings that predict new rows and
    columns well. `unused` is the rest, the training share of area IV, so that nothing is lost; no method may look at
    it. All but the first two have all rows and columns.
    """

    train: ObservedMatrix
    validation: ObservedMatrix
    extension: ObservedMatrix
    new_validation: dict[str, ObservedMatrix]
    test: dict[str, ObservedMatrix]
    unused: ObservedMatrix


def split_entries(
    matrix: ObservedMatrix,
    *,
    train: float = 0.75,
    validation: float = 0.05,
    test: float = 0.20,
    seed: int = 0,
) -> Split:
    """Split the entries at random in exact proportions; every part keeps all rows and columns.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(50, 40, n_entries=1000, seed=0).matrix
    >>> split = split_entries(ratings, train=.75, validation=.05, test=.20, seed=0)
    >>> split.train.n_entries, split.validation.n_entries, split.test.n_entries
    (750, 50, 200)
    """
    shares = _checked_shares(train, validation, test)
    part_of = _dealt(matrix.n_entries, shares, lambda: _stream(seed, "entries"))
    return Split(*_on_scale_of_first([matrix.take_entries(part_of == part) for part in range(len(shares))]))


def split_folds(matrix: ObservedMatrix, folds: int = 5, *, validation: float = 0.05, seed: int = 0) -> list[Split]:
    """Split the entries into folds, each of which is the test once; validation entries come from the rest.

    `validation` is their share of all entries.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(50, 40, n_entries=1000, seed=0).matrix
    >>> [(split.train.n_entries, split.validation.n_entries, split.test.n_entries) for split in split_folds(ratings, 4)]
    [(700, 50, 250), (700, 50, 250), (700, 50, 250), (700, 50, 250)]
    """
    return list(each_fold(matrix, folds, validation=validation, seed=seed))


def each_fold(matrix: ObservedMatrix, folds: int, *, validation: float, seed: int) -> Iterator[Split]:
    """Yield the splits of `split_folds` one after another: only one is held at a time."""
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or not 2 <= folds <= matrix.n_entries:
        raise BadSplit(f"folds must be a whole number from 2 to the {matrix.n_entries} entries; got {folds!r}")
    if not 0 <= validation < 1 - 1 / folds:
        raise BadSplit(
            f"validation must be a share from 0 to below {1 - 1 / folds:.3g}, what {folds} folds leave for training; "
            f"got {validation!r}"
        )
    order = _shuffled(matrix.n_entries, _stream(seed, "entries"))
    tests = _cut(order, (1 / folds,) * int(folds))
    for number, test in enumerate(tests):
        rest = np.concatenate([other for at, other in enumerate(tests) if at != number])
        share = validation * matrix.n_entries / rest.size
        chosen = rest[_shuffled(rest.size, _stream(seed, f"fold {number}"))]
        yield Split(*_on_scale_of_first(map(matrix.take_entries, (*_cut(chosen, (1 - share, share)), test))))


def split_areas(
    matrix: ObservedMatrix,
    *,
    new_rows: float = 0.2,
    new_columns: float = 0.2,
    train: float = 0.75,
    validation: float = 0.05,
    test: float = 0.20,
    seed: int = 0,
) -> AreaSplit:
    """Declare some rows and columns new, and split the entries of each of the four areas in exact proportions.

    `new_rows` and `new_columns` are shares (a float up to 1) or counts (an int).

    >>> from deepmf.datasets import generate
    >>> ratings = generate(50, 40, n_entries=1000, seed=0).matrix
    >>> split = split_areas(ratings, new_rows=.2, new_columns=.2, seed=0)
    >>> split.train.shape, sorted(split.test)
    ((40, 32), ['I', 'II', 'III', 'IV'])
    """
    shares = _checked_shares(train, validation, test)
    n_rows, n_columns = matrix.shape
    is_new_row = _chosen(n_rows, _count(new_rows, n_rows, "new_rows", "rows"), _stream(seed, "rows"))
    is_new_column = _chosen(
        n_columns, _count(new_columns, n_columns, "new_columns", "columns"), _stream(seed, "columns")
    )
    area_of = compute_area_codes(is_new_row[matrix.entry_rows], is_new_column[matrix.by_row.columns])
    order = _shuffled(matrix.n_entries, _stream(seed, "entries"))
    parts = {area: _cut(order[area_of[order] == code], shares) for code, area in enumerate(AREAS)}
    known = np.flatnonzero(~is_new_row), np.flatnonzero(~is_new_column)
    known_entries = matrix.take_entries(parts["I"][0]).take(*known)
    matrix = matrix.with_scale(matrix.scale.infer_again(known_entries.values))
    return AreaSplit(
        train=known_entries.with_scale(matrix.scale),
        validation=matrix.take_entries(parts["I"][1]).take(*known),
        extension=matrix.take_entries(np.concatenate([parts["II"][0], parts["III"][0]])),
        new_validation={area: matrix.take_entries(parts[area][1]) for area in AREAS[1:]},
        test={area: matrix.take_entries(parts[area][2]) for area in AREAS},
        unused=matrix.take_entries(parts["IV"][0]),
    )


def split_from_masks(matrix: ObservedMatrix, train_mask: Any, validation_mask: Any, test_mask: Any) -> Split:
    """Split by published masks: sparse matrices or arrays of the matrix's shape, true where an entry belongs.

    The masks must not overlap and must cover exactly the observed entries.
    """
    owner = np.zeros(matrix.n_entries, dtype=np.int8)
    masks = {"train": train_mask, "validation": validation_mask, "test": test_mask}
    for code, (name, mask) in enumerate(masks.items(), start=1):
        positions = _mask_entries(matrix, mask, name)
        if np.any(owner[positions]):
            raise BadSplit(f"the {name} mask overlaps another in {np.count_nonzero(owner[positions])} entries")
        owner[positions] = code
    if not np.all(owner):
        raise BadSplit(f"{np.count_nonzero(owner == 0)} of {matrix.n_entries} entries are in none of the masks")
    return Split(*_on_scale_of_first([matrix.take_entries(owner == code) for code in (1, 2, 3)]))


def _on_scale_of_first(parts: Iterable[ObservedMatrix]) -> Iterator[ObservedMatrix]:
    """Yield parts of a matrix on the scale that the first shows, unless theirs was given or has levels."""
    scale = None
    for part in parts:
        scale = scale or part.scale.infer_again(part.values)
        yield part.with_scale(scale)


def _checked_shares(train: float, validation: float, test: float) -> tuple[float, float, float]:
    shares = (train, validation, test)
    for name, share in zip(("train", "validation", "test"), shares, strict=True):
        if not 0 <= share <= 1:
            raise BadSplit(f"{name} must be a share between 0 and 1; got {share!r}")
    if not math.isclose(sum(shares), 1.0, abs_tol=1e-9):
        raise BadSplit(
            f"train, validation and test must sum to 1; {train!r} + {validation!r} + {test!r} = {sum(shares):g}"
        )
    return shares


def _count(size: float, available: int, name: str, axis: str) -> int:
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        count = int(size)
    elif 0 <= size <= 1:
        count = round(size * available)
    else:
        raise BadSplit(f"{name} must be a share between 0 and 1 or a whole number of {axis}; got {size!r}")
    if not 0 <= count < available:
        raise BadSplit(
            f"{name}={size!r} asks for {count} new {axis}; the matrix has {available} and one must stay known"
        )
    return count


def _stream(seed: int, purpose: str) -> np.random.PCG64:
    """Return a private bit generator for one purpose of one seed; its raw stream is the same on every platform."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise BadSetting(f"seed must be a whole number that is not negative; got {seed!r}")
    return np.random.PCG64(np.random.SeedSequence([int(seed), *purpose.encode()]))


def _shuffled(count: int, stream: np.random.PCG64) -> npt.NDArray[np.intp]:
    # Sorting raw 64-bit draws: numpy promises the raw stream for ever, its `permutation` only within a version.
    return np.argsort(stream.random_raw(count), kind="stable") if count else np.empty(0, dtype=np.intp)


def _chosen(count: int, n_chosen: int, stream: np.random.PCG64) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(count, dtype=bool)
    chosen[_shuffled(count, stream)[:n_chosen]] = True
    return chosen


def _cut(order: npt.NDArray[np.intp], shares: tuple[float, ...]) -> list[npt.NDArray[np.intp]]:
    """Cut a shuffled order into parts of exactly these shares."""
    return np.split(order, _ends(order.size, shares)[:-1])


def _ends(count: int, shares: tuple[float, ...]) -> npt.NDArray[np.intp]:
    """Return where parts of exactly these shares end; what rounding leaves over goes by largest remainder."""
    wanted = np.array(shares) * count
    counts = np.floor(wanted + 1e-9).astype(np.intp)
    largest_first = np.argsort(counts - wanted, kind="stable")
    counts[largest_first[: count - counts.sum()]] += 1
    return np.cumsum(counts)


def _dealt(count: int, shares: tuple[float, ...], stream: Callable[[], np.random.PCG64]) -> npt.NDArray[np.uint8]:
    """Return for each entry into which part `_cut` of `_shuffled` puts it, in a byte per entry.

    A part ends at a draw of a certain rank. Counting the draws by their highest bits tells between which values that
    lies, and the few draws there are sorted: neither all draws nor their order are ever held.
    """
    ranks = _ends(count, shares)[:-1]
    n_below = np.zeros(_BINS + 1, dtype=np.int64)
    for _, draws in _drawn(count, stream()):
        n_below[1:] += np.bincount((draws >> _BIN_SHIFT).astype(np.int64), minlength=_BINS)
    np.cumsum(n_below, out=n_below)
    bins = np.searchsorted(n_below, ranks, side="right") - 1  # that of the first draw behind each part
    near: list[list[tuple[int, int]]] = [[] for _ in ranks]
    for start, draws in _drawn(count, stream()):
        bin_of = draws >> _BIN_SHIFT
        for found, bin_at in zip(near, bins.tolist(), strict=True):
            places = np.flatnonzero(bin_of == bin_at)
            found += zip(draws[places].tolist(), (places + start).tolist(), strict=True)
    firsts = [
        sorted(found)[rank - n_below[bin_at]] if rank < count else None
        for found, rank, bin_at in zip(near, ranks.tolist(), bins.tolist(), strict=True)
    ]
    part_of = np.zeros(count, dtype=np.uint8)
    for start, draws in _drawn(count, stream()):
        some = part_of[start : start + draws.size]
        for first in firsts:
            if first is not None:
                some += draws > first[0]
                some[np.flatnonzero(draws == first[0])] += np.flatnonzero(draws == first[0]) + start >= first[1]
    return part_of


def _drawn(count: int, stream: np.random.PCG64) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """Yield raw draws some at a time, each time with the place of the first."""
    for start in range(0, count, _DRAWS):
        yield start, stream.random_raw(min(_DRAWS, count - start))


def _mask_entries(matrix: ObservedMatrix, mask: Any, name: str) -> npt.NDArray[np.intp]:
    """Return the positions, in row order, of the entries that a mask names."""
    sparse = scipy.sparse.coo_array(mask)
    if sparse.shape != matrix.shape:
        raise BadSplit(f"the {name} mask has shape {sparse.shape}; the matrix has {matrix.shape}")
    true = sparse.data.astype(bool)
    n_columns = matrix.shape[1]
    wanted = np.sort(sparse.row[true].astype(np.int64) * n_columns + sparse.col[true])
    keys = matrix.entry_rows.astype(np.int64) * n_columns + matrix.by_row.columns
    positions = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
    if wanted.size and (keys.size == 0 or np.any(keys[positions] != wanted)):
        raise BadSplit(f"the {name} mask names entries that the matrix does not have")
    return positions
