"""The page of commands is in step with the app: an example for each, every line parses, no option
is made up."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from deepmf.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
BLOCKS = "".join(
    re.findall(r"^```(?:sh|console)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
).replace("\\\n", " ")
LINES = re.findall(r"^(?:\$ )?(?:[^|\n]*\| )?deepmf (.*)$", BLOCKS, re.MULTILINE)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with the words that call it."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_every_command_has_an_example() -> None:
    for words in COMMANDS:
        assert f"\n## {words[0]}\n" in PAGE
        assert any(tuple(line.split()[: len(words)]) == words for line in LINES), words


def test_every_line_parses() -> None:
    for line in LINES:
        words = shlex.split(line)
        depth = 2 if tuple(words[:2]) in COMMANDS else 1
        COMMANDS[tuple(words[:depth])].make_context("deepmf", words[depth:]).close()


def test_every_option_exists() -> None:
    known = {
        name
        for command in COMMANDS.values()
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
    }
    # the latter are torchrun's
    known |= {"--help", "--install-completion"} | {"--standalone", "--nproc-per-node"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)) - known == set()
