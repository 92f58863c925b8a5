"""Groups of options: a command that takes one has the options that it would have if they were written out."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from deepmf.cli.app import app
from deepmf.cli.inputs import Reading
from deepmf.cli.option_groups import Without, takes_groups

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
