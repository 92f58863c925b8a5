"""BayesianMF: predictions, intervals, fold-in, draws, contract."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.special
from tests.models.contract import FullContract

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.errors import BadModelFile, BadSetting, NotBetterThanMeans, TrainingDiverged
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF, choose_settings, choose_start_lambda
from deepmf.models.gibbs.chain import GibbsSampler
from deepmf.models.gibbs.encoder import N_BESIDE, NOTHING_NEW, SampleEncoder
from deepmf.models.gibbs.readout import HeldOutPredictions, SampleReadout, calibrate
from deepmf.models.loading import load
from deepmf.scoring.confidence import load_confidence
from deepmf.scoring.distribution import CalibratedDistribution, PredictiveDistribution
from deepmf.training.settings import EFFORTS


class TestBayesianMF(FullContract):
    model: ClassVar[type[Model]] = BayesianMF
    settings: ClassVar[dict[str, Any]] = {"epochs": 20, "latent_size": 3, "device": "cpu"}
    permutation_error: ClassVar[float] = 0.1
    copy_error: ClassVar[float] = 1e-2  # a copy of a column has that column for its neighbour


@pytest.fixture(scope="module")
def ratings() -> Any:
    return split_entries(
        generate(150, 100, density=0.3, seed=3).matrix, train=0.8, validation=0.1, test=0.1, seed=0
    )


@pytest.fixture(scope="module")
def model(ratings: Any) -> BayesianMF:
    return BayesianMF(epochs=60, latent_size=4, device="cpu").fit(ratings.train)


@pytest.fixture(scope="module")
def validated(ratings: Any) -> BayesianMF:
    return BayesianMF(epochs=60, latent_size=4, device="cpu").fit(ratings.train, ratings.validation)


@pytest.mark.slow
def test_products_of_conditional_means_beat_one_draw_and_the_means(
    ratings: Any, model: BayesianMF
) -> None:
    rows, columns, values = ratings.test.entries()
    error = rmse_error(model.predict(rows, columns), values)
    draws = model.draw(rows, columns, 8, of="means")
    errors = [rmse_error(np.clip(draw, 1, 5), values) for draw in draws]
    assert error < rmse_error(np.clip(draws.mean(axis=0), 1, 5), values) + 0.02 < min(errors)
    assert model.history_.best_error is not None and model.history_.means_error is not None
    assert model.history_.best_error < model.history_.means_error


@pytest.mark.slow
def test_entries_that_a_fit_holds_out_join_the_others(
    model: BayesianMF, validated: BayesianMF
) -> None:
    errors = [record.validation_error for record in model.history_.records]
    join = model.settings.burn_in
    assert any(error is not None for error in errors[:join])
    assert all(error is None for error in errors[join:])
    assert any(record.validation_error is not None for record in validated.history_.records[join:])


@pytest.mark.slow
def test_noisy_rows_and_columns_are_less_reliable() -> None:
    dice = np.random.default_rng(0)
    means = dice.normal(size=(80, 3)) @ dice.normal(size=(3, 60))
    deviations = np.where(np.arange(80) < 20, 2.0, 0.5)[:, None] * np.where(
        np.arange(60) < 15, 2.0, 0.5
    )
    values = np.where(
        dice.random(means.shape) < 0.6, means + deviations * dice.normal(size=means.shape), np.nan
    )
    model = BayesianMF(epochs=60, latent_size=3, device="cpu").fit(
        ObservedMatrix.from_array(values)
    )
    encoder = model.predictor_.encoder
    assert isinstance(encoder, SampleEncoder)
    for axis, n_noisy in ((encoder.samples.rows, 20), (encoder.samples.columns, 15)):
        reliabilities = axis.reliabilities.astype(float).mean(axis=0)
        assert reliabilities[:n_noisy].mean() < 0.8 * reliabilities[n_noisy:].mean()
    # Entries are drawn with the noise of their row and column.
    predictor, pairs = model.predictor_, (np.repeat([0, 50], 30), np.tile(np.arange(30, 60), 2))
    assert isinstance(predictor.readout, SampleReadout)
    noise = model.draw(*pairs, 200) - model.draw(*pairs, 200, of="means")
    expected = predictor.readout.noise * predictor.score(*pairs).fields[:, 1]
    of_rows = np.median((noise.std(axis=0) / expected).reshape(2, 30), axis=1)
    assert of_rows[0] == pytest.approx(of_rows[1], rel=0.1)  # calibrated alike

    # Their intervals are wider, too, also those of a new row with the entries of a noisy one.
    def measure_width(fitted: BayesianMF, row: int, columns: IndexArray) -> float:
        lower, upper = fitted.predict_interval([row] * len(columns), columns)
        return float(np.mean(upper - lower))

    noisy, usual = np.arange(15), np.arange(15, 60)
    widths = [
        np.mean([measure_width(model, row, usual) for row in rows])
        for rows in (range(20), range(20, 80))
    ]
    assert widths[0] > 1.3 * widths[1]
    of_columns = [
        np.mean([measure_width(model, row, each) for row in range(20, 80)])
        for each in (noisy, usual)
    ]
    assert of_columns[0] > 1.3 * of_columns[1]
    known = np.flatnonzero(~np.isnan(values[0]))
    copied = ObservedMatrix.from_entries([80] * known.size, known, values[0, known], model.scale_)
    assert measure_width(model.extend(copied), 80, usual) == pytest.approx(
        measure_width(model, 0, usual), rel=1e-3
    )


@pytest.mark.slow
def test_rows_and_columns_of_the_same_noise_have_a_factor_of_one() -> None:
    # Factors that are fitted to few entries make their errors smaller than the noise is, which the
    # factor allows for.
    dice = np.random.default_rng(1)
    means = dice.normal(size=(200, 4)) @ dice.normal(size=(4, 150))
    values = np.where(
        dice.random(means.shape) < 0.15, means + dice.normal(size=means.shape), np.nan
    )
    model = BayesianMF(epochs=60, latent_size=4, device="cpu").fit(
        ObservedMatrix.from_array(values)
    )
    predictor = model.predictor_
    factors = predictor.score(np.repeat(np.arange(200), 150), np.tile(np.arange(150), 200)).fields[
        :, 1
    ]
    assert np.mean(factors) == pytest.approx(1.0, abs=0.05)
    assert np.std(factors) < 0.25


@pytest.mark.slow
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
    for wrong in ({"n": 0}, {"of": "levels"}, {"seed": "a"}):
        with pytest.raises(BadSetting, match=next(iter(wrong))):
            model.draw(rows, columns, **wrong)  # type: ignore[arg-type]


def test_intervals_hold_what_they_state_and_widen_where_little_is_known(
    ratings: Any, model: BayesianMF
) -> None:
    rows, columns, values = ratings.test.entries()
    lower, upper = model.predict_interval(rows, columns, coverage=0.8)
    assert 0.7 < np.mean((lower <= values) & (values <= upper)) < 0.9
    new = model.extend(ObservedMatrix.from_entries(["new"], columns[:1], [5], model.scale_))
    known, unknown = (
        each.predictor_.rows.take(np.array([at]))[0, -4]
        for each, at in ((model, 0), (new, len(model.row_labels_)))
    )
    assert unknown > 1.3 * known


@pytest.mark.slow
def test_real_values_have_calibrated_intervals() -> None:
    generator = np.random.default_rng(9)
    truth = generator.standard_normal((120, 3)) @ generator.standard_normal((3, 80))
    noisy = 100.0 + 20.0 * (truth + 0.5 * generator.standard_normal(truth.shape))
    noisy[generator.random(noisy.shape) < 0.6] = np.nan
    split = split_entries(
        ObservedMatrix.from_array(noisy), train=0.85, validation=0.0, test=0.15, seed=1
    )
    fitted = BayesianMF(epochs=60, latent_size=5, device="cpu").fit(split.train)
    rows, columns, values = split.test.entries()
    assert rmse_error(fitted.predict(rows, columns), values) < 20.0 * 0.7
    lower, upper = fitted.predict_interval(rows, columns, coverage=0.9)
    assert 0.86 < np.mean((lower <= values) & (values <= upper)) < 0.94


@pytest.mark.slow
def test_features_predict_for_rows_and_columns_without_entries() -> None:
    generator = np.random.default_rng(10)
    kinds = generator.integers(0, 4, 90)
    tastes = generator.standard_normal((60, 4))
    values = np.clip(
        np.round(3 + tastes[:, kinds] + 0.3 * generator.standard_normal((60, 90))), 1, 5
    )
    labels = [f"c{column}" for column in range(90)]
    seen = np.where(generator.random(values.shape) < 0.5, values, np.nan)[:, :80]
    matrix = ObservedMatrix.from_array(
        seen, row_labels=[f"r{row}" for row in range(60)], column_labels=labels[:80]
    )
    features = Features.from_columns(labels, {"kind": [f"kind {kind}" for kind in kinds]})
    fitted = BayesianMF(epochs=60, latent_size=4, device="cpu").fit(
        matrix, column_features=features
    )
    rows, columns = np.repeat(matrix.row_labels, 10), labels[80:] * 60
    truth = values[:, 80:].ravel()
    assert rmse_error(fitted.predict(rows, columns), truth) < 0.75 * np.std(truth)


@pytest.mark.slow
@pytest.mark.parametrize("featured", [False, True])
def test_a_column_without_entries_is_the_average_column_of_all_entries(
    ratings: Any, featured: bool
) -> None:
    train = ratings.train
    features = Features.from_columns(
        train.column_labels, {"n": np.linspace(-1.0, 1.0, train.shape[1])}
    )
    given = {"column_features": features} if featured else {}
    fitted = BayesianMF(epochs=30, latent_size=3, samples=5, device="cpu").fit(
        train, ratings.validation, **given
    )
    encoder, entries = fitted.predictor_.encoder, fitted.entries_
    assert isinstance(encoder, SampleEncoder)
    nothing = entries.column_entries(np.array([0]))._replace(starts=np.zeros(2, dtype=np.int64))
    nothing = nothing._replace(others=nothing.others[:0], values=nothing.values[:0], features=None)
    found = encoder.encode("column", nothing, NOTHING_NEW)[0, :-N_BESIDE].reshape(-1, 3)
    columns, shares = encoder.samples.columns, train.column_counts / train.n_entries
    if featured:
        table = entries.column_entries(np.arange(train.shape[1])).features.to_sparse().toarray()  # type: ignore[union-attr]
        explained = table @ columns.weights[:, train.shape[0] :].astype(float)
    else:
        explained = 0.0
    average = np.einsum("c,scd->sd", shares, columns.draws.astype(float) - explained)
    np.testing.assert_allclose(found, average[:, :-1], atol=2e-3)


@pytest.mark.slow
def test_a_fold_in_is_the_posterior_of_its_entries_in_each_sample(ratings: Any) -> None:
    train = ratings.train
    rows, columns, values = train.entries()
    weights = np.random.default_rng(5).uniform(0.5, 2.0, values.size)
    matrix = ObservedMatrix.from_entries(rows, columns, values, train.scale, weights=weights)
    fitted = BayesianMF(epochs=30, latent_size=3, samples=4, device="cpu").fit(matrix)
    encoder, entries = fitted.predictor_.encoder, fitted.entries_.column_entries(np.array([7]))
    assert isinstance(encoder, SampleEncoder)
    latent, (mean, deviation, _) = (
        encoder.encode("column", entries, NOTHING_NEW)[0].astype(float),
        encoder.units,
    )
    own, others = (
        type(each)(*(array.astype(float) for array in each))
        for each in (encoder.samples.columns, encoder.samples.rows)
    )
    at, n = entries.others, entries.others.size
    weights = entries.extras.weights
    assert weights is not None
    found, noises, variances = [], [], []
    for sample, alpha in enumerate(encoder.samples.alphas.astype(float)):
        factors = others.draws[sample][at]
        lines, targets = (
            np.column_stack([factors[:, :-1], np.ones(n)]),
            (entries.values - mean) / deviation,
        )
        targets = targets - factors[:, -1]
        counted = weights * others.reliabilities[sample][at]
        # The prior mean is shrunk to the average column as if by 5 entries, then to the centre of
        # all as if by 20.
        prior = own.means[sample] + (
            n * own.weights[sample][at].sum(0) / np.sqrt(n) + 5 * own.averages[sample]
        ) / (n + 5)
        prior = prior + 20 / (n + 20) * own.centres[sample]
        covariance = np.linalg.inv(
            alpha * lines.T @ (counted[:, None] * lines) + own.precisions[sample]
        )
        found.append(
            covariance @ (alpha * lines.T @ (counted * targets) + own.precisions[sample] @ prior)
        )
        variances.append(np.trace(covariance @ others.moments[sample]))
        errors = counted @ np.square(targets - lines @ found[-1]) + counted.sum() * variances[-1]
        noises.append((20 + alpha * errors) / (20 + weights.sum()))
    np.testing.assert_allclose(latent[:-N_BESIDE], np.array(found)[:, :-1].ravel(), atol=2e-4)
    np.testing.assert_allclose(latent[-6], deviation * np.mean(found, axis=0)[-1], atol=2e-4)
    spreads = deviation * np.sqrt(np.mean(variances)), np.sqrt(np.mean(noises))
    np.testing.assert_allclose(latent[-2:], spreads, rtol=1e-3)


@pytest.mark.slow
def test_a_resumed_chain_ends_with_the_same_bits(ratings: Any, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    new = lambda: BayesianMF(epochs=40, latent_size=3, samples=4, device="cpu")  # noqa: E731
    whole = new().fit(ratings.train).predictor_.pack().tensors
    for stop_at in (7, 31):  # before and after held-out entries join
        path = tmp_path / f"chain {stop_at}"

        def stop(record: Any, _: Any, stop_at: int = stop_at) -> None:
            if record.epoch == stop_at:
                raise Stop

        with pytest.raises(Stop):
            new().fit(ratings.train, checkpoint=path, checkpoint_every=5, callbacks=[stop])
        assert path.exists()
        resumed = new().fit(ratings.train, checkpoint=path).predictor_.pack().tensors
        for name, array in whole.items():
            np.testing.assert_array_equal(resumed[name], array)


@pytest.mark.slow
def test_noise_is_no_better_than_the_means(tmp_path: Path) -> None:
    noise = np.random.default_rng(11).integers(1, 6, (60, 50)).astype(float)
    split = split_entries(
        ObservedMatrix.from_array(noise), train=0.9, validation=0.1, test=0.0, seed=0
    )
    fitted = BayesianMF(epochs=30, latent_size=8, device="cpu")
    with suppress(NotBetterThanMeans):  # a warning is an error in tests
        fitted.fit(split.train, split.validation)
    found = fitted.history_
    assert found.best_error is not None and found.means_error is not None
    assert found.best_error < found.means_error + 0.02


@pytest.mark.slow
def test_cutpoints_predict_levels_as_often_as_they_occur(model: BayesianMF) -> None:
    generator = np.random.default_rng(12)
    means = generator.normal(3.4, 0.6, 4000)
    shown = (
        np.searchsorted([1.2, 2.0, 3.5, 4.8], means + 0.9 * generator.standard_normal(4000)) + 1.0
    )
    readout = model.predictor_.readout
    spreads = np.column_stack([np.zeros(4000), np.ones(4000)])
    held_out = HeldOutPredictions(means, spreads, shown)
    units = readout.unit_boundaries
    cutpoints = model.scale_.from_unit(units)
    fitted = calibrate(
        SampleReadout(model.scale_, readout.support, units, cutpoints=cutpoints, noise=0.7),
        held_out,
    )
    chances = fitted.distribution(means, spreads).probabilities.mean(axis=0)
    np.testing.assert_allclose(
        chances, [np.mean(shown == level) for level in range(1, 6)], atol=1e-3
    )
    np.testing.assert_allclose(fitted.cutpoints, [1.2, 2.0, 3.5, 4.8], atol=0.15)
    assert abs(fitted.spread * 0.7 - 0.9) < 0.08


def test_intervals_of_levels_hold_what_they_state() -> None:
    generator = np.random.default_rng(13)
    means, levels = generator.normal(3.4, 0.7, 8000), np.arange(1.0, 6.0)
    values = np.clip(np.rint(means + 0.7 * generator.standard_normal(8000)), 1, 5)
    # wider than the values are
    exceedance = scipy.special.ndtr((means[:, None] - levels[:-1] - 0.5) / 0.9)
    plain = PredictiveDistribution(levels, levels[:-1] + 0.5, exceedance)

    def measure_held(found: PredictiveDistribution, of: slice, coverage: float) -> float:
        lower, upper = (
            replace(found, exceedance=found.exceedance[of]).ends(coverage, Scale(levels=levels)).T
        )
        return float(np.mean((lower <= values[of]) & (values[of] <= upper)))

    learned = replace(plain, exceedance=exceedance[:4000])
    chosen = learned.choose_coverages(values[:4000], of_levels=True)
    calibrated = CalibratedDistribution(plain.support, plain.boundaries, plain.exceedance, chosen)
    assert measure_held(plain, slice(4000, None), 0.9) > 0.94
    for coverage in (0.8, 0.85, 0.9, 0.95):
        assert measure_held(calibrated, slice(4000, None), coverage) == pytest.approx(
            coverage, abs=0.02
        )
    # A few entries say little: targets stay near the coverages.
    few_held_out = replace(plain, exceedance=exceedance[:5])
    few = few_held_out.choose_coverages(values[:5], of_levels=True)
    np.testing.assert_allclose(few, np.linspace(0.0, 1.0, 21), atol=0.06)


def test_confidence_is_stored_and_checked(ratings: Any, model: BayesianMF) -> None:
    tensors = dict(model.predictor_.pack().tensors)
    rows, columns = ratings.test.entries()[:2]
    entries, readout = model.entries_, model.predictor_.readout
    confidence = load_confidence(entries, tensors, readout)
    loaded = replace(model.predictor_, confidence=confidence)
    at = entries.rows.find(rows), entries.columns.find(columns)
    expected = np.stack(model.predict_interval(rows, columns, coverage=0.8), axis=1)
    np.testing.assert_array_equal(loaded.distribution(*at).ends(0.8, model.scale_), expected)
    for name, wrong in (
        ("coverages", np.linspace(1, 0, 21)),
        ("coverages", np.linspace(-0.1, 1, 21)),
        ("coverages", np.linspace(0, 1.1, 21)),
        ("coverages", np.linspace(0, 1, 20)),
        ("row_excess", np.full(5, -1.0)),
        ("column_pool", np.zeros(4)),
        ("frequencies", np.zeros(5)),
        ("row_counts", -np.ones(len(entries.rows), dtype=np.int64)),
        ("column_odds", np.zeros((1, 4), dtype=np.float32)),
    ):
        with pytest.raises(BadModelFile, match=name):
            load_confidence(entries, tensors | {f"confidence.{name}": wrong}, readout)


def test_diagnostics_name_the_chain_and_are_stored(model: BayesianMF, tmp_path: Path) -> None:
    assert set(model.diagnostics_) == {"alpha", "row_lambda", "column_lambda", "row_size"}
    assert all(
        1 <= each["effective_size"] <= 60 and each["r_hat"] > 0.5
        for each in model.diagnostics_.values()
    )
    model.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").diagnostics_ == model.diagnostics_  # type: ignore[attr-defined]


def test_chances_of_liking_are_those_of_the_distribution(ratings: Any, model: BayesianMF) -> None:
    readout = model.predictor_.readout
    products, spreads = (
        np.array([[2.0, 3.4, 4.9], [1.1, 3.0, 4.2]]),
        np.array([[0.1, 1.2], [0.6, 0.8]]),
    )
    for thresholds in (np.array([4.0, 3.0]), np.array([1.0, 5.0])):
        found = readout.log_exceedance(products, spreads, thresholds)
        distribution = readout.distribution(products.ravel(), np.repeat(spreads, 3, axis=0))
        chances = distribution.exceed(np.repeat(readout.lower_ends(thresholds), 3))
        np.testing.assert_allclose(found, np.log(chances).reshape(2, 3), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("n_entries", [1_000, 80_000, 700_000])
def test_more_effort_runs_a_longer_chain(n_entries: int, on_gpu: bool) -> None:
    train = generate(2_000, 1_500, n_entries=n_entries, named=False, seed=0).matrix
    chosen = [choose_settings(train, on_gpu, effort, epochs=None) for effort in EFFORTS]
    epochs, samples = ([each[name] for each in chosen] for name in ("epochs", "samples"))
    assert epochs[0] <= epochs[1] < epochs[2]
    assert samples[0] <= samples[1] < samples[2]
    assert all(each["samples"] <= each["epochs"] - each["burn_in"] for each in chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_entries", "epochs", "start"),
    [(80_000, 400, 2.0), (700_000, 120, 2.0), (700_000, 300, 10.0)],
)
def test_long_chains_over_many_entries_start_from_a_larger_lambda(
    n_entries: int, epochs: int, start: float
) -> None:
    train = generate(2_000, 1_500, n_entries=n_entries, named=False, seed=0).matrix
    assert choose_start_lambda(train, epochs) == start


def test_given_epochs_are_kept_whatever_the_effort() -> None:
    train = generate(60, 40, density=0.3, named=False, seed=0).matrix
    assert BayesianMF(effort="quick", epochs=9, device="cpu").fit(train).settings.epochs == 9
    with pytest.raises(BadSetting, match="effort"):
        BayesianMF(effort="hasty")


@pytest.mark.slow
def test_drawn_levels_are_as_frequent_as_their_probabilities() -> None:
    matrix = generate(150, 100, density=0.3, noise=0.3, seed=3).matrix
    ratings = split_entries(matrix, train=0.8, validation=0.1, test=0.1, seed=0)
    model = BayesianMF(epochs=90, latent_size=4, samples=60, device="cpu").fit(ratings.train)
    rows, columns, _ = (part[:200] for part in ratings.test.entries())
    chances = model.predict_distribution(rows, columns)
    draws = model.draw(rows, columns, 2000)
    shares = np.stack([(draws == level).mean(axis=0) for level in model.support_], axis=1)
    differences = shares - chances
    errors = differences.std(axis=0) / np.sqrt(len(rows))
    assert np.all(np.abs(differences.mean(axis=0)) < 3.0 * errors)


def test_only_a_singular_posterior_ends_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    train = generate(n_rows=20, n_columns=15, seed=0).matrix
    model = BayesianMF(epochs=4, latent_size=2, device="cpu")

    def fail(error: Exception) -> None:
        def draw(*_: Any, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(GibbsSampler, "iterate", draw)

    fail(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        model.fit(train)
    fail(np.linalg.LinAlgError("singular"))
    with pytest.raises(TrainingDiverged):
        model.fit(train)
