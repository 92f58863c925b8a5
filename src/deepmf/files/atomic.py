"""Writing a file, or a folder of files, whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deepmf.errors import CannotSave, UserError
from deepmf.files.leftovers import temporary_file, temporary_folder


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the folder of `path`, then rename it to `path`.

    Whatever goes wrong, what stood at `path` is untouched and the temporary file is removed (after a kill by the next
    call for this folder); an `OSError` becomes `CannotSave`, anything else (an interrupt, a bug in `write`) passes
    through. A link is followed, and a file that is replaced hands on its permissions.
    """
    target = _target(path)
    mode = _checked_mode(target, path)
    try:
        with temporary_file(target.parent) as temporary:
            write(temporary)
            _flush(temporary)
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(target)
    except OSError as error:
        raise _cannot_save(path, _reason(error)) from error
    _flush_folder(target.parent)


def write_folder_atomically(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Let `write` fill a new folder with files, then rename it to `path`, where nothing may stand yet.

    Whatever goes wrong, nothing stands at `path` and what was written is removed (after a kill by the next call for the
    folder that holds it).
    """
    target = _target(path)
    check_absent(path)
    try:
        with temporary_folder(target.parent) as temporary:
            folder = temporary / "whole"
            folder.mkdir()
            write(folder)
            for file in folder.iterdir():
                _flush(file)
            _flush_folder(folder)
            folder.rename(target)
    except UserError:  # some are OSErrors too, and speak of other files
        raise
    except OSError as error:
        raise _cannot_save(path, _reason(error)) from error
    _flush_folder(target.parent)


def check_absent(path: str | os.PathLike[str]) -> None:
    """Refuse a new folder where something stands, or where there is no folder for it."""
    target = _target(path)
    if os.path.lexists(target):
        raise _cannot_save(path, "it is there already; give another name, or remove it first")
    if not target.parent.is_dir():
        raise _cannot_save(path, f"there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise _cannot_save(path, f"the folder {target.parent} is write-protected")


def _target(path: str | os.PathLike[str]) -> Path:
    """Return where `path` leads to when its links are followed."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise _cannot_save(path, _reason(error)) from error


def _checked_mode(target: Path, path: str | os.PathLike[str]) -> int | None:
    """Return the permissions of the file to be replaced, None where there is none yet."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise _cannot_save(path, f"there is no folder {target.parent}") from None
        return None
    except OSError as error:
        raise _cannot_save(path, _reason(error)) from error
    if stat.S_ISDIR(mode):
        raise _cannot_save(path, "it is a directory")
    if not stat.S_ISREG(mode):  # renaming over /dev/null would replace the device
        raise _cannot_save(path, "it is not an ordinary file")
    if not os.access(target, os.W_OK):  # renaming would get around the protection
        raise _cannot_save(path, "it is write-protected")
    return stat.S_IMODE(mode)


def _flush(file: Path) -> None:
    """Have the system put the bytes on the disk before the rename can be."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def _flush_folder(folder: Path) -> None:
    """Have the system put the rename on the disk, where it can."""
    with suppress(OSError):  # the file is in place either way; Windows cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _cannot_save(path: str | os.PathLike[str], reason: str) -> CannotSave:
    return CannotSave(f"{os.fspath(path)} could not be written ({reason}); nothing was changed")
