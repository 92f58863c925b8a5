"""Small files and models for the command line, and a way to run it in this process."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import polars
import pytest

from deepmf.cli.app import main
from deepmf.data import AreaSplit, split_areas
from deepmf.datasets import generate
from deepmf.matrix import TableForm
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.means import Means


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Run:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as ending:
            main([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        # Networks that learn in no time are seldom better than the means.
        told = [
            line
            for line in err.splitlines(keepends=True)
            if "not below that of the means" not in line
        ]
        return Outcome(int(ending.value.code or 0), out, "".join(told))

    def fails(self, *arguments: object) -> str:
        """Return the one line that a command says of wrong input; it prints nothing else."""
        outcome = self(*arguments)
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert outcome.err.startswith("deepmf: ") and outcome.err.count("\n") == 1, outcome.err
        return outcome.err

    def json(self, *arguments: object) -> Any:
        """Return what a command shows with --json; it says nothing else."""
        outcome = self(*arguments, "--json")
        assert (outcome.code, outcome.err) == (0, ""), outcome
        return json.loads(outcome.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """A network that learns in no time."""
    settings = ["hidden_sizes=16,", "latent_size=4", "dropout=0.2", "validate_every=1"]
    return [
        "--model",
        "dmf",
        *(word for setting in settings for word in ("--set", setting)),
        "--device",
        "cpu",
    ]


@pytest.fixture(scope="session")
def split() -> AreaSplit:
    return split_areas(generate(60, 40, density=0.3, seed=0).matrix, seed=0)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, split: AreaSplit) -> Path:
    """A folder with train.csv, new.csv (entries of new rows and columns), test.csv (all areas),
    means.safetensors."""
    folder = tmp_path_factory.mktemp("files")
    write_entries(folder / "train.csv", split.train)
    write_entries(folder / "new.csv", split.extension)
    write_entries(folder / "test.csv", *split.test.values())
    write_entries(folder / "known.csv", split.test["I"])
    Means().fit(split.train.with_form(TableForm("user", "film", "stars"))).save(
        folder / "means.safetensors"
    )
    return folder


def write_entries(path: Path, *parts: ObservedMatrix) -> None:
    frames = []
    for part in parts:
        rows, columns, values = part.entries()
        frames.append(
            polars.DataFrame({"user": rows.tolist(), "film": columns.tolist(), "stars": values})
        )
    polars.concat(frames).write_csv(path)
