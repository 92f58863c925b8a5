"""Blocks for training steps: batches of rows, columns or both as vectors, with the entries to
predict."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import BadEntries
from deepmf.matrix.arrays import Array, IndexArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import take_entries_within
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Encoding
from deepmf.nn.inputs import (
    Batch,
    DenseVectors,
    FeatureBatch,
    SparseBatch,
    SparseVectors,
    Vectors,
    make_feature_batch,
    take_features,
)
from deepmf.nn.ranks import Ranks, SumOverRanks, keep_sums
from deepmf.training.devices import count_free_bytes


class SampledAxis:
    """Shuffled passes over the positions of an axis that have entries, a block at a time.

    All blocks have one size: the last block of a pass is filled up from its start.
    """

    def __init__(
        self, positions: IndexArray, block: int, device: torch.device, generator: torch.Generator
    ) -> None:
        self._positions, self._generator = torch.from_numpy(positions).to(device), generator
        self._order = self._positions.clone()
        self._offsets = torch.arange(min(block, positions.size), device=device)
        self.n_blocks = math.ceil(positions.size / self._offsets.numel())

    def shuffle(self) -> None:
        """Begin another pass."""
        order = torch.randperm(self._positions.numel(), generator=self._generator)
        self._order.copy_(self._positions[order.to(self._positions.device)])

    def block(self, step: Tensor) -> Tensor:
        """Return the positions of a block."""
        return self._order[(step * self._offsets.numel() + self._offsets) % self._order.numel()]


# On a CPU, torch's sparse products run at a seventh of the speed of its dense products
# (docs/log.md): dense tables are faster if more than a seventh of the matrix is observed.
DENSE_SHARE_ON_CPU = 1 / 7

# On a GPU, dense tables are always faster; they are used up to this many bytes and this share of
# the free memory.
DENSE_BYTES_ON_GPU = 16 << 30
DENSE_SHARE_OF_FREE = 1 / 3


class BlockSource(ABC):
    """The blocks of an epoch, one for each step.

    `prepare` puts the entries on a device: as dense tables if a measured rule says that they are
    faster and fit, and as sparse vectors otherwise. With dense tables every step has the same
    shapes.

    Parameters
    ----------
    matrix : the training matrix.
    force_dense : overrides the rule that chooses between dense tables and sparse vectors.
    """

    whole_epochs: bool = False  # whether an epoch visits all of every axis
    dense: bool  # set by `prepare`
    _ranks: Ranks | None = None

    def __init__(self, matrix: ObservedMatrix, *, force_dense: bool | None = None) -> None:
        self.matrix, self._force_dense = matrix, force_dense

    def prepare(
        self,
        device: torch.device,
        *,
        half: bool,
        generator: torch.Generator,
        ranks: Ranks | None = None,
    ) -> None:
        """Put the entries on a device; `half` stores dense inputs as bfloat16, `generator` shuffles
        epochs.

        Each of several ranks may hold only a part of the entries.
        """
        self._ranks = ranks
        if self._force_dense is not None:
            self.dense = self._force_dense
        else:
            self.dense = prefer_dense(self.matrix, device, half=half)
            if ranks is not None:  # all ranks take the same steps
                self.dense = all(ranks.collect(self.dense))
        if self.dense:
            self._place_dense(device, torch.bfloat16 if half else torch.float32)
        else:
            self._place_sparse(device)
        self._axes = [SampledAxis(*axis, device, generator) for axis in self._list_axes()]
        self._step = torch.zeros((), dtype=torch.int64, device=device)

    @abstractmethod
    def _place_dense(self, device: torch.device, dtype: torch.dtype) -> None:
        """Put the entries on a device as dense tables, with inputs of a type."""

    @abstractmethod
    def _place_sparse(self, device: torch.device) -> None:
        """Put the entries on a device as sparse vectors."""

    @abstractmethod
    def _list_axes(self) -> list[tuple[IndexArray, int]]:
        """Return the positions that blocks are sampled from, and the size of a block, on each
        axis."""

    @property
    def n_steps(self) -> int:
        """The number of blocks in an epoch: those of one pass over the shorter axis, or over the
        longer one."""
        return (max if self.whole_epochs else min)(axis.n_blocks for axis in self._axes)

    def begin_epoch(self) -> None:
        """Shuffle every axis and return to its start."""
        for axis in self._axes:
            axis.shuffle()
        self._step.zero_()

    def draw_positions(self) -> list[Tensor]:
        """Return the positions of the next block on each axis."""
        positions = [axis.block(self._step) for axis in self._axes]
        self._step += 1
        return positions

    def join(self) -> None:
        """Give every rank whole vectors at the end of training."""
        self._ranks = None

    @abstractmethod
    def next_block(self) -> Any:
        """Return the next block."""


def prefer_dense(matrix: ObservedMatrix, device: torch.device, *, half: bool) -> bool:
    """Whether dense tables of a matrix are faster on a device and fit into its memory."""
    if device.type != "cuda":
        return matrix.n_entries >= DENSE_SHARE_ON_CPU * matrix.shape[0] * matrix.shape[1]
    free = count_free_bytes(device) or math.inf
    budget = min(DENSE_BYTES_ON_GPU, DENSE_SHARE_OF_FREE * free)
    return count_dense_bytes(matrix, half=half) <= budget


def count_dense_bytes(matrix: ObservedMatrix, *, half: bool) -> int:
    """Count the bytes of dense tables: float32 targets, and inputs by row and by column."""
    return matrix.shape[0] * matrix.shape[1] * (4 + 2 * (2 if half else 4))


def copy_to(device: torch.device, array: Array) -> Tensor:
    """Copy an array to a device; the arrays of a matrix are read-only."""
    return torch.from_numpy(np.array(array)).to(device)


def make_dense_table(
    matrix: ObservedMatrix, values: Array, device: torch.device, *, missing: float
) -> Tensor:
    """Return the values of entries as a float32 table (rows, columns), with `missing` elsewhere."""
    table = torch.full(matrix.shape, missing, dtype=torch.float32, device=device)
    places = (
        copy_to(device, matrix.entry_rows).long(),
        copy_to(device, matrix.by_row.columns).long(),
    )
    table[places] = copy_to(device, values.astype(np.float32))
    return table


def group_entries(matrix: ObservedMatrix, axis: Axis, values: Array) -> AxisEntries:
    """Return the entries of a matrix by row or by column, with values in the order of rows."""
    if axis == "row":
        return AxisEntries(*matrix.by_row, values)
    starts, rows, entries = matrix.by_column
    return AxisEntries(starts, rows, values[entries])


class VectorBlock(NamedTuple):
    """A batch of vectors and the values of their entries."""

    inputs: Batch
    targets: Tensor  # (vectors, outputs) with NaN for missing entries; (entries,) for sparse inputs
    n_vectors: int
    share: float  # of all vectors with entries


class VectorBlocks(BlockSource):
    """Batches of the rows of a matrix, or of its columns.

    Parameters
    ----------
    values : encoded values of the entries in row order, as the network reads and predicts them.
    axis : "row" or "column".
    batch_size : number of vectors in a batch; None for all.
    """

    vectors: SparseVectors | DenseVectors

    def __init__(
        self,
        matrix: ObservedMatrix,
        values: Array,
        *,
        axis: Axis,
        batch_size: int | None,
        force_dense: bool | None = None,
    ) -> None:
        super().__init__(matrix, force_dense=force_dense)
        self._values, self.axis = values, axis
        counts = matrix.row_counts if axis == "row" else matrix.column_counts
        self._positions = np.flatnonzero(counts)  # of vectors with entries
        self._batch_size = batch_size or self._positions.size

    def next_block(self) -> VectorBlock:
        (ids,) = self.draw_positions()
        return self.block(ids)

    def block(self, ids: Tensor) -> VectorBlock:
        """Return the vectors at these positions; for as many as have entries, return all vectors in
        order.

        All vectors at once need no gathering and are summed in the same order in every step.
        Vectors without entries have no targets.
        """
        vectors, n_vectors = self.vectors, ids.numel()
        is_whole, share = n_vectors == self._positions.size, n_vectors / self._positions.size
        if isinstance(vectors, DenseVectors):
            table = vectors.table if is_whole else vectors.take(ids)
            targets = self._targets if is_whole else self._targets.index_select(0, ids)
            return VectorBlock(table, targets, n_vectors, share)
        inputs = (
            SparseBatch(vectors.indices, vectors.starts, vectors.weights)
            if is_whole
            else vectors.take(ids)
        )
        return VectorBlock(inputs, inputs.weights, n_vectors, share)

    def _list_axes(self) -> list[tuple[IndexArray, int]]:
        return [(self._positions, self._batch_size)]

    def _place_dense(self, device: torch.device, dtype: torch.dtype) -> None:
        table = make_dense_table(self.matrix, self._values, device, missing=float("nan"))
        self._targets = table if self.axis == "row" else table.T.contiguous()
        self.vectors = DenseVectors(self._targets.nan_to_num(0.0).to(dtype))

    def _place_sparse(self, device: torch.device) -> None:
        entries = group_entries(self.matrix, self.axis, self._values.astype(np.float32))
        self.vectors = SparseVectors(*(copy_to(device, array) for array in entries[:3]))


class BlockEntries(NamedTuple):
    """The entries of a block: their positions in it, and their values scaled to [-1, 1]."""

    row_at: Tensor
    column_at: Tensor
    units: Tensor


@dataclass(frozen=True)
class Block:
    """Rows and columns as their branches read them, and the entries between them."""

    row_ids: Tensor
    column_ids: Tensor
    rows: Batch
    columns: Batch
    # a table (rows, columns) scaled to [-1, 1] with NaN for missing, or the entries
    observed: Tensor | BlockEntries
    row_features: FeatureBatch | None = None
    column_features: FeatureBatch | None = None
    # of the entries: a table (rows, columns), or (entries,) as in `observed`
    weights: Tensor | None = None
    sum_over_ranks: SumOverRanks = keep_sums  # each rank may hold a part of the entries

    @property
    def targets(self) -> Tensor:
        """The table of entries (rows, columns), NaN for missing ones."""
        if isinstance(self.observed, Tensor):
            return self.observed
        return self._make_table(self.observed, self.observed.units, missing=float("nan"))

    @property
    def weight_table(self) -> Tensor | None:
        """The table of weights (rows, columns), 0 for missing entries; None where all weights are
        1."""
        if self.weights is None or isinstance(self.observed, Tensor):
            return self.weights
        return self._make_table(self.observed, self.weights, missing=0.0)

    def _make_table(self, entries: BlockEntries, values: Tensor, *, missing: float) -> Tensor:
        table = values.new_full((self.row_ids.numel(), self.column_ids.numel()), missing)
        table[entries.row_at, entries.column_at] = values
        return table


class MatrixBlocks(BlockSource):
    """Blocks of rows x columns; `rows` and `columns` have the vectors of all rows and columns.

    Each of several ranks holds the part of the sparse vectors that its lines of the first layers
    read: all rows at some columns, and all columns at some rows. Dense tables are whole on every
    rank.

    Parameters
    ----------
    encoding : from values to inputs.
    block_rows, block_columns : size of a block.
    missing : input for missing entries in dense vectors.
    whole_epochs : whether an epoch visits all rows and all columns, or ends after all of either.
    row_features, column_features : features of all rows and columns.
    """

    rows: Vectors
    columns: Vectors
    _weights: Tensor | None = None  # as the targets: a table, or by entry

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
        super().__init__(matrix, force_dense=force_dense)
        self.whole_epochs = whole_epochs
        self._features = row_features, column_features
        self._encoding, self._missing = encoding, missing
        self._block_sizes = block_rows, block_columns

    def next_block(self) -> Block:
        row_ids, column_ids = self.draw_positions()
        return self.block(row_ids, column_ids)

    def block(self, row_ids: Tensor, column_ids: Tensor) -> Block:
        """Return the block of these rows and columns."""
        rows = self.rows.take(row_ids)
        observed, weights = self._find_observed(row_ids, column_ids, rows)
        return Block(
            row_ids,
            column_ids,
            rows,
            self.columns.take(column_ids),
            observed,
            take_features(self.rows, row_ids),
            take_features(self.columns, column_ids),
            weights,
            keep_sums if self.dense or self._ranks is None else self._ranks.sum_parts,
        )

    def join(self) -> None:
        """Make `rows` and `columns` whole on every rank."""
        super().join()
        if not self.dense:
            self._place_sparse(self._targets.device)

    def _list_axes(self) -> list[tuple[IndexArray, int]]:
        positions = (
            np.flatnonzero(self.matrix.row_counts),
            np.flatnonzero(self.matrix.column_counts),
        )
        if min(positions[0].size, positions[1].size) < 2:
            raise BadEntries(
                "a model with two branches learns from at least two rows and two columns with entries; "
                f"got {positions[0].size} and {positions[1].size}"
            )
        return list(zip(positions, self._block_sizes, strict=True))

    def _place_dense(self, device: torch.device, dtype: torch.dtype) -> None:
        matrix = self.matrix
        self._target_table = make_dense_table(
            matrix, matrix.scale.to_unit(matrix.values), device, missing=float("nan")
        )
        inputs = self._encoding(matrix.scale, matrix.values)
        table = make_dense_table(matrix, inputs, device, missing=self._missing).to(dtype)
        if matrix.weights is not None:
            self._weights = make_dense_table(matrix, matrix.weights, device, missing=0.0)
        row_features, column_features = self._features_on(device)
        self.rows = DenseVectors(table, row_features)
        self.columns = DenseVectors(table.T.contiguous(), column_features)

    def _place_sparse(self, device: torch.device) -> None:
        matrix, ranks = self.matrix, self._ranks
        if ranks is None:
            by_row, by_column = (
                group_entries(matrix, axis, matrix.values) for axis in get_args(Axis)
            )
        else:
            by_row = take_entries_within(matrix, "row", ranks.find_lines(matrix.shape[1]))
            by_column = take_entries_within(matrix, "column", ranks.find_lines(matrix.shape[0]))
        row_features, column_features = self._features_on(device)
        self._targets = copy_to(device, matrix.scale.to_unit(by_row.values).astype(np.float32))
        if matrix.weights is not None:  # several ranks refuse weights before they start
            self._weights = copy_to(device, matrix.weights.astype(np.float32))
        self._column_place = torch.full((matrix.shape[1],), -1, dtype=torch.int32, device=device)
        self.rows = self._make_vectors(by_row, matrix.row_counts, row_features, device)
        self.columns = self._make_vectors(by_column, matrix.column_counts, column_features, device)

    def _make_vectors(
        self,
        entries: AxisEntries,
        counts: IndexArray,
        features: FeatureBatch | None,
        device: torch.device,
    ) -> SparseVectors:
        """Return entries as a branch reads them; `counts` also counts the entries of other
        ranks."""
        inputs = self._encoding(self.matrix.scale, entries.values).astype(np.float32)
        starts, indices, weights = (
            copy_to(device, array) for array in (entries.starts, entries.others, inputs)
        )
        in_all = None if self._ranks is None else copy_to(device, counts)
        return SparseVectors(starts, indices, weights, features=features, all_counts=in_all)

    def _features_on(self, device: torch.device) -> list[FeatureBatch | None]:
        return [make_feature_batch(features, device) for features in self._features]

    def _find_observed(
        self, row_ids: Tensor, column_ids: Tensor, rows: Batch
    ) -> tuple[Tensor | BlockEntries, Tensor | None]:
        if isinstance(rows, Tensor):
            values = self._target_table.index_select(0, row_ids).index_select(1, column_ids)
            if self._weights is None:
                return values, None
            return values, self._weights.index_select(0, row_ids).index_select(1, column_ids)
        assert isinstance(self.rows, SparseVectors)
        self._column_place.fill_(-1)
        places = torch.arange(column_ids.numel(), dtype=torch.int32, device=column_ids.device)
        self._column_place[column_ids] = places
        column_at = self._column_place.index_select(0, rows.indices)
        inside = (column_at >= 0).nonzero().squeeze(1)
        row_at = torch.searchsorted(rows.starts, inside, right=True) - 1
        entries = (
            self.rows.starts[row_ids].index_select(0, row_at)
            + inside
            - rows.starts.index_select(0, row_at)
        )
        weights = None if self._weights is None else self._weights.index_select(0, entries)
        column_at = column_at.index_select(0, inside).long()
        return BlockEntries(row_at, column_at, self._targets.index_select(0, entries)), weights
