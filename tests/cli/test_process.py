"""The process of a command: truncated files, and processes that torchrun started."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run
from tests.rank_processes import ROOT, environment

import deepmf
from deepmf.cli import process
from deepmf.errors import BadSetting
from deepmf.models.loading import load
from deepmf.storage.model_file import read_file

CUT = """
import sys, threading
import numpy as np
from deepmf.cli.process import report_truncated_files
path, where = sys.argv[1:]
np.zeros(1 << 22, dtype=np.float32).tofile(path)
array = np.memmap(path, dtype=np.float32, mode="r")
with report_truncated_files():
    open(path, "r+b").truncate(4096)
    if where == "torch":
        import torch, warnings
        warnings.simplefilter("ignore")
        torch.set_num_threads(4)
        print(torch.from_numpy(np.asarray(array)).sum())
    elif where == "thread":
        thread = threading.Thread(target=lambda: print(array.sum()))
        thread.start()
        thread.join()
    else:
        print(array.sum())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
@pytest.mark.parametrize("where", ["main", "thread", "torch"])
def test_a_file_that_is_cut_off_while_it_is_read(tmp_path: Path, where: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CUT, str(tmp_path / "array"), where],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(Path(deepmf.__file__).parents[1])},
    )
    assert ended.returncode == 2, ended
    assert ended.stderr.startswith("deepmf: ") and "truncated" in ended.stderr and ended.stderr.count("\n") == 1


SETTINGS = [
    *("hidden_sizes=16,", "latent_size=4", "dropout=0.2", "validate_every=5", "epochs=30", "views=4", "linear_size=2"),
    *("linear_iterations=4", "presence=none"),
    *("landmarks=8", "block_rows=20", "block_columns=15", "patience=30"),
]

FIT = [*(word for setting in SETTINGS for word in ("--set", setting)), "--device", "cpu"]

TOLD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def torchrun_deepmf(*arguments: object, job: tuple[str, ...] = ("-m", "deepmf")) -> subprocess.CompletedProcess[str]:
    """Run two processes by torchrun."""
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *job]
        + [str(argument) for argument in arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def said_by_us(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("deepmf: ") and "of the means" not in line]


@pytest.fixture(scope="module")
def fitted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A model that two processes have fitted, and what they said."""
    output = tmp_path_factory.mktemp("torchrun") / "model.safetensors"
    return output, torchrun_deepmf("fit", folder / "train.csv", "-o", output, *FIT)


@pytest.mark.slow
def test_one_process_speaks_and_writes(fitted: tuple[Path, subprocess.CompletedProcess[str]], folder: Path) -> None:
    output, ended = fitted
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("fitted OrdinalDMF to") == ended.stdout.count("saved in") == 1
    assert said_by_us(ended.stderr) == []
    assert [file.name for file in output.parent.iterdir()] == [output.name]


@pytest.mark.slow
def test_the_model_is_that_of_one_process(
    fitted: tuple[Path, subprocess.CompletedProcess[str]], folder: Path, tmp_path: Path, run: Run
) -> None:
    alone = tmp_path / "alone.safetensors"
    assert run("fit", folder / "train.csv", "-o", alone, *FIT).code == 0
    one, two = load(alone), load(fitted[0])
    rows, columns, _ = one.entries_.train.entries()
    np.testing.assert_allclose(two.predict(rows, columns), one.predict(rows, columns), atol=0.02)


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_ends_with_the_same_weights(
    fitted: tuple[Path, subprocess.CompletedProcess[str]], folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "model.safetensors"
    job = "--max-restarts", "1", str(Path(__file__).with_name("torchrun_job.py"))
    ended = torchrun_deepmf("fit", folder / "train.csv", "-o", output, "--resume", *FIT, job=job)
    assert ended.returncode == 0, ended.stderr
    complaints = said_by_us(ended.stderr)
    assert len(complaints) <= 1 and all("lost each other" in line for line in complaints)
    assert [file.name for file in tmp_path.iterdir()] == [output.name]  # the checkpoint is gone
    expected, found = (read_file(path, kind="model").tensors for path in (fitted[0], output))
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


@pytest.mark.slow
def test_errors_are_said_once(folder: Path, tmp_path: Path) -> None:
    ended = torchrun_deepmf("fit", folder / "train.csv", "-o", tmp_path / "model.safetensors", "--model", "als")
    assert ended.returncode != 0
    (said,) = said_by_us(ended.stderr)
    assert re.match("deepmf: ALS .*2 .*OrdinalDMF", said)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torchrun tells the second of two processes; nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, value in (TOLD | {"MASTER_PORT": str(port)}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)


def test_a_process_alone_speaks() -> None:
    assert process.is_first() and process.may_complain()
    assert not process.is_one_of_several() and not process.is_restarted()
    process.check_command("predict")


@pytest.mark.usefixtures("second")
def test_the_second_of_two_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process.is_one_of_several() and not process.is_first()
    assert not process.may_complain(seconds_to_connect=0.1)
    assert not process.is_restarted()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert process.is_restarted()
    monkeypatch.setenv("RANK", "0")
    assert process.is_first() and process.may_complain(seconds_to_connect=0.1)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not process.is_one_of_several()


@pytest.mark.usefixtures("second")
def test_other_commands_are_refused() -> None:
    process.check_command("fit")
    with pytest.raises(BadSetting, match="only fit"):
        process.check_command("predict")


@pytest.mark.usefixtures("second")
def test_restarts_on_several_machines_need_stores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("GROUP_WORLD_SIZE", "2"),
        ("TORCHELASTIC_MAX_RESTARTS", "1"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
    ):
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(BadSetting, match="TORCH_DISABLE_SHARE"),
        process.join_processes(),
    ):
        pass
