"""Waiting for a state, for tests with threads and processes: machines are slow and busy at
times."""

import time
from collections.abc import Callable

PATIENCE = 600.0  # seconds: only a test that fails waits so long


def wait_until(holds: Callable[[], object], *, between: float = 0.02) -> None:
    """Return as soon as a condition holds; fail if it does not in ten minutes."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "what is waited for does not happen"
        time.sleep(between)
