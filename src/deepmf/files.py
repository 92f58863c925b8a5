"""Atomic writes of files and folders, temporary files, locks, and frames as delimited text."""

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
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from deepmf.errors import BadEntries, CannotSave, FileAbsent, MissingDependency, UnreadableFile, UserError

if sys.platform != "win32":
    import fcntl

# Called with the amount done and the total, such as bytes or entries; None if the total is not known.
Progress = Callable[[int, int | None], None]

# Endings of temporary files and folders.
_FILE, _FOLDER = ".part", ".folder"

# Arguments of Linux's renameat2: relative to the working folder; exchange both paths.
_WORKING_FOLDER, _EXCHANGE = -100, 2

_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)

_INTEGER = r"^(0|-?[1-9][0-9]*)(\.0)?$"


# Atomic writes


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the folder of `path`, then rename it to `path`.

    If anything fails, the file at `path` is unchanged and the temporary file is removed; after a kill, the next call
    for this folder removes it. An `OSError` becomes `CannotSave`; other exceptions pass through. Links are followed,
    and a replaced file keeps its permissions.
    """
    target = _resolve(path)
    mode = _check_mode(target, path)
    try:
        with temporary_file(target.parent) as temporary:
            write(temporary)
            _flush(temporary)
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(target)
    except UserError:  # some are OSErrors too, about other files
        raise
    except OSError as error:
        raise _build_error(path, _find_reason(error)) from error
    flush_folder(target.parent)


def write_folder_atomically(
    path: str | os.PathLike[str],
    write: Callable[[Path], object],
    *,
    replaces: Callable[[Path], bool] = lambda _: False,
) -> None:
    """Let `write` fill a new folder, then rename it to `path`.

    `replaces` says whether an existing file or folder may be replaced; otherwise it raises `CannotSave`. If anything
    fails, `path` is unchanged and the new folder is removed; after a kill, the next call for its parent removes it.
    """
    target = _resolve(path)
    is_there = os.path.lexists(target)
    if not (is_there and replaces(target)):
        check_absent(path)
    try:
        with temporary_folder(target.parent) as temporary:
            folder = temporary / "whole"
            folder.mkdir()
            write(folder)
            for file in folder.rglob("*"):
                (flush_folder if file.is_dir() else _flush)(file)
            flush_folder(folder)
            if is_there:
                if target.is_dir():
                    folder.chmod(stat.S_IMODE(target.stat().st_mode))
                exchange(folder, target)  # the old one is removed with the temporary folder
            else:
                folder.rename(target)
    except UserError as error:  # some are OSErrors too, about other files
        if isinstance(error, CannotSave) and isinstance(error.__cause__, OSError) and str(folder) in str(error):
            raise _build_error(path, _find_reason(error.__cause__)) from error
        raise
    except OSError as error:
        raise _build_error(path, _find_reason(error)) from error
    flush_folder(target.parent)


def write_parts(
    path: str | os.PathLike[str], write: Callable[[Path], object], *, is_part: Callable[[Path], bool]
) -> None:
    """Let `write` fill a folder that atomically replaces an earlier one, if that holds nothing but parts."""
    check_parts(path, is_part=is_part)
    write_folder_atomically(path, write, replaces=lambda _: True)


def check_parts(path: str | os.PathLike[str], *, is_part: Callable[[Path], bool]) -> None:
    """Raise an error if a folder cannot be replaced: it holds other files, or it is the working folder."""
    target = _resolve(path)
    if not os.path.lexists(target):
        check_absent(path)
        return
    if not target.is_dir():
        raise CannotSave(f"{os.fspath(path)} cannot be a folder (File exists); nothing was changed")
    if target in (Path.cwd(), *Path.cwd().parents):
        raise _build_error(path, "the whole folder is replaced, and it is the working folder; give another name")
    if not os.access(target, os.W_OK) or not os.access(target.parent, os.W_OK):
        raise _build_error(path, "it is write-protected")
    other = next((file.name for file in sorted(target.iterdir()) if not is_part(file)), None)
    if other is not None:
        raise _build_error(path, f"the whole folder is replaced, and it also holds {other!r}; give another name")


def check_absent(path: str | os.PathLike[str]) -> None:
    """Raise an error if a path exists already, or if its parent folder does not exist."""
    target = _resolve(path)
    if os.path.lexists(target):
        raise _build_error(path, "it exists already; give another name, or remove it first")
    if not target.parent.is_dir():
        raise _build_error(path, f"there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise _build_error(path, f"the folder {target.parent} is write-protected")


def _resolve(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise _build_error(path, _find_reason(error)) from error


def _check_mode(target: Path, path: str | os.PathLike[str]) -> int | None:
    """Return the permissions of the file to be replaced, None if there is none; check that it may be replaced."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise _build_error(path, f"there is no folder {target.parent}") from None
        return None
    except OSError as error:
        raise _build_error(path, _find_reason(error)) from error
    if stat.S_ISDIR(mode):
        raise _build_error(path, "it is a directory")
    if not stat.S_ISREG(mode):  # renaming over /dev/null would replace the device
        raise _build_error(path, "it is not an ordinary file")
    if not os.access(target, os.W_OK):  # renaming would get around the protection
        raise _build_error(path, "it is write-protected")
    return stat.S_IMODE(mode)


