"""Writing a file, or a folder of files, whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deepmf.errors import CannotSave, UserError
from deepmf.files.exchange import exchange
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


def write_folder_atomically(
    path: str | os.PathLike[str],
    write: Callable[[Path], object],
    *,
    replaces: Callable[[Path], bool] = lambda _: False,
) -> None:
    """Let `write` fill a new folder with files, then rename it to `path`.

    What stands there already is left alone and refused, unless `replaces` says that the folder may take its place.
    Whatever goes wrong, what stood at `path` is untouched and what was written is removed (after a kill by the next
    call for the folder that holds it).
    """
    target = _target(path)
    is_there = os.path.lexists(target)
    if not (is_there and replaces(target)):
        check_absent(path)
    try:
        with temporary_folder(target.parent) as temporary:
            folder = temporary / "whole"
            folder.mkdir()
            write(folder)
            for file in folder.rglob("*"):
                (_flush_folder if file.is_dir() else _flush)(file)
            _flush_folder(folder)
            if is_there:
                if target.is_dir():
                    folder.chmod(stat.S_IMODE(target.stat().st_mode))
                exchange(folder, target)  # what stood there is removed with the temporary folder
            else:
                folder.rename(target)
    except UserError as error:  # some are OSErrors too, and speak of other files
        if isinstance(error, CannotSave) and isinstance(error.__cause__, OSError) and str(folder) in str(error):
            raise _cannot_save(path, _reason(error.__cause__)) from error
        raise
    except OSError as error:
        raise _cannot_save(path, _reason(error)) from error
    _flush_folder(target.parent)


def write_parts(
    path: str | os.PathLike[str], write: Callable[[Path], object], *, is_part: Callable[[Path], bool]
) -> None:
    """Let `write` fill a folder that takes, at once, the place of an earlier one with nothing but such parts in it."""
    check_parts(path, is_part=is_part)
    write_folder_atomically(path, write, replaces=lambda _: True)


def check_parts(path: str | os.PathLike[str], *, is_part: Callable[[Path], bool]) -> None:
    """Refuse a folder that cannot be replaced whole: with other files in it, or the one that commands run in."""
    target = _target(path)
    if not os.path.lexists(target):
        check_absent(path)
        return
    if not target.is_dir():
        raise CannotSave(f"{os.fspath(path)} cannot be a folder (File exists); nothing was changed")
    if target in (Path.cwd(), *Path.cwd().parents):
        raise _cannot_save(path, "the folder is replaced whole, and this is the one you work in; name another")
    if not os.access(target, os.W_OK) or not os.access(target.parent, os.W_OK):
        raise _cannot_save(path, "it is write-protected")
    other = next((file.name for file in sorted(target.iterdir()) if not is_part(file)), None)
    if other is not None:
        raise _cannot_save(path, f"it is replaced whole, and holds {other!r} too; give another name")


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
