"""Groups of options: a command that takes one has the options that it would have if they were written out."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from deepmf.cli.app import app
from deepmf.cli.inputs import Reading
from deepmf.cli.options import Without, dataset_names, setting_names, table_names, takes_groups
from deepmf.data import datasets
from deepmf.experiments.recipe import list_tables
from deepmf.models.registry import MODELS, model_class

Name = Annotated[str | None, typer.Option("--name", metavar="TEXT", help="Its name.")]

Often = Annotated[int, typer.Option("--often", metavar="N", help="How often.")]

Loud = Annotated[bool, typer.Option("--loud", help="Aloud.")]


@dataclass(frozen=True)
class Greeting:
    """A group with a field that is no option."""

    name: Name = None
    often: Often = 1
    loud: Loud = False
    beside: str = "nothing"


def run(command: Any, *words: str) -> Any:
    one = typer.Typer(add_completion=False)
    one.command("greet")(command)
    return CliRunner().invoke(one, words)


@takes_groups
def grouped(
    who: Annotated[str, typer.Argument()], *, how: Greeting, title: Annotated[str, typer.Option()] = "x"
) -> None:
    """Greet."""
    typer.echo(f"{who} {how} {title}")


@takes_groups
def fewer(who: Annotated[str, typer.Argument()], *, how: Annotated[Greeting, Without("name", "loud")]) -> None:
    """Greet."""
    typer.echo(f"{who} {how}")


def written_out(
    who: Annotated[str, typer.Argument()],
    name: Name = None,
    often: Often = 1,
    loud: Loud = False,
    title: Annotated[str, typer.Option()] = "x",
) -> None:
    """Greet."""


def test_help_is_that_of_options_written_out() -> None:
    assert run(grouped, "--help").output == run(written_out, "--help").output


def test_options_make_the_group() -> None:
    assert run(grouped, "ann").output.strip() == f"ann {Greeting()} x"
    found = run(grouped, "ann", "--loud", "--often", "3", "--name", "bob", "--title", "y").output
    assert found.strip() == f"ann {Greeting('bob', 3, True)} y"


def test_options_that_are_left_out_have_their_defaults() -> None:
    assert run(fewer, "ann", "--often", "2").output.strip() == f"ann {Greeting(often=2)}"
    assert run(fewer, "ann", "--loud").exit_code == 2


def test_options_of_reading_are_the_same_in_all_commands() -> None:
    group: Any = typer.main.get_command(app)
    commands = {**group.commands, **group.commands["datasets"].commands}
    readers = {
        name: command for name, command in commands.items() if any(_is_named(p, "--separator") for p in command.params)
    }
    assert {"fit", "tune", "compare", "split", "pack", "evaluate", "predict", "complete", "describe"} == readers.keys()
    taken = {p.name for command in readers.values() for p in command.params if p.name.startswith("reading_")}
    assert taken == {f"reading_{name}" for name in vars(Reading()) if name != "beside"}
    for command in readers.values():
        assert all(p.name.startswith("reading_") for p in command.params if _is_named(p, "--row"))


def _is_named(parameter: Any, option: str) -> bool:
    return option in parameter.opts


@pytest.mark.parametrize("model", MODELS)
def test_settings(model: str) -> None:
    assert setting_names(model) == [field.name for field in fields(model_class(model).settings_class)]


def test_data_sets_tables_and_what_does_not_exist() -> None:
    assert dataset_names() == datasets.names()
    assert table_names() == list_tables()
    assert setting_names("svd++") == []


# Runs the command line with what the shell sets after Tab, and puts out what was loaded too.
TAB = (
    "import sys\nfrom deepmf.cli.app import main\n"
    "try:\n    main()\nexcept SystemExit:\n"
    "    print(*sorted({'torch', 'numpy', 'scipy', 'polars'} & set(sys.modules)), file=sys.stderr)"
)


@pytest.mark.parametrize(
    ("line", "offered", "loaded"),
    [
        ("deepmf in", ["inspect"], ""),
        ("deepmf fit r.csv --model dm", [name for name in MODELS if name.startswith("dm")], ""),
        ("deepmf fit r.csv --model means --set sh", ["shrinkage="], "numpy scipy torch"),
        ("deepmf fit r.csv --set latent", ["latent_size="], "numpy scipy torch"),
        ("deepmf tune r.csv --model dmf-o --set mask", ["mask_rate="], "numpy scipy torch"),
        ("deepmf settings od", ["odmc"], ""),
        ("deepmf datasets fetch ml-2", ["ml-20m", "ml-25m"], "numpy scipy"),
        ("deepmf reproduce tab", ["table1", "table2"], ""),
    ],
)
def test_tab(line: str, offered: list[str], loaded: str) -> None:
    words = {"_DEEPMF_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    ended = subprocess.run([sys.executable, "-c", TAB], capture_output=True, text=True, env=os.environ | words)
    assert (ended.stdout.split(), ended.stderr) == (offered, f"{loaded}\n")
