"""The registry: every model by its name."""

import pytest

from deepmf.errors import BadSetting
from deepmf.matrix.areas import AREAS
from deepmf.models.registry import HOMES, class_named, model_class


@pytest.mark.parametrize("name", HOMES)
def test_every_name_is_a_model_with_settings_that_work(name: str) -> None:
    found = model_class(name)
    assert found.__name__ == HOMES[name][1]
    assert class_named(found.__name__) is found
    assert found().settings.to_dict()["seed"] == 0
    assert found.predicts[0] == "I" and set(found.predicts) <= set(AREAS)
    assert bool(found.cannot) == (found.predicts != AREAS)
    assert ">>>" in (found.__doc__ or "")


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(BadSetting, match="there is no model 'DFM'; did you mean 'dmf'?"):
        model_class("DFM")
    assert class_named("Nothing") is None
