"""`python -m deepmf`: the command line as a process."""

import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.forks import give_children_default_signals


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["--version"], 0, f"deepmf {version('deepmf')}\n", ""),
        (
            ["predict", "none"],
            2,
            "",
            "deepmf: Missing argument 'PAIRS' (see deepmf predict --help)\n",
        ),
    ],
)
def test_as_a_process(arguments: list[str], code: int, out: str, err: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "deepmf", *arguments], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, out, err)


# A module in the place of another, whose import is interrupted.
INTERRUPTED = "import os, signal, time\nos.kill(os.getpid(), {signal})\ntime.sleep(20)\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise")
@pytest.mark.parametrize(
    ("module", "number"),
    [("typer", signal.SIGINT), ("torch", signal.SIGINT), ("torch", signal.SIGTERM)],
)
def test_an_interrupted_import_ends_quietly(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    (tmp_path / f"{module}.py").write_text(INTERRUPTED.format(signal=int(number)))
    (tmp_path / "entries.csv").write_text("user,film,stars\n1,a,5\n2,b,3\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from deepmf.__main__ import main; main()"
    command = [sys.executable, "-c", code, "fit", "entries.csv", "-o", "model.safetensors"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise")
def test_children_of_tests_ignore_no_signal() -> None:
    numbers = (signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        give_children_default_signals()
        for number in numbers:  # this process lives on
            ended = subprocess.run(
                ["sh", "-c", f"kill -{int(number)} $PPID; kill -{int(number)} $$"], check=False
            )
            assert ended.returncode == -number
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
