"""Findings: the baseline has seen what the model has seen, and predicts levels where it does."""

import numpy as np
import pytest

from deepmf.data import AreaSplit
from deepmf.errors import BadEntries, UnknownLabel
from deepmf.evaluation.areas import evaluate, evaluate_cold_start
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.means import Means
from deepmf.report.findings import find


def test_the_means_are_fitted_and_extended_alike(split: AreaSplit, entries: ObservedMatrix) -> None:
    model = ALS(latent_size=2, epochs=2).fit(split.train).extend(split.extension)
    means = Means().fit(split.train).extend(split.extension)
    found = find(model, entries)
    assert found.baseline is not None
    assert found.baseline.name == "means"
    assert found.baseline.areas == evaluate(means, entries)
    assert found.baseline.cold_start == evaluate_cold_start(means, entries)
    assert found.measured.areas == evaluate(model, entries)
    assert [part.area for part in found.measured.areas] == ["I", "II", "III", "IV", "all"]
    assert [part.n_entries for part in found.measured.areas] == [
        part.n_entries for part in found.baseline.areas
    ]
    assert found.measured.columns.labels.tolist() == found.baseline.columns.labels.tolist()


def test_levels_are_compared_with_rounded_means(
    split: AreaSplit, entries: ObservedMatrix, discrete: Model
) -> None:
    means = Means().fit(split.train).extend(split.extension)
    rows, columns, values = entries.entries()
    found = find(discrete, entries)
    assert found.baseline is not None
    assert found.baseline.name == "rounded means"
    assert found.baseline.overall.rmse == pytest.approx(
        rmse_error(means.predict_levels(rows, columns), values)
    )
    assert found.baseline.overall.rmse == found.baseline.overall.level_rmse


def test_the_means_have_no_baseline(split: AreaSplit) -> None:
    found = find(Means().fit(split.train), split.test["I"])
    assert found.baseline is None
    assert found.measurements == [found.measured]


def test_what_a_model_does_not_give(
    entries: ObservedMatrix, discrete: Model, probable: Model
) -> None:
    assert find(discrete, entries).calibration is None
    held = find(probable, entries).calibration
    assert held is not None
    assert held.n_entries == entries.n_entries
    reals = ObservedMatrix.from_array(np.random.default_rng(0).normal(size=(20, 20)))
    found = find(type(probable)().fit(reals), reals)
    assert (found.confusion, found.calibration) == (None, None)
    assert found.intervals is not None
    assert [each.wanted for each in found.intervals] == [0.5, 0.8, 0.9, 0.95]
    assert find(probable, entries).intervals is None  # levels have probabilities
    assert find(Means().fit(reals), reals).intervals is None
    assert found.n_seen == 400


def test_wrong_entries_are_refused_as_by_evaluate(split: AreaSplit, discrete: Model) -> None:
    with pytest.raises(UnknownLabel, match="extend"):
        find(Means().fit(split.train), split.test["II"])
    with pytest.raises(BadEntries, match="entr"):
        find(discrete, split.train.take_entries(np.empty(0, dtype=np.intp)))


def test_what_the_model_does_not_know_is_in_the_errors_by_area_alone(
    split: AreaSplit, entries: ObservedMatrix
) -> None:
    model = ALS(latent_size=2, epochs=2).fit(split.train)
    n_known = split.test["I"].n_entries
    with pytest.raises(UnknownLabel):
        find(model, entries)
    found = find(model, entries, unknown="fallback")
    assert (found.test.n_entries, found.n_unknown) == (n_known, entries.n_entries - n_known)
    for measured in found.measurements:
        assert [part.area for part in measured.areas] == ["I", "unknown", "all"]
        assert sum(group.n_entries for group in measured.cold_start) == n_known
    assert found.confusion is not None and found.confusion.sum() == n_known
    left_out = find(model, entries, unknown="nan")
    assert [part.area for part in left_out.measured.areas] == ["I", "all"]
    assert left_out.n_unknown == found.n_unknown
    with pytest.raises(BadEntries, match="entry"):
        find(model, split.test["IV"], unknown="fallback")


def test_the_means_know_what_was_replaced_and_forgotten(split: AreaSplit) -> None:
    rows, columns, values = split.train.entries()
    other = ObservedMatrix.from_entries(
        rows[:1], columns[:1], [6 - values[0] or 1], split.train.scale
    )
    if values[0] == 3:
        other = ObservedMatrix.from_entries(rows[:1], columns[:1], [5], split.train.scale)
    model = ALS(latent_size=2, epochs=2).fit(split.train)
    changed = model.extend(other, conflicts="replace").forget(rows=rows[-1:])
    found = find(changed, split.test["I"])
    assert found.baseline is not None
    means = (
        Means()
        .fit(split.train)
        .forget(entries=split.train.take_entries(changed.entries_.dropped))
        .extend(other)
    )
    assert found.baseline.areas == evaluate(means, split.test["I"])
    everything = find(model.forget(rows=np.unique(rows)), split.test["I"])
    assert everything.baseline is not None
