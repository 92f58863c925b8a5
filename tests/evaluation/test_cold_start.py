"""The cold-start curves: rows are grouped by the entries that describe them, or given more and more of them."""

from itertools import pairwise

import numpy as np
import pytest

from deepmf.data.splits import AreaSplit, split_areas
from deepmf.data.synthetic.generator import generate
from deepmf.evaluation.cold_start import KNOWN_COUNTS, ColdStartPoint, at_most, cold_start, cold_start_curve
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.means import Means


def test_groups_and_their_errors() -> None:
    array = np.full((4, 30), np.nan)
    array[0, :1] = array[1, :3] = array[2, :29] = 3
    array[3, 29] = 3
    stars = Scale([1, 2, 3, 4, 5])
    model = Means().fit(ObservedMatrix.from_array(array, stars))  # answers 3 everywhere
    test = ObservedMatrix.from_entries([0, 0, 1, 2, 3], [28, 29, 29, 29, 0], [3, 5, 4, 3, 2], stars)
    groups = [(group.first, group.last, group.n_entries) for group in cold_start(model, test)]
    assert groups == [(1, 1, 3), (2, 4, 1), (20, 49, 1)]
    errors = [group.rmse for group in cold_start(model, test)]
    assert errors == pytest.approx([np.sqrt((0 + 4 + 1) / 3), 1, 0])


def test_new_rows_count_what_extended_them() -> None:
    stars = Scale([1, 2, 3, 4, 5])
    model = Means().fit(ObservedMatrix.from_array([[3, 3.0], [3, 3]], stars))
    more = model.extend(ObservedMatrix.from_entries([7, 7], [0, 1], [3, 3], stars))
    assert more.row_counts([7, 0, 7]).tolist() == [2, 2, 2]


@pytest.fixture(scope="module")
def split() -> AreaSplit:
    return split_areas(generate(80, 60, density=0.3, seed=0).matrix, seed=0)


@pytest.fixture(scope="module")
def new_rows(split: AreaSplit) -> ObservedMatrix:
    """The entries of new rows over known columns."""
    extension, train = split.extension, split.train
    new_rows = np.flatnonzero(train.rows.find(extension.row_labels) < 0)
    return extension.take(new_rows, np.flatnonzero(train.columns.find(extension.column_labels) >= 0))


def cells(matrix: ObservedMatrix) -> set[tuple[object, ...]]:
    return set(zip(*(part.tolist() for part in matrix.entries()), strict=True))


@pytest.mark.parametrize("n_entries", [0, 1, 2, 5, 20, 1000])
def test_a_row_keeps_at_most_so_many_of_its_entries(new_rows: ObservedMatrix, n_entries: int) -> None:
    kept = at_most(new_rows, n_entries, seed=3)
    np.testing.assert_array_equal(kept.row_counts, np.minimum(new_rows.row_counts, n_entries))
    assert cells(kept) <= cells(new_rows)
    np.testing.assert_array_equal(kept.row_labels, new_rows.row_labels)
    np.testing.assert_array_equal(kept.column_labels, new_rows.column_labels)
    assert kept.scale == new_rows.scale


def test_of_one_seed_more_entries_are_those_before_and_others(new_rows: ObservedMatrix) -> None:
    kept = [cells(at_most(new_rows, n_entries, seed=3)) for n_entries in (1, 2, 5, 10)]
    assert all(fewer < more for fewer, more in pairwise(kept))
    assert cells(at_most(new_rows, 2, seed=3)) == kept[1]
    assert cells(at_most(new_rows, 2, seed=4)) != kept[1]


def test_which_entries_are_kept_is_chance() -> None:
    full = ObservedMatrix.from_array(np.full((2000, 8), 3.0), Scale([1, 2, 3]))
    first = at_most(full, 2, seed=0).column_counts
    assert first.sum() == 4000
    np.testing.assert_allclose(first, 500, atol=5 * (2000 * 0.25 * 0.75) ** 0.5)


def test_new_rows_are_predicted_from_what_is_let_in(split: AreaSplit, new_rows: ObservedMatrix) -> None:
    model, test = Means().fit(split.train), split.test["II"]
    curve = cold_start_curve(model, new_rows, test, seed=1)
    assert [point.n_known for point in curve] == list(KNOWN_COUNTS) == [1, 2, 5, 10, 20]
    rows, columns, values = test.entries()
    for point in curve:
        extended = model.extend(at_most(new_rows, point.n_known, seed=1))
        assert extended.row_counts(rows).max() <= point.n_known
        assert point == ColdStartPoint(point.n_known, rmse_error(extended.predict(rows, columns), values))
    assert curve[-1].rmse < curve[0].rmse  # to know more of a row is to know better
    with pytest.raises(KeyError):
        model.predict(rows, columns)  # the model itself has not changed


def test_an_answer_that_is_known_as_soon_as_one_entry_is() -> None:
    # Row effects are all there is: 5 in every column of a glad row, 1 in those of a sad one.
    stars = Scale([1, 2, 3, 4, 5])
    model = Means(shrinkage=0).fit(ObservedMatrix.from_array([[5, 5, 5.0, 5], [1, 1, 1, 1]], stars))
    new_rows = ObservedMatrix.from_entries([7, 7, 8], [0, 1, 0], [5, 5, 1], stars)
    test = ObservedMatrix.from_entries([7, 8], [3, 3], [5, 1], stars)
    assert [point.rmse for point in cold_start_curve(model, new_rows, test)] == pytest.approx([0] * 5)
