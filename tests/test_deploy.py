"""The files for operators start what there is."""

import re
import shlex
from pathlib import Path

import typer

from deepmf.cli.app import app

DEPLOY = Path(__file__).parents[1] / "deploy"


def parsed(words: list[str]) -> None:
    """Parse the words that follow `deepmf`."""
    group: typer.core.TyperGroup = typer.main.get_command(app)  # type: ignore[assignment]
    group.commands[words[0]].make_context("deepmf", words[1:]).close()


def test_the_unit_starts_and_reloads_the_service() -> None:
    unit = (DEPLOY / "deepmf.service").read_text(encoding="utf-8")
    start = re.search(r"^ExecStart=\S+/deepmf (.*)$", unit, re.MULTILINE)
    assert start is not None
    parsed(shlex.split(start[1]))
    assert "ExecReload=/bin/kill -HUP $MAINPID" in unit


def test_the_container_runs_as_an_ordinary_user() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    words = [
        re.findall(r'"([^"]+)"', re.search(rf"^{name} (.*)$", text, re.MULTILINE)[1]) for name in ("ENTRYPOINT", "CMD")
    ]  # type: ignore[index]
    parsed([*words[0], *words[1]][1:])
    assert text.index("USER deepmf") < text.index("ENTRYPOINT")
    copied = re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE)
    assert all((DEPLOY.parent / name).exists() for names in copied for name in names.split())
