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
TABLE = ObservedMatrix.from_array(np.arange(20.0).reshape(4, 5))


def keys(matrix: ObservedMatrix) -> list[Key]:
    return list(zip(*(array.tolist() for array in matrix.entries()), strict=True))


@st.composite
def matrices(draw: st.DrawFn) -> ObservedMatrix:
    shape = draw(st.integers(2, 12)), draw(st.integers(2, 12))
    cells = draw(st.sets(st.integers(0, shape[0] * shape[1] - 1), min_size=2))
    rows, columns = np.divmod(sorted(cells), shape[1])
    labels: Any = {"row_labels": range(shape[0]), "column_labels": range(shape[1])}
    return ObservedMatrix.from_entries(rows, columns, np.arange(rows.size) % 5, **labels)


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
    n_new = round(new_rows * matrix.shape[0]), round(new_columns * matrix.shape[1])
    if n_new[0] == matrix.shape[0] or n_new[1] == matrix.shape[1]:
        return
    split = split_areas(matrix, new_rows=new_rows, new_columns=new_columns, **sizes, seed=seed)
    parts = [split.train, split.validation, split.extension, split.unused]
    parts += [*split.new_validation.values(), *split.test.values()]
    assert sorted(sum(map(keys, parts), [])) == sorted(keys(matrix))
    known_rows, known_columns = set(split.train.row_labels), set(split.train.column_labels)
    n_known = len(known_rows), len(known_columns)
    assert np.subtract(matrix.shape, n_known).tolist() == list(n_new)

    def areas(*parts: ObservedMatrix) -> list[str]:
        pairs = [key[:2] for part in parts for key in keys(part)]
        return [AREAS[(r not in known_rows) + 2 * (c not in known_columns)] for r, c in pairs]

    assert set(areas(split.train, split.validation)) <= {"I"}
    assert set(areas(split.extension)) <= {"II", "III"}
    assert set(areas(split.unused)) <= {"IV"}
    for name, part in [*split.new_validation.items(), *split.test.items()]:
        assert set(areas(part)) <= {name}
    for name, part in split.test.items():
        assert abs(part.n_entries - sizes["test"] * areas(matrix).count(name)) < 1
    assert list(split.test) == list(AREAS)


def test_same_seed_same_split_on_any_platform() -> None:
    assert split_entries(TABLE, seed=3).test == split_entries(TABLE, seed=3).test
    assert split_entries(TABLE, seed=3).test != split_entries(TABLE, seed=4).test
    # Frozen: these must never change, or published results could not be repeated.
    assert split_entries(TABLE, seed=0).test.values.tolist() == [5, 6, 9, 13]
    train = split_areas(TABLE, new_rows=1, new_columns=2, seed=0).train
    assert (list(train.rows), list(train.columns)) == ([0, 1, 2], [2, 3, 4])


TRAIN = scipy.sparse.csr_array([[1, 0, 0], [1, 0, 0]])
VALIDATION = np.array([[False, True, False], [False, False, False]])
TEST = scipy.sparse.coo_array([[0, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("masks", "word"),
    [
        ((TRAIN, VALIDATION, TEST), None),
        ((TRAIN, TRAIN, TEST), "overlaps"),
        ((TRAIN, np.zeros((2, 3)), TEST), "1 of 4"),
        ((TRAIN, VALIDATION, np.array([[0, 0, 1], [0, 0, 1]])), "test"),
        ((TRAIN.T, VALIDATION, TEST), r"\(3, 2\)"),
        ((True, VALIDATION, TEST), "train mask must be"),
        ((None, VALIDATION, TEST), "train mask must be"),
        ((np.ones((2, 3), dtype=object), VALIDATION, TEST), "train mask must be"),
    ],
)
def test_masks(masks: tuple[Any, Any, Any], word: str | None) -> None:
    matrix = ObservedMatrix.from_array([[1, 2, np.nan], [3, np.nan, 4]])
    if word is not None:
        with pytest.raises(BadSplit, match=word):
            split_from_masks(matrix, *masks)
        return
    split = split_from_masks(matrix, *masks)
    parts = split.train, split.validation, split.test
    assert [part.values.tolist() for part in parts] == [[1, 3], [2], [4]]


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"train": -0.1, "validation": 0.1, "test": 1.0}, "-0.1"),
        ({"train": 1.5, "validation": 0.0, "test": -0.5}, "1.5"),
        ({"train": "most"}, "'most'"),
        ({"train": 0.7, "validation": 0.1, "test": 0.1}, "sum to 1; got 0.7"),
        ({"train": float("nan"), "validation": 0.1, "test": 0.1}, "nan"),
    ],
)
def test_bad_shares(sizes: dict[str, float], message: str) -> None:
    for split in (split_entries, split_areas):
        with pytest.raises(BadSplit, match=message):
            split(TABLE, **sizes)


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
    with pytest.raises(BadSplit, match=message):
        split_areas(TABLE, **new)


