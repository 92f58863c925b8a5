"""Matrices to try things on: public data sets by name, and generated matrices whose truth is known."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepmf.data.datasets import Dataset, fetch, fetch_file, find, folder, info, load, load_split, names
    from deepmf.data.ground_truth import Truth, draw_truth
    from deepmf.data.synthetic import Generated, checkerboard, generate, stream

__all__ = [
    "Dataset",
    "Generated",
    "Truth",
    "checkerboard",
    "draw_truth",
    "fetch",
    "fetch_file",
    "find",
    "folder",
    "generate",
    "info",
    "load",
    "load_split",
    "names",
    "stream",
]

# Modules are imported when a name of theirs is first used: `import deepmf.datasets` loads nothing heavy.
_HOMES = dict.fromkeys(__all__, "deepmf.data.datasets")
_HOMES |= dict.fromkeys(["Truth", "draw_truth"], "deepmf.data.ground_truth")
_HOMES |= dict.fromkeys(["Generated", "checkerboard", "generate", "stream"], "deepmf.data.synthetic")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deepmf.datasets' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
