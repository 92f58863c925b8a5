"""Processes that torchrun started: one speaks and writes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.forks import FORKS, run_here
from tests.waiting import PATIENCE
from torch.distributed import TCPStore

import deepmf
from deepmf.cli import process
from deepmf.errors import BadSetting
from deepmf.storage.model_file import read_file
from deepmf.training.loop import Epoch
from deepmf.training.trainer import Trainer

SETTINGS = [
    *(
        "hidden_sizes=16,",
        "latent_size=4",
        "dropout=0.2",
        "validate_every=9",
        "epochs=27",
        "patience=27",
        "views=2",
    ),
    *(
        "linear_size=2",
        "linear_iterations=4",
        "presence=none",
        "landmarks=8",
        "block_rows=30",
        "block_columns=20",
    ),
]

FIT = [*(word for setting in SETTINGS for word in ("--set", setting)), "--device", "cpu"]

TOLD = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}


class Ended(NamedTuple):
    """What two processes left behind."""

    codes: list[int]
    out: str
    err: str


def open_store() -> TCPStore:
    """Open the store that processes meet at, which torchrun holds."""
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def run_two(
    folder: Path, store: TCPStore, *arguments: object, attempt: int = 0, dies_in: int | None = None
) -> Ended:
    """Run a command in two processes as torchrun does."""
    told = TOLD | {"MASTER_PORT": str(store.port), "TORCHELASTIC_RESTART_COUNT": str(attempt)}
    output, log = folder / f"output {attempt}", folder / f"log {attempt}"
    words = [str(argument) for argument in arguments]
    processes = [
        FORKS.Process(
            target=fit_and_die,
            args=(dies_in if rank else None, words, output, log, told | {"RANK": str(rank)}),
        )
        for rank in (0, 1)
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join(PATIENCE)
        each.kill()
    return Ended([each.exitcode for each in processes], output.read_text(), log.read_text())


def fit_and_die(
    epoch: int | None, words: list[str], output: Path, log: Path, environment: dict[str, str]
) -> None:
    """Run `deepmf` in this process, which dies in an epoch, unless that is None."""
    run_epoch = Trainer.run_epoch

    def run_or_die(trainer: Trainer, number: int) -> Epoch:
        if number == epoch:
            os.kill(os.getpid(), signal.SIGKILL)
        return run_epoch(trainer, number)

    Trainer.run_epoch = run_or_die  # type: ignore[method-assign]
    run_here(words, output, log, environment)


def said_by_us(text: str) -> list[str]:
    return [
        line
        for line in text.splitlines()
        if line.startswith("deepmf: ") and "of the means" not in line
    ]


@pytest.fixture(scope="module")
def fitted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A model that two processes have fitted, and what they said."""
    output = tmp_path_factory.mktemp("two") / "model.safetensors"
    return output, run_two(
        tmp_path_factory.mktemp("said"),
        open_store(),
        "fit",
        folder / "train.csv",
        "-o",
        output,
        *FIT,
    )


@pytest.mark.slow
def test_one_process_speaks_and_writes(fitted: tuple[Path, Ended]) -> None:
    output, ended = fitted
    assert ended.codes == [0, 0], ended.err
    assert ended.out.count("fitted OrdinalDMF to") == ended.out.count("saved in") == 1
    assert said_by_us(ended.err) == []
    assert [file.name for file in output.parent.iterdir()] == [output.name]


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_ends_with_the_same_weights(
    fitted: tuple[Path, Ended], folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "models" / "model.safetensors"
    output.parent.mkdir()
    store = open_store()
    words = "fit", folder / "train.csv", "-o", output, "--resume", *FIT
    lost = run_two(tmp_path, store, *words, dies_in=26)  # behind the checkpoint of epoch 25
    assert lost.codes == [2, -signal.SIGKILL]
    (said,) = said_by_us(lost.err)
    assert "lost each other" in said
    ended = run_two(tmp_path, store, *words, attempt=1)
    assert ended.codes == [0, 0], ended.err
    assert said_by_us(ended.err) == []
    # the checkpoint is gone
    assert [file.name for file in output.parent.iterdir()] == [output.name]
    expected, found = (read_file(path, kind="model").tensors for path in (fitted[0], output))
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


JOB = """
import os
from deepmf.cli.app import main
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
main()
"""


@pytest.mark.slow
def test_torchrun_starts_processes_as_these_tests_do_and_each_reports_its_error(
    folder: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    torchrun = [sys.executable, *"-m torch.distributed.run --standalone --nproc-per-node 2".split()]
    ended = subprocess.run(
        [
            *torchrun,
            job,
            *f"fit {folder}/train.csv -o {tmp_path}/model.safetensors --model als".split(),
        ],
        env=os.environ | {"PYTHONPATH": str(Path(deepmf.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode != 0
    (said,) = set(said_by_us(ended.stderr))
    assert re.match("deepmf: ALS .*2 .*OrdinalDMF", said)
    assert list(tmp_path.iterdir()) == [job]


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torchrun tells the second of two processes."""
    for name, value in (TOLD | {"RANK": "1", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)


@pytest.mark.usefixtures("second")
def test_other_commands_are_refused() -> None:
    process.check_command("fit")
    with pytest.raises(BadSetting, match="fit"):
        process.check_command("predict")
