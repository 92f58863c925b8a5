"""Downloading one file and unpacking one member of an archive: resumable, verified, all or nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from deepmf.data.datasets.catalogue import Checksum
from deepmf.errors import DatasetUnavailable, UnreadableFile

Progress = Callable[[int, int | None], None]  # bytes done; bytes in all, None where the server does not say

_PIECE = 1 << 18  # bytes
_NOT_AN_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError)


def download(
    address: str,
    target: Path,
    *,
    checksum: Checksum | None = None,
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> None:
    """Bring the file at `address` to `target`, which appears only when whole and verified.

    What arrived before an interruption stays beside it as `.part`, and the next call continues it where a
    checksum can tell that the pieces belong together. `timeout` is in seconds without a response.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if checksum is None:
            part.unlink(missing_ok=True)  # nothing would notice two editions joined
        _complete(address, part, progress=progress, timeout=timeout)
        wrong = _difference(part, checksum)
        if wrong is None:
            part.replace(target)
            return
        part.unlink()
    except (OSError, HTTPException) as error:
        raise DatasetUnavailable(
            f"{address} could not be downloaded ({_reason(error)}); download it by other means and put it at {target}"
        ) from error
    raise DatasetUnavailable(
        f"{address} gave other bytes than expected ({wrong}) and they were deleted; "
        f"try again later, or put a copy that you trust at {target}"
    )


def extract(archive: Path, member: str, target: Path, *, checksum: Checksum | None = None) -> None:
    """Write one member of a zip archive to `target`, which appears only when whole and verified.

    No name inside the archive ever becomes a path on this runtime.
    """
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_member(archive, member, part)
        wrong = _difference(part, checksum)
        if wrong is not None:
            raise UnreadableFile(f"{member} in {archive} has other bytes than expected ({wrong})")
        part.replace(target)
    except OSError as error:
        raise DatasetUnavailable(
            f"{member} of {archive} could not be unpacked to {target} ({_reason(error)})"
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
        raise UnreadableFile(f"{archive} is not a whole zip archive ({_reason(error)})") from error


def _complete(address: str, part: Path, *, progress: Progress | None, timeout: float) -> None:
    """Bring what `part` still lacks, or all of it where the server cannot continue."""
    done = part.stat().st_size if part.exists() else 0
    try:
        response = _request(address, done, timeout)
    except HTTPError as error:
        error.close()
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not done:
            raise
        if error.headers.get("Content-Range") == f"bytes */{done}":
            return  # everything had arrived
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


def _difference(path: Path, checksum: Checksum | None) -> str | None:
    """Say how a file's digest differs from the one it must have; None where it does not."""
    if checksum is None:
        return None
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(checksum.algorithm, usedforsecurity=False))
    found = digest.hexdigest()
    if found == checksum.digest:
        return None
    return f"{checksum.algorithm} {found} instead of {checksum.digest}, {checksum.verified}"


def _reason(error: BaseException) -> str:
    if isinstance(error, HTTPError):
        return f"{error.code} {error.reason}"
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return _reason(error.reason)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
