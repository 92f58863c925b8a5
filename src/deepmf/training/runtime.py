"""The runtime a training runs on: its device, its precision, its ranks, and how a step is repeated on it.

The loop asks for everything here, so that it is the same on a CPU and on a GPU, in one process and in several."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from deepmf.errors import DeviceUnavailable
from deepmf.nn.parallel import SpreadNetwork
from deepmf.nn.ranks import find_ranks

_GIVEN_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # the environment variables by which a user says how many

_LOOKS, _BETWEEN = 5, 0.002  # at who is running, and seconds from one to the next


@dataclass(frozen=True)
class Threads:
    """The threads of one training; those that are `given` stay as they are."""

    given: bool

    def resume_with(self, number: int | None) -> None:
        """Use as many as the training began with before it was killed, so that it ends with the same bits."""
        if number is not None and 1 <= number <= _count_allowed_cores() and not self.given:
            torch.set_num_threads(number)


@contextmanager
def limit_threads(device: str = "cpu") -> Iterator[Threads]:
    """Have torch use no more threads than there are free cores, unless a GPU trains; afterwards as many as before."""
    before = torch.get_num_threads()
    given = _is_given(before) or (device != "cpu" and torch.cuda.is_available())
    if before > 1 and not given:
        torch.set_num_threads(min(before, count_free_cores()))
    try:
        yield Threads(given)
    finally:
        torch.set_num_threads(before)


def count_free_cores() -> int:
    """Return how many cores this process may use and no other program is using now; at least 1.

    What other programs do is known on Linux alone; elsewhere all cores count as free.
    """
    looks = [_count_running()]
    while looks[0] is not None and len(looks) < _LOOKS:
        time.sleep(_BETWEEN)
        looks.append(_count_running())
    others = statistics.median_low([look - 1 for look in looks if look is not None] or [0])  # without ourselves
    return max(1, min(_count_allowed_cores(), (os.cpu_count() or 1) - others))


def _is_given(current: int) -> bool:
    """Return whether the user has set the number of threads: in the environment, or in torch."""
    cores = {_read_affinity(), os.cpu_count() or 1}
    own = cores | {max(1, count // 2) for count in cores}  # where two threads share a core, torch may count cores
    return any(os.environ.get(name) for name in _GIVEN_BY) or current not in own


def _count_allowed_cores() -> int:
    """Return how many cores the system lets this process use."""
    return max(1, int(min(_read_affinity(), _read_quota())))


def _read_affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read_quota(file: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Return how many cores' time a container may use; infinite where there is no limit."""
    try:
        share, period = file.read_text(encoding="ascii").split()
        return float("inf") if share == "max" else int(share) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")


def _count_running(file: Path = Path("/proc/stat")) -> int | None:
    """Return how many threads of this computer are running or ready to; None where the system does not report it."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
        return max(1, next(int(line.split()[1]) for line in lines if line.startswith("procs_running ")))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def count_free_bytes(device: torch.device) -> int | None:
    """Return how many bytes of a device's memory are free; None where the system does not say."""
    if device.type == "cuda":
        # What torch keeps of earlier tensors, to hand it out again, is no longer free to the driver.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    known = [each for each in (_read_available(), _read_group_limit()) if each is not None]
    return min(known, default=None)


def _read_available(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return what Linux could hand out without swapping; elsewhere all memory that there is."""
    with suppress(OSError):
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    with suppress(AttributeError, ValueError, OSError):  # Windows has none of it
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _read_group_limit(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the limit of a container leaves; what it holds of files alone can be had, too."""
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        limit, used = (int((folder / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        stat = dict(line.split() for line in lines)
        return max(0, limit - used + int(stat.get("inactive_file", 0)))
    return None


Step = Callable[[], None]


# Steps that run one by one before a graph is recorded, so that the libraries underneath are set up.
_WARM_UP_STEPS = 3


class Runtime:
    """A device with a precision, and the processes that train together; `make_generator` belongs to it.

    Where torch's default process group has several processes (`torchrun` starts them), they train one network.
    """

    def __init__(self, device: str = "auto", precision: str = "auto") -> None:
        has_gpu = torch.cuda.is_available()
        if device == "cuda" and not has_gpu:
            raise DeviceUnavailable("device 'cuda' was requested, but torch sees no GPU here; device='cpu' would work")
        self.ranks = find_ranks()
        self.device = torch.device("cuda" if device != "cpu" and has_gpu else "cpu")
        self.is_gpu = self.device.type == "cuda"
        if self.is_gpu and self.ranks is not None:
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        self.half = precision == "half" or (precision == "auto" and self.is_gpu)

    @property
    def n_sharing(self) -> int:
        """How many of the ranks share the memory of this one's device: those of one machine, or of one GPU."""
        if self.ranks is None:
            return 1
        n_here = int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks.size))
        return -(-n_here // torch.cuda.device_count()) if self.is_gpu else n_here

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which matrix products run in the chosen precision."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half)

    def make_generator(self, seed: int, purpose: str) -> torch.Generator:
        """Return a private generator on the device for one purpose of one seed."""
        return make_generator(seed, purpose, self.device)

    def capture(self, step: Step, generators: Iterable[torch.Generator], *, static_shapes: bool) -> Step:
        """Return a step that does the same with the least overhead: on a GPU, the replay of a recorded graph."""
        is_recorded = self.is_gpu and static_shapes and self.ranks is None
        return _GraphStep(step, list(generators)) if is_recorded else step

    def spread(self, network: nn.Module) -> SpreadNetwork | None:
        """Divide a network over the ranks; None where there is one process."""
        return None if self.ranks is None else SpreadNetwork(network, self.ranks)

    def agree_on(self, number: float) -> float:
        """Return a number that every rank has computed as the first rank has it, so that all decide alike."""
        return number if self.ranks is None else self.ranks.broadcast(number, self.device)

    def describe(self) -> str:
        """Name the device for a record of results."""
        return torch.cuda.get_device_name(self.device) if self.is_gpu else f"CPU, {torch.get_num_threads()} threads"


def make_generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator of its own for one purpose of one seed; the global ones are never touched."""
    state = np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1, dtype=np.uint64)
    return torch.Generator(device=device).manual_seed(int(state[0]) >> 1)


class _GraphStep:
    """A step recorded as a CUDA graph: the first few run as they are, then one launch replays all its kernels."""

    def __init__(self, step: Step, generators: list[torch.Generator]) -> None:
        self._step = step
        self._generators = generators
        self._graph: torch.cuda.CUDAGraph | None = None
        self._n_run = 0

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
            # The graph of an earlier fit must not be freed by the collector in the middle of this recording, which that
            # would spoil.
            gc.collect()
            self._graph = torch.cuda.CUDAGraph()
            for generator in self._generators:
                self._graph.register_generator_state(generator)
            with torch.cuda.graph(self._graph):
                self._step()
        self._graph.replay()
