"""Temporary files and folders: those of the dead go, those of the living stay."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import deepmf
from deepmf.errors import CannotSave
from deepmf.files.atomic import write_atomically
from deepmf.files.leftovers import temporary_file, temporary_folder

USE = """
import sys, time
from pathlib import Path
from deepmf.files.leftovers import temporary_file, temporary_folder
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
    refused = pytest.raises(CannotSave, match="no temporary folder could be made in .*nowhere")
    with refused, temporary_folder(tmp_path / "nowhere"):
        pass
