"""The CPU threads and the free memory of a process.

torch is limited if it is loaded; nothing here loads it."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
            set_threads(number)


# Limits of the fits that run now. torch, which has a number of threads for the whole process, may
# be loaded during one.
_limits: list[int] = []


@contextmanager
def limit_threads(
    device: str = "cpu", *, n_entries: int = _FEWEST_FOR_THREADS
) -> Iterator[Threads]:
    """Limit a training on a CPU to the free cores, unless the user has set a number of threads.

    A few entries are learned from in one thread: two would wait for each other.
    """
    before = count_threads()
    is_given = _is_given(before) or (device != "cpu" and _has_gpu())
    limit = before
    if before > 1 and not is_given:
        limit = 1 if n_entries < _FEWEST_FOR_THREADS else min(before, count_free_cores())
    with _keep_threads(limit):
        yield Threads(is_given)


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Let torch and, with threadpoolctl, numpy use some threads; for work so small that more would
    wait for others."""
    with limit_blas_threads(number), _keep_threads(number):
        yield


@contextmanager
def _keep_threads(number: int) -> Iterator[None]:
    before = count_threads()
    _limits.append(number)
    set_threads(number)
    try:
        yield
    finally:
        _limits.remove(number)
        set_threads(before)


def count_threads() -> int:
    """Count the threads of a fit: those of torch, of the environment, or the allowed cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return min([int(torch.get_num_threads()), *_limits])
    texts = [os.environ.get(name, "") for name in _THREAD_VARIABLES]
    numbers = [int(text) for text in texts if text.isdigit()]
    return max(1, min([_count_allowed_cores(), *numbers, *_limits]))


# The time of a round of `measure_slowness` on an idle core of the machine whose seconds estimates
# are in, and the rounds: enough to wait for other programs several times.
_USUAL_SECONDS, _ROUNDS = 0.004, 16


def measure_slowness(n_entries: int) -> float:
    """Return how long a fit to some entries takes on the CPU now, as a multiple of the time of one
    idle core.

    Solves small systems, which other programs slow down as they do a fit.
    """
    factors = np.random.default_rng(0).standard_normal((2000, 16), dtype=np.float32)
    places = (np.arange(500 * 64) % 1999).reshape(500, 64)
    with limit_threads(n_entries=n_entries):
        n_threads = count_threads()
    with use_threads(1):
        start = time.monotonic()
        for _ in range(_ROUNDS):
            lines = factors[places]
            np.linalg.cholesky(lines.mT @ lines + 10.0 * np.eye(16, dtype=np.float32))
        seconds = time.monotonic() - start
    return seconds / _ROUNDS / _USUAL_SECONDS / float(n_threads**0.8)


def set_threads(number: int) -> None:
    """Let torch use some threads, if it is loaded."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(number)


def _has_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


@contextmanager
def limit_blas_threads(number: int) -> Iterator[None]:
    """Limit numpy and torch to some threads, if threadpoolctl is there."""
    with _limit_shared_threads(number) as pools:
        if pools is None:
            yield
            return
        openmp = pools.select(user_api="openmp", threading_layer=["openmp", "intel", "gnu", "tbb"])
        with openmp.limit(limits=number):
            yield


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
    openblas = pools.select(threading_layer="pthreads")
    with _SHARED_LOCK:
        if not _shared_limits:
            _shared_before[:] = [openblas.limit(limits=None)]
        _shared_limits.append(number)
        openblas.limit(limits=min(_shared_limits))
    try:
        yield pools
    finally:
        with _SHARED_LOCK:
            _shared_limits.remove(number)
            if _shared_limits:
                openblas.limit(limits=min(_shared_limits))
            else:
                _shared_before.pop().restore_original_limits()


def count_free_cores() -> int:
    """Count the cores that this process may use and other programs do not use now; at least 1.

    Only Linux reports what other programs use; elsewhere all cores count as free.
    """
    samples = [count_running()]
    while samples[0] is not None and len(samples) < _SAMPLES:
        time.sleep(_SECONDS_BETWEEN)
        samples.append(count_running())
    # without this thread
    counts = [count - 1 for count in samples if count is not None]
    n_busy = statistics.median_low(counts or [0])
    return max(1, min(_count_allowed_cores(), (os.cpu_count() or 1) - n_busy))


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


def count_free_main_bytes(
    *, meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Count the free bytes of main memory; None if the system does not report them."""
    limits = [_read_available(meminfo), _read_group_limit(group)]
    return min((limit for limit in limits if limit is not None), default=None)


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
