"""The settings of OrdinalDMF."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from deepmf.models.ordinal.ordinal_choice import EFFORTS, Facts, chosen_settings
from deepmf.models.two_branch_settings import TwoBranchSettings
from deepmf.training.declarations import settings_dataclass
from deepmf.training.setting_rules import WIDEST, choice, number, whole


@settings_dataclass
class OrdinalDMFSettings(TwoBranchSettings):
    """The settings of OrdinalDMF."""

    chosen_at_fit: ClassVar[Collection[str]] = tuple(chosen_settings(Facts(2, 2, 4, on_gpu=False), EFFORTS[0]))

    effort: str = choice(
        "normal",
        of=EFFORTS,
        meaning="How much time to spend for accuracy: sizes, schedule, blocks, dropout, views and landmarks that are "
        "not given are chosen by it, for the matrix and the machine, when the model is fitted.",
    )
    epochs: int = 300
    validate_every: int = 20
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    hidden_sizes: tuple[int, ...] = (1024,)
    latent_size: int = 256
    dropout: float = 0.7
    networks: int = whole(
        1,
        low=1,
        high=256,
        meaning="How many networks are trained side by side, each by a loss of its own; scores are means over them.",
    )
    mask_rate: float = number(
        0.6,
        above=0.0,
        high=0.95,
        meaning="The share of all entries that each step masks from both branches, and predicts.",
    )
    cold_row_rate: float = number(
        0.0625,
        low=0.0,
        high=1.0,
        meaning="The share of rows of which a step masks more, up to everything, to train for rows of few entries.",
    )
    cold_column_rate: float = number(
        0.125,
        low=0.0,
        high=1.0,
        meaning="The share of columns of which a step masks more, up to everything.",
    )
    views: int = whole(
        16,
        low=1,
        high=WIDEST,
        meaning="How many masked views of a row or column are averaged to its latent; more are better and slower "
        "(1: one view of all entries).",
    )
    row_penalty: float | None = number(
        None,
        low=0.01,
        high=1e12,
        optional=True,
        meaning="The ridge penalty of the refinement of row latents by their own entries (none: chosen on "
        "held-out entries, down to no refinement at all).",
    )
    column_penalty: float | None = number(
        None,
        low=0.01,
        high=1e12,
        optional=True,
        meaning="The ridge penalty of the refinement of column latents by their own entries (none: likewise).",
    )
    landmarks: int = whole(
        256,
        low=1,
        high=WIDEST,
        meaning="By how many columns all others are known in the refinement of rows; more are better up to some "
        "hundreds.",
    )
    linear_size: int | None = whole(
        None,
        low=0,
        high=WIDEST,
        optional=True,
        meaning="How many latents ALS gives to the linear part, which joins the network where held-out entries say "
        "that it helps (0: there is none; none: as many as rows and columns have entries, 24 to 40).",
    )
    bins: int = whole(
        32,
        low=2,
        high=1 << 16,
        meaning="In how many bins the values of a scale without levels are cut: of equal frequency, and from 16 bins "
        "on ever rarer ones towards both ends.",
    )
