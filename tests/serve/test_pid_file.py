"""The pid file: only the service that holds it is signalled."""

import os
import signal
import sys
from pathlib import Path

import pytest

from deepmf.errors import BadSetting, CannotSave, FileAbsent, UnreadableFile
from deepmf.serve.pid_file import hold_pid_file, reload_service

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The processes and signals that would have been sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *signalled: sent.append(signalled))
    return sent


def test_the_service_that_holds_the_file_is_reloaded(
    tmp_path: Path, signalled: list[tuple[int, int]]
) -> None:
    path = tmp_path / "service.pid"
    with hold_pid_file(path) as write:
        with pytest.raises(BadSetting, match="starting"):
            reload_service(path)
        write()
        assert reload_service(path) == os.getpid()
        with pytest.raises(BadSetting, match="running"), hold_pid_file(path):
            pass
    assert signalled == [(os.getpid(), signal.SIGHUP)]
    with hold_pid_file(path):  # a service that ended frees its file
        pass


def test_a_process_that_does_not_hold_the_file_is_left_alone(
    tmp_path: Path, signalled: list[tuple[int, int]]
) -> None:
    path = tmp_path / "service.pid"
    with pytest.raises(FileAbsent):
        reload_service(path)
    path.write_text(f"{os.getpid()}\n")  # left by a service that was killed
    with pytest.raises(BadSetting, match="no running service"):
        reload_service(path)
    with hold_pid_file(path):
        path.write_text("notes")
        with pytest.raises(UnreadableFile):
            reload_service(path)
    with pytest.raises(CannotSave), hold_pid_file(tmp_path / "absent" / "service.pid"):
        pass
    assert signalled == []
