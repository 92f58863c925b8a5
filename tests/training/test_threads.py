"""Threads: no more than there are free cores, the user's number wins, and nothing is changed afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from deepmf.data.synthetic.generator import generate
from deepmf.models.factorization.als import ALS
from deepmf.training import threads
from deepmf.training.history import EpochRecord, History
from deepmf.training.threads import free_cores, training_threads


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Eight cores, of which torch uses all, and nobody else any."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr(threads, "_affinity", lambda: 8)
    monkeypatch.setattr(threads, "_quota", lambda: float("inf"))
    monkeypatch.setattr(threads, "_BETWEEN", 0.0)
    running(monkeypatch, 1)
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield
    torch.set_num_threads(before)


def running(monkeypatch: pytest.MonkeyPatch, *counts: int | None) -> None:
    """Have so many threads running, ourselves among them, at one look after the other."""
    looks = [*counts] * 100
    monkeypatch.setattr(threads, "_running", lambda: looks.pop(0))


@pytest.mark.parametrize(
    ("counts", "free"),
    [([1], 8), ([2], 7), ([4], 5), ([8], 1), ([50], 1), ([None], 8), ([1, 9, 1, 1, 9], 8), ([9, 9, 1, 9, 1], 1)],
)
def test_free_cores(monkeypatch: pytest.MonkeyPatch, counts: list[int | None], free: int) -> None:
    running(monkeypatch, *counts)
    assert free_cores() == free


def test_only_cores_that_this_process_may_use_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_affinity", lambda: 4)
    running(monkeypatch, 4)
    assert free_cores() == 4  # the others have room beside us
    for quota, free in ((2.5, 2), (0.5, 1), (100.0, 4)):
        monkeypatch.setattr(threads, "_quota", lambda quota=quota: quota)
        assert free_cores() == free


def test_a_busy_machine_gets_fewer_threads_while_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 7)
    used: list[int] = []
    matrix = generate(20, 15, density=0.4, seed=0).matrix
    model = ALS(epochs=2, latent_size=2).fit(matrix, callbacks=[lambda *_: used.append(torch.get_num_threads())])
    assert used == [2, 2] and model.history_.threads == 2
    assert torch.get_num_threads() == 8
    with pytest.raises(ZeroDivisionError), training_threads():
        assert torch.get_num_threads() == 2
        raise ZeroDivisionError
    assert torch.get_num_threads() == 8


def test_the_number_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 50)
    torch.set_num_threads(3)
    with training_threads() as chosen:
        assert torch.get_num_threads() == 3
        chosen.go_on_with(2)
        assert torch.get_num_threads() == 3
    torch.set_num_threads(8)
    with training_threads("auto"):
        assert torch.get_num_threads() == 1
    with monkeypatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: True)
        with training_threads("auto"):
            assert torch.get_num_threads() == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    with training_threads():
        assert torch.get_num_threads() == 8


def test_a_training_goes_on_with_as_many_as_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 7)
    with training_threads() as chosen:
        chosen.go_on_with(4)
        assert torch.get_num_threads() == 4
        for other in (None, 0, 9, 10**12):  # this machine has no such number
            chosen.go_on_with(other)
            assert torch.get_num_threads() == 4
    assert torch.get_num_threads() == 8


def test_a_killed_fit_goes_on_with_as_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    def stop(record: EpochRecord, _: History) -> None:
        used.append(torch.get_num_threads())
        if len(used) == 2:
            raise ZeroDivisionError

    matrix = generate(20, 15, density=0.4, seed=0).matrix
    how = {"callbacks": [stop], "checkpoint": tmp_path / "c", "checkpoint_every": 1}
    running(monkeypatch, 7)
    with pytest.raises(ZeroDivisionError):
        ALS(epochs=3, latent_size=2).fit(matrix, **how)
    running(monkeypatch, 1)
    ALS(epochs=3, latent_size=2).fit(matrix, **how)
    assert used == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("content", "quota"), [("200000 100000\n", 2.0), ("max 100000\n", float("inf")), ("odd\n", float("inf"))]
)
def test_quotas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, quota: float) -> None:
    monkeypatch.undo()
    (tmp_path / "cpu.max").write_text(content)
    assert threads._quota(tmp_path / "cpu.max") == quota
    assert threads._quota(tmp_path / "absent") == float("inf")


def test_who_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (tmp_path / "stat").write_text("cpu  1 2 3\nprocs_running 5\nprocs_blocked 0\n")
    assert threads._running(tmp_path / "stat") == 5
    (tmp_path / "stat").write_text("cpu  1 2 3\n")
    assert threads._running(tmp_path / "stat") is None
    assert threads._running(tmp_path / "absent") is None
