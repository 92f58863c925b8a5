"""How many threads a training on a CPU uses: as many as torch would, but no more than there are free cores.

Threads that share a core with other programs wait for each other at every step: two on one free core are several times
slower than one.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

_GIVEN_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # the environment variables by which a user says how many
_LOOKS, _BETWEEN = 5, 0.002  # at who is running, and seconds from one to the next


@dataclass(frozen=True)
class Threads:
    """The threads of one training; those that are `given` stay as they are."""

    given: bool

    def go_on_with(self, number: int | None) -> None:
        """Use as many as the training began with before it was killed, so that it ends with the same bits."""
        if number is not None and 1 <= number <= _allowed() and not self.given:
            torch.set_num_threads(number)


@contextmanager
def training_threads(device: str = "cpu") -> Iterator[Threads]:
    """Have torch use no more threads than there are free cores, unless a GPU trains; afterwards as many as before."""
    before = torch.get_num_threads()
    given = _given(before) or (device != "cpu" and torch.cuda.is_available())
    if before > 1 and not given:
        torch.set_num_threads(min(before, free_cores()))
    try:
        yield Threads(given)
    finally:
        torch.set_num_threads(before)


def free_cores() -> int:
    """Return how many cores this process may use and no other program is using now; at least 1.

    What other programs do is known on Linux alone; elsewhere all cores count as free.
    """
    looks = [_running()]
    while looks[0] is not None and len(looks) < _LOOKS:
        time.sleep(_BETWEEN)
        looks.append(_running())
    others = statistics.median_low([look - 1 for look in looks if look is not None] or [0])  # without ourselves
    return max(1, min(_allowed(), (os.cpu_count() or 1) - others))


def _given(current: int) -> bool:
    """Return whether the user has set the number of threads: in the environment, or in torch."""
    cores = {_affinity(), os.cpu_count() or 1}
    own = cores | {max(1, count // 2) for count in cores}  # where two threads share a core, torch may count cores
    return any(os.environ.get(name) for name in _GIVEN_BY) or current not in own


def _allowed() -> int:
    """Return how many cores the system lets this process use."""
    return max(1, int(min(_affinity(), _quota())))


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota(file: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Return how many cores' time a container may use; infinite where there is no limit."""
    try:
        share, period = file.read_text(encoding="ascii").split()
        return float("inf") if share == "max" else int(share) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")


def _running(file: Path = Path("/proc/stat")) -> int | None:
    """Return how many threads of this computer are running or ready to; None where the system does not report it."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
        return max(1, next(int(line.split()[1]) for line in lines if line.startswith("procs_running ")))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
