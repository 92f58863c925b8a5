"""The state of the source that measured a result, and whether the code of a method has changed since."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[1]

# What a model imports and what does not affect its predictions.
NOT_LEARNING = ("deepmf.errors", "deepmf.files", "deepmf.formatting", "deepmf.lazy", "deepmf.plots")


def describe_source() -> dict[str, str]:
    """Return the `commit` and the `digest` of the source, for a record."""
    return {"commit": find_commit(), "digest": digest()}


def find_commit() -> str:
    """Return the commit of the checkout, followed by "-changed" if files differ from it.

    On a machine without the history, DEEPMF_COMMIT gives the commit.
    """
    if given := os.environ.get("DEEPMF_COMMIT"):
        return given
    commit = _run_git("rev-parse", "--short", "HEAD")
    changed = _run_git("status", "--porcelain", "--", str(PACKAGE))
    return (commit or "unknown") + ("-changed" if changed else "")


def digest(folder: Path = PACKAGE) -> str:
    """Return the SHA-256 of the paths and contents of a package's Python files and recipes."""
    files = {
        path.relative_to(folder).as_posix(): path for ending in ("py", "toml") for path in folder.rglob(f"*.{ending}")
    }
    whole = hashlib.sha256()
    for name in sorted(files):
        # A hash of each file has a fixed length, so no other files give the same bytes.
        whole.update(name.encode() + b"\0" + hashlib.sha256(files[name].read_bytes()).digest())
    return whole.hexdigest()


@functools.cache
def has_changed_since(commit: str, module: str) -> bool:
    """Return whether the code of a method has changed since a commit: its module, what that imports, or the data code.

    A file that was only moved has not changed. A commit that is not in the history of the checkout counts as older.
    """
    changed = list_changed_files(commit.removesuffix("-changed"))
    return changed is None or not changed.isdisjoint(list_source_files(module))


@functools.cache
def list_source_files(module: str) -> frozenset[Path]:
    """Return the files that a figure of a module depends on: its own, those it imports at any depth, and `data/`."""
    found = set((PACKAGE / "data").rglob("*.py"))
    pending = [module, *(name for path in found for name in _list_imports(path))]
    while pending:
        name = pending.pop()
        path = _find_file(name) if name.startswith("deepmf.") and not name.startswith(NOT_LEARNING) else None
        if path is not None and path not in found:
            found.add(path)
            pending += _list_imports(path)
    return frozenset(found)


@functools.cache
def _list_imports(path: Path) -> frozenset[str]:
    """Return the names that a file imports; of `from a import b` both a.b, which may be a module, and a."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return frozenset(found)


def _find_file(module: str) -> Path | None:
    place = PACKAGE.parent / module.replace(".", "/")
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists()), None)


@functools.cache
def list_changed_files(commit: str, folder: Path = PACKAGE) -> frozenset[Path] | None:
    """Return the files that have changed since a commit; None if the commit is not in the history."""
    if not commit or not _run_git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}", folder=folder):
        return None
    root = Path(_run_git("rev-parse", "--show-toplevel", folder=folder))
    lines = _run_git("diff", "--name-status", "-M", commit, "--", str(folder), folder=folder).splitlines()
    changes = [line.split("\t") for line in lines]  # M path; R087 old new; R100 for a file that was only moved
    return frozenset(root / paths[-1] for status, *paths in changes if status != "R100")


def _run_git(*words: str, folder: Path = PACKAGE) -> str:
    shown = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return shown.stdout.strip()
