"""Latents: changed and lengthened without copying the old table."""

import numpy as np

from deepmf.models.latents import Latents


def test_changes_leave_the_base_alone() -> None:
    base = np.arange(12, dtype=np.float32).reshape(4, 3)
    one = Latents(base)
    assert one.whole() is base
    two = one.changed(np.array([1, 4, 5]), -np.ones((3, 3), dtype=np.float32), count=6)
    three = two.changed(np.array([5]), np.full((1, 3), 7, dtype=np.float32), count=6)
    assert two.base is three.base is base
    assert (len(one), len(two), len(three)) == (4, 6, 6)
    np.testing.assert_array_equal(two.whole()[:, 0], [0, -1, 6, 9, -1, -1])
    assert two.whole() is two.whole()  # copied once, not for every batch
    np.testing.assert_array_equal(three.take(np.array([5, 1, 0]))[:, 0], [7, -1, 0])
    np.testing.assert_array_equal(one.whole()[:, 0], [0, 3, 6, 9])
