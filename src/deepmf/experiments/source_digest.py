"""The source that runs an experiment: its commit, a digest of the files themselves, and what has changed since."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
# The parts of the package that decide what a method learns and predicts.
LEARNING = ("deepmf.models", "deepmf.layers", "deepmf.training")


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


@functools.cache
def changed_since(commit: str, module: str) -> bool:
    """Return whether the code of a method has changed since a commit: its module, or learning code that it imports.

    So it has if nobody can tell, because the commit is not in the checkout's history.
    """
    changed = _changed_files(commit.removesuffix("-changed"))
    return changed is None or not changed.isdisjoint(source_files(module))


@functools.cache
def source_files(module: str) -> frozenset[Path]:
    """Return the files that a module runs: its own, and those it imports from its package or LEARNING, at any depth."""
    parts = (*LEARNING, module.rpartition(".")[0])
    found: set[Path] = set()
    pending = [module]
    while pending:
        path = _file_of(pending.pop())
        if path is not None and path not in found:
            found.add(path)
            pending += [name for name in _imported(path) if name.startswith(parts)]
    return frozenset(found)


def _imported(path: Path) -> Iterator[str]:
    """Yield the names that a file imports; of `from a import b` both a.b, which may be a module, and a."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)
            yield node.module


def _file_of(module: str) -> Path | None:
    place = PACKAGE.parent / module.replace(".", "/")
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists()), None)


@functools.cache
def _changed_files(commit: str) -> frozenset[Path] | None:
    """Return the files that differ from those of a commit; None where there is no such commit."""
    if not commit or not _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"):
        return None
    root = Path(_git("rev-parse", "--show-toplevel"))
    return frozenset(root / name for name in _git("diff", "--name-only", commit, "--", str(PACKAGE)).splitlines())


def _git(*words: str) -> str:
    shown = subprocess.run(["git", "-C", str(PACKAGE), *words], capture_output=True, text=True, check=False)
    return shown.stdout.strip()
