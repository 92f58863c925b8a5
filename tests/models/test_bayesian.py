"""BayesianMF: each conditional against its closed form, calibration of the whole sampler, fold-in, draws, contract."""

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.stats
import torch
from tests.models.contract import ModelContract

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.errors import BadSetting, NotBetterThanMeans
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.bayesian import (
    AxisSolver,
    BayesianMF,
    BayesianMFSettings,
    DenseInputs,
    GibbsSampler,
    HeldOut,
    Inputs,
    SampleReadout,
    Units,
    calibrate,
    compute_effective_size,
    compute_r_hat,
    draw_alpha,
    draw_lambdas,
    draw_mean_and_precision,
    draw_weights,
    draw_wishart,
)
from deepmf.models.loading import load
from deepmf.models.predictor import Readout

CPU = torch.device("cpu")


class TestBayesianMF(ModelContract):
    model: ClassVar[type[Model]] = BayesianMF
    settings: ClassVar[dict[str, Any]] = {"epochs": 40, "latent_size": 3, "device": "cpu"}
    permutation_error: ClassVar[float] = 0.1


# A matrix of 4 rows x 3 columns; row 3 and nothing else is empty.
ROWS, COLUMNS = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 2, 0, 1, 2, 1])
VALUES = np.array([0.5, -1.0, 0.2, 1.4, -0.3, 0.9])


def by_row() -> AxisEntries:
    return AxisEntries(np.array([0, 2, 5, 6, 6]), COLUMNS, VALUES)


def by_column() -> AxisEntries:
    order = np.lexsort((ROWS, COLUMNS))
    return AxisEntries(np.array([0, 2, 4, 6]), ROWS[order], VALUES[order])


def dense_inputs() -> Any:
    """Return F of the rows in double precision."""
    present = np.zeros((4, 3))
    present[ROWS, COLUMNS] = 1.0
    return shrink(present)


def shrink(present: Any) -> Any:
    """Return which columns each row has entries in, over sqrt(n), shrunk to the average as if by 5 entries."""
    counts = present.sum(axis=1, keepdims=True)
    inputs = present / np.sqrt(np.maximum(counts, 1))
    average = (counts * inputs).sum(axis=0) / counts.sum()
    return (counts * inputs + 5 * average) / (counts + 5)


def random_precision(size: int, seed: int = 0) -> Any:
    table = np.random.default_rng(seed).standard_normal((size + 3, size))
    return table.T @ table


def test_a_row_has_the_posterior_of_a_bayesian_regression() -> None:
    generator = np.random.default_rng(1)
    columns, priors = generator.standard_normal((3, 3)), generator.standard_normal((4, 3))
    precision, alpha = random_precision(3), 2.5
    moment = columns.T @ columns
    solver = AxisSolver(by_row(), VALUES, n_others=3, device=CPU)

    def draw(noise: Any) -> Any:
        return solver.draw(
            torch.from_numpy(columns),
            torch.from_numpy(priors),
            torch.from_numpy(precision),
            alpha,
            noise=None if noise is None else torch.from_numpy(noise),
            moment=torch.from_numpy(moment),
            with_error=True,
        )

    found = draw(np.zeros((4, 3)))
    # The draws are linear in the noise: their covariance is that of the images of unit vectors.
    steps = [draw(np.tile(unit, (4, 1))).draws.numpy() - found.means.numpy() for unit in np.eye(3)]
    squared_error = 0.0
    for row in range(4):
        own = row == ROWS
        table = np.column_stack([columns[COLUMNS[own], :-1], np.ones(own.sum())])
        targets = VALUES[own] - columns[COLUMNS[own], -1]
        covariance = np.linalg.inv(alpha * table.T @ table + precision)
        mean = covariance @ (alpha * table.T @ targets + precision @ priors[row])
        np.testing.assert_allclose(found.means[row], mean, rtol=1e-6)
        images = np.stack([step[row] for step in steps], axis=1)
        np.testing.assert_allclose(images @ images.T, covariance, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.variances[row], np.trace(covariance @ moment), rtol=1e-4)
        squared_error += float(np.square(targets - table @ mean).sum())
    np.testing.assert_allclose(found.squared_error, squared_error, rtol=1e-6)
    np.testing.assert_array_equal(draw(None).means, found.means)


