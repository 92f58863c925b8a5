"""Blocks: sparse and dense ones hold the same vectors and targets, those of the matrix."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepmf.layers.vectors import DenseVectors, SparseVectors, Vectors
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.training import block_source as blocks_module
from deepmf.training.block_source import Blocks
from deepmf.training.runtime import Runtime

Array = npt.NDArray[np.float64]

STARS = Scale(levels=[1, 2, 3, 4, 5])
CPU = Runtime("cpu", "single")

# Small matrices of stars with NaN where nothing is observed.
cells = st.sampled_from([np.nan, np.nan, 1.0, 2.0, 3.0, 4.0, 5.0])
matrices = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(cells, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
    ).map(np.array)
)


def new_blocks(array: Array, *, dense: bool | None, inputs: str = "scaled", runtime: Runtime = CPU) -> Blocks:
    return Blocks(ObservedMatrix.from_array(array, STARS), ENCODINGS[inputs], runtime, force_dense=dense)


def table_of(vectors: Vectors, ids: list[int], width: int) -> Tensor:
    """Take some vectors and write them into a table, entry by entry."""
    batch = vectors.take(torch.tensor(ids, dtype=torch.int64))
    if isinstance(batch, Tensor):
        return batch
    table = torch.zeros(len(ids), width)
    for row, (start, end) in enumerate(zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)):
        for index, weight in zip(batch.indices[start:end].tolist(), batch.weights[start:end].tolist(), strict=True):
            table[row, index] = weight
    return table


@settings(max_examples=60)
@given(array=matrices, data=st.data())
def test_targets_and_vectors_are_those_of_the_matrix(array: Array, data: st.DataObject) -> None:
    n_rows, n_columns = array.shape
    rows = data.draw(st.permutations(range(n_rows)))[: data.draw(st.integers(1, n_rows))]
    columns = data.draw(st.permutations(range(n_columns)))[: data.draw(st.integers(1, n_columns))]
    for dense, inputs in product((True, False), ENCODINGS):
        blocks = new_blocks(array, dense=dense, inputs=inputs)
        targets = blocks.targets(torch.tensor(rows), torch.tensor(columns))
        assert targets.dtype == torch.float32
        np.testing.assert_array_equal(targets, (array[rows][:, columns] - 3) / 2)  # NaN at the same places
        encoded = np.nan_to_num((array - 3) / 2 if inputs == "scaled" else array)
        np.testing.assert_array_equal(table_of(blocks.rows, rows, n_columns), encoded[rows])
        np.testing.assert_array_equal(table_of(blocks.columns, columns, n_rows), encoded.T[columns])


@pytest.mark.parametrize("dense", [True, False])
def test_a_middle_level_is_a_target_and_a_missing_entry_is_none(dense: bool) -> None:
    # In the inputs the two look alike (0): that is the paper's encoding. As targets they must not.
    blocks = new_blocks(np.array([[3.0, np.nan], [np.nan, 3.0], [5.0, 1.0]]), dense=dense)
    targets = blocks.targets(torch.tensor([0, 1, 2]), torch.tensor([0, 1]))
    np.testing.assert_array_equal(targets, [[0.0, np.nan], [np.nan, 0.0], [1.0, -1.0]])
    assert table_of(blocks.rows, [0, 1, 2], 2).tolist() == [[0, 0], [0, 0], [1, -1]]


@pytest.mark.parametrize("missing", [0.0, float("nan"), -7.0])
@pytest.mark.parametrize("precision", ["single", "half"])
def test_in_dense_vectors_something_stands_for_what_is_missing(missing: float, precision: str) -> None:
    array = np.array([[3.0, np.nan, 1.0], [np.nan, 5.0, 4.0]])
    matrix, runtime = ObservedMatrix.from_array(array, STARS), Runtime("cpu", precision)
    dense = Blocks(matrix, ENCODINGS["scaled"], runtime, force_dense=True, missing=missing)
    expected = np.where(np.isnan(array), missing, (array - 3) / 2)
    np.testing.assert_array_equal(table_of(dense.rows, [0, 1], 3).float(), expected)
    np.testing.assert_array_equal(table_of(dense.columns, [0, 1, 2], 2).float(), expected.T)
    # Sparse vectors have no place for it, and targets are missing where they are.
    sparse = Blocks(matrix, ENCODINGS["scaled"], runtime, force_dense=False, missing=missing)
    assert isinstance(sparse.rows, SparseVectors) and sparse.rows.weights.tolist() == [0.0, -1.0, 1.0, 0.5]
    for blocks in (dense, sparse):
        targets = blocks.targets(torch.tensor([0, 1]), torch.tensor([0, 1, 2]))
        np.testing.assert_array_equal(targets, (array - 3) / 2)


@pytest.mark.parametrize("dense", [True, False])
def test_a_block_leaves_no_trace_in_the_next(dense: bool) -> None:
    array = np.arange(30).reshape(6, 5) % 5 + 1.0
    array[1, 2] = array[4, 0] = np.nan
    blocks = new_blocks(array, dense=dense)
    for rows, columns in (([0, 4], [0, 1, 2]), ([1, 3, 5], [4, 2]), ([4], [0]), ([2, 1], [3, 1, 0, 2])):
        targets = blocks.targets(torch.tensor(rows), torch.tensor(columns))
        np.testing.assert_array_equal(targets, (array[rows][:, columns] - 3) / 2)


@pytest.mark.parametrize("dense", [True, False])
def test_a_block_without_entries(dense: bool) -> None:
    blocks = new_blocks(np.array([[np.nan, 4.0], [np.nan, 2.0]]), dense=dense)
    targets = blocks.targets(torch.tensor([1, 0]), torch.tensor([0]))
    assert targets.shape == (2, 1) and bool(targets.isnan().all())
    assert table_of(blocks.columns, [0, 1], 2).tolist() == [[0.0, 0.0], [0.5, -0.5]]


def test_the_matrix_stays_as_it_is() -> None:
    matrix = ObservedMatrix.from_array([[1, 2], [3, np.nan]], STARS)
    for dense in (True, False):
        blocks = Blocks(matrix, ENCODINGS["raw"], CPU, force_dense=dense)
        vectors = blocks.rows
        (vectors.table if isinstance(vectors, DenseVectors) else vectors.weights).zero_()
    np.testing.assert_array_equal(matrix.to_array(), [[1, 2], [3, np.nan]])


def with_entries(count: int) -> Array:
    """A matrix of 10 x 10 cells with so many entries."""
    array = np.full(100, np.nan)
    array[:count] = 1 + np.arange(count) % 5
    return array.reshape(10, 10)


@pytest.mark.parametrize("count, dense", [(1, False), (14, False), (15, True), (100, True)])
def test_on_a_cpu_tables_are_dense_from_a_share_on(count: int, dense: bool) -> None:
    blocks = new_blocks(with_entries(count), dense=None)
    assert blocks.dense is dense
    kind = DenseVectors if dense else SparseVectors
    assert isinstance(blocks.rows, kind) and isinstance(blocks.columns, kind)
    for forced in (True, False):
        assert new_blocks(with_entries(count), dense=forced).dense is forced


@pytest.mark.parametrize("precision, bytes_per_cell", [("single", 12), ("half", 8)])
def test_on_a_gpu_tables_are_dense_where_they_fit(
    monkeypatch: pytest.MonkeyPatch, precision: str, bytes_per_cell: int
) -> None:
    runtime = Runtime("cpu", precision)
    monkeypatch.setattr(runtime, "is_gpu", True)  # the rule asks for nothing else
    for room, dense in ((100 * bytes_per_cell, True), (100 * bytes_per_cell - 1, False)):
        monkeypatch.setattr(blocks_module, "DENSE_BYTES_ON_GPU", room)
        for count in (1, 100):
            assert new_blocks(with_entries(count), dense=None, runtime=runtime).dense is dense


def test_half_precision_is_for_dense_inputs_never_for_targets() -> None:
    half, array = Runtime("cpu", "half"), np.array([[1.0, 2.0], [np.nan, 4.0]])
    dense, sparse = new_blocks(array, dense=True, runtime=half), new_blocks(array, dense=False, runtime=half)
    assert isinstance(dense.rows, DenseVectors) and dense.rows.table.dtype == torch.bfloat16
    assert isinstance(sparse.rows, SparseVectors) and sparse.rows.weights.dtype == torch.float32
    for blocks in (dense, sparse):
        targets = blocks.targets(torch.tensor([0, 1]), torch.tensor([0, 1]))
        np.testing.assert_array_equal(targets.numpy(), np.array([[-1.0, -0.5], [np.nan, 0.5]], dtype=np.float32))
        assert targets.dtype == torch.float32
