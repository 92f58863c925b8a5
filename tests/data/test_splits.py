"""Splits: exact, disjoint, complete, repeatable; area IV never leaks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings, strategies as st

from deepmf.data import (
    split_areas,
    split_arrivals,
    split_entries,
    split_folds,
    split_from_masks,
    split_last,
    split_rows,
    split_time,
)
from deepmf.data.random_numbers import draw_order
from deepmf.data.splits import cut, deal, open_stream
from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadSetting, BadSplit
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.means import Means

Key = tuple[object, object, float]


def keys(matrix: ObservedMatrix) -> list[Key]:
    return list(zip(*(array.tolist() for array in matrix.entries()), strict=True))


@st.composite
def matrices(draw: st.DrawFn) -> ObservedMatrix:
    n_rows, n_columns = draw(st.integers(2, 12)), draw(st.integers(2, 12))
    cells = draw(st.lists(st.integers(0, n_rows * n_columns - 1), min_size=2, unique=True))
    values = [k % 5 for k in range(len(cells))]
    return ObservedMatrix.from_entries(
        [f"r{cell // n_columns}" for cell in cells],
        [cell % n_columns for cell in cells],
        values,
        row_labels=[f"r{k}" for k in range(n_rows)],
        column_labels=range(n_columns),
    )


shares = st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20)).map(
    lambda parts: dict(
        zip(("train", "validation", "test"), np.array(parts) / sum(parts), strict=True)
    )
)


@pytest.mark.slow
@given(matrices(), shares, st.integers(0, 10))
def test_entries_are_split_exactly_and_completely(
    matrix: ObservedMatrix, sizes: dict[str, float], seed: int
) -> None:
    split = split_entries(matrix, **sizes, seed=seed)
    parts = [split.train, split.validation, split.test]
    assert sorted(sum(map(keys, parts), [])) == sorted(keys(matrix))
    for part, share in zip(parts, sizes.values(), strict=True):
        assert abs(part.n_entries - share * matrix.n_entries) < 1
        assert (part.rows, part.columns, part.scale) == (matrix.rows, matrix.columns, matrix.scale)


@pytest.mark.slow
@given(matrices(), shares, st.floats(0, 0.6), st.floats(0, 0.6), st.integers(0, 10))
def test_areas_are_disjoint_and_complete_and_iv_never_leaks(
    matrix: ObservedMatrix, sizes: dict[str, float], new_rows: float, new_columns: float, seed: int
) -> None:
    if (
        round(new_rows * matrix.shape[0]) >= matrix.shape[0]
        or round(new_columns * matrix.shape[1]) >= matrix.shape[1]
    ):
        return
    split = split_areas(matrix, new_rows=new_rows, new_columns=new_columns, **sizes, seed=seed)
    parts = [split.train, split.validation, split.extension, split.unused]
    parts += [*split.new_validation.values(), *split.test.values()]
    assert sorted(sum(map(keys, parts), [])) == sorted(keys(matrix))
    known_rows, known_columns = set(split.train.row_labels), set(split.train.column_labels)
    assert matrix.shape[0] - len(known_rows) == round(new_rows * matrix.shape[0])
    assert matrix.shape[1] - len(known_columns) == round(new_columns * matrix.shape[1])

    def area(key: Key) -> str:
        return AREAS[(key[0] not in known_rows) + 2 * (key[1] not in known_columns)]

    assert {area(key) for key in keys(split.train) + keys(split.validation)} <= {"I"}
    assert {area(key) for key in keys(split.extension)} <= {"II", "III"}
    assert {area(key) for key in keys(split.unused)} <= {"IV"}
    for name, part in split.new_validation.items():
        assert {area(key) for key in keys(part)} <= {name}
    for name, part in split.test.items():
        assert {area(key) for key in keys(part)} <= {name}
        total = sum(area(key) == name for key in keys(matrix))
        assert abs(part.n_entries - sizes["test"] * total) < 1
    assert list(split.test) == list(AREAS)


def test_same_seed_same_split_on_any_platform() -> None:
    matrix = ObservedMatrix.from_array(np.arange(20.0).reshape(4, 5))
    assert split_entries(matrix, seed=3).test == split_entries(matrix, seed=3).test
    assert split_entries(matrix, seed=3).test != split_entries(matrix, seed=4).test
    # Frozen: these must never change, or published results could not be repeated.
    assert split_entries(matrix, seed=0).test.entries().values.tolist() == [5, 6, 9, 13]
    split = split_areas(matrix, new_rows=1, new_columns=2, seed=0)
    assert (split.train.row_labels.tolist(), split.train.column_labels.tolist()) == (
        [0, 1, 2],
        [2, 3, 4],
    )


def test_masks() -> None:
    matrix = ObservedMatrix.from_array([[1, 2, np.nan], [3, np.nan, 4]])
    train = scipy.sparse.csr_array([[1, 0, 0], [1, 0, 0]])
    validation = np.array([[False, True, False], [False, False, False]])
    test = scipy.sparse.coo_array([[0, 0, 0], [0, 0, 1]])
    split = split_from_masks(matrix, train, validation, test)
    assert split.train.entries().values.tolist() == [1, 3]
    assert split.validation.entries().values.tolist() == [2]
    assert split.test.entries().values.tolist() == [4]
    with pytest.raises(BadSplit, match="overlaps"):
        split_from_masks(matrix, train, train, test)
    with pytest.raises(BadSplit, match="1 of 4"):
        split_from_masks(matrix, train, np.zeros((2, 3)), test)
    with pytest.raises(BadSplit, match="test"):
        split_from_masks(matrix, train, validation, np.array([[0, 0, 1], [0, 0, 1]]))
    with pytest.raises(BadSplit, match=r"\(3, 2\)"):
        split_from_masks(matrix, train.T, validation, test)
    for wrong in (True, None, np.ones((2, 3), dtype=object)):
        with pytest.raises(BadSplit, match="train mask must be"):
            split_from_masks(matrix, wrong, validation, test)


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"train": -0.1, "validation": 0.1, "test": 1.0}, "-0.1"),
        ({"train": 1.5, "validation": 0.0, "test": -0.5}, "1.5"),
        ({"train": "most"}, "'most'"),
        ({"train": 0.7, "validation": 0.1, "test": 0.1}, "0.9"),
        ({"train": float("nan"), "validation": 0.1, "test": 0.1}, "nan"),
    ],
)
def test_bad_shares(sizes: dict[str, float], message: str) -> None:
    matrix = ObservedMatrix.from_array(np.arange(20.0).reshape(4, 5))
    for split in (split_entries, split_areas):
        with pytest.raises(BadSplit, match=message):
            split(matrix, **sizes)


@pytest.mark.parametrize(
    "new, message",
    [
        ({"new_rows": 5}, "new_rows=5"),
        ({"new_rows": "some"}, "'some'"),
        ({"new_rows": 1.0}, "4 new"),
        ({"new_rows": -0.2}, "-0.2"),
        ({"new_columns": 2.5}, "2.5"),
        ({"new_columns": -1}, "-1 new"),
    ],
)
def test_bad_numbers_of_new_rows_and_columns(new: dict[str, float], message: str) -> None:
    matrix = ObservedMatrix.from_array(np.arange(20.0).reshape(4, 5))
    with pytest.raises(BadSplit, match=message):
        split_areas(matrix, **new)


@pytest.mark.parametrize("split", [split_entries, split_areas, split_folds])
def test_only_a_matrix_is_split(split: Callable[[Any], object]) -> None:
    with pytest.raises(BadEntries, match="from_array"):
        split(np.ones((4, 5)))


@pytest.mark.parametrize("seed", [-1, 1.5, None, True])
def test_bad_seeds(seed: object) -> None:
    matrix = ObservedMatrix.from_array(np.arange(20.0).reshape(4, 5))
    with pytest.raises(BadSetting, match="seed"):
        split_entries(matrix, seed=seed)  # type: ignore[arg-type]


def test_folds_test_every_entry_once() -> None:
    matrix = generate(30, 20, n_entries=203, seed=0).matrix
    splits = split_folds(matrix, 4, validation=0.1, seed=1)
    tested = [
        set(zip(*(part.tolist() for part in split.test.entries()[:2]), strict=True))
        for split in splits
    ]
    assert sum(map(len, tested)) == len(set.union(*tested)) == 203
    assert {len(test) for test in tested} == {50, 51}
    for split in splits:
        parts = (split.train, split.validation, split.test)
        assert sum(part.n_entries for part in parts) == 203
        assert split.validation.n_entries == 20
        assert np.count_nonzero(sum(part.to_sparse() != 0 for part in parts).toarray()) == 203
    assert split_folds(matrix, 4, validation=0.1, seed=1)[2].train == splits[2].train
    assert split_folds(matrix, 4, validation=0.1, seed=2)[2].train != splits[2].train


@pytest.mark.parametrize(
    ("folds", "validation", "message"),
    [
        (1, 0.05, "folds"),
        (31, 0.05, "31"),
        (True, 0.05, "True"),
        (2, 0.5, "validation"),
        (2, "a", "'a'"),
    ],
)
def test_folds_that_cannot_be(folds: int, validation: float, message: str) -> None:
    matrix = generate(10, 10, n_entries=30, seed=0).matrix
    with pytest.raises(BadSplit, match=message):
        split_folds(matrix, folds, validation=validation)


@pytest.mark.parametrize("count", [0, 1, 7, 1000, 70_000])
@pytest.mark.parametrize(
    "shares", [(0.75, 0.05, 0.2), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.5)]
)
def test_entries_are_dealt_as_a_shuffled_order_is_cut(
    count: int, shares: tuple[float, ...]
) -> None:
    expected = np.zeros(count, dtype=np.uint8)
    for part, places in enumerate(cut(draw_order(count, open_stream(5, "entries")), shares)):
        expected[places] = part
    assert np.array_equal(deal(count, shares, open_stream(5, "entries")), expected)


def real_values(scale: Scale | None = None) -> ObservedMatrix:
    return ObservedMatrix.from_array(np.random.default_rng(0).normal(size=(30, 20)), scale)


def every_split(matrix: ObservedMatrix) -> list[list[ObservedMatrix]]:
    """The parts of every kind of split, training entries first."""
    by_area = split_areas(matrix, seed=0)
    masks = np.random.default_rng(0).integers(3, size=matrix.shape)
    splits = [
        split_entries(matrix, seed=0),
        split_from_masks(matrix, *(masks == part for part in range(3))),
    ]
    parts = [
        [split.train, split.validation, split.test] for split in [*splits, *split_folds(matrix, 3)]
    ]
    new = [*by_area.new_validation.values(), *by_area.test.values(), by_area.unused]
    return [*parts, [by_area.train, by_area.validation, by_area.extension, *new]]


def test_an_inferred_interval_is_that_of_training_entries() -> None:
    for parts in every_split(real_values()):
        train = parts[0].values
        assert {part.scale for part in parts} == {
            Scale(low=train.min(), high=train.max(), bounded=False)
        }


@pytest.mark.parametrize("scale", [Scale(low=-9, high=9), None], ids=["interval", "levels"])
def test_other_scales_are_those_of_the_matrix(scale: Scale | None) -> None:
    matrix = generate(30, 20, density=1.0, seed=0).matrix if scale is None else real_values(scale)
    assert {part.scale for parts in every_split(matrix) for part in parts} == {matrix.scale}


@settings(max_examples=25)
@given(matrices(), st.floats(0.01, 0.99), st.floats(0, 0.5), st.integers(0, 10))
def test_rows_are_held_out_whole(
    matrix: ObservedMatrix, share: float, validation: float, seed: int
) -> None:
    n_able = int(np.count_nonzero(matrix.row_counts >= 2))
    if n_able == 0 or n_able == matrix.shape[0]:
        return
    split = split_rows(matrix, new_rows=n_able, given=share, validation=validation, seed=seed)
    parts = [split.train, split.validation, split.given, split.test]
    assert sorted(sum(map(keys, parts), [])) == sorted(keys(matrix))
    assert not {row for row, _, _ in keys(split.train) + keys(split.validation)} & set(
        split.given.row_labels.tolist()
    )
    assert split.train.rows == split.validation.rows
    assert split.given.rows == split.test.rows
    assert len(split.given.rows) == n_able
    assert all(part.columns == matrix.columns for part in parts)
    counts = split.given.row_counts + split.test.row_counts
    assert np.all((split.given.row_counts >= 1) & (split.test.row_counts >= 1))
    assert np.all(np.abs(split.given.row_counts - share * counts) <= 1)
    again = split_rows(matrix, new_rows=n_able, given=share, validation=validation, seed=seed)
    assert (again.train, again.given, again.test) == (split.train, split.given, split.test)


def test_an_interval_is_inferred_from_rows_to_train_on_alone() -> None:
    values = np.random.default_rng(0).random((6, 30))
    matrix = ObservedMatrix.from_array(values)
    for seed in range(5):
        split = split_rows(matrix, new_rows=3, validation=0, seed=seed)
        assert split.train.scale.high == split.train.values.max()
        assert split.given.scale == split.test.scale == split.train.scale


def test_impossible_splits_by_rows_are_refused() -> None:
    matrix = ObservedMatrix.from_entries(["a", "a", "b"], [0, 1, 0], [1, 2, 3])
    for wrong in (
        {"given": 1.0},
        {"given": "most"},
        {"given": 0.0},
        {"validation": 1.0},
        {"new_rows": 0},
        {"new_rows": 2},
        {"new_rows": -1},
    ):
        with pytest.raises(BadSplit, match=next(iter(wrong))):
            split_rows(matrix, **{"new_rows": 1, **wrong})


DATED = ObservedMatrix.from_entries(
    [1, 1, 1, 2, 2, 3],
    [1, 2, 3, 1, 2, 3],
    [5, 4, 3, 2, 1, 3],
    times=["2024-01-01", "2024-03-01", "2024-05-01", "2024-02-01", None, "2024-04-01"],
)


def test_a_split_by_time_trains_on_the_past() -> None:
    split = split_time(DATED, train_before="2024-03-01", validation_before="2024-04-15")
    # the entry without a date counts as the earliest
    assert split.train.values.tolist() == [5, 2, 1]
    assert split.validation.values.tolist() == [4, 3]
    assert split.test.values.tolist() == [3]
    assert split.train.shape == split.test.shape == DATED.shape
    assert split_time(DATED, train_before="2024-03-01").validation.n_entries == 0


def test_a_split_by_time_has_about_the_shares_and_keeps_ties_together() -> None:
    rng = np.random.default_rng(0)
    rows, columns = np.divmod(rng.permutation(4000)[:1000], 100)
    times = rng.integers(10**9, 10**9 + 500, size=1000)
    matrix = ObservedMatrix.from_entries(rows, columns, rng.integers(1, 6, 1000), times=times)
    split = split_time(matrix, validation=0.1, test=0.2)
    train, validation, test = (part.times for part in (split.train, split.validation, split.test))
    assert train is not None
    assert validation is not None
    assert test is not None
    assert train.max() < validation.min() <= validation.max() < test.min()
    assert abs(test.size - 200) < 10
    assert abs(validation.size - 100) < 10


def test_the_last_entries_of_each_row_are_split_off() -> None:
    split = split_last(DATED, n=1, validation=1)
    assert split.test.entries().columns.tolist() == [3, 1]
    assert split.validation.entries().columns.tolist() == [2]  # row 2 keeps its other entry
    assert split.train.values.tolist() == [5, 1, 3]
    assert split_last(DATED, n=2).test.row_counts.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    "split, word",
    [
        (lambda: split_time(ObservedMatrix.from_entries([1, 2], [1, 2], [1, 2])), "dates"),
        (lambda: split_last(ObservedMatrix.from_entries([1, 2], [1, 2], [1, 2])), "dates"),
        (
            lambda: split_time(ObservedMatrix.from_entries([1, 2], [1, 2], [1, 2], times=[5, 5])),
            "same",
        ),
        (lambda: split_time(DATED, train_before="2030-01-01"), "test"),
        (
            lambda: split_time(DATED, train_before="1970-01-01", validation_before="1969-01-01"),
            "later",
        ),
        (lambda: split_time(DATED, validation_before="2024-01-01"), "train_before"),
        (lambda: split_last(DATED, n=0), "least"),
        (lambda: split_last(DATED, n=1.5), "whole"),  # type: ignore[arg-type]
    ],
    ids=["undated", "undated last", "constant", "late", "reversed", "half", "zero", "fraction"],
)
def test_splits_by_time_that_are_refused(split: Callable[[], object], word: str) -> None:
    with pytest.raises(BadSplit, match=word):
        split()


def test_nothing_of_the_future_reaches_a_model() -> None:
    """The values of later entries are replaced by others: a model of the past must not notice."""
    rng = np.random.default_rng(1)
    rows, columns = np.divmod(rng.permutation(600)[:300], 20)
    times, values = rng.integers(10**9, 2 * 10**9, size=300), rng.integers(1, 6, 300).astype(float)
    later = times >= np.sort(times)[240]
    scale = Scale(low=0, high=10, bounded=False)

    def fit(planted: float) -> Means:
        matrix = ObservedMatrix.from_entries(
            rows, columns, np.where(later, planted, values), scale, times=times
        )
        split = split_time(matrix, validation=0.0, test=0.2)
        assert split.test.n_entries == 60
        return Means().fit(split.train)

    one, other = fit(0.0), fit(9.0)
    assert one.predict(rows, columns).tolist() == other.predict(rows, columns).tolist()
    assert one.recommend(3).labels.tolist() == other.recommend(3).labels.tolist()


@pytest.mark.parametrize("dated", [False, True])
def test_rows_and_columns_that_arrive_have_given_entries_in_all_areas(dated: bool) -> None:
    matrix = generate(40, 30, density=0.4, seed=2).matrix
    if dated:
        rows, columns, values = matrix.entries()
        when = np.random.default_rng(0).permutation(values.size).tolist()
        matrix = ObservedMatrix.from_entries(rows, columns, values, matrix.scale, times=when)
    years = np.arange(30) % 10
    split = split_arrivals(
        matrix, new_rows=10, new_columns=0.2, column_dates=years.tolist(), seed=3
    )
    again = split_arrivals(
        matrix, new_rows=10, new_columns=0.2, column_dates=years.tolist(), seed=3
    )
    parts = [split.train, split.validation, split.given, *split.test.values()]
    assert sorted(key for part in parts for key in keys(part)) == sorted(keys(matrix))
    assert [keys(part) for part in parts[:3]] == [
        keys(part) for part in (again.train, again.validation, again.given)
    ]
    assert split.train.shape == (30, 24)
    late = set(matrix.column_labels[years >= 8].tolist())
    assert late.isdisjoint(split.train.column_labels.tolist()) and len(late) == 6
    known = [set(labels.tolist()) for labels in (split.train.row_labels, split.train.column_labels)]
    of_new = [(row in known[0], column in known[1]) for row, column, *_ in keys(split.given)]
    assert set(of_new) == {(False, True), (True, False), (False, False)}
    assert np.all(split.given.row_counts[~np.isin(matrix.row_labels, split.train.row_labels)] >= 1)
    if dated:
        first = {
            label: matrix.times[matrix.entry_rows == k].min()
            for k, label in enumerate(matrix.row_labels)
        }
        arrived = [when for label, when in first.items() if label not in known[0]]
        assert min(arrived) >= max(when for label, when in first.items() if label in known[0])
        row = next(label for label in matrix.row_labels if label not in known[0])
        given, left = (
            [
                when
                for part in some
                for when in part.times[part.entry_rows == matrix.row_labels.tolist().index(row)]
            ]
            for some in ([split.given], [split.test["II"], split.test["IV"]])
        )
        assert max(given) < min(left)
    with pytest.raises(BadSplit, match="dates"):
        split_arrivals(matrix, column_dates=[1, 2])
    with pytest.raises(BadSplit, match="given"):
        split_arrivals(matrix, given=1.0)
