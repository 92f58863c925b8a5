"""The settings of the methods of linear algebra: ALS, OptSpace, RankK, RDMC and ODMC."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from deepmf.training.declarations import settings_dataclass
from deepmf.training.setting_rules import WIDEST, number, whole
from deepmf.training.settings import LoopSettings


@settings_dataclass
class ALSSettings(LoopSettings):
    """The settings of ALS; the defaults were chosen on validation entries of MovieLens-1M.

    The best `penalty` times the width of the scale is 1 to 2 standard deviations of the noise: on MovieLens-1M, and on
    generated matrices of many shapes. So it is chosen by the noise where the width says nothing of it.

    A `count_power` of 1 is that of Zhou et al., "Large-scale parallel collaborative filtering for the Netflix prize",
    2008. Most often the validation error rises after a few sweeps, and six that do not lower it end the fit. Of the 50
    fits of recipes, which make all sweeps, none has a lower error later; after two sweeps 8 of them had.
    """

    chosen_at_fit: ClassVar[Collection[str]] = ("penalty",)

    epochs: int = whole(15, low=1, meaning="Sweeps, each of which solves for all rows and then for all columns.")
    patience: int | None = 6
    latent_size: int = whole(
        40,
        low=1,
        high=WIDEST,
        meaning="How many latents a row or column has beside its effect; cut to the smaller side of the matrix.",
    )
    penalty: float = number(
        0.3,
        above=0.0,
        meaning="The weight of squared latents, times the width of the scale. 0.3 on levels; on a scale without them, "
        "whose ends are outliers as a rule, one that is not given is chosen when the model is fitted: the one that "
        "predicts held-out entries best.",
    )
    count_power: float = number(
        0.5,
        low=0.0,
        high=1.0,
        meaning="The penalty is also times the number of entries of the row or column to this power (0: it is "
        "constant).",
    )
    effect_penalty: float = number(3.0, low=0.0, meaning="The weight of squared row and column effects.")
    feature_penalty: float = number(
        10.0,
        above=0.0,
        meaning="How strongly the weights of features are drawn to 0, where there are any: as by this many rows or "
        "columns that say so.",
    )


@settings_dataclass
class OptSpaceSettings(LoopSettings):
    """The settings of OptSpace; `latent_size` was chosen on validation entries of MovieLens-1M."""

    epochs: int = whole(50, low=1, meaning="Steps of the descent; the authors make 50.")
    latent_size: int = whole(12, low=1, high=WIDEST, meaning="The rank r, cut to the smaller side of the matrix.")
    trimming: float = number(
        2.0,
        low=1.0,
        meaning="For the start, rows and columns with more than this many times the mean number of entries are left "
        "out.",
    )


@settings_dataclass
class RankKSettings(LoopSettings):
    """The settings of RankK; the defaults were chosen on validation entries of MovieLens-1M.

    Of several that do as well there (to 0.005), they are those that also see through gross errors. Errors beyond
    1 / mu count as gross: with a small `penalty` the first sweeps are least squares, from which few find back. As mu
    grows, X moves less and less: a slow growth needs more sweeps and ends with less error; one of 1.05 and more needs
    a smaller `penalty` to begin with.
    """

    epochs: int = 300
    latent_size: int = whole(5, low=1, high=WIDEST, meaning="The rank k, cut to the smaller side of the matrix.")
    penalty: float = number(
        1.0,
        above=0.0,
        meaning="The penalty mu in the first sweep, in units of 1 / (mean absolute deviation of the entries from "
        "their mean).",
    )
    penalty_growth: float = number(1.01, low=1.0, meaning="What mu is multiplied by from sweep to sweep.")


@settings_dataclass
class RDMCSettings(LoopSettings):
    """The settings of RDMC; the defaults were chosen on validation entries of MovieLens-1M.

    Both penalties are in units of 1 / (mean absolute deviation of the entries from their mean). The paper's hard
    constraint is an infinite nu; ours starts weak and overtakes mu after some 100 sweeps. On MovieLens-1M levels do
    not help: a `level_penalty` of 0 is as good, and more `epochs` or a larger nu are worse.
    """

    epochs: int = 70
    latent_size: int = whole(
        10, low=1, high=WIDEST, meaning="The largest rank of Z, cut to the smaller side of the matrix."
    )
    gamma: float = number(
        0.4,
        low=0.0,
        meaning="The weight of the nuclear norm, in units of the spectral norm that random signs in place of the "
        "observed entries have: the root of the mean number of entries of a row plus that of a column.",
    )
    penalty: float = number(0.3, above=0.0, meaning="The penalty mu in the first sweep.")
    penalty_growth: float = number(1.03, low=1.0, meaning="What mu is multiplied by from sweep to sweep.")
    level_penalty: float = number(
        3e-4, low=0.0, meaning="The penalty nu in the first sweep, which draws X to the levels."
    )
    level_penalty_growth: float = number(1.1, low=1.0, meaning="What nu is multiplied by from sweep to sweep.")


@settings_dataclass
class ODMCSettings(LoopSettings):
    """The settings of ODMC; the defaults were chosen on validation entries of MovieLens-1M.

    With a `margin` of 0, as in the paper, scores gather at the boundaries, and on two levels one score for all
    entries, the boundary, is free of loss: 0.25 serves these better, and takes validation errors on MovieLens-1M from
    .915 / .649 to .910 / .637.
    """

    epochs: int = 30
    latent_size: int = whole(20, low=1, high=WIDEST, meaning="The rank, not counting row and column effects.")
    gamma: float = number(8.0, low=0.0, meaning="The weight of the penalty on latents and effects.")
    alpha: float = number(
        1.0,
        low=0.0,
        meaning="The weight, for each entry, of the penalty that holds the boundaries near the middle between two "
        "levels.",
    )
    margin: float = number(
        0.0,
        low=0.0,
        high=0.5,
        meaning="By which share of the gap between two levels a score must stay clear of a boundary.",
    )
    learning_rate: float = number(0.006, above=0.0, meaning="The step size of stochastic gradients in the first sweep.")
    decay: float = number(0.9, above=0.0, high=1.0, meaning="What the step size is multiplied by after every sweep.")
    momentum: float = number(0.9, low=0.0, high=0.99, meaning="The share of the last step that is made again.")