@pytest.mark.parametrize("n_leading", [0, 2])
@pytest.mark.parametrize("featured", [False, True])
def test_weights_have_the_posterior_of_a_regression_of_the_factors_on_the_inputs(
    featured: bool, n_leading: int
) -> None:
    entries, table = by_row(), dense_inputs()
    if featured:
        labels = ["a", "b", "c", "d"]
        features = Features.from_columns(labels, {"size": [1.0, 2.0, 4.0, 3.0]})
        vectors = features.encode(features.learn_encoding())
        entries, table = entries._replace(features=vectors), np.hstack([table, vectors.to_sparse().toarray()])
    inputs = Inputs(entries, by_column(), n_others=3, device=CPU, n_leading=n_leading)
    assert sum(inputs.blocks) == table.shape[1]
    generator = np.random.default_rng(2)
    deviations, precision = generator.standard_normal((4, 2)), random_precision(2)
    lambdas = np.concatenate([np.full(size, 1.5 + block) for block, size in enumerate(inputs.blocks)])[:, None]

    def draw(row_noise: Any, input_noise: Any) -> Any:
        return draw_weights(
            *(torch.from_numpy(deviations), inputs, torch.from_numpy(lambdas), torch.from_numpy(precision)),
            torch.from_numpy(row_noise),
            torch.from_numpy(input_noise),
            steps=20,
        ).numpy()

    nothing = np.zeros((4, 2)), np.zeros((table.shape[1], 2))
    mean = draw(*nothing)
    inverse = np.linalg.inv(table.T @ table + np.diag(lambdas[:, 0]))
    np.testing.assert_allclose(mean, inverse @ table.T @ deviations, atol=1e-5)
    images = []
    for which, shape in enumerate((deviations.shape, mean.shape)):
        for at in np.ndindex(*shape):
            noise = [each.copy() for each in nothing]
            noise[which][at] = 1.0
            images.append((draw(*noise) - mean).ravel())
    for blocks, part in ((inputs.blocks, table), ([4], table.T)):  # narrow and wide, one lambda each
        system = DenseInputs(torch.from_numpy(part.copy()), blocks)
        strengths = lambdas if blocks is inputs.blocks else np.full((4, 1), 0.7)
        target = generator.standard_normal((part.shape[1], 2))
        solved = system.solve(torch.from_numpy(target), torch.from_numpy(strengths))
        np.testing.assert_allclose(part.T @ part @ solved.numpy() + strengths * solved.numpy(), target, atol=1e-8)
    # Rows and inputs: (F'F + lambda)^-1 over inputs, precision^-1 over factors.
    expected = np.kron(inverse, np.linalg.inv(precision))
    np.testing.assert_allclose(np.stack(images, 1) @ np.stack(images), expected, atol=1e-5)
    np.testing.assert_allclose(inputs.multiply(torch.from_numpy(mean)), table @ mean, atol=1e-6)


def test_wishart_draws_have_its_mean_and_variance() -> None:
    scale, degrees, numbers = random_precision(3, seed=3), 7.0, np.random.default_rng(4)
    draws = np.stack([draw_wishart(degrees, scale, numbers) for _ in range(4000)])
    expected = scipy.stats.wishart(degrees, np.linalg.inv(scale))
    np.testing.assert_allclose(draws.mean(0), expected.mean(), atol=0.05 * np.abs(expected.mean()).max())
    np.testing.assert_allclose(draws.var(0), expected.var(), atol=0.12 * expected.var().max())


def test_mean_and_precision_follow_the_normal_wishart_posterior() -> None:
    generator, numbers = np.random.default_rng(5), np.random.default_rng(6)
    factors = generator.standard_normal((40, 2)) @ np.array([[1.0, 0.3], [0.0, 0.5]]) + [1.0, -2.0]
    weights, strength = generator.standard_normal((10, 2)), 3.0
    drawn = [
        draw_mean_and_precision(
            40, factors.mean(0), factors.T @ factors, strength * weights.T @ weights, len(weights), numbers
        )
        for _ in range(4000)
    ]
    # Prior: mean ~ Normal(0, (2 precision)^-1), precision ~ Wishart(2, I), weights ~ Normal(0, (3 precision)^-1).
    average = 40 / 42 * factors.mean(0)
    scale = np.eye(2) + factors.T @ factors - 42 * np.outer(average, average) + strength * weights.T @ weights
    expected = scipy.stats.wishart(2 + 40 + 10, np.linalg.inv(scale))
    precisions, means = np.stack([each[1] for each in drawn]), np.stack([each[0] for each in drawn])
    np.testing.assert_allclose(precisions.mean(0), expected.mean(), atol=0.03 * expected.mean().max())
    np.testing.assert_allclose(precisions.var(0), expected.var(), atol=0.12 * expected.var().max())
    np.testing.assert_allclose(means.mean(0), average, atol=0.02)
    of_means = scale / (52 - 3) / 42  # E[precision^-1] / 42
    np.testing.assert_allclose(np.cov(means.T), of_means, atol=0.1 * of_means.max())


