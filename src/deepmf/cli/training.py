"""What `fit` and `tune` share: the options about training, and the entries held out for validation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from deepmf.cli.inputs import InputOptions, locate_errors, open_input
from deepmf.cli.options import TRAINING, VALIDATION_SHARE, option
from deepmf.cli.settings import parse_assignment, read_config
from deepmf.errors import BadSetting
from deepmf.models.registry import MODELS, model_class

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.base import Model

DEFAULT_MODEL = "dmf-o"


@dataclass(frozen=True)
class TrainingOptions:
    """The options of a command about the model, its settings and its validation entries."""

    panel: ClassVar[str] = TRAINING

    model: Annotated[
        str | None, option("--model NAME", f"Model to fit: {', '.join(MODELS)}; default: {DEFAULT_MODEL}.")
    ] = None
    effort: Annotated[
        str | None,
        option(
            "--effort quick|normal|best", "Training time to spend on accuracy, for dmf-o and bayesian; default: normal."
        ),
    ] = None
    assignments: Annotated[
        list[str] | None,
        option("--set NAME=VALUE", "Setting of the model, such as dropout=0.5; repeatable (see deepmf settings)."),
    ] = None
    config: Annotated[Path | None, option("--config FILE", "TOML file of settings; --set overrides it.")] = None
    validation: Annotated[
        Path | None,
        option("--validation FILE", "Validation entries, used only for early stopping and to compare settings."),
    ] = None
    validation_share: Annotated[
        float | None,
        option(
            "--validation-share SHARE",
            f"Share of the entries held out for validation; default: {VALIDATION_SHARE:g}; in fit, dmf-o chooses it.",
        ),
    ] = None
    seed: Annotated[int | None, option("--seed N", "Random seed; default: 0.")] = None
    device: Annotated[
        str | None, option("--device auto|cpu|cuda", "Device to train on; auto uses a GPU if there is one.")
    ] = None

    @property
    def model_name(self) -> str:
        """The name of the model, by default that of OrdinalDMF."""
        return self.model or DEFAULT_MODEL

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name: from the TOML file, from `--set` and from other options; later ones win."""
        settings: dict[str, Any] = {}
        if self.config is not None:
            with open_input(self.config) as file:
                settings |= read_config(file)
        settings |= dict(map(parse_assignment, self.assignments or ()))
        others = {"effort": self.effort, "seed": self.seed, "device": self.device}
        return settings | {name: given for name, given in others.items() if given is not None}

    def make_model(self) -> Model:
        """Return a new model with the settings."""
        return model_class(self.model_name)(**self.settings)

    def hold_out(
        self, entries: ObservedMatrix, reading: InputOptions, *, seed: int
    ) -> tuple[ObservedMatrix, ObservedMatrix | None]:
        """Return the entries to train on, and the validation entries: those of a file, or a random share."""
        if self.validation is not None:
            if self.validation_share is not None:
                raise BadSetting("give --validation or --validation-share, not both")
            from deepmf.models.fitting import keep_known

            held_out = reading.read_like(self.validation, entries)
            with locate_errors(self.validation):
                return entries, keep_known(entries, held_out)
        from deepmf.data.splits import split_entries

        share = VALIDATION_SHARE if self.validation_share is None else self.validation_share
        if not 0 <= share < 1:
            raise BadSetting(f"--validation-share must be 0 or more and below 1; got {share:g}")
        split = split_entries(entries, train=1.0 - share, validation=share, test=0.0, seed=seed)
        return split.train, split.validation if split.validation.n_entries else None
