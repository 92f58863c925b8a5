"""Models: they fit a matrix, predict its missing entries, extend to new rows and columns, and save themselves."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepmf.models.base import Model
    from deepmf.models.distribution import Interval
    from deepmf.models.explanation import Explanation
    from deepmf.models.fold_in import FoldedColumns, FoldedRows
    from deepmf.models.loading import load, verify
    from deepmf.models.ranking import ColumnNeighbours, Ranking

__all__ = [
    "ColumnNeighbours",
    "Explanation",
    "FoldedColumns",
    "FoldedRows",
    "Interval",
    "Model",
    "Ranking",
    "load",
    "verify",
]

# A name is imported when it is first used.
_MODULES = {
    "ColumnNeighbours": "deepmf.models.ranking",
    "Explanation": "deepmf.models.explanation",
    "FoldedColumns": "deepmf.models.fold_in",
    "FoldedRows": "deepmf.models.fold_in",
    "Interval": "deepmf.models.distribution",
    "Model": "deepmf.models.base",
    "Ranking": "deepmf.models.ranking",
    "load": "deepmf.models.loading",
    "verify": "deepmf.models.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'deepmf.models' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
