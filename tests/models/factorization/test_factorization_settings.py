"""The settings of the methods of linear algebra."""

import pytest

from deepmf.errors import BadSetting
from deepmf.models.factorization.factorization_settings import (
    ALSSettings,
    ODMCSettings,
    OptSpaceSettings,
    RankKSettings,
    RDMCSettings,
)
from deepmf.training.settings import LoopSettings

ALL = [ALSSettings, ODMCSettings, OptSpaceSettings, RankKSettings, RDMCSettings]


@pytest.mark.parametrize("settings", ALL)
def test_the_rank_is_a_whole_number(settings: type[LoopSettings]) -> None:
    assert settings.from_names({"latent_size": 10**6}).to_dict()["latent_size"] == 10**6
    for bad in (0, 2.0, None, True):
        with pytest.raises(BadSetting, match=f"^latent_size must be a whole number of at least 1; got {bad}$"):
            settings.from_names({"latent_size": bad})


def test_a_device_is_no_setting() -> None:
    for settings in ALL:
        with pytest.raises(BadSetting, match="^there is no setting 'device'"):
            settings.from_names({"device": "cpu"})


def test_only_als_stops_early_by_default() -> None:  # with growing penalties the validation error rises and falls
    assert [settings().patience for settings in ALL] == [6, None, None, None, None]