def test_alpha_and_lambda_follow_their_gamma_posteriors() -> None:
    numbers = np.random.default_rng(7)
    alphas = np.array([draw_alpha(30, 12.0, numbers) for _ in range(4000)])
    assert scipy.stats.kstest(alphas, scipy.stats.gamma(1 + 15, scale=1 / (1 + 6.0)).cdf).pvalue > 1e-3
    weights, precision = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double(), random_precision(2)
    drawn = np.stack([draw_lambdas(weights, torch.from_numpy(precision), [4, 2], numbers).numpy() for _ in range(2000)])
    for block, part in enumerate((weights[:4].numpy(), weights[4:].numpy())):
        rate = 0.1 + np.trace(part @ precision @ part.T) / 2
        expected = scipy.stats.gamma(1 + part.size / 2, scale=1 / rate)
        assert scipy.stats.kstest(drawn[:, block], expected.cdf).pvalue > 1e-3


def simulate(numbers: np.random.Generator, n_rows: int, n_columns: int, size: int) -> tuple[ObservedMatrix, float]:
    """Draw parameters from the prior, given where entries are, and entries from them; return these and alpha."""
    present = numbers.random((n_rows, n_columns)) < 0.7
    present[0, 0] = True
    factors = []
    for inputs in (present, present.T):
        inputs = shrink(inputs)
        precision = draw_wishart(size, np.eye(size), numbers)
        root = np.linalg.inv(np.linalg.cholesky(precision))
        strength = numbers.gamma(1.0, 10.0)
        mean = numbers.standard_normal(size) @ root / np.sqrt(2.0)
        weights = numbers.standard_normal((inputs.shape[1], size)) @ root / np.sqrt(strength)
        factors.append(mean + inputs @ weights + numbers.standard_normal((len(inputs), size)) @ root)
    alpha = numbers.gamma(1.0, 1.0)
    (u, b), (v, c) = ((each[:, :-1], each[:, -1]) for each in factors)
    values = u @ v.T + b[:, None] + c + numbers.standard_normal(present.shape) / np.sqrt(alpha)
    return ObservedMatrix.from_array(np.where(present, values, np.nan)), alpha


@pytest.mark.slow
def test_the_true_noise_has_a_uniform_rank_among_the_draws_of_the_sampler() -> None:
    # Simulation-based calibration (Talts et al., 2018): parameters come from the prior.
    numbers, ranks = np.random.default_rng(8), []
    for number in range(32):
        matrix, alpha = simulate(numbers, 8, 7, 2)
        settings = BayesianMFSettings(latent_size=1, seed=number)
        sampler = GibbsSampler(EntryStore.of(matrix), Units(0.0, 1.0), settings, CPU)
        sampler.start()
        drawn = []
        for epoch in range(160):
            sampler.iterate(epoch)
            if epoch >= 40 and epoch % 8 == 0:
                drawn.append(sampler.parameters.alpha)
        ranks.append(np.mean(np.array(drawn) < alpha))
    assert scipy.stats.kstest(ranks, "uniform").pvalue > 1e-3


@pytest.fixture(scope="module")
def ratings() -> Any:
    return split_entries(generate(150, 100, density=0.3, seed=3).matrix, train=0.8, validation=0.1, test=0.1, seed=0)


@pytest.fixture(scope="module")
def model(ratings: Any) -> BayesianMF:
    return BayesianMF(epochs=60, latent_size=4, device="cpu").fit(ratings.train)


def test_products_of_conditional_means_beat_one_draw_and_the_means(ratings: Any, model: BayesianMF) -> None:
    rows, columns, values = ratings.test.entries()
    error = rmse_error(model.predict(rows, columns), values)
    draws = model.draw(rows, columns, 8, of="means")
    errors = [rmse_error(np.clip(draw, 1, 5), values) for draw in draws]
    assert error < rmse_error(np.clip(draws.mean(axis=0), 1, 5), values) + 0.02 < min(errors)
    assert model.history_.best_error is not None and model.history_.means_error is not None
    assert model.history_.best_error < model.history_.means_error


