"""How much memory a device has left."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import torch


def free_bytes(device: torch.device) -> int | None:
    """Return how many bytes of a device's memory are free; None where the system does not say."""
    if device.type == "cuda":
        # What torch keeps of earlier tensors, to hand it out again, is no longer free to the driver.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    known = [each for each in (_available(), _left_to_the_group()) if each is not None]
    return min(known, default=None)


def _available(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return what Linux could hand out without swapping; elsewhere all memory that there is."""
    with suppress(OSError):
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    with suppress(AttributeError, ValueError, OSError):  # Windows has none of it
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _left_to_the_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the limit of a container leaves; what it holds of files alone can be had, too."""
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        limit, used = (int((folder / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        stat = dict(line.split() for line in lines)
        return max(0, limit - used + int(stat.get("inactive_file", 0)))
    return None
