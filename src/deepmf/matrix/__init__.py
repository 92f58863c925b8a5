"""Matrices with missing entries: their entries, labels, scale, and the features of rows and columns."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.matrix.description import Description
    from deepmf.matrix.features import Features
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import AREAS, Entries, ObservedMatrix
    from deepmf.matrix.packed import verify_store
    from deepmf.matrix.scale import Scale
    from deepmf.matrix.table_form import TableForm

__all__ = [
    "AREAS",
    "Description",
    "Entries",
    "Features",
    "Labels",
    "ObservedMatrix",
    "Scale",
    "TableForm",
    "verify_store",
]

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.matrix.description": ["Description"],
        "deepmf.matrix.features": ["Features"],
        "deepmf.matrix.labels": ["Labels"],
        "deepmf.matrix.matrix": ["AREAS", "Entries", "ObservedMatrix"],
        "deepmf.matrix.packed": ["verify_store"],
        "deepmf.matrix.scale": ["Scale"],
        "deepmf.matrix.table_form": ["TableForm"],
    },
)
