"""DMF-D: the contract, and its learned quantizer."""

from typing import Any, ClassVar

import numpy as np
import pytest
from tests.models.contract import ModelContract, additive
from tests.models.dmf.test_dmf import QUICK

from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmf.dmfd import DMFD


class TestDMFD(ModelContract):
    permutation_error = 0.2
    model = DMFD
    settings: ClassVar[dict[str, Any]] = QUICK | {"sharpness": 1.0, "sharpness_growth": 1.05}
    recovery_error = 0.6

    def test_predictions_are_levels_by_the_learned_boundaries(self) -> None:
        matrix = additive()
        model = self.new().fit(matrix)
        rows, columns, _ = matrix.entries()
        assert isinstance(model, DMFD)
        scores = matrix.scale.from_unit(model.predictor_.score_pairs(matrix.entry_rows, matrix.by_row.columns))
        by_hand = 1 + (scores[:, None] >= model.boundaries_.astype(np.float32)).sum(axis=1)
        np.testing.assert_array_equal(model.predict(rows, columns), by_hand)
        np.testing.assert_array_equal(model.predict_levels(rows, columns), by_hand)

    def test_boundaries_move_and_are_recorded(self) -> None:
        model = self.new().fit(additive())
        assert isinstance(model, DMFD)
        assert model.boundaries_.shape == (4,)
        assert np.all(np.diff(model.boundaries_) > 0)
        assert not np.allclose(model.boundaries_, [1.5, 2.5, 3.5, 4.5], atol=1e-4)
        notes = [record.notes for record in model.history_.records]
        assert notes[0]["sharpness"] == pytest.approx(1.0)
        assert notes[10]["sharpness"] == pytest.approx(1.05**10, rel=1e-5)
        assert len(notes[-1]["boundaries"]) == 4

    def test_a_heavy_penalty_keeps_the_quantizer_uniform(self) -> None:
        model = self.new(gamma_boundaries=1e4).fit(additive())
        assert isinstance(model, DMFD)
        np.testing.assert_allclose(model.boundaries_, [1.5, 2.5, 3.5, 4.5], atol=0.02)

    def test_unequal_levels(self) -> None:
        matrix = additive()
        odd = ObservedMatrix.from_array(
            np.array([np.nan, -3, 0, 1, 7, 20])[np.nan_to_num(matrix.to_array()).astype(int)], Scale([-3, 0, 1, 7, 20])
        )
        model = self.new().fit(odd)
        assert set(np.unique(model.complete())) <= {-3, 0, 1, 7, 20}

    def test_rankings_go_by_scores(self) -> None:
        model = self.new().fit(additive())
        ranking = model.recommend("row 0", n=25, include_observed=True)
        scores = model.predictor_.score_block(np.array([0]), model.entries_.columns.positions(ranking.labels))[0]
        assert np.all(np.diff(scores) <= 0)
        assert np.unique(ranking.values).size < np.unique(scores).size

    def test_needs_levels(self) -> None:
        matrix = ObservedMatrix.from_array(np.random.default_rng(0).random((12, 12)))
        with pytest.raises(BadSetting, match="DMF-D needs a scale of at least two levels"):
            self.new().fit(matrix)

    @pytest.mark.parametrize("changes", [{"sharpness": 0}, {"sharpness_growth": 0.9}, {"gamma_boundaries": -1}])
    def test_bad_quantizer_settings(self, changes: dict[str, Any]) -> None:
        with pytest.raises(BadSetting, match=next(iter(changes))):
            self.new(**changes)
