"""Encoders of one axis: latents are what the last layer reads and a constant, and the other axis is refused."""

from typing import Any

import numpy as np
import pytest
from tests.models.contract import additive

from deepmf.errors import BadSetting, CannotExtend
from deepmf.matrix.entry_store import EntryStore
from deepmf.models.autoencoders.autoencoder_settings import VectorSettings
from deepmf.models.autoencoders.autorec import IAutoRec, UAutoRec
from deepmf.models.autoencoders.cfnade import ICFNADE, UCFNADE
from deepmf.models.autoencoders.deep_autorec import DeepUAutoRec
from deepmf.models.autoencoders.vector_encoder import CANNOT, PREDICTS, all_hidden, n_outputs
from deepmf.models.network_model import NetworkModel
from deepmf.training.vector_blocks import AxisName

SMALL: dict[str, Any] = {"hidden_size": 3, "epochs": 2, "device": "cpu"}
MODELS: dict[str, tuple[NetworkModel, AxisName]] = {
    "i-autorec": (IAutoRec(**SMALL), "column"),
    "u-autorec": (UAutoRec(**SMALL), "row"),
    "deep-u-autorec": (DeepUAutoRec(hidden_sizes=(3,), epochs=2, device="cpu"), "row"),
    "i-cf-nade": (ICFNADE(**SMALL), "column"),
    "u-cf-nade": (UCFNADE(**SMALL), "row"),
}


@pytest.mark.parametrize("model, axis", MODELS.values(), ids=MODELS.keys())
def test_latents_of_what_is_read_and_of_what_is_not(model: NetworkModel, axis: AxisName) -> None:
    fitted = type(model)(**model.settings.to_dict()).fit(additive())
    predictor, entries = fitted.predictor_, fitted.entries_
    encoder, rows, columns = (
        predictor.encoder,
        entries.row_entries(np.arange(30)),
        entries.column_entries(np.arange(25)),
    )
    assert (fitted.predicts, fitted.cannot) == (PREDICTS[axis], CANNOT[axis])
    if axis == "row":
        latents, read = encoder.rows(rows, predictor.columns), predictor.rows
    else:
        latents, read = encoder.columns(columns, predictor.rows), predictor.columns
    assert latents.shape[1] == 4 and np.all(latents[:, -1] == 1.0)
    np.testing.assert_allclose(latents, read.whole(), atol=1e-5)
    with pytest.raises(CannotExtend, match="cannot be encoded: it has one output for each"):
        encoder.columns(columns, predictor.rows) if axis == "row" else encoder.rows(rows, predictor.columns)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_vectors_pass_some_at_a_time(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer: Any = UAutoRec(**SMALL)._task(EntryStore.of(additive()), None)
    expected = all_hidden(trainer.network, trainer.source.vectors).detach()
    monkeypatch.setattr("deepmf.models.autoencoders.vector_encoder._VECTORS_AT_A_TIME", size)
    found = all_hidden(trainer.network, trainer.source.vectors).detach()
    assert found.shape == (30, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_there_is_an_output_for_each_position_on_the_other_axis() -> None:
    assert (n_outputs(additive(), "row"), n_outputs(additive(), "column")) == (25, 30)


def test_batch_sizes() -> None:
    assert VectorSettings().batch_size is None and VectorSettings(batch_size=1).batch_size == 1
    for bad in (0, 2.0, True):
        with pytest.raises(BadSetting, match=f"^batch_size must be a whole number of at least 1; got {bad!r}$"):
            VectorSettings(batch_size=bad)  # type: ignore[arg-type]
