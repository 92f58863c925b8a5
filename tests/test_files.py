"""Files and folders appear whole or not at all, on every system."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars
import pytest

from deepmf.errors import CannotSave, FileAbsent, MissingDependency, UnreadableFile, UserError
from deepmf.files import (
    polars as polars_on_demand,
    read_text_file,
    read_toml,
    write_atomically,
    write_folder_atomically,
)
from deepmf.matrix.frame_file import find_label_type
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.serve.auth import read_keys


def test_what_a_killed_process_left_is_removed_a_day_later(tmp_path: Path) -> None:
    (tmp_path / ".deepmf-of-others").touch()
    for age, name in ((0, "young"), (2 * 86400, "old")):
        (tmp_path / f".deepmf-{name}-file.part").touch()
        (tmp_path / f".deepmf-{name}-folder.part").mkdir()
        (tmp_path / f".deepmf-{name}-folder.part" / "inside").touch()
        for path in tmp_path.glob(f".deepmf-{name}-*"):
            os.utime(path, times=(0, path.stat().st_mtime - age))
    write_atomically(tmp_path / "model", write_new)
    young = {".deepmf-young-file.part", ".deepmf-young-folder.part"}
    assert {path.name for path in tmp_path.iterdir()} == {".deepmf-of-others", "model", *young}


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


def is_part(file: Path) -> bool:
    return file.name in ("one", "two")


def test_a_folder_appears_whole_with_the_permissions_of_any_other(tmp_path: Path) -> None:
    write_folder_atomically(tmp_path / "new", fill, is_part=is_part)
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "new" / "one").read_text() == "new"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {path.name for path in tmp_path.iterdir()} == {"new", "plain"}


def test_a_folder_takes_the_place_of_one_with_the_same_parts_and_of_nothing_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "parts").mkdir(mode=0o750)
    (tmp_path / "parts" / "two").write_text("old")
    write_folder_atomically(tmp_path / "parts", fill, is_part=is_part)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["one"]
    assert stat.S_IMODE((tmp_path / "parts").stat().st_mode) == 0o750
    (tmp_path / "parts" / "cat.png").touch()
    (tmp_path / "file").touch()
    for name, said in (
        ("parts", "cat.png"),
        ("file", "cannot be a folder"),
        ("none/new", "no folder"),
    ):
        with pytest.raises(CannotSave, match=said):
            write_folder_atomically(tmp_path / name, fill, is_part=is_part)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "parts"}


def test_a_folder_that_cannot_be_renamed_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    # as Windows does where a file of the folder is open
    def refuse(path: Path, target: Path) -> Path:
        if path.suffix == ".part":
            raise PermissionError(errno.EACCES, "Access is denied")
        return rename(path, target)

    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "two").touch()
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(CannotSave, match="Access is denied"):
        write_folder_atomically(tmp_path / "old", fill, is_part=is_part)
    assert [path.name for path in tmp_path.rglob("*")] == ["old", "two"]


@pytest.mark.parametrize("broken", [full_disk, interrupt])
def test_a_folder_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, broken: Callable[[], None]
) -> None:
    (tmp_path / "old").mkdir()

    def write(folder: Path) -> None:
        fill(folder)
        broken()

    for name in ("old", "new"):
        with pytest.raises((CannotSave, KeyboardInterrupt)):
            write_folder_atomically(tmp_path / name, write, is_part=is_part)
    assert (
        list(tmp_path.iterdir()) == [tmp_path / "old"] and list((tmp_path / "old").iterdir()) == []
    )


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


def test_nothing_half_made_stays_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_from_nothing(folder: Path) -> None:
        raise FileAbsent("there is no file x")

    with pytest.raises(FileAbsent, match="x$"):
        write_folder_atomically(tmp_path / "new", fill_from_nothing, is_part=is_part)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anything
    with pytest.raises(CannotSave, match="write-protected"):
        write_folder_atomically(tmp_path / "new", fill, is_part=is_part)
    assert list(tmp_path.iterdir()) == []


def test_polars_is_imported_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert polars_on_demand.DataFrame is polars.DataFrame
    monkeypatch.setitem(sys.modules, "polars", None)
    matrix = ObservedMatrix.from_array(np.ones((2, 2)) * [1, 2])
    for need in (
        lambda: polars_on_demand.Series,
        matrix.to_frame,
        lambda: find_label_type(matrix.row_labels),
    ):
        with pytest.raises(MissingDependency, match="polars"):
            need()


@pytest.mark.parametrize("read", [read_text_file, read_toml, read_keys])
def test_a_pipe_is_no_text_file(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    with pytest.raises(UnreadableFile, match="ordinary"):
        read(tmp_path / "pipe")
    with pytest.raises(FileAbsent, match="absent"):
        read(tmp_path / "absent")


def test_windows_opens_no_folder_and_renames_nothing_over_an_open_file(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file, replace = os.open, os.replace

    def refuse_folders(path: Path, *arguments: int, **others: int | None) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_file(path, *arguments, **others)  # type: ignore[arg-type]

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Access is denied")

    monkeypatch.setattr(os, "open", refuse_folders)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(CannotSave, match="Access is denied"):
        write_atomically(old, write_new)
    assert_untouched(old)
    monkeypatch.setattr(os, "replace", replace)
    write_atomically(old, write_new)
    assert old.read_bytes() == b"new"
