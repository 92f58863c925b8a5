"""Options that commands share: the same everywhere."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import typer

from deepmf.cli.app import app
from deepmf.cli.inputs import InputOptions
from deepmf.training.settings import EFFORTS

GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = {**GROUP.commands, **GROUP.commands["datasets"].commands}


def test_options_about_files_are_the_same_in_all_commands() -> None:
    readers = {
        name: command for name, command in COMMANDS.items() if _options(command, "--separator")
    }
    del readers["impute"]  # it reads tables, not entries
    assert readers.keys() >= {
        "fit",
        "compare",
        "split",
        "pack",
        "evaluate",
        "predict",
        "complete",
        "inspect",
    }
    seen = defaultdict(set)
    for name, command in readers.items():
        for option in (
            "--row",
            "--column",
            "--value",
            "--separator",
            "--missing",
            "--decimal",
            "--encoding",
        ):
            (found,) = _options(command, option)
            seen[option].add((found.name, found.help, str(found.default)))
        assert (
            not _options(command, "--wide")
            or name == "complete"
            or _options(command, "--wide")[0].default is False
        )
    assert all(len(each) == 1 for each in seen.values()), seen
    assert {option.removeprefix("--") for option in seen} <= vars(InputOptions()).keys()


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
