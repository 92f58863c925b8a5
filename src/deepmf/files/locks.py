"""Locks on open files and folders, which the system releases when a process dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

# Whose a lock is after it was tried: "unknown" where the system or the file system has no such locks.
Holder = Literal["ours", "another's", "unknown"]

if sys.platform == "win32":

    def try_lock(handle: int) -> Holder:
        """Lock nothing: there are no such locks here."""
        return "unknown"

    @contextmanager
    def lock_folder(folder: Path) -> Iterator[None]:
        """Lock nothing: there are no such locks here."""
        yield

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

    @contextmanager
    def lock_folder(folder: Path) -> Iterator[None]:
        """Wait until no other process has a folder locked, and lock it until the block ends, where it can be."""
        try:
            handle = os.open(folder, os.O_RDONLY)
        except OSError:
            yield  # whoever writes there says what is wrong
            return
        try:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
