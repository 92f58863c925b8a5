"""Drift and recency: levels and popularity that move with time are learned, and nothing changes
without dates."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import ALS, Means, ObservedMatrix, OrdinalDMF, Scale, load, split_last
from deepmf.errors import BadSetting
from deepmf.evaluation import evaluate, evaluate_ranking
from deepmf.matrix.extras import NO_TIME, Extras
from deepmf.recommend.presence import Recency
from deepmf.recommend.ranker import Rankers
from deepmf.recommend.request import Request
from deepmf.scoring.drift import Component, DatedResiduals, Drift, Kind, fade_by_age, find_shares
from deepmf.scoring.drift_fit import _Chosen, _find_later_shares, keep_helpful, learn_drift

DAY = 86400
SCALE = Scale(low=-10, high=10)


def make_drifting(n_entries: int = 3000, *, seed: int = 0) -> ObservedMatrix:
    """Return entries whose columns rise or fall by 4 within a year."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(100 * 50)[:n_entries]
    rows, columns = np.divmod(cells, 50)
    days = rng.integers(0, 365, n_entries)
    rising = np.where(columns % 2 == 0, 1.0, -1.0)
    values = rising * 4.0 * (days / 365 - 0.5) + 0.3 * rng.standard_normal(n_entries)
    return ObservedMatrix.from_entries(rows, columns, values, SCALE, times=10**9 + DAY * days)


def split(matrix: ObservedMatrix) -> tuple[ObservedMatrix, ObservedMatrix]:
    held_out = np.arange(matrix.n_entries) % 5 == 0
    return matrix.take_entries(~held_out), matrix.take_entries(held_out)


def test_a_component_is_the_shrunk_mean_near_a_time() -> None:
    rows, columns = np.array([0, 0, 1]), np.array([0, 1, 0])
    times, residuals = np.array([0, 10, 10]), np.array([1.0, 3.0, -5.0])
    component, keys = DatedResiduals(rows, columns, times, residuals, None).build(Kind("row", 10.0))
    component = component._replace(shrinkage=2.0)
    found = component.evaluate(
        np.array([0, 0, 1, 0, 2, 0]), np.zeros(6, int), np.array([0, 10, 10, 1000, 0, NO_TIME])
    )
    expected = [(1 + 3 / 2) / (1.5 + 2), (3 + 1 / 2) / (1.5 + 2), -5 / 3, 0.0, 0.0, 0.0]
    assert np.allclose(found, expected)
    assert np.array_equal(
        component.evaluate_keys(2.0)[keys], component.evaluate(rows, columns, times)
    )


def test_weights_count_in_a_component() -> None:
    rows = columns = np.array([0, 0])
    component, _ = DatedResiduals(
        rows, columns, np.array([0, 1]), np.array([1.0, 4.0]), np.array([1, 2])
    ).build(Kind("row", 10.0))
    at = np.array([0])
    assert component._replace(shrinkage=1.0).evaluate(at, at, at)[0] == pytest.approx(9 / 4)


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_least_squares_between_0_and_1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns, times = np.arange(40) % 8, np.arange(40) % 5, 100 * np.arange(40)
    kinds: Any = [
        ("row", 400.0),
        ("row", 1600.0),
        ("column", 1600.0),
        ("column", 400.0),
        ("row", 1601.0),
    ]
    components = [
        DatedResiduals(rows, columns, times, rng.normal(size=40), None)
        .build(Kind(*kind))[0]
        ._replace(shrinkage=1.0)
        for kind in kinds
    ]
    parts = np.column_stack([each.evaluate(rows, columns, times) for each in components])
    residuals = parts @ rng.normal(0.5, 1.0, 5) + 0.1 * rng.normal(size=40)
    shares = find_shares(components, residuals, rows, columns, times)
    # At the minimum no share can move, within its bounds, down the slope of the squares.
    slopes = parts.T @ (parts @ shares - residuals)
    assert np.all((shares >= 0) & (shares <= 1))
    assert np.all(
        (np.abs(slopes) < 1e-6) | ((shares == 0) & (slopes > 0)) | ((shares == 1) & (slopes < 0))
    )


