"""`python -m deepmf`: the same command line under the same name."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import deepmf.__main__
from deepmf.cli.app import main


def test_it_is_the_command_line() -> None:
    assert deepmf.__main__.main is main


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["--version"], 0, f"deepmf {version('deepmf')}\n", ""),
        (["predict", "none"], 2, "", "deepmf: Missing argument 'PAIRS' (see deepmf predict --help)\n"),
    ],
)
def test_as_a_process(arguments: list[str], code: int, out: str, err: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "deepmf", *arguments], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, out, err)
