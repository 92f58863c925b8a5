"""Latents: changed and lengthened without copying the old table."""

import numpy as np
import pytest
import torch

from deepmf.errors import TrainingDiverged
from deepmf.linalg.products import multiply_entries
from deepmf.matrix.arrays import LatentArray
from deepmf.models.dmfd import DMFD
from deepmf.models.trained_network import TrainedBranch
from deepmf.scoring.latents import Latents, pair_products
from deepmf.testing import additive


def test_changes_leave_the_base_alone() -> None:
    base = np.arange(12, dtype=np.float32).reshape(4, 3)
    one = Latents(base)
    assert one.whole() is base
    two = one.replace(np.array([1, 4, 5]), -np.ones((3, 3), dtype=np.float32))
    three = two.replace(np.array([5]), np.full((1, 3), 7, dtype=np.float32))
    assert two.base is three.base is base
    assert (len(one), len(two), len(three)) == (4, 6, 6)
    np.testing.assert_array_equal(two.whole()[:, 0], [0, -1, 6, 9, -1, -1])
    assert two.whole() is two.whole()  # copied once, not for every batch
    np.testing.assert_array_equal(three.take(np.array([5, 1, 0]))[:, 0], [7, -1, 0])
    np.testing.assert_array_equal(one.whole()[:, 0], [0, 3, 6, 9])


def test_products_with_a_range_are_those_of_the_whole_table() -> None:
    generator = np.random.default_rng(0)
    base, vectors = (
        generator.standard_normal(shape).astype(np.float32) for shape in ((6, 3), (2, 3))
    )
    changed = Latents(base).replace(
        np.array([1, 4, 6, 7]), generator.standard_normal((4, 3)).astype(np.float32)
    )
    for table in (Latents(base), changed):
        copied = table.take(np.arange(len(table)))
        for start in range(len(table)):
            for stop in range(start, len(table) + 1):
                found = table.products(vectors, slice(start, stop))
                np.testing.assert_allclose(
                    found, vectors @ copied[start:stop].T, rtol=1e-5, atol=1e-6
                )
    assert changed._whole is None  # nothing of the size of the table was copied


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("n_pairs", [0, 1, 200_000])  # three pieces
def test_products_of_pairs(monkeypatch: pytest.MonkeyPatch, n_pairs: int, n_threads: int) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    generator = np.random.default_rng(0)
    tables = [generator.standard_normal((size, 3)).astype(np.float32) for size in (8, 6)]
    rows, columns = generator.integers(0, 8, n_pairs), generator.integers(0, 6, n_pairs)
    expected = (tables[0] @ tables[1].T)[rows, columns]
    changed = [Latents(table[:-1], np.array([len(table) - 1]), table[-1:]) for table in tables]
    np.testing.assert_allclose(
        pair_products(changed[0], changed[1], rows, columns), expected, rtol=1e-5, atol=1e-6
    )
    double = multiply_entries(
        tables[0].astype(np.float64), tables[1].astype(np.float64), rows, columns
    )
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, expected, rtol=1e-5)


def test_what_was_computed_since_training_goes_and_later_ones_move_up() -> None:
    base = np.zeros((3, 1), dtype=np.float32)
    latents = Latents(base).replace(
        np.array([1, 3, 4, 5]), np.array([[1], [3], [4], [5]], dtype=np.float32)
    )
    left = latents.without(np.array([1, 2, 4]))
    assert left.base is base and left.positions.tolist() == [3, 4] and len(left) == 5
    np.testing.assert_array_equal(left.whole()[:, 0], [0, 0, 0, 3, 5])
    np.testing.assert_array_equal(latents.whole()[:, 0], [0, 1, 0, 3, 4, 5])
    assert latents.without(np.array([0, 2])) is latents
    assert len(latents.without(np.array([3, 4, 5]))) == 3


def test_latents_that_are_not_finite_are_refused() -> None:
    base = np.ones((4, 3), dtype=np.float32)
    with pytest.raises(TrainingDiverged, match="finite"):
        Latents(base).replace(np.array([4]), np.full((1, 3), np.nan, dtype=np.float32))


def test_a_fit_whose_latents_are_not_finite_leaves_no_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quantizer makes a level of anything, of NaN too: neither loss nor validation error
    tells."""

    def overflown(*_: object) -> LatentArray:
        return np.full((30, 3), np.nan, dtype=np.float32)

    monkeypatch.setattr(TrainedBranch, "encode", overflown)
    model = DMFD(hidden_sizes=(4,), latent_size=3, epochs=1, device="cpu")
    with pytest.raises(TrainingDiverged, match="large"):
        model.fit(additive())
    assert not model.is_fitted
