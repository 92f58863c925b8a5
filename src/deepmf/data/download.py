"""Downloads and members of zip archives, which appear only when they are whole and verified."""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.request
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from deepmf.errors import DatasetUnavailable, UnreadableFile
from deepmf.files import Progress

_PIECE = 1 << 18  # bytes copied at a time
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

    After an interruption the received bytes stay beside it as `.part`, and with a checksum the next call continues
    from there. `timeout` is in seconds without a response.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if checksum is None:
            part.unlink(missing_ok=True)  # without a checksum, parts of two editions could be joined
        _receive_rest(address, part, progress=progress, timeout=timeout)
        wrong = _compare_digest(part, checksum)
        if wrong is None:
            part.replace(target)
            return
        part.unlink()
    except (OSError, HTTPException) as error:
        raise DatasetUnavailable(
            f"{address} could not be downloaded ({_explain(error)}); download it by other means and put it at {target}"
        ) from error
    raise DatasetUnavailable(
        f"{address} gave other bytes than expected ({wrong}) and they were deleted; "
        f"try again later, or put a copy that you trust at {target}"
    )


def extract(archive: Path, member: str, target: Path, *, checksum: Checksum | None = None) -> None:
    """Write a member of a zip archive to `target`, which appears only when it is whole and verified.

    Names inside the archive never become paths on this machine.
    """
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_member(archive, member, part)
        wrong = _compare_digest(part, checksum)
        if wrong is not None:
            raise UnreadableFile(f"{member} in {archive} has other bytes than expected ({wrong})")
        part.replace(target)
    except OSError as error:
        raise DatasetUnavailable(
            f"{member} of {archive} could not be unpacked to {target} ({_explain(error)})"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _copy_member(archive: Path, member: str, part: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            if member not in opened.namelist():
                raise UnreadableFile(f"{archive} holds no {member}")
            with opened.open(member) as source, part.open("wb") as file:
                shutil.copyfileobj(source, file, _PIECE)
    except _NOT_AN_ARCHIVE as error:
        raise UnreadableFile(f"{archive} is not a whole zip archive ({_explain(error)})") from error


def _receive_rest(address: str, part: Path, *, progress: Progress | None, timeout: float) -> None:
    """Download the rest of `part`, or all of it where the server cannot continue."""
    done = part.stat().st_size if part.exists() else 0
    try:
        response = _request(address, done, timeout)
    except HTTPError as error:
        error.close()
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not done:
            raise
        if error.headers.get("Content-Range") == f"bytes */{done}":
            return  # all bytes are there
        part.unlink()
        response = _request(address, 0, timeout)
    with response:
        _receive(response, part, done if response.status == HTTPStatus.PARTIAL_CONTENT else 0, progress)


def _request(address: str, start: int, timeout: float) -> Any:
    headers = {"User-Agent": "deepmf"} | ({"Range": f"bytes={start}-"} if start else {})
    return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=timeout)


def _receive(response: Any, part: Path, start: int, progress: Progress | None) -> None:
    length = response.headers.get("Content-Length")
    total = None if length is None else start + int(length)
    done = start
    with part.open("ab" if start else "wb") as file:
        while piece := response.read(_PIECE):
            file.write(piece)
            done += len(piece)
            if progress is not None:
                progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"it stopped after {done} of {total} bytes")


def _compare_digest(path: Path, checksum: Checksum | None) -> str | None:
    """Return in words how a file's digest differs from the checksum; None where it does not."""
    if checksum is None:
        return None
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(checksum.algorithm, usedforsecurity=False))
    found = digest.hexdigest()
    if found == checksum.digest:
        return None
    return f"{checksum.algorithm} {found} instead of {checksum.digest}, {checksum.verified}"


def _explain(error: BaseException) -> str:
    if isinstance(error, HTTPError):
        return f"{error.code} {error.reason}"
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return _explain(error.reason)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
