"""The settings of DMF and DMF-D."""

from __future__ import annotations

from deepmf.models.two_branch_settings import TwoBranchSettings
from deepmf.training.declarations import settings_dataclass
from deepmf.training.setting_rules import WIDEST, choice, number, whole


@settings_dataclass
class DMFSettings(TwoBranchSettings):
    """The settings of DMF; the defaults are the paper's and its code's on MovieLens-1M."""

    epochs: int = 1000
    gamma: float = number(0.0, low=0.0, meaning="The weight of the L2 penalty in equation 1.")
    loss: str = choice(
        "root",
        of=("root", "mean"),
        meaning='A block\'s mean squared error ("mean", equation 1) or its root ("root", as in the authors\' code).',
    )
    inputs: str = choice(
        "scaled",
        of=("scaled", "raw"),
        meaning='How values enter a branch: "scaled" to [-1, 1] (the paper\'s footnote 1) or "raw", as they are; what '
        "is missing is 0.",
    )
    summary_filters: int = whole(
        0,
        low=0,
        high=WIDEST,
        meaning="Filters of a convolution before each branch, for wide vectors (0: none; the authors' code has 32).",
    )


@settings_dataclass
class DMFDSettings(DMFSettings):
    """The settings of DMF-D: those of DMF, and those of the quantizer."""

    sharpness: float = number(0.1, above=0.0, meaning="The sharpness lambda of equation 4 in the first epoch.")
    sharpness_growth: float = number(1.015, low=1.0, meaning="What the sharpness is multiplied by from epoch to epoch.")
    gamma_boundaries: float = number(
        0.1,
        low=0.0,
        meaning="The weight gamma_2 of equation 5, which holds the boundaries near the uniform quantizer's.",
    )
