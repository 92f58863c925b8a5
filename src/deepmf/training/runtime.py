"""The runtime of a training: device, precision, ranks, threads, free memory and random generators.

The loop gets all of these here, so that it is the same on a CPU and a GPU, in one process and in
several."""

from __future__ import annotations

import gc
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import DeviceUnavailable

# environment variables for the number of threads
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

_SAMPLES, _SECONDS_BETWEEN = 5, 0.002  # of the number of running threads

_FEWEST_FOR_THREADS = 100_000  # entries, from which on several threads are faster than one


@dataclass(frozen=True)
class Threads:
    """The CPU threads of one training; a number that the user has set (`is_given`) stays."""

    is_given: bool

    def resume_with(self, number: int | None) -> None:
        """Use as many threads as the training began with, so that a resumed training ends with the
        same bits."""
        if number is not None and 1 <= number <= _count_allowed_cores() and not self.is_given:
            torch.set_num_threads(number)


@contextmanager
def limit_threads(
    device: str = "cpu", *, n_entries: int = _FEWEST_FOR_THREADS
) -> Iterator[Threads]:
    """Limit torch to the free cores during a training on a CPU, unless the user has set a number of
    threads.

    A few entries are learned from in one thread: two would wait for each other.
    """
    before = torch.get_num_threads()
    is_given = _is_given(before) or (device != "cpu" and torch.cuda.is_available())
    if before > 1 and not is_given:
        torch.set_num_threads(
            1 if n_entries < _FEWEST_FOR_THREADS else min(before, count_free_cores())
        )
    try:
        yield Threads(is_given)
    finally:
        torch.set_num_threads(before)


@contextmanager
def limit_blas_threads(number: int) -> Iterator[None]:
    """Limit numpy and torch to some threads, if threadpoolctl is there."""
    with _limit_shared_threads(number) as pools:
        if pools is None:
            yield
            return
        others = pools.select(user_api="openmp", threading_layer=["openmp", "intel", "gnu", "tbb"])
        with others.limit(limits=number):
            yield


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Let torch and, with threadpoolctl, numpy use some threads; for work so small that more would
    wait for others."""
    before = torch.get_num_threads()
    try:
        with limit_blas_threads(number):
            torch.set_num_threads(number)
            yield
    finally:
        torch.set_num_threads(before)


def keep_numpy_to_one_thread() -> AbstractContextManager[Any]:
    """Keep numpy and scipy to one thread each, if threadpoolctl is there; torch, whose BLAS uses
    OpenMP, keeps its own.

    Fits call them for many small matrices. The threads of OpenBLAS wait for each other there, and
    take the cores from
    torch: with them, sweeps of ALS and iterations of BayesianMF on two cores take 1.4 times as
        long.
    """
    return _limit_shared_threads(1)


# OpenBLAS has one number of threads for the whole process: the first limit keeps the number from
# before, and the last one to end restores it, whichever thread that is.
_SHARED_LOCK = threading.Lock()
_shared_limits: list[int] = []
_shared_before: list[Any] = []


@contextmanager
def _limit_shared_threads(number: int) -> Iterator[Any]:
    """Limit OpenBLAS; yield all thread pools of compiled libraries, None without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController
    except ModuleNotFoundError:
        yield None
        return
    pools = ThreadpoolController()
    own = pools.select(threading_layer="pthreads")
    with _SHARED_LOCK:
        if not _shared_limits:
            _shared_before[:] = [own.limit(limits=None)]
        _shared_limits.append(number)
        own.limit(limits=min(_shared_limits))
    try:
        yield pools
    finally:
        with _SHARED_LOCK:
            _shared_limits.remove(number)
            if _shared_limits:
                own.limit(limits=min(_shared_limits))
            else:
                _shared_before.pop().restore_original_limits()


# The time of a round of `measure_slowness` on an idle core of the machine whose seconds estimates
# are in, and the rounds: enough to wait for other programs several times.
_USUAL_SECONDS, _ROUNDS = 0.004, 16


