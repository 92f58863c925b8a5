"""DMF: the contract, and the paper's formula."""

import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.models.contract import ModelContract, additive

from deepmf.data.splits import split_entries
from deepmf.data.synthetic.generator import checkerboard
from deepmf.errors import BadEntries, BadSetting, DeviceUnavailable, TrainingDiverged, TrainingInterrupted, UnknownLabel
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.dmf.dmf import DMF
from deepmf.training.history import EpochRecord, History

QUICK: dict[str, Any] = {
    "hidden_sizes": (32,),
    "latent_size": 16,
    "dropout": 0.1,
    "epochs": 80,
    "block_rows": 15,
    "block_columns": 12,
    "device": "cpu",
}


class TestDMF(ModelContract):
    model = DMF
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.12

    def test_a_checkerboard(self) -> None:
        board = checkerboard(24, 20, observed=0.6, seed=0)
        model = DMF(**QUICK | {"dropout": 0.0}).fit(board.matrix)
        rows, columns = np.divmod(np.arange(24 * 20), 20)
        np.testing.assert_array_equal(model.predict_levels(rows, columns), board.truth.expected(rows, columns))

    def test_predictions_are_cosines_of_the_branches(self) -> None:
        matrix = additive()
        model = DMF(**QUICK).fit(matrix)
        dense = np.nan_to_num(matrix.scale.to_unit(matrix.to_array()))
        with torch.no_grad():
            rows = model.network_.rows(torch.tensor(dense, dtype=torch.float32)).double()
            columns = model.network_.columns(torch.tensor(dense.T, dtype=torch.float32)).double()
        cosines = (rows @ columns.T) / (rows.norm(dim=1)[:, None] * columns.norm(dim=1))
        expected = 3 + 2 * cosines.numpy()
        missing = np.isnan(matrix.to_array())
        np.testing.assert_allclose(model.complete()[missing], expected[missing], atol=1e-4)

    def test_raw_inputs_are_the_values_themselves(self) -> None:
        matrix = additive()
        model = DMF(**QUICK | {"inputs": "raw"}).fit(matrix)
        raw = torch.tensor(np.nan_to_num(matrix.to_array()), dtype=torch.float32)
        with torch.no_grad():
            expected = torch.nn.functional.normalize(model.network_.rows(raw), dim=1)
        np.testing.assert_allclose(model.predictor_.rows.whole(), expected.numpy(), atol=1e-5)

    @pytest.mark.parametrize(
        "changes",
        [
            {"hidden_sizes": ()},
            {"hidden_sizes": (24, 16), "column_hidden_sizes": (20,)},
            {"loss": "mean", "gamma": 1e-5},
            {"summary_filters": 3},
        ],
        ids=str,
    )
    def test_other_settings_learn_too(self, changes: dict[str, Any], tmp_path: Path) -> None:
        split = split_entries(additive(), train=0.8, validation=0.1, test=0.1, seed=0)
        model = DMF(**QUICK | changes).fit(split.train, split.validation)
        rows, columns, values = split.test.entries()
        assert rmse_error(model.predict(rows, columns), values) < 0.8
        new = ObservedMatrix.from_entries(["n"] * 3, ["column 1", "column 2", "column 3"], [1, 2, 3], split.train.scale)
        assert np.isfinite(model.extend(new).predict(["n"], ["column 5"]))[0]

    def test_gamma_holds_the_weights_down(self) -> None:
        sizes = [
            float(DMF(**QUICK | {"gamma": gamma}).fit(additive()).network_.squared_weights().detach())
            for gamma in (0.0, 1e-2)
        ]
        assert sizes[1] < 0.5 * sizes[0]

    def test_best_epoch_is_kept(self) -> None:
        split = split_entries(additive(), train=0.6, validation=0.4, test=0, seed=0)
        model = DMF(**QUICK | {"validate_every": 1, "epochs": 40}).fit(split.train, split.validation)
        rows, columns, values = split.validation.entries()
        assert rmse_error(model.predict(rows, columns), values) == pytest.approx(model.history_.best_error, rel=1e-5)
        errors = [record.validation_error for record in model.history_.records]
        assert model.history_.best_error == min(errors)  # type: ignore[type-var]

    def test_similar_columns(self) -> None:
        board = checkerboard(24, 20, observed=0.8, seed=0)
        model = DMF(**QUICK).fit(board.matrix)
        labels, values = model.similar_columns(4, n=3)
        assert all(label % 2 == 0 for label in labels) and 4 not in labels
        assert np.all(np.diff(values) <= 0) and np.all(values > 0.5)
        assert all(label % 2 == 1 for label in model.similar_rows(5, n=3).labels)
        assert model.similar_rows(5, n=100).labels.size == 23

    def test_ctrl_c_leaves_a_usable_model(self) -> None:
        def interrupt(record: EpochRecord, _: History) -> None:
            if record.epoch == 10:
                raise KeyboardInterrupt

        model = DMF(**QUICK)
        with pytest.warns(TrainingInterrupted, match="interrupted in epoch 11"):
            model.fit(additive(), callbacks=[interrupt])
        assert model.history_.stopped == "interrupted"
        assert np.all(np.isfinite(model.complete()))

    def test_divergence_keeps_the_last_good_weights(self) -> None:
        def spoil(record: EpochRecord, _: History) -> None:
            if record.epoch == 12:
                model._spoil = True  # type: ignore[attr-defined]

        class Spoiled(DMF):
            _spoil = False

            def _objective(self, *arguments: Any) -> Any:
                objective = super()._objective(*arguments)
                plain = objective.error
                objective.error = lambda *block: plain(*block) * (float("nan") if self._spoil else 1.0)  # type: ignore[method-assign]
                return objective

        model = Spoiled(**QUICK)
        with pytest.raises(TrainingDiverged, match="the loss of epoch 13, or its validation error, is not .* epoch 9"):
            model.fit(additive(), callbacks=[spoil])
        assert np.all(np.isfinite(model.complete()))
        hopeless = Spoiled(**QUICK)
        hopeless._spoil = True
        with pytest.raises(TrainingDiverged, match="the loss of epoch 0, or its"):
            hopeless.fit(additive())

    def test_too_small_to_learn(self) -> None:
        for array in ([[1, 2, 3]], [[1], [2]], [[1, np.nan], [np.nan, np.nan]]):
            with pytest.warns() if np.isnan(array).sum() == 3 else _nothing():
                matrix = ObservedMatrix.from_array(array)
            with pytest.raises(BadEntries, match="at least two rows and two columns with entries; got"):
                DMF(**QUICK).fit(matrix)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
    def test_a_gpu_that_is_not_there(self) -> None:
        with pytest.raises(DeviceUnavailable, match="torch sees no GPU here; device='cpu' would work"):
            DMF(**QUICK | {"device": "cuda"}).fit(additive())

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"hidden_sizes": (0,)}, r"hidden_sizes must be whole numbers of at least 1.*got \(0,\)"),
            ({"column_hidden_sizes": "big"}, "column_hidden_sizes must be whole numbers"),
            ({"latent_size": 0}, "latent_size must be a whole number of at least 1; got 0"),
            ({"dropout": 1.0}, "dropout must be a number at least 0 and at most 0.99; got 1.0"),
            ({"inputs": "scale"}, "inputs must be 'scaled' or 'raw'; got 'scale'"),
            ({"loss": "l1"}, "loss must be 'root' or 'mean'"),
            ({"device": "gpu"}, "device must be 'auto' or 'cpu' or 'cuda'; got 'gpu'"),
            ({"epochs": 0}, "epochs must be a whole number of at least 1; got 0"),
            ({"learning_rate": 0}, "learning_rate must be a number above 0; got 0"),
            ({"epoch": 3}, "there is no setting 'epoch'; did you mean 'epochs'"),
        ],
    )
    def test_bad_network_settings(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(BadSetting, match=message):
            DMF(**QUICK | changes)

    @pytest.mark.slow
    def test_a_million_pairs_and_many_columns(self) -> None:
        matrix = ObservedMatrix.from_entries(
            [0, 0, 1, 1, 2], [5, 7, 5, 999_999, 7], [1, 2, 3, 4, 5], column_labels=range(1_000_000)
        )
        model = DMF(**QUICK | {"hidden_sizes": (4,), "latent_size": 4, "epochs": 2}).fit(matrix)
        start = time.perf_counter()
        assert model.predict(np.arange(1_000_000) % 3, np.arange(1_000_000)).shape == (1_000_000,)
        assert model.recommend(1, n=3).labels.size == 3
        assert time.perf_counter() - start < 30

    def test_global_generators_are_never_touched(self) -> None:
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        DMF(**QUICK | {"epochs": 2, "dropout": 0.5}).fit(additive())
        assert torch.equal(torch.get_rng_state(), before[0])
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002

    def test_unknown_row_in_recommend(self) -> None:
        model = DMF(**QUICK | {"epochs": 2}).fit(additive())
        with pytest.raises(UnknownLabel, match="row 'nobody' is not known"):
            model.recommend("nobody")


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()
