"""The linear part: how it joins is chosen on held-out entries, and its factors are ridge regressions."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import expit

from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import calibration_error, rmse_error
from deepmf.models.als import ALS, ALSSettings
from deepmf.models.gibbs.prediction import SampleEncoder
from deepmf.models.ordinal.linear_part import (
    Blend,
    LinearFit,
    LinearPart,
    RidgeModel,
    SampledModel,
    bound_linear_width,
    choose_blend,
    choose_few_count,
    choose_linear_size,
    compute_rmse,
    fit_linear_models,
    place_cutpoints,
)
from deepmf.scoring.latents import Latents
from deepmf.testing import additive
from deepmf.training.holdout import Choice, HeldOut

SUPPORT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
N = 400
Logits = npt.NDArray[np.float32]


def logits_of(values: npt.NDArray[Any], steepness: float) -> Logits:
    """Logits whose expected values are near some values (less the mean), the nearer the steeper they are."""
    logits: Logits = (steepness * (values[:, None] - (SUPPORT[1:] - 0.5 - 3.0))).astype(np.float32)
    return logits


def test_a_perfect_network_is_left_alone() -> None:
    values = np.random.default_rng(0).choice(SUPPORT, N)
    noise = np.random.default_rng(1).standard_normal(N).astype(np.float32)
    blend, error = choose_blend(logits_of(values - 3, 50.0), noise, values, SUPPORT)
    assert blend is None and error < 1e-6


def test_all_that_the_linear_part_knows_beside_noise_takes_a_large_share() -> None:
    dice = np.random.default_rng(1)
    linear = dice.uniform(-1.8, 1.8, N).astype(np.float32)
    values = np.clip(np.round(linear + 3.0 + dice.normal(scale=0.7, size=N)), 1, 5)
    logits = logits_of(dice.standard_normal(N), 3.0)
    blend, error = choose_blend(logits, linear, values, SUPPORT)
    assert blend is not None and blend.share == 0.9
    assert error < 0.6 * compute_rmse(logits, values, SUPPORT)


def test_levels_that_are_almost_certain_have_steep_logits() -> None:
    """A line overshoots the outer levels, so a slope by the spread of its errors would be too flat."""
    dice = np.random.default_rng(0)
    position, support = dice.normal(size=4000), np.arange(3.0)
    values = (position[:, None] + 0.2 * dice.normal(size=(4000, 1)) > [-0.6, 0.6]).sum(axis=1).astype(float)
    linear = (0.7 * position).astype(np.float32)
    blend, *_ = choose_blend(dice.normal(size=(4000, 2)).astype(np.float32), linear, values, support)
    assert blend is not None
    above = expit(blend.slope * linear[:, None] - np.array(blend.cutpoints))
    distributions = -np.diff(np.pad(above, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0))), axis=1)
    assert calibration_error(distributions, values, scale_levels=support) < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_never_above_that_of_the_network_alone(seed: int) -> None:
    dice = np.random.default_rng(seed)
    values = dice.choice(SUPPORT, N)
    logits = logits_of(values - 3 + dice.normal(scale=seed / 2, size=N), 1.0)
    linear = (values - 3 + dice.normal(scale=2 - seed / 3, size=N)).astype(np.float32)
    blend, together = choose_blend(logits, linear, values, SUPPORT)
    assert together <= compute_rmse(logits, values, SUPPORT)
    share, slope, cutpoints = (0.0, 0.0, np.zeros(4)) if blend is None else blend[:3]
    mixed = (1 - share) * logits + share * (slope * linear[:, None] - np.array(cutpoints))
    expected = 1.0 + expit(mixed.astype(float)).sum(1)
    assert together == pytest.approx(rmse_error(expected, values), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 100.0])
def test_the_least_that_it_must_gain_is_a_share_of_the_error(unit: float) -> None:
    """Between a linear part that helps and one that is noise lies one that is just worth having."""
    dice = np.random.default_rng(0)
    values = dice.choice(SUPPORT, N)
    logits, noise = logits_of(values - 3 + dice.normal(size=N), 1.0), dice.normal(size=N)

    def blended(amount: float) -> Choice[Blend | None]:
        linear = (unit * (values - 3 + amount * noise)).astype(np.float32)
        return choose_blend(logits, linear, unit * values, unit * SUPPORT)

    helps, is_noise = 0.1, 1000.0
    assert blended(helps)[0] is not None and blended(is_noise)[0] is None
    for _ in range(25):
        middle = (helps + is_noise) / 2
        helps, is_noise = (helps, middle) if blended(middle)[0] is None else (middle, is_noise)
    alone = compute_rmse(logits, unit * values, unit * SUPPORT)
    assert 1 - blended(helps).loss / alone == pytest.approx(2e-4, rel=0.01)


def test_on_real_values_it_predicts_as_it_would_alone_beside_a_network_that_knows_nothing() -> None:
    dice = np.random.default_rng(2)
    linear, noise = 3 * dice.standard_normal(4000), dice.standard_normal(4000)
    values = linear + 0.5 * noise + 7.0
    support = np.quantile(values, np.arange(0.5, 256) / 256)
    boundaries = (support[1:] + support[:-1]) / 2 - 7.0
    exceedance = np.arange(255, 0, -1) / 256
    start = np.log(exceedance / (1 - exceedance)).astype(np.float32)
    logits = dice.standard_normal((4000, 1)).astype(np.float32) + start
    blend, together = choose_blend(logits, linear.astype(np.float32), values, support, boundaries)
    assert blend is not None and blend.share > 0.9
    np.testing.assert_allclose(blend.cutpoints, blend.slope * boundaries)
    assert together < 1.05 * rmse_error(linear + 7.0, values) < 0.2 * compute_rmse(logits, values, support)
    # The distribution is the logistic one of its errors.
    assert blend.slope == pytest.approx(np.pi / np.sqrt(3) / 0.5, rel=0.05)


def test_the_weight_is_what_the_readout_takes_off_again() -> None:
    share, slope, *_ = blend = Blend(0.3, 2.0)
    assert (1 - share) * blend.weight == pytest.approx(share * slope)


@pytest.mark.parametrize(("of_few", "of_many", "chosen"), [(0.3, 0.3, {0.0}), (3.0, 0.3, {12.0, 25.0})])
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
    logits, nothing = np.zeros((N, 0), dtype=np.float32), np.zeros(N, dtype=np.float32)
    found = choose_blend(logits, nothing, np.full(N, 3.0), np.array([3.0]))
    assert found == (None, 0.0)


@pytest.mark.parametrize(
    "shape, n_entries, size",
    [((943, 1682), 90_000, 40), ((10_000, 10_000), 20_000, 24), ((100, 100), 3000, 30), ((5, 100), 400, 5)],
)
def test_as_many_latents_as_entries_within_bounds(shape: tuple[int, int], n_entries: int, size: int) -> None:
    assert choose_linear_size(*shape, n_entries) == size


def test_it_is_als_beside_weights_and_slopes() -> None:
    train = additive(30, 25)
    als = ALS(latent_size=4).fit(train)
    begin, store = als.predictor_.columns.base, EntryStore.of(train)
    model = RidgeModel(train, als.settings)
    part = LinearPart(model, Blend(0.3, 2.0))
    log_slopes = np.random.default_rng(0).normal(size=30).astype(np.float32)
    rows = part.apply_weights(model.encode_rows(store.row_entries(np.arange(30)), begin), log_slopes)
    columns = model.encoder.finish_columns(
        part.solve_columns(store.column_entries(np.arange(25)), Latents(rows), log_slopes)
    )
    assert rows.shape == (30, model.width) and columns.shape == (25, model.width) and model.width == 4 + 3
    every_row, every_column = np.divmod(np.arange(30 * 25), 25)
    values = model.solve(begin, store).predict(every_row, every_column)
    found = (rows @ columns.T) * np.exp(log_slopes)[:, None] / part.blend.weight
    np.testing.assert_allclose(found.ravel(), values, atol=1e-4)
    # Another sweep of ALS: nearly the same, and the mean is left out.
    scores = als.predictor_.score_block(np.arange(30), np.arange(25)) - train.mean
    assert rmse_error(found.ravel(), scores.ravel()) < 0.05


def test_a_column_without_entries_has_no_latents() -> None:
    train = additive(30, 25)
    nothing = EntryStore.of(train).column_entries(np.array([], dtype=np.int64))
    nothing = nothing._replace(starts=np.zeros(2, dtype=np.int64))
    part = LinearPart(RidgeModel(train, ALSSettings(latent_size=4)), Blend(0.3, 2.0))
    rows = np.ones((30, part.model.width), dtype=np.float32)
    found = part.solve_columns(nothing, Latents(rows), np.zeros(30, dtype=np.float32))
    assert found.tolist() == [[0, 0, 0, 0, 1, 0, 1]]


def test_placed_cutpoints_predict_levels_as_often_as_they_occur() -> None:
    dice = np.random.default_rng(3)
    scores, values = dice.normal(size=N), dice.choice(SUPPORT[:4], N, p=[0.1, 0.2, 0.3, 0.4])
    cutpoints = np.array(place_cutpoints(scores, values, SUPPORT))
    expected = expit(scores[:, None] - cutpoints).mean(axis=0)
    np.testing.assert_allclose(expected[:3], [np.mean(values > level) for level in SUPPORT[:3]], atol=1e-6)
    assert expected[3] < 1 / N and np.all(np.diff(cutpoints) > 0)  # level 5 never occurs


def split_low_rank(n_held_out: int = 400) -> tuple[EntryStore, HeldOut]:
    """Return a matrix of rank 2 with noise, and entries that are held out."""
    dice = np.random.default_rng(4)
    values = dice.normal(size=(60, 2)) @ dice.normal(size=(2, 50)) + 0.5 * dice.normal(size=(60, 50)) + 3.0
    rows, columns = np.divmod(dice.permutation(3000)[:1800], 50)
    held_out = HeldOut(*(each[:n_held_out] for each in (rows, columns, values[rows, columns])))
    table = np.full((60, 50), np.nan)
    table[rows[n_held_out:], columns[n_held_out:]] = values[rows[n_held_out:], columns[n_held_out:]]
    return EntryStore.of(ObservedMatrix.from_array(table)), held_out


def fit_both(
    size: int | None = 3, iterations: int = 30, n_samples: int = 10
) -> tuple[list[LinearFit], EntryStore, HeldOut]:
    seen, held_out = split_low_rank()
    settings: dict[str, Any] = {"size": size, "iterations": iterations, "n_samples": n_samples, "seed": 0}
    settings["device"] = torch.device("cpu")
    return fit_linear_models(seen, held_out, seen.train, **settings), seen, held_out


@pytest.mark.slow
def test_samples_of_the_posterior_and_als_are_both_fitted_to_a_small_matrix() -> None:
    (sampled, als), _, held_out = fit_both()
    assert isinstance(sampled.model, SampledModel) and isinstance(als.model, RidgeModel)
    errors = [rmse_error(fit.predictions + fit.model.mean, held_out.values) for fit in (sampled, als)]
    assert errors[0] < errors[1] < np.std(held_out.values)
    assert (sampled.model.size, sampled.model.n_samples, sampled.model.width) == (3, 10, 33)
    assert [type(fit.model) for fit in fit_both(iterations=0)[0]] == [RidgeModel]
    assert fit_both(size=0)[0] == []
    for iterations, size, fit in ((30, 3, sampled), (0, 3, als)):
        assert bound_linear_width(size=size, iterations=iterations, n_samples=10, is_gpu=False) == fit.model.width
    assert bound_linear_width(size=None, iterations=30, n_samples=10, is_gpu=False) > sampled.model.width
    assert bound_linear_width(size=0, iterations=30, n_samples=10, is_gpu=False) == 0


@pytest.mark.slow
def test_the_factors_of_many_samples_are_projected() -> None:
    (sampled, _), seen, _ = fit_both(size=None, n_samples=20)  # of 16 latents each
    assert isinstance(sampled.model, SampledModel)
    assert (sampled.model.size, sampled.model.n_samples) == (16, 20)
    assert sampled.model.width < bound_linear_width(size=None, iterations=30, n_samples=20, is_gpu=False) < 20 * 16
    whole = SampledModel(SampleEncoder(sampled.model.encoder.units, sampled.model.encoder.samples))
    latents, wide = (model.solve(sampled.columns, seen) for model in (sampled.model, whole))
    assert wide.rows.shape[1] == 20 * 16 + 3
    every = np.divmod(np.arange(3000), 50)
    np.testing.assert_allclose(latents.predict(*every), wide.predict(*every), atol=1e-4)  # 50 columns need no more


@pytest.mark.slow
def test_latents_of_samples_predict_as_the_chain_did() -> None:
    (sampled, _), seen, held_out = fit_both()
    latents = sampled.model.solve(sampled.columns, seen)
    assert latents.rows.shape == (60, sampled.model.width) and latents.columns.shape == (50, sampled.model.width)
    # Samples are kept in half precision.
    np.testing.assert_allclose(latents.predict(held_out.rows, held_out.columns), sampled.predictions, atol=0.01)
    part = LinearPart(sampled.model, Blend(0.3, 2.0))
    log_slopes = np.random.default_rng(0).normal(size=60).astype(np.float32)
    rows = part.apply_weights(sampled.model.encode_rows(seen.row_entries(np.arange(60)), sampled.columns), log_slopes)
    columns = sampled.model.encode_columns(seen.column_entries(np.arange(50)), rows)
    found = (rows @ columns.T) * np.exp(log_slopes)[:, None] / part.blend.weight
    np.testing.assert_allclose(found[held_out.rows, held_out.columns], sampled.predictions, atol=0.01)
