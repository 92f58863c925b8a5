"""The encoder of OrdinalDMF: trained latents are what it makes of the training entries, row by row."""

from typing import Any

import numpy as np
import pytest
import torch

from deepmf.data.synthetic.generator import generate
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.latents import Latents
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.models.ordinal.ordinal_encoder import OrdinalEncoder

SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 4,
    "epochs": 5,
    "views": 3,
    "landmarks": 6,
    "row_penalty": 3.0,
    "column_penalty": 20.0,
    "linear_size": 0,
    "dropout": 0.0,
    "device": "cpu",
}
MATRIX = generate(20, 15, density=0.5, seed=0).matrix


@pytest.fixture(scope="module")
def model() -> OrdinalDMF:
    return OrdinalDMF(**SMALL).fit(MATRIX)


def encoder_of(model: OrdinalDMF) -> OrdinalEncoder:
    encoder = model.predictor_.encoder
    assert isinstance(encoder, OrdinalEncoder)
    return encoder


def all_rows(model: OrdinalDMF) -> AxisEntries:
    return model.entries_.row_entries(np.arange(20))


def test_trained_rows_are_what_it_makes_of_their_entries(model: OrdinalDMF) -> None:
    encoder, predictor = encoder_of(model), model.predictor_
    rows = encoder.rows(all_rows(model), predictor.columns)
    np.testing.assert_allclose(rows, predictor.rows.base, atol=1e-5)
    columns = encoder.columns(model.entries_.column_entries(np.arange(15)), predictor.rows)
    np.testing.assert_allclose(columns, predictor.columns.base, atol=1e-5)
    assert rows.dtype == columns.dtype == np.float32


def test_latents_have_the_fields_of_the_layout(model: OrdinalDMF) -> None:
    encoder, layout = encoder_of(model), encoder_of(model).layout
    rows, columns = model.predictor_.rows.base, model.predictor_.columns.base
    assert layout.n_direction == 4 and layout.n_landmarks == len(model.landmarks_) and layout.n_response == 5
    assert rows.shape[1] == columns.shape[1] == encoder.refinement_columns.shape[1] == layout.width
    np.testing.assert_allclose(columns[:, layout.row_effect], 1)
    np.testing.assert_allclose(rows[:, layout.column_effect], 1)
    assert not columns[:, layout.response].any()
    assert np.all(np.diff(rows[:, layout.response][:, :-1]) > 0)  # cutpoints rise
    assert model.predictor_.n_beside == layout.n_beside


def test_rows_are_encoded_by_the_columns_of_the_refinement_and_columns_by_trained_rows(model: OrdinalDMF) -> None:
    encoder, predictor = encoder_of(model), model.predictor_
    others = Latents(np.full_like(predictor.columns.base, 7.0))
    np.testing.assert_array_equal(
        encoder.rows(all_rows(model), others), encoder.rows(all_rows(model), predictor.columns)
    )
    entries = model.entries_.column_entries(np.arange(15))
    changed = predictor.rows.changed(np.array([0]), np.full((1, predictor.rows.base.shape[1]), 7.0))
    np.testing.assert_array_equal(encoder.columns(entries, changed), encoder.columns(entries, predictor.rows))


def test_each_row_is_encoded_alone(model: OrdinalDMF) -> None:
    encoder, predictor, entries = encoder_of(model), model.predictor_, all_rows(model)
    together = encoder.rows(entries, predictor.columns)
    for row in (0, 7, 19):
        alone = encoder.rows(entries.take(np.array([row])), predictor.columns)
        np.testing.assert_allclose(alone[0], together[row], atol=1e-5)
    assert encoder.rows(entries.take(np.array([], dtype=int)), predictor.columns).shape == (0, together.shape[1])


def test_encoding_changes_and_draws_nothing(model: OrdinalDMF) -> None:
    before = torch.get_rng_state()
    weights = {name: tensor.clone() for name, tensor in model.network_.state_dict().items()}
    encoder_of(model).rows(all_rows(model), model.predictor_.columns)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.network_.state_dict().items())


def test_what_is_packed(model: OrdinalDMF) -> None:
    packed, encoder = encoder_of(model).pack(), encoder_of(model)
    assert packed.content == {"penalties": list(encoder.penalties), "linear": None}
    np.testing.assert_array_equal(packed.tensors["refinement.columns"], encoder.refinement_columns)
    np.testing.assert_array_equal(packed.tensors["refinement.landmarks"], model.landmarks_)
    network = {name for name in packed.tensors if name.startswith("network.")}
    assert network == {f"network.{name}" for name in model.network_.state_dict()}
    assert len(packed.tensors) == len(network) + 2


def test_values_enter_in_units_of_the_scale(model: OrdinalDMF) -> None:
    tenfold = ObservedMatrix.from_array(10 * MATRIX.to_array(), Scale([10, 20, 30, 40, 50]))
    other = OrdinalDMF(**SMALL).fit(tenfold)
    np.testing.assert_allclose(other.predictor_.rows.base, model.predictor_.rows.base, atol=1e-4)
