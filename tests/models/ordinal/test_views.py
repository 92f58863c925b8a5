"""Parts of positions: every position once, in order, and no more entries than fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from deepmf.models.ordinal import views as entry_views
from deepmf.models.ordinal import views as parts_module
from deepmf.models.ordinal.views import PaddedEntries, entry_parts, outputs_by_view, outputs_without_each
from deepmf.nn.branch import Branch
from deepmf.nn.inputs import N_SUMMARY_FEATURES, SparseVectors, apply_mask, channels
from deepmf.nn.masking import views


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


N_INPUTS = 9

VIEWS = views(5, N_INPUTS, mask_rate=0.6, generator=torch.Generator().manual_seed(1))

VECTORS = SparseVectors(
    torch.tensor([0, 4, 4, 5, 11]),
    torch.tensor([0, 3, 5, 8, 2, 0, 1, 3, 4, 6, 7]),
    torch.linspace(-1, 1, 11),
)


@pytest.fixture(scope="module")
def branch() -> Branch:
    generator = torch.Generator().manual_seed(0)
    branch = Branch(2 * N_INPUTS, (7, 4), dropout=0.5, generator=generator, n_summary_features=N_SUMMARY_FEATURES)
    with torch.no_grad():
        for norm in branch.norms:
            norm.running_mean.normal_(generator=generator)  # type: ignore[operator, union-attr]
    return branch.eval().requires_grad_(False)


def one_by_one(branch: Branch, vectors: SparseVectors, position: int) -> Tensor:
    """What the branch gives for each view of a vector, (views, outputs)."""
    batch = vectors.take(torch.tensor([position]))
    seen = [apply_mask(batch, view[batch.indices]) for view in VIEWS]
    return torch.cat([branch(channels(each, N_INPUTS)) for each in seen])


@pytest.mark.parametrize("at_a_time", [1, 5, 8192])
def test_every_view_is_what_the_branch_makes_of_what_it_sees(
    branch: Branch, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(entry_views, "_ENTRIES_AT_A_TIME", at_a_time)
    for ids in ([0, 1, 2, 3], [3], [1], [2, 0]):
        found = outputs_by_view(branch, VIEWS, PaddedEntries.of(VECTORS, torch.tensor(ids)))
        assert found.shape == (len(ids), 5, 4)
        for outputs, position in zip(found, ids, strict=True):
            torch.testing.assert_close(outputs, one_by_one(branch, VECTORS, position), atol=1e-5, rtol=1e-5)


def test_without_an_entry_it_is_what_the_branch_makes_of_the_others(branch: Branch) -> None:
    left_out = torch.tensor([5, 0, 2])
    found = outputs_without_each(branch, VIEWS, PaddedEntries.of(VECTORS, torch.tensor([3])), left_out)
    indices, weights = VECTORS.indices[5:], VECTORS.weights[5:]
    for outputs, place in zip(found, left_out.tolist(), strict=True):
        kept = torch.arange(6) != place
        rest = SparseVectors(torch.tensor([0, 5]), indices[kept], weights[kept])
        torch.testing.assert_close(outputs, one_by_one(branch, rest, 0), atol=1e-5, rtol=1e-5)
    (alone,) = outputs_without_each(branch, VIEWS, PaddedEntries.of(VECTORS, torch.tensor([2])), torch.tensor([0]))
    torch.testing.assert_close(alone, one_by_one(branch, VECTORS, 1), atol=1e-5, rtol=1e-5)  # nothing is left


def test_padding(branch: Branch) -> None:
    entries = PaddedEntries.of(VECTORS, torch.tensor([2, 0, 1]))
    assert entries.indices.tolist() == [[2, 0, 0, 0], [0, 3, 5, 8], [0, 0, 0, 0]]
    assert entries.real.sum(1).tolist() == [1, 4, 0]
    alone = PaddedEntries.of(VECTORS, torch.tensor([0]))
    assert all(torch.equal(one[0], many[1]) for one, many in zip(alone, entries, strict=True))
