"""Blocks of vectors: sparse and dense ones hold the same vectors and targets, those of the matrix."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.training.test_matrix_blocks import DEVICES, matrices
from torch import Tensor

from deepmf.layers.vectors import DenseVectors, SparseBatch, SparseVectors
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.training.vector_blocks import AxisName, VectorBlock, VectorBlocks

Array = npt.NDArray[np.float64]

STARS = Scale(levels=[1, 2, 3, 4, 5])
HOLED = np.array([[1.0, np.nan, 4.0], [np.nan, np.nan, np.nan], [3.0, 2.0, np.nan], [5.0, np.nan, 5.0]])


def unprepared(array: Array, *, axis: AxisName, dense: bool | None, batch_size: int | None = None) -> VectorBlocks:
    """Blocks whose values are those of the matrix, minus 3: the middle of the scale is 0 and still an entry."""
    matrix = ObservedMatrix.from_array(array, STARS)
    return VectorBlocks(matrix, matrix.values - 3.0, axis=axis, batch_size=batch_size, force_dense=dense)


def prepared(source: VectorBlocks, *, half: bool = False, device: str = "cpu", seed: int = 0) -> VectorBlocks:
    source.prepare(torch.device(device), half=half, generator=torch.Generator().manual_seed(seed))
    return source


def positions_of(source: VectorBlocks) -> Tensor:
    """The positions of the vectors that have entries."""
    (axis,) = source._axes()
    return axis.positions


def tables(block: VectorBlock, width: int) -> tuple[Tensor, Tensor]:
    """Return inputs, with 0 where there are none, and targets, with NaN where there are none, as tables."""
    if not isinstance(block.inputs, SparseBatch):
        return block.inputs.cpu(), block.targets.cpu()
    indices, starts, weights = (part.cpu() for part in block.inputs)
    vectors = torch.repeat_interleave(torch.arange(starts.numel() - 1), starts.diff())
    inputs, targets = torch.zeros(starts.numel() - 1, width), torch.full((starts.numel() - 1, width), float("nan"))
    inputs[vectors, indices.long()] = weights
    targets[vectors, indices.long()] = block.targets.cpu()
    return inputs, targets


@settings(max_examples=60)
@given(array=matrices, data=st.data())
def test_a_block_is_some_vectors_of_the_matrix(array: Array, data: st.DataObject) -> None:
    axis: AxisName = data.draw(st.sampled_from(("row", "column")))
    expected = (array if axis == "row" else array.T) - 3
    with_entries = np.flatnonzero(~np.isnan(expected).all(axis=1))
    for dense in (True, False):
        source = unprepared(array, axis=axis, dense=dense)
        np.testing.assert_array_equal(positions_of(source), with_entries)
        if with_entries.size < 2:
            continue
        prepared(source)
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
def test_all_at_once_come_in_their_own_order_and_without_a_copy(axis: AxisName, dense: bool) -> None:
    source = prepared(unprepared(HOLED, axis=axis, dense=dense))
    expected = (HOLED if axis == "row" else HOLED.T) - 3
    for ids in (positions_of(source), positions_of(source).flip(0)):
        block = source.block(ids)
        inputs, targets = tables(block, expected.shape[1])
        np.testing.assert_array_equal(targets, expected)  # a vector without entries is there and has no target
        np.testing.assert_array_equal(inputs, np.nan_to_num(expected))
        assert (block.n_vectors, block.share) == (3, 1.0)
        again = source.block(ids)
        assert block.targets.data_ptr() == again.targets.data_ptr()


def test_the_rule_for_blocks_chooses() -> None:
    array = np.full((10, 10), np.nan)
    array[0] = 1.0
    sparse = prepared(unprepared(array, axis="row", dense=None))
    assert isinstance(sparse.vectors, SparseVectors) and not sparse.dense
    array[1] = 2.0
    dense = prepared(unprepared(array, axis="row", dense=None))
    assert isinstance(dense.vectors, DenseVectors) and dense.dense


def test_half_precision_is_for_dense_inputs_never_for_targets() -> None:
    array = np.array([[1.0, 2.0], [np.nan, 4.0], [2.0, np.nan]])
    dense, sparse = (
        prepared(unprepared(array, axis="row", dense=dense), half=True).block(torch.tensor([0, 2]))
        for dense in (True, False)
    )
    assert isinstance(dense.inputs, Tensor) and dense.inputs.dtype == torch.bfloat16
    assert isinstance(sparse.inputs, SparseBatch) and sparse.inputs.weights.dtype == torch.float32
    assert dense.targets.dtype == sparse.targets.dtype == torch.float32


def test_the_matrix_stays_as_it_is() -> None:
    matrix = ObservedMatrix.from_array([[1, 2], [3, np.nan]], STARS)
    for dense in (True, False):
        source = VectorBlocks(matrix, matrix.values, axis="row", batch_size=None, force_dense=dense)
        prepared(source).block(torch.tensor([0, 1])).targets.zero_()
    np.testing.assert_array_equal(matrix.to_array(), [[1, 2], [3, np.nan]])


def test_without_a_size_all_vectors_with_entries_make_the_only_block() -> None:
    source = prepared(unprepared(HOLED, axis="row", dense=True))
    source.begin_epoch()
    assert (source.n_steps, source.next_block().n_vectors) == (1, 3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", ["row", "column"])
def test_an_epoch_on_a_device_is_the_same_dense_and_sparse(axis: AxisName, device: str) -> None:
    generator = np.random.default_rng(0)
    # No two vectors are alike, so that targets tell which they are.
    array = np.where(generator.random((9, 8)) < 0.6, generator.integers(1, 6, (9, 8)), np.nan)
    array[4], array[:, 2] = np.nan, np.nan
    expected = (array if axis == "row" else array.T) - 3
    wanted = {tuple(np.nan_to_num(vector, nan=9.0)) for vector in expected if not np.isnan(vector).all()}
    sources = [
        prepared(unprepared(array, axis=axis, dense=dense, batch_size=2), device=device) for dense in (True, False)
    ]
    for source in sources:
        source.begin_epoch()
    seen = set()
    for _ in range(sources[0].n_steps):
        dense, sparse = (source.next_block() for source in sources)
        assert dense.targets.device.type == sparse.targets.device.type == device
        assert (dense.n_vectors, dense.share) == (sparse.n_vectors, sparse.share) == (2, 2 / len(wanted))
        for one, other in zip(tables(dense, expected.shape[1]), tables(sparse, expected.shape[1]), strict=True):
            np.testing.assert_array_equal(one, other)
        inputs, targets = tables(dense, expected.shape[1])
        np.testing.assert_array_equal(inputs, targets.nan_to_num(0.0))
        seen |= {tuple(vector) for vector in targets.nan_to_num(9.0).tolist()}
    assert seen == wanted
