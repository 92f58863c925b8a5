"""The state of the source: its digest changes with its files, and with nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tools import result_tables
from tools.result_tables import has_changed_since, list_source_files

from deepmf.experiments.source import PACKAGE, describe_source, digest, find_commit


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "recipes" / "table1").mkdir(parents=True)
    (folder / "a.py").write_text("one = 1\n")
    (folder / "b.py").write_text("two = 2\n")
    (folder / "recipes" / "table1" / "1-means.toml").write_text('title = "means"\n')
    return folder


@pytest.mark.parametrize("name", ["a.py", "recipes/table1/1-means.toml"])
def test_a_file_that_changes_changes_the_digest(package: Path, name: str) -> None:
    before = digest(package)
    path = package / name
    path.write_text(path.read_text() + "# \n")
    assert digest(package) != before


def test_a_name_a_new_file_and_a_moved_line_change_it(package: Path) -> None:
    seen = [digest(package)]
    (package / "c.py").write_text("")
    seen.append(digest(package))
    (package / "c.py").rename(package / "d.py")
    seen.append(digest(package))
    (package / "a.py").write_text("one = 1\ntwo = 2\n")
    (package / "b.py").write_text("")
    seen.append(digest(package))
    assert len(set(seen)) == 4


def test_times_places_and_other_files_do_not_change_it(package: Path, tmp_path: Path) -> None:
    before = digest(package)
    os.utime(package / "a.py", (1, 1))
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.cpython-312.pyc").write_bytes(b"compiled")
    (package / "notes.txt").write_text("a note")
    assert digest(package) == before
    assert digest(shutil.copytree(package, tmp_path / "elsewhere")) == before


def test_a_stamp_has_the_commit_that_was_given_and_a_digest_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEEPMF_COMMIT", "abc")
    assert (find_commit(), describe_source()) == ("abc", {"commit": "abc", "digest": digest()})


@pytest.mark.slow
def test_the_code_of_a_method_is_what_it_imports() -> None:
    als, ordinal = (
        {
            path.relative_to(PACKAGE).as_posix()
            for path in list_source_files(f"deepmf.models.{name}")
        }
        for name in ("als", "ordinal.model")
    )
    assert "models/als.py" in als - ordinal
    # a sampler is a member
    assert {"models/ordinal/model.py", "models/gibbs/chain.py"} <= ordinal - als
    assert {
        "training/settings.py",
        "matrix/entries.py",
        "data/splits.py",
        "data/read.py",
    } <= als & ordinal
    assert not [name for name in als | ordinal if name.startswith(("serve", "cli", "experiments"))]


@pytest.mark.slow
def test_a_method_has_changed_with_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {PACKAGE / "models" / "ordinal" / "model.py", PACKAGE / "serve" / "app.py"}
    monkeypatch.setattr(
        result_tables, "list_changed_files", {"abc": frozenset(changed), "gone": None}.__getitem__
    )
    asked = has_changed_since.__wrapped__  # nothing of this stays in its cache
    assert asked("abc-changed", "deepmf.models.ordinal.model")
    assert not asked("abc", "deepmf.models.als")


@pytest.mark.parametrize("commit", ["0" * 40, "", "unknown"])
def test_a_commit_that_is_not_in_the_history_is_older(commit: str) -> None:
    assert has_changed_since(commit, "deepmf.models.als")


def test_a_file_has_not_changed_if_it_was_only_moved_or_its_commit_says_so(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True
        )

    git("init")
    (tmp_path / "old.py").write_text("".join(f"line_{number} = {number}\n" for number in range(20)))
    (tmp_path / "other.py").write_text("one = 1\n")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "old.py").rename(tmp_path / "moved.py")
    (tmp_path / "other.py").write_text("one = 2\n")
    git("add", ".")
    git("commit", "-m", "second")
    changed = result_tables.list_changed_files("HEAD~1", tmp_path)
    assert changed is not None and {path.name for path in changed} == {"other.py"}
    (tmp_path / "moved.py").write_text("")
    git("commit", "-a", "-m", "third", "-m", "Results: the same, since nothing reads it")
    result_tables.list_changed_files.cache_clear()
    assert result_tables.list_changed_files("HEAD~1", tmp_path) == frozenset()
    (tmp_path / "moved.py").write_text("one = 3\n")
    result_tables.list_changed_files.cache_clear()
    assert result_tables.list_changed_files("HEAD~1", tmp_path) == {tmp_path / "moved.py"}
