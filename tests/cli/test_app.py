"""The command itself: help, exit codes, Ctrl-C, closed pipes, nothing heavy at the start."""

import os
import re
import signal
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.forks import start_deepmf
from tests.waiting import PATIENCE, wait_until

from deepmf.cli.app import app
from deepmf.errors import NothingObserved
from deepmf.models import loading
from deepmf.models.loading import load

COMMAND = [sys.executable, "-m", "deepmf"]
NAMES = [command.name for command in app.registered_commands]
GROUPS = {group.name: group.typer_instance for group in app.registered_groups}
INSIDE = [
    f"{name} {command.name or command.callback.__name__}"
    for name in GROUPS
    for command in GROUPS[name].registered_commands
]


@pytest.mark.parametrize("name", [*NAMES, *GROUPS, *INSIDE])
def test_every_command_has_help_with_an_example_and_json(run: Any, name: str) -> None:
    code, out, _ = run(*name.split(), "--help")
    assert code == 0
    assert f"Example: deepmf {name}" in out
    assert name in GROUPS or "--json" in out
    assert "<bool>" not in out  # a flag takes no value


def test_the_page_of_commands_has_an_example_of_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    for name in [*NAMES, *GROUPS]:
        assert f"\n## {name}\n" in page and f"deepmf {name}" in page, name


def test_help_and_version(run: Any) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(name in out for name in [*NAMES, *GROUPS])
    assert run().out == out
    assert "<bool>" not in out
    assert "..." not in out.partition("Commands:")[2]  # no line is cut off
    assert run("--version") == (0, f"deepmf {version('deepmf')}\n", "")


@pytest.mark.slow
def test_help_fits_a_terminal_and_has_groups(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in NAMES:
        assert max(map(len, run(name, "--help").out.splitlines())) <= 80, name
    out = run("fit", "--help").out
    places = [
        out.index(f"\n{group}:\n")
        for group in ("Arguments", "Options", "Features and names", "Reading entries")
    ]
    assert places == sorted(places)
    assert out.index("--wide") > places[-1] and out.index("--resume") < places[2]


@pytest.mark.slow
def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom deepmf.cli.app import main\n"
        "for words in (['--help'], ['fit', '--help'], ['datasets', '--help'], ['settings', '--json']):\n"
        "    try:\n        main(words)\n    except SystemExit as ending:\n        assert ending.code == 0\n"
        "sys.exit(repr({'torch', 'numpy', 'scipy', 'polars'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stderr == "set()\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fot"], "No such command 'fot'"),
        (["fit"], "Missing argument 'RATINGS' (see deepmf fit --help)"),
        (["fit", "r.csv"], "Missing option '--output'"),
        (["fit", "r.csv", "-o", "m", "--seeds", "3"], "No such option: --seeds"),
        (["fit", "r.csv", "-o", "m", "--seed", "x"], "--seed"),
        (["demo", "extra"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_line(run: Any, arguments: list[str], message: str) -> None:
    assert message in run.fails(*arguments)


def test_a_bug_is_ours(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("in two\nlines")

    monkeypatch.setattr(loading, "load", broken)
    monkeypatch.delenv("DEEPMF_TRACEBACK", raising=False)
    arguments = ["evaluate", folder / "means.safetensors", folder / "test.csv"]
    message = (
        "deepmf: internal error: ZeroDivisionError: in two lines (DEEPMF_TRACEBACK=1 shows where)\n"
    )
    assert run(*arguments) == (1, "", message)
    monkeypatch.setenv("DEEPMF_TRACEBACK", "1")
    code, _, err = run(*arguments)
    assert code == 1
    assert err.startswith("Traceback")
    assert err.endswith(message)


def test_warnings_of_others_stay_as_they_are(
    run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warning(path: Path) -> Any:
        warnings.warn("ours", NothingObserved, stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("theirs", FutureWarning, stacklevel=1)
        return load(path)

    monkeypatch.setattr(loading, "load", warning)
    shown = warnings.showwarning
    with pytest.warns(FutureWarning, match="theirs"):
        err = run("evaluate", folder / "means.safetensors", folder / "known.csv").err
    assert err == "deepmf: warning: ours\n"
    assert warnings.showwarning is shown


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_it_quietly(folder: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    header, *lines = (folder / "known.csv").read_text().splitlines()
    pairs.write_text("\n".join([header, *lines * 100]) + "\n")  # far more than a pipe holds
    command = [*COMMAND, "predict", str(folder / "means.safetensors"), str(pairs)]
    # so that something is left to write at the end
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "user,film,prediction,area\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=PATIENCE) == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals to one process")
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_fit(
    folder: Path, tmp_path: Path, tiny: list[str], number: signal.Signals
) -> None:
    output, shown, log = (
        tmp_path / "models" / "model.safetensors",
        tmp_path / "output",
        tmp_path / "log",
    )
    output.parent.mkdir()
    words = "fit", folder / "train.csv", "-o", output, "--resume", *tiny, "--set", "epochs=1000000"
    process = start_deepmf(*words, output=shown, log=log)
    try:
        begun = output.with_name("model.safetensors.checkpoint")
        wait_until(lambda: begun.exists() or not process.is_alive())
        assert process.is_alive(), log.read_text()
        os.kill(process.pid, number)
        process.join(PATIENCE)
    finally:
        process.kill()
    assert process.exitcode == 128 + number
    assert re.match("deepmf: warning: .*epoch ", log.read_text())
    assert log.read_text().count("\n") == 1
    assert f"saved in {output}" in shown.read_text()
    assert load(output).history_.stopped == "interrupted"
    assert sorted(path.name for path in output.parent.iterdir()) == [output.name, begun.name]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such terminals")
@pytest.mark.slow
def test_a_terminal_that_is_closed_during_fit(
    folder: Path, tmp_path: Path, tiny: list[str]
) -> None:
    output = tmp_path / "model.safetensors"
    arguments = [
        "fit",
        str(folder / "train.csv"),
        "-o",
        str(output),
        "--resume",
        *tiny,
        "--set",
        "epochs=1000000",
    ]
    terminal, end = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=end, stdout=end, stderr=end, start_new_session=True
    )
    try:
        os.close(end)
        while not (tmp_path / "model.safetensors.checkpoint").exists():  # training has begun
            assert os.read(terminal, 10_000)  # its progress is shown
        process.send_signal(signal.SIGHUP)
        os.close(terminal)
        assert process.wait(timeout=PATIENCE) == 129
    finally:
        process.kill()
    assert load(output).history_.stopped == "interrupted"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        output.name,
        f"{output.name}.checkpoint",
    ]


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals to one process")
@pytest.mark.slow
def test_a_signal_while_standard_input_is_kept_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "inspect", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"user,film,stars\n")
        process.stdin.flush()
        wait_until(lambda: list(tmp_path.glob("*/standard input")) or process.poll() is not None)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 143
    finally:
        process.kill()
        process.communicate()
    assert list(tmp_path.iterdir()) == []


def test_signals_are_left_as_they_were(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for handler in (signal.SIG_DFL, signal.SIG_IGN):
        before = signal.signal(signal.SIGTERM, handler)
        try:
            assert run("--version").code == 0
            assert signal.getsignal(signal.SIGTERM) is handler
        finally:
            signal.signal(signal.SIGTERM, before)
