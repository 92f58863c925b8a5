"""Locks on open files and folders, which the system releases when a process dies."""

from __future__ import annotations

import sys
from typing import Literal

# Whose a lock is after it was tried: "unknown" where the system or the file system has no such locks.
Holder = Literal["ours", "another's", "unknown"]

if sys.platform == "win32":

    def try_lock(handle: int) -> Holder:
        """Lock nothing: there are no such locks here."""
        return "unknown"

else:
    import fcntl

    def try_lock(handle: int) -> Holder:
        """Try to lock an open file or folder until it is closed, without waiting; say whose the lock is now."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "another's"
        except OSError:
            return "unknown"
        return "ours"
