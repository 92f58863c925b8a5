"""The settings of models that read a whole row or column."""

import pytest

from deepmf.models.autoencoders.autoencoder_settings import (
    AutoencoderSettings,
    CFNADESettings,
    DeepAutoRecSettings,
    UAutoRecSettings,
    VectorSettings,
)
from deepmf.models.autoencoders.nade_network import NORMALISATIONS
from deepmf.training.declarations import rule_of


def test_sums_are_normalised_in_the_ways_there_are() -> None:
    assert rule_of(CFNADESettings, "normalise").to_dict() == {"choices": list(NORMALISATIONS)}


@pytest.mark.parametrize("settings", [VectorSettings, AutoencoderSettings, CFNADESettings, DeepAutoRecSettings])
def test_a_batch_may_be_everything(settings: type[VectorSettings]) -> None:
    assert settings(batch_size=None).batch_size is None
    assert settings(batch_size=1).batch_size == 1


def test_defaults_of_rows_are_their_own() -> None:
    settings = UAutoRecSettings()
    assert (settings.epochs, settings.inputs, settings.initial, settings.gamma) == (100, "centred", 0.3, 100.0)
    assert (settings.learning_rate, settings.decay, settings.precision) == (2e-3, 1.0, "single")


def test_the_decoder_mirrors_the_encoder() -> None:
    assert DeepAutoRecSettings(hidden_sizes=(5, 4, 3)).layer_sizes == (5, 4, 3, 4, 5)
    assert DeepAutoRecSettings(hidden_sizes=(5,)).layer_sizes == (5,)