def test_entries_that_a_fit_holds_out_join_the_others(ratings: Any, model: BayesianMF) -> None:
    errors = [record.validation_error for record in model.history_.records]
    join = model.settings.burn_in
    assert any(error is not None for error in errors[:join])
    assert all(error is None for error in errors[join:])
    whole = BayesianMF(epochs=60, latent_size=4, device="cpu").fit(ratings.train, ratings.validation)
    assert any(record.validation_error is not None for record in whole.history_.records[join:])


def test_draws_agree_with_the_distribution_and_are_joint(ratings: Any, model: BayesianMF) -> None:
    rows, columns, values = ratings.test.entries()
    draws = model.draw(rows, columns, 100, seed=1)
    assert draws.shape == (100, values.size)
    assert model.scale_.holds(draws).all()
    np.testing.assert_array_equal(model.draw(rows, columns, 100, seed=1), draws)
    assert not np.array_equal(model.draw(rows, columns, 100, seed=2), draws)
    expected = model.predict_distribution(rows, columns) @ model.support_
    np.testing.assert_allclose(draws.mean(axis=0), expected, atol=0.7)
    assert abs(float((draws.mean(axis=0) - expected).mean())) < 0.05
    # Pairs of a row share its draw: a row with a single known entry is uncertain as a whole.
    new = model.extend(ObservedMatrix.from_entries(["new"], columns[:1], [5], model.scale_))
    shared = new.draw(["new"] * 20, model.column_labels_[:20], 60, of="means")
    assert np.corrcoef(shared.T)[np.triu_indices(20, 1)].mean() > 0.2
    for wrong in ({"n": 0}, {"of": "levels"}):
        with pytest.raises(BadSetting, match="must be"):
            model.draw(rows, columns, **wrong)  # type: ignore[arg-type]


def test_intervals_hold_what_they_state_and_widen_where_little_is_known(ratings: Any, model: BayesianMF) -> None:
    rows, columns, values = ratings.test.entries()
    lower, upper = model.predict_interval(rows, columns, coverage=0.8)
    assert 0.7 < np.mean((lower <= values) & (values <= upper)) < 0.9
    new = model.extend(ObservedMatrix.from_entries(["new"], columns[:1], [5], model.scale_))
    known, unknown = (
        each.predictor_.rows.take(np.array([at]))[0, -2] for each, at in ((model, 0), (new, len(model.row_labels_)))
    )
    assert unknown > 1.3 * known


def test_real_values_have_calibrated_intervals() -> None:
    generator = np.random.default_rng(9)
    truth = generator.standard_normal((120, 3)) @ generator.standard_normal((3, 80))
    noisy = 100.0 + 20.0 * (truth + 0.5 * generator.standard_normal(truth.shape))
    noisy[generator.random(noisy.shape) < 0.6] = np.nan
    split = split_entries(ObservedMatrix.from_array(noisy), train=0.85, validation=0.0, test=0.15, seed=1)
    fitted = BayesianMF(epochs=60, latent_size=5, device="cpu").fit(split.train)
    rows, columns, values = split.test.entries()
    assert rmse_error(fitted.predict(rows, columns), values) < 20.0 * 0.7
    lower, upper = fitted.predict_interval(rows, columns, coverage=0.9)
    assert 0.86 < np.mean((lower <= values) & (values <= upper)) < 0.94


def test_features_predict_for_rows_and_columns_without_entries() -> None:
    generator = np.random.default_rng(10)
    kinds = generator.integers(0, 4, 90)
    tastes = generator.standard_normal((60, 4))
    values = np.clip(np.round(3 + tastes[:, kinds] + 0.3 * generator.standard_normal((60, 90))), 1, 5)
    labels = [f"c{column}" for column in range(90)]
    seen = np.where(generator.random(values.shape) < 0.5, values, np.nan)[:, :80]
    matrix = ObservedMatrix.from_array(seen, row_labels=[f"r{row}" for row in range(60)], column_labels=labels[:80])
    features = Features.from_columns(labels, {"kind": [f"kind {kind}" for kind in kinds]})
    fitted = BayesianMF(epochs=60, latent_size=4, device="cpu").fit(matrix, column_features=features)
    rows, columns = np.repeat(matrix.row_labels, 10), labels[80:] * 60
    truth = values[:, 80:].ravel()
    assert rmse_error(fitted.predict(rows, columns), truth) < 0.75 * np.std(truth)


