"""The journal of a study: one line for each step, sealed by a checksum, appended whole or not at all.

Every checksum covers the lines before it too, so that damage anywhere is noticed before a line is read as JSON. A last
line that a kill or a full disk tore is cut off. The lines are those of optuna's own journals with one field more, which
its tools overlook.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deepmf.errors import CannotSave, DeepMFWarning, UnreadableFile
from deepmf.files.locks import try_lock

_SEAL = b'{"check":"'
_DIGITS = 16  # of a checksum
_LONGEST = 1 << 24  # bytes of a line; ours are far shorter


class Journal:
    """What optuna asks of the file behind a study, which one process at a time may write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._logs: list[dict[str, Any]] = []
        self._end = 0  # of the last whole line, in bytes
        self._check = b""  # of the last whole line
        self._handle: int | None = None  # while the journal is held
        self._read_on()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the journal for this process, and cut off a torn last line; while another has it this is refused."""
        if self._handle is not None:
            yield
            return
        handle = self._opened()
        try:
            if try_lock(handle) == "another's":
                raise CannotSave(
                    f"{self.path} is in use: another process runs the trials of this study; "
                    "wait until it ends, or give another file"
                )
            self._read_on()
            self._cut_off_rest(handle)
            self._handle = handle
            yield
        finally:
            self._handle = None
            os.close(handle)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return all steps from a number on."""
        self._read_on()
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append steps, all of them or none."""
        with self.held():
            assert self._handle is not None
            if os.fstat(self._handle).st_nlink == 0:
                raise CannotSave(f"{self.path} could not be written (it was deleted while the study ran)")
            self._read_on()
            self._cut_off_rest(self._handle)  # what an interrupt left
            lines, check = [], self._check
            for log in logs:
                body = json.dumps(log, separators=(",", ":")).encode()
                check = _checksum(check, body)
                lines.append(_SEAL + check + b'",' + body[1:] + b"\n")
            self._append(self._handle, b"".join(lines))

    def _append(self, handle: int, content: bytes) -> None:
        try:
            while content:
                content = content[os.write(handle, content) :]
            os.fsync(handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(handle, self._end)
            raise CannotSave(
                f"{self.path} could not be written ({error.strerror}); the trials before this one are kept"
            ) from error

    def _read_on(self) -> None:
        """Read the whole lines behind those that were read already."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise CannotSave(f"{self.path} cannot hold a study ({error.strerror})") from error
        with file:
            file.seek(self._end)
            while (line := file.readline(_LONGEST)).endswith(b"\n"):
                self._take(line)
        if len(line) == _LONGEST or (not self._end and not _is_beginning(line)):
            raise self._unreadable()

    def _take(self, line: bytes) -> None:
        check, body = line[len(_SEAL) : len(_SEAL) + _DIGITS], b"{" + line[len(_SEAL) + _DIGITS + 2 : -1]
        if line != _SEAL + check + b'",' + body[1:] + b"\n" or check != _checksum(self._check, body):
            raise self._unreadable()
        try:
            log = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._unreadable() from error
        self._logs.append(log)
        self._end += len(line)
        self._check = check

    def _unreadable(self) -> UnreadableFile:
        n_read = len(self._logs)
        if not n_read:
            return UnreadableFile(f"{self.path} is not a study of deepmf, or damaged; give another file")
        return UnreadableFile(
            f"{self.path} is damaged in line {n_read + 1}; give another file, or go on from its first {n_read} lines"
        )

    def _cut_off_rest(self, handle: int) -> None:
        """Remove a last line that was torn, and say so."""
        n_torn = os.fstat(handle).st_size - self._end
        if n_torn > 0:
            os.ftruncate(handle, self._end)
            warnings.warn(
                f"the last line of {self.path} was torn and is cut off ({n_torn} bytes); the trials before it are kept",
                DeepMFWarning,
                stacklevel=4,
            )

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise CannotSave(f"{self.path} cannot hold a study ({error.strerror})") from error


def _is_beginning(torn: bytes) -> bool:
    """Say whether bytes may be the beginning of a journal's first line."""
    return torn.startswith(_SEAL) or _SEAL.startswith(torn)


def _checksum(before: bytes, body: bytes) -> bytes:
    return hashlib.sha256(before + body).hexdigest()[:_DIGITS].encode()
