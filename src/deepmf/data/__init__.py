"""Getting a matrix: reading files, packing them into a store, data sets, generated matrices, splits."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

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
        split_last,
        split_rows,
        split_time,
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
    "split_last",
    "split_rows",
    "split_time",
]

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.data.features": ["read_features"],
        "deepmf.data.packing": ["pack"],
        "deepmf.data.read": ["read_matrix"],
        "deepmf.data.splits": [
            "AreaSplit",
            "RowSplit",
            "Split",
            "split_areas",
            "split_entries",
            "split_folds",
            "split_from_masks",
            "split_last",
            "split_rows",
            "split_time",
        ],
    },
)
