"""`deepmf settings`: the settings of a model, or the models there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.options import Json
from deepmf.cli.output import say, show_json, show_table
from deepmf.cli.setting_options import show_value
from deepmf.cli.shell_completion import model_names
from deepmf.models.registry import HOMES, SUMMARIES, settings_class

if TYPE_CHECKING:
    from deepmf.training.declarations import DeclaredSetting


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
        found = [{"name": name, "class": HOMES[name][1], "summary": said} for name, said in SUMMARIES.items()]
        show_json({"models": found})
        return
    show_table(["model", "what it is"], SUMMARIES.items())
    say("deepmf settings MODEL lists its settings; deepmf fit --model MODEL fits it")


def _show_settings(model: str, *, as_json: bool) -> None:
    from deepmf.training.declarations import declared

    found = declared(settings_class(model))
    if as_json:
        show_json({"model": model, "class": HOMES[model][1], "settings": [_entry(setting) for setting in found]})
        return
    lines = [[setting.name, _default(setting), setting.rule.allowed, setting.rule.meaning] for setting in found]
    show_table(["setting", "default", "values", "meaning"], lines, title=f"{HOMES[model][1]}: {SUMMARIES[model]}")
    name, default = found[-1].name, show_value(found[-1].default)
    if any(setting.chosen for setting in found):
        say("chosen: at fit, for the matrix and the machine, by the effort; deepmf inspect shows what it was")
    say(f"as in: deepmf fit ratings.csv -o model.safetensors --model {model} --set {name}={default}")


def _default(setting: DeclaredSetting) -> str:
    return "chosen" if setting.chosen else show_value(setting.default)


def _entry(setting: DeclaredSetting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "type": setting.type,
        "default": setting.default,
        "chosen_at_fit": setting.chosen,
        "optional": setting.rule.optional,
        **setting.rule.to_dict(),
        "meaning": setting.rule.meaning,
    }
