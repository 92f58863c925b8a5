"""Rankings: the n largest, largest first, ties by place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepmf.errors import BadSetting, UnknownLabel
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.means import Means
from deepmf.models.ranking import CELLS_AT_A_TIME, batches, best_positions, choice_of, most_similar


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(1, 8))
def test_best_positions_agree_with_a_full_stable_sort(lines: list[list[int]], n: int) -> None:
    scores = np.array(lines, dtype=float)
    places, values = best_positions(scores, n)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))


@pytest.mark.parametrize("n", [0, -1, 2.5, True, None])
def test_bad_n(n: object) -> None:
    with pytest.raises(BadSetting, match="n must be a whole number of at least 1"):
        best_positions(np.zeros((1, 3)), n)  # type: ignore[arg-type]


def test_batches_are_bounded_and_complete() -> None:
    positions = np.arange(10_000)
    parts = list(batches(positions, width=CELLS_AT_A_TIME // 1000))
    assert max(part.size for part in parts) == 1000
    np.testing.assert_array_equal(np.concatenate(parts), positions)
    assert [part.size for part in batches(positions[:3], width=10 * CELLS_AT_A_TIME)] == [1, 1, 1]


def test_most_similar() -> None:
    angles = np.array([0.0, 0.1, 3.0, -0.3])
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    labels = Labels(["a", "b", "c", "d"], axis="row")
    found = most_similar(directions, labels, "a", 2)
    assert found.labels.tolist() == ["b", "d"]
    np.testing.assert_allclose(found.values, np.cos([0.1, 0.3]), rtol=1e-5)
    assert most_similar(directions, labels, "a", 99).labels.tolist() == ["b", "d", "c"]
    with pytest.raises(UnknownLabel):
        most_similar(directions, labels, "z", 2)
    for n in (0, None, "5"):
        with pytest.raises(BadSetting, match="n must be"):
            most_similar(directions, labels, "a", n)  # type: ignore[arg-type]


ENTRIES = EntryStore.of(
    ObservedMatrix.from_entries(["ann", "bob", "bob", "bob", "cy"], ["a", "a", "b", "c", "a"], [1, 2, 3, 4, 5])
)


def test_a_choice_by_labels_by_masks_and_by_numbers_of_entries() -> None:
    def chosen(among: object = None, exclude: object = None, min_entries: int = 0) -> list[int]:
        return choice_of(ENTRIES, among, exclude, min_entries).tolist()  # type: ignore[arg-type]

    assert chosen() == [0, 1, 2]
    assert chosen(["c", "a"]) == [2, 0]
    assert chosen(np.array([True, False, True])) == chosen(["a", "c"]) == [0, 2]
    assert chosen(exclude=np.array([True, False, False])) == chosen(exclude=["a"]) == [1, 2]
    assert chosen(min_entries=1) == [0, 1, 2]
    assert chosen(min_entries=2) == chosen(min_entries=3) == [0]
    assert chosen(["b", "a"], np.array([False, False, True]), 1) == [1, 0]
    assert chosen(min_entries=4) == []
    with pytest.raises(BadSetting, match=r"among is a mask of shape \(2,\); one over all columns has the shape \(3,\)"):
        chosen(np.array([True, False]))
    for wrong in (-1, 2.5, True):
        with pytest.raises(BadSetting, match="min_entries must be a whole number of at least 0; got"):
            chosen(min_entries=wrong)  # type: ignore[arg-type]


def test_labels_that_are_booleans_are_no_mask() -> None:
    entries = EntryStore.of(ObservedMatrix.from_entries([0, 0], [False, True], [1, 2]))
    assert choice_of(entries, np.array([True]), None, 0).tolist() == [1]


def test_few_entries_count_for_known_and_for_new_rows() -> None:
    model = Means().fit(ENTRIES.train)
    assert model.recommend("ann", min_entries=2, include_observed=True).labels.tolist() == ["a"]
    guest = model.fold_in(["b"], [5])
    assert guest.recommend(min_entries=2).labels.tolist() == ["a"]
    more = model.extend(ObservedMatrix.from_entries(["dan"], ["c"], [5], model.scale_))
    assert set(more.recommend("ann", min_entries=2, include_observed=True).labels) == {"a", "c"}
