"""Neighbours: weighted means over rows that are alike."""

import numpy as np
import pytest

from deepmf.sklearn import neighbours
from deepmf.sklearn.neighbours import WIDTH, Neighbours

NAN = np.nan


def test_weights_fall_with_the_distance_over_common_cells() -> None:
    table = np.array([[0.0, 0.0, 1.0], [1.0, NAN, 3.0], [0.0, 2.0, NAN]])
    # The new row shares two cells with the first row, one with the second; the third has nothing to say.
    squares = np.array([(0.25 + 0.0) / 2, 0.25]) * 3
    weights = np.exp(-squares / (2 * WIDTH**2))
    expected = weights @ [1.0, 3.0] / weights.sum()
    completed = Neighbours.fitted(table).completed(np.array([[0.5, 0.0, NAN]]))
    np.testing.assert_allclose(completed, [[0.5, 0.0, expected]], rtol=1e-6)


def test_a_row_like_no_other_gets_the_means() -> None:
    known = Neighbours.fitted(np.array([[1.0, 1.0, NAN], [1.0, -1.0, NAN], [NAN, NAN, 2.0]]))
    np.testing.assert_allclose(known.completed(np.array([[NAN, NAN, 5.0], [NAN, NAN, NAN]])), [[0, 0, 5], [0, 0, 0]])
    far = known.completed(np.array([[30.0, NAN, NAN]]))
    np.testing.assert_allclose(far, [[30.0, 0.0, 0.0]], atol=1e-6)


def test_rows_some_at_a_time_and_some_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    table = np.where(random.random((30, 4)) < 0.3, NAN, random.normal(size=(30, 4)))
    whole = Neighbours.fitted(table).completed(table)
    np.testing.assert_array_equal(whole[~np.isnan(table)], table[~np.isnan(table)])
    monkeypatch.setattr(neighbours, "_ROWS_AT_A_TIME", 7)
    np.testing.assert_allclose(Neighbours.fitted(table).completed(table), whole, rtol=1e-9)
    monkeypatch.setattr(neighbours, "_MOST_ROWS", 10)
    assert len(Neighbours.fitted(table, seed=1).table) == 10
