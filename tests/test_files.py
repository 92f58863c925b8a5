"""Temporary files and folders: those of the dead go, those of the living stay."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars
import pytest

import deepmf
from deepmf.data.frame_file import find_label_type
from deepmf.errors import CannotSave, FileAbsent, MissingDependency, UnreadableFile, UserError
from deepmf.files import (
    _exchange_in_steps,
    exchange,
    import_polars,
    read_text_file,
    read_toml,
    temporary_file,
    temporary_folder,
    write_atomically,
    write_folder_atomically,
)
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.serve.auth import read_keys

USE = """
import sys, time
from pathlib import Path
from deepmf.files import temporary_file, temporary_folder
with {kind}(Path(sys.argv[1])) as path:
    (path / "inside" if path.is_dir() else path).write_text("half")
    print(path, flush=True)
    time.sleep(60)
"""


@contextmanager
def user(kind: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that uses a temporary file or folder, and where that is."""
    process = subprocess.Popen(
        [sys.executable, "-c", USE.format(kind=kind), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(deepmf.__file__).parents[1])},
    )
    assert process.stdout is not None
    try:
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_only_files_of_the_dead_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with user("temporary_file", tmp_path) as (process, used):
        write_atomically(target, lambda file: file.write_text("new"))
        assert used.read_text() == "half"
        process.kill()
        process.wait()
        assert used.exists()
        write_atomically(target, lambda file: file.write_text("newer"))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("model", "newer")]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_only_folders_of_the_dead_are_removed(tmp_path: Path) -> None:
    with user("temporary_folder", tmp_path) as (process, used):
        with temporary_folder(tmp_path) as own:
            assert own.is_dir() and (used / "inside").read_text() == "half"
            assert own.stat().st_mode & 0o777 == 0o700
        process.kill()
        process.wait()
        with temporary_folder(tmp_path) as own:
            assert list(tmp_path.iterdir()) == [own]
    assert list(tmp_path.iterdir()) == []


def test_several_at_once_and_other_files_stay(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("data.part", ".deepmf-00000000-0123456789abcdef.part")]
    for path in kept:
        path.write_text("kept")
    with temporary_file(tmp_path) as one, temporary_file(tmp_path) as other, temporary_folder(tmp_path) as folder:
        assert {one, other, folder, *kept} == set(tmp_path.iterdir())
    assert set(kept) == set(tmp_path.iterdir())


def test_no_place_for_a_folder(tmp_path: Path) -> None:
    refused = pytest.raises(CannotSave, match="nowhere")
    with refused, temporary_folder(tmp_path / "nowhere"):
        pass


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
    with pytest.raises(FileNotFoundError):
        exchange(one, other)
    with pytest.raises(FileNotFoundError):
        _exchange_in_steps(one, other)
    assert other.read_text() == "old" and list(tmp_path.iterdir()) == [other]


def test_a_file_system_without_exchange_does_it_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepmf import files as module

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


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def write_new(temporary: Path) -> None:
    temporary.write_bytes(b"new")


def write_half(then: Callable[[], None]) -> Callable[[Path], None]:
    def write(temporary: Path) -> None:
        temporary.write_bytes(b"ne")
        then()

    return write


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    return path


def assert_untouched(old: Path) -> None:
    assert old.read_bytes() == b"old"
    assert list(old.parent.iterdir()) == [old]


def test_a_new_file_appears(tmp_path: Path) -> None:
    write_atomically(str(tmp_path / "new"), write_new)
    (tmp_path / "plain").write_bytes(b"new")
    assert (tmp_path / "new").read_bytes() == b"new"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {path.name for path in tmp_path.iterdir()} == {"new", "plain"}


def fill(folder: Path) -> None:
    (folder / "one").write_text("new")


def test_a_folder_appears_whole_with_the_permissions_of_any_other(tmp_path: Path) -> None:
    write_folder_atomically(tmp_path / "new", fill)
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "new" / "one").read_text() == "new"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {path.name for path in tmp_path.iterdir()} == {"new", "plain"}


def test_a_folder_takes_the_place_of_what_it_may_and_of_nothing_else(tmp_path: Path) -> None:
    for name in ("file", "folder"):
        path = tmp_path / name
        path.write_text("old") if name == "file" else path.mkdir()
        with pytest.raises(CannotSave, match="already"):
            write_folder_atomically(path, fill)
        write_folder_atomically(path, fill, replaces=lambda _: True)
        assert (path / "one").read_text() == "new"
    with pytest.raises(CannotSave, match="folder"):
        write_folder_atomically(tmp_path / "none" / "new", fill)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


