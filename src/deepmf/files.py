"""Atomic writes of files and folders, small files that people write, and frames as delimited
text."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.errors import CannotSave, FileAbsent, UnreadableFile, UserError, import_optional

# Called with the amount done and the total, such as bytes or entries; None if the total is not
# known.
Progress = Callable[[int, int | None], None]

AnyPath = str | os.PathLike[str]

# Names of temporary files and folders. One that was not written to for a day is what a killed
# process has left.
_PREFIX, _ENDING, _DAY = ".deepmf-", ".part", 86400  # seconds


# Atomic writes


def write_atomically(path: AnyPath, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the folder of `path`, then rename it to `path`.

    If anything fails, the file at `path` is unchanged and the temporary file is removed; after a
    kill, a call for this folder a day later removes it. An `OSError` becomes `CannotSave`; other
    exceptions pass through. Links are followed, and a replaced file keeps its permissions.
    """
    target = _resolve(path)
    mode = _check_mode(target, path)
    with _refuse_failures(path), _make_temporary(target.parent) as temporary:
        temporary.touch(exist_ok=False)
        write(temporary)
        _flush(temporary)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    _flush_folder(target.parent)


def write_folder_atomically(
    path: AnyPath, write: Callable[[Path], object], *, is_part: Callable[[Path], bool]
) -> None:
    """Let `write` fill a new folder, then rename it to `path`; see `check_parts` for what it may
    replace.

    If anything fails, `path` is unchanged and the new folder is removed; after a kill, a call a day
    later removes it. No system exchanges two folders everywhere, so an earlier folder is called
    NAME.old for a moment.
    """
    check_parts(path, is_part=is_part)
    target = _resolve(path)
    previous_file = target.with_name(f"{target.name}.old")
    with _refuse_failures(path), _make_temporary(target.parent) as folder:
        folder.mkdir()
        write(folder)
        for file in folder.iterdir():
            _flush(file)
        _flush_folder(folder)
        if not target.is_dir():
            folder.rename(target)
        else:
            folder.chmod(stat.S_IMODE(target.stat().st_mode))
            target.rename(previous_file)
            try:
                folder.rename(target)
            except BaseException:
                previous_file.rename(target)
                raise
            shutil.rmtree(previous_file, ignore_errors=True)
    _flush_folder(target.parent)


@contextmanager
def _refuse_failures(path: AnyPath) -> Iterator[None]:
    """Turn an `OSError` over a temporary file into `CannotSave` over its final path."""
    try:
        yield
    except OSError as error:
        if not isinstance(error, UserError):
            raise _build_error(path, _find_reason(error)) from error
        # a file inside a temporary folder
        if isinstance(error.__cause__, OSError) and _PREFIX in str(error):
            raise _build_error(path, _find_reason(error.__cause__)) from error
        raise  # over another file


@contextmanager
def _make_temporary(place: Path) -> Iterator[Path]:
    """Yield a new path in a folder, and remove the file or folder there at the end, unless it was
    renamed."""
    with suppress(OSError), os.scandir(place) as found:
        for entry in found:
            is_ours = entry.name.startswith(_PREFIX) and entry.name.endswith(_ENDING)
            if is_ours and time.time() - entry.stat(follow_symlinks=False).st_mtime > _DAY:
                _remove(Path(entry.path))
    # of fixed length: legal wherever the final name is
    path = place / f"{_PREFIX}{secrets.token_hex(8)}{_ENDING}"
    try:
        yield path
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def check_parts(path: AnyPath, *, is_part: Callable[[Path], bool]) -> None:
    """Raise an error if a folder cannot be replaced: it holds other files, or it is the working
    folder."""
    target = _resolve(path)
    if not os.path.lexists(target):
        check_absent(path)
        return
    if not target.is_dir():
        raise CannotSave(f"{os.fspath(path)} cannot be a folder (File exists); nothing was changed")
    if target in (Path.cwd(), *Path.cwd().parents):
        raise _build_error(
            path, "the whole folder is replaced, and it is the working folder; give another name"
        )
    if not os.access(target, os.W_OK) or not os.access(target.parent, os.W_OK):
        raise _build_error(path, "it is write-protected")
    foreign_name = next((file.name for file in sorted(target.iterdir()) if not is_part(file)), None)
    if foreign_name is not None:
        raise _build_error(
            path,
            f"the whole folder is replaced, and it also holds {foreign_name!r}; give another name",
        )


def check_absent(path: AnyPath) -> None:
    """Raise an error if a path exists already, or if its parent folder does not exist."""
    target = _resolve(path)
    if os.path.lexists(target):
        raise _build_error(path, "it exists already; give another name, or remove it first")
    if not target.parent.is_dir():
        raise _build_error(path, f"there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise _build_error(path, f"the folder {target.parent} is write-protected")


def _resolve(path: AnyPath) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise _build_error(path, _find_reason(error)) from error


def _check_mode(target: Path, path: AnyPath) -> int | None:
    """Return the permissions of the file to be replaced, None if there is none; check that it may
    be replaced."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        check_absent(path)
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


def _flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, if the system can."""
    with suppress(OSError):  # the file is in place either way; Windows cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _find_reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _build_error(path: AnyPath, reason: str) -> CannotSave:
    return CannotSave(f"{os.fspath(path)} could not be written ({reason}); nothing was changed")


# Files to read


def check_path(
    path: AnyPath, *, error: type[UnreadableFile] = UnreadableFile, may_be_empty: bool = False
) -> Path:
    """Return the path of an ordinary file that is not empty; refuse any other path."""
    file = Path(path)
    try:
        mode, is_empty = file.stat().st_mode, False
        if stat.S_ISREG(mode):  # opening a pipe would block
            with file.open("rb") as opened:
                is_empty = not opened.read(1)
    except FileNotFoundError as absent:
        raise FileAbsent(f"there is no file {file}") from absent
    except OSError as reason:
        raise error(f"{file} cannot be read: {_find_reason(reason)}") from reason
    except ValueError as reason:  # a null character
        raise error(f"{str(file)!r} cannot be the name of a file ({reason})") from reason
    if stat.S_ISDIR(mode):
        raise error(f"{file} is a directory; a file is needed")
    if not stat.S_ISREG(mode):
        raise error(
            f"{file} is not an ordinary file; a file is needed (a command takes - for a pipe)"
        )
    if is_empty and not may_be_empty:
        raise error(f"{file} is empty")
    return file


def read_text_file(path: Path) -> str:
    """Return the text of an ordinary file in UTF-8; a pipe, which might never end, is refused."""
    try:
        return check_path(path, may_be_empty=True).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not UTF-8 text ({error})") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    text = read_text_file(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # such as a date that does not exist, or a thousand brackets
        raise UnreadableFile(f"{path} is not a TOML file ({error})") from error


# Frames


class OnDemand:
    """A package that is imported when something of it is first used."""

    def __init__(self, package: str, need: str) -> None:
        self._package = package
        self._need = need

    def __getattr__(self, name: str) -> Any:
        return getattr(import_optional(self._package, what=self._need, install=self._package), name)


if TYPE_CHECKING:
    import narwhals as narwhals
    import polars as polars
    from scipy import special as special
else:
    polars = OnDemand("polars", "frames and files of entries need polars")
    narwhals = OnDemand("narwhals", "frames need narwhals")
    # a third of the time of `from deepmf import ALS`
    special = OnDemand("scipy.special", "distributions need scipy")
