"""OrdinalDMF: the contract, its distributions, levels and intervals, and scales without levels."""

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.models.contract import FullContract

from deepmf.data import Split, split_areas, split_entries
from deepmf.datasets import generate
from deepmf.errors import BadSetting, ConstantValues
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import calibration_error, interval_coverage_score, rmse_error
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.models.ordinal.encoder import OrdinalEncoder
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.scoring.pairs import find_pairs
from deepmf.testing import additive

QUICK: dict[str, Any] = {
    "hidden_sizes": (32,),
    "latent_size": 16,
    "dropout": 0.0,
    "epochs": 40,
    "learning_rate": 5e-2,
    "mask_rate": 0.3,
    "views": 8,
    "linear_iterations": 10,
    "device": "cpu",
}
LONGER = QUICK | {"epochs": 60, "learning_rate": 3e-2, "bins": 12, "linear_iterations": 60}
# Latents as the branches have them.
PLAIN: dict[str, Any] = {
    "row_penalty": 1e12,
    "column_penalty": 1e12,
    "landmarks": 1,
    "linear_size": 0,
    "neighbours": None,
}
STARS = Scale([1, 2, 3, 4, 5])


class TestOrdinalDMF(FullContract):
    model = OrdinalDMF
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.15


@pytest.mark.slow
def test_several_networks_are_one_model(tmp_path: Path) -> None:
    areas = split_areas(generate(80, 60, density=0.4, seed=0).matrix, seed=0)
    model = OrdinalDMF(**QUICK, networks=3, landmarks=8, linear_size=0).fit(
        areas.train, areas.validation
    )
    assert model.predictor_.encoder.landmarks.shape == (8, 3 * model.settings.latent_size)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    extended, other = model.extend(areas.extension), again.extend(areas.extension)
    rows, columns, values = areas.test["IV"].entries()
    np.testing.assert_array_equal(extended.predict(rows, columns), other.predict(rows, columns))
    assert rmse_error(extended.predict(rows, columns), values) < np.std(values)


@dataclass(frozen=True)
class HeldOut:
    """A fitted model, what it was fitted on, and pairs that it has not seen with their values."""

    model: OrdinalDMF
    split: Split
    rows: Any
    columns: Any
    values: Any

    @classmethod
    def of(cls, matrix: ObservedMatrix, **changes: Any) -> "HeldOut":
        split = split_entries(matrix, train=0.8, validation=0, test=0.2, seed=0)
        return cls(OrdinalDMF(**LONGER | changes).fit(split.train), split, *split.test.entries())

    @property
    def pairs(self) -> tuple[Any, Any]:
        return self.rows, self.columns

    @property
    def compute_rmse_means(self) -> float:
        return rmse_error(Means().fit(self.split.train).predict(*self.pairs), self.values)


@pytest.fixture(scope="module")
def stars() -> HeldOut:
    settings: dict[str, Any] = {
        "density": 0.4,
        "rank": 2,
        "noise": 0.6,
        "row_effect": 0.5,
        "column_effect": 0.5,
    }
    # both members have a share
    return HeldOut.of(generate(100, 80, **settings, seed=3).matrix, linear_iterations=4)


def real_values() -> ObservedMatrix:
    """Real values of rank 2 with some noise and no selection."""
    effects: dict[str, Any] = {
        "row_effect": 0.3,
        "column_effect": 0.3,
        "popularity": 0.2,
        "selection": 0,
    }
    return generate(80, 60, density=0.5, rank=2, levels=None, noise=0.6, **effects, seed=0).matrix


def with_values(matrix: ObservedMatrix, values: Any, scale: Scale | None = None) -> ObservedMatrix:
    return ObservedMatrix.from_entries(*matrix.entries()[:2], values, scale)


@pytest.fixture(scope="module")
def real() -> HeldOut:
    return HeldOut.of(real_values())


def learn_distribution(stars: HeldOut) -> Any:
    """Return distributions as they were learned, whatever the numbers of entries."""
    pairs = find_pairs(stars.model.entries_, *stars.pairs, "error")
    learned = replace(stars.model.predictor_, confidence=None)
    return learned.distribution(pairs.rows, pairs.columns).probabilities


