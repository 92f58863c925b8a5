"""Getting a matrix: reading files, packing them into a store, data sets, generated matrices, splits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepmf.data.features import read_features
    from deepmf.data.packing import pack
    from deepmf.data.read import read_matrix
    from deepmf.data.splits import (
        AreaSplit,
        RowSplit,
        Split,
        split_areas,
        split_entries,
        split_folds,
        split_from_masks,
        split_rows,
    )

__all__ = [
    "AreaSplit",
    "RowSplit",
    "Split",
    "pack",
    "read_features",
    "read_matrix",
    "split_areas",
    "split_entries",
    "split_folds",
    "split_from_masks",
    "split_rows",
]

# Modules are imported when a name of theirs is first used: `import deepmf.data` loads nothing heavy.
_HOMES = dict.fromkeys(__all__, "deepmf.data.splits")
_HOMES |= {
    "pack": "deepmf.data.packing",
    "read_features": "deepmf.data.features",
    "read_matrix": "deepmf.data.read",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deepmf.data' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
