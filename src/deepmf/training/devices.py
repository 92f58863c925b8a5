"""The device of a fit and its free memory; torch is imported only where there may be a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.errors import DeviceUnavailable
from deepmf.training.threads import count_free_main_bytes

if TYPE_CHECKING:
    import torch

# Files of GPU drivers: of Nvidia, its embedded boards and AMD on Linux, in WSL, and on Windows.
_DRIVER_FILES = (
    "/dev/nvidiactl",
    "/dev/nvhost-gpu",
    "/dev/kfd",
    "/dev/dxg",
    "C:/Windows/System32/nvcuda.dll",
)


def has_torch() -> bool:
    """Whether torch can be imported, which takes seconds."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def has_gpu() -> bool:
    """Whether torch sees a GPU; without a driver, torch is not imported to ask."""
    has_driver = any(Path(file).exists() for file in _DRIVER_FILES)
    if not (has_driver or "torch" in sys.modules) or not has_torch():
        return False
    import torch

    return bool(torch.cuda.is_available())


def find_device(device: str) -> str:
    """Return the device of the setting "auto", "cpu" or "cuda", as torch names it.

    Each of several ranks has a GPU of its own as far as there are enough.
    """
    if device == "cpu" or (device != "cuda" and not has_gpu()):
        return "cpu"
    if not has_gpu():
        reason = "torch sees no GPU here" if has_torch() else "torch is not installed"
        raise DeviceUnavailable(
            f"device 'cuda' was requested, but {reason}; device='cpu' would work"
        )
    from deepmf.nn.group import find_ranks

    if find_ranks() is None:
        return "cuda"
    import torch

    index = int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def count_free_bytes(device: torch.device | str) -> int | None:
    """Count the free bytes of memory of a device; None if the system does not report them."""
    if str(device).startswith("cpu"):
        return count_free_main_bytes()
    import torch

    # Memory that torch caches for later tensors is not free to the driver.
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + cached
