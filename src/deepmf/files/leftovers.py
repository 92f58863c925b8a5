"""Temporary files and folders; the next run removes those that a killed process left behind.

Each is locked by the process that uses it, and the lock dies with that process: what can be locked is left over.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deepmf.errors import CannotSave
from deepmf.files.locks import try_lock

_FILE, _FOLDER = ".part", ".folder"


@contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """Yield an empty file in a folder; at the end it is removed, if it is still there under its name."""
    remove_leftovers(folder, ending=_FILE)
    path, handle = _locked_file(folder)
    try:
        yield path
    finally:
        if handle is not None:
            os.close(handle)
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def temporary_folder(place: Path) -> Iterator[Path]:
    """Yield an empty folder in a place, which nobody else can look into; at the end it is removed with all it holds."""
    remove_leftovers(place, ending=_FOLDER)
    try:
        path, handle = _locked_folder(place)
    except OSError as error:
        raise CannotSave(f"no temporary folder could be made in {place} ({error.strerror})") from error
    try:
        yield path
    finally:
        if handle is not None:
            os.close(handle)
        shutil.rmtree(path, ignore_errors=True)


def remove_leftovers(folder: Path, *, ending: str) -> None:
    """Remove what processes of this machine that are dead have left in a folder."""
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith(_start()) and entry.name.endswith(ending):
                _remove_if_left_over(Path(entry.path))


def _remove_if_left_over(path: Path) -> None:
    handle = _opened(path)
    if handle is None:
        return
    try:
        if try_lock(handle) == "ours":
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    except OSError:
        return  # it is no harm where it lies
    finally:
        os.close(handle)


def _locked_file(folder: Path) -> tuple[Path, int | None]:
    """Return a new file and the handle that locks it; None where there are no locks, and nothing is ever left over."""
    while True:
        path = folder / _name(_FILE)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if try_lock(handle) == "unknown":
            os.close(handle)  # where files are not locked, an open one may not be renamed
            return path, None
        if os.fstat(handle).st_nlink:
            return path, handle
        os.close(handle)  # taken for left over between the two calls above


def _locked_folder(place: Path) -> tuple[Path, int | None]:
    """Return a new folder and the handle that locks it, likewise."""
    while True:
        path = place / _name(_FOLDER)
        path.mkdir(mode=0o700)
        handle = _opened(path)
        if handle is None:
            return path, None
        try_lock(handle)
        if path.exists():
            return path, handle
        os.close(handle)


def _opened(path: Path) -> int | None:
    """Return a handle that can be locked, None where there cannot be one; a link is not followed."""
    try:
        kind = os.O_RDONLY if path.is_dir() else os.O_RDWR
        return os.open(path, kind | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None


def _name(ending: str) -> str:
    """Return a name of fixed length, so that beside the longest legal name there is room for it too."""
    return f"{_start()}{secrets.token_hex(8)}{ending}"


def _start() -> str:
    # A folder may be shared with other machines, whose locks are not always seen from here.
    return f".deepmf-{hashlib.sha256(platform.node().encode()).hexdigest()[:8]}-"
