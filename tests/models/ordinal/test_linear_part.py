"""The linear part: how it joins is chosen on held-out entries, and its factors are posterior
means."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import expit

from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import calibration_error, rmse_error
from deepmf.models.gibbs.chain import Units
from deepmf.models.gibbs.prediction import NOTHING_NEW
from deepmf.models.ordinal.linear_part import (
    Blend,
    HeldOutScores,
    LinearFit,
    LinearModel,
    LinearPart,
    bound_linear_width,
    choose_blend,
    choose_few_count,
    compute_rmse,
    fit_linear,
    place_cutpoints,
)
from deepmf.models.ordinal.settings import OrdinalDMFSettings
from deepmf.training.holdout import HeldOut

SUPPORT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
N = 400
Logits = npt.NDArray[np.float32]


def logits_of(values: npt.NDArray[Any], steepness: float) -> Logits:
    """Logits whose expected values are near some values (less the mean), the nearer the steeper
    they are."""
    logits: Logits = (steepness * (values[:, None] - (SUPPORT[1:] - 0.5 - 3.0))).astype(np.float32)
    return logits


def held_out_of(
    linear: npt.NDArray[Any], values: npt.NDArray[Any], support: npt.NDArray[Any] = SUPPORT
) -> HeldOutScores:
    """Return predictions of values less 3, in the units of the values."""
    boundaries = (support[1:] + support[:-1]) / 2 - 3.0
    return HeldOutScores(
        linear.astype(np.float32), values - 3.0, values, support, boundaries, has_repeats=True
    )


def test_a_perfect_network_is_left_alone() -> None:
    values = np.random.default_rng(0).choice(SUPPORT, N)
    noise = np.random.default_rng(1).standard_normal(N)
    logits, held_out = logits_of(values - 3, 50.0), held_out_of(noise, values)
    blend, error = choose_blend(logits, held_out)
    assert blend is None and error < 1e-6
    untrained, _ = choose_blend(logits, held_out, is_trained=False)
    assert untrained is not None and untrained.share == 0.99


def test_a_network_that_may_help_by_chance_takes_no_part() -> None:
    dice = np.random.default_rng(1)
    linear = dice.uniform(-1.8, 1.8, N)
    values = np.clip(np.round(linear + 3.0 + dice.normal(scale=0.7, size=N)), 1, 5)
    for network in (dice.standard_normal(N), linear + 0.7 * dice.standard_normal(N)):
        blend, error = choose_blend(logits_of(network, 3.0), held_out_of(linear, values))
        assert blend is not None and blend.share == 0.99
        assert error < 1.05 * rmse_error(linear + 3.0, values)
    knows = linear + 0.9 * (values - 3.0 - linear)  # most of what the linear part does not know
    blend, error = choose_blend(logits_of(knows, 3.0), held_out_of(linear, values))
    assert blend is None or blend.share < 0.9
    assert error < 0.6 * rmse_error(linear + 3.0, values)


def test_levels_that_are_almost_certain_have_steep_logits() -> None:
    """A line overshoots the outer levels, so a slope by the spread of its errors would be too
    flat."""
    dice = np.random.default_rng(0)
    position, support = dice.normal(size=4000), np.arange(3.0)
    values = (
        (position[:, None] + 0.2 * dice.normal(size=(4000, 1)) > [-0.6, 0.6])
        .sum(axis=1)
        .astype(float)
    )
    linear = (0.7 * position).astype(np.float32)
    held_out = HeldOutScores(
        linear, values - 1.0, values, support, np.array([-0.5, 0.5]), has_repeats=True
    )
    blend, *_ = choose_blend(dice.normal(size=(4000, 2)).astype(np.float32), held_out)
    assert blend is not None
    above = expit(blend.slope * linear[:, None] - np.array(blend.cutpoints))
    distributions = -np.diff(
        np.pad(above, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0))), axis=1
    )
    assert calibration_error(distributions, values, scale_levels=support) < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_that_of_the_mixed_logits_and_hardly_above_that_of_the_network_alone(
    seed: int,
) -> None:
    dice = np.random.default_rng(seed)
    values = dice.choice(SUPPORT, N)
    logits = logits_of(values - 3 + dice.normal(scale=seed / 2, size=N), 1.0)
    linear = (values - 3 + dice.normal(scale=2 - seed / 3, size=N)).astype(np.float32)
    blend, together = choose_blend(logits, held_out_of(linear, values))
    assert together <= 1.02 * compute_rmse(logits, values, SUPPORT)
    share, slope, cutpoints = (0.0, 0.0, np.zeros(4)) if blend is None else blend[:3]
    mixed = (1 - share) * logits + share * (slope * linear[:, None] - np.array(cutpoints))
    expected = 1.0 + expit(mixed.astype(float)).sum(1)
    assert together == pytest.approx(rmse_error(expected, values), rel=1e-5)


@pytest.mark.slow
def test_on_real_values_it_is_the_logistic_distribution_of_its_errors() -> None:
    dice = np.random.default_rng(2)
    linear, noise = 3 * dice.standard_normal(4000), dice.standard_normal(4000)
    values = linear + 0.5 * noise + 7.0
    support = np.quantile(values, np.arange(0.5, 256) / 256)
    boundaries = (support[1:] + support[:-1]) / 2 - 7.0
    held_out = HeldOutScores(
        linear.astype(np.float32), values - 7.0, values, support, boundaries, has_repeats=False
    )
    blend, together = choose_blend(
        dice.standard_normal((4000, 1)).astype(np.float32) - np.zeros(255), held_out
    )
    assert blend is not None and blend.share > 0.9
    np.testing.assert_allclose(blend.cutpoints, blend.slope * boundaries)
    assert together < 1.05 * rmse_error(linear + 7.0, values)
    assert blend.slope >= 0.9 * np.pi / np.sqrt(3) / 0.5


def test_the_weight_is_what_the_readout_takes_off_again() -> None:
    share, slope, *_ = blend = Blend(0.3, 2.0)
    assert (1 - share) * blend.weight == pytest.approx(share * slope)


@pytest.mark.parametrize(
    ("of_few", "of_many", "chosen"), [(0.3, 0.3, {0.0}), (3.0, 0.3, {12.0, 25.0})]
)
def test_columns_with_few_entries_lose_the_linear_part_where_that_is_worse_on_them(
    of_few: float, of_many: float, chosen: set[float]
) -> None:
    dice = np.random.default_rng(0)
    values, counts = dice.choice(SUPPORT, 4 * N), dice.choice([2, 5, 50, 200], 4 * N)
    noise = np.where(counts < 10, of_few, of_many) * dice.standard_normal(4 * N)
    linear = (values - 3.0 + noise).astype(np.float32)
    scores = (values - 3.0 + 0.8 * dice.standard_normal(4 * N)).astype(np.float32)
    cutpoints = (-1.5, -0.5, 0.5, 1.5)
    own = np.tile(np.array(cutpoints, dtype=np.float32), (4 * N, 1))
    blend = Blend(0.5, 1.0, cutpoints)
    found = choose_few_count(blend, scores, own, linear, counts, values, SUPPORT)
    assert found in chosen


def test_one_value_needs_no_linear_part() -> None:
    nothing, values = np.zeros((N, 0), dtype=np.float32), np.full(N, 3.0)
    assert choose_blend(nothing, held_out_of(np.zeros(N), values, np.array([3.0]))) == (None, 0.0)


def test_placed_cutpoints_predict_levels_as_often_as_they_occur() -> None:
    dice = np.random.default_rng(3)
    scores, values = dice.normal(size=N), dice.choice(SUPPORT[:4], N, p=[0.1, 0.2, 0.3, 0.4])
    cutpoints = np.array(place_cutpoints(scores, values, SUPPORT))
    expected = expit(scores[:, None] - cutpoints).mean(axis=0)
    np.testing.assert_allclose(
        expected[:3], [np.mean(values > level) for level in SUPPORT[:3]], atol=1e-6
    )
    assert expected[3] < 1 / N and np.all(np.diff(cutpoints) > 0)  # level 5 never occurs


def split_low_rank(n_held_out: int = 400) -> tuple[EntryStore, HeldOut]:
    """Return a matrix of rank 2 with noise, and entries that are held out."""
    dice = np.random.default_rng(4)
    values = (
        dice.normal(size=(60, 2)) @ dice.normal(size=(2, 50))
        + 0.5 * dice.normal(size=(60, 50))
        + 3.0
    )
    rows, columns = np.divmod(dice.permutation(3000)[:1800], 50)
    held_out = HeldOut(*(each[:n_held_out] for each in (rows, columns, values[rows, columns])))
    table = np.full((60, 50), np.nan)
    table[rows[n_held_out:], columns[n_held_out:]] = values[rows[n_held_out:], columns[n_held_out:]]
    return EntryStore.of(ObservedMatrix.from_array(table)), held_out


def fit(
    size: int | None = 3, iterations: int = 30, n_samples: int = 10
) -> tuple[LinearFit | None, EntryStore, HeldOut]:
    seen, held_out = split_low_rank()
    settings = OrdinalDMFSettings(
        linear_size=size, linear_iterations=iterations, linear_samples=n_samples, bins=16
    )
    return (
        fit_linear(seen.train, seen, held_out, settings, None, torch.device("cpu")),
        seen,
        held_out,
    )


@pytest.mark.slow
def test_samples_predict_what_they_have_not_seen() -> None:
    sampled, *_ = fit()
    assert sampled is not None
    error = rmse_error(sampled.chain.held_out.linear, sampled.chain.held_out.targets)
    assert error < 0.6 * np.std(sampled.chain.held_out.targets)
    assert (sampled.model.size, sampled.model.samples.n_samples, sampled.model.width) == (3, 10, 35)
    assert bound_linear_width(size=3, n_samples=10, is_gpu=False) >= sampled.model.width
    assert fit(size=0)[0] is None and bound_linear_width(size=0, n_samples=10, is_gpu=False) == 0


def test_scores_have_no_heavy_tails() -> None:
    counts = np.floor(np.exp(2.0 * np.random.default_rng(0).normal(size=(60, 50))))
    train = ObservedMatrix.from_array(counts)
    raw, scores = (
        units.standardise(train.values) for units in (Units.of(train), Units.by_scores(train))
    )
    assert raw.max() > 10 and np.abs(scores).max() < 5 and np.std(scores) == pytest.approx(1.0)
    order = np.argsort(train.values, kind="stable")
    assert np.all(np.diff(scores[order]) >= 0)


@pytest.mark.slow
def test_the_final_chain_is_given_all_entries_and_the_blind_one_is_not() -> None:
    train = split_low_rank(1)[0].train
    seen, held_out = HeldOut.split(train, seed=0, one_in=10)
    assert held_out is not None
    settings = OrdinalDMFSettings(linear_size=3, linear_iterations=12, linear_samples=5, bins=16)
    found = fit_linear(seen, EntryStore.of(train), held_out, settings, None, torch.device("cpu"))
    assert found is not None
    errors = [
        rmse_error(
            model.encode_all(EntryStore.of(seen)).predict(held_out.rows, held_out.columns),
            found.chain.held_out.targets,
        )
        for model in (found.model, found.blind)
    ]
    assert errors[0] < errors[1]  # it has seen these entries


@pytest.mark.slow
def test_the_factors_of_many_samples_are_projected() -> None:
    sampled, seen, _ = fit(size=16, iterations=120, n_samples=20)
    assert sampled is not None
    assert (sampled.model.size, sampled.model.samples.n_samples) == (16, 20)
    assert sampled.model.width < bound_linear_width(size=16, n_samples=20, is_gpu=False) < 20 * 16
    whole = LinearModel(sampled.model.units, sampled.model.samples)
    latents, wide = (model.encode_all(seen) for model in (sampled.model, whole))
    assert wide.rows.shape[1] == 20 * 16 + 5
    every = np.divmod(np.arange(3000), 50)
    # 50 columns need no more
    np.testing.assert_allclose(latents.predict(*every), wide.predict(*every), atol=1e-4)


@pytest.mark.slow
def test_latents_of_rows_carry_the_weight_of_the_blend() -> None:
    sampled, seen, held_out = fit()
    assert sampled is not None
    expected = sampled.model.encode_all(seen).predict(held_out.rows, held_out.columns)
    # Predictions of all iterations, without the shrinkage of prior means.
    assert rmse_error(expected, sampled.chain.held_out.linear) < 0.2 * np.std(expected)
    part = LinearPart(sampled.model, Blend(0.3, 2.0))
    log_slopes = np.random.default_rng(0).normal(size=60).astype(np.float32)
    rows = part.apply_weights(
        part.model.encode("row", seen.row_entries(np.arange(60)), NOTHING_NEW), log_slopes
    )
    columns = part.model.encode("column", seen.column_entries(np.arange(50)), NOTHING_NEW)
    found = (rows @ columns.T) * np.exp(log_slopes)[:, None] / part.blend.weight
    np.testing.assert_allclose(found[held_out.rows, held_out.columns], expected, atol=0.01)
