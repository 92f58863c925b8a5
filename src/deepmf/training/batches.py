"""The training entries on a device for steps on whole vectors: what a network reads, and what it should answer."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.vectors import Batch, DenseVectors, SparseBatch, SparseVectors, Vectors
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.training.block_source import prefer_dense
from deepmf.training.runtime import Runtime

AxisName = Literal["row", "column"]


class TrainingBatch(NamedTuple):
    """Some vectors, and the values of their entries."""

    inputs: Batch
    targets: Tensor  # (batch, outputs) with NaN where nothing is observed; (entries,) where the inputs are sparse


class Batches:
    """The rows of a matrix, or its columns, as `vectors` with their values as targets.

    `values` are those of the entries in row order, as the network is to read and answer them. Dense tables are used
    where the measured rule for blocks says that they are faster and fit; `force_dense` overrides it.
    """

    vectors: Vectors

    def __init__(
        self,
        matrix: ObservedMatrix,
        values: npt.NDArray[Any],
        *,
        axis: AxisName,
        runtime: Runtime,
        force_dense: bool | None = None,
    ) -> None:
        self.dense = prefer_dense(matrix, runtime) if force_dense is None else force_dense
        counts = matrix.row_counts if axis == "row" else matrix.column_counts
        self.positions = np.flatnonzero(counts)  # of the vectors that have entries
        self._device = runtime.device
        if self.dense:
            table = self._table(matrix, values, axis)
            self._targets = table
            self.vectors = DenseVectors(table.nan_to_num(0.0).to(torch.bfloat16 if runtime.half else torch.float32))
        elif axis == "row":
            self.vectors = self._sparse(matrix.by_row.starts, matrix.by_row.columns, values)
        else:
            starts, rows, entries = matrix.by_column
            self.vectors = self._sparse(starts, rows, values[entries])

    def take(self, ids: Tensor) -> TrainingBatch:
        """Return the vectors with these positions; where they are all that have entries, all there are, in order.

        All at once they need no gathering, and a step on them sums up in the same order every time. Those without
        entries have no targets.
        """
        if ids.numel() == self.positions.size:
            return self._whole()
        inputs = self.vectors.take(ids)
        return TrainingBatch(
            inputs, inputs.weights if isinstance(inputs, SparseBatch) else self._targets.index_select(0, ids)
        )

    def _whole(self) -> TrainingBatch:
        if isinstance(self.vectors, DenseVectors):
            return TrainingBatch(self.vectors.table, self._targets)
        starts, indices, weights = self.vectors.starts, self.vectors.indices, self.vectors.weights
        return TrainingBatch(SparseBatch(indices, starts, weights), weights)

    def _table(self, matrix: ObservedMatrix, values: npt.NDArray[Any], axis: AxisName) -> Tensor:
        """Return the values as a table (vectors, inputs), NaN where nothing is observed."""
        places = self._tensor(matrix.entry_rows).long(), self._tensor(matrix.by_row.columns).long()
        shape, places = (matrix.shape, places) if axis == "row" else (matrix.shape[::-1], places[::-1])
        table = torch.full(shape, float("nan"), dtype=torch.float32, device=self._device)
        table[places] = self._tensor(values.astype(np.float32))
        return table

    def _sparse(self, *arrays: npt.NDArray[Any]) -> SparseVectors:
        starts, indices, values = arrays
        return SparseVectors(*map(self._tensor, (starts, indices, values.astype(np.float32))))

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self._device)  # a copy: the matrix's own arrays are read-only