def measure_slowness(n_entries: int) -> float:
    """Return how long a fit to some entries takes on the CPU now, as a multiple of the time of one
    idle core.

    Solves small systems, which other programs slow down as they do a fit.
    """
    factors = torch.randn(2000, 16, generator=make_generator(0, "probe"), dtype=torch.float32)
    places = torch.arange(500 * 64).remainder(1999).view(500, 64)
    with limit_threads(n_entries=n_entries):
        n_threads = torch.get_num_threads()
    with use_threads(1):
        start = time.monotonic()
        for _ in range(_ROUNDS):
            lines = factors[places]
            torch.linalg.cholesky(lines.mT @ lines + 10.0 * torch.eye(16))
        seconds = time.monotonic() - start
    return seconds / _ROUNDS / _USUAL_SECONDS / float(n_threads**0.8)


def count_free_cores() -> int:
    """Count the cores that this process may use and other programs do not use now; at least 1.

    Only Linux reports what other programs use; elsewhere all cores count as free.
    """
    samples = [count_running()]
    while samples[0] is not None and len(samples) < _SAMPLES:
        time.sleep(_SECONDS_BETWEEN)
        samples.append(count_running())
    # without this thread
    others = statistics.median_low([each - 1 for each in samples if each is not None] or [0])
    return max(1, min(_count_allowed_cores(), (os.cpu_count() or 1) - others))


