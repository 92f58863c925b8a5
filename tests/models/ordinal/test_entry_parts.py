"""Parts of positions: every position once, in order, and no more entries than fit."""

import numpy as np
import pytest

from deepmf.models.ordinal import entry_parts as parts_module
from deepmf.models.ordinal.entry_parts import entry_parts


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_parts_hold_every_position_once_and_few_entries(monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    monkeypatch.setattr(parts_module, "_ENTRIES_AT_A_TIME", 100)
    counts = np.random.default_rng(0).integers(0, 30, 500).astype(dtype)
    counts[7] = 1000  # more than a part may hold
    parts = entry_parts(counts)
    assert np.array_equal(np.concatenate(parts), np.arange(500))
    sums = np.array([counts[part].sum() for part in parts])
    assert sorted(sums)[-2] <= 100 + 30 and np.median(sums) > 50


def test_few_entries_are_one_part() -> None:
    (part,) = entry_parts(np.array([3, 0, 5]))
    assert part.tolist() == [0, 1, 2]
