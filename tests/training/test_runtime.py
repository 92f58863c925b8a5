"""The runtime: its device and precision, its private dice."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from deepmf.datasets import generate
from deepmf.errors import DeviceUnavailable
from deepmf.models.als import ALS
from deepmf.training import runtime, threads
from deepmf.training.history import EpochRecord, History
from deepmf.training.runtime import GraphFunction, Runtime, make_generator
from deepmf.training.threads import (
    count_free_cores,
    count_free_main_bytes,
    keep_numpy_to_one_thread,
    limit_blas_threads,
    limit_threads,
)


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("without_gpu")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(DeviceUnavailable) as caught:
        Runtime("cuda")
    assert re.match("device 'cuda' .*no GPU.*device='cpu'", str(caught.value))


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize("device", ["auto", "cpu"])
@pytest.mark.parametrize("precision, half", [("auto", False), ("single", False), ("half", True)])
def test_on_a_cpu(device: str, precision: str, half: bool) -> None:
    runtime = Runtime(device, precision)
    assert runtime.device == torch.device("cpu") and not runtime.is_gpu
    assert runtime.half == half
    with runtime.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if half else torch.float32)
    assert runtime.describe() == f"CPU, {torch.get_num_threads()} threads"


@pytest.mark.parametrize("device, is_gpu", [("auto", True), ("cuda", True), ("cpu", False)])
def test_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch, device: str, is_gpu: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    runtime = Runtime(device)
    assert runtime.is_gpu == is_gpu == (runtime.device.type == "cuda")
    assert runtime.half == is_gpu
    assert not Runtime(device, "single").half


def test_a_step_is_repeated_as_it_is_on_a_cpu() -> None:
    def step() -> None:
        raise AssertionError("a step is not to be run yet")

    for static_shapes in (True, False):
        assert Runtime("cpu").capture(step, [], static_shapes=static_shapes) is step


def test_private_generators_are_the_same_for_a_seed_and_a_purpose_alone() -> None:
    def draws(seed: int, purpose: str) -> torch.Tensor:
        return torch.rand(64, generator=make_generator(seed, purpose))

    assert torch.equal(draws(3, "walk"), draws(3, "walk"))
    kinds = [
        (seed, purpose)
        for seed in (0, 1, 2**40)
        for purpose in ("weights", "walk", "dropout", "w", "")
    ]
    for one, other in combinations(kinds, 2):
        assert not torch.equal(draws(*one), draws(*other)), (one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_graph_of_an_earlier_training_does_not_spoil_the_next_recording() -> None:
    runtime, total = Runtime("cuda"), torch.zeros((), device="cuda")

    def step() -> None:
        cycles: list[list[object]] = [[] for _ in range(100)]  # enough for the collector to run
        for cycle in cycles:
            cycle.append(cycle)
        total.add_(1)

    def record() -> None:
        replayed = runtime.capture(step, [], static_shapes=True)
        for _ in range(5):
            replayed()
        kept: list[object] = [replayed]
        kept.append(kept)  # only the collector finds it

    before = gc.get_threshold()
    gc.set_threshold(10, 1, 1)
    try:
        record()
        record()
    finally:
        gc.set_threshold(*before)
    assert float(total) == 2 * 5 and gc.isenabled()


def test_numpy_keeps_to_one_thread_and_torch_does_not() -> None:
    def read_threads() -> set[int]:
        return {
            pool["num_threads"]
            for pool in threadpool_info()
            if pool.get("threading_layer") == "pthreads"
        }

    if not read_threads():
        pytest.skip("numpy uses no OpenBLAS with threads of its own")
    with threadpool_limits(2, user_api="blas"):
        with keep_numpy_to_one_thread():
            assert read_threads() == {1} and torch.get_num_threads() == 8
        assert read_threads() == {2}
        # as two threads may enter and leave them
        first, second = keep_numpy_to_one_thread(), limit_blas_threads(1)
        first.__enter__(), second.__enter__(), first.__exit__(None, None, None)
        assert read_threads() == {1}
        second.__exit__(None, None, None)
        assert read_threads() == {2}


def test_a_recorded_function_copies_its_arguments_and_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Graph:
        """Runs the step again where a GPU would replay its kernels."""

        def __init__(self, step: Callable[[], None]) -> None:
            step()
            self.replay = step

    monkeypatch.setattr(runtime, "record_graph", Graph)
    calls = []

    def add(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append((one.data_ptr(), other.data_ptr()))
        return one + other, one - other

    recorded = GraphFunction(add)
    one = torch.ones(2)
    found = [recorded(one * number, one) for number in range(6)]
    assert [[float(each[0]) for each in results] for results in found] == [
        [n + 1.0, n - 1.0] for n in range(6)
    ]
    assert len(set(calls[3:])) == 1  # the recorded kernels read the same memory every time


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_recorded_function_returns_what_the_function_does() -> None:
    table = torch.randn(40, 30, generator=make_generator(0, "table", "cuda"), device="cuda")

    def solve(target: torch.Tensor, strength: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        system = table.mT @ table + strength * torch.eye(30, device="cuda")
        lower = torch.linalg.cholesky_ex(system.repeat(5, 1, 1)).L
        return torch.linalg.solve_triangular(lower, target, upper=False), strength.sum(
            dtype=torch.float64
        )

    recorded = GraphFunction(solve)
    for number in range(8):
        target = torch.full((5, 30, 2), float(number), device="cuda")
        strength = torch.tensor(1.0 + number, device="cuda")
        for one, other in zip(recorded(target, strength), solve(target, strength), strict=True):
            torch.testing.assert_close(one, other)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Eight cores, of which torch uses all, and nobody else any."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(threads, "read_quota", lambda: float("inf"))
    running(monkeypatch, 1)
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield
    torch.set_num_threads(before)


def running(monkeypatch: pytest.MonkeyPatch, *counts: int | None) -> None:
    """Have so many threads running, ourselves among them, at one look after the other."""
    looks = [*counts] * 100
    monkeypatch.setattr(threads, "count_running", lambda: looks.pop(0))


@pytest.mark.parametrize(
    ("counts", "free"),
    [
        ([1], 8),
        ([2], 7),
        ([4], 5),
        ([8], 1),
        ([50], 1),
        ([None], 8),
        ([1, 9, 1, 1, 9], 8),
        ([9, 9, 1, 9, 1], 1),
    ],
)
def test_free_cores(monkeypatch: pytest.MonkeyPatch, counts: list[int | None], free: int) -> None:
    running(monkeypatch, *counts)
    assert count_free_cores() == free


def test_only_cores_that_this_process_may_use_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    running(monkeypatch, 4)
    assert count_free_cores() == 4  # the others have room beside us
    for quota, free in ((2.5, 2), (0.5, 1), (100.0, 4)):
        monkeypatch.setattr(threads, "read_quota", lambda quota=quota: quota)
        assert count_free_cores() == free


def test_few_entries_are_trained_on_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 1)
    used: list[int] = []
    matrix = generate(20, 15, density=0.4, seed=0).matrix
    model = ALS(epochs=2, latent_size=2).fit(
        matrix, callbacks=[lambda *_: used.append(torch.get_num_threads())]
    )
    assert used == [1, 1] and model.history_.threads == 1
    with limit_threads(n_entries=99_999):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 8


def test_a_busy_machine_gets_fewer_threads_while_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 7)
    with pytest.raises(ZeroDivisionError), limit_threads():
        assert torch.get_num_threads() == 2
        raise ZeroDivisionError
    assert torch.get_num_threads() == 8


def test_the_number_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 50)
    torch.set_num_threads(3)
    with limit_threads() as chosen:
        assert torch.get_num_threads() == 3
        chosen.resume_with(2)
        assert torch.get_num_threads() == 3
    torch.set_num_threads(8)
    with limit_threads("auto"):
        assert torch.get_num_threads() == 1
    with monkeypatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: True)
        with limit_threads("auto"):
            assert torch.get_num_threads() == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    with limit_threads():
        assert torch.get_num_threads() == 8


def test_a_training_goes_on_with_as_many_as_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 7)
    with limit_threads() as chosen:
        chosen.resume_with(4)
        assert torch.get_num_threads() == 4
        for other in (None, 0, 9, 10**12):  # this machine has no such number
            chosen.resume_with(other)
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
    monkeypatch.setattr(threads, "_FEWEST_FOR_THREADS", 1)
    running(monkeypatch, 7)
    with pytest.raises(ZeroDivisionError):
        ALS(epochs=3, latent_size=2).fit(matrix, **how)
    running(monkeypatch, 1)
    ALS(epochs=3, latent_size=2).fit(matrix, **how)
    assert used == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("content", "quota"),
    [("200000 100000\n", 2.0), ("max 100000\n", float("inf")), ("odd\n", float("inf"))],
)
def test_quotas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, quota: float
) -> None:
    monkeypatch.undo()
    (tmp_path / "cpu.max").write_text(content)
    assert threads.read_quota(tmp_path / "cpu.max") == quota
    assert threads.read_quota(tmp_path / "absent") == float("inf")


def test_who_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (tmp_path / "stat").write_text("cpu  1 2 3\nprocs_running 5\nprocs_blocked 0\n")
    assert threads.count_running(tmp_path / "stat") == 5
    (tmp_path / "stat").write_text("cpu  1 2 3\n")
    assert threads.count_running(tmp_path / "stat") is None
    assert threads.count_running(tmp_path / "absent") is None


CPU = torch.device("cpu")


def test_free_memory_is_what_linux_gives_and_the_container_leaves(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:    2 kB\n")
    assert count_free_main_bytes(meminfo=meminfo, group=tmp_path) == 2048
    for name, text in (
        ("memory.current", "300\n"),
        ("memory.stat", "anon 200\ninactive_file 50\n"),
    ):
        (tmp_path / name).write_text(text)
    for limit, left in (("max", 2048), ("1000", 750), ("10000", 2048), ("200", 0)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert count_free_main_bytes(meminfo=meminfo, group=tmp_path) == left
    # all, or not known
    assert count_free_main_bytes(meminfo=tmp_path / "absent", group=tmp_path / "absent") != 0
