"""A full disk: every command says so in a line, and leaves everything as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

resource = pytest.importorskip("resource")


@contextmanager
def files_up_to(n_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size; a write beyond it fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


COMMANDS = {
    "fit": ["fit", "{train}", "-o", "{place}/m.safetensors", "--model", "means"],
    "fit to a folder": ["fit", "{train}", "-o", "{place}/m.model", "--model", "means"],
    "split": ["split", "{train}", "-o", "{place}/parts"],
    "split into stores": ["split", "{train}", "-o", "{place}/parts", "--format", "store"],
    "split into npz": ["split", "{train}", "-o", "{place}/parts", "--format", "npz"],
    "pack": ["pack", "{train}", "-o", "{place}/r.store"],
    "predict": ["predict", "{means}", "{train}", "-o", "{place}/p.csv"],
    "predict to parquet": ["predict", "{means}", "{train}", "-o", "{place}/p.parquet"],
    "complete": ["complete", "{means}", "-o", "{place}/c.csv"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("n_bytes", [100, 700])
def test_nothing_is_left_behind(run: Any, folder: Path, tmp_path: Path, command: str, n_bytes: int) -> None:
    names = {"train": folder / "train.csv", "means": folder / "means.safetensors", "place": tmp_path}
    with files_up_to(n_bytes):
        outcome = run(*(word.format(**names) for word in COMMANDS[command]))
    assert outcome.code == 2, outcome
    assert "could not be written" in outcome.err and outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
