"""Shrunk means: the contract, and the formula."""

import numpy as np
import pytest
from tests.models.contract import ModelContract, additive

from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.means import Means


class TestMeans(ModelContract):
    model = Means
    recovery_error = 0.5

    def test_the_formula(self) -> None:
        matrix = additive()
        model = Means(shrinkage=3.0).fit(matrix)
        dense = matrix.to_array()
        mean = np.nanmean(dense)
        counts = (~np.isnan(dense)).sum(axis=0)
        column_effects = np.nansum(dense - mean, axis=0) / (counts + 3)
        left = dense - mean - column_effects
        row_effects = np.nansum(left, axis=1) / ((~np.isnan(dense)).sum(axis=1) + 3)
        expected = np.clip(mean + row_effects[:, None] + column_effects, 1, 5)
        missing = np.isnan(dense)
        np.testing.assert_allclose(model.complete()[missing], expected[missing])

    def test_one_entry_is_enough(self) -> None:
        matrix = ObservedMatrix.from_array([[2, np.nan], [np.nan, 4]])
        assert np.all(np.isfinite(Means().fit(matrix).complete()))

    def test_it_has_no_latents(self) -> None:
        model = Means().fit(additive())
        for ask in (model.similar_rows, model.similar_columns):
            with pytest.raises(
                BadSetting, match="this model has no latents, so neither rows nor columns can be compared"
            ):
                ask("row 1")
