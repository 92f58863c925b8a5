"""Models: they fit a matrix, predict its missing entries, extend to new rows and columns, and save themselves."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.models.base import Model
    from deepmf.models.explanation import Explanation
    from deepmf.models.fold_in import FoldedColumns, FoldedRows
    from deepmf.models.loading import load, verify
    from deepmf.recommend.neighbours import ColumnNeighbours
    from deepmf.recommend.ranking import Ranking
    from deepmf.scoring.distribution import Interval

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
        "deepmf.scoring.distribution": ["Interval"],
        "deepmf.models.explanation": ["Explanation"],
        "deepmf.models.fold_in": ["FoldedColumns", "FoldedRows"],
        "deepmf.models.loading": ["load", "verify"],
        "deepmf.recommend.neighbours": ["ColumnNeighbours"],
        "deepmf.recommend.ranking": ["Ranking"],
    },
)
