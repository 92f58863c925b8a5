"""Blocks of vectors: some rows, or some columns, whole, with the values of their entries as targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.vectors import Batch, DenseVectors, SparseBatch, SparseVectors
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.training.block_sampler import SampledAxis
from deepmf.training.block_source import BlockSource, dense_table, prefer_dense, tensor_on

AxisName = Literal["row", "column"]


class VectorBlock(NamedTuple):
    """Some vectors, and the values of their entries.

    share: how much of all vectors that have entries they are.
    """

    inputs: Batch
    targets: Tensor  # (vectors, outputs) with NaN where nothing is observed; (entries,) where the inputs are sparse
    n_vectors: int
    share: float


class VectorBlocks(BlockSource):
    """The rows of a matrix, or its columns, as `vectors`, some at a time (None: all).

    values: those of the entries in row order, as the network is to read and predict them.
    force_dense: overrides the rule that chooses between a dense table and sparse vectors.
    """

    vectors: SparseVectors | DenseVectors

    def __init__(
        self,
        matrix: ObservedMatrix,
        values: npt.NDArray[Any],
        *,
        axis: AxisName,
        batch_size: int | None,
        force_dense: bool | None = None,
    ) -> None:
        self._matrix, self._values, self._axis = matrix, values, axis
        self._force_dense = force_dense
        counts = matrix.row_counts if axis == "row" else matrix.column_counts
        self._positions = np.flatnonzero(counts)  # of the vectors that have entries
        self._batch_size = batch_size or self._positions.size

    def next_block(self) -> VectorBlock:
        """Return the next vectors."""
        (ids,) = self._sampler.next_block()
        return self.block(ids)

    def block(self, ids: Tensor) -> VectorBlock:
        """Return the vectors with these positions; where they are all that have entries, all there are, in order.

        All at once they need no gathering, and a step on them sums up in the same order every time. Those without
        entries have no targets.
        """
        n_vectors, share = ids.numel(), ids.numel() / self._positions.size
        if n_vectors == self._positions.size:
            return VectorBlock(*self._whole(), n_vectors, share)
        inputs = self.vectors.take(ids)
        targets = inputs.weights if isinstance(inputs, SparseBatch) else self._targets.index_select(0, ids)
        return VectorBlock(inputs, targets, n_vectors, share)

    def _axes(self) -> Sequence[SampledAxis]:
        return [SampledAxis(torch.from_numpy(self._positions), self._batch_size)]

    def _place(self, device: torch.device, *, half: bool) -> None:
        matrix, values = self._matrix, self._values
        self.dense = self._prefers_dense(device, half=half) if self._force_dense is None else self._force_dense
        if self.dense:
            table = dense_table(matrix, values, device, missing=float("nan"))
            self._targets = table if self._axis == "row" else table.T.contiguous()
            inputs = self._targets.nan_to_num(0.0).to(torch.bfloat16 if half else torch.float32)
            self.vectors = DenseVectors(inputs)
            return
        if self._axis == "row":
            arrays = matrix.by_row.starts, matrix.by_row.columns, values
        else:
            starts, rows, entries = matrix.by_column
            arrays = starts, rows, values[entries]
        starts, indices, weights = arrays
        self.vectors = SparseVectors(
            *(tensor_on(device, array) for array in (starts, indices, weights.astype(np.float32)))
        )

    def _prefers_dense(self, device: torch.device, *, half: bool) -> bool:
        return prefer_dense(self._matrix, device, half=half)

    def _whole(self) -> tuple[Batch, Tensor]:
        if isinstance(self.vectors, DenseVectors):
            return self.vectors.table, self._targets
        starts, indices, weights = self.vectors.starts, self.vectors.indices, self.vectors.weights
        return SparseBatch(indices, starts, weights), weights
