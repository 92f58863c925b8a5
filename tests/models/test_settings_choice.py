"""The choice of settings: what was given is never overridden, and an earlier model hands its choice on."""

import pytest

from deepmf.errors import BadModelFile
from deepmf.models.ordinal.ordinal_settings import OrdinalDMFSettings
from deepmf.models.settings_choice import settings_with_choice, settings_without_choice, stored_choice

SUITABLE = {"epochs": 7, "latent_size": 5}


def test_what_was_given_stays() -> None:
    settings, chosen = settings_with_choice(OrdinalDMFSettings(epochs=3), {"epochs"}, SUITABLE, None)
    assert chosen == {"latent_size": 5}
    assert settings == OrdinalDMFSettings(epochs=3, latent_size=5)


def test_an_earlier_model_hands_its_choice_on_but_for_the_loop_where_epochs_are_given() -> None:
    earlier = OrdinalDMFSettings(epochs=11, latent_size=9, patience=4)
    suitable = SUITABLE | {"patience": 2}
    of_nothing = settings_with_choice(OrdinalDMFSettings(), set(), suitable, earlier)
    assert of_nothing.chosen == {"epochs": 11, "latent_size": 9, "patience": 4}
    of_epochs = settings_with_choice(OrdinalDMFSettings(epochs=3), {"epochs"}, suitable, earlier)
    assert of_epochs.chosen == {"latent_size": 9, "patience": 2}


def test_settings_without_choice_are_those_that_no_fit_chooses_and_those_given() -> None:
    settings = OrdinalDMFSettings(latent_size=5, seed=3)
    assert "latent_size" not in settings_without_choice(settings, set())
    assert settings_without_choice(settings, {"latent_size"})["latent_size"] == 5
    assert settings_without_choice(settings, set())["seed"] == 3


@pytest.mark.parametrize("names", ["latent_size", ["sizes"], [["latent_size"]], None])
def test_a_stored_choice_names_settings(names: object) -> None:
    assert stored_choice(["latent_size"], OrdinalDMFSettings(latent_size=5)) == {"latent_size": 5}
    with pytest.raises(BadModelFile, match="the stored choice must name settings; got "):
        stored_choice(names, OrdinalDMFSettings())
