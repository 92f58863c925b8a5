"""The library of frames, polars: imported where frames are made, or files read as such, and no earlier.

And frames as delimited text that is read back as it was."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from deepmf.errors import CannotSave, MissingDependency, UserError

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


_FILE, _FOLDER = ".part", ".folder"


@contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """Yield an empty file in a folder; at the end it is removed, if it is still there under its name."""
    remove_leftovers(folder, ending=_FILE)
    path, handle = _make_locked_file(folder)
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
        path, handle = _make_locked_folder(place)
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
    handle = _open_handle(path)
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


def _make_locked_file(folder: Path) -> tuple[Path, int | None]:
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


def _make_locked_folder(place: Path) -> tuple[Path, int | None]:
    """Return a new folder and the handle that locks it, likewise."""
    while True:
        path = place / _name(_FOLDER)
        path.mkdir(mode=0o700)
        handle = _open_handle(path)
        if handle is None:
            return path, None
        try_lock(handle)
        if path.exists():
            return path, handle
        os.close(handle)


def _open_handle(path: Path) -> int | None:
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


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the folder of `path`, then rename it to `path`.

    Whatever goes wrong, what stood at `path` is untouched and the temporary file is removed (after a kill by the next
    call for this folder); an `OSError` becomes `CannotSave`, anything else (an interrupt, a bug in `write`) passes
    through. A link is followed, and a file that is replaced hands on its permissions.
    """
    target = _target(path)
    mode = _check_mode(target, path)
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


def _check_mode(target: Path, path: str | os.PathLike[str]) -> int | None:
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


# What a field split at tabs cannot hold, and what is written instead, as databases write it.
ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}

_WHOLE = "^(0|-?[1-9][0-9]*)$"


def import_polars() -> ModuleType:
    """Return polars; where it is missing, name what to install."""
    try:
        import polars
    except ImportError as error:
        raise MissingDependency("frames and files of entries need polars: pip install polars") from error
    return polars


def write_csv(frame: Any, file: Any, *, header: bool = True, quoted: bool | None = None) -> None:
    """Write a frame separated by commas.

    quoted: whether all texts have quotation marks; None: where some texts would be read as numbers without them.
    """
    marks = holds_number_texts(frame) if quoted is None else quoted
    frame.write_csv(file, include_header=header, quote_style="non_numeric" if marks else "necessary")


def write_tsv(frame: Any, file: Any, *, header: bool = True) -> None:
    """Write a frame separated by tabs, in which quotation marks are characters like any other."""
    polars = import_polars()
    old, new = list(ESCAPES), list(ESCAPES.values())
    names = polars.Series(frame.columns, dtype=polars.String).str.replace_many(old, new)
    escaped = frame.with_columns(polars.col(polars.String).str.replace_many(old, new))
    escaped.rename(dict(zip(frame.columns, names, strict=True))).write_csv(
        file, include_header=header, separator="\t", quote_style="never"
    )


def holds_number_texts(frame: Any) -> bool:
    """Say whether some column of texts has whole numbers alone."""
    polars = import_polars()
    texts = [series.drop_nulls() for series in frame.get_columns() if series.dtype == polars.String]
    return any(series.len() > 0 and series.str.contains(_WHOLE).all() for series in texts)