def _is_given(current: int) -> bool:
    """Whether the user has set the number of threads, in the environment or in torch."""
    cores = {_read_affinity(), os.cpu_count() or 1}
    # with two threads per core, torch may count cores
    defaults = cores | {max(1, count // 2) for count in cores}
    return any(os.environ.get(name) for name in _THREAD_VARIABLES) or current not in defaults


def _count_allowed_cores() -> int:
    """Count the cores that the system lets this process use."""
    return max(1, int(min(_read_affinity(), read_quota())))


def _read_affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_quota(file: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Return the CPU limit of a container in cores; infinite without a limit."""
    try:
        share, period = file.read_text(encoding="ascii").split()
        return float("inf") if share == "max" else int(share) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")


def count_running(file: Path = Path("/proc/stat")) -> int | None:
    """Count the threads of this computer that run or are ready to; None if the system does not
    report it."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
        return max(
            1, next(int(line.split()[1]) for line in lines if line.startswith("procs_running "))
        )
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def count_free_bytes(
    device: torch.device,
    *,
    meminfo: Path = Path("/proc/meminfo"),
    group: Path = Path("/sys/fs/cgroup"),
) -> int | None:
    """Count the free bytes of memory of a device; None if the system does not report them."""
    if device.type == "cuda":
        # Memory that torch caches for later tensors is not free to the driver.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    known = [
        each for each in (_read_available(meminfo), _read_group_limit(group)) if each is not None
    ]
    return min(known, default=None)


def _read_available(meminfo: Path) -> int | None:
    """Return the memory that Linux can give without swapping; elsewhere all physical memory."""
    with suppress(OSError):
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    with suppress(AttributeError, ValueError, OSError):  # not on Windows
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _read_group_limit(folder: Path) -> int | None:
    """Return the memory that the limit of a container leaves; its inactive file cache counts as
    free."""
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        limit, used = (
            int((folder / name).read_text(encoding="ascii"))
            for name in ("memory.max", "memory.current")
        )
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        stat = dict(line.split() for line in lines)
        return max(0, limit - used + int(stat.get("inactive_file", 0)))
    return None


Step = Callable[[], None]

# Steps to run before a CUDA graph is recorded, so that the libraries underneath are initialised.
_WARM_UP_STEPS = 3


class Runtime:
    """A device, a precision, and the processes that train together.

    Several processes of torch's default process group, which `torchrun` starts, train one network.
    """

    def __init__(self, device: str = "auto", precision: str = "auto") -> None:
        from deepmf.nn.ranks import find_ranks

        has_gpu = torch.cuda.is_available()
        if device == "cuda" and not has_gpu:
            raise DeviceUnavailable(
                "device 'cuda' was requested, but torch sees no GPU here; device='cpu' would work"
            )
        self.ranks = find_ranks()
        self.device = torch.device("cuda" if device != "cpu" and has_gpu else "cpu")
        self.is_gpu = self.device.type == "cuda"
        if self.is_gpu and self.ranks is not None:
            self.device = torch.device(
                "cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
            )
            torch.cuda.set_device(self.device)
        self.half = precision == "half" or (precision == "auto" and self.is_gpu)

    @property
    def n_sharing(self) -> int:
        """The number of ranks that share the memory of this device: those on this machine, or on
        this GPU."""
        if self.ranks is None:
            return 1
        n_here = int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks.size))
        return -(-n_here // torch.cuda.device_count()) if self.is_gpu else n_here

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which matrix products run in the chosen precision."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half)

    def capture(
        self, step: Step, generators: Iterable[torch.Generator], *, static_shapes: bool
    ) -> Step:
        """Return the step with the least overhead: on a GPU, the replay of a CUDA graph."""
        can_record = self.is_gpu and static_shapes and self.ranks is None
        return GraphStep(step, list(generators)) if can_record else step

    def agree_on(self, number: float) -> float:
        """Return the number of the first rank, so that all ranks decide alike."""
        return number if self.ranks is None else self.ranks.broadcast(number, self.device)

    def describe(self) -> str:
        """Name the device for a record of results."""
        return (
            torch.cuda.get_device_name(self.device)
            if self.is_gpu
            else f"CPU, {torch.get_num_threads()} threads"
        )


def make_generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a private generator for one purpose of a seed; the global generators are never
    used."""
    state = np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1, dtype=np.uint64)
    return torch.Generator(device=device).manual_seed(int(state[0]) >> 1)


class GraphStep:
    """A step as a CUDA graph: after a few plain steps, one launch replays all its kernels."""

    def __init__(self, step: Step, generators: list[torch.Generator]) -> None:
        self._step = step
        self._generators = generators
        self._graph: torch.cuda.CUDAGraph | None = None
        self._n_run = 0

    @property
    def is_recorded(self) -> bool:
        """Whether the next step replays the graph."""
        return self._graph is not None

    def __call__(self) -> None:
        if self._graph is None and self._n_run < _WARM_UP_STEPS:
            self._n_run += 1
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step()
            torch.cuda.current_stream().wait_stream(side)
            return
        if self._graph is None:
            self._graph = record_graph(self._step, self._generators)
        self._graph.replay()


class GraphFunction:
    """A function of tensors as a CUDA graph: after a few plain calls, one launch replays all its
    kernels.

    Arguments have the same shapes in every call. Results are copies.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]]) -> None:
        self._function = function
        self._graph: torch.cuda.CUDAGraph | None = None
        self._arguments: list[Tensor] = []
        self._results: tuple[Tensor, ...] = ()
        self._n_run = 0

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        if self._n_run < _WARM_UP_STEPS:
            self._n_run += 1
            return self._function(*arguments)
        if self._graph is None:
            self._arguments = [argument.clone() for argument in arguments]
            self._graph = record_graph(self._run)
        for own, argument in zip(self._arguments, arguments, strict=True):
            own.copy_(argument)
        self._graph.replay()
        return tuple(result.clone() for result in self._results)

    def _run(self) -> None:
        self._results = self._function(*self._arguments)


def record_graph(step: Step, generators: Iterable[torch.Generator] = ()) -> torch.cuda.CUDAGraph:
    """Return the kernels of a step as a CUDA graph; nothing is computed yet."""
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    is_collecting = gc.isenabled()
    # if it freed the graph of an earlier fit during this recording, the recording would fail
    gc.disable()
    try:
        # Other threads may use the GPU meanwhile: without this mode, their allocations would spoil
        # the recording.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
    finally:
        if is_collecting:
            gc.enable()
    return graph