@pytest.mark.slow
def test_distributions_are_the_formula_of_the_latents(stars: HeldOut) -> None:
    model = stars.model
    pairs = find_pairs(model.entries_, *stars.pairs, "error")
    rows, columns = pairs.rows, pairs.columns
    total, cutpoints = np.zeros(rows.size), np.zeros((rows.size, 4))
    # rows and columns are compared by the first one
    assert list(model.predictor_.members) == ["network", "sampler"]
    link = model.predictor_.members["sampler"].link
    assert link is not None
    counts = model.entries_.column_counts[columns]
    kept = 1 - (link.few_count > 0) * 0.5 / (1 + (counts / max(link.few_count, 1)) ** 2)
    share = model.chosen_["members"]["sampler"] * kept
    for name, member in model.predictor_.members.items():
        factors: Any = member.fitted
        of_rows = factors.rows.whole()[rows].astype(float)
        of_columns = factors.columns.whole()[columns].astype(float)
        products = (of_rows * of_columns).sum(1)
        if name == "network":
            assert np.all(np.diff(of_rows[:, -5:-1]) > 0)
            total += (1 - share) * np.exp(of_rows[:, -1]) * products
            cutpoints += member.share * of_rows[:, -5:-1]
        else:
            total += share * link.slope * (products - link.centre)
            cutpoints += member.share * np.array(link.cutpoints)
    logits = total[:, None] - cutpoints
    exceeded = np.concatenate(
        [np.ones((rows.size, 1)), 1 / (1 + np.exp(-logits)), np.zeros((rows.size, 1))], axis=1
    )
    np.testing.assert_allclose(
        learn_distribution(stars), exceeded[:, :-1] - exceeded[:, 1:], atol=2e-6
    )


@pytest.mark.slow
def test_distributions_can_be_taken_at_their_word(stars: HeldOut) -> None:
    found = stars.model.predict_distribution(*stars.pairs)
    assert calibration_error(found, stars.values, scale_levels=[1, 2, 3, 4, 5]) < 0.05
    assert (
        rmse_error(stars.model.predict(*stars.pairs), stars.values)
        < 0.85 * stars.compute_rmse_means
    )


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_intervals_hold_about_the_share_they_should(
    stars: HeldOut, real: HeldOut, coverage: float
) -> None:
    for held_out in (stars, real):
        ends = held_out.model.predict_interval(*held_out.pairs, coverage=coverage)
        assert interval_coverage_score(*ends, held_out.values) == pytest.approx(coverage, abs=0.1)


def encoder_of(model: OrdinalDMF) -> OrdinalEncoder:
    network: Any = model.predictor_.members["network"].fitted
    assert isinstance(network.encoder, OrdinalEncoder)
    return network.encoder


@pytest.mark.slow
def test_similar_rows_are_compared_by_directions_alone() -> None:
    board = np.where((np.arange(24)[:, None] + np.arange(20)) % 2, 1.0, 5.0)
    board[np.random.default_rng(0).random(board.shape) < 0.2] = np.nan
    model = OrdinalDMF(**QUICK | {"linear_size": 0}).fit(ObservedMatrix.from_array(board))
    layout = encoder_of(model).layout
    # two effects, cutpoint, slope
    assert model.predictor_.factors.n_beside == layout.n_landmarks + 2 + 2
    assert all(label % 2 == 0 for label in model.similar_columns(4, n=5).labels)
    assert all(label % 2 == 1 for label in model.similar_rows(5, n=5).labels)
    directions = model.predictor_.directions(model.predictor_.rows)
    assert directions.shape == (24, 16)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_a_scale_without_levels_is_predicted_and_has_none(real: HeldOut) -> None:
    model = real.model
    assert real.split.train.scale.levels is None
    assert rmse_error(model.predict(*real.pairs), real.values) < 0.8 * real.compute_rmse_means
    with pytest.raises(BadSetting, match="levels"):
        model.predict_levels(*real.pairs)
    table = model.predict_distribution(*real.pairs)
    assert table.shape == (real.values.size, 12) and table.min() >= 0
    np.testing.assert_allclose(table.sum(1), 1, atol=1e-12)
    # Calibration changes the spread of distributions around their medians, and so their means a
    # little.
    np.testing.assert_allclose(table @ model.support_, model.predict(*real.pairs), atol=0.1)
    # Bins are of equal frequency in training, so overall all are about as likely.
    assert 0.5 / 12 < table.mean(0).min() < table.mean(0).max() < 2 / 12


