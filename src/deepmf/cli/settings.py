"""`deepmf settings`: list the models or the settings of one; settings on the command line, and what
training needs."""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from deepmf.cli.inputs import InputOptions, locate_errors, open_input
from deepmf.cli.options import TRAINING, VALIDATION_SHARE, Device, Json, Seed, argument, offer
from deepmf.cli.output import say, show_json, show_table
from deepmf.errors import BadSetting
from deepmf.files import read_toml
from deepmf.models.registry import MODELS, model_class

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.matrix.scale import Scale
    from deepmf.models.base import Model

DEFAULT_MODEL = "dmf-o"


def settings(
    model: Annotated[
        str | None,
        argument(
            "MODEL",
            "Model, as --model takes it; all models are listed if not given.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the settings of a model, or all models.

    A setting has a default, the values that it may have, and a description.

    Example: deepmf settings dmf-o
    """
    if model:
        _show_settings(model, as_json=as_json)
    elif as_json:
        models = [
            {"name": name, "class": registration.class_name, "summary": registration.summary}
            for name, registration in MODELS.items()
        ]
        show_json({"models": models})
    else:
        show_table(
            ["model", "description"],
            ((name, registration.summary) for name, registration in MODELS.items()),
        )
        say("deepmf settings MODEL lists the settings of a model; deepmf fit --model MODEL fits it")


def _show_settings(model: str, *, as_json: bool) -> None:
    from deepmf.training.settings import list_settings

    settings_of_model, entry = list_settings(model_class(model).settings_class), MODELS[model]
    if as_json:
        settings = [
            {
                "name": setting.name,
                "type": setting.type,
                "default": setting.default,
                "chosen_at_fit": setting.is_chosen_at_fit,
                "optional": setting.is_optional,
                **setting.to_dict(),
                "meaning": setting.description,
            }
            for setting in settings_of_model
        ]
        show_json({"model": model, "class": entry.class_name, "settings": settings})
        return
    defaults = [
        "chosen" if setting.is_chosen_at_fit else format_value(setting.default)
        for setting in settings_of_model
    ]
    lines = [
        [setting.name, default, setting.values, setting.description]
        for setting, default in zip(settings_of_model, defaults, strict=True)
    ]
    show_table(
        ["setting", "default", "values", "meaning"],
        lines,
        title=f"{entry.class_name}: {entry.summary}",
    )
    if "chosen" in defaults:
        say(
            "chosen: fit chooses the value for the matrix, the machine and the effort; deepmf inspect shows it"
        )
    example = f"{settings_of_model[-1].name}={format_value(settings_of_model[-1].default)}"
    say(f"example: deepmf fit ratings.csv -o model.safetensors --model {model} --set {example}")


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse `name=value`; the value is a JSON or Python literal, `512,256` for several, otherwise a
    plain word.

    >>> parse_assignment("hidden_sizes=512,256"), parse_assignment("dropout=.5"), parse_assignment("inputs=raw")
    (('hidden_sizes', (512, 256)), ('dropout', 0.5), ('inputs', 'raw'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise BadSetting(f"--set takes name=value, such as dropout=0.5; got {text!r}")
    return name.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """Parse a value; a text that is not a literal stays a word, which the settings check."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return ast.literal_eval(text)
    return None if text == "none" else text


def format_value(value: Any) -> str:
    """Return a value as text that `parse_value` reads back.

    >>> format_value((512, 256)), format_value((512,)), format_value(0.5), format_value(None), format_value("raw")
    ('512,256', '512,', '0.5', 'none', 'raw')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) + "," * (len(value) == 1)
    return "none" if value is None else str(value)


def parse_scale(text: str | None) -> Scale | None:
    """Parse a scale: `1,2,3,4,5` are levels, `0:100` is an interval.

    >>> parse_scale("1,2,3,4,5"), parse_scale("0:100")
    (Scale(levels=[1, 2, 3, 4, 5]), Scale(low=0, high=100))
    """
    from deepmf.matrix.scale import Scale

    if text is None:
        return None
    low, colon, high = text.partition(":")
    try:
        numbers = [float(number) for number in ((low, high) if colon else text.split(","))]
    except ValueError as error:
        raise BadSetting(
            f"--scale takes levels such as 1,2,3,4,5 or an interval such as 0:100; got {text!r}"
        ) from error
    return Scale(low=numbers[0], high=numbers[1]) if colon else Scale(numbers)


@dataclass(frozen=True)
class TrainingOptions:
    """The options of a command about the model, its settings and its validation entries."""

    panel: ClassVar[str] = TRAINING

    model: str | None = offer(
        "--model NAME", f"Model to fit: {', '.join(MODELS)}; default: {DEFAULT_MODEL}."
    )
    effort: str | None = offer(
        "--effort quick|normal|best",
        "Training time to spend on accuracy, for dmf-o and bayesian; default: normal.",
    )
    assignments: list[str] | None = offer(
        "--set NAME=VALUE",
        "Setting of the model, such as dropout=0.5; repeatable (see deepmf settings).",
    )
    config: Path | None = offer("--config FILE", "TOML file of settings; --set overrides it.")
    validation: Path | None = offer(
        "--validation FILE",
        "Validation entries, used only for early stopping and to compare settings.",
    )
    validation_share: float | None = offer(
        "--validation-share SHARE",
        f"Share of the entries held out for validation; default: {VALIDATION_SHARE:g}; in fit, dmf-o chooses it.",
    )
    seed: Seed = None
    device: Device = None

    @property
    def model_name(self) -> str:
        """The name of the model, by default that of OrdinalDMF."""
        return self.model or DEFAULT_MODEL

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name: from the TOML file, from `--set` and from other options; later ones
        win."""
        settings: dict[str, Any] = {}
        if self.config:
            with open_input(self.config) as file:
                settings |= read_toml(file)
        settings |= dict(map(parse_assignment, self.assignments or ()))
        if self.seed is not None:
            settings["seed"] = self.seed
        return settings | self._words

    @property
    def _words(self) -> dict[str, str]:
        """The settings that have an option of their own, beside the seed."""
        words = {"effort": self.effort, "device": self.device}
        return {name: word for name, word in words.items() if word}

    def make_model(self) -> Model:
        """Return a new model with the settings."""
        kind = model_class(self.model_name)
        names = {setting.name for setting in fields(kind.settings_class)}
        for name in self._words.keys() - names:
            raise BadSetting(
                f"{kind.__name__} takes no --{name}; deepmf settings {self.model_name} lists its settings"
            )
        return kind(**self.settings)

    def hold_out(
        self, model: Model, entries: ObservedMatrix, reading: InputOptions
    ) -> tuple[ObservedMatrix, ObservedMatrix | None]:
        """Return the entries to train on, and the validation entries: those of a file, or a random
        share; None if the model holds them out itself."""
        share = self.validation_share
        if self.validation:
            if share is not None:
                raise BadSetting("give --validation or --validation-share, not both")
            from deepmf.models.fitting import keep_known

            held_out = reading.read_held_out(self.validation, entries.form, entries)
            with locate_errors(self.validation):
                return entries, keep_known(entries, held_out)
        if share is None:
            if model.holds_out or not entries.has_values:
                return entries, None
            share = VALIDATION_SHARE
        from deepmf.data.splits import split_entries

        seed = model.settings.seed
        split = split_entries(entries, train=1.0 - share, validation=share, test=0.0, seed=seed)
        return split.train, split.validation if split.validation.n_entries else None