def make_drift(group: Any, halvings: float, shares: tuple[float, float, float]) -> Drift:
    """Return a drift whose single component is 3 in a very wide bin of row 0, or of column 0,
    ending at 10 DAY."""
    component = Component(
        group, 1e12, -(10**11), 1, np.array([0]), np.array([6.0]), np.ones(1), 1.0, halvings
    )
    return Drift(
        (component,),
        np.array(shares)[:, None],
        10 * DAY,
        ends=np.array([10 * DAY]),
        column_means=np.zeros(1),
    )


@pytest.mark.parametrize(
    "group, halvings, shares, expected",
    [
        ("row", 0.0, (0.9, 0.5, 0.2), [0.9, 0.5, 0.5, 0.2]),
        # columns know no day after a row's entries
        ("column", 0.0, (0.9, 0.5, 0.2), [0.9, 0.2, 0.2, 0.2]),
        ("row", 3.0, (0.0, 0.5, 0.8), [0.0, 0.5, 0.5, 0.8]),
    ],
)
def test_shares_depend_on_the_last_entries(
    group: Any, halvings: float, shares: Any, expected: list[float]
) -> None:
    times = 10 * DAY + np.array([-1, 0, DAY - 1, DAY])
    nothing = np.zeros(4, dtype=int)
    found = make_drift(group, halvings, shares).evaluate(nothing, nothing, times)
    assert np.allclose(found, 3 * np.array(expected))


@pytest.mark.parametrize("size", [-9.0, 0.1, 0.8, 5.0])
def test_the_fading_share_is_shrunk_to_that_of_the_means(size: float) -> None:
    """The share is least squares on the residuals and, with weight 100, on residuals that the means
    explain wholly."""
    times = 10 * DAY + np.arange(-5, 20)
    nothing, after = np.zeros(25, dtype=int), times >= 10 * DAY
    residuals = size + np.random.default_rng(0).normal(size=25)
    joined = make_drift("row", 3.0, (0.0, 0.5, 0.8)).join(residuals, nothing, nothing, times)
    fading = np.where(after, 3 * 0.5, 0.0)
    squares = np.sum(fading**2)
    kept = (fading @ residuals + 100 * squares / 20) / (squares + 100 * squares / 20)
    assert joined.shares[:, 0].tolist() == pytest.approx(
        [0.0, 0.5 * np.clip(kept, 0, 1), 0.8 * np.clip(kept, 0, 1)]
    )


def test_after_known_entries_a_steady_component_has_at_most_its_share_between_them() -> None:
    times, nothing = 10 * DAY + np.arange(-20, 0), np.zeros(20, dtype=int)
    joined = make_drift("row", 0.0, (1.0, 0.5, 0.1)).join(
        np.full(20, 3 * 0.3), nothing, nothing, times
    )
    assert joined.shares[:, 0].tolist() == pytest.approx([0.3, 0.3, 0.1])


def test_later_shares_leave_out_the_day_after_the_entries_of_a_row() -> None:
    rng, cut = np.random.default_rng(0), 100 * DAY
    # Rows 0 to 59 go on within a day, in the same mood; rows 60 to 79 two days in a row, in the
    # opposite one.
    rows, place = np.repeat(np.arange(80), 10), np.tile(np.arange(10), 80)
    moods, is_late = np.where(rng.random(80) < 0.5, 2.0, -2.0), (place >= 8) & (rows >= 60)
    times = np.select(
        [place < 4, place < 8, place == 8], [0, cut - 1, cut + 10], default=cut + DAY + 5
    )
    times[is_late] = cut - 1 + DAY * (place[is_late] - 7)
    values = np.where(place < 4, 0.0, moods[rows] * np.where(is_late, -1, 1))
    matrix = ObservedMatrix.from_entries(rows, (rows + place) % 30, values, SCALE, times=times)
    chosen = [_Chosen(Kind("row", 10.0 * DAY), 1.0)]
    assert _find_later_shares(chosen, matrix, np.arange(800))[0] == 0
    values[is_late] *= -1
    matrix = ObservedMatrix.from_entries(rows, (rows + place) % 30, values, SCALE, times=times)
    assert _find_later_shares(chosen, matrix, np.arange(800))[0] > 0.5


