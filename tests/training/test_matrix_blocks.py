"""Blocks of a matrix: sparse and dense ones hold the same vectors and targets, those of the matrix."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepmf.errors import BadEntries
from deepmf.layers.ranks import Ranks, itself
from deepmf.layers.vectors import Batch, DenseVectors, SparseBatch, SparseVectors, StoredVectors, Vectors
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.training import matrix_blocks
from deepmf.training.matrix_blocks import Block, MatrixBlocks

Array = npt.NDArray[np.float64]

STARS = Scale(levels=[1, 2, 3, 4, 5])
CPU = torch.device("cpu")
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
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
    source: MatrixBlocks, *, half: bool = False, device: str = "cpu", seed: int = 0, ranks: Ranks | None = None
) -> MatrixBlocks:
    source.prepare(torch.device(device), half=half, generator=torch.Generator().manual_seed(seed), ranks=ranks)
    return source


def targets_of(source: MatrixBlocks, rows: list[int], columns: list[int]) -> Tensor:
    return source.block(torch.tensor(rows), torch.tensor(columns)).targets


def table_of_batch(batch: Batch, width: int) -> Tensor:
    """Write vectors into a table, entry by entry."""
    if isinstance(batch, Tensor):
        return batch.cpu()
    table = torch.zeros(batch.starts.numel() - 1, width)
    for row, (start, end) in enumerate(zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)):
        for index, weight in zip(batch.indices[start:end].tolist(), batch.weights[start:end].tolist(), strict=True):
            table[row, index] = weight
    return table


def table_of(vectors: Vectors, ids: list[int], width: int) -> Tensor:
    """Take some vectors and write them into a table."""
    return table_of_batch(vectors.take(torch.tensor(ids, dtype=torch.int64)), width)


def counts_with_entries(array: Array) -> tuple[int, int]:
    """How many rows, and how many columns, have entries."""
    observed = ~np.isnan(array)
    return int(observed.any(axis=1).sum()), int(observed.any(axis=0).sum())


@settings(max_examples=60)
@given(array=matrices, data=st.data())
def test_targets_and_vectors_are_those_of_the_matrix(array: Array, data: st.DataObject) -> None:
    n_rows, n_columns = array.shape
    rows = data.draw(st.permutations(range(n_rows)))[: data.draw(st.integers(1, n_rows))]
    columns = data.draw(st.permutations(range(n_columns)))[: data.draw(st.integers(1, n_columns))]
    counts = counts_with_entries(array)
    for dense, inputs in product((True, False), ENCODINGS):
        source = unprepared(array, dense=dense, inputs=inputs)
        if min(counts) < 2:
            with pytest.raises(BadEntries, match=f"got {counts[0]} and {counts[1]}$"):
                prepared(source)
            source._place(CPU, half=False)  # what the entries are does not depend on how many there are
        else:
            prepared(source)
        block = source.block(torch.tensor(rows), torch.tensor(columns))
        assert block.targets.dtype == torch.float32
        np.testing.assert_array_equal(block.targets, (array[rows][:, columns] - 3) / 2)  # NaN at the same places
        encoded = np.nan_to_num((array - 3) / 2 if inputs == "scaled" else array)
        np.testing.assert_array_equal(table_of_batch(block.rows, n_columns), encoded[rows])
        np.testing.assert_array_equal(table_of_batch(block.columns, n_rows), encoded.T[columns])
        np.testing.assert_array_equal(table_of(source.rows, list(range(n_rows)), n_columns), encoded)
        np.testing.assert_array_equal(table_of(source.columns, list(range(n_columns)), n_rows), encoded.T)
        assert block.row_ids.tolist() == list(rows) and block.column_ids.tolist() == list(columns)


@pytest.mark.parametrize("dense", [True, False])
def test_a_middle_level_is_a_target_and_a_missing_entry_is_none(dense: bool) -> None:
    # In the inputs the two look alike (0): that is the paper's encoding. As targets they must not.
    source = prepared(unprepared(np.array([[3.0, np.nan], [np.nan, 3.0], [5.0, 1.0]]), dense=dense))
    np.testing.assert_array_equal(targets_of(source, [0, 1, 2], [0, 1]), [[0.0, np.nan], [np.nan, 0.0], [1.0, -1.0]])
    assert table_of(source.rows, [0, 1, 2], 2).tolist() == [[0, 0], [0, 0], [1, -1]]


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
    assert isinstance(sparse.rows, SparseVectors) and sparse.rows.weights.tolist() == [0.0, -1.0, 1.0, 0.5]
    for source in (dense, sparse):
        np.testing.assert_array_equal(targets_of(source, [0, 1], [0, 1, 2]), (array - 3) / 2)


@pytest.mark.parametrize("dense", [True, False])
def test_a_block_leaves_no_trace_in_the_next(dense: bool) -> None:
    array = np.arange(30).reshape(6, 5) % 5 + 1.0
    array[1, 2] = array[4, 0] = np.nan
    source = prepared(unprepared(array, dense=dense))
    for rows, columns in (([0, 4], [0, 1, 2]), ([1, 3, 5], [4, 2]), ([4], [0]), ([2, 1], [3, 1, 0, 2])):
        np.testing.assert_array_equal(targets_of(source, rows, columns), (array[rows][:, columns] - 3) / 2)


@pytest.mark.parametrize("dense", [True, False])
def test_a_block_without_entries(dense: bool) -> None:
    source = prepared(unprepared(np.array([[np.nan, 4.0, 1.0], [np.nan, 2.0, np.nan]]), dense=dense))
    targets = targets_of(source, [1, 0], [0])
    assert targets.shape == (2, 1) and bool(targets.isnan().all())
    assert table_of(source.columns, [0, 1], 2).tolist() == [[0.0, 0.0], [0.5, -0.5]]


def test_the_matrix_stays_as_it_is() -> None:
    matrix = ObservedMatrix.from_array([[1, 2], [3, np.nan]], STARS)
    for dense in (True, False):
        source = MatrixBlocks(matrix, ENCODINGS["raw"], block_rows=2, block_columns=2, force_dense=dense)
        vectors = prepared(source).rows
        (vectors.table if isinstance(vectors, DenseVectors) else vectors.weights).zero_()
        targets_of(source, [0, 1], [0, 1]).zero_()
    np.testing.assert_array_equal(matrix.to_array(), [[1, 2], [3, np.nan]])


@pytest.mark.parametrize("by_rule", [True, False])
def test_the_rule_chooses_unless_it_is_overridden(by_rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def rule(matrix: ObservedMatrix, device: torch.device, *, half: bool) -> bool:
        asked.append((device.type, half))
        return by_rule

    monkeypatch.setattr(matrix_blocks, "prefer_dense", rule)
    array = np.ones((4, 4))
    source = prepared(unprepared(array), half=True)
    kind = DenseVectors if by_rule else SparseVectors
    assert source.dense is by_rule and isinstance(source.rows, kind) and isinstance(source.columns, kind)
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
        np.testing.assert_array_equal(targets.numpy(), np.array([[-1.0, -0.5], [np.nan, 0.5]], dtype=np.float32))
        assert targets.dtype == torch.float32


def test_what_has_no_entries_is_left_out() -> None:
    array = np.full((5, 4), np.nan)
    array[1, 0] = array[1, 3] = array[4, 3] = 2
    rows, columns = unprepared(array, block=(3, 7))._axes()
    assert rows.positions.tolist() == [1, 4] and columns.positions.tolist() == [0, 3]
    assert (rows.block, columns.block) == (3, 7)


@pytest.mark.parametrize("shape, found", [((1, 4), "1 and 4"), ((5, 1), "5 and 1")])
def test_too_small_to_cut_blocks_from(shape: tuple[int, int], found: str) -> None:
    with pytest.raises(BadEntries, match=f"at least two rows and two columns with entries; got {found}$"):
        prepared(unprepared(np.ones(shape)))


def epoch_of(source: MatrixBlocks) -> list[Block]:
    source.begin_epoch()
    return [source.next_block() for _ in range(source.n_steps)]


@pytest.mark.parametrize("device", DEVICES)
def test_an_epoch_on_a_device_is_the_same_dense_and_sparse(device: str) -> None:
    generator = np.random.default_rng(0)
    array = np.where(generator.random((9, 7)) < 0.5, generator.integers(1, 6, (9, 7)), np.nan)
    array[4] = np.nan  # in no block
    dense, sparse = (prepared(unprepared(array, dense=dense), device=device) for dense in (True, False))
    assert (dense.dense, sparse.dense, dense.n_steps, sparse.n_steps) == (True, False, 3, 3)
    for _ in range(2):
        for one, other in zip(epoch_of(dense), epoch_of(sparse), strict=True):
            assert isinstance(one.rows, Tensor) and isinstance(other.rows, SparseBatch)
            assert {part.device.type for part in (one.rows, one.targets, other.rows.weights, other.targets)} == {device}
            rows, columns = one.row_ids.cpu().numpy(), one.column_ids.cpu().numpy()
            assert len(set(rows)) == 2 and len(set(columns)) == 3 and 4 not in rows
            for block in (one, other):
                assert block.row_ids.tolist() == rows.tolist() and block.column_ids.tolist() == columns.tolist()
                np.testing.assert_array_equal(block.targets.cpu(), (array[np.ix_(rows, columns)] - 3) / 2)
                units = np.nan_to_num((array - 3) / 2)
                np.testing.assert_array_equal(table_of_batch(block.rows, 7), units[rows])
                np.testing.assert_array_equal(table_of_batch(block.columns, 9), units.T[columns])


def test_the_generator_shuffles_epochs() -> None:
    array = np.ones((40, 30))
    one, same, other = (prepared(unprepared(array), seed=seed) for seed in (1, 1, 2))
    first, again, third = ([block.row_ids.tolist() for block in epoch_of(source)] for source in (one, same, other))
    assert first == again and first != third
    assert [block.row_ids.tolist() for block in epoch_of(one)] != first


@pytest.mark.parametrize("inputs", ENCODINGS)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_ranks_have_parts_of_sparse_blocks(n_ranks: int, inputs: str) -> None:
    generator = np.random.default_rng(0)
    array = np.where(generator.random((9, 5)) < 0.4, generator.integers(1, 6, (9, 5)), np.nan)
    alone = prepared(unprepared(array, dense=False, inputs=inputs))
    of_ranks = [
        prepared(unprepared(array, dense=False, inputs=inputs), ranks=Ranks(rank, n_ranks)) for rank in range(n_ranks)
    ]
    rows, columns = torch.tensor([5, 0, 8, 2]), torch.tensor([3, 0, 4])
    whole, parts = alone.block(rows, columns), [source.block(rows, columns) for source in of_ranks]
    assert whole.total is itself and all(part.total is not itself for part in parts)
    # Each entry is on one rank; what no rank has is missing.
    stacked = torch.stack([part.targets for part in parts])
    assert torch.equal((~stacked.isnan()).sum(0), (~whole.targets.isnan()).int())
    assert torch.equal(stacked.nansum(0), whole.targets.nan_to_num())
    for name, width in (("rows", 5), ("columns", 9)):
        expected = table_of_batch(getattr(whole, name), width)
        for rank, part in enumerate(parts):
            own = torch.zeros(width)
            own[Ranks(rank, n_ranks).lines(width)] = 1.0
            assert torch.equal(table_of_batch(getattr(part, name), width), expected * own)
        for source in of_ranks:
            assert torch.equal(getattr(source, name).counts, getattr(alone, name).counts)
    for source in of_ranks:
        source.join()
        assert isinstance(source.rows, StoredVectors) and isinstance(source.columns, StoredVectors)
        for ours, theirs, ids in ((source.rows, alone.rows, rows), (source.columns, alone.columns, columns)):
            assert all(map(torch.equal, ours.take(ids), theirs.take(ids)))


def test_tables_are_dense_where_all_ranks_prefer_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for others, dense in (([True, True], True), ([True, False], False)):
        monkeypatch.setattr(Ranks, "collected", lambda _, own, others=others: [own, *others])
        assert prepared(unprepared(np.ones((4, 4))), ranks=Ranks(0, 3)).dense is dense  # a full matrix


def test_ranks_have_dense_tables_whole() -> None:
    array = np.arange(30).reshape(6, 5) % 5 + 1.0
    source = prepared(unprepared(array, dense=True), ranks=Ranks(1, 2))
    block = source.block(torch.tensor([0, 4]), torch.tensor([1, 2]))
    assert block.total is itself
    np.testing.assert_array_equal(block.targets, (array[[0, 4]][:, [1, 2]] - 3) / 2)
    source.join()
    assert table_of(source.rows, [0, 4], 5).shape == (2, 5)
