"""Splits of a matrix: by entries, by folds, by areas, by rows, by time, by published masks.

All parts have the scale of the matrix if it was given or has levels. An inferred interval is
inferred again from the training entries, so that training knows nothing of the others, and all
parts have this scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.data.random_numbers import draw_order
from deepmf.errors import BadSplit, Hint, check_count, show_value
from deepmf.matrix.arrays import Array, BoolArray, IndexArray
from deepmf.matrix.axis_entries import locate
from deepmf.matrix.extras import NO_TIME, TimeArray, format_time, parse_time
from deepmf.matrix.matrix import AREAS, ObservedMatrix, check_matrix, compute_area_codes


@dataclass(frozen=True)
class Split:
    """Three parts of a matrix with the same rows and columns; each entry is in exactly one part."""

    train: ObservedMatrix
    validation: ObservedMatrix
    test: ObservedMatrix


@dataclass(frozen=True)
class AreaSplit:
    """A matrix split into known and new rows and columns, and each of the four areas into parts.

    `train` and `validation` have only the known rows and columns (area I); the other parts have all
    of them.

    Attributes
    ----------
    train, validation : entries of area I.
    extension : the observed entries of areas II and III, from which a model learns about new rows
        and columns.
    test : the entries to predict, by area.
    new_validation : the validation entries of areas II to IV, for choosing settings that predict
        new rows and columns well.
    unused : the training share of area IV. No model may use it.
    """

    train: ObservedMatrix
    validation: ObservedMatrix
    extension: ObservedMatrix
    new_validation: dict[str, ObservedMatrix]
    test: dict[str, ObservedMatrix]
    unused: ObservedMatrix


@dataclass(frozen=True)
class RowSplit:
    """A matrix split into rows to train on and rows held out whole; all parts have all columns.

    Attributes
    ----------
    train, validation : entries of the rows to train on; validation entries are for early stopping.
    given : entries of the held-out rows that a fitted model is given.
    test : the other entries of the held-out rows, to rank or predict.
    """

    train: ObservedMatrix
    validation: ObservedMatrix
    given: ObservedMatrix
    test: ObservedMatrix


def split_entries(
    matrix: ObservedMatrix,
    *,
    train: float = 0.75,
    validation: float = 0.05,
    test: float = 0.20,
    seed: int = 0,
) -> Split:
    """Split the entries at random in exact proportions; every part keeps all rows and columns.

    The same seed gives the same split on every platform.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(50, 40, n_entries=1000, seed=0).matrix
    >>> split = split_entries(ratings, train=.75, validation=.05, test=.20, seed=0)
    >>> split.train.n_entries, split.validation.n_entries, split.test.n_entries
    (750, 50, 200)
    """
    check_matrix(matrix, "split_entries")
    shares = _check_shares(train, validation, test)
    return _take_parts(matrix, deal(matrix.n_entries, shares, open_stream(seed, "entries")))


def split_folds(
    matrix: ObservedMatrix, folds: int = 5, *, validation: float = 0.05, seed: int = 0
) -> list[Split]:
    """Split the entries into folds; each fold is the test set once.

    `validation` is the share of all entries that is taken from the other folds for validation.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(50, 40, n_entries=1000, seed=0).matrix
    >>> [(split.train.n_entries, split.validation.n_entries, split.test.n_entries) for split in split_folds(ratings, 4)]
    [(700, 50, 250), (700, 50, 250), (700, 50, 250), (700, 50, 250)]
    """
    return list(iterate_folds(matrix, folds, validation=validation, seed=seed))


def iterate_folds(
    matrix: ObservedMatrix, folds: int, *, validation: float, seed: int
) -> Iterator[Split]:
    """Yield the splits of `split_folds` one after another, so that only one is in memory."""
    check_matrix(matrix, "split_folds")
    if not _is_whole(folds) or not 2 <= folds <= matrix.n_entries:
        raise BadSplit(
            f"folds must be a whole number from 2 to the {matrix.n_entries} entries; got {show_value(folds)}"
        )
    if not (_is_share(validation) and validation < 1 - 1 / folds):
        raise BadSplit(
            f"validation must be a share from 0 to below {1 - 1 / folds:.3g}, the training share of {folds} folds; "
            f"got {show_value(validation)}"
        )
    order = draw_order(matrix.n_entries, open_stream(seed, "entries"))
    tests = cut(order, (1 / folds,) * int(folds))
    for number, test in enumerate(tests):
        outside = np.concatenate([places for at, places in enumerate(tests) if at != number])
        share = validation * matrix.n_entries / outside.size
        permuted = outside[draw_order(outside.size, open_stream(seed, f"fold {number}"))]
        yield Split(
            *_share_scale(map(matrix.take_entries, (*cut(permuted, (1 - share, share)), test)))
        )


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
    """Choose new rows and columns at random, and split the entries of each of the four areas in
    exact proportions.

    `new_rows` and `new_columns` are shares (a float up to 1) or counts (an int). The same seed
    gives the same split on every platform.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(50, 40, n_entries=1000, seed=0).matrix
    >>> split = split_areas(ratings, new_rows=.2, new_columns=.2, seed=0)
    >>> split.train.shape, sorted(split.test)
    ((40, 32), ['I', 'II', 'III', 'IV'])
    """
    check_matrix(matrix, "split_areas")
    shares = _check_shares(train, validation, test)
    is_new_row, is_new_column = (
        _choose(count, _count_new(share, count, f"new_{axis}", axis), open_stream(seed, axis))
        for axis, count, share in zip(
            ("rows", "columns"), matrix.shape, (new_rows, new_columns), strict=True
        )
    )
    area_of = compute_area_codes(
        is_new_row[matrix.entry_rows], is_new_column[matrix.by_row.columns]
    )
    order = draw_order(matrix.n_entries, open_stream(seed, "entries"))
    parts = {area: cut(order[area_of[order] == code], shares) for code, area in enumerate(AREAS)}
    trained = np.flatnonzero(~is_new_row), np.flatnonzero(~is_new_column)
    known_entries = matrix.take_entries(parts["I"][0]).take(*trained)
    matrix = matrix.with_scale(matrix.scale.infer_again(known_entries.values))
    return AreaSplit(
        train=known_entries.with_scale(matrix.scale),
        validation=matrix.take_entries(parts["I"][1]).take(*trained),
        extension=matrix.take_entries(np.concatenate([parts["II"][0], parts["III"][0]])),
        new_validation={area: matrix.take_entries(parts[area][1]) for area in AREAS[1:]},
        test={area: matrix.take_entries(parts[area][2]) for area in AREAS},
        unused=matrix.take_entries(parts["IV"][0]),
    )


@dataclass(frozen=True)
class ArrivalSplit:
    """A matrix split into what is there at the time of a fit, what arrives later, and what is to
    predict.

    Attributes
    ----------
    train, validation : entries of area I, with the labels of the rows and columns that are there.
    given : entries of rows and columns that arrive later, in areas II to IV.
    test : the entries to predict, by area.
    """

    train: ObservedMatrix
    validation: ObservedMatrix
    given: ObservedMatrix
    test: dict[str, ObservedMatrix]


def split_arrivals(
    matrix: ObservedMatrix,
    *,
    new_rows: float = 0.2,
    new_columns: float = 0.2,
    given: float = 0.5,
    validation: float = 0.05,
    test: float = 0.10,
    row_dates: Iterable[Any] | None = None,
    column_dates: Iterable[Any] | None = None,
    seed: int = 0,
) -> ArrivalSplit:
    """Let rows and columns arrive after a fit, each with some entries that are given and others to
    predict.

    Other than in `split_areas`, some entries of new rows in new columns are given, as in a running
    service.

    Parameters
    ----------
    matrix : the entries to split.
    new_rows, new_columns : the shares (a float up to 1) or counts (an int) of rows and columns that
        arrive later.
    given : the share of the entries of each new row, and of each new column in the other rows, that
        is given: the first by date, at random without dates; at least one is given, and at least
        one of several is left to predict.
    validation, test : the shares of the entries of area I that are held out.
    row_dates, column_dates : when each row or column came: numbers or ISO dates, the largest are
        new. Default: the date of its first entry; without dates, rows and columns are chosen at
        random.
    seed : the same seed gives the same split on every platform.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(50, 40, n_entries=1000, seed=0).matrix
    >>> split = split_arrivals(ratings, new_rows=.2, new_columns=.2, seed=0)
    >>> split.train.shape, split.given.n_entries, {area: part.n_entries for area, part in split.test.items()}
    ((40, 32), 187, {'I': 63, 'II': 72, 'III': 87, 'IV': 26})
    """
    shares = _check_shares(1.0 - validation - test, validation, test)
    rows = matrix.entry_rows
    columns = matrix.by_row.columns
    counts = matrix.shape
    is_new_row, is_new_column = (
        _choose_latest(
            matrix, which, count, _count_new(share, count, f"new_{axis}", axis), dates, seed, axis
        )
        for axis, which, count, share, dates in (
            ("rows", rows, counts[0], new_rows, row_dates),
            ("columns", columns, counts[1], new_columns, column_dates),
        )
    )
    area_of = compute_area_codes(is_new_row[rows], is_new_column[columns])
    order = draw_order(matrix.n_entries, open_stream(seed, "entries"))
    dated = order if matrix.times is None else order[np.argsort(matrix.times[order], kind="stable")]
    owner = np.where(is_new_row[rows], rows, counts[0] + columns.astype(np.int64))
    is_given = _choose_first(owner, dated, given) & (area_of > 0)
    parts = cut(order[area_of[order] == 0], shares)
    trained = np.flatnonzero(~is_new_row), np.flatnonzero(~is_new_column)
    train = matrix.take_entries(parts[0]).take(*trained)
    matrix = matrix.with_scale(matrix.scale.infer_again(train.values))
    tests = {
        area: matrix.take_entries((area_of == code) & ~is_given) for code, area in enumerate(AREAS)
    }
    return ArrivalSplit(
        train=train.with_scale(matrix.scale),
        validation=matrix.take_entries(parts[1]).take(*trained),
        given=matrix.take_entries(is_given),
        test=tests | {"I": matrix.take_entries(parts[2])},
    )


def _choose_latest(
    matrix: ObservedMatrix,
    which: IndexArray,
    count: int,
    n_new: int,
    dates: Iterable[Any] | None,
    seed: int,
    axis: str,
) -> BoolArray:
    """Choose the latest of `count` rows (or columns), of which `which` has each entry; ties, and
    all without dates, are broken at random."""
    order = draw_order(count, open_stream(seed, axis))
    since: Array = np.zeros(count)
    if dates is not None:
        moments = list(dates)
        since = np.array(
            [
                moment if isinstance(moment, int | float | np.number) else parse_time(moment)
                for moment in moments
            ]
        )
        if since.size != count:
            raise BadSplit(f"there are {count} {axis}; dates are given for {since.size}")
    elif matrix.times is not None:
        since = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(since, which, matrix.times)
    is_new = np.zeros(count, dtype=bool)
    is_new[order[np.argsort(since[order], kind="stable")][count - n_new :]] = True
    return is_new


def split_rows(
    matrix: ObservedMatrix,
    *,
    new_rows: float = 0.2,
    given: float = 0.8,
    validation: float = 0.05,
    seed: int = 0,
) -> RowSplit:
    """Hold out whole rows, and split the entries of each into given and test entries (Liang et al.
    2018).

    To choose settings on held-out rows, too, split `train` again.

    Parameters
    ----------
    matrix : the entries to split.
    new_rows : the rows to hold out, drawn from the rows with at least two entries: a share of all
        rows (a float up to 1) or a count (an int).
    given : the share of the entries of each held-out row that is given, rounded so that at least
        one entry is given and one is tested.
    validation : the share of the other rows' entries that is held out for early stopping.
    seed : the same seed gives the same split on every platform.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(50, 40, n_entries=1000, seed=0).matrix
    >>> split = split_rows(ratings, new_rows=.2, given=.8, seed=0)
    >>> split.train.shape, split.test.shape, split.train.n_entries + split.validation.n_entries
    ((40, 40), (10, 40), 817)
    """
    if not (_is_share(validation) and validation < 1):
        raise BadSplit(
            f"validation must be a share from 0 to below 1; got {show_value(validation)}"
        )
    n_new = _count_new(new_rows, matrix.shape[0], "new_rows", "rows")
    able = np.flatnonzero(matrix.row_counts >= 2)
    if not 1 <= n_new <= able.size:
        raise BadSplit(
            f"new_rows={show_value(new_rows)} asks for {n_new} new rows; it must be from 1 to {able.size}, "
            "the number of rows with at least two entries"
        )
    is_new = np.zeros(matrix.shape[0], dtype=bool)
    is_new[able[_choose(able.size, n_new, open_stream(seed, "rows"))]] = True
    order = draw_order(matrix.n_entries, open_stream(seed, "entries"))
    is_held_out = is_new[matrix.entry_rows]
    is_given = _choose_first(matrix.entry_rows, order, given)
    columns = np.arange(matrix.shape[1])
    shares = [
        matrix.take_entries(part)
        for part in cut(order[~is_held_out[order]], (1 - validation, validation))
    ]
    held_out = [matrix.take_entries(is_held_out & part) for part in (is_given, ~is_given)]
    parts = [part.take(np.flatnonzero(~is_new), columns) for part in shares]
    parts += [part.take(np.flatnonzero(is_new), columns) for part in held_out]
    return RowSplit(*_share_scale(parts))


def _choose_first(owner: IndexArray, order: IndexArray, share: float) -> BoolArray:
    """Choose a share of the entries of each owner, the first in an order of all; return a mask,
    (entries,)."""
    if not (_is_share(share) and 0 < share < 1):
        raise BadSplit(
            f"given must be a share between 0 and 1, both excluded; got {show_value(share)}"
        )
    by_owner = order[np.argsort(owner[order], kind="stable")]  # owners one after another
    counts = np.bincount(owner)
    place = np.arange(owner.size) - (np.cumsum(counts) - counts)[owner[by_owner]]
    n_chosen = np.clip(np.rint(share * counts), 1, np.maximum(counts - 1, 1))
    is_chosen = np.zeros(owner.size, dtype=bool)
    is_chosen[by_owner] = place < n_chosen[owner[by_owner]]
    return is_chosen


def split_time(
    matrix: ObservedMatrix,
    *,
    train_before: Any = None,
    validation_before: Any = None,
    validation: float = 0.05,
    test: float = 0.20,
) -> Split:
    """Split the entries by time: train on the earliest, test on the latest; every part keeps all
    rows and columns.

    A model that is fitted on the training part knows nothing of later entries. Entries of the same
    second stay together. An entry without a date counts as earlier than all others.

    Parameters
    ----------
    matrix : the entries to split, with times.
    train_before : entries before this time are for training: a date, a datetime, ISO text or Unix
        seconds.
    validation_before : entries from `train_before` until before this time are for validation, all
        later ones for the test (default: there are no validation entries).
    validation, test : without `train_before`, the shares of the entries at the end that are for
        validation and for the test.

    >>> ratings = ObservedMatrix.from_entries(
    ...     [1, 1, 2, 2], [1, 2, 1, 2], [5, 3, 4, 2], times=["2024-01-05", "2024-03-01", "2024-02-01", "2024-04-01"]
    ... )
    >>> split = split_time(ratings, train_before="2024-02-15", validation_before="2024-03-15")
    >>> split.train.n_entries, split.validation.n_entries, split.test.values.tolist()
    (2, 1, [2.0])
    """
    times = _check_times(matrix)
    if train_before is None:
        if validation_before is not None:
            raise BadSplit("validation_before needs train_before, the end of the training entries")
        _check_shares(1.0 - validation - test, validation, test)
        places = (np.array([1 - validation - test, 1 - test]) * times.size).round().astype(np.int64)
        ends = np.sort(times)[np.minimum(places, times.size - 1)]
    else:
        start = parse_time(train_before)
        ends = np.array(
            [start, start if validation_before is None else parse_time(validation_before)]
        )
        if ends[1] < ends[0]:
            raise BadSplit(
                f"validation_before={validation_before!r} lies before train_before={train_before!r}; give a later time"
            )
    part_of = np.searchsorted(ends, times, side="right")
    for part, name in ((0, "train"), (2, "test")):
        if not np.any(part_of == part):
            first, last = (format_time(end) for end in (times[times != NO_TIME].min(), times.max()))
            raise BadSplit(f"there are no {name} entries: the entries are from {first} to {last}")
    return _take_parts(matrix, part_of)


def split_last(matrix: ObservedMatrix, *, n: int = 1, validation: int = 0) -> Split:
    """Split off the last entries of each row, by time or by their order; every part keeps all rows
    and columns.

    This tests what a row does next. Later entries of other rows stay in training, so that a model
    knows more of the future than it would in use; `split_time` avoids that. A row keeps at least
    one entry for training. An entry without a date counts as earlier than all others; entries with
    the same date keep the order they were given in.

    Parameters
    ----------
    matrix : the entries to split, with times or in order (`ObservedMatrix.from_sequences`).
    n : the number of test entries of each row.
    validation : the number of validation entries of each row, which come right before its test
        entries.

    >>> ratings = ObservedMatrix.from_entries([1, 1, 2], [1, 2, 1], [5, 3, 4], times=["2024-02-01", "2024-01-01", None])
    >>> split_last(ratings, n=1, validation=0).test.entries().columns.tolist()
    [1]
    """
    for name, count, least in (("n", n, 1), ("validation", validation, 0)):
        if not _is_whole(count) or count < least:
            raise BadSplit(
                f"{name} must be a whole number of at least {least}; got {show_value(count)}"
            )
    if matrix.extras.places is None:
        _check_times(matrix)
    rows = matrix.entry_rows
    order = matrix.extras.sort_within(rows)
    from_end = np.empty(matrix.n_entries, dtype=np.int64)
    from_end[order] = matrix.by_row.starts[rows + 1] - 1 - np.arange(matrix.n_entries)
    n_test = np.minimum(n, matrix.row_counts - 1)[rows]
    n_validation = np.minimum(validation, matrix.row_counts[rows] - 1 - n_test)
    part_of = np.where(from_end < n_test, 2, np.where(from_end < n_test + n_validation, 1, 0))
    if not np.any(part_of == 2):
        raise BadSplit("no row has two entries, so that none could be held out")
    return _take_parts(matrix, part_of)


def _check_times(matrix: ObservedMatrix) -> TimeArray:
    """Return the times of a matrix; refuse entries without dates, or with a single one."""
    if matrix.times is None:
        raise BadSplit(
            "the entries have no dates",
            hint=Hint("time= names their column", "--time names their column"),
        )
    dated = matrix.times[matrix.times != NO_TIME]
    if dated.min() == dated.max():
        raise BadSplit(
            f"all entries have the same date, {format_time(dated[0])}, which says nothing about their order"
        )
    return matrix.times


def split_from_masks(
    matrix: ObservedMatrix, train_mask: Any, validation_mask: Any, test_mask: Any
) -> Split:
    """Split by published masks: sparse matrices or arrays of the matrix's shape, true at the
    entries of the part.

    The masks must not overlap and must cover exactly the observed entries.
    """
    owner = np.zeros(matrix.n_entries, dtype=np.int8)
    masks = {"train": train_mask, "validation": validation_mask, "test": test_mask}
    for code, (name, mask) in enumerate(masks.items(), start=1):
        positions = _find_mask_entries(matrix, mask, name)
        if np.any(owner[positions]):
            raise BadSplit(
                f"the {name} mask overlaps another in {np.count_nonzero(owner[positions])} entries"
            )
        owner[positions] = code
    if not np.all(owner):
        raise BadSplit(
            f"{np.count_nonzero(owner == 0)} of {matrix.n_entries} entries are in none of the masks"
        )
    return _take_parts(matrix, owner - 1)


def _take_parts(matrix: ObservedMatrix, part_of: Array) -> Split:
    """Return the entries of the parts 0, 1 and 2."""
    return Split(*_share_scale(matrix.take_entries(part_of == part) for part in range(3)))


def _share_scale(parts: Iterable[ObservedMatrix]) -> Iterator[ObservedMatrix]:
    """Yield the parts of a matrix with the scale that is inferred from the first, unless it was
    given or has levels."""
    scale = None
    for part in parts:
        scale = scale or part.scale.infer_again(part.values)
        yield part.with_scale(scale)


def _check_shares(train: float, validation: float, test: float) -> tuple[float, float, float]:
    shares = (train, validation, test)
    if not all(map(_is_share, shares)) or not math.isclose(sum(shares), 1.0, abs_tol=1e-9):
        raise BadSplit(
            "train, validation and test must be shares between 0 and 1 that sum to 1; got "
            f"{', '.join(map(show_value, shares))}"
        )
    return shares


def _is_whole(given: object) -> bool:
    return isinstance(given, int | np.integer) and not isinstance(given, bool)


def _is_share(given: object) -> bool:
    return isinstance(given, Real) and 0 <= float(given) <= 1


def _count_new(size: float, available: int, name: str, axis: str) -> int:
    if _is_whole(size):
        count = int(size)
    elif _is_share(size):
        count = round(size * available)
    else:
        raise BadSplit(
            f"{name} must be a share between 0 and 1 or a whole number of {axis}; got {show_value(size)}"
        )
    if not 0 <= count < available:
        raise BadSplit(
            f"{name}={show_value(size)} asks for {count} new {axis}; the matrix has {available} and one must stay known"
        )
    return count


def open_stream(seed: int, purpose: str) -> np.random.PCG64:
    """Return the random words of a seed for one purpose."""
    check_count("seed", seed, least=0)
    return np.random.PCG64(np.random.SeedSequence([int(seed), *purpose.encode()]))


def _choose(count: int, n_chosen: int, stream: np.random.PCG64) -> BoolArray:
    """Choose some of `count` at random; return a mask, (count,)."""
    is_chosen = np.zeros(count, dtype=bool)
    is_chosen[draw_order(count, stream)[:n_chosen]] = True
    return is_chosen


def cut(order: IndexArray, shares: tuple[float, ...]) -> list[IndexArray]:
    """Cut a shuffled order into parts of exactly these shares."""
    return np.split(order, _find_ends(order.size, shares)[:-1])


def _find_ends(count: int, shares: tuple[float, ...]) -> npt.NDArray[np.intp]:
    """Return the ends of parts of exactly these shares; rounding is by largest remainder."""
    exact_counts = np.array(shares) * count
    counts = np.floor(exact_counts + 1e-9).astype(np.intp)
    largest_first = np.argsort(counts - exact_counts, kind="stable")
    counts[largest_first[: count - counts.sum()]] += 1
    return np.cumsum(counts)


def deal(count: int, shares: tuple[float, ...], stream: np.random.PCG64) -> npt.NDArray[np.uint8]:
    """Return the part of each entry when a random order is cut by `shares`, (count,), in a byte per
    entry.

    A part ends at the draw of a certain rank, so that the order itself is never made.
    """
    draws = stream.random_raw(count)
    part_of = np.zeros(count, dtype=np.uint8)
    firsts = _find_ends(count, shares)[:-1]
    firsts = firsts[firsts < count]  # the parts after are empty
    for draw in np.partition(draws, firsts)[firsts]:
        part_of += draws >= draw
    return part_of


def _find_mask_entries(matrix: ObservedMatrix, mask: Any, name: str) -> IndexArray:
    """Return the positions of a mask's entries among the entries in row order."""
    try:
        sparse = scipy.sparse.coo_array(mask)
    except (TypeError, ValueError) as error:
        raise BadSplit(
            f"the {name} mask must be an array or a sparse matrix of the matrix's shape "
            f"{matrix.shape}; got {show_value(mask)}"
        ) from error
    if sparse.shape != matrix.shape:
        raise BadSplit(f"the {name} mask has shape {sparse.shape}; the matrix has {matrix.shape}")
    true = sparse.data.astype(bool)
    n_columns = matrix.shape[1]
    keys = matrix.entry_rows.astype(np.int64) * n_columns + matrix.by_row.columns
    at, is_found = locate(keys, sparse.row[true].astype(np.int64) * n_columns + sparse.col[true])
    if not is_found.all():
        raise BadSplit(f"the {name} mask names entries that the matrix does not have")
    return at
