"""Two files or folders that change places, at once where the system can do that."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

# Of Linux's renameat2: paths are relative to the working folder; exchange both.
_WORKING_FOLDER, _EXCHANGE = -100, 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def exchange(one: Path, other: Path) -> None:
    """Let two files or folders of one file system change places.

    Where the system cannot do that at once, `other` stands beside its place, as NAME.old, for a moment.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if rename is not None:
        if not rename(_WORKING_FOLDER, os.fsencode(one), _WORKING_FOLDER, os.fsencode(other), _EXCHANGE):
            return
        code = ctypes.get_errno()
        if code not in _UNSUPPORTED:
            raise OSError(code, os.strerror(code))
    _exchange_in_steps(one, other)


def _exchange_in_steps(one: Path, other: Path) -> None:
    aside = other.with_name(f"{other.name}.old")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)