def _flush(file: Path) -> None:
    """Flush the bytes of a file to disk, so that they are there before the rename."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, if the system can."""
    with suppress(OSError):  # the file is in place either way; Windows cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _find_reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _build_error(path: str | os.PathLike[str], reason: str) -> CannotSave:
    return CannotSave(f"{os.fspath(path)} could not be written ({reason}); nothing was changed")


# Small files that people write


def read_text_file(path: Path) -> str:
    """Return the text of an ordinary file in UTF-8; a pipe, which might never end, is refused."""
    try:
        if path.exists() and not path.is_file():
            raise UnreadableFile(f"{path} is not an ordinary file; a file is needed")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FileAbsent(f"there is no file {path}") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not UTF-8 text ({error})") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    text = read_text_file(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # such as a date that does not exist, or a thousand brackets
        raise UnreadableFile(f"{path} is not a TOML file ({error})") from error


# Temporary files and folders


@contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """Yield an empty file in a folder, and remove it at the end unless it was renamed."""
    with _temporary(folder, _FILE) as path:
        yield path


@contextmanager
def temporary_folder(place: Path) -> Iterator[Path]:
    """Yield an empty private folder inside another, and remove it at the end."""
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise CannotSave(f"a temporary folder could not be created in {place}")
    with _temporary(place, _FOLDER) as path:
        yield path


@contextmanager
def _temporary(place: Path, ending: str) -> Iterator[Path]:
    _remove_leftovers(place, ending)
    path, handle = _make_locked(place, ending)
    try:
        yield path
    finally:
        if handle is not None:
            os.close(handle)
        _remove(path)


def _remove_leftovers(place: Path, ending: str) -> None:
    """Remove the temporary files in a folder that killed processes of this machine have left."""
    with suppress(OSError), os.scandir(place) as found:
        for entry in found:
            if not (entry.name.startswith(_name_prefix()) and entry.name.endswith(ending)):
                continue
            handle = _open_handle(Path(entry.path))
            if handle is not None:
                if _lock(handle):
                    _remove(Path(entry.path))
                os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _make_locked(place: Path, ending: str) -> tuple[Path, int | None]:
    """Create a file or folder; return it with the handle that locks it, None if there are no locks."""
    while True:
        path = place / _make_name(ending)
        if ending == _FOLDER:
            path.mkdir(mode=0o700)
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))
        handle = _open_handle(path)
        if handle is not None and _lock(handle) is None:
            os.close(handle)  # on systems without locks, an open file cannot be renamed
            handle = None
        if path.exists():
            return path, handle
        if handle is not None:
            os.close(handle)  # another process removed it between the two calls above


def _open_handle(path: Path) -> int | None:
    """Open a file or folder for locking, without following links; return None if that fails."""
    try:
        kind = os.O_RDONLY if path.is_dir() else os.O_RDWR
        return os.open(path, kind | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None


def _make_name(ending: str) -> str:
    """Return a random name of fixed length, which is legal wherever the final name is."""
    return f"{_name_prefix()}{secrets.token_hex(8)}{ending}"


def _name_prefix() -> str:
    # A folder may be shared with other machines, whose locks this machine may not see.
    return f".deepmf-{hashlib.sha256(platform.node().encode()).hexdigest()[:8]}-"


# Exchanging two paths


def exchange(one: Path, other: Path) -> None:
    """Exchange two files or folders of one file system.

    If the system cannot exchange them atomically, `other` is called NAME.old for a moment.
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


# Locks


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """Lock an open file or folder until it is closed; return whether it is ours, None if the system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for the block, if it can be locked; wait for other processes."""
    handle = _open_handle(folder)
    if handle is None:
        yield  # the write that follows raises the error
        return
    try:
        _lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


# Frames as delimited text


def import_polars() -> ModuleType:
    """Return polars, or raise an error that says how to install it."""
    try:
        import polars
    except ImportError as error:
        raise MissingDependency("frames and files of entries need polars: pip install polars") from error
    return polars


def write_csv(
    frame: Any, file: Any, *, header: bool = True, quoted: bool | None = None, decimal_comma: bool = False
) -> None:
    """Write a frame as .csv; beside decimal commas, fields are separated by semicolons.

    quoted: whether to quote all texts (default: if a column of texts would be read as numbers without quotes).
    """
    marks = holds_number_texts(frame) if quoted is None else quoted
    frame.write_csv(
        file,
        include_header=header,
        quote_style="non_numeric" if marks else "necessary",
        separator=";" if decimal_comma else ",",
        decimal_comma=decimal_comma,
    )


def write_tsv(frame: Any, file: Any, *, header: bool = True, decimal_comma: bool = False) -> None:
    """Write a frame as .tsv, where quotation marks have no special meaning; tabs and line ends in texts are refused."""
    polars = import_polars()
    for series in (polars.Series(frame.columns, dtype=polars.String), *frame.select(polars.col(polars.String))):
        wrong = series.filter(series.str.contains(r"[\t\r\n]"))
        if wrong.len():
            raise BadEntries(f"{wrong[0]!r} has a tab or a line end, which no .tsv file can hold; write .csv")
    frame.write_csv(file, include_header=header, separator="\t", quote_style="never", decimal_comma=decimal_comma)


def holds_number_texts(frame: Any) -> bool:
    """Whether a column of texts holds only integers, as 7 or 7.0."""
    polars = import_polars()
    texts = [series.drop_nulls() for series in frame.get_columns() if series.dtype == polars.String]
    return any(series.len() > 0 and series.str.contains(_INTEGER).all() for series in texts)
