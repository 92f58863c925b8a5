"""The settings of OrdinalDMF."""

import pytest

from deepmf.errors import BadSetting
from deepmf.models.ordinal.ordinal_settings import OrdinalDMFSettings


@pytest.mark.parametrize("name", ["row_penalty", "column_penalty"])
def test_a_penalty_may_be_left_to_be_chosen(name: str) -> None:
    assert getattr(OrdinalDMFSettings(**{name: None}), name) is None
    for bad in (0.0, 1e13, True):
        with pytest.raises(BadSetting, match=f"^{name} must be a number at least 0.01 and at most 1e.12; got {bad}$"):
            OrdinalDMFSettings(**{name: bad})


def test_defaults_of_training_are_its_own() -> None:
    settings = OrdinalDMFSettings()
    assert (settings.epochs, settings.schedule, settings.learning_rate) == (300, "cosine", 2e-3)
    assert (settings.latent_size, settings.hidden_sizes) == (256, (1024,))
