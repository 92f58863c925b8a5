"""Models: they fit a matrix, predict its missing entries, extend to new rows and columns, and save themselves."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.models.base import Model
    from deepmf.models.distribution import Interval
    from deepmf.models.explanation import Explanation
    from deepmf.models.fold_in import FoldedColumns, FoldedRows
    from deepmf.models.loading import load, verify
    from deepmf.models.neighbours import ColumnNeighbours
    from deepmf.models.ranking import Ranking

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

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.models.base": ["Model"],
        "deepmf.models.distribution": ["Interval"],
        "deepmf.models.explanation": ["Explanation"],
        "deepmf.models.fold_in": ["FoldedColumns", "FoldedRows"],
        "deepmf.models.loading": ["load", "verify"],
        "deepmf.models.neighbours": ["ColumnNeighbours"],
        "deepmf.models.ranking": ["Ranking"],
    },
)
