"""Blocks of a matrix: some rows and some columns as vectors, and the values where they meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import BadEntries
from deepmf.layers.ranks import Total, itself
from deepmf.layers.vectors import (
    Batch,
    DenseVectors,
    FeatureBatch,
    SparseVectors,
    StoredVectors,
    Vectors,
    feature_batch,
    features_of,
)
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.encoding import Encoding
from deepmf.matrix.entry_ranges import GroupedEntries, column_entries_within, row_entries_within
from deepmf.matrix.feature_vectors import FeatureVectors
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.training.block_sampler import SampledAxis
from deepmf.training.block_source import BlockSource, dense_table, prefer_dense, tensor_on


class BlockEntries(NamedTuple):
    """The entries of a block: their places in it, and their values in units of [-1, 1]."""

    row_at: Tensor
    column_at: Tensor
    units: Tensor


@dataclass(frozen=True)
class Block:
    """Some rows and some columns, as their branches read them, and what is observed where they meet.

    observed: a table (rows, columns) in units of [-1, 1], NaN where nothing is observed; or the entries alone.
    total: from sums over what is observed here to those over all of the block: several ranks have a part of it each.
    """

    row_ids: Tensor
    column_ids: Tensor
    rows: Batch
    columns: Batch
    observed: Tensor | BlockEntries
    row_features: FeatureBatch | None = None
    column_features: FeatureBatch | None = None
    total: Total = itself

    @property
    def targets(self) -> Tensor:
        """The table of what is observed, NaN elsewhere."""
        if isinstance(self.observed, Tensor):
            return self.observed
        row_at, column_at, units = self.observed
        shape = self.row_ids.numel(), self.column_ids.numel()
        table = torch.full(shape, float("nan"), dtype=torch.float32, device=units.device)
        table[row_at, column_at] = units
        return table


class MatrixBlocks(BlockSource):
    """Blocks of rows x columns; `rows` and `columns` are the vectors of all of them.

    Each of several ranks has of sparse vectors the entries that its lines of the first layers' tables are for: those of
    all rows in some columns, and those of all columns in some rows. Dense tables it has whole.

    force_dense: overrides the rule that chooses between dense tables and sparse vectors.
    missing: what stands in dense vectors where nothing is observed.
    row_features, column_features: what is known of all rows and columns beside their entries.
    whole_epochs: whether an epoch passes all rows and all columns, or ends when either are passed.
    """

    rows: Vectors
    columns: Vectors

    def __init__(
        self,
        matrix: ObservedMatrix,
        encoding: Encoding,
        *,
        block_rows: int,
        block_columns: int,
        force_dense: bool | None = None,
        missing: float = 0.0,
        whole_epochs: bool = False,
        row_features: FeatureVectors | None = None,
        column_features: FeatureVectors | None = None,
    ) -> None:
        self.whole_epochs = whole_epochs
        self._features = row_features, column_features
        self.matrix, self._encoding = matrix, encoding
        self._block_sizes = block_rows, block_columns
        self._force_dense, self._missing = force_dense, missing

    def next_block(self) -> Block:
        """Return the next rows and columns."""
        row_ids, column_ids = self._sampler.next_block()
        return self.block(row_ids, column_ids)

    def block(self, row_ids: Tensor, column_ids: Tensor) -> Block:
        """Return the block of some rows and columns."""
        rows = self.rows.take(row_ids)
        return Block(
            row_ids,
            column_ids,
            rows,
            self.columns.take(column_ids),
            self._observed(row_ids, column_ids, rows),
            features_of(self.rows, row_ids),
            features_of(self.columns, column_ids),
            itself if self.dense or self._ranks is None else self._ranks.total,
        )

    def join(self) -> None:
        """Have `rows` and `columns` be whole on every rank: sparse ones are read from the matrix as they are taken."""
        super().join()
        if self.dense:
            return
        device = self._targets.device
        del self._targets, self._column_place
        row_features, column_features = self._features_on(device)
        starts, others = self.matrix.by_row
        self.rows = self._stored(starts, others, None, row_features, device)
        self.columns = self._stored(*self.matrix.by_column, column_features, device)

    def _axes(self) -> Sequence[SampledAxis]:
        positions = np.flatnonzero(self.matrix.row_counts), np.flatnonzero(self.matrix.column_counts)
        if min(positions[0].size, positions[1].size) < 2:
            raise BadEntries(
                "a model with two branches learns from at least two rows and two columns with entries; "
                f"got {positions[0].size} and {positions[1].size}"
            )
        return [
            SampledAxis(torch.from_numpy(those), size) for those, size in zip(positions, self._block_sizes, strict=True)
        ]

    def _place(self, device: torch.device, *, half: bool) -> None:
        matrix = self.matrix
        self.dense = self._prefers_dense(device, half=half) if self._force_dense is None else self._force_dense
        if not self.dense:
            self._place_sparse(device)
            return
        self._target_table = dense_table(matrix, matrix.scale.to_unit(matrix.values), device, missing=float("nan"))
        inputs = self._encoding.encode(matrix.scale, matrix.values)
        table = dense_table(matrix, inputs, device, missing=self._missing)
        table = table.to(torch.bfloat16 if half else torch.float32)
        row_features, column_features = self._features_on(device)
        self.rows = DenseVectors(table, row_features)
        self.columns = DenseVectors(table.T.contiguous(), column_features)

    def _prefers_dense(self, device: torch.device, *, half: bool) -> bool:
        """Say whether dense tables are faster and fit; on every rank, as ranks take the same steps."""
        prefers = prefer_dense(self.matrix, device, half=half)
        return prefers if self._ranks is None else all(self._ranks.collected(prefers))

    def _place_sparse(self, device: torch.device) -> None:
        matrix, ranks = self.matrix, self._ranks
        row_features, column_features = self._features_on(device)
        by_row = GroupedEntries(*matrix.by_row, matrix.values)
        if ranks is not None:
            by_row = row_entries_within(matrix, ranks.lines(matrix.shape[1]))
        self._targets = tensor_on(device, matrix.scale.to_unit(by_row.values).astype(np.float32))
        self._column_place = torch.full((matrix.shape[1],), -1, dtype=torch.int32, device=device)
        self.rows = self._vectors(by_row, matrix.row_counts, row_features, device)
        if ranks is None:
            starts, rows, entries = matrix.by_column
            by_column = GroupedEntries(starts, rows, matrix.values[entries])
        else:
            by_column = column_entries_within(matrix, ranks.lines(matrix.shape[0]))
        self.columns = self._vectors(by_column, matrix.column_counts, column_features, device)

    def _vectors(
        self, entries: GroupedEntries, counts: IndexArray, features: FeatureBatch | None, device: torch.device
    ) -> SparseVectors:
        """Return entries as a branch reads them; `counts` are those of all entries, of which these may be a part."""
        inputs = self._encoding.encode(self.matrix.scale, entries.values).astype(np.float32)
        starts, indices, weights = (tensor_on(device, array) for array in (entries.starts, entries.others, inputs))
        in_all = None if self._ranks is None else tensor_on(device, counts)
        return SparseVectors(starts, indices, weights, features=features, counts=in_all)

    def _stored(
        self,
        starts: IndexArray,
        others: IndexArray,
        order: IndexArray | None,
        features: FeatureBatch | None,
        device: torch.device,
    ) -> StoredVectors:
        """Return the rows, or the columns, of the matrix; `order` says where their entries have their values."""
        scale, values = self.matrix.scale, self.matrix.values

        def read(places: Tensor) -> tuple[Tensor, Tensor]:
            some = places.cpu().numpy()
            inputs = self._encoding.encode(scale, values[some if order is None else order[some]])
            return tensor_on(device, others[some]), tensor_on(device, inputs.astype(np.float32))

        return StoredVectors(tensor_on(device, starts), read, features)

    def _features_on(self, device: torch.device) -> list[FeatureBatch | None]:
        return [None if each is None else feature_batch(each).to(device) for each in self._features]

    def _observed(self, row_ids: Tensor, column_ids: Tensor, rows: Batch) -> Tensor | BlockEntries:
        """Return what is observed in a block with these rows."""
        if isinstance(rows, Tensor):
            return self._target_table.index_select(0, row_ids).index_select(1, column_ids)
        assert isinstance(self.rows, SparseVectors)
        self._column_place.fill_(-1)
        places = torch.arange(column_ids.numel(), dtype=torch.int32, device=column_ids.device)
        self._column_place[column_ids] = places
        column_at = self._column_place.index_select(0, rows.indices)
        inside = (column_at >= 0).nonzero().squeeze(1)
        row_at = torch.searchsorted(rows.starts, inside, right=True) - 1
        entries = self.rows.starts[row_ids].index_select(0, row_at) + inside - rows.starts.index_select(0, row_at)
        return BlockEntries(row_at, column_at.index_select(0, inside).long(), self._targets.index_select(0, entries))
