"""Downloads and members of zip archives, which appear only when they are whole and verified."""

from __future__ import annotations

import hashlib
import shutil
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError

from deepmf.errors import DatasetUnavailable, UnreadableFile
from deepmf.files import Progress, write_atomically

_NOT_AN_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError)


@dataclass(frozen=True)
class Checksum:
    """The digest that a file must have, and who vouches for the digest."""

    algorithm: str
    digest: str
    verified: str


def download(
    address: str,
    target: Path,
    *,
    checksum: Checksum | None = None,
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> None:
    """Download the file at `address` to `target`, which appears only when it is whole and verified.

    `timeout` is in seconds without a response.
    """

    def receive(part: Path) -> None:
        try:
            _receive(address, part, progress=progress, timeout=timeout)
        except (OSError, HTTPException) as error:
            raise DatasetUnavailable(
                f"{address} could not be downloaded ({_explain(error)}); download it by other means and put it at "
                f"{target}"
            ) from error
        if checksum is None:
            return
        with part.open("rb") as file:
            make_hash = partial(hashlib.new, checksum.algorithm, usedforsecurity=False)
            digest = hashlib.file_digest(file, make_hash).hexdigest()
        if digest != checksum.digest:
            raise DatasetUnavailable(
                f"{address} gave other bytes than expected ({checksum.algorithm} {digest} instead of "
                f"{checksum.digest}, {checksum.verified}) and they were deleted; try again later, or "
                f"put a copy that you trust at {target}"
            )

    _write(target, receive)


def extract(archive: Path, member: str, target: Path) -> None:
    """Write a member of a zip archive to `target`, which appears only when it is whole.

    Names inside the archive never become paths on this machine.
    """

    def copy(part: Path) -> None:
        try:
            with zipfile.ZipFile(archive) as opened:
                if member not in opened.namelist():
                    raise UnreadableFile(f"{archive} holds no {member}")
                with opened.open(member) as source, part.open("wb") as file:
                    shutil.copyfileobj(source, file)
        except _NOT_AN_ARCHIVE as error:
            raise UnreadableFile(
                f"{archive} is not a whole zip archive ({_explain(error)})"
            ) from error

    _write(target, copy)


def _write(target: Path, write: Callable[[Path], None]) -> None:
    """Make the folder of `target`, and write the file atomically."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetUnavailable(
            f"the folder {target.parent} for data sets cannot be made ({_explain(error)})"
        ) from error
    write_atomically(target, write)


def _receive(address: str, part: Path, *, progress: Progress | None, timeout: float) -> None:
    request = urllib.request.Request(address, headers={"User-Agent": "deepmf"})
    with urllib.request.urlopen(request, timeout=timeout) as response, part.open("wb") as file:
        length = response.headers.get("Content-Length")
        done = 0
        total = None if length is None else int(length)
        while piece := response.read(1 << 18):
            file.write(piece)
            done += len(piece)
            if progress is not None:
                progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"it stopped after {done} of {total} bytes")


def _explain(error: BaseException) -> str:
    if isinstance(error, HTTPError):
        error.close()  # its connection
        return f"{error.code} {error.reason}"
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return _explain(error.reason)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