def test_residuals_fade_by_age_times_their_weights() -> None:
    moods = make_moods()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, moods.n_entries)
    drift = learn_drift(moods.with_extras(moods.extras._replace(weights=weights)))
    assert drift is not None and moods.times is not None
    fading = drift.components[-1]
    by_age = fade_by_age(moods.times, moods.entry_rows, fading.halvings)
    assert np.allclose(fading.counts, np.bincount(moods.entry_rows, by_age * weights), rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda times: Means(times=times),
        lambda times: ALS(latent_size=2, epochs=4, times=times),
        pytest.param(
            lambda times: OrdinalDMF(
                hidden_sizes=(16,),
                latent_size=4,
                epochs=8,
                views=2,
                bins=8,
                linear_iterations=4,
                device="cpu",
                times=times,
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["means", "als", "dmf-o"],
)
def test_models_follow_columns_that_move(make: Any) -> None:
    train, test = split(make_drifting())
    static, moving = make(None).fit(train), make("auto").fit(train)
    assert evaluate(moving, test)[-1].rmse < 0.8 * evaluate(static, test)[-1].rmse
    before, after = (moving.predict([0], [0], at=10**9 + day * DAY)[0] for day in (20, 345))
    assert after > before + 1


@pytest.fixture(scope="module")
def ordinal() -> OrdinalDMF:
    """A model of levels that drift; its predictions have distributions."""
    matrix = make_drifting()
    rows, columns, values = matrix.entries()
    levels = np.clip(np.round(values + 3), 1, 5)
    drifting = ObservedMatrix.from_entries(
        rows, columns, levels, Scale(levels=[1, 2, 3, 4, 5]), times=matrix.times
    )
    settings: dict[str, Any] = {
        "hidden_sizes": (8,),
        "latent_size": 4,
        "epochs": 3,
        "views": 2,
        "device": "cpu",
    }
    model = OrdinalDMF(**settings, linear_iterations=4, times="auto").fit(drifting)
    assert model.has_drift
    return model


@pytest.mark.parametrize(
    "at", [None, 10**9, [10**9, 10**9 + 300 * DAY, 10**9 + 100 * DAY]], ids=["now", "one", "each"]
)
def test_distributions_drift_as_predictions_do(ordinal: OrdinalDMF, at: Any) -> None:
    pairs = [0, 1, 2], [0, 1, 2]
    predicted, found = ordinal.predict(*pairs, at=at), ordinal.predict_distribution(*pairs, at=at)
    assert np.allclose(found @ ordinal.support_, predicted, atol=0.01 * 4 + 1e-6)
    assert np.allclose(found.sum(axis=1), 1)
    assert np.array_equal(ordinal.scores(*pairs, at=at), predicted)
    lower, upper = ordinal.predict_interval(*pairs, at=at)
    assert np.all((lower <= predicted + 0.5) & (predicted - 0.5 <= upper))
    median = ordinal.support_[(np.cumsum(found, axis=1) < 0.5).sum(axis=1)]
    assert np.array_equal(ordinal.predict_levels(*pairs, at=at, metric="mae"), median)


def test_unknown_pairs_drift_too(ordinal: OrdinalDMF) -> None:
    early, late = (
        ordinal.predict_distribution([0, 999], [0, 0], at=10**9 + day * DAY, unknown="fallback")
        @ ordinal.support_
        for day in (20, 345)
    )
    assert np.all(late > early + 0.5)


def test_a_completion_is_what_is_predicted(ordinal: OrdinalDMF) -> None:
    whole = ordinal.complete(at=10**9)
    rows, columns = np.nonzero(np.isnan(ordinal.entries_.train.to_array()))
    labels = ordinal.row_labels_[rows], ordinal.column_labels_[columns]
    assert np.allclose(whole[rows, columns], ordinal.predict(*labels, at=10**9))
    assert not np.allclose(whole, ordinal.complete(at=10**9 + 300 * DAY))
    assert np.array_equal(
        ordinal.complete_frame(at=10**9)["value"].to_numpy(), whole[rows, columns]
    )


@pytest.mark.parametrize("rank_by", ["value", "relevance"])
def test_recommended_values_are_predictions(ordinal: OrdinalDMF, rank_by: Any) -> None:
    at = 10**9 + 100 * DAY
    best = ordinal.recommend([0, 1], 5, rank_by=rank_by, at=at)
    pairs = np.repeat([0, 1], 5), best.labels.ravel()
    assert np.allclose(best.values.ravel(), ordinal.predict(*pairs, at=at))
    assert best.distribution is not None
    assert np.allclose(
        best.distribution.reshape(10, 5), ordinal.predict_distribution(*pairs, at=at)
    )
    folded = ordinal.fold_in([3, 4], [5, 1])
    some = folded.recommend(5, rank_by=rank_by, at=at)
    assert np.allclose(some.values, folded.predict(some.labels, at=at))
    if rank_by == "value":
        whole = ordinal.complete(at=at)[:2]
        whole[~np.isnan(ordinal.entries_.train.to_array()[:2])] = -np.inf
        assert np.allclose(best.values, -np.sort(-whole, axis=1)[:, :5])


def test_the_probability_of_liking_is_that_of_the_distribution_then(ordinal: OrdinalDMF) -> None:
    rows = np.array([0, 1])
    for asked in (ordinal, ordinal.fold_in([3, 4], [5, 1])):
        likings = {}
        for at in (10**9, 10**9 + 300 * DAY):
            options: dict[str, Any] = {"rank_by": "relevance", "relevant": 4, "at": at}
            best = (
                asked.recommend(5, **options)
                if asked is not ordinal
                else ordinal.recommend(rows, 5, **options)
            )
            assert best.distribution is not None
            assert best.liked is not None
            assert np.allclose(best.liked, best.distribution[..., 3:].sum(axis=-1), atol=1e-6)
            likings[at] = dict(
                zip(best.labels.ravel().tolist(), best.liked.ravel().tolist(), strict=True)
            )
        early, late = likings.values()
        assert (
            any(early[label] != late[label] for label in early.keys() & late.keys())
            or early.keys() != late.keys()
        )


def test_columns_that_rise_are_liked_more_later() -> None:
    model = Means(times="auto", presence="full").fit(make_drifting())
    orders, ranks = [], []
    for day in (20, 345):
        ranker = model.make_ranker(Request(rank_by="relevance", relevant=1.0, at=10**9 + day * DAY))
        keys = ranker.rank_block(np.arange(3), slice(0, 50))
        columns = np.tile(np.arange(50), (3, 1))
        chances = ranker.read(np.arange(3), columns, keys)
        assert chances.liked is not None
        assert chances.presence is not None
        orders.append(chances.liked)
        ranks.append(keys)
        assert np.allclose(chances.presence, ranker.relevance.read_presence(np.arange(3), columns))
    assert np.all((orders[1] > orders[0])[:, ::2])
    assert np.all((orders[1] < orders[0])[:, 1::2])
    # the order by relevance does not move with liking or with times that say nothing
    assert np.array_equal(*ranks)


def test_folded_rows_drift_in_all_they_predict(ordinal: OrdinalDMF) -> None:
    folded = ordinal.fold_in([3, 4], [5, 1])
    for at in (10**9, 10**9 + 300 * DAY):
        predicted = folded.predict([0, 1], at=at)
        assert np.allclose(
            folded.predict_distribution([0, 1], at=at) @ ordinal.support_, predicted, atol=0.05
        )
        assert np.array_equal(folded.predict_levels([0, 1], at=at), np.floor(predicted + 0.5))
        assert np.all(folded.predict_interval([0, 1], at=at).lower <= predicted + 0.5)


def test_nothing_changes_without_dates_or_without_asking() -> None:
    matrix = make_drifting(400)
    undated = ObservedMatrix.from_entries(*matrix.entries(), SCALE)
    rows, columns, _ = matrix.entries()
    expected = ALS(latent_size=2, epochs=3).fit(undated).predict(rows, columns)
    assert np.array_equal(ALS(latent_size=2, epochs=3).fit(matrix).predict(rows, columns), expected)
    asked = ALS(latent_size=2, epochs=3, times="auto").fit(undated)
    assert not asked.has_drift
    assert np.array_equal(asked.predict(rows, columns, at="2020-01-01"), expected)


def test_a_time_is_refused_by_a_model_without_times() -> None:
    matrix = make_drifting(400)
    for ask in (
        lambda m: m.predict([0], [0], at="2020-01-01"),
        lambda m: m.recommend(0, at="2020-01-01"),
    ):
        with pytest.raises(BadSetting, match="times"):
            ask(Means().fit(matrix))
    model = Means(times="auto").fit(matrix)
    for wrong in ("soon", [1, 2], "12345"):
        with pytest.raises(ValueError, match=r"date|time"):
            model.predict([0], [0], at=wrong)
    assert np.array_equal(
        model.predict([0, 1], [0, 1], at=[10**9, 10**9 + DAY]),
        [model.predict([0], [0], at=10**9)[0], model.predict([1], [1], at=10**9 + DAY)[0]],
    )


def test_random_dates_teach_nothing_much() -> None:
    rng = np.random.default_rng(0)
    matrix = make_drifting(2000)
    shuffled = matrix.with_extras(matrix.extras._replace(times=rng.permutation(matrix.times)))  # type: ignore[arg-type]
    train, test = split(shuffled)
    with_dates, without = Means(times="auto").fit(train), Means().fit(train)
    assert evaluate(with_dates, test)[-1].rmse < 1.02 * evaluate(without, test)[-1].rmse


@pytest.mark.parametrize("times", [np.full(6, 5), np.full(6, NO_TIME)], ids=["constant", "none"])
def test_times_that_say_nothing_give_no_drift(times: Any) -> None:
    given = [None if time == NO_TIME else time for time in times.tolist()]
    matrix = ObservedMatrix.from_entries(
        [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], range(6), SCALE, times=given
    )
    assert learn_drift(matrix) is None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for settings in ({}, {"times": "auto"}):
            assert not Means(**settings).fit(matrix).has_drift
    assert ["1970-01-01T00:00:05Z" in str(each.message) for each in caught] == (
        [True] if times[0] == 5 else []
    )


def test_a_stored_model_drifts_alike(tmp_path: Path) -> None:
    matrix = make_drifting()
    model = Means(times="auto", presence="full").fit(matrix)
    assert model.has_drift
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    rows, columns, _ = matrix.entries()
    assert np.array_equal(
        again.predict(rows, columns, at=10**9), model.predict(rows, columns, at=10**9)
    )
    assert again.recommend(0).labels.tolist() == model.recommend(0).labels.tolist()
    more = ObservedMatrix.from_entries([999], [0], [1.0], SCALE, times=[2 * 10**9])
    extended = again.extend(more)
    assert extended.has_drift
    folded = again.fold_in([0], [1.0])
    assert np.array_equal(
        folded.predict([1, 2], at=10**9), extended.predict([999, 999], [1, 2], at=10**9)
    )
    assert folded.recommend(3, at=10**9).labels.size == 3
    assert np.isfinite(extended.predict([999, 0], [1, 1], at=10**9)).all()


def make_moods(n_rows: int = 80) -> ObservedMatrix:
    """Return rows of 20 entries within an hour of their own day; even rows rise by 4 meanwhile, odd
    ones fall."""
    rng = np.random.default_rng(0)
    rows, place = np.repeat(np.arange(n_rows), 20), np.tile(np.arange(20), n_rows)
    columns = np.concatenate([rng.permutation(40)[:20] for _ in range(n_rows)])
    values = np.where(rows % 2 == 0, 1.0, -1.0) * (place / 5 - 2) + 0.3 * rng.standard_normal(
        rows.size
    )
    times = 10**9 + DAY * rng.integers(0, 365, n_rows)[rows] + 180 * place
    return ObservedMatrix.from_entries(rows, columns, values, SCALE, times=times)


@pytest.mark.slow
@pytest.mark.parametrize("with_validation", [True, False])
def test_recent_entries_of_a_row_say_how_it_goes_on(with_validation: bool) -> None:
    parts = split_last(make_moods(), n=2, validation=2)
    validation = parts.validation if with_validation else None
    moving, static = (Means(times=times).fit(parts.train, validation) for times in ("auto", None))
    assert evaluate(moving, parts.test)[-1].rmse < 0.9 * evaluate(static, parts.test)[-1].rmse
    drift = moving.predictor_.drift
    assert drift is not None
    later = drift.ends[:2] + 100 * DAY
    assert np.allclose(
        moving.predict([0, 1], [0, 0], at=later), static.predict([0, 1], [0, 0]), atol=0.2
    )


def test_recent_entries_of_a_folded_row_count() -> None:
    train = split_last(make_moods(), n=2, validation=0).train
    model = Means(times="auto").fit(train)
    place = np.arange(18)
    times = 10**9 + 400 * DAY + 180 * place
    values = place / 5 - 2

    def predict(values: Any, times: Any) -> float:
        return float(
            model.fold_in(place, values, times=times).predict(
                [30], at=10**9 + 400 * DAY + 180 * 17
            )[0]
        )

    rising, falling = predict(values, times), predict(-values, times)
    assert rising > predict(values, None) + 0.3
    assert falling < predict(-values, None) - 0.3
    assert rising > falling
    extended, end = model, int(times[-1])
    for row, sign, age in ((997, -1, 90 * DAY), (998, -1, 0), (999, 1, 0)):
        extended = extended.extend(
            ObservedMatrix.from_entries([row] * 18, place, sign * values, SCALE, times=times - age)
        )
    assert np.allclose(extended.predict([999, 998], [30, 30], at=end), [rising, falling])
    left = extended.forget(rows=[997, 998])
    assert left.predict([999], [30], at=end)[0] == pytest.approx(rising)
    for other in (extended, left):
        assert np.array_equal(other.predict([0], [30], at=end), model.predict([0], [30], at=end))
    both = model.fold_in_many([(place, values, times), (place, -values, times), ([1], [0.0], None)])
    assert np.allclose(both.predict([30], at=int(times[-1]))[:2, 0], [rising, falling])
    assert np.allclose(
        [both.row(k).predict([30], at=int(times[-1]))[0] for k in (0, 1)], [rising, falling]
    )


def test_ages_are_relative_to_the_span_of_a_row() -> None:
    times, rows = np.array([0, 50, 100, 7, 7]), np.array([0, 0, 0, 2, 2])
    assert np.allclose(fade_by_age(times, rows, 4.0), [1 / 16, 1 / 4, 1, 1, 1])


def make_fashions() -> ObservedMatrix:
    """Return entries of rows that take columns 0 to 9 in the first half of a year and 10 to 19 in
    the second."""
    rng = np.random.default_rng(0)
    rows, columns, times = [], [], []
    for row in range(200):
        day = int(rng.integers(0, 360))
        for column in rng.permutation(10)[:4].tolist():
            rows.append(row)
            columns.append(column + (10 if day >= 180 else 0))
            times.append(10**9 + DAY * day)
    return ObservedMatrix.from_interactions(rows, columns, times=times)


def test_popularity_follows_fashion() -> None:
    clicks = make_fashions()
    model = Means().fit(clicks)
    assert model.rankers_.recency is not None and model.rankers_.recency.half_life < 240 * DAY
    shuffled = np.random.default_rng(1).permutation(clicks.times)
    noise = Means().fit(clicks.with_extras(clicks.extras._replace(times=shuffled)))
    assert noise.rankers_.recency is None
    empty = model.fold_in([0]).recommend(3, include_observed=True).labels
    assert empty.size == 3
    later, before = (model.rankers_.find_recent(at) for at in (None, 10**9))
    assert later[10:].min() > later[:10].max()
    assert before[:10].min() > before[10:].max()
    assert model.recommend(0, at=10**9).labels.size == 10


def test_a_negative_power_of_popularity_counts_entries_of_any_age() -> None:
    rankers = Means(times="auto").fit(make_fashions()).rankers_
    assert rankers.presence is not None
    for power in (-0.3, 0.3):
        presence = replace(rankers.presence, popularity_power=power)
        blending = Recency(30.0 * DAY, 0, blends=True)
        recent, static = (
            Rankers(rankers.entries, presence, "relevance", each) for each in (blending, None)
        )
        assert np.array_equal(recent.factors, static.factors) == (power < 0)


def make_months(*, shuffled: bool) -> ObservedMatrix:
    """Return rows that take a column of the month about ten times in a year; shuffled: at times
    that mean nothing."""
    rng = np.random.default_rng(0)
    rows, days = np.repeat(np.arange(250), 10), rng.integers(0, 360, 2500)
    columns = 12 * rng.integers(0, 8, 2500) + days // 30
    times = 10**9 + DAY * (rng.permutation(days) if shuffled else days)
    return ObservedMatrix.from_interactions(rows, columns, times=times)


@pytest.mark.slow
@pytest.mark.parametrize("shuffled", [False, True])
def test_times_are_used_where_they_rank_last_entries_better(shuffled: bool) -> None:
    parts = split_last(make_months(shuffled=shuffled), n=1, validation=0)
    dated = Means(presence="full").fit(parts.train)
    undated = Means(presence="full").fit(parts.train.with_extras(Extras()))
    blends = dated.rankers_.recency is not None and dated.rankers_.recency.blends
    assert blends == (not shuffled) and dated.chosen_["rank_by"] == "relevance"
    found, without = (evaluate_ranking(each, parts.test).model.ndcg for each in (dated, undated))
    assert found == without if shuffled else found > 2 * without


@pytest.mark.slow
@pytest.mark.parametrize("rank_by", ["value", "relevance"])
def test_each_row_of_a_block_can_have_a_time_of_its_own(rank_by: Any) -> None:
    matrix = make_drifting()
    model = Means(times="auto", presence="full").fit(matrix)
    fitted = model._fitted
    assert fitted is not None
    parts: dict[str, Any] = {**fitted.parts, "recency": Recency(30.0 * DAY, 0, blends=True)}
    parts["presence"] = replace(parts["presence"], popularity_share=1.0, popularity_power=0.2)
    model._fitted = replace(fitted, parts=parts)
    model = model.extend(
        ObservedMatrix.from_entries([998], [0], [1.0], SCALE, times=[10**9 + 500 * DAY])
    )
    model = model.forget(entries=([998], [0]))  # an empty row
    rows, times = np.array([0, 1, 2, 3, 100]), 10**9 + DAY * np.array([345, 20, 20, 800, 100])
    ranker = model.make_ranker(Request(rank_by=rank_by), times=times)
    keys = ranker.rank_block(rows, slice(3, 40))
    for row, time, own in zip(rows, times.tolist(), keys, strict=True):
        expected = model.make_ranker(Request(rank_by=rank_by, at=time)).rank_block(
            np.array([row]), slice(3, 40)
        )
        assert np.allclose(own, expected[0], rtol=1e-5)
    assert not np.allclose(
        keys[1],
        model.make_ranker(Request(rank_by=rank_by, at=times[0])).rank_block(
            rows[1:2], slice(3, 40)
        )[0],
    )


def test_an_evaluation_makes_a_ranker_for_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = split(make_drifting())
    model, made = Means(times="auto", presence="full").fit(train), []
    make_ranker = Means.make_ranker

    def count(*arguments: Any, **options: Any) -> Any:
        made.append(options)
        return make_ranker(*arguments, **options)

    monkeypatch.setattr(Means, "make_ranker", count)
    evaluate_ranking(model, test, relevant=0.0)
    assert len(made) <= 2


def test_entries_count_by_their_age_at_each_of_several_times() -> None:
    entries, recency = Means(times="auto").fit(make_fashions()).entries_, Recency(25.0 * DAY, 0)
    times, columns = entries.train.times, entries.train.by_row.columns
    assert times is not None
    # far from all entries as at the nearest one
    asked = 10**9 + DAY * np.array([300, 10, 10, 111, -9999, 9999])
    ages = np.abs(np.clip(asked, times.min(), times.max())[:, None] - times) / DAY
    sums = np.array([np.bincount(columns, np.exp2(-own / 25), minlength=20) for own in ages])
    expected = sums * (times.size / sums.sum(axis=1, keepdims=True))
    assert np.allclose(recency.count_entries(entries, asked), expected)
    assert np.allclose(recency.count_entries(entries, int(asked[0])), expected[0])


def test_ages_of_added_entries_count() -> None:
    model = Means(times="auto").fit(make_fashions())
    times = [10**9 + 800 * DAY] * 5
    more = model.extend(ObservedMatrix.from_interactions(range(900, 905), [0] * 5, times=times))
    counts = Recency(30.0 * DAY, 0).count_entries(more.entries_)
    assert counts.argmax() == 0
    assert counts.sum() == pytest.approx(more.entries_.n_entries)


def test_dates_do_not_move_later_predictions_that_they_helped_once_by_chance() -> None:
    """Columns change their level after every two of ten periods, also after the last one."""
    rng = np.random.default_rng(0)
    period, columns = np.repeat(np.arange(10), 400), rng.integers(0, 20, 4000)
    signs = np.where(period // 2 % 2 == 0, 1, -1)
    rows = np.tile(np.arange(400), 10)  # entries of a row are 36 days apart
    values = signs * np.where(columns % 2 == 0, 2.0, -2.0) + 0.5 * rng.standard_normal(4000)
    times = 10**9 + DAY * (36 * period + rng.integers(0, 30, 4000))
    train = ObservedMatrix.from_entries(
        rows, columns, values, SCALE, times=times, duplicates="latest"
    )
    dated, plain = Means(times="auto", presence=None), Means(presence=None)
    dated.fit(train), plain.fit(train)
    assert dated.has_drift  # which helps between known entries
    later = int(times.max()) + 5 * DAY
    np.testing.assert_array_equal(
        dated.predict([0, 1, 2], [0, 1, 2], at=later), plain.predict([0, 1, 2], [0, 1, 2])
    )


@pytest.mark.parametrize("n_entries", [10, 400])
@pytest.mark.parametrize("helps", [False, True])
def test_held_out_entries_that_are_later_decide_whether_drift_is_used_later(
    n_entries: int, helps: bool
) -> None:
    matrix = make_drifting()
    drift = learn_drift(matrix)
    assert drift is not None
    drift = replace(drift, shares=np.ones_like(drift.shares))
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 100, n_entries), rng.integers(0, 50, n_entries)
    times = np.full(n_entries, drift.latest + 2 * DAY)
    moves = drift.evaluate(rows, columns, times)
    assert np.abs(moves).mean() > 0.5
    residuals = moves if helps else rng.permutation(moves)
    left = DatedResiduals(rows, columns, times, residuals, None)
    shares = keep_helpful(drift, left).shares
    assert np.array_equal(shares[:2], drift.shares[:2])  # nothing is known about other times
    of_columns = [component.group == "column" for component in drift.components]
    assert shares[2, of_columns].all() == (helps or n_entries == 10)
