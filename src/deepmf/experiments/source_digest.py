"""The source that runs an experiment: its commit, and a digest of the files themselves."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def stamp() -> dict[str, str]:
    """Return what a record says of the source: its `commit`, which a person may have given, and its `digest`."""
    return {"commit": commit(), "digest": digest()}


def commit() -> str:
    """Return the commit that runs, and whether the source has changed since.

    The checkout's, or DEEPMF_COMMIT on a machine that has only the files.
    """
    if given := os.environ.get("DEEPMF_COMMIT"):
        return given
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", str(PACKAGE))
    return (commit or "unknown") + ("-changed" if changed else "")


def digest(folder: Path = PACKAGE) -> str:
    """Return the SHA-256 of a package's Python files and recipes, by their paths inside it and what they hold."""
    files = {
        path.relative_to(folder).as_posix(): path for ending in ("py", "toml") for path in folder.rglob(f"*.{ending}")
    }
    whole = hashlib.sha256()
    for name in sorted(files):
        # A hash of each file has a fixed length, so no other files give the same bytes.
        whole.update(name.encode() + b"\0" + hashlib.sha256(files[name].read_bytes()).digest())
    return whole.hexdigest()


def _git(*words: str) -> str:
    shown = subprocess.run(["git", "-C", str(PACKAGE), *words], capture_output=True, text=True, check=False)
    return shown.stdout.strip()
