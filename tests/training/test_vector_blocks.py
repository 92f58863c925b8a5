"""Batches: sparse and dense ones hold the same vectors and targets, those of the matrix."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from deepmf.training.batches import AxisName, Batches, TrainingBatch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepmf.layers.vectors import DenseVectors, SparseBatch, SparseVectors
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
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


def new(array: Array, *, axis: AxisName, dense: bool | None, runtime: Runtime = CPU) -> Batches:
    """Batches whose values are those of the matrix, minus 3: the middle of the scale is 0 and still an entry."""
    matrix = ObservedMatrix.from_array(array, STARS)
    return Batches(matrix, matrix.values - 3.0, axis=axis, runtime=runtime, force_dense=dense)


def tables(batch: TrainingBatch, width: int) -> tuple[Tensor, Tensor]:
    """Return inputs, with 0 where there are none, and targets, with NaN where there are none, as tables."""
    if not isinstance(batch.inputs, SparseBatch):
        return batch.inputs, batch.targets
    indices, starts, weights = batch.inputs
    vectors = torch.repeat_interleave(torch.arange(starts.numel() - 1), starts.diff())
    inputs, targets = torch.zeros(starts.numel() - 1, width), torch.full((starts.numel() - 1, width), float("nan"))
    inputs[vectors, indices.long()] = weights
    targets[vectors, indices.long()] = batch.targets
    return inputs, targets


@settings(max_examples=60)
@given(array=matrices, data=st.data())
def test_a_batch_is_some_vectors_of_the_matrix(array: Array, data: st.DataObject) -> None:
    axis: AxisName = data.draw(st.sampled_from(("row", "column")))
    expected = (array if axis == "row" else array.T) - 3
    with_entries = np.flatnonzero(~np.isnan(expected).all(axis=1))
    for dense in (True, False):
        batches = new(array, axis=axis, dense=dense)
        np.testing.assert_array_equal(batches.positions, with_entries)
        if with_entries.size < 2:
            continue
        count = data.draw(st.integers(1, with_entries.size - 1))
        ids = data.draw(st.permutations(with_entries.tolist()))[:count]
        inputs, targets = tables(batches.take(torch.tensor(ids)), expected.shape[1])
        assert targets.dtype == torch.float32
        np.testing.assert_array_equal(targets, expected[ids])
        np.testing.assert_array_equal(inputs, np.nan_to_num(expected[ids]))


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize("dense", [True, False])
def test_all_at_once_come_in_their_own_order_and_without_a_copy(axis: AxisName, dense: bool) -> None:
    array = np.array([[1.0, np.nan, 4.0], [np.nan, np.nan, np.nan], [3.0, 2.0, np.nan], [5.0, np.nan, 5.0]])
    batches = new(array, axis=axis, dense=dense)
    expected = (array if axis == "row" else array.T) - 3
    for ids in (torch.from_numpy(batches.positions), torch.from_numpy(batches.positions).flip(0)):
        batch = batches.take(ids)
        inputs, targets = tables(batch, expected.shape[1])
        np.testing.assert_array_equal(targets, expected)  # a vector without entries is there and has no target
        np.testing.assert_array_equal(inputs, np.nan_to_num(expected))
        again = batches.take(ids)
        assert batch.targets.data_ptr() == again.targets.data_ptr()


def test_the_rule_for_blocks_chooses() -> None:
    array = np.full((10, 10), np.nan)
    array[0] = 1.0
    assert isinstance(new(array, axis="row", dense=None).vectors, SparseVectors)
    array[1] = 2.0
    assert isinstance(new(array, axis="row", dense=None).vectors, DenseVectors)


def test_half_precision_is_for_dense_inputs_never_for_targets() -> None:
    half, array = Runtime("cpu", "half"), np.array([[1.0, 2.0], [np.nan, 4.0], [2.0, np.nan]])
    dense = new(array, axis="row", dense=True, runtime=half).take(torch.tensor([0, 2]))
    sparse = new(array, axis="row", dense=False, runtime=half).take(torch.tensor([0, 2]))
    assert isinstance(dense.inputs, Tensor) and dense.inputs.dtype == torch.bfloat16
    assert isinstance(sparse.inputs, SparseBatch) and sparse.inputs.weights.dtype == torch.float32
    assert dense.targets.dtype == sparse.targets.dtype == torch.float32


def test_the_matrix_stays_as_it_is() -> None:
    matrix = ObservedMatrix.from_array([[1, 2], [3, np.nan]], STARS)
    for dense in (True, False):
        batch = Batches(matrix, matrix.values, axis="row", runtime=CPU, force_dense=dense).take(torch.tensor([0, 1]))
        batch.targets.zero_()
    np.testing.assert_array_equal(matrix.to_array(), [[1, 2], [3, np.nan]])
