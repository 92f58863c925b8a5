"""What rankings follow of order and time: when entries are later, and how popularity depends on it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.scoring.test_drift import make_fashions

from deepmf.matrix.axis_entries import PlacedEntries
from deepmf.matrix.extras import DAY, NO_TIME, Extras
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.means import Means
from deepmf.recommend.order_fit import choose_half_life, come_later
from deepmf.recommend.presence import Recency
from deepmf.recommend.ranker import Rankers
from deepmf.recommend.request import Request

TRAIN = ObservedMatrix.from_interactions(
    ["ann", "ann", "bob"], ["Alien", "Big", "Big"], times=[100, 300, 200]
)


@pytest.mark.parametrize(
    ("rows", "times", "are_later"),
    [
        ([0, 1], [301, 201], True),
        ([0, 1], [300, 200], True),  # as late as the last one
        ([0, 1], [299, 201], False),  # one is earlier than an entry of its row
        ([0, 0], [400, 250], False),
        ([1], [250], True),  # others' entries do not count
        ([0], None, False),  # without times there is no order
    ],
)
def test_entries_are_later_if_none_of_their_row_is_after_them(
    rows: list[int], times: list[int] | None, are_later: bool
) -> None:
    extras = Extras(times=None if times is None else np.array(times))
    size = len(rows)
    held_out = PlacedEntries(np.array(rows), np.zeros(size, dtype=int), np.ones(size), extras)
    assert come_later(TRAIN, held_out) == are_later


def test_places_order_entries_without_times() -> None:
    train = ObservedMatrix.from_sequences({"ann": ["Alien", "Big"], "bob": ["Big"]})
    for place, are_later in ((0, False), (1, True), (2, True)):
        extras = Extras(places=np.array([place], dtype=np.int32))
        held_out = PlacedEntries(np.array([0]), np.array([0]), np.ones(1), extras)
        assert come_later(train, held_out) == are_later


def test_a_half_life_is_chosen_where_popularity_changes_and_counts_from_the_latest_entry() -> None:
    clicks = make_fashions()
    recency = choose_half_life(clicks)
    assert recency is not None and recency.latest == clicks.times.max()  # type: ignore[union-attr]
    assert 3 * DAY <= recency.half_life <= 120 * DAY
    shuffled = np.random.default_rng(1).permutation(clicks.times)  # type: ignore[arg-type]
    assert choose_half_life(clicks.with_extras(clicks.extras._replace(times=shuffled))) is None
    same = np.full(clicks.n_entries, 5)
    assert choose_half_life(clicks.with_extras(clicks.extras._replace(times=same))) is None
    assert choose_half_life(ObservedMatrix.from_interactions([0, 1], [0, 1])) is None


def test_an_entry_without_a_date_counts_as_the_earliest() -> None:
    times = [0, 10 * DAY, NO_TIME]
    matrix = ObservedMatrix.from_interactions([0, 1, 2], [0, 1, 2], times=[1, 1, 1])
    matrix = matrix.with_extras(Extras(times=np.array(times)))
    counts = Recency(10.0 * DAY, 10 * DAY).count_entries(Means().fit(matrix).entries_)
    np.testing.assert_allclose(counts, 3 * np.array([1, 2, 1]) / 4)


@pytest.mark.slow
def test_dates_that_tell_nothing_change_no_list() -> None:
    """Half of the rows take even columns and half odd ones, popular ones more often."""
    numbers = np.random.default_rng(0)
    chances = 3.0 / (np.arange(80) // 2 + 3.0)
    alike = (np.arange(160)[:, None] - np.arange(80)) % 2 == 0
    rows, columns = np.nonzero(numbers.random(alike.shape) < chances * np.where(alike, 0.6, 0.05))
    clicks = ObservedMatrix.from_interactions(rows, columns)
    times = numbers.integers(0, 1000 * DAY, clicks.n_entries)
    plain, dated = (
        Means(presence="full").fit(matrix)
        for matrix in (clicks, clicks.with_extras(Extras(times=times)))
    )
    assert dated.chosen_["rank_by"] == "relevance" and dated.rankers_.following is not None
    labels = clicks.row_labels
    np.testing.assert_array_equal(
        dated.recommend(labels, n=5).labels, plain.recommend(labels, n=5).labels
    )


def make_rankers(recency: Recency | None, **presence: Any) -> Rankers:
    model = Means(presence="full").fit(make_fashions())
    assert model.rankers_.presence is not None
    changed = replace(model.rankers_.presence, **presence)
    return Rankers(model.entries_, changed, "relevance", recency)


@pytest.mark.parametrize("power", [-0.5, 0.5])
def test_a_negative_power_corrects_by_entries_of_any_age(power: float) -> None:
    recency = Recency(20.0 * DAY, int(make_fashions().times.max()), blends=True)  # type: ignore[union-attr]
    rankers = make_rankers(recency, popularity_power=power)
    entries = rankers.entries
    recent, ever = (
        (counts + 0.5) / (len(entries.rows) + 1)
        for counts in (recency.count_entries(entries), entries.column_totals)
    )
    np.testing.assert_allclose(rankers.popularity, recent, rtol=1e-5)
    np.testing.assert_allclose(
        rankers.factors, ((ever if power < 0 else recent) / 0.01) ** power, rtol=1e-5
    )
    assert recent[:10].max() < 0.1 * ever[:10].min() and np.all(recent[10:] > ever[10:])


def test_popularity_is_a_share_of_rows_as_long_as_those_of_training() -> None:
    model = Means(presence="full", rank_by="relevance").fit(make_fashions())
    more = model.extend(ObservedMatrix.from_interactions(range(900, 1000), [3] * 100))
    n_entries = model.entries_.train.n_entries
    n_rows = 200 * (n_entries + 100) / n_entries  # not 300: the new ones have an entry each
    shares = (more.entries_.column_totals + 0.5) / (n_rows + 1)
    np.testing.assert_allclose(Rankers(more.entries_, None, "value").popularity, shares, rtol=1e-6)
    assert shares[3] > (model.entries_.column_totals[3] + 0.5) / 201


@pytest.mark.parametrize("amount", [0.0, 0.5, 3.0])
def test_odds_of_a_column_as_popular_as_that_of_an_entry_keep_their_size(amount: float) -> None:
    rankers = make_rankers(
        None, popularity_share=0.0, popularity_power=-0.3, intercept=-4.0, score_power=1.0
    )
    learned, shares = rankers.presence, rankers.popularity.astype(np.float64)
    usual = float(shares @ shares / shares.sum())  # of the column of a random entry
    model = Means(presence="full").fit(make_fashions())
    request = Request(rank_by="relevance", popularity=amount)
    relevance = rankers.make(model.predictor_, model.entries_.seen_columns, request).relevance
    assert learned is not None and relevance is not None
    scores = np.array([30.0, 60.0, 200.0])
    before, after = (
        presence.log_probabilities(
            presence.add_popularity(scores, usual, presence.raise_popularity(usual))
        )
        for presence in (learned, relevance.presence)
    )
    np.testing.assert_allclose(after, before, rtol=1e-3)
