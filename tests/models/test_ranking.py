"""Rankings: the n largest, largest first, ties by place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepmf.errors import BadSetting, UnknownLabel
from deepmf.matrix.labels import Labels
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
