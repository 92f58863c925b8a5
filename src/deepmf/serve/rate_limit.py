"""Rate limits: a steady number of requests a second for each key; twice as many at once, and never less than one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class RateLimit:
    """A bucket of tokens for each key: a request takes one, and they come back at a steady rate.

    >>> now = 0.0
    >>> limit = RateLimit(per_second=1, clock=lambda: now)
    >>> [limit.allows("ann") for _ in range(3)]
    [True, True, False]
    >>> now = 1.0
    >>> limit.allows("ann")
    True
    """

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, 2.0 * per_second)
        self._clock = clock
        self.retry_seconds = math.ceil(min(1 / per_second, 86_400))  # after which there is a token again
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def allows(self, key: str) -> bool:
        """Take a token; say whether there was one."""
        now = self._clock()
        tokens, counted = self._buckets.get(key, (self._most, now))
        tokens = min(self._most, tokens + (now - counted) * self._per_second)
        self._buckets[key] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1
