"""The settings of the shrunk means."""

from __future__ import annotations

from deepmf.training.declarations import settings_dataclass
from deepmf.training.setting_rules import number
from deepmf.training.settings import Settings

# How many entries of the overall mean (or frequencies) a row's and a column's own entries are mixed with.
SHRINKAGE = 5.0


@settings_dataclass
class MeansSettings(Settings):
    """The settings of the shrunk means."""

    shrinkage: float = number(
        SHRINKAGE,
        low=0.0,
        meaning="How many entries of the overall mean each row's and column's own entries are mixed with.",
    )
    feature_penalty: float = number(
        10.0,
        above=0.0,
        meaning="How strongly the weights of features are drawn to 0, where there are any: as by this many rows or "
        "columns that say so.",
    )
