"""The confusion of levels, on a model whose answers are known."""

import numpy as np
import pytest

from deepmf.errors import BadSetting
from deepmf.evaluation.confusion import confusion
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.means import Means

STARS = Scale([1, 2, 3, 4, 5])


def test_rows_are_true_levels_and_columns_predicted_ones() -> None:
    train = ObservedMatrix.from_array([[2, 2, np.nan], [2, 2, 2]], STARS)
    test = ObservedMatrix.from_entries([0, 1, 1], [2, 0, 1], [5, 2, 1], STARS)
    counts = confusion(Means(shrinkage=0).fit(train), test)  # answers 2 everywhere
    expected = np.zeros((5, 5), dtype=int)
    expected[4, 1] = expected[1, 1] = expected[0, 1] = 1
    np.testing.assert_array_equal(counts, expected)


def test_a_scale_without_levels() -> None:
    matrix = ObservedMatrix.from_array([[0.5, 0.25], [0.1, 0.2]], Scale(low=0, high=1))
    with pytest.raises(BadSetting, match="the scale 0 to 1 has no levels to confuse"):
        confusion(Means().fit(matrix), matrix)