@pytest.mark.parametrize("split", [split_entries, split_areas, split_folds])
def test_only_a_matrix_is_split(split: Callable[[Any], object]) -> None:
    with pytest.raises(BadEntries, match="from_array"):
        split(np.ones((4, 5)))


@pytest.mark.parametrize("seed", [-1, 1.5, None, True])
def test_bad_seeds(seed: object) -> None:
    with pytest.raises(BadSetting, match="seed"):
        split_entries(TABLE, seed=seed)  # type: ignore[arg-type]


def test_folds_test_every_entry_once() -> None:
    matrix = generate(30, 20, n_entries=203, seed=0).matrix
    splits = split_folds(matrix, 4, validation=0.1, seed=1)
    tested = [set(keys(split.test)) for split in splits]
    assert sum(map(len, tested)) == len(set.union(*tested)) == 203
    assert {len(test) for test in tested} == {50, 51}
    for split in splits:
        parts = (split.train, split.validation, split.test)
        assert sorted(sum(map(keys, parts), [])) == sorted(keys(matrix))
        assert split.validation.n_entries == 20
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
    codes = np.random.default_rng(0).integers(3, size=matrix.shape)
    by_mask = split_from_masks(matrix, *(codes == part for part in range(3)))
    splits = [split_entries(matrix, seed=0), by_mask, *split_folds(matrix, 3)]
    parts = [[split.train, split.validation, split.test] for split in splits]
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
    if n_able in (0, matrix.shape[0]):
        return
    options: Any = {"new_rows": n_able, "given": share, "validation": validation, "seed": seed}
    split, again = split_rows(matrix, **options), split_rows(matrix, **options)
    parts = [split.train, split.validation, split.given, split.test]
    assert parts == [again.train, again.validation, again.given, again.test]
    assert sorted(sum(map(keys, parts), [])) == sorted(keys(matrix))
    trained = {row for row, *_ in keys(split.train) + keys(split.validation)}
    assert trained.isdisjoint(split.given.row_labels.tolist())
    assert split.train.rows == split.validation.rows
    assert split.given.rows == split.test.rows and len(split.given.rows) == n_able
    assert all(part.columns == matrix.columns for part in parts)
    given, tested = split.given.row_counts, split.test.row_counts
    assert given.min() >= 1 and tested.min() >= 1
    assert np.all(np.abs(given - share * (given + tested)) <= 1)


def test_an_interval_is_inferred_from_rows_to_train_on_alone() -> None:
    values = np.random.default_rng(0).random((6, 30))
    matrix = ObservedMatrix.from_array(values)
    for seed in range(5):
        split = split_rows(matrix, new_rows=3, validation=0, seed=seed)
        assert split.train.scale.high == split.train.values.max()
        assert split.given.scale == split.test.scale == split.train.scale


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("given", given) for given in (1.0, "most", 0.0)),
        *(("new_rows", count) for count in (0, 2, -1)),
        ("validation", 1.0),
    ],
)
def test_impossible_splits_by_rows_are_refused(name: str, wrong: Any) -> None:
    matrix = ObservedMatrix.from_entries(["a", "a", "b"], [0, 1, 0], [1, 2, 3])
    with pytest.raises(BadSplit, match=name):
        split_rows(matrix, **{"new_rows": 1, name: wrong})


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
    dice = np.random.default_rng(0)
    rows, columns = np.divmod(dice.permutation(4000)[:1000], 100)
    times = dice.integers(10**9, 10**9 + 500, size=1000)
    matrix = ObservedMatrix.from_entries(rows, columns, dice.integers(1, 6, 1000), times=times)
    split = split_time(matrix, validation=0.1, test=0.2)
    train, validation, test = (part.times for part in (split.train, split.validation, split.test))
    assert train is not None and validation is not None and test is not None
    assert train.max() < validation.min() <= validation.max() < test.min()
    assert abs(test.size - 200) < 10 and abs(validation.size - 100) < 10


