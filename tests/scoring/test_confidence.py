"""Confidence: how far distributions can be trusted, by the numbers of entries of rows and columns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, log_expit, logit

from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.scoring.confidence import FEW_COUNTS, LONG_COUNT, Confidence, Trust
from deepmf.scoring.distribution import COVERAGES, Frequencies, PredictiveDistribution
from deepmf.training.holdout import HeldOut

LEVELS = np.array([1.0, 2.0, 3.0])
UNIT_BOUNDARIES = np.array([-0.5, 0.5], dtype=np.float32)


def fill(count: int) -> Any:
    """A matrix whose rows have 1, 3 and 300 entries, in columns with 3, 2 or 1 of them."""
    table = np.full((3, count), np.nan)
    dice = np.random.default_rng(0)
    for row, length in enumerate((1, 3, count)):
        table[row, :length] = dice.choice(LEVELS, length)
    return ObservedMatrix.from_array(table).with_scale(ObservedMatrix.from_array([LEVELS]).scale)


@pytest.fixture(scope="module")
def entries() -> EntryStore:
    return EntryStore.of(fill(LONG_COUNT))


def make(entries: EntryStore, **numbers: list[float]) -> Confidence:
    trust = Trust.make_full()._replace(**{name: np.array(each) for name, each in numbers.items()})
    frequencies = Frequencies.of(entries.train, UNIT_BOUNDARIES)
    return Confidence.of(trust, frequencies, entries)


def predict(n_pairs: int) -> PredictiveDistribution:
    odds = np.random.default_rng(1).normal(size=(n_pairs, 1)) + np.array([1.0, -1.0])
    return PredictiveDistribution(LEVELS, np.array([1.5, 2.5]), expit(odds))


def test_an_excess_of_three_halves_the_log_odds_of_rows_with_one_entry(entries: EntryStore) -> None:
    learned, rows, columns = predict(3), np.arange(3), np.full(3, LONG_COUNT - 1)
    confidence = make(entries, row_excess=[3.0, 0.0, 0.0, 0.0, 0.0])
    trusted = confidence.apply(learned, rows, columns).exceedance
    np.testing.assert_allclose(logit(trusted[0]), logit(learned.exceedance[0]) / 2.0)
    np.testing.assert_array_equal(trusted[1:], learned.exceedance[1:])


def test_excesses_of_row_and_column_add_up_and_fade_between_counts(entries: EntryStore) -> None:
    trust = Trust.make_full()._replace(
        row_excess=np.array([3.0, 1.0, 0.0, 0.0, 0.0]),
        column_excess=np.array([5.0, 0.0, 0.0, 0.0, 0.0]),
        cell_excess=np.array([7.0, 0.5, 0.0, 0.0, 0.0]),
    )
    assert trust.find_excess(np.array([1]), np.array([1]))[0] == pytest.approx(15.0)
    assert trust.find_excess(np.array([3]), np.array([1]))[0] == pytest.approx(6.5)
    assert trust.find_excess(np.array([1]), np.array([1000]))[0] == pytest.approx(3.0)
    halfway = trust.find_excess(np.sqrt([3.0]), np.array([1000]))[0]
    assert halfway == pytest.approx(2.0)  # in the logarithm of the number


def test_without_trust_a_new_row_has_the_frequencies_of_the_column(entries: EntryStore) -> None:
    rows, columns = np.zeros(4, dtype=np.int64), np.arange(4)
    confidence = make(entries, row_excess=[1e6, 0, 0, 0, 0], row_pool=[1.0, 0, 0, 0, 0])
    trusted = confidence.apply(predict(4), rows, columns).probabilities
    expected = confidence.frequencies.smooth(entries.column_entries(columns))
    np.testing.assert_allclose(trusted, expected, atol=2e-3)


def test_blocks_pairs_and_logarithms_change_alike(entries: EntryStore) -> None:
    numbers = {name: np.linspace(1.0, 0.1, len(FEW_COUNTS)).tolist() for name in Trust._fields}
    confidence = make(entries, **numbers)
    rows, columns = np.array([2, 0, 1]), np.array([0, 1, 2, 250])
    odds = np.random.default_rng(2).normal(size=(3, 4))
    pairs = np.repeat(rows, 4), np.tile(columns, 3)
    of_pairs = confidence.change_pairs(*pairs).apply(odds.reshape(-1, 1))[:, 1].reshape(3, 4)
    thresholds = np.full(3, 3.0)  # the level above the second boundary
    for given in (columns, np.tile(columns, (3, 1))):
        change = confidence.change_block(rows, given, thresholds)
        np.testing.assert_allclose(change.apply(odds), of_pairs, rtol=1e-6)
    np.testing.assert_allclose(
        change.apply_to_logarithms(log_expit(odds)), log_expit(of_pairs), rtol=1e-6
    )
    assert np.all(change.apply_to_logarithms(np.zeros((3, 4))) == 0.0)  # certain


def test_new_entries_and_arrivals_count(entries: EntryStore) -> None:
    plain = make(entries)
    assert plain.rows.counts.tolist() == [1, 3, LONG_COUNT]
    new = ObservedMatrix.from_entries(
        [0, 0, 99, 99], [5, 9999, 0, 9999], [1, 2, 3, 3], entries.scale
    )
    change = entries.extend(new)
    grown = plain.extend(change.entries, change.rows, change.columns)
    assert grown.rows.counts.tolist() == [2, 3, LONG_COUNT, 1]  # of trained columns
    assert grown.columns.counts[[0, 5, -1]].tolist() == [3, 2, 1]  # of trained rows
    again = Confidence.of(plain.trust, plain.frequencies, change.entries)
    np.testing.assert_array_equal(grown.rows.odds, again.rows.odds)
    np.testing.assert_array_equal(grown.columns.odds, again.columns.odds)
    left = grown.without("row", np.array([0, 3]))
    assert left.rows.counts.tolist() == [2, 3, LONG_COUNT]  # trained rows stay
    alone = plain.with_only("row", entries.row_entries(np.array([1])))
    np.testing.assert_array_equal(alone.rows.odds, plain.rows.odds[1:2])


def test_on_a_scale_without_levels_only_the_excess_counts() -> None:
    table = [[0.1, 0.7, np.nan], [0.4, np.nan, 0.9]]
    matrix = ObservedMatrix.from_array(table, scale=Scale(low=0.0, high=1.0))
    store = EntryStore.of(matrix)
    trust = Trust.make_full()._replace(row_excess=np.array([3.0, 3.0, 0.0, 0.0, 0.0]))
    frequencies = Frequencies.of(matrix, UNIT_BOUNDARIES)
    confidence = Confidence.of(trust, frequencies, store)
    assert confidence.rows.odds.shape == (2, 0)
    learned = predict(2)
    trusted = confidence.apply(learned, np.array([0, 1]), np.array([0, 0]))
    np.testing.assert_allclose(logit(trusted.exceedance), logit(learned.exceedance) / 2.0)
    narrow = replace(confidence, coverages=COVERAGES**2)  # stated for what is held
    assert np.all(
        np.abs(narrow.apply(learned, np.array([0, 1]), np.array([0, 0])).exceedance - 0.5)
        >= np.abs(trusted.exceedance - 0.5)
    )


def test_the_calibration_of_intervals_reaches_usual_histories_alone(entries: EntryStore) -> None:
    """Intervals aim at half of what is asked where histories are usual, at nearly all where there
    is one entry."""
    usual = np.array([LONG_COUNT, 1.0])
    confidence = replace(make(entries), coverages=COVERAGES / 2.0, usual_counts=usual)
    shares = np.tile([0.5, 0.3, 0.2], (3, 1))
    learned = PredictiveDistribution.of_probabilities(LEVELS, np.array([1.5, 2.5]), shares)
    rows = np.array([2, 1, 0])  # with 300, 3 and 1 entries
    trusted = confidence.apply(learned, rows, np.zeros(3, dtype=np.int64))
    lower, upper = trusted.interval(0.9)  # aims at .45, .675 and .74
    assert (upper - lower).tolist() == [0.0, 1.0, 1.0]
    lower, upper = trusted.interval(1.0)  # aims at .5, .75 and .83
    assert (upper - lower).tolist() == [0.0, 1.0, 2.0]


def test_intervals_are_calibrated_where_the_only_entries_are_held_out() -> None:
    table = np.array([[1.0, 2.0, np.nan], [3.0, 1.0, np.nan]])
    matrix = ObservedMatrix.from_array(table, scale=Scale(levels=LEVELS))
    confidence = make(EntryStore.of(matrix))
    rows, columns = np.array([0, 1]), np.array([2, 2])  # a column without other entries
    held_out = HeldOut(rows, columns, np.array([1.0, 3.0]))
    coverages, usual_counts = confidence.calibrate(predict(2), held_out)
    assert usual_counts.tolist() == [2.0, 1.0]
    calibrated = replace(confidence, coverages=coverages, usual_counts=usual_counts)
    lower, upper = calibrated.apply(predict(2), rows, columns).interval(0.9)
    assert np.all(lower <= upper)
