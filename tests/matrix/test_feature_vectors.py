"""Feature vectors: sparse, padded, and the same whatever the padding."""

import numpy as np
import pytest

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.feature_vectors import FeatureVectors

VECTORS = FeatureVectors.of_parts(
    3,
    5,
    [
        (np.array([2, 0]), np.array([1, 4]), np.array([0.5, 2.0])),
        (np.array([0, 0, 2]), np.array([0, 3, 2]), np.array([1.0, 0.0, -1.0])),  # a weight of 0 is none
    ],
)


def dense(vectors: FeatureVectors) -> FloatArray:
    found = np.zeros((len(vectors), vectors.n_inputs))
    for at in range(len(vectors)):
        np.add.at(found[at], vectors.inputs[at], vectors.weights[at])
    return found


EXPECTED = np.array([[1, 0, 0, 0, 2], [0, 0, 0, 0, 0], [0, 0.5, -1, 0, 0]])


def test_parts_come_together() -> None:
    np.testing.assert_array_equal(dense(VECTORS), EXPECTED)
    assert VECTORS.inputs.shape == (3, 2)
    assert (VECTORS.inputs.dtype, VECTORS.weights.dtype) == (np.int32, np.float32)
    assert VECTORS.are_known.tolist() == [True, False, True]


def test_take_has_nothing_behind_the_last() -> None:
    np.testing.assert_array_equal(dense(VECTORS.take(np.array([2, 0, 2]))), EXPECTED[[2, 0, 2]])
    np.testing.assert_array_equal(dense(VECTORS.take(np.array([7, 0, 3]))), [np.zeros(5), EXPECTED[0], np.zeros(5)])


def test_padding_changes_nothing() -> None:
    wide = VECTORS.padded(4)
    assert wide.inputs.shape == (3, 4) and wide.padded(2) is wide
    np.testing.assert_array_equal(dense(wide), EXPECTED)
    for dtype in (np.float32, np.float64):
        table = np.random.default_rng(0).normal(size=(5, 3)).astype(dtype)
        assert wide.product(table).tobytes() == VECTORS.product(table).tobytes()
        assert VECTORS.product(table).dtype == dtype


def test_followed_by() -> None:
    more = FeatureVectors.of_parts(1, 5, [(np.zeros(3, int), np.arange(3), np.ones(3))])
    for first, second in ((VECTORS, more), (more, VECTORS)):
        together = first.followed_by(second)
        np.testing.assert_array_equal(dense(together), np.concatenate([dense(first), dense(second)]))


def test_product_and_sparse_are_those_of_the_dense_vectors() -> None:
    table = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_allclose(VECTORS.product(table), EXPECTED @ table)
    np.testing.assert_array_equal(VECTORS.sparse().toarray(), EXPECTED)
    assert FeatureVectors.empty(0, 5).product(table).shape == (0, 4)
    assert not FeatureVectors.empty(2, 5).product(table).any()


@pytest.mark.parametrize("groups", [[[4]], [[0], [4, 3], [1, 2]], [[0, 4]]])
def test_without_inputs(groups: list[list[int]]) -> None:
    found = dense(VECTORS.take(np.array([0])).without_inputs(groups))
    for line, group in zip(found, groups, strict=True):
        assert line.tolist() == [0 if at in group else value for at, value in enumerate(EXPECTED[0])]
