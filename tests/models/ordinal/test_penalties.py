"""The choice of penalties: none where a vector's own entries tell nothing, small ones where they tell much."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from deepmf.data.synthetic.generator import generate
from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.ordinal import penalties as penalties_module
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.models.ordinal.ordinal_encoder import OrdinalEncoder
from deepmf.models.ordinal.penalties import HeldOutSide, VectorsOf, best_penalty, penalty_errors
from deepmf.models.ordinal.refinement import Refinement

N_COLUMNS, N_ROWS = 60, 200
SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 6,
    "epochs": 2,
    "views": 4,
    "landmarks": 12,
    "linear_size": 0,
    "device": "cpu",
}


def encoder_of(matrix: ObservedMatrix, **settings: Any) -> OrdinalEncoder:
    encoder = OrdinalDMF(**SMALL | settings).fit(matrix).predictor_.encoder
    assert isinstance(encoder, OrdinalEncoder)
    return encoder


@pytest.fixture(scope="module")
def encoder() -> OrdinalEncoder:
    """One whose branches have learned almost nothing."""
    return encoder_of(generate(80, N_COLUMNS, density=0.4, seed=0).matrix)


def split_up(levels: npt.NDArray[Any]) -> tuple[VectorsOf, HeldOutSide]:
    """Of the levels of some rows on all columns, a part as the entries of the rows, another held out."""
    lot = np.random.default_rng(1).random(levels.shape)
    rows, columns = np.nonzero(lot < 0.5)
    starts = np.concatenate([[0], np.cumsum((lot < 0.5).sum(1))])
    units = ((levels[rows, columns] - 3) / 2).astype(np.float32)
    vectors = SparseVectors(*(torch.from_numpy(part) for part in (starts, columns, units)))
    own, others = np.nonzero(lot > 0.8)

    def vectors_of(positions: npt.NDArray[Any]) -> SparseVectors:
        indices, starts, weights = vectors.take(torch.from_numpy(positions))
        return SparseVectors(starts, indices, weights)

    return vectors_of, HeldOutSide(own, others, levels[own, others].astype(float), own_are_rows=True)


def noise(seed: int) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).choice([1.0, 2.0, 3.0, 4.0, 5.0], size=(N_ROWS, N_COLUMNS))


def structure(encoder: OrdinalEncoder) -> npt.NDArray[Any]:
    """Rows that like the columns around directions of their own, and no others."""
    columns = encoder.refinement_columns[:, encoder.layout.direction]
    liked = np.random.default_rng(0).standard_normal((N_ROWS, columns.shape[1])) @ (columns - columns.mean(0)).T
    return np.where(liked > 0, 5.0, 1.0)


def test_noise_is_no_reason_for_a_step() -> None:
    encoder = encoder_of(ObservedMatrix.from_array(noise(1)[:80]), epochs=30, dropout=0.5)
    with torch.no_grad():
        found = best_penalty(encoder.row_refinement(), *split_up(noise(2)), encoder.layout, seed=0)
    assert found >= 25.0  # which leaves hardly anything of a step


@torch.no_grad()
def test_strong_structure_is_worth_a_large_step(encoder: OrdinalEncoder) -> None:
    asked = split_up(structure(encoder))
    errors = penalty_errors(encoder.row_refinement(), *asked, encoder.layout, seed=0)
    assert best_penalty(encoder.row_refinement(), *asked, encoder.layout, seed=0) <= 6.0
    assert errors.min() < 0.8 * errors[-1]  # the last is without a step


@torch.no_grad()
@pytest.mark.parametrize("place", [0, 4, -1])
def test_errors_are_those_of_the_refined_latents(encoder: OrdinalEncoder, place: int) -> None:
    vectors_of, held_out = split_up(structure(encoder))
    refinement, head = encoder.row_refinement(), encoder.network.head
    penalty = penalties_module._CANDIDATES[place]
    alone = Refinement(head, refinement.side, refinement.others, refinement.response_of, penalty)
    rows = alone.latents(vectors_of(np.arange(N_ROWS))).double()[torch.from_numpy(held_out.own)]
    columns = refinement.others.double()[torch.from_numpy(held_out.others)]
    expected = head.expected(head.logits((rows * columns).sum(1), rows[:, encoder.layout.response])).numpy()
    errors = penalty_errors(refinement, vectors_of, held_out, encoder.layout, seed=0)
    assert errors[place] == pytest.approx(np.sqrt(np.mean((expected - held_out.values) ** 2)), rel=1e-4)


@torch.no_grad()
def test_some_vectors_are_enough_and_always_the_same(encoder: OrdinalEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors_of, held_out = split_up(structure(encoder))
    refinement = encoder.row_refinement()
    monkeypatch.setattr(penalties_module, "_COMPARED_ON", 20)
    first, again, other = (
        penalty_errors(refinement, vectors_of, held_out, encoder.layout, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    few = held_out.own < 20
    of_few = HeldOutSide(held_out.own[few], held_out.others[few], held_out.values[few], own_are_rows=True)
    monkeypatch.undo()
    expected = penalty_errors(refinement, vectors_of, of_few, encoder.layout, seed=0)
    monkeypatch.setattr(penalties_module, "_COMPARED_ON", 20)
    np.testing.assert_array_equal(penalty_errors(refinement, vectors_of, of_few, encoder.layout, seed=9), expected)


def test_candidates_go_down_to_no_step() -> None:
    candidates = penalties_module._CANDIDATES
    assert list(candidates) == sorted(set(candidates)) and candidates[-1] == math.inf
