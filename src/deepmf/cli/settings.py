"""`deepmf settings`: the settings of a model, or the models there are."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.inputs import local_file
from deepmf.cli.options import Json, model_names
from deepmf.cli.output import say, show_json, show_table
from deepmf.errors import BadSetting, FileAbsent, UnreadableFile
from deepmf.models.registry import MODELS, model_class

if TYPE_CHECKING:
    from deepmf.matrix.scale import Scale
    from deepmf.training.settings import Setting


# What reading a text as a Python literal can raise.
_NOT_A_LITERAL = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def gather_settings(config: Path | None, assignments: Iterable[str] | None, **options: Any) -> dict[str, Any]:
    """Return settings by name: those of a TOML file, of `name=value` texts and of options of their own; later ones win.

    An option that is None was not given.
    """
    settings: dict[str, Any] = {}
    if config is not None:
        with local_file(config) as file:
            settings |= read_config(file)
    settings |= dict(map(parse_assignment, assignments or ()))
    return settings | {name: given for name, given in options.items() if given is not None}


def check_effort(effort: str, model: str) -> None:
    """Refuse an effort for a model that has none."""
    able = [
        name for name in MODELS if any(field.name == "effort" for field in fields(model_class(name).settings_class))
    ]
    if model_class(model).settings_class not in [model_class(name).settings_class for name in able]:
        raise BadSetting(f"--effort {effort} is for {', '.join(able)}; {model!r} has settings alone (--set NAME=VALUE)")


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read `name=value`; the value is a JSON or Python literal, `512,256` for several, otherwise a plain word.

    >>> parse_assignment("hidden_sizes=512,256"), parse_assignment("dropout=.5"), parse_assignment("inputs=raw")
    (('hidden_sizes', (512, 256)), ('dropout', 0.5), ('inputs', 'raw'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise BadSetting(f"--set takes name=value, such as dropout=0.5; got {text!r}")
    return name.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """Read one value; what is no literal stays the word that it is, for the settings to judge."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    with suppress(*_NOT_A_LITERAL):
        return ast.literal_eval(text)
    return None if text == "none" else text


def show_value(value: Any) -> str:
    """Write a value so that `parse_value` reads it back.

    >>> show_value((512, 256)), show_value((512,)), show_value(0.5), show_value(None), show_value("raw")
    ('512,256', '512,', '0.5', 'none', 'raw')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) + "," * (len(value) == 1)
    return "none" if value is None else str(value)


def read_config(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file: its top level, or its only table `[settings]`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileAbsent(f"there is no file {path}") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # of TOML or of UTF-8
        raise UnreadableFile(f"{path} is not a TOML file ({error})") from error
    table = content["settings"] if content.keys() == {"settings"} else content
    if not isinstance(table, dict):
        raise UnreadableFile(f"{path}: [settings] must be a table of names and values; got {table!r}")
    return table


def parse_scale(text: str | None) -> Scale | None:
    """Read a scale: `1,2,3,4,5` are levels, `0:100` is an interval.

    >>> parse_scale("1,2,3,4,5"), parse_scale("0:100")
    (Scale(levels=[1, 2, 3, 4, 5]), Scale(low=0, high=100))
    """
    from deepmf.matrix.scale import Scale

    if text is None:
        return None
    low, colon, high = text.partition(":")
    try:
        if colon:
            return Scale(low=float(low), high=float(high))
        levels = [float(level) for level in text.split(",")]
    except BadSetting:
        raise
    except ValueError as error:
        raise BadSetting(
            f"--scale takes levels such as 1,2,3,4,5 or an interval such as 0:100; got {text!r}"
        ) from error
    return Scale(levels)


def settings(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="The name that --model takes; all models if not given.",
            show_default=False,
            autocompletion=model_names,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the settings of a model: the default of each, the values it may have, and what it means.

    Without a model: which models there are.

    Example: deepmf settings dmf-o
    """
    if model is None:
        _show_models(as_json=as_json)
    else:
        _show_settings(model, as_json=as_json)


def _show_models(*, as_json: bool) -> None:
    if as_json:
        found = [{"name": name, "class": each.class_name, "summary": each.summary} for name, each in MODELS.items()]
        show_json({"models": found})
        return
    show_table(["model", "what it is"], ((name, each.summary) for name, each in MODELS.items()))
    say("deepmf settings MODEL lists its settings; deepmf fit --model MODEL fits it")


def _show_settings(model: str, *, as_json: bool) -> None:
    from deepmf.training.settings import list_settings

    found = list_settings(model_class(model).settings_class)
    if as_json:
        show_json(
            {"model": model, "class": MODELS[model].class_name, "settings": [_entry(setting) for setting in found]}
        )
        return
    lines = [[setting.name, _default(setting), setting.values, setting.description] for setting in found]
    show_table(
        ["setting", "default", "values", "meaning"], lines, title=f"{MODELS[model].class_name}: {MODELS[model].summary}"
    )
    name, default = found[-1].name, show_value(found[-1].default)
    if any(setting.is_chosen_at_fit for setting in found):
        say("chosen: at fit, for the matrix and the machine, by the effort; deepmf inspect shows what it was")
    say(f"as in: deepmf fit ratings.csv -o model.safetensors --model {model} --set {name}={default}")


def _default(setting: Setting) -> str:
    return "chosen" if setting.is_chosen_at_fit else show_value(setting.default)


def _entry(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "type": setting.type,
        "default": setting.default,
        "chosen_at_fit": setting.is_chosen_at_fit,
        "optional": setting.is_optional,
        **setting.to_dict(),
        "meaning": setting.description,
    }
