"""Rehearsed arrivals: what held-out entries of rows and columns with few entries say."""

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.ordinal.head import OrdinalReadout
from deepmf.scoring.confidence import FEW_COUNTS
from deepmf.scoring.encoders import Scores
from deepmf.scoring.rehearsal import Rehearsal, fit_trust, make_confidence
from deepmf.training.holdout import HeldOut

LEVELS = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
UNIT_BOUNDARIES = np.array([-0.75, -0.25, 0.25, 0.75], dtype=np.float32)
CUTPOINTS = np.array([-1.5, -0.5, 0.5, 1.5])
N_ROWS, N_COLUMNS = 120, 80


class Arranged:
    """Entries drawn from known locations, a tenth of which is held out."""

    def __init__(self) -> None:
        dice = np.random.default_rng(0)
        self.signal = dice.normal(scale=1.5, size=(N_ROWS, N_COLUMNS))
        shares = expit(self.signal[..., None] - CUTPOINTS)
        values = 1.0 + (dice.random((N_ROWS, N_COLUMNS, 1)) < shares).sum(-1)
        is_held_out = dice.random((N_ROWS, N_COLUMNS)) < 0.3
        rows, columns = np.nonzero(is_held_out)
        self.held_out = HeldOut(rows, columns, values[rows, columns])
        seen = ObservedMatrix.from_array(np.where(is_held_out, np.nan, values))
        self.seen = EntryStore.of(seen)
        self.readout = OrdinalReadout(seen.scale, LEVELS, UNIT_BOUNDARIES)
        self.rehearsal = Rehearsal.of(self.seen, self.held_out, seed=0)
        self.histories = self.rehearsal.read_histories(self.seen, UNIT_BOUNDARIES)

    def predict(self, factors: Any) -> Scores:
        """Return the true log-odds times a factor for each pair of the rehearsal."""
        rehearsal, n_pairs = self.rehearsal, self.rehearsal.values.size
        rows, columns = np.unique(self.held_out.rows), np.unique(self.held_out.columns)
        truth = self.signal[rows[rehearsal.row_at], columns[rehearsal.column_at]]
        location = np.tile(truth, rehearsal.pairs[0].size // n_pairs) * factors
        return Scores(location, np.multiply.outer(factors, CUTPOINTS))


@pytest.fixture(scope="module")
def arranged() -> Arranged:
    return Arranged()


def test_versions_have_few_of_their_entries_and_none_that_are_held_out(arranged: Arranged) -> None:
    rehearsal = arranged.rehearsal
    counts = np.diff(rehearsal.rows.starts).reshape(1 + len(FEW_COUNTS), -1)
    np.testing.assert_array_equal(
        counts[0], arranged.seen.row_counts[np.unique(arranged.held_out.rows)]
    )
    for few, count in zip(counts[1:], FEW_COUNTS, strict=True):
        np.testing.assert_array_equal(few, np.minimum(counts[0], count))
    first = rehearsal.rows.take(np.array([0, counts.shape[1], 2 * counts.shape[1]]))
    whole, one, three = (set(others.tolist()) for others, _ in first.groups())
    assert one < whole and three < whole and len(one) == 1 and len(three) == 3


def test_what_is_said_too_surely_by_one_entry_is_found(arranged: Arranged) -> None:
    rows, columns = arranged.rehearsal.pairs
    counts = arranged.histories.rows.counts[rows], arranged.histories.columns.counts[columns]
    factors = np.where(counts[0] == 1, 2.0, 1.0) * np.where(counts[1] == 3, 1.5, 1.0)
    trust = fit_trust(
        arranged.rehearsal, arranged.predict(factors), arranged.readout, arranged.histories
    )
    assert trust.row_excess[0] == pytest.approx(3.0, abs=0.5)  # log-odds are halved
    assert trust.column_excess[1] == pytest.approx(1.25, abs=0.3)
    assert np.all(trust.row_excess[1:] < 0.15) and trust.column_excess[0] < 0.15
    assert trust.row_pool.max() < 0.15


def test_where_nothing_is_known_values_of_the_other_side_are_pooled() -> None:
    arranged = Arranged()
    level = np.linspace(-2, 2, N_COLUMNS)
    shares = expit(np.broadcast_to(level, (N_ROWS, N_COLUMNS))[..., None] - CUTPOINTS)
    dice = np.random.default_rng(3)
    values = 1.0 + (dice.random((N_ROWS, N_COLUMNS, 1)) < shares).sum(-1)
    rows, columns = arranged.held_out.rows, arranged.held_out.columns
    table = values.copy()
    table[rows, columns] = np.nan
    seen = EntryStore.of(ObservedMatrix.from_array(table))
    held_out = HeldOut(rows, columns, values[rows, columns])
    rehearsal = Rehearsal.of(seen, held_out, seed=0)
    noise = np.random.default_rng(4).normal(size=rehearsal.pairs[0].size)
    scores = Scores(noise, np.broadcast_to(CUTPOINTS, (noise.size, 4)))
    trust = fit_trust(
        rehearsal, scores, arranged.readout, rehearsal.read_histories(seen, UNIT_BOUNDARIES)
    )
    assert np.all(trust.row_pool[:3] > 0.8) and np.all(trust.row_excess[:3] > 10.0)


def test_intervals_hold_their_share_of_held_out_values(arranged: Arranged) -> None:
    at = arranged.held_out.rows, arranged.held_out.columns
    exact = arranged.readout.distribution(
        arranged.signal[at], np.broadcast_to(CUTPOINTS, (at[0].size, 4))
    )
    trust = fit_trust(
        arranged.rehearsal,
        arranged.predict(np.ones(arranged.rehearsal.pairs[0].size)),
        arranged.readout,
        arranged.histories,
    )
    stores = arranged.seen, arranged.seen
    confidence = make_confidence(trust, exact, arranged.held_out, stores, UNIT_BOUNDARIES)
    for coverage in (0.8, 0.9):
        trusted = confidence.apply(exact, *at)
        lower, upper = trusted.ends(coverage, arranged.seen.scale).T
        held = np.mean((lower <= arranged.held_out.values) & (arranged.held_out.values <= upper))
        assert held == pytest.approx(coverage, abs=0.02)
        plain_lower, plain_upper = exact.interval(coverage)
        held = (plain_lower <= arranged.held_out.values) & (arranged.held_out.values <= plain_upper)
        assert held.mean() > coverage  # the smallest sets with at least the coverage
