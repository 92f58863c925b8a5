"""Ridge regression on features: what the features of rows, or of columns, say of their effects and factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.feature_vectors import FeatureVectors
from deepmf.storage.packed import Tensors, numbers


class FeatureWeights(NamedTuple):
    """The weights (inputs, width) of the features of rows and of columns; None where there are no features."""

    rows: npt.NDArray[Any] | None = None
    columns: npt.NDArray[Any] | None = None

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """Return them under the names that they have in a file."""
        return {f"features.{axis}": table for axis, table in self._asdict().items() if table is not None}


NO_WEIGHTS = FeatureWeights()


def stored_weights(entries: EntryStore, tensors: Tensors, *, width: int, kind: str) -> FeatureWeights:
    """Return the weights that a model packed; any that do not fit its features raise `BadModelFile`."""
    return FeatureWeights(
        *(
            None if features is None else numbers(tensors, f"features.{axis}", kind, (features.n_inputs, width))
            for axis, features in (("rows", entries.row_features), ("columns", entries.column_features))
        )
    )


def prior(entries: AxisEntries, weights: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    """Return what the features of some rows (or columns) say (vectors, width); None where there are none."""
    if weights is None or entries.features is None:
        return None
    return entries.features.product(weights)


class FeatureRidge:
    """The ridge regression of numbers of rows (or columns) on their features, laid out once.

    precisions: how much the numbers of each vector count, (vectors,). penalty: as many vectors of average precision.
    """

    def __init__(self, features: FeatureVectors, precisions: FloatArray, penalty: float) -> None:
        table = features.sparse().astype(np.float64)
        self._weighted = table.multiply(precisions[:, None]).T.tocsr()
        gram = (self._weighted @ table).toarray()
        counted = precisions[precisions > 0]
        gram[np.diag_indices_from(gram)] += penalty * (counted.mean() if counted.size else 1.0)
        self._factor = scipy.linalg.cho_factor(gram)

    def weights(self, targets: npt.NDArray[Any]) -> FloatArray:
        """Return the weights (inputs, width) for numbers (vectors, width)."""
        solved: FloatArray = scipy.linalg.cho_solve(self._factor, self._weighted @ targets.astype(np.float64))
        return solved
