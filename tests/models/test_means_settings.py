"""The settings of the shrunk means."""

import pytest

from deepmf.errors import BadSetting
from deepmf.models.means_settings import SHRINKAGE, MeansSettings


def test_the_default_is_what_unknown_ids_fall_back_to() -> None:
    assert MeansSettings().shrinkage == SHRINKAGE


def test_shrinkage_is_not_negative() -> None:
    with pytest.raises(BadSetting, match="^shrinkage must be a number at least 0; got -1$"):
        MeansSettings(shrinkage=-1)
