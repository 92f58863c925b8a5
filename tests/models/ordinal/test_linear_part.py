"""The linear part: how it joins is chosen on held-out entries, and its factors are ridge regressions."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit
from tests.models.contract import additive

from deepmf.matrix.entry_store import EntryStore
from deepmf.metrics import rmse_error
from deepmf.models.factorization.als import ALS
from deepmf.models.feature_ridge import NO_WEIGHTS
from deepmf.models.ordinal.linear_part import Blend, LinearPart, best_blend, error_of, linear_size, solved_linear

SUPPORT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
CUTPOINTS = np.array([-2.0, -0.7, 0.7, 2.0], dtype=np.float32)
N = 400
Logits = npt.NDArray[np.float32]


def logits_of(values: npt.NDArray[Any], steepness: float) -> Logits:
    """Logits whose expected values are near some values (less the mean), the nearer the steeper they are."""
    logits: Logits = (steepness * (values[:, None] - (SUPPORT[1:] - 0.5 - 3.0))).astype(np.float32)
    return logits


def test_a_perfect_network_is_left_alone() -> None:
    values = np.random.default_rng(0).choice(SUPPORT, N)
    noise = np.random.default_rng(1).standard_normal(N).astype(np.float32)
    blend, alone, together = best_blend(logits_of(values - 3, 50.0), noise, CUTPOINTS, values, SUPPORT)
    assert blend is None and alone == together < 1e-6


def test_all_that_the_linear_part_knows_beside_noise_takes_a_large_share() -> None:
    dice = np.random.default_rng(1)
    linear = dice.uniform(-1.8, 1.8, N).astype(np.float32)
    values = np.clip(np.round(linear + 3.0 + dice.normal(scale=0.7, size=N)), 1, 5)
    blend, alone, together = best_blend(logits_of(dice.standard_normal(N), 3.0), linear, CUTPOINTS, values, SUPPORT)
    assert blend is not None and blend.share == 0.9
    assert together < 0.6 * alone


@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_never_above_that_of_the_network_alone(seed: int) -> None:
    dice = np.random.default_rng(seed)
    values = dice.choice(SUPPORT, N)
    logits = logits_of(values - 3 + dice.normal(scale=seed / 2, size=N), 1.0)
    linear = (values - 3 + dice.normal(scale=2 - seed / 3, size=N)).astype(np.float32)
    blend, alone, together = best_blend(logits, linear, CUTPOINTS, values, SUPPORT)
    assert together <= alone == error_of(logits, values, SUPPORT)
    share, slope = (0.0, 0.0) if blend is None else blend
    mixed = (1 - share) * logits + share * (slope * linear[:, None] - CUTPOINTS)
    expected = 1.0 + expit(mixed.astype(float)).sum(1)
    assert together == pytest.approx(rmse_error(expected, values), rel=1e-5)


def test_the_weight_is_what_the_readout_takes_off_again() -> None:
    share, slope = blend = Blend(0.3, 2.0)
    assert (1 - share) * blend.weight == pytest.approx(share * slope)


def test_one_value_needs_no_linear_part() -> None:
    logits, nothing = np.zeros((N, 0), dtype=np.float32), np.zeros(N, dtype=np.float32)
    found = best_blend(logits, nothing, CUTPOINTS[:0], np.full(N, 3.0), np.array([3.0]))
    assert found == (None, 0.0, 0.0)


@pytest.mark.parametrize(
    "shape, n_entries, size",
    [((943, 1682), 90_000, 40), ((10_000, 10_000), 20_000, 24), ((100, 100), 3000, 30), ((5, 100), 400, 5)],
)
def test_as_many_latents_as_entries_within_bounds(shape: tuple[int, int], n_entries: int, size: int) -> None:
    assert linear_size(*shape, n_entries) == size


def test_it_is_als_beside_weights_and_slopes() -> None:
    train = additive(30, 25)
    als = ALS(latent_size=4).fit(train)
    begin, store = als.predictor_.columns.base, EntryStore.of(train)
    part = LinearPart(train, 4, Blend(0.3, 2.0))
    log_slopes = np.random.default_rng(0).normal(size=30).astype(np.float32)
    rows = part.rows(store.row_entries(np.arange(30)), begin, log_slopes)
    columns = part.columns(store.column_entries(np.arange(25)), rows, log_slopes)
    assert rows.shape == (30, part.width) and columns.shape == (25, part.width) and part.width == 4 + 3
    every_row, every_column = np.divmod(np.arange(30 * 25), 25)
    values = solved_linear(train, begin, NO_WEIGHTS, store).values(every_row, every_column)
    found = (rows @ columns.T) * np.exp(log_slopes)[:, None] / part.blend.weight
    np.testing.assert_allclose(found.ravel(), values, atol=1e-4)
    # Another sweep of ALS: nearly the same, and the mean is left out.
    scores = als.predictor_.score_block(np.arange(30), np.arange(25)) - train.mean
    assert rmse_error(found.ravel(), scores.ravel()) < 0.05


def test_a_column_without_entries_has_no_latents() -> None:
    train = additive(30, 25)
    nothing = EntryStore.of(train).column_entries(np.array([], dtype=np.int64))
    nothing = nothing._replace(starts=np.zeros(2, dtype=np.int64))
    part = LinearPart(train, 4, Blend(0.3, 2.0))
    rows = np.ones((30, part.width), dtype=np.float32)
    found = part.columns(nothing, rows, np.zeros(30, dtype=np.float32))
    assert found.tolist() == [[0, 0, 0, 0, 1, 0, 1]]