@pytest.mark.slow
def test_values_that_are_often_exactly_zero() -> None:
    matrix = real_values()
    clipped = with_values(matrix, np.maximum(matrix.values, 0), Scale(low=0, high=10))
    found = HeldOut.of(clipped)
    model, empty = found.model, found.values == 0
    assert 0.4 < empty.mean() < 0.6 and model.support_[0] == 0
    chance = model.predict_distribution(*found.pairs)[:, 0]
    assert chance[empty].mean() > chance[~empty].mean() + 0.15
    assert chance.mean() == pytest.approx(empty.mean(), abs=0.1)
    assert rmse_error(model.predict(*found.pairs), found.values) < 0.97 * found.compute_rmse_means
    lower, upper = model.predict_interval(*found.pairs)
    np.testing.assert_array_equal(lower[chance > 0.06], 0)
    assert np.all(lower >= 0) and np.all(upper <= 10) and np.mean(upper < 5) > 0.9
    assert interval_coverage_score(lower, upper, found.values) == pytest.approx(0.9, abs=0.08)


@pytest.mark.slow
def test_an_interval_far_wider_than_its_values() -> None:
    matrix = real_values()
    found = HeldOut.of(with_values(matrix, matrix.values, Scale(low=-20, high=20)))
    predicted = found.model.predict(*found.pairs)
    assert rmse_error(predicted, found.values) < 0.85 * found.compute_rmse_means
    lower, upper = found.model.predict_interval(*found.pairs)
    # The ends are told by the values, not by the scale.
    assert -7 < lower.min() < upper.max() < 7 and abs(matrix.values).max() < 7
    assert interval_coverage_score(lower, upper, found.values) == pytest.approx(0.9, abs=0.08)


def test_no_interval_leaves_the_scale() -> None:
    # Most values are near the upper end: a bin around their mean would reach beyond it.
    values = 1 - np.random.default_rng(0).random((12, 10)) ** 5
    model = OrdinalDMF(**QUICK | {"epochs": 3, "bins": 2}).fit(
        ObservedMatrix.from_array(values, Scale(low=0, high=1))
    )
    rows, columns = np.divmod(np.arange(120), 10)
    lower, upper = model.predict_interval(rows, columns, coverage=0.99)
    assert np.all(lower >= 0) and upper.max() == 1


@pytest.mark.slow
def test_a_constant_inside_an_interval() -> None:
    array = np.where(np.random.default_rng(0).random((12, 10)) < 0.7, 0.5, np.nan)
    model = OrdinalDMF(**QUICK).fit(ObservedMatrix.from_array(array, Scale(low=0, high=1)))
    assert np.nanmax(np.abs(model.complete() - 0.5)) < 0.05


def test_one_level() -> None:
    array = np.where(np.random.default_rng(0).random((12, 10)) < 0.7, 3.0, np.nan)
    with pytest.warns(ConstantValues):
        matrix = ObservedMatrix.from_array(array)
    model = OrdinalDMF(**QUICK | {"epochs": 3}).fit(matrix)
    assert set(model.complete().ravel()) == {3}
    assert model.predict_distribution([0, 1], [2, 3]).tolist() == [[1], [1]]
    assert model.predict_levels([0], [1], metric="accuracy").tolist() == [3]
    assert [end.tolist() for end in model.predict_interval([0], [1])] == [[3], [3]]


