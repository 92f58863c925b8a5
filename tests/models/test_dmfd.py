"""DMF-D: the contract, and its learned quantizer."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from tests.models.contract import FullContract
from tests.models.test_dmf import QUICK

from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmfd import DMFD
from deepmf.models.dmfd_network import SHARPEST, Quantizer, find_sharpness
from deepmf.testing import additive


@pytest.mark.slow
class TestDMFD(FullContract):
    permutation_error = 0.2
    model = DMFD
    settings: ClassVar[dict[str, Any]] = QUICK | {"sharpness": 1.0, "sharpness_growth": 1.05}
    recovery_error = 0.6

    @pytest.mark.slow
    def test_predictions_are_levels_by_the_learned_boundaries(self) -> None:
        matrix = additive()
        model = self.new().fit(matrix)
        rows, columns, _ = matrix.entries()
        assert isinstance(model, DMFD)
        scores = matrix.scale.from_unit(
            model.predictor_.score_pairs(matrix.entry_rows, matrix.by_row.columns)
        )
        by_hand = 1 + (scores[:, None] >= model.boundaries_.astype(np.float32)).sum(axis=1)
        np.testing.assert_array_equal(model.predict(rows, columns), by_hand)
        np.testing.assert_array_equal(model.predict_levels(rows, columns), by_hand)

    @pytest.mark.slow
    def test_boundaries_move_and_are_recorded(self) -> None:
        model = self.new().fit(additive())
        assert isinstance(model, DMFD)
        assert model.boundaries_.shape == (4,)
        assert np.all(np.diff(model.boundaries_) > 0)
        assert not np.allclose(model.boundaries_, [1.5, 2.5, 3.5, 4.5], atol=1e-4)
        notes = [record.notes for record in model.history_.records]
        assert notes[0]["sharpness"] == pytest.approx(1.0)
        assert notes[10]["sharpness"] == pytest.approx(1.05**10, rel=1e-5)
        assert len(notes[-1]["boundaries"]) == 4

    @pytest.mark.slow
    def test_rankings_go_by_scores(self) -> None:
        model = self.new().fit(additive())
        ranking = model.recommend("row 0", n=25, include_observed=True)
        scores = model.predictor_.score_block(
            np.array([0]), model.entries_.columns.positions(ranking.labels)
        )[0]
        assert np.all(np.diff(scores) <= 0)
        assert np.unique(ranking.values).size < np.unique(scores).size

    def test_needs_levels(self) -> None:
        matrix = ObservedMatrix.from_array(np.random.default_rng(0).random((12, 12)))
        with pytest.raises(BadSetting, match="DMF-D"):
            self.new().fit(matrix)


STARS = [1.0, 2.0, 3.0, 4.0, 5.0]

# All exact in float32, so that float64 tests see the same levels.
SCALES = {
    "stars": STARS,
    "half stars": [0.5 * k for k in range(1, 11)],
    "unequal": [-2.0, 0.25, 1.0, 7.5],
    "negative": [-10.0, -7.5, -5.0, -4.0],
    "two": [0.0, 1.0],
}

every_scale = pytest.mark.parametrize("levels", SCALES.values(), ids=SCALES.keys())

increasing = st.lists(st.integers(-1000, 1000), min_size=2, max_size=12, unique=True).map(sorted)


def moved(levels: list[float], *, seed: int = 0) -> Quantizer:
    """A float64 quantizer with boundaries away from the midpoints, as if learned."""
    quantizer = Quantizer(levels).double()
    shares = np.random.default_rng(seed).uniform(0.2, 0.8, len(levels) - 1)
    quantizer.free_boundaries.data += quantizer.steps * torch.from_numpy(shares - 0.5)
    return quantizer


def paper(scores: np.ndarray, levels: list[float], boundaries: np.ndarray, step) -> np.ndarray:
    """Equations 3 and 4: the sum over intervals, with the ends of the scale open; `step` is H or
    sigma of x - b."""
    q = [-np.inf, *levels[1:-1], np.inf]
    total = np.zeros_like(scores)
    for v in range(len(levels) - 1):
        inside = (q[v] <= scores) & (scores < q[v + 1])
        total += (levels[v] + (levels[v + 1] - levels[v]) * step(scores - boundaries[v])) * inside
    return total


def scores_over(levels: list[float], *, n: int = 2001) -> np.ndarray:
    """Scores that cover the scale and a little beyond, every level included."""
    span = levels[-1] - levels[0]
    return np.union1d(np.linspace(levels[0] - 0.1 * span, levels[-1] + 0.1 * span, n), levels)


@every_scale
@pytest.mark.parametrize("sharpness", [0.1, 3.0, 40.0])
def test_soft_is_the_papers(levels: list[float], sharpness: float) -> None:
    quantizer, scores = moved(levels), scores_over(levels)
    expected = paper(
        scores,
        levels,
        quantizer.boundaries.detach().numpy(),
        lambda x: 0.5 * (1 + np.tanh(sharpness * x / 2)),
    )
    for given_sharpness in (sharpness, torch.tensor(sharpness, dtype=torch.float64)):
        soft = quantizer.soften(torch.from_numpy(scores), given_sharpness).detach()
        np.testing.assert_allclose(soft, expected, rtol=0, atol=1e-12)


@every_scale
def test_hard_is_the_papers(levels: list[float]) -> None:
    quantizer, scores = moved(levels), scores_over(levels)
    expected = paper(
        scores, levels, quantizer.boundaries.detach().numpy(), lambda x: (x >= 0).astype(float)
    )
    np.testing.assert_array_equal(quantizer.quantize(torch.from_numpy(scores)), expected)
    assert set(expected) == set(levels)


@every_scale
def test_starts_as_the_uniform_quantizer(levels: list[float]) -> None:
    quantizer = Quantizer(levels)
    assert quantizer.boundaries.tolist() == [(a + b) / 2 for a, b in pairwise(levels)]
    scores = scores_over(levels).astype(np.float32)
    np.testing.assert_array_equal(
        quantizer.quantize(torch.from_numpy(scores)), Scale(levels).nearest_level(scores)
    )
    assert quantizer.compute_penalty().item() == 0


@every_scale
def test_ends_go_to_the_end_levels(levels: list[float]) -> None:
    quantizer = Quantizer(levels)
    low, high = np.float32(levels[0]), np.float32(levels[-1])
    lows = torch.tensor(
        [low, np.nextafter(low, np.float32(-np.inf)), low - np.float32(1e-3), -np.inf]
    )
    highs = torch.tensor(
        [high, np.nextafter(high, np.float32(np.inf)), high + np.float32(1e-3), np.inf]
    )
    assert quantizer.quantize(lows).tolist() == [levels[0]] * 4
    assert quantizer.quantize(highs).tolist() == [levels[-1]] * 4
    low_soft, high_soft = (
        quantizer.soften(lows, 200.0).tolist(),
        quantizer.soften(highs, 200.0).tolist(),
    )
    assert low_soft == pytest.approx([levels[0]] * 4, abs=1e-6)
    assert high_soft == pytest.approx([levels[-1]] * 4, abs=1e-6)
    # The soft quantizer goes on smoothly past the ends: no jump between just inside and just
    # outside.
    for inside, outside in (lows[:2], highs[:2]):
        assert quantizer.soften(inside, 0.5).item() == pytest.approx(
            quantizer.soften(outside, 0.5).item(), abs=1e-5
        )


@every_scale
def test_a_boundary_belongs_to_the_level_above(levels: list[float]) -> None:
    quantizer = moved(levels).float()
    at = quantizer.boundaries.detach()
    assert quantizer.quantize(at).tolist() == levels[1:]
    assert quantizer.quantize(torch.nextafter(at, at - 1)).tolist() == levels[:-1]
    halfway = [(a + b) / 2 for a, b in pairwise(levels)]
    assert quantizer.soften(at, 1e6).tolist() == halfway


@given(increasing, st.lists(st.floats(allow_nan=False, width=32), max_size=50), st.integers(0, 9))
def test_hard_is_always_legal_and_soft_stays_between_neighbours(
    levels: list[int], values: list, seed: int
) -> None:
    quantizer = moved(levels, seed=seed).float()
    scores = torch.tensor([*values, *levels, *quantizer.boundaries.tolist()], dtype=torch.float32)
    hard = quantizer.quantize(scores)
    assert set(hard.tolist()) <= set(map(float, levels))
    assert torch.equal(hard, quantizer.levels[quantizer.find_positions(scores)])
    assert not hard.requires_grad
    # The interval that a score lies in holds both answers.
    soft = quantizer.soften(scores, 2.0).detach()
    interval = np.searchsorted(np.float32(levels[1:-1]), scores.numpy(), side="right")
    for answer in (hard, soft):
        assert bool(
            (answer >= quantizer.levels[interval]).all()
            and (answer <= quantizer.levels[interval + 1]).all()
        )


@every_scale
def test_gradients_against_finite_differences(levels: list[float]) -> None:
    quantizer = moved(levels)
    # The middles of the quarters of each interval, and both outsides: finite differences must not
    # cross a jump.
    shares = torch.tensor([0.125, 0.375, 0.625, 0.875], dtype=torch.float64)
    inside = (quantizer.levels[:-1, None] + quantizer.steps[:, None] * shares).flatten().tolist()
    scores = torch.tensor(
        [levels[0] - 0.1, *inside, levels[-1] + 0.1], dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(
        lambda x, b: quantizer.soften(x, 1.3), (scores, quantizer.free_boundaries)
    )
    assert torch.autograd.gradcheck(
        lambda b: quantizer.compute_penalty(), (quantizer.free_boundaries,)
    )


@pytest.mark.slow
@every_scale
@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_boundaries_stay_inside_under_a_hostile_optimiser(
    levels: list[float], optimiser: type
) -> None:
    quantizer, generator = Quantizer(levels), torch.Generator().manual_seed(0)
    hostile = optimiser(quantizer.parameters(), lr=10.0)
    low, high = torch.tensor(levels[:-1]), torch.tensor(levels[1:])
    seen = set()
    for _ in range(100):
        quantizer.free_boundaries.grad = torch.randn(len(levels) - 1, generator=generator)
        hostile.step()
        boundaries = quantizer.boundaries.detach()
        assert bool((low < boundaries).all() and (boundaries < high).all())
        assert bool((boundaries.diff() > 0).all())
        assert set(quantizer.quantize(torch.tensor(levels)).tolist()) == set(levels)
        seen.add(tuple(boundaries.tolist()))
    assert len(seen) > (10 if len(levels) > 2 else 1)


@pytest.mark.slow
def test_a_boundary_that_was_pushed_out_comes_back_at_once() -> None:
    quantizer = Quantizer(STARS)
    descent = torch.optim.SGD(quantizer.parameters(), lr=0.1)
    for _ in range(100):
        quantizer.free_boundaries.grad = -torch.ones(4)
        descent.step()
        quantizer.compute_penalty()
    descent.zero_grad()
    quantizer.compute_penalty().backward()
    assert quantizer.free_boundaries.grad.tolist() == pytest.approx([2 * 0.5 / 4] * 4, rel=1e-5)
    descent.step()
    assert quantizer.boundaries.tolist() == pytest.approx([1.975, 2.975, 3.975, 4.975], abs=1e-5)


def test_the_penalty_is_the_mean_squared_distance() -> None:
    quantizer = Quantizer([0, 1, 3])
    quantizer.free_boundaries.data.copy_(torch.tensor([0.75, 1.5]))
    assert quantizer.compute_penalty().item() == (0.25**2 + 0.5**2) / 2


def test_looking_at_boundaries_does_not_spoil_a_waiting_backward_pass() -> None:
    quantizer = Quantizer(STARS)
    loss = quantizer.boundaries.square().sum() + quantizer.compute_penalty()
    quantizer.quantize(torch.tensor([2.2]))
    loss.backward()
    assert quantizer.free_boundaries.grad.tolist() == [3.0, 5.0, 7.0, 9.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_scores_of_another_precision_are_read_in_that_of_the_levels(dtype: torch.dtype) -> None:
    quantizer = Quantizer(STARS)
    scores = torch.tensor([1.2, 2.5 - 1e-12, 3 - 1e-12, 4.75], dtype=dtype)
    soft = quantizer.soften(scores, 3.0)
    assert soft.dtype == torch.float32
    assert torch.equal(soft, quantizer.soften(scores.float(), 3.0))
    assert quantizer.quantize(scores).tolist() == [1, 3, 3, 5]


def test_sharpness_grows_from_small_to_very_large() -> None:
    assert find_sharpness(0) == 0.1
    assert find_sharpness(1) == pytest.approx(0.1015)
    assert find_sharpness(1000) == pytest.approx(0.1 * math.exp(1000 * math.log(1.015)), rel=1e-9)
    assert find_sharpness(3, start=2.0, growth=10.0) == 2000
    values = [find_sharpness(epoch) for epoch in range(0, 5000, 7)]
    assert values == sorted(values) and values[-1] == SHARPEST
    assert find_sharpness(10**9) == find_sharpness(0, start=1e30) == SHARPEST


def test_the_sharpest_soft_is_hard_and_its_gradients_are_finite() -> None:
    quantizer = Quantizer(STARS)
    apart = torch.linspace(0.9, 5.1, 1000)
    assert torch.equal(quantizer.soften(apart, SHARPEST), quantizer.quantize(apart))
    scores = torch.tensor([1.0, 1.5, 2.0, 3.5, 5.0], requires_grad=True)
    quantizer.soften(scores, SHARPEST).sum().backward()
    for gradient in (scores.grad, quantizer.free_boundaries.grad):
        assert bool(gradient.square().isfinite().all())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_scale
def test_a_captured_graph_learns_like_plain_steps(levels: list[float]) -> None:
    def prepared() -> tuple:
        quantizer = Quantizer(levels).cuda()
        return quantizer, torch.optim.Adam(quantizer.parameters(), lr=1e-1, capturable=True)

    scores = torch.linspace(levels[0], levels[-1], 100_000, device="cuda")
    wanted, sharpness = scores.square() / levels[-1], torch.tensor(0.0, device="cuda")

    def step(quantizer: Quantizer, adam: torch.optim.Optimizer) -> None:
        adam.zero_grad(set_to_none=False)
        (
            (quantizer.soften(scores, sharpness) - wanted).square().mean()
            + 0.1 * quantizer.compute_penalty()
        ).backward()
        adam.step()

    def warmed() -> tuple:
        quantizer, adam = prepared()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(quantizer, adam)
        torch.cuda.current_stream().wait_stream(side)
        return quantizer, adam

    sharpness.fill_(1.0)
    plain, captured, graph = warmed(), warmed(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*captured)
    for epoch in range(40):
        sharpness.fill_(find_sharpness(epoch, start=1.0, growth=1.05))
        step(*plain)
        graph.replay()
    assert torch.equal(plain[0].boundaries, captured[0].boundaries)
    assert not torch.equal(captured[0].boundaries, captured[0].uniform)
    assert torch.equal(captured[0].quantize(scores).cpu(), captured[0].cpu().quantize(scores.cpu()))
