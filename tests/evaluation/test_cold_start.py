"""The cold-start curve: rows are grouped by the entries that describe them."""

import numpy as np
import pytest

from deepmf.evaluation.cold_start import cold_start
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
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
