"""Rankings: the n largest, largest first, ties by place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.contract import additive

from deepmf.errors import BadSetting, UnknownLabel
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models import ranking
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.models.ranking import CELLS_AT_A_TIME, batches, best_positions, most_similar


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


def test_few_entries_count_for_known_and_for_new_rows() -> None:
    model = Means().fit(ENTRIES.train)
    assert model.recommend("ann", min_entries=2, include_observed=True).labels.tolist() == ["a"]
    guest = model.fold_in(["b"], [5])
    assert guest.recommend(min_entries=2).labels.tolist() == ["a"]
    more = model.extend(ObservedMatrix.from_entries(["dan"], ["c"], [5], model.scale_))
    assert set(more.recommend("ann", min_entries=2, include_observed=True).labels) == {"a", "c"}


@pytest.mark.parametrize("cells", [7, 1 << 20])
@pytest.mark.parametrize("extended", [False, True])
def test_rankings_are_those_of_all_scores_however_they_are_cut(
    monkeypatch: pytest.MonkeyPatch, cells: int, extended: bool
) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", cells)
    model = ALS(latent_size=3, epochs=2, seed=0).fit(additive(30, 25))
    if extended:
        new = ObservedMatrix.from_entries(
            ["row 1", "row 2", "new", "new"], ["Big", "column 3", "Big", "column 4"], [5, 1, 2, 3], model.scale_
        )
        model = model.extend(new, conflicts="replace")
    entries, n_columns = model.entries_, len(model.column_labels_)
    scores = model.predictor_.score_block(np.arange(len(model.row_labels_)), np.arange(n_columns)).astype(float)
    for row, label in enumerate(model.row_labels_):
        scores[row, entries.seen_columns(np.array([row])).others] = -np.inf
        expected = np.argsort(-scores[row], kind="stable")[:4]
        found = model.recommend(label, 4)
        assert found.labels.tolist() == model.column_labels_[expected[scores[row, expected] > -np.inf]].tolist()
        left = np.argsort(-np.where(np.arange(n_columns) < 5, -np.inf, scores[row]), kind="stable")[:4]
        some = model.recommend(label, 4, exclude=model.column_labels_[:5])
        assert some.labels.tolist() == model.column_labels_[left].tolist()
    many = model.recommend(model.row_labels_, 4)
    assert many.labels[3].tolist() == model.recommend(model.row_labels_[3], 4).labels.tolist()
