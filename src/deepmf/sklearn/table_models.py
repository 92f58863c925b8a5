"""The models of an imputer: which there are to choose from for a table, and their settings for tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepmf.errors import BadSetting, CannotExtend, nearest_name
from deepmf.models.base import Model
from deepmf.models.registry import HOMES, model_class, settings_class
from deepmf.sklearn.candidates import MODELS, WHOLE_ROWS, left_out, suitable
from deepmf.training.settings import declared

AUTO = "auto"

# The models' own defaults are for a million ratings; these are for tables of some thousand rows and some ten columns,
# chosen on masked entries of generated and of public tables.
_BRANCHES = {
    "hidden_sizes": (256,),
    "latent_size": 64,
    "dropout": 0.8,
    "epochs": 100,
    "learning_rate": 0.03,
    "averaging": 0.99,
}
_ORDINAL = {
    "hidden_sizes": (128,),
    "latent_size": 32,
    "dropout": 0.3,
    "epochs": 100,
    "learning_rate": 0.01,
    "mask_rate": 0.3,
}
TABLE_SETTINGS: dict[str, dict[str, Any]] = {
    "dmf": _BRANCHES,
    "dmf-d": _BRANCHES,
    "dmf-o": _ORDINAL,
    "als": {"penalty": 0.05},
}


@dataclass(frozen=True)
class TableModels:
    """What an imputer was asked to complete by.

    asked: the name of a model, or "auto".
    given: the settings of models that were given.
    own_units: whether every column has units of its own. has_features: whether some columns describe the rows.
    """

    asked: str
    given: Mapping[str, Any]
    own_units: bool
    has_features: bool
    seed: int

    def check(self) -> None:
        """Refuse a model that is none, and settings that none of the candidates can be made with."""
        if self.asked in WHOLE_ROWS:
            if self.given:
                raise BadSetting(f"model={self.asked!r} has no settings; got {min(self.given)}")
            if not self.own_units or self.has_features:
                raise BadSetting(f"model={self.asked!r} is for scale='columns' without feature_columns")
        elif self.asked not in (AUTO, *HOMES):
            raise BadSetting(f"there is no model {self.asked!r}; {nearest_name(self.asked, (*WHOLE_ROWS, *HOMES))}")
        elif self.asked != AUTO:
            self.new(self.asked)
        else:
            known = sorted({setting.name for name in MODELS for setting in declared(settings_class(name))})
            for name in self.given:
                if name not in known:
                    raise BadSetting(f"none of {', '.join(MODELS)} has a setting {name!r}; {nearest_name(name, known)}")
            for name in MODELS:
                self.new(name)

    def candidates(self, shape: tuple[int, int]) -> tuple[str, ...]:
        """Return the names of what there is to choose from for a table of this shape."""
        if self.asked != AUTO:
            return (self.asked,)
        return (suitable(shape) if self._may_blend else ()) or MODELS

    def left_out(self, shape: tuple[int, int]) -> dict[str, str]:
        """Return what there would be to choose from for a table of another shape, and why there is not."""
        return left_out(shape) if self.asked == AUTO and self._may_blend else {}

    @property
    def _may_blend(self) -> bool:
        """Whether what completes whole rows may: it has no settings, and reads standardised columns alone."""
        return self.own_units and not self.has_features and not self.given

    def new(self, name: str) -> Model:
        """Return a model that is not fitted yet, with the settings of tables and those that were given."""
        found = model_class(name)
        if "II" not in found.predicts:
            able = ", ".join(each for each in HOMES if "II" in model_class(each).predicts)
            raise CannotExtend(f"{name!r} cannot complete new rows: {found.cannot}; those that can are {able}")
        given = dict(self.given)
        if self.asked == AUTO:
            own = {setting.name for setting in declared(found.settings_class)}
            given = {setting: value for setting, value in given.items() if setting in own}
        return found(**(TABLE_SETTINGS.get(name, {}) | given | {"seed": self.seed}))