def test_the_last_entries_of_each_row_are_split_off() -> None:
    split = split_last(DATED, n=1, validation=1)
    assert split.test.entries().columns.tolist() == [3, 1]
    assert split.validation.entries().columns.tolist() == [2]  # row 2 keeps its other entry
    assert split.train.values.tolist() == [5, 1, 3]
    assert split_last(DATED, n=2).test.row_counts.tolist() == [2, 1, 0]


UNDATED = ObservedMatrix.from_entries([1, 2], [1, 2], [1, 2])
CONSTANT = ObservedMatrix.from_entries([1, 2], [1, 2], [1, 2], times=[5, 5])


@pytest.mark.parametrize(
    ("split", "matrix", "options", "word"),
    [
        (split_time, UNDATED, {}, "dates"),
        (split_last, UNDATED, {}, "dates"),
        (split_time, CONSTANT, {}, "same"),
        (split_time, DATED, {"train_before": "2030-01-01"}, "test"),
        (split_time, DATED, {"train_before": 9, "validation_before": 5}, "later"),
        (split_time, DATED, {"validation_before": "2024-01-01"}, "train_before"),
        (split_last, DATED, {"n": 0}, "least"),
        (split_last, DATED, {"n": 1.5}, "whole"),
    ],
)
def test_splits_by_time_that_are_refused(
    split: Callable[..., object], matrix: ObservedMatrix, options: dict[str, Any], word: str
) -> None:
    with pytest.raises(BadSplit, match=word):
        split(matrix, **options)


def test_nothing_of_the_future_reaches_a_model() -> None:
    """The values of later entries are replaced by others: a model of the past must not notice."""
    dice = np.random.default_rng(1)
    rows, columns = np.divmod(dice.permutation(600)[:300], 20)
    times, values = dice.integers(10**9, 2 * 10**9, size=300), dice.integers(1, 6, 300) * 1.0
    later = times >= np.sort(times)[240]
    scale = Scale(low=0, high=10, bounded=False)
    models = []
    for planted in (0.0, 9.0):
        changed = np.where(later, planted, values)
        matrix = ObservedMatrix.from_entries(rows, columns, changed, scale, times=times)
        split = split_time(matrix, validation=0.0, test=0.2)
        assert split.test.n_entries == 60
        models.append(Means().fit(split.train))
    one, other = models
    assert one.predict(rows, columns).tolist() == other.predict(rows, columns).tolist()
    assert one.recommend(3).labels.tolist() == other.recommend(3).labels.tolist()


@pytest.mark.parametrize("dated", [False, True])
def test_rows_and_columns_that_arrive_have_given_entries_in_all_areas(dated: bool) -> None:
    matrix = generate(40, 30, density=0.4, seed=2).matrix
    if dated:
        when = np.random.default_rng(0).permutation(matrix.n_entries)
        matrix = ObservedMatrix.from_entries(*matrix.entries(), matrix.scale, times=when)
    years = np.arange(30) % 10
    options: Any = {"new_rows": 10, "new_columns": 0.2, "column_dates": years.tolist(), "seed": 3}
    split, again = split_arrivals(matrix, **options), split_arrivals(matrix, **options)
    parts = [split.train, split.validation, split.given, *split.test.values()]
    assert parts == [again.train, again.validation, again.given, *again.test.values()]
    assert sorted(key for part in parts for key in keys(part)) == sorted(keys(matrix))
    assert split.train.shape == (30, 24)
    late = set(matrix.column_labels[years >= 8].tolist())
    assert late.isdisjoint(split.train.column_labels.tolist()) and len(late) == 6
    known_rows, known_columns = map(set, (split.train.row_labels, split.train.column_labels))
    of_new = {(row in known_rows, column in known_columns) for row, column, _ in keys(split.given)}
    assert of_new == {(False, True), (True, False), (False, False)}
    is_known = np.isin(matrix.row_labels, split.train.row_labels)
    assert np.all(split.given.row_counts[~is_known] >= 1)
    if dated:
        assert matrix.times is not None
        first = [matrix.times[matrix.entry_rows == row].min() for row in range(40)]
        assert np.array(first)[~is_known].min() > np.array(first)[is_known].max()
        row = int(np.flatnonzero(~is_known)[0])
        tests = split.given, split.test["II"], split.test["IV"]
        given, *left = (part.times[part.entry_rows == row] for part in tests)
        assert given.max() < np.concatenate(left).min()
    for wrong, word in (({"column_dates": [1, 2]}, "dates"), ({"given": 1.0}, "given")):
        with pytest.raises(BadSplit, match=word):
            split_arrivals(matrix, **wrong)
