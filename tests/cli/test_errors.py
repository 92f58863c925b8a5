"""What goes wrong, in every command: one line, the right exit status, nothing half-written."""

import errno
import gzip
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepmf.models.completion import complete_rows

COMMAND = [sys.executable, "-m", "deepmf"]


@pytest.fixture(scope="session")
def wrong(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """A folder with files that no command can read; the tests of the readers know many more."""
    wrong = tmp_path_factory.mktemp("wrong")
    model = (folder / "means.safetensors").read_bytes()
    (wrong / "words.csv").write_text("user,film,stars\nann,Alien,good\n")
    content = b"user,film,stars\n" + b"".join(b"%d,%d,3\n" % (k, k) for k in range(500))
    (wrong / "cut.csv.gz").write_bytes(gzip.compress(content)[:-100])
    (wrong / "cut.safetensors").write_bytes(model[: len(model) // 2])
    (wrong / "folder").mkdir()
    return wrong


@pytest.fixture
def nothing_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder, which is empty afterwards."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


def filled(arguments: str, **places: Path) -> list[str]:
    return [word.format(**places) for word in arguments.split()]


MODEL_TAKERS = [
    "predict {model} {files}/known.csv",
    "recommend {model} --row 1",
    "complete {model} -o -",
    "inspect {model}",
]
NO_MODELS = {
    "absent": "there is no file",
    "folder": "is a directory",
    "words.csv": "not a model file",
    "cut.safetensors": "truncated, damaged",
}


@pytest.mark.parametrize("arguments", MODEL_TAKERS)
@pytest.mark.usefixtures("nothing_written")
def test_what_is_no_model(run: Any, folder: Path, wrong: Path, arguments: str) -> None:
    for name in NO_MODELS if "predict" in arguments else ("absent", "cut.safetensors"):
        said = run.fails(*filled(arguments, model=wrong / name, files=folder))
        assert NO_MODELS[name] in said and str(wrong / name) in said


WRITERS = [
    "fit {ratings} -o {ratings} --model means",
    "fit {ratings} -o {link} --model means",
    "fit {ratings} -o {hard} --model means",
    "fit {train} -o {ratings} --model means --validation {ratings}",
    "fit {train} -o {out}/c.toml --model means --config {out}/c.toml",
    "fit {m}.checkpoint -o {m} --model als --resume",
    "evaluate {model} {ratings} --report {ratings}",
    "evaluate {model} {train} --extend {link} --report {ratings}",
    "predict {model} {ratings} -o {ratings}",
    "predict {model} {train} -o {ratings} --extend {hard}",
    "complete {model} -o {ratings} --extend {link}",
]


@pytest.mark.parametrize("arguments", WRITERS)
def test_no_command_overwrites_what_it_reads(
    run: Any, folder: Path, tmp_path: Path, arguments: str
) -> None:
    ratings, model = tmp_path / "r.svg.csv", tmp_path / "model.csv"
    shutil.copy(folder / "train.csv", ratings)
    shutil.copy(folder / "train.csv", tmp_path / "m.checkpoint")
    shutil.copy(folder / "means.safetensors", model)
    (tmp_path / "link.csv").symlink_to(ratings)
    (tmp_path / "hard.svg").hardlink_to(ratings)
    (tmp_path / "c.toml").write_text("seed = 1")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    places = {"ratings": ratings, "model": model, "m": tmp_path / "m", "out": tmp_path}
    places |= {"link": tmp_path / "link.csv", "hard": tmp_path / "hard.svg"}
    assert "would overwrite" in run.fails(*filled(arguments, **places, train=folder / "train.csv"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


ENTRY_TAKERS = [
    "fit {file} -o m",
    "fit {files}/train.csv -o m --model means --validation {file}",
    "inspect {file}",
    "evaluate {files}/means.safetensors {file}",
    "predict {files}/means.safetensors {files}/known.csv -o p.csv --extend {file}",
    "pack {file} -o r.store",
]
NO_ENTRIES = {
    "absent.csv": "there is no file",
    "folder": "is a directory",
    "words.csv": "value 'good'",
    "cut.csv.gz": "is damaged or cut off",
}


@pytest.mark.parametrize("arguments", ENTRY_TAKERS)
@pytest.mark.usefixtures("nothing_written")
def test_what_is_no_file_of_entries(run: Any, folder: Path, wrong: Path, arguments: str) -> None:
    for name in NO_ENTRIES if arguments.startswith("fit {file}") else ("folder", "words.csv"):
        said = run.fails(*filled(arguments, file=wrong / name, files=folder))
        assert NO_ENTRIES[name] in said and str(wrong / name) in said


WRITERS = [
    "fit {files}/train.csv --model means -o {target}",
    "predict {files}/means.safetensors {files}/known.csv -o {target}.csv",
    "complete {files}/means.safetensors -o {target}.parquet",
]


@pytest.mark.parametrize("arguments", WRITERS)
def test_an_output_that_cannot_be_is_refused_before_the_work(
    run: Any, folder: Path, tmp_path: Path, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepmf.models.loading.load", lambda *_: pytest.fail("it loaded the model"))
    monkeypatch.setattr(
        "deepmf.data.read.read_matrix", lambda *_, **__: pytest.fail("it read the entries")
    )
    assert "there is no folder" in run.fails(
        *filled(arguments, files=folder, target=tmp_path / "no" / "o")
    )
    target = tmp_path / "old"
    written = Path(filled(arguments, files=folder, target=target)[-1])
    written.mkdir()
    assert "it is a directory" in run.fails(*filled(arguments, files=folder, target=target))
    written.rmdir()
    written.symlink_to("/dev/full")
    assert "it is not an ordinary file" in run.fails(
        *filled(arguments, files=folder, target=target)
    )
    written.unlink()

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(Path, "mkdir", read_only)
    assert "Read-only file system" in run.fails(*filled(arguments, files=folder, target=target))
    assert list(tmp_path.iterdir()) == []


@contextmanager
def no_room(n_bytes: int = 512) -> Iterator[None]:
    """Be on a disk where files stay that small: no longer than needed, as pytest writes files
    too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("n_bytes", [100, 700])
@pytest.mark.parametrize(
    "arguments",
    [
        "fit {files}/train.csv -o {out}/m.safetensors --model means",
        "fit {files}/train.csv -o {out}/m.model --model means",
        "split {files}/train.csv -o {out}/parts",
        "split {files}/train.csv -o {out}/parts --format store",
        "pack {files}/train.csv -o {out}/r.store",
        "predict {files}/means.safetensors {files}/train.csv -o {out}/p.csv",
        "predict {files}/means.safetensors {files}/train.csv -o {out}/p.parquet",
        "complete {files}/means.safetensors -o {out}/c.csv",
    ],
)
def test_a_full_disk_leaves_nothing(
    run: Any, folder: Path, tmp_path: Path, arguments: str, n_bytes: int
) -> None:
    with no_room(n_bytes):
        said = run.fails(*filled(arguments, files=folder, out=tmp_path))
    assert "could not be written" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "predict {files}/means.safetensors {files}/known.csv",
        "inspect {files}/means.safetensors --json",
        "datasets list",
    ],
)
def test_a_full_standard_output(
    capsys: pytest.CaptureFixture[str],
    run: Any,
    folder: Path,
    arguments: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", full)
        assert "(No space left on device)" in run.fails(*filled(arguments, files=folder))


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.slow
def test_a_full_or_closed_output_of_the_process(unbuffered: str) -> None:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    command = " ".join([*COMMAND, "--version"])
    for there, code, said in (
        (
            ">/dev/full",
            2,
            "deepmf: standard output could not be written (No space left on device)\n",
        ),
        (">/dev/full 2>/dev/full", 2, ""),
        (">&-", 0, ""),
    ):
        ended = subprocess.run(
            ["sh", "-c", f"{command} {there}"], capture_output=True, text=True, env=environment
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", said), there


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("recommend {files}/means.safetensors --row Nobody", "row 'Nobody' is not known"),
        ("explain {files}/means.safetensors --column 1", "give either --row ID"),
        ("explain {files}/means.safetensors --row 1 --column 1 --axis up", "got 'up'"),
        (
            "explain {files}/means.safetensors --history h --column 1 --axis column",
            "--axis column needs --row",
        ),
        ("similar {files}/means.safetensors", "either --column ID"),
        ("similar {files}/means.safetensors --row 1 --column 1", "either --column ID"),
        ("complete {files}/means.safetensors -o c", ".parquet; got 'c'"),
        ("datasets fetch ml-2m", "no data set 'ml-2m'"),
        ("inspect {files}/train.csv --scale 1,2", "the scale is one of 1, 2"),
        ("inspect {files}/train.csv --row who", "no column 'who'"),
        ("fit {files}/train.csv -o m --device gpu", "got 'gpu'"),
        ("fit {files}/train.csv -o m --model als --device cpu", "ALS takes no --device"),
        ("fit {files}/train.csv -o m --model means --effort quick", "Means takes no --effort"),
        ("fit {files}/train.csv -o m --config {files}", "is a directory"),
        ("reproduce table1 --device gpu", "got 'gpu'"),
        ("evaluate {files}/means.safetensors {files}/test.csv --report -", "standard output; give"),
        ("fit {files}/train.csv -o -", "standard output; give"),
    ],
)
@pytest.mark.usefixtures("nothing_written")
def test_wrong_words(run: Any, folder: Path, arguments: str, message: str) -> None:
    assert message in run.fails(*filled(arguments, files=folder))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit - -o m", "standard input, line 2"),
        ("inspect -", "standard input, line 2"),
        ("complete {files}/means.safetensors -o c.csv --extend -", "standard input, line 2"),
        ("fit {files}/train.csv -o m --config -", "standard input is not a TOML"),
    ],
)
@pytest.mark.usefixtures("nothing_written")
def test_wrong_standard_input_is_called_so(
    run: Any, folder: Path, arguments: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO(b"user,film,stars\nann,Alien,good\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=content))
    assert f"deepmf: {message}" in run.fails(*filled(arguments, files=folder))
    assert "deepmf: standard input is empty" in run.fails(*filled(arguments, files=folder))
    monkeypatch.setattr(sys, "stdin", None)
    assert "deepmf: standard input is closed" in run.fails(*filled(arguments, files=folder))


@pytest.fixture
def in_the_foreground() -> Iterator[None]:
    """Ctrl-C interrupts the tests, also where a shell started them in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("in_the_foreground")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ctrl_c_while_completing_leaves_nothing(
    run: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    rounds = []

    def interrupted(*known: Any, **named: Any) -> Iterator[Any]:
        for _ in range(1000):
            rounds.append(1)
            yield from complete_rows(*known, **named)
            # on a busy machine polars may swallow the first: people press it again
            if len(rounds) % 100 == 2:
                signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)

    monkeypatch.setattr("deepmf.models.completion.complete_rows", interrupted)
    assert run("complete", folder / "means.safetensors", "-o", tmp_path / f"c.{ending}") == (
        130,
        "",
        "",
    )
    assert len(rounds) < 500
    assert list(tmp_path.iterdir()) == []
