"""The sampling of blocks: which rows and columns make the blocks of an epoch."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from deepmf.errors import BadEntries
from deepmf.matrix.axis_entries import Axis
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import ENCODINGS, Scale
from deepmf.nn.inputs import Batch, DenseVectors, SparseBatch, SparseVectors, Vectors
from deepmf.nn.ranks import Ranks, keep_sums
from deepmf.testing import additive
from deepmf.training import blocks as blocks_module
from deepmf.training.blocks import (
    Block,
    BlockSource,
    MatrixBlocks,
    VectorBlock,
    VectorBlocks,
    prefer_dense,
)

Blocks = list[tuple[list[int], list[int]]]

sizes = st.integers(1, 25)


class Positions(BlockSource):
    """Blocks that are nothing but positions."""

    def __init__(self, *axes: tuple[int, int], whole: bool) -> None:
        super().__init__(additive(2, 2), force_dense=False)
        self.axes, self.whole_epochs = axes, whole

    def _place_sparse(self, device: torch.device) -> None:
        pass

    _place_dense = _place_sparse  # type: ignore[assignment]

    def _list_axes(self) -> list[tuple[npt.NDArray[np.int64], int]]:
        return [(np.arange(n), block) for n, block in self.axes]

    next_block = BlockSource.draw_positions


def new_sampler(
    n_rows: int,
    n_columns: int,
    *,
    block_rows: int = 4,
    block_columns: int = 3,
    seed: int = 0,
    whole: bool = False,
) -> Positions:
    sampler = Positions((n_rows, block_rows), (n_columns, block_columns), whole=whole)
    sampler.prepare(torch.device("cpu"), half=False, generator=torch.Generator().manual_seed(seed))
    return sampler


def epoch(sampler: Positions, *, n_steps: int | None = None) -> Blocks:
    sampler.begin_epoch()
    blocks = (sampler.next_block() for _ in range(sampler.n_steps if n_steps is None else n_steps))
    return [(rows.tolist(), columns.tolist()) for rows, columns in blocks]


@given(sizes, sizes, st.integers(1, 30), st.integers(1, 30), st.integers(0, 5))
def test_an_epoch_passes_all_rows_or_all_columns(
    n_rows: int, n_columns: int, block_rows: int, block_columns: int, seed: int
) -> None:
    sampler = new_sampler(
        n_rows, n_columns, block_rows=block_rows, block_columns=block_columns, seed=seed
    )
    block_rows, block_columns = min(block_rows, n_rows), min(block_columns, n_columns)
    row_steps, column_steps = math.ceil(n_rows / block_rows), math.ceil(n_columns / block_columns)
    assert sampler.n_steps == min(row_steps, column_steps)
    for _ in range(2):
        blocks = epoch(sampler)
        for axis, n, size, steps in (
            (0, n_rows, block_rows, row_steps),
            (1, n_columns, block_columns, column_steps),
        ):
            # One size for all blocks, and nothing twice in one.
            assert all(len(block[axis]) == len(set(block[axis])) == size for block in blocks)
            counts = Counter(position for block in blocks for position in block[axis])
            assert set(counts) <= set(range(n))
            # this axis is passed: all of it once, and what fills the last block twice
            if steps == sampler.n_steps:
                assert set(counts) == set(range(n))
                assert Counter(counts.values())[2] == steps * size - n and max(counts.values()) <= 2
            else:  # the other one is cut short
                assert max(counts.values()) == 1


@given(sizes, sizes, st.integers(1, 30), st.integers(1, 30), st.integers(0, 5))
def test_a_whole_epoch_passes_all_rows_and_all_columns(
    n_rows: int, n_columns: int, block_rows: int, block_columns: int, seed: int
) -> None:
    sampler = new_sampler(
        n_rows, n_columns, block_rows=block_rows, block_columns=block_columns, seed=seed, whole=True
    )
    block_rows, block_columns = min(block_rows, n_rows), min(block_columns, n_columns)
    assert sampler.n_steps == max(
        math.ceil(n_rows / block_rows), math.ceil(n_columns / block_columns)
    )
    for _ in range(2):
        blocks = epoch(sampler)
        for axis, n, size in ((0, n_rows, block_rows), (1, n_columns, block_columns)):
            assert all(len(block[axis]) == len(set(block[axis])) == size for block in blocks)
            counts = Counter(position for block in blocks for position in block[axis])
            # All of it, and none more than once more often than another.
            assert set(counts) == set(range(n)) and max(counts.values()) - min(counts.values()) <= 1


def test_every_epoch_is_shuffled_anew_rows_and_columns_apart() -> None:
    sampler = new_sampler(20, 20, block_rows=5, block_columns=5)
    first, second = epoch(sampler), epoch(sampler)
    for axis in (0, 1):
        assert [block[axis] for block in first] != [block[axis] for block in second]
    assert [block[0] for block in first] != [block[1] for block in first]
    # No order is favoured: over many epochs every row comes first about as often.
    firsts = Counter(epoch(sampler, n_steps=1)[0][0][0] for _ in range(2000))
    assert len(firsts) == 20 and all(50 < count < 150 for count in firsts.values())


Array = npt.NDArray[np.float64]


STARS = Scale(levels=[1, 2, 3, 4, 5])

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def with_entries(count: int) -> ObservedMatrix:
    """A matrix of 10 x 10 cells with so many entries."""
    array = np.full(100, np.nan)
    array[:count] = 1 + np.arange(count) % 5
    return ObservedMatrix.from_array(array.reshape(10, 10), STARS)


@pytest.mark.parametrize("count, dense", [(1, False), (14, False), (15, True), (100, True)])
def test_on_a_cpu_tables_are_dense_from_a_share_on(count: int, dense: bool) -> None:
    for half in (True, False):
        assert prefer_dense(with_entries(count), CPU, half=half) is dense


@pytest.mark.parametrize("half, bytes_per_cell", [(False, 12), (True, 8)])
def test_on_a_gpu_tables_are_dense_where_they_fit(
    monkeypatch: pytest.MonkeyPatch, half: bool, bytes_per_cell: int
) -> None:
    monkeypatch.setattr(blocks_module, "count_free_bytes", lambda _: 1 << 40)
    for room, dense in ((100 * bytes_per_cell, True), (100 * bytes_per_cell - 1, False)):
        monkeypatch.setattr(blocks_module, "DENSE_BYTES_ON_GPU", room)
        for count in (1, 100):
            assert prefer_dense(with_entries(count), GPU, half=half) is dense


def test_tables_take_a_third_of_what_a_gpu_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, dense in ((3 * 1200, True), (3 * 1200 - 3, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 1 << 40))
        assert prefer_dense(with_entries(50), GPU, half=False) is dense


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


# Small matrices of stars with NaN where nothing is observed.
cells = st.sampled_from([np.nan, np.nan, 1.0, 2.0, 3.0, 4.0, 5.0])

matrices = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(cells, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
    ).map(np.array)
)


def unprepared(
    array: Array,
    *,
    dense: bool | None = None,
    inputs: str = "scaled",
    missing: float = 0.0,
    block: tuple[int, int] = (2, 3),
) -> MatrixBlocks:
    return MatrixBlocks(
        ObservedMatrix.from_array(array, STARS),
        ENCODINGS[inputs],
        block_rows=block[0],
        block_columns=block[1],
        force_dense=dense,
        missing=missing,
    )


def prepared(
    source: MatrixBlocks,
    *,
    half: bool = False,
    device: str = "cpu",
    seed: int = 0,
    ranks: Ranks | None = None,
) -> MatrixBlocks:
    source.prepare(
        torch.device(device), half=half, generator=torch.Generator().manual_seed(seed), ranks=ranks
    )
    return source


def targets_of(source: MatrixBlocks, rows: list[int], columns: list[int]) -> Tensor:
    return source.block(torch.tensor(rows), torch.tensor(columns)).targets


def table_of_batch(batch: Batch, width: int) -> Tensor:
    """Write vectors into a table, entry by entry."""
    if isinstance(batch, Tensor):
        return batch.cpu()
    table = torch.zeros(batch.starts.numel() - 1, width)
    for row, (start, end) in enumerate(
        zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)
    ):
        for index, weight in zip(
            batch.indices[start:end].tolist(), batch.weights[start:end].tolist(), strict=True
        ):
            table[row, index] = weight
    return table


def table_of(vectors: Vectors, ids: list[int], width: int) -> Tensor:
    """Take some vectors and write them into a table."""
    return table_of_batch(vectors.take(torch.tensor(ids, dtype=torch.int64)), width)


def counts_with_entries(array: Array) -> tuple[int, int]:
    """How many rows, and how many columns, have entries."""
    observed = ~np.isnan(array)
    return int(observed.any(axis=1).sum()), int(observed.any(axis=0).sum())


@pytest.mark.slow
@settings(max_examples=30)
@given(array=matrices, data=st.data())
def test_targets_and_vectors_are_those_of_the_matrix(array: Array, data: st.DataObject) -> None:
    n_rows, n_columns = array.shape
    rows = data.draw(st.permutations(range(n_rows)))[: data.draw(st.integers(1, n_rows))]
    columns = data.draw(st.permutations(range(n_columns)))[: data.draw(st.integers(1, n_columns))]
    counts = counts_with_entries(array)
    for dense, inputs in product((True, False), ENCODINGS):
        source = unprepared(array, dense=dense, inputs=inputs)
        if min(counts) < 2:
            with pytest.raises(BadEntries, match=f"{counts[0]} and {counts[1]}"):
                prepared(source)
        else:
            prepared(source)
        block = source.block(torch.tensor(rows), torch.tensor(columns))
        assert block.targets.dtype == torch.float32
        # NaN at the same places
        np.testing.assert_array_equal(block.targets, (array[rows][:, columns] - 3) / 2)
        encoded = np.nan_to_num((array - 3) / 2 if inputs == "scaled" else array)
        np.testing.assert_array_equal(table_of_batch(block.rows, n_columns), encoded[rows])
        np.testing.assert_array_equal(table_of_batch(block.columns, n_rows), encoded.T[columns])
        np.testing.assert_array_equal(
            table_of(source.rows, list(range(n_rows)), n_columns), encoded
        )
        np.testing.assert_array_equal(
            table_of(source.columns, list(range(n_columns)), n_rows), encoded.T
        )
        assert block.row_ids.tolist() == list(rows) and block.column_ids.tolist() == list(columns)


@pytest.mark.parametrize("missing", [0.0, float("nan"), -7.0])
@pytest.mark.parametrize("half", [False, True])
def test_in_dense_vectors_something_stands_for_what_is_missing(missing: float, half: bool) -> None:
    array = np.array([[3.0, np.nan, 1.0], [np.nan, 5.0, 4.0]])
    dense = prepared(unprepared(array, dense=True, missing=missing), half=half)
    expected = np.where(np.isnan(array), missing, (array - 3) / 2)
    np.testing.assert_array_equal(table_of(dense.rows, [0, 1], 3).float(), expected)
    np.testing.assert_array_equal(table_of(dense.columns, [0, 1, 2], 2).float(), expected.T)
    # Sparse vectors have no place for it, and targets are missing where they are.
    sparse = prepared(unprepared(array, dense=False, missing=missing), half=half)
    assert isinstance(sparse.rows, SparseVectors) and sparse.rows.weights.tolist() == [
        0.0,
        -1.0,
        1.0,
        0.5,
    ]
    for source in (dense, sparse):
        np.testing.assert_array_equal(targets_of(source, [0, 1], [0, 1, 2]), (array - 3) / 2)


@pytest.mark.parametrize("by_rule", [True, False])
def test_the_rule_chooses_unless_it_is_overridden(
    by_rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    def rule(matrix: ObservedMatrix, device: torch.device, *, half: bool) -> bool:
        asked.append((device.type, half))
        return by_rule

    monkeypatch.setattr(blocks_module, "prefer_dense", rule)
    array = np.ones((4, 4))
    source = prepared(unprepared(array), half=True)
    kind = DenseVectors if by_rule else SparseVectors
    assert (
        source.dense is by_rule
        and isinstance(source.rows, kind)
        and isinstance(source.columns, kind)
    )
    assert asked == [("cpu", True)]
    for forced in (True, False):
        assert prepared(unprepared(array, dense=forced)).dense is forced


def test_half_precision_is_for_dense_inputs_never_for_targets() -> None:
    array = np.array([[1.0, 2.0], [np.nan, 4.0]])
    dense, sparse = (prepared(unprepared(array, dense=dense), half=True) for dense in (True, False))
    assert isinstance(dense.rows, DenseVectors) and dense.rows.table.dtype == torch.bfloat16
    assert isinstance(sparse.rows, SparseVectors) and sparse.rows.weights.dtype == torch.float32
    for source in (dense, sparse):
        targets = targets_of(source, [0, 1], [0, 1])
        np.testing.assert_array_equal(
            targets.numpy(), np.array([[-1.0, -0.5], [np.nan, 0.5]], dtype=np.float32)
        )
        assert targets.dtype == torch.float32


def epoch_of(source: MatrixBlocks) -> list[Block]:
    source.begin_epoch()
    return [source.next_block() for _ in range(source.n_steps)]


@pytest.mark.parametrize("device", DEVICES)
def test_an_epoch_on_a_device_is_the_same_dense_and_sparse(device: str) -> None:
    generator = np.random.default_rng(0)
    array = np.where(generator.random((9, 7)) < 0.5, generator.integers(1, 6, (9, 7)), np.nan)
    array[4] = np.nan  # in no block
    dense, sparse = (
        prepared(unprepared(array, dense=dense), device=device) for dense in (True, False)
    )
    assert (dense.dense, sparse.dense, dense.n_steps, sparse.n_steps) == (True, False, 3, 3)
    for _ in range(2):
        for one, other in zip(epoch_of(dense), epoch_of(sparse), strict=True):
            assert isinstance(one.rows, Tensor) and isinstance(other.rows, SparseBatch)
            assert {
                part.device.type
                for part in (one.rows, one.targets, other.rows.weights, other.targets)
            } == {device}
            rows, columns = one.row_ids.cpu().numpy(), one.column_ids.cpu().numpy()
            assert len(set(rows)) == 2 and len(set(columns)) == 3 and 4 not in rows
            for block in (one, other):
                assert (
                    block.row_ids.tolist() == rows.tolist()
                    and block.column_ids.tolist() == columns.tolist()
                )
                np.testing.assert_array_equal(
                    block.targets.cpu(), (array[np.ix_(rows, columns)] - 3) / 2
                )
                units = np.nan_to_num((array - 3) / 2)
                np.testing.assert_array_equal(table_of_batch(block.rows, 7), units[rows])
                np.testing.assert_array_equal(table_of_batch(block.columns, 9), units.T[columns])


@pytest.mark.parametrize("inputs", ENCODINGS)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_ranks_have_parts_of_sparse_blocks(n_ranks: int, inputs: str) -> None:
    generator = np.random.default_rng(0)
    array = np.where(generator.random((9, 5)) < 0.4, generator.integers(1, 6, (9, 5)), np.nan)
    alone = prepared(unprepared(array, dense=False, inputs=inputs))
    of_ranks = [
        prepared(unprepared(array, dense=False, inputs=inputs), ranks=Ranks(rank, n_ranks))
        for rank in range(n_ranks)
    ]
    rows, columns = torch.tensor([5, 0, 8, 2]), torch.tensor([3, 0, 4])
    whole, parts = alone.block(rows, columns), [source.block(rows, columns) for source in of_ranks]
    assert whole.sum_over_ranks is keep_sums and all(
        part.sum_over_ranks is not keep_sums for part in parts
    )
    # Each entry is on one rank; what no rank has is missing.
    stacked = torch.stack([part.targets for part in parts])
    assert torch.equal((~stacked.isnan()).sum(0), (~whole.targets.isnan()).int())
    assert torch.equal(stacked.nansum(0), whole.targets.nan_to_num())
    for name, width in (("rows", 5), ("columns", 9)):
        expected = table_of_batch(getattr(whole, name), width)
        for rank, part in enumerate(parts):
            own = torch.zeros(width)
            own[Ranks(rank, n_ranks).find_lines(width)] = 1.0
            assert torch.equal(table_of_batch(getattr(part, name), width), expected * own)
        for source in of_ranks:
            assert torch.equal(getattr(source, name).counts, getattr(alone, name).counts)
    for source in of_ranks:
        source.join()
        for ours, theirs, ids in (
            (source.rows, alone.rows, rows),
            (source.columns, alone.columns, columns),
        ):
            assert all(map(torch.equal, ours.take(ids), theirs.take(ids)))


def test_tables_are_dense_where_all_ranks_prefer_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for others, dense in (([True, True], True), ([True, False], False)):
        monkeypatch.setattr(Ranks, "collect", lambda _, own, others=others: [own, *others])
        # a full matrix
        assert prepared(unprepared(np.ones((4, 4))), ranks=Ranks(0, 3)).dense is dense


def test_ranks_have_dense_tables_whole() -> None:
    array = np.arange(30).reshape(6, 5) % 5 + 1.0
    source = prepared(unprepared(array, dense=True), ranks=Ranks(1, 2))
    block = source.block(torch.tensor([0, 4]), torch.tensor([1, 2]))
    assert block.sum_over_ranks is keep_sums
    np.testing.assert_array_equal(block.targets, (array[[0, 4]][:, [1, 2]] - 3) / 2)
    source.join()
    assert table_of(source.rows, [0, 4], 5).shape == (2, 5)


HOLED = np.array(
    [[1.0, np.nan, 4.0], [np.nan, np.nan, np.nan], [3.0, 2.0, np.nan], [5.0, np.nan, 5.0]]
)


def unprepared_vectors(
    array: Array, *, axis: Axis, dense: bool | None, batch_size: int | None = None
) -> VectorBlocks:
    """Blocks whose values are those of the matrix, minus 3: the middle of the scale is 0 and still
    an entry."""
    matrix = ObservedMatrix.from_array(array, STARS)
    return VectorBlocks(
        matrix, matrix.values - 3.0, axis=axis, batch_size=batch_size, force_dense=dense
    )


def prepared_vectors(
    source: VectorBlocks, *, half: bool = False, device: str = "cpu", seed: int = 0
) -> VectorBlocks:
    source.prepare(torch.device(device), half=half, generator=torch.Generator().manual_seed(seed))
    return source


def positions_of(source: VectorBlocks) -> Tensor:
    """The positions of the vectors that have entries."""
    ((positions, _),) = source._list_axes()
    return torch.from_numpy(positions)


def tables(block: VectorBlock, width: int) -> tuple[Tensor, Tensor]:
    """Return inputs, with 0 where there are none, and targets, with NaN where there are none, as
    tables."""
    if not isinstance(block.inputs, SparseBatch):
        return block.inputs.cpu(), block.targets.cpu()
    indices, starts, weights = (part.cpu() for part in block.inputs)
    vectors = torch.repeat_interleave(torch.arange(starts.numel() - 1), starts.diff())
    inputs, targets = (
        torch.zeros(starts.numel() - 1, width),
        torch.full((starts.numel() - 1, width), float("nan")),
    )
    inputs[vectors, indices.long()] = weights
    targets[vectors, indices.long()] = block.targets.cpu()
    return inputs, targets


@pytest.mark.slow
@settings(max_examples=60)
@given(array=matrices, data=st.data())
def test_a_block_is_some_vectors_of_the_matrix(array: Array, data: st.DataObject) -> None:
    axis: Axis = data.draw(st.sampled_from(("row", "column")))
    expected = (array if axis == "row" else array.T) - 3
    with_entries = np.flatnonzero(~np.isnan(expected).all(axis=1))
    for dense in (True, False):
        source = unprepared_vectors(array, axis=axis, dense=dense)
        np.testing.assert_array_equal(positions_of(source), with_entries)
        if with_entries.size < 2:
            continue
        prepared_vectors(source)
        count = data.draw(st.integers(1, with_entries.size - 1))
        ids = data.draw(st.permutations(with_entries.tolist()))[:count]
        block = source.block(torch.tensor(ids))
        inputs, targets = tables(block, expected.shape[1])
        assert targets.dtype == torch.float32
        np.testing.assert_array_equal(targets, expected[ids])
        np.testing.assert_array_equal(inputs, np.nan_to_num(expected[ids]))
        assert (block.n_vectors, block.share) == (count, count / with_entries.size)


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize("dense", [True, False])
def test_all_at_once_come_in_their_own_order_and_without_a_copy(axis: Axis, dense: bool) -> None:
    source = prepared_vectors(unprepared_vectors(HOLED, axis=axis, dense=dense))
    expected = (HOLED if axis == "row" else HOLED.T) - 3
    for ids in (positions_of(source), positions_of(source).flip(0)):
        block = source.block(ids)
        inputs, targets = tables(block, expected.shape[1])
        # a vector without entries is there and has no target
        np.testing.assert_array_equal(targets, expected)
        np.testing.assert_array_equal(inputs, np.nan_to_num(expected))
        assert (block.n_vectors, block.share) == (3, 1.0)
        again = source.block(ids)
        assert block.targets.data_ptr() == again.targets.data_ptr()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", ["row", "column"])
def test_an_epoch_of_vectors_on_a_device_is_the_same_dense_and_sparse(
    axis: Axis, device: str
) -> None:
    generator = np.random.default_rng(0)
    # No two vectors are alike, so that targets tell which they are.
    array = np.where(generator.random((9, 8)) < 0.6, generator.integers(1, 6, (9, 8)), np.nan)
    array[4], array[:, 2] = np.nan, np.nan
    expected = (array if axis == "row" else array.T) - 3
    wanted = {
        tuple(np.nan_to_num(vector, nan=9.0)) for vector in expected if not np.isnan(vector).all()
    }
    sources = [
        prepared_vectors(
            unprepared_vectors(array, axis=axis, dense=dense, batch_size=2), device=device
        )
        for dense in (True, False)
    ]
    for source in sources:
        source.begin_epoch()
    seen = set()
    for _ in range(sources[0].n_steps):
        dense, sparse = (source.next_block() for source in sources)
        assert dense.targets.device.type == sparse.targets.device.type == device
        assert (
            (dense.n_vectors, dense.share)
            == (sparse.n_vectors, sparse.share)
            == (2, 2 / len(wanted))
        )
        for one, other in zip(
            tables(dense, expected.shape[1]), tables(sparse, expected.shape[1]), strict=True
        ):
            np.testing.assert_array_equal(one, other)
        inputs, targets = tables(dense, expected.shape[1])
        np.testing.assert_array_equal(inputs, targets.nan_to_num(0.0))
        seen |= {tuple(vector) for vector in targets.nan_to_num(9.0).tolist()}
    assert seen == wanted
