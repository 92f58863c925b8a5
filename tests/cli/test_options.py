"""Options that commands share: the same everywhere, and completed by the shell."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from typing import Any

import pytest
import typer

from deepmf.cli.app import app
from deepmf.cli.inputs import InputOptions
from deepmf.cli.options import list_datasets, list_settings, list_tables
from deepmf.data import datasets
from deepmf.experiments import recipe
from deepmf.models.registry import MODELS
from deepmf.training.settings import EFFORTS

GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = {**GROUP.commands, **GROUP.commands["datasets"].commands}


def test_options_about_files_are_the_same_in_all_commands() -> None:
    readers = {name: command for name, command in COMMANDS.items() if _options(command, "--separator")}
    del readers["impute"]  # it reads tables, not entries
    assert readers.keys() >= {"fit", "tune", "compare", "split", "pack", "evaluate", "predict", "complete", "describe"}
    seen = defaultdict(set)
    for name, command in readers.items():
        for option in ("--row", "--column", "--value", "--separator", "--missing", "--decimal", "--encoding"):
            (found,) = _options(command, option)
            seen[option].add((found.name, found.help, str(found.default)))
        assert not _options(command, "--wide") or name == "complete" or _options(command, "--wide")[0].default is False
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


def test_data_sets_tables_and_what_does_not_exist() -> None:
    assert list_datasets() == datasets.names()
    assert list_tables() == recipe.list_tables()
    assert list_settings("svd++") == []


# Runs the command line with what the shell sets after Tab, for one line after the other; shows what was loaded too.
TAB = """
import os, sys
from deepmf.cli.app import main
for line in sys.argv[1:]:
    os.environ.update(_DEEPMF_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split()) - 1))
    try:
        main()
    except SystemExit:
        print("|", *sorted({"torch", "numpy", "scipy", "polars"} & set(sys.modules)), flush=True)
"""


@pytest.mark.slow
def test_tab() -> None:
    expected = {
        "deepmf in": (["inspect"], ""),
        "deepmf fit r.csv --model dm": ([name for name in MODELS if name.startswith("dm")], ""),
        "deepmf settings od": (["odmc"], ""),
        "deepmf reproduce tab": (["table1", "table2"], ""),
        "deepmf datasets fetch ml-2": (["ml-20m", "ml-25m"], "numpy scipy"),
        "deepmf fit r.csv --model means --set sh": (["shrinkage="], "numpy scipy torch"),
        "deepmf fit r.csv --set latent": (["latent_size="], "numpy scipy torch"),
        "deepmf tune r.csv --model dmf-o --set mask": (["mask_rate="], "numpy scipy torch"),
    }
    ended = subprocess.run([sys.executable, "-c", TAB, *expected], capture_output=True, text=True)
    shown = "".join("\n".join([*offered, f"| {loaded}".strip()]) + "\n" for offered, loaded in expected.values())
    assert (ended.stdout, ended.stderr) == (shown, "")
