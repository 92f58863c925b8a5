"""Exchange: two files or folders change places, also where the system cannot do that at once."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deepmf.files.exchange import _exchange_in_steps, exchange


@pytest.mark.parametrize("change_places", [exchange, _exchange_in_steps])
def test_a_folder_and_a_file_change_places(tmp_path: Path, change_places: Callable[[Path, Path], None]) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "inside").write_text("new")
    file.write_text("old")
    change_places(folder, file)
    assert (file / "inside").read_text() == "new" and folder.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}


def test_what_cannot_be_exchanged_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    other.write_text("old")
    with pytest.raises(OSError, match="No such file"):
        exchange(one, other)
    with pytest.raises(OSError, match="No such file"):
        _exchange_in_steps(one, other)
    assert other.read_text() == "old" and list(tmp_path.iterdir()) == [other]


def test_a_file_system_without_exchange_does_it_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepmf.files import exchange as module

    class Library:
        def renameat2(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_, **__: Library())
    monkeypatch.setattr(module.ctypes, "get_errno", lambda: errno.EINVAL)
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
    exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one").read_text() == "other"
    monkeypatch.setattr(module.ctypes, "get_errno", lambda: errno.EACCES)
    with pytest.raises(OSError, match=os.strerror(errno.EACCES)):
        exchange(tmp_path / "one", tmp_path / "other")
