"""Where blocks come from: the rule that chooses dense tables, and tables that are copies of the matrix."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.training import block_source
from deepmf.training.block_source import dense_table, prefer_dense, tensor_on

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
    monkeypatch.setattr(block_source, "free_bytes", lambda _: 1 << 40)
    for room, dense in ((100 * bytes_per_cell, True), (100 * bytes_per_cell - 1, False)):
        monkeypatch.setattr(block_source, "DENSE_BYTES_ON_GPU", room)
        for count in (1, 100):
            assert prefer_dense(with_entries(count), GPU, half=half) is dense


def test_tables_take_a_third_of_what_a_gpu_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, dense in ((3 * 1200, True), (3 * 1200 - 3, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 1 << 40))
        assert prefer_dense(with_entries(50), GPU, half=False) is dense


@pytest.mark.parametrize("missing", [0.0, float("nan"), -7.0])
def test_a_dense_table(missing: float) -> None:
    matrix = ObservedMatrix.from_array([[1, np.nan, 3], [np.nan, 5, np.nan]], STARS)
    table = dense_table(matrix, matrix.values * 10, CPU, missing=missing)
    assert table.dtype == torch.float32
    np.testing.assert_array_equal(table, [[10, missing, 30], [missing, 50, missing]])


def test_a_tensor_is_a_copy() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    tensor_on(CPU, array).zero_()
    assert array.tolist() == [0, 1, 2]