def test_a_resumed_chain_ends_with_the_same_bits(ratings: Any, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    for stop_at in (7, 31):  # before and after held-out entries join
        path = tmp_path / f"chain {stop_at}"

        def stop(record: Any, _: Any, stop_at: int = stop_at) -> None:
            if record.epoch == stop_at:
                raise Stop

        new = lambda: BayesianMF(epochs=40, latent_size=3, samples=4, device="cpu")  # noqa: E731
        with pytest.raises(Stop):
            new().fit(ratings.train, checkpoint=path, checkpoint_every=5, callbacks=[stop])
        assert path.exists()
        resumed, whole = new().fit(ratings.train, checkpoint=path), new().fit(ratings.train)
        for name, array in whole.predictor_.pack().tensors.items():
            np.testing.assert_array_equal(resumed.predictor_.pack().tensors[name], array)


def test_a_warm_start_continues_from_known_factors(ratings: Any, model: BayesianMF) -> None:
    warm = BayesianMF(epochs=60, latent_size=4, device="cpu", burn_in=20, samples=16).fit(
        ratings.train, ratings.validation, start_from=model
    )
    assert len(warm.history_) == 30
    cold = BayesianMF(epochs=60, latent_size=4, device="cpu").fit(ratings.train, ratings.validation)
    assert warm.history_.records[0].loss < cold.history_.records[0].loss + 0.05


def test_noise_is_no_better_than_the_means(tmp_path: Path) -> None:
    noise = np.random.default_rng(11).integers(1, 6, (60, 50)).astype(float)
    split = split_entries(ObservedMatrix.from_array(noise), train=0.9, validation=0.1, test=0.0, seed=0)
    fitted = BayesianMF(epochs=30, latent_size=8, device="cpu")
    with suppress(NotBetterThanMeans):  # a warning is an error in tests
        fitted.fit(split.train, split.validation)
    found = fitted.history_
    assert found.best_error is not None and found.means_error is not None
    assert found.best_error < found.means_error + 0.02


def test_cutpoints_predict_levels_as_often_as_they_occur(model: BayesianMF) -> None:
    generator = np.random.default_rng(12)
    means = generator.normal(3.4, 0.6, 4000)
    shown = np.searchsorted([1.2, 2.0, 3.5, 4.8], means + 0.9 * generator.standard_normal(4000)) + 1.0
    readout = model.predictor_.readout
    held_out = HeldOut(means, np.zeros(4000), shown)
    fitted = calibrate(model.scale_, readout.support, readout.unit_boundaries, 0.7, held_out)
    assert isinstance(fitted, SampleReadout)
    chances = fitted.distribution(means, np.zeros((4000, 1))).probabilities.mean(axis=0)
    np.testing.assert_allclose(chances, [np.mean(shown == level) for level in range(1, 6)], atol=1e-3)
    np.testing.assert_allclose(fitted.cutpoints, [1.2, 2.0, 3.5, 4.8], atol=0.15)
    assert abs(fitted.spread * 0.7 - 0.9) < 0.08


def test_diagnostics_name_the_chain_and_know_independent_numbers(model: BayesianMF, tmp_path: Path) -> None:
    assert set(model.diagnostics_) == {"alpha", "row_lambda", "column_lambda", "row_size"}
    assert all(1 <= each["effective_size"] <= 60 and each["r_hat"] > 0.5 for each in model.diagnostics_.values())
    numbers = np.random.default_rng(13)
    walk = np.cumsum(numbers.standard_normal(500))
    assert compute_effective_size(walk) < 20 and compute_r_hat(walk) > 1.2
    assert compute_effective_size(numbers.standard_normal(500)) > 300
    model.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").diagnostics_ == model.diagnostics_  # type: ignore[attr-defined]


def test_chances_of_liking_are_those_of_the_distribution(ratings: Any, model: BayesianMF) -> None:
    readout = model.predictor_.readout
    products, spreads = np.array([[2.0, 3.4, 4.9], [1.1, 3.0, 4.2]]), np.array([[0.1], [0.6]])
    for thresholds in (np.array([4.0, 3.0]), np.array([1.0, 5.0])):
        found = readout.log_exceedance(products, spreads, thresholds)
        np.testing.assert_allclose(found, Readout.log_exceedance(readout, products, spreads, thresholds), atol=1e-9)


def test_columns_are_recommended_by_relevance(model: BayesianMF) -> None:
    ranking = model.recommend(model.row_labels_[0], 5, rank_by="relevance")
    assert ranking.presence is not None and ranking.liked is not None
    relevance = ranking.presence * ranking.liked ** model.chosen_on_entries_["liking_weight"]
    assert np.all(np.diff(relevance) <= 1e-9)
