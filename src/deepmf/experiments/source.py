"""The state of the source that measured a result."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def describe_source() -> dict[str, str]:
    """Return the `commit` and the `digest` of the source, for a record."""
    return {"commit": find_commit(), "digest": digest()}


def find_commit() -> str:
    """Return the commit of the checkout, followed by "-changed" if files differ from it.

    On a machine without the history, DEEPMF_COMMIT gives the commit.
    """
    if given := os.environ.get("DEEPMF_COMMIT"):
        return given
    commit = run_git("rev-parse", "--short", "HEAD")
    changed = run_git("status", "--porcelain", "--", str(PACKAGE))
    return (commit or "unknown") + ("-changed" if changed else "")


def digest(folder: Path = PACKAGE) -> str:
    """Return the SHA-256 of the paths and contents of a package's Python files and recipes."""
    files = {
        path.relative_to(folder).as_posix(): path
        for ending in ("py", "toml")
        for path in folder.rglob(f"*.{ending}")
    }
    checksum = hashlib.sha256()
    for name in sorted(files):
        # A hash of each file has a fixed length, so no other files give the same bytes.
        checksum.update(name.encode() + b"\0" + hashlib.sha256(files[name].read_bytes()).digest())
    return checksum.hexdigest()


def run_git(*words: str, folder: Path = PACKAGE) -> str:
    """Return what a command of git prints in a folder; nothing where it fails."""
    shown = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()
