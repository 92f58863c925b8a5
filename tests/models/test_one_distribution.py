"""What is said of a pair is read off one distribution, on levels and on real values."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from deepmf.datasets import generate
from deepmf.matrix.arrays import Array, FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.ordinal.model import OrdinalDMF

KINDS = ("levels", "real values")
NAMES = ("BayesianMF", "OrdinalDMF")
WHO = ("guest", "new row", "trained row")

pytestmark = pytest.mark.slow


def make_matrix(kind: str) -> ObservedMatrix:
    """A matrix of ratings from 1 to 5, or of numbers without levels."""
    if kind == "levels":
        return generate(150, 80, density=0.2, noise=0.5, named=False, seed=0).matrix
    numbers = np.random.default_rng(0)
    signal = numbers.normal(size=(60, 3)) @ numbers.normal(size=(3, 40))
    values = signal + 0.3 * numbers.normal(size=signal.shape)
    return ObservedMatrix.from_array(np.where(numbers.random(values.shape) < 0.5, np.nan, values))


@cache
def fit(name: str, kind: str) -> Model:
    models: dict[str, Model] = {
        "BayesianMF": BayesianMF(epochs=60, latent_size=5, device="cpu", presence="full"),
        "OrdinalDMF": OrdinalDMF(
            effort="quick", linear_iterations=40, device="cpu", presence="full"
        ),
    }
    return distrust(models[name].fit(make_matrix(kind)))


def distrust(model: Model) -> Model:
    """The model, which trusts distributions of short rows little."""
    fitted = model._require_fitted()
    assert fitted.learned.confidence is not None
    trust = fitted.learned.confidence.trust._replace(row_excess=np.array([5.0, 3.0, 1.0, 0.2, 0.0]))
    confidence = replace(fitted.learned.confidence, trust=trust)
    model._fitted = replace(fitted, learned=replace(fitted.learned, confidence=confidence))
    return model


class Subject(NamedTuple):
    """A model and a row of it; None: the row is all that a guest's model has."""

    model: Model
    row: int | None

    @classmethod
    def of(cls, who: str, trained: Model) -> "Subject":
        columns, values = trained.column_labels_[[3, 11]], trained.entries_.train.values[[0, 7]]
        if who == "guest":
            return cls(trained.fold_in(columns[:1], values[:1]), None)
        if who == "trained row":
            return cls(trained, int(trained.row_labels_[0]))
        new = ObservedMatrix.from_entries([999, 999], columns, values, trained.scale_)
        return cls(trained.extend(new), 999)

    def pair(self, columns: Array) -> tuple[Array, ...]:
        """The arguments of predictions for the row in some columns."""
        return (columns,) if self.row is None else (np.full(columns.size, self.row), columns)

    @property
    def first(self) -> tuple[int, ...]:
        """The first argument of what is asked of the row alone."""
        return () if self.row is None else (self.row,)


def find_boundaries(model: Model) -> FloatArray:
    readout = model.predictor_.readout
    return readout.scale.from_unit(readout.unit_boundaries.astype(np.float64))


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_recommendations_and_explanations_have_the_predicted_distribution(
    name: str, kind: str, who: str
) -> None:
    model, _ = subject = Subject.of(who, fit(name, kind))
    boundaries, support = find_boundaries(fit(name, kind)), fit(name, kind).support_
    place = 2 * boundaries.size // 3
    relevant = support[place + 1] if kind == "levels" else boundaries[place]
    for rank_by in ("relevance", "value"):
        best = model.recommend(*subject.first, 12, rank_by=rank_by, relevant=float(relevant))
        pairs = subject.pair(best.labels)
        chances = model.predict_distribution(*pairs)
        np.testing.assert_allclose(best.distribution, chances, rtol=1e-9)
        np.testing.assert_allclose(best.liked, chances[:, place + 1 :].sum(axis=1), rtol=1e-5)
        predictions = model.predict(*pairs)
        np.testing.assert_allclose(best.values, predictions, rtol=1e-5)
        explained = [model.explain(*subject.first, label).prediction for label in best.labels[:4]]
        np.testing.assert_allclose(explained, predictions[:4], rtol=1e-5)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", NAMES)
def test_levels_and_intervals_are_those_of_the_distribution(name: str, who: str) -> None:
    model, _ = subject = Subject.of(who, fit(name, "levels"))
    pairs = subject.pair(fit(name, "levels").column_labels_)
    chances, support = model.predict_distribution(*pairs), fit(name, "levels").support_
    likeliest = support[chances.argmax(axis=1)]
    medians = support[(np.cumsum(chances, axis=1) < 0.5).sum(axis=1)]
    np.testing.assert_array_equal(model.predict_levels(*pairs, metric="accuracy"), likeliest)
    np.testing.assert_array_equal(model.predict_levels(*pairs, metric="mae"), medians)
    lower, upper = model.predict_interval(*pairs, coverage=0.9)
    assert np.all((lower <= likeliest) & (likeliest <= upper))


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", NAMES)
def test_intervals_of_real_values_leave_their_tails_to_both_sides(name: str, who: str) -> None:
    model, _ = subject = Subject.of(who, fit(name, "real values"))
    pairs = subject.pair(fit(name, "real values").column_labels_)
    boundaries = find_boundaries(fit(name, "real values"))
    above = 1.0 - np.cumsum(model.predict_distribution(*pairs), axis=1)[:, :-1]
    lower, upper = (ends[:, None] for ends in model.predict_interval(*pairs, coverage=0.9))
    assert np.all(above[boundaries > upper] <= 0.05 + 1e-9)
    assert np.all(above[boundaries < lower] >= 0.95 - 1e-9)
    assert np.all(above[(lower < boundaries) & (boundaries < upper)] > 0.05 - 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_a_new_row_have_its_distribution(kind: str) -> None:
    model, _ = subject = Subject.of("new row", fit("BayesianMF", kind))
    assert isinstance(model, BayesianMF)
    pairs = subject.pair(model.column_labels_[12:32])
    draws = model.draw(*pairs, n=1500, seed=0)
    bins = np.searchsorted(find_boundaries(model), draws)
    below = (bins[..., None] <= np.arange(model.support_.size)).mean(axis=0)
    expected = np.cumsum(model.predict_distribution(*pairs), axis=1)
    # a column has as many draws as there are samples
    assert np.abs(below - expected).mean() < 0.05
