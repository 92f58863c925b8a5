"""Matrices with missing entries: deep matrix factorization that extends to new rows and columns."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.data.features import read_features as read_features
    from deepmf.data.packing import pack as pack
    from deepmf.data.read import read_matrix as read_matrix
    from deepmf.data.splits import (
        split_areas as split_areas,
        split_arrivals as split_arrivals,
        split_entries as split_entries,
        split_folds as split_folds,
        split_from_masks as split_from_masks,
        split_last as split_last,
        split_rows as split_rows,
        split_time as split_time,
    )
    from deepmf.evaluation.comparison import compare as compare
    from deepmf.matrix.features import Features as Features
    from deepmf.matrix.matrix import ObservedMatrix as ObservedMatrix
    from deepmf.matrix.scale import Scale as Scale
    from deepmf.models.loading import load as load
    from deepmf.models.registry import *  # noqa: F403 (the models and their settings)

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
