"""Explanations: effects by hand, and long rows in bounded time."""

import time

import numpy as np
import pytest
from scipy.special import expit, logit
from tests.recommend.test_presence import choosy

from deepmf.matrix.axis_entries import Axis
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.explanation import explain_targets
from deepmf.models.means import Means


def wide(n_columns: int) -> ObservedMatrix:
    """A matrix whose first row has an entry in every column."""
    dice = np.random.default_rng(0)
    values = dice.integers(1, 6, (6, n_columns)).astype(float)
    values[1:][dice.random((5, n_columns)) < 0.5] = np.nan
    return ObservedMatrix.from_array(values, Scale([1, 2, 3, 4, 5]))


def test_means_by_hand() -> None:
    matrix = ObservedMatrix.from_array([[1, 5, np.nan], [3, 3, 3]], Scale([1, 2, 3, 4, 5]))
    found = Means(shrinkage=1.0).fit(matrix).explain(0, 2)
    # The mean is 3; effects of columns are -2/3, 2/3 and 0, so what is left in row 0 is -4/3 and
    # 4/3.
    assert found.labels.tolist() == [0, 1] and found.values.tolist() == [1, 5]
    np.testing.assert_allclose(found.effects, [-2 / 3, 2 / 3], atol=1e-6)
    assert found.prediction == pytest.approx(3)


def test_candidates_of_a_long_row_hold_its_largest_effects() -> None:
    model = ALS(latent_size=2, epochs=3).fit(wide(800))
    every, found = model.explain(0, 7, n=800), model.explain(0, 7, n=5)  # 256 candidates
    assert every.labels.size == 800
    assert len(set(found.labels) & set(every.labels[:5])) >= 3
    at = dict(zip(every.labels, every.effects, strict=True))
    for label, effect in zip(found.labels, found.effects, strict=True):
        assert effect == pytest.approx(at[label], abs=1e-4)


@pytest.mark.slow
def test_a_row_of_ten_thousand_entries_takes_bounded_time() -> None:
    model = Means().fit(wide(10_000))
    started = time.process_time()
    assert model.explain(0, 7).labels.size == 5
    assert time.process_time() - started < 2


@pytest.mark.parametrize("axis", ["row", "column"])
# all entries are candidates, or the most prominent
@pytest.mark.parametrize("n_columns", [40, 800])
def test_several_predictions_are_explained_as_each_alone(axis: Axis, n_columns: int) -> None:
    model = ALS(latent_size=2, epochs=3).fit(wide(n_columns))
    entries, own, targets = model.entries_, np.array([1]), np.array([3, 0, 2])
    described = entries.row_entries(own) if axis == "row" else entries.column_entries(own)
    found = explain_targets(entries, model.predictor_, axis, described, 1, targets, 4)
    for target, each in zip(targets.tolist(), found, strict=True):
        alone = (
            model.explain(1, target, 4, axis=axis)
            if axis == "row"
            else model.explain(target, 1, 4, axis=axis)
        )
        assert each.labels.tolist() == alone.labels.tolist() and each.prediction == alone.prediction
        np.testing.assert_array_equal(each.values, alone.values)
        np.testing.assert_allclose(each.effects, alone.effects, atol=1e-6)
    assert explain_targets(entries, model.predictor_, axis, described, 1, targets[:0], 4) == []


@pytest.mark.parametrize("kind", ["full", "nearest"])
def test_effects_on_the_presence_are_differences_of_probabilities(kind: str) -> None:
    model = Means(presence=kind).fit(choosy())
    columns = [0, 2, 8]
    guest = model.fold_in(columns, [4, 4, 4])

    def chance(known: list[int]) -> float:
        best = model.fold_in(known, [4] * len(known)).recommend(among=[6], rank_by="relevance")
        assert best.presence is not None
        return float(best.presence[0])

    presence = model.rankers_.presence
    assert presence is not None
    shorter, longer = presence.find_offsets(np.array([2, 3]))
    for label, _, effect, _ in guest.explain(6).presence:
        # as if the row had another entry instead, which says nothing of the column
        odds = logit(chance([other for other in columns if other != label])) - shorter + longer
        assert effect == pytest.approx(chance(columns) - expit(odds), abs=1e-4)
    assert len(guest.explain(6).presence) == 3


def test_entries_that_raise_the_presence_of_a_column_are_named() -> None:
    """Even rows take even columns: those of a row that are most alike make the next one likely."""
    model = Means().fit(choosy())
    presence = model.rankers_.presence
    assert presence is not None
    found = model.explain(0, 4, n=3)
    own = model.entries_.row_entries(np.array([0]))
    effects = presence.model.find_effects(own, 4)
    best = np.argsort(-effects)[:3]
    assert [each.label for each in found.presence] == [
        int(own.others[k]) for k in best if effects[k] > 0
    ]
    assert all(each.label % 2 == 0 and each.effect > 0 for each in found.presence)
    guest = model.fold_in([0, 2, 3], [4, 4, 4]).explain(6).presence
    more = model.extend(ObservedMatrix.from_entries([60] * 3, [0, 2, 3], [4, 4, 4], model.scale_))
    assert [each.label for each in more.explain(60, 6).presence] == [each.label for each in guest]
    assert {each.label for each in guest} <= {0, 2, 3} and guest[0].label % 2 == 0
    assert Means(presence=None).fit(choosy()).explain(0, 4).presence == ()
