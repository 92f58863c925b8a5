"""The training entries on a device: the vectors that branches read, and the targets of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.vectors import DenseVectors, SparseVectors, Vectors, entry_places
from deepmf.matrix.encoding import Encoding
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.training.runtime import Runtime

# On a CPU torch's sparse products run at a seventh of the speed of its dense ones (docs/log.md), so a dense first layer
# wins when more than a seventh of the matrix is observed; on a GPU it always does, as long as the tables fit into this
# many bytes.
DENSE_SHARE_ON_CPU = 1 / 7
DENSE_BYTES_ON_GPU = 16 << 30


class Blocks:
    """A matrix ready for block steps: `rows` and `columns` are vectors, `targets` the values in units of [-1, 1].

    Dense tables are used where a measured rule says that they are faster and fit; `force_dense` overrides it. In dense
    vectors `missing` stands where nothing is observed.
    """

    rows: Vectors
    columns: Vectors

    def __init__(
        self,
        matrix: ObservedMatrix,
        encoding: Encoding,
        runtime: Runtime,
        *,
        force_dense: bool | None = None,
        missing: float = 0.0,
    ) -> None:
        self.shape = matrix.shape
        self.dense = prefer_dense(matrix, runtime) if force_dense is None else force_dense
        self._device = runtime.device
        units = matrix.scale.to_unit(matrix.values)
        inputs = encoding.encode(matrix.scale, matrix.values)
        if self.dense:
            table_type = torch.bfloat16 if runtime.half else torch.float32
            self._target_table = self._table(matrix, units, missing=float("nan"))
            table = self._table(matrix, inputs, missing=missing).to(table_type)
            self.rows, self.columns = DenseVectors(table), DenseVectors(table.T.contiguous())
        else:
            by_row, by_column = matrix.by_row, matrix.by_column
            self._targets = self._tensor(units.astype(np.float32))
            self._place = torch.full((matrix.shape[1],), -1, dtype=torch.int64, device=self._device)
            column_inputs = inputs[by_column.entries].astype(np.float32)
            self.rows = SparseVectors(*map(self._tensor, (by_row.starts, by_row.columns, inputs.astype(np.float32))))
            self.columns = SparseVectors(*map(self._tensor, (by_column.starts, by_column.rows, column_inputs)))

    def targets(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the values of a block (rows, columns), NaN where nothing is observed."""
        if self.dense:
            return self._target_table.index_select(0, rows).index_select(1, columns)
        assert isinstance(self.rows, SparseVectors)
        places, starts = entry_places(self.rows.starts, rows)
        self._place.fill_(-1)
        self._place[columns] = torch.arange(columns.numel(), device=self._device)
        column_at = self._place[self.rows.indices[places].long()]
        row_at = torch.repeat_interleave(torch.arange(rows.numel(), device=self._device), starts.diff())
        inside = column_at >= 0
        block = torch.full((rows.numel(), columns.numel()), float("nan"), dtype=torch.float32, device=self._device)
        block[row_at[inside], column_at[inside]] = self._targets[places[inside]]
        return block

    def _table(self, matrix: ObservedMatrix, values: npt.NDArray[Any], *, missing: float) -> Tensor:
        table = torch.full(matrix.shape, missing, dtype=torch.float32, device=self._device)
        places = self._tensor(matrix.entry_rows).long(), self._tensor(matrix.by_row.columns).long()
        table[places] = self._tensor(values.astype(np.float32))
        return table

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self._device)  # a copy: the matrix's own arrays are read-only


def prefer_dense(matrix: ObservedMatrix, runtime: Runtime) -> bool:
    """Say whether dense tables of a matrix are faster on a runtime, and fit."""
    n_cells = matrix.shape[0] * matrix.shape[1]
    if runtime.is_gpu:
        return n_cells * (4 + 2 * (2 if runtime.half else 4)) <= DENSE_BYTES_ON_GPU
    return matrix.n_entries >= DENSE_SHARE_ON_CPU * n_cells
