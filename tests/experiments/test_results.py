"""Records and trials: what a fit chose makes no difference, what the recipe gives does."""

from typing import Any

import pytest
from tests.models.contract import additive

from deepmf.experiments.recipe import Recipe
from deepmf.experiments.results import _differing
from deepmf.experiments.trial import Trial
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF


@pytest.mark.parametrize(
    ("changed", "differing"),
    [({}, ""), ({"views": 7}, ""), ({"mask_rate": 0.3}, "mask_rate"), ({"epochs": 3}, "epochs")],
    ids=str,
)
def test_settings_that_a_fit_chose_are_no_other_settings(changed: dict[str, Any], differing: str) -> None:
    given = {"hidden_sizes": [8], "epochs": 2, "linear_size": 0, "device": "cpu"}
    recipe = Recipe(name="some/dmf-o", title="some", model="dmf-o", data="some", protocol="published", settings=given)
    fitted = OrdinalDMF(seed=0, **given).settings_for(additive(12, 10)).to_dict()
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fitted.items()}
    record = {"settings": plain | changed, "data": "some", "protocol": "published", "joined": False, "refit": False}
    assert _differing(record, Trial(recipe, 0, 0.2)) == differing
