"""Matrices with missing entries: their entries, labels, scale, and the features of rows and
columns."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.matrix.description import Description as Description
    from deepmf.matrix.features import Features as Features
    from deepmf.matrix.labels import Labels as Labels
    from deepmf.matrix.matrix import (
        AREAS as AREAS,
        Entries as Entries,
        ObservedMatrix as ObservedMatrix,
    )
    from deepmf.matrix.scale import Scale as Scale
    from deepmf.matrix.stored import verify_store as verify_store
    from deepmf.matrix.table_form import TableForm as TableForm

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
