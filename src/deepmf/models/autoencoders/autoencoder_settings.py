"""The settings of models that read a whole row or column: AutoRec, Deep U-AutoRec and CF-NADE."""

from __future__ import annotations

from deepmf.training.declarations import settings_dataclass
from deepmf.training.setting_rules import WIDEST, choice, number, sizes, whole
from deepmf.training.settings import TrainingSettings


@settings_dataclass
class VectorSettings(TrainingSettings):
    """The settings that all models share that read whole rows or columns."""

    decay: float = 1.0
    batch_size: int | None = whole(
        None, low=1, optional=True, meaning="How many of the rows, or columns, that it reads make a step (none: all)."
    )


@settings_dataclass
class AutoencoderSettings(VectorSettings):
    """The settings that all autoencoders share."""

    precision: str = "single"
    inputs: str = choice(
        "raw",
        of=("raw", "centred", "scaled"),
        meaning='How values enter and leave the network: "raw" (as they are), "centred" (minus the mean of all '
        'training entries) or "scaled" (to [-1, 1]); what is missing is 0.',
    )


@settings_dataclass
class AutoRecSettings(AutoencoderSettings):
    """The settings of I-AutoRec; the defaults were chosen on validation entries of MovieLens-1M."""

    epochs: int = 450
    learning_rate: float = 2e-3
    hidden_size: int = whole(500, low=1, high=WIDEST, meaning="The width of the hidden layer.")
    initial: float = number(1.0, above=0.0, meaning="How large the first weights are, as a share of Xavier's.")
    gamma: float = number(
        200.0,
        low=0.0,
        meaning="The weight of the L2 penalty, lambda of the paper; squared errors count in the units of `inputs`.",
    )


@settings_dataclass
class UAutoRecSettings(AutoRecSettings):
    """The settings of U-AutoRec: those of I-AutoRec, with defaults for rows."""

    epochs: int = 100
    inputs: str = "centred"
    initial: float = 0.3
    gamma: float = 100.0


@settings_dataclass
class DeepAutoRecSettings(AutoencoderSettings):
    """The settings of Deep U-AutoRec; the defaults are those of its paper, but for a larger step size (.005 there)."""

    epochs: int = 100
    validate_every: int = 2
    learning_rate: float = 2e-2
    decay: float = 0.5
    decay_every: int | tuple[int, ...] = (24, 36, 48, 66, 72)
    batch_size: int | None = 128
    hidden_sizes: tuple[int, ...] = sizes(
        (512, 512, 1024),
        fewest=1,
        meaning="The widths of the layers down to the code, which is the last of them; the decoder mirrors the others.",
    )
    dropout: float = number(0.8, low=0.0, high=0.99, meaning="The fraction dropped of the code.")
    refeeds: int = whole(
        1,
        low=0,
        meaning="How often the outputs for a batch are fed back as a batch of their own, each time for one more step.",
    )
    momentum: float = number(0.9, low=0.0, high=0.999, meaning="How much of the last step the next one keeps.")

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """The widths of all hidden layers, encoder and decoder."""
        return (*self.hidden_sizes, *reversed(self.hidden_sizes[:-1]))


@settings_dataclass
class CFNADESettings(VectorSettings):
    """The settings of I-CF-NADE; but for `epochs` and `normalise`, the defaults are those of Zheng et al. 2016.

    A `normalise` other than "none" is not in the paper: it makes what is learned from few shown entries fit many.
    """

    epochs: int = 200
    learning_rate: float = 1e-3
    averaging: float = 0.995
    batch_size: int | None = 512
    hidden_size: int = whole(500, low=1, high=WIDEST, meaning="The width of the hidden layer.")
    gamma: float = number(
        0.02,
        low=0.0,
        meaning="The weight of the L2 penalty, gamma / 2 (||W||^2 + ||V||^2), beside the cost of one column or row.",
    )
    normalise: str = choice(
        "count",
        of=("none", "root", "count"),
        meaning="What the sum of a column's or row's inputs is multiplied by before the hidden layer: nothing "
        '("none"), the root of 100 / count ("root"), or 100 / count ("count").',
    )


@settings_dataclass
class UCFNADESettings(CFNADESettings):
    """The settings of U-CF-NADE: those of I-CF-NADE, with a default for rows."""

    normalise: str = "root"