@pytest.mark.parametrize("broken", [full_disk, interrupt])
def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path, broken: Callable[[], None]) -> None:
    (tmp_path / "old").mkdir()

    def write(folder: Path) -> None:
        fill(folder)
        broken()

    for name in ("old", "new"):
        with pytest.raises((CannotSave, KeyboardInterrupt)):
            write_folder_atomically(tmp_path / name, write, replaces=lambda _: True)
    assert list(tmp_path.iterdir()) == [tmp_path / "old"] and list((tmp_path / "old").iterdir()) == []


def test_the_old_file_stays_until_the_new_one_is_whole(old: Path) -> None:
    seen = []

    def write(temporary: Path) -> None:
        seen.append((temporary.parent, temporary.stat().st_size, old.read_bytes()))
        write_new(temporary)

    write_atomically(old, write)
    assert seen == [(old.parent, 0, b"old")]
    assert old.read_bytes() == b"new"
    assert list(old.parent.iterdir()) == [old]


def test_bytes_reach_the_disk_before_the_rename(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("replace"), replace(*paths)))
    write_atomically(old, write_new)
    assert calls[:2] == ["fsync", "replace"]


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_full_disk_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(os, name, full_disk)
    with pytest.raises(CannotSave) as caught:
        write_atomically(old, write_new)
    assert re.match(f"{old} .*No space left on device.*nothing was changed$", str(caught.value))
    assert isinstance(caught.value, UserError)
    assert isinstance(caught.value, OSError)
    assert_untouched(old)


def test_interrupt_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", interrupt)
    for write in (write_half(interrupt), write_new):
        with pytest.raises(KeyboardInterrupt):
            write_atomically(old, write)
        assert_untouched(old)


@pytest.mark.parametrize(
    "name, reason",
    [
        ("none/model", "folder"),
        ("file/model", "Not a directory"),
        ("folder", "is a directory"),
        ("pipe", "ordinary"),
        ("null\0character", "null"),
        ("x" * 300, "long"),
    ],
)
def test_no_place_for_a_file(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = {path: path.stat().st_mode for path in tmp_path.iterdir()}
    with pytest.raises(CannotSave, match=reason):
        write_atomically(tmp_path / name, write_new)
    assert {path: path.stat().st_mode for path in tmp_path.iterdir()} == before


def test_folder_and_file_without_permission(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied() -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with pytest.raises(CannotSave, match="Permission"):
        write_atomically(old, write_half(denied))
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anything
    with pytest.raises(CannotSave, match="write-protected"):
        write_atomically(old, write_new)
    assert_untouched(old)


def test_permissions_are_handed_on(old: Path) -> None:
    old.chmod(0o640)
    write_atomically(old, write_new)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_a_link_is_followed(old: Path) -> None:
    link = old.with_name("latest")
    link.symlink_to(old)
    write_atomically(link, write_new)
    assert link.is_symlink()
    assert old.read_bytes() == b"new"


def test_nothing_half_made_stays_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_from_nothing(folder: Path) -> None:
        raise FileAbsent("there is no file x")

    with pytest.raises(FileAbsent, match="x$"):
        write_folder_atomically(tmp_path / "new", fill_from_nothing)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anything
    with pytest.raises(CannotSave, match="write-protected"):
        write_folder_atomically(tmp_path / "new", fill)
    assert list(tmp_path.iterdir()) == []


def test_polars_is_imported_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert import_polars() is polars
    monkeypatch.setitem(sys.modules, "polars", None)
    matrix = ObservedMatrix.from_array(np.ones((2, 2)) * [1, 2])
    for need in (import_polars, matrix.to_frame, lambda: find_label_type(matrix.row_labels)):
        with pytest.raises(MissingDependency, match="polars"):
            need()


@pytest.mark.parametrize("read", [read_text_file, read_toml, read_keys])
def test_a_pipe_is_no_text_file(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    with pytest.raises(UnreadableFile, match="ordinary"):
        read(tmp_path / "pipe")
    with pytest.raises(FileAbsent, match="absent"):
        read(tmp_path / "absent")
