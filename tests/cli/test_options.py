"""Help of options."""

from __future__ import annotations

from typing import Any

import typer

from deepmf.cli.app import app
from deepmf.training.settings import EFFORTS

GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = {**GROUP.commands, **GROUP.commands["datasets"].commands}


def test_every_option_has_a_help_that_is_one_line_of_at_most_120_characters() -> None:
    for name, command in COMMANDS.items():
        for parameter in command.params:
            text = getattr(parameter, "help", None) or "."
            assert text.endswith(".") and "\n" not in text, (name, parameter.name)
            assert len(text) <= 120 or parameter.name in ("ratings", "model"), (name, text)


def test_efforts_are_those_of_the_model() -> None:
    (option,) = _options(COMMANDS["fit"], "--effort")
    assert option.metavar == "|".join(EFFORTS)


def _options(command: Any, name: str) -> list[Any]:
    return [parameter for parameter in command.params if name in parameter.opts]
