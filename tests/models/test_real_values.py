"""Real values whose scale was inferred: nothing of test entries is known in training, and outliers
ruin nothing."""

from pathlib import Path

import numpy as np
import pytest
from tests.models.lies import small_model

from deepmf.data import split_areas, split_entries
from deepmf.errors import OffScale
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import interval_coverage_score, rmse_error
from deepmf.models.dmf import DMF
from deepmf.models.loading import load
from deepmf.models.ordinal.model import OrdinalDMF

# trainings are short
pytestmark = pytest.mark.filterwarnings("ignore::deepmf.errors.DeepMFWarning")

OUTLIER = 100.0


def low_rank(n_rows: int = 40, n_columns: int = 25, seed: int = 0) -> FloatArray:
    generator = np.random.default_rng(seed)
    signal = generator.normal(size=(n_rows, 2)) @ generator.normal(size=(2, n_columns))
    return signal + 0.3 * generator.normal(size=signal.shape)


def with_outlier(values: FloatArray, part: ObservedMatrix) -> ObservedMatrix:
    """The values, the first entry of a part made an outlier."""
    rows, columns, _ = part.entries()
    planted = values.copy()
    planted[rows[0], columns[0]] = OUTLIER
    return ObservedMatrix.from_array(planted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["means", "als", "rankk", "dmf", "dmf-o", "i-autorec"])
def test_a_value_among_test_entries_moves_no_prediction(name: str) -> None:
    values = low_rank()
    split = split_entries(ObservedMatrix.from_array(values), seed=0)
    again = split_entries(with_outlier(values, split.test), seed=0)
    assert again.test.values.max() == OUTLIER
    pairs = split.test.entries()[:2]
    predicted = [
        small_model(name).fit(each.train, each.validation).predict(*pairs)
        for each in (split, again)
    ]
    np.testing.assert_array_equal(*predicted)


def test_values_beyond_an_inferred_interval_may_come_later(tmp_path: Path) -> None:
    values = low_rank()
    model = small_model("als").fit(ObservedMatrix.from_array(values))
    model.save(tmp_path / "model.safetensors")
    high = OUTLIER + np.arange(25.0)
    for each in (model, load(tmp_path / "model.safetensors")):
        extended = each.extend(ObservedMatrix.from_entries([99] * 25, range(25), high, each.scale_))
        assert extended.entries_.added.values.max() == high.max()  # kept as it was given
        highest = ObservedMatrix.from_entries([99] * 25, range(25), [values.max()] * 25)
        np.testing.assert_array_equal(
            extended.predict([99] * 25, range(25)),
            each.extend(highest).predict([99] * 25, range(25)),
        )
        np.testing.assert_allclose(
            each.fold_in(range(25), high).predict(range(25)),
            extended.predict([99] * 25, range(25)),
            rtol=1e-5,
        )


def test_values_beyond_a_given_interval_are_refused() -> None:
    model = small_model("als").fit(ObservedMatrix.from_array(low_rank(), Scale(low=-20, high=20)))
    with pytest.raises(OffScale):
        model.extend(ObservedMatrix.from_entries([99], [0], [OUTLIER]))
    with pytest.raises(OffScale):
        model.fold_in([0], [OUTLIER])
    assert model.extend(ObservedMatrix.from_entries([99], [0], [20.0])).predict([99], [0]) <= 20


@pytest.mark.slow
def test_dmf_survives_an_outlier_in_training() -> None:
    values = low_rank(60, 40)
    split = split_entries(ObservedMatrix.from_array(values), seed=0)
    rows, columns, actual = split.test.entries()
    errors = []
    for each in (split, split_entries(with_outlier(values, split.train), seed=0)):
        model = DMF(hidden_sizes=(64,), latent_size=16, epochs=150, seed=0, device="cpu")
        errors.append(
            rmse_error(model.fit(each.train, each.validation).predict(rows, columns), actual)
        )
    assert errors[0] < 0.6 * actual.std()
    assert errors[1] < 1.1 * errors[0]


def noisy(kind: str, *, noise: float) -> ObservedMatrix:
    """A matrix of rank 4, 30 % of it observed, with noise of one kind."""
    generator = np.random.default_rng(0)
    signal = generator.normal(size=(400, 4)) @ generator.normal(size=(4, 120))
    errors = (
        generator.normal(size=signal.shape)
        if kind == "normal"
        else generator.uniform(-1.7, 1.7, signal.shape)
    )
    return ObservedMatrix.from_array(
        np.where(generator.random(signal.shape) < 0.3, signal + noise * errors, np.nan)
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_intervals_of_ordinal_dmf_hold_the_share_they_state(kind: str, tmp_path: Path) -> None:
    split = split_areas(noisy(kind, noise=1.0), validation=0.15, test=0.2, train=0.65, seed=0)
    model = OrdinalDMF(effort="quick", epochs=40, seed=0, device="cpu").fit(
        split.train, split.validation
    )
    model.extend(split.extension).save(tmp_path / "model.safetensors")
    extended = load(tmp_path / "model.safetensors")
    test = [split.test[area].entries() for area in ("I", "II")]
    rows, columns, values = (np.concatenate(parts) for parts in zip(*test, strict=True))
    for coverage, within in ((0.9, 0.025), (0.5, 0.04)):
        held = interval_coverage_score(
            *extended.predict_interval(rows, columns, coverage=coverage), values
        )
        assert held == pytest.approx(coverage, abs=within)
