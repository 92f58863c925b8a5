"""Getting a matrix: reading files, packing them into a store, data sets, generated matrices,
splits."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.data.features import read_features as read_features
    from deepmf.data.packing import pack as pack
    from deepmf.data.read import read_matrix as read_matrix
    from deepmf.data.splits import (
        AreaSplit as AreaSplit,
        ArrivalSplit as ArrivalSplit,
        RowSplit as RowSplit,
        Split as Split,
        split_areas as split_areas,
        split_arrivals as split_arrivals,
        split_entries as split_entries,
        split_folds as split_folds,
        split_from_masks as split_from_masks,
        split_last as split_last,
        split_rows as split_rows,
        split_time as split_time,
    )

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
