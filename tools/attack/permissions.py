"""Folders that cannot be written: every command says so in a sentence, or needs no more than to read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attack.target import Outcome
from deepmf.datasets import generate
from deepmf.models.als import ALS

# Permissions do not bind an administrator who has these capabilities.
_DROP = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]

_REFUSED = [
    "fit ratings.csv -o new.safetensors --model means",
    "fit ratings.csv -o new.safetensors --model als --set epochs=1",
    "pack ratings.csv -o ratings.store",
    "complete model.safetensors -o completed.csv",
    "split ratings.csv --output parts",
    "serve model.safetensors --port 0",
    "serve model.safetensors --port 0 --database entries.sqlite",
    "api-key keys.txt --name ann --role read",
]
_ALLOWED = ["inspect model.safetensors", "explain model.safetensors --row 0 --column 0"]


def attack(folder: Path) -> Iterator[Outcome]:
    """Run commands on folders without the right to write."""
    what = "folders without the right to write"
    if os.geteuid() == 0 and shutil.which(_DROP[0]) is None:
        yield Outcome(what, "not tried", 0, "this user may write everywhere")
        return
    with tempfile.TemporaryDirectory(prefix="deepmf-attack-") as other:
        place = Path(other)
        place.chmod(0o755)
        matrix = generate(30, 20, density=0.4, named=False, seed=0).matrix
        ALS(latent_size=2, epochs=1, seed=0).fit(matrix).save(place / "model.safetensors")
        matrix.to_frame().write_csv(place / "ratings.csv")
        (place / "entries.sqlite").touch()
        for path in place.iterdir():
            path.chmod(0o444)
        place.chmod(0o555)
        n_wrong = sum(not _is_refused(command.split(), place) for command in _REFUSED)
        n_wrong += sum(not _is_done(command.split(), place) for command in _ALLOWED)
    yield Outcome(
        what,
        f"{len(_REFUSED)} commands that write, {len(_ALLOWED)} that only read",
        n_wrong,
        "one sentence and exit status 2 or 1; nothing is left behind",
    )


def _is_refused(command: list[str], folder: Path) -> bool:
    """Return whether a command ends with a sentence about permissions and leaves all as it was."""
    before = sorted(folder.iterdir())
    ended = _run(command, folder)
    said = ended.stderr.strip()
    is_sentence = "\n" not in said and re.search(
        "write-protected|ermission|read.?only|cannot be used", said
    )
    is_right = ended.returncode in (1, 2) and is_sentence and sorted(folder.iterdir()) == before
    if not is_right:
        sys.stderr.write(f"{command}: {ended.returncode}, {said[-500:]}\n")
    return bool(is_right)


def _is_done(command: list[str], folder: Path) -> bool:
    ended = _run(command, folder)
    if ended.returncode != 0:
        sys.stderr.write(f"{command}: {ended.returncode}, {ended.stderr[-500:]}\n")
    return ended.returncode == 0


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "deepmf", *command]
    return subprocess.run(
        [*_DROP, *arguments] if os.geteuid() == 0 else arguments,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=300,
    )
