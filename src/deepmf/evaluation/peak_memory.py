"""The most memory that this process has held."""

from __future__ import annotations

import resource
import sys


def peak_memory_mb() -> int:
    """Return the most memory that this process has held so far, in MiB: Python and all libraries included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak // (1 << 20 if sys.platform == "darwin" else 1 << 10))  # in bytes there, in KiB elsewhere
