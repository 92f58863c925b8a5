"""Models: they fit a matrix, predict its missing entries, extend to new rows and columns, and save
themselves."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.models.base import Model as Model
    from deepmf.models.explanation import Explanation as Explanation
    from deepmf.models.fold_in import FoldedColumns as FoldedColumns, FoldedRows as FoldedRows
    from deepmf.models.loading import load as load, verify as verify
    from deepmf.models.simple import SimpleModel as SimpleModel, SimpleSettings as SimpleSettings
    from deepmf.recommend.ranking import Ranking as Ranking
    from deepmf.scoring.distribution import Interval as Interval
    from deepmf.training.settings import (
        setting as setting,
        settings_dataclass as settings_dataclass,
    )

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