@pytest.mark.slow
def test_a_pickle_holds_a_network_for_any_machine(stars: HeldOut) -> None:
    model = stars.model
    # it belongs to training, and to the machine of that
    assert model.network_.rows.dropout.generator is None
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert again.network_.rows.dropout.generator is None
    np.testing.assert_array_equal(again.predict(*stars.pairs), model.predict(*stars.pairs))
    new = ObservedMatrix.from_entries(["new"] * 5, model.column_labels_[:5], [5, 4, 3, 2, 1], STARS)
    extended = again.extend(new), model.extend(new)
    assert extended[0].network_ is again.network_ and extended[1].network_ is model.network_
    columns = model.column_labels_
    found, expected = (each.predict(["new"] * columns.size, columns) for each in extended)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_a_gpu_has_trained_lives_on_without_it(tmp_path: Path) -> None:
    split = split_areas(additive(), seed=0)
    alone = {"device": "cuda", "linear_size": 0}  # a sampler would leave the network out
    model = OrdinalDMF(**QUICK | alone).fit(split.train)
    assert model.network_.head.scale.is_cuda
    more = model.extend(split.extension)
    rows, columns, _ = split.test["IV"].entries()
    told = model.explain(model.row_labels_[0], model.column_labels_[0])
    model.save(tmp_path / "model.safetensors")
    for again in (load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert isinstance(again, OrdinalDMF) and not again.network_.head.scale.is_cuda
        found = again.extend(split.extension).predict(rows, columns)
        np.testing.assert_allclose(found, more.predict(rows, columns), atol=0.01)
        effects = again.explain(model.row_labels_[0], model.column_labels_[0]).effects
        np.testing.assert_allclose(np.abs(effects), np.abs(told.effects), atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_best_is_no_worse_than_normal_on_held_out_entries_and_parts_say_why(seed: int) -> None:
    matrix = generate(80, 60, n_entries=1500, rank=3, noise=1.0, named=False, seed=seed).matrix
    settings: dict[str, Any] = {
        "seed": seed,
        "presence": None,
        "linear_iterations": 20,
        "device": "cpu",
    }
    quick, normal, best = (
        OrdinalDMF(effort=each, **settings).fit(matrix) for each in ("quick", "normal", "best")
    )
    assert (best.history_.best_error or 9.0) <= (normal.history_.best_error or 0.0)
    for model in (quick, normal, best):
        parts, stages = model.chosen_["parts"], model.history_.stages
        assert list(parts) == ["sampler", "network", "refinement", "neighbours"]
        assert parts["network"].startswith("not fitted") == (model is quick)
        if "sampler" in model.chosen_["members"]:
            assert f"{stages['sampler']:.4f}" in parts["sampler"]
        is_out = "network" not in model.chosen_["members"] and model is not quick
        assert parts["network"].startswith("left out") == is_out


@pytest.mark.slow
def test_the_best_epoch_is_kept_and_its_error_is_that_of_the_model() -> None:
    split = split_entries(additive(), train=0.6, validation=0.4, test=0, seed=0)
    settings = QUICK | {"validate_every": 5, "views": 12, "neighbours": None}
    model = OrdinalDMF(**settings).fit(split.train, split.validation)
    rows, columns, values = split.validation.entries()
    # Epochs are compared by a few views; the error told at the end is by all of them, refined.
    assert model.history_.best_error == pytest.approx(
        rmse_error(model.predict(rows, columns), values), abs=1e-3
    )
    stages = model.history_.stages
    assert list(stages) == ["branches", "refined", "sampler", "network"]
    assert stages["branches"] == min(
        record.validation_error or 9 for record in model.history_.records
    )
    assert stages["refined"] >= stages["network"] == model.history_.best_error
    looks = {
        record.epoch: record.validation_error
        for record in model.history_.records
        if record.validation_error
    }
    assert list(looks) == [*range(4, 40, 5)] and model.history_.best_epoch == min(
        looks, key=lambda at: looks[at] or 9
    )
    rates = [record.learning_rate for record in model.history_.records]
    assert rates[0] == 5e-2 and rates[-1] is not None and rates[-1] < 1e-4  # along a cosine


@pytest.mark.slow
def test_without_refinement_validation_predicts_the_error() -> None:
    split = split_entries(additive(), train=0.6, validation=0.4, test=0, seed=0)
    model = OrdinalDMF(**QUICK | PLAIN | {"validate_every": 40, "epochs": 40, "views": 4}).fit(
        split.train, split.validation
    )
    assert model.history_.records[-1].validation_error == pytest.approx(
        model.history_.best_error, rel=1e-5
    )


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"mask_rate": 0}, "mask_rate"),
        ({"mask_rate": 0.96}, "mask_rate"),
        ({"views": 0}, "views"),
        ({"landmarks": 0}, "landmarks"),
        ({"landmarks": True}, "landmarks"),
        ({"bins": 1}, "bins"),
        ({"decay": 0.5}, "decay"),
        ({"inputs": "raw"}, "inputs"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        OrdinalDMF(**QUICK | changes)
