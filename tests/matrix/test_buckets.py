"""Buckets: every record comes back once, in the bucket of its key, in the order in which it was added."""

from pathlib import Path

import numpy as np
import pytest

from deepmf.matrix import buckets
from deepmf.matrix.buckets import Buckets, even_bounds


@pytest.mark.parametrize("size", [10, 100, 10_000])
def test_records_come_back_by_rising_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(buckets, "BUCKET", size)
    generator = np.random.default_rng(0)
    keys, numbers = generator.integers(0, 50, 1000), np.arange(1000)
    found = Buckets(tmp_path / "b", np.bincount(keys, minlength=50), [np.int32, np.int64])
    for part in np.split(np.arange(1000), [10, 400]):
        found.add(keys[part], numbers[part])
    back = list(found)
    assert [bucket.first for bucket in back[1:]] == [bucket.last for bucket in back[:-1]]
    assert (back[0].first, back[-1].last) == (0, 50)
    for bucket in back:
        expected = np.flatnonzero((keys >= bucket.first) & (keys < bucket.last))
        assert bucket.fields[1].tolist() == expected.tolist()
        assert bucket.fields[0].tolist() == keys[expected].tolist()
    assert list((tmp_path / "b").iterdir()) == []
    assert len(back) == min(max(1000 // size, 1), 50)


def test_ranges_have_about_equal_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUCKET", 10)
    weights = np.array([1, 1, 50, 1, 1, 9, 8, 7, 0, 0])
    bounds = even_bounds(weights)
    assert (bounds[0], bounds[-1]) == (0, 10)
    assert np.all(np.diff(bounds) > 0)
    assert even_bounds(np.zeros(3, dtype=np.int64)).tolist() == [0, 3]
    assert even_bounds(np.ones(100_000)).size - 1 == buckets.MOST_BUCKETS
