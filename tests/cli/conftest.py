"""Small files and models for the command line, and a way to run it in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_here(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as ending:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        # Networks that learn in no time are seldom better than the means.
        told = [line for line in err.splitlines(keepends=True) if "not below that of the means" not in line]
        return Outcome(int(ending.value.code or 0), out, "".join(told))

    return run_here


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """A network that learns in no time."""
    settings = ["hidden_sizes=16,", "latent_size=4", "dropout=0.2", "validate_every=1"]
    return ["--model", "dmf", *(word for setting in settings for word in ("--set", setting)), "--device", "cpu"]


@pytest.fixture(scope="session")
def split() -> AreaSplit:
    return split_areas(generate(60, 40, density=0.3, seed=0).matrix, seed=0)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, split: AreaSplit) -> Path:
    """A folder with train.csv, new.csv (entries of new rows and columns), test.csv (all areas), means.safetensors."""
    folder = tmp_path_factory.mktemp("files")
    write_entries(folder / "train.csv", split.train)
    write_entries(folder / "new.csv", split.extension)
    write_entries(folder / "test.csv", *split.test.values())
    write_entries(folder / "known.csv", split.test["I"])
    Means().fit(split.train.with_form(TableForm("user", "film", "stars"))).save(folder / "means.safetensors")
    return folder


def write_entries(path: Path, *parts: ObservedMatrix) -> None:
    frames = []
    for part in parts:
        rows, columns, values = part.entries()
        frames.append(polars.DataFrame({"user": rows.tolist(), "film": columns.tolist(), "stars": values}))
    polars.concat(frames).write_csv(path)
