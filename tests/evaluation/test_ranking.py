"""Ranking: against a plain restatement row by row, and on matrices whose answer is known."""

import math
from typing import Any

import numpy as np
import pytest

from deepmf.data import Split, split_areas, split_entries, split_rows
from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadSetting, CannotExtend, UnknownLabel
from deepmf.evaluation.ranking import ROW_METRICS, evaluate_ranking
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import score_lists
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.means import Means
from deepmf.models.paper.low_rank import OptSpace
from deepmf.recommend import ranking

HALF_STARS = np.arange(0.5, 5.5, 0.5)


@pytest.fixture(scope="module")
def split() -> Split:
    matrix = generate(50, 30, density=0.4, levels=HALF_STARS, seed=0).matrix
    return split_entries(matrix, train=0.6, validation=0.0, test=0.4, seed=0)


@pytest.fixture(scope="module")
def model(split: Split) -> Model:
    return ALS(latent_size=3, epochs=3).fit(split.train)


def restated(
    model: Model, test: ObservedMatrix, scores: Any, *, n: int, level: float
) -> dict[str, float]:
    """Return the scores of the lists by the whole matrix of scores at once."""
    rows, columns, values = test.entries()
    relevant = np.zeros(scores.shape, dtype=bool)
    good = values >= level
    relevant[
        model.entries_.rows.positions(rows[good]), model.entries_.columns.positions(columns[good])
    ] = True
    known, others, _ = model.entries_.train.entries()
    scores[model.entries_.rows.positions(known), model.entries_.columns.positions(others)] = -np.inf
    counted = relevant.any(axis=1)
    best = np.argsort(-scores[counted], axis=1, kind="stable")[:, :n]
    hits = np.take_along_axis(relevant[counted], best, axis=1)
    found = score_lists(hits, relevant[counted].sum(axis=1), n=n)._asdict()
    return {name: float(values.mean()) for name, values in found.items()}


@pytest.mark.parametrize(("n", "level"), [(1, 4.5), (5, 3.5), (10, 4.0), (1000, 0.5)])
def test_scores_are_those_of_the_whole_matrix(
    split: Split, model: Model, monkeypatch: pytest.MonkeyPatch, n: int, level: float
) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", 200)  # a few rows at a time
    found = evaluate_ranking(model, split.test, n=n, relevant=level, rank_by="value")
    every = np.arange(len(model.row_labels_)), np.arange(len(model.column_labels_))
    scores = model.predictor_.score_block(*every).astype(float)
    expected = restated(model, split.test, scores, n=n, level=level)
    assert {name: getattr(found.model, name) for name in ROW_METRICS} == pytest.approx(expected)
    popular = np.tile(split.train.column_counts.astype(float), (len(model.row_labels_), 1))
    expected = restated(model, split.test, popular, n=n, level=level)
    assert {name: getattr(found.popularity, name) for name in ROW_METRICS} == pytest.approx(
        expected
    )
    rows, _, values = split.test.entries()
    n_rows = np.unique(rows[values >= level]).size
    assert (found.n_rows, found.n_without) == (n_rows, np.unique(rows).size - n_rows)
    assert found.n_relevant == np.count_nonzero(values >= level)
    assert (found.n, found.relevant, found.n_not_drawn) == (n, level, 0)


def list_liked(test: ObservedMatrix, level: float = 4) -> set[tuple[Any, Any]]:
    """Return the pairs of a test whose values are relevant."""
    rows, columns, values = test.entries()
    are_relevant = values >= level
    return set(zip(rows[are_relevant].tolist(), columns[are_relevant].tolist(), strict=True))


@pytest.mark.parametrize("n", [3, 25])  # of 30 columns, of which some are left out
@pytest.mark.parametrize("quantile", [0.0, 0.5])
def test_the_first_columns_are_those_of_recommend(
    split: Split, model: Model, n: int, quantile: float
) -> None:
    counts = split.train.column_counts
    least = int(quantile * np.median(counts) * 2)
    found = evaluate_ranking(model, split.test, n=n, relevant=4, min_entries=least)
    liked = list_liked(split.test)
    users = sorted({row for row, _ in liked})
    best = [
        model.recommend(row, n=n, min_entries=least, relevant=4).labels.tolist() for row in users
    ]
    n_found = np.array(
        [
            sum((row, column) in liked for column in columns)
            for row, columns in zip(users, best, strict=True)
        ]
    )
    n_liked = np.array([sum(row == user for row, _ in liked) for user in users])
    assert found.model.precision == pytest.approx((n_found / n).mean())
    margin = (n_found / n).std(ddof=1) / math.sqrt(len(users))
    assert found.model.margins["precision"] == pytest.approx(margin)
    assert found.model.hit_rate == pytest.approx(np.mean(n_found > 0))
    # of all, those left out too
    assert found.model.recall == pytest.approx((n_found / n_liked).mean())
    assert found.popularity.recall <= 1 - np.mean(counts < least) / 2
    assert (found.min_entries, found.n_relevant) == (least, len(liked))


def test_what_is_known_by_construction() -> None:
    # "a" is the most popular and "d" the least; of what bob has not seen he likes "d" alone.
    train = ObservedMatrix.from_entries(
        ["u", "v", "w", "bob", "u", "v", "w", "u", "v", "u"],
        ["a", "a", "a", "a", "b", "b", "b", "c", "c", "d"],
        [1, 1, 1, 5, 1, 1, 1, 1, 1, 5],
    )
    test = ObservedMatrix.from_entries(["bob", "bob", "w"], ["d", "c", "c"], [5, 1, 1], train.scale)
    found = evaluate_ranking(Means().fit(train), test, n=2, relevant=5)
    assert (found.n_rows, found.n_without, found.n_relevant) == (1, 1, 1)
    model, popularity = found.model, found.popularity
    metrics = ("precision", "recall", "ndcg", "hit_rate")
    assert [getattr(model, name) for name in metrics] == [0.5, 1, 1, 1]  # d comes first
    assert [getattr(popularity, name) for name in metrics] == [0, 0, 0, 0]  # b and c
    assert model.margins["ndcg"] is None
    third = evaluate_ranking(Means().fit(train), test, n=3, relevant=5).popularity
    assert (third.recall, third.ndcg) == (1, pytest.approx(0.5))  # in the third place: 1 / log2(4)


def test_ties_go_to_the_column_that_came_first() -> None:
    train = ObservedMatrix.from_entries(
        ["u", "u", "u", "bob"], ["a", "b", "c", "z"], [3, 3, 3, 3], Scale([3])
    )
    model = Means().fit(train)
    for column, hit in (("a", 1.0), ("b", 0.0), ("c", 0.0)):
        test = ObservedMatrix.from_entries(["bob"], [column], [3], train.scale)
        found = evaluate_ranking(model, test, n=1, relevant=3)
        assert (found.model.hit_rate, found.popularity.hit_rate) == (hit, hit)


def test_candidates_are_what_the_model_has_not_seen_by_extension_either() -> None:
    areas = split_areas(
        generate(40, 20, density=0.5, seed=0).matrix, new_rows=0.3, new_columns=0.3, seed=0
    )
    model = Means().fit(areas.train).extend(areas.extension)
    found = evaluate_ranking(model, areas.test["II"], n=1000, relevant=1)
    assert found.model.recall == 1  # every test entry was a candidate
    both = ObservedMatrix.from_entries(
        *(
            np.concatenate(pair)
            for pair in zip(areas.test["II"].entries(), areas.train.entries(), strict=True)
        ),
        areas.train.scale,
    )
    # entries that were seen are no candidates
    seen = evaluate_ranking(model, both, n=1000, relevant=1)
    assert (seen.n_relevant, seen.model.recall) == (areas.test["II"].n_entries, 1)


def test_rows_drawn_at_random(split: Split, model: Model) -> None:
    whole = evaluate_ranking(model, split.test, relevant=3)
    some = evaluate_ranking(model, split.test, relevant=3, most_rows=10, seed=1)
    assert (some.n_rows, some.n_not_drawn) == (10, whole.n_rows - 10)
    assert some == evaluate_ranking(model, split.test, relevant=3, most_rows=10, seed=1)
    assert evaluate_ranking(model, split.test, relevant=3, most_rows=10**6) == whole


def test_bad_input(split: Split, model: Model) -> None:
    for wrong in (6, 0.4, math.nan):
        with pytest.raises(BadSetting, match="relevant"):
            evaluate_ranking(model, split.test, relevant=wrong)
    with pytest.raises(BadSetting, match="good"):
        evaluate_ranking(model, split.test, relevant="good")  # type: ignore[arg-type]
    for name in ("n", "min_entries"):
        with pytest.raises(BadSetting, match=f"^{name} "):
            evaluate_ranking(model, split.test, **{name: -1})  # type: ignore[arg-type]
    low = split.test.take_entries(split.test.values < 2)
    with pytest.raises(BadEntries, match="5"):
        evaluate_ranking(model, low, relevant=5)
    with pytest.raises(BadEntries, match="seen"):
        evaluate_ranking(model, split.train, relevant=4)


def test_unknown_rows_and_columns(split: Split, model: Model) -> None:
    rows, columns, values = split.test.entries()
    test = ObservedMatrix.from_entries(
        [*rows, "nobody"], [*columns, columns[0]], [*values, 5.0], split.test.scale
    )
    with pytest.raises(UnknownLabel, match="nobody"):
        evaluate_ranking(model, test)
    assert evaluate_ranking(model, test, unknown="nan") == evaluate_ranking(model, split.test)


def test_coverage_and_novelty_are_those_of_what_is_recommended(split: Split, model: Model) -> None:
    found = evaluate_ranking(model, split.test, n=3, relevant=4).model
    rows, _, values = split.test.entries()
    best = model.recommend(np.unique(rows[values >= 4]), n=3, relevant=4).labels
    distinct, counts = np.unique(best, return_counts=True)
    assert (found.n_distinct, found.coverage) == (
        distinct.size,
        distinct.size / len(model.column_labels_),
    )
    popularity = split.train.column_counts[split.train.columns.positions(distinct)] / len(
        model.row_labels_
    )
    assert found.novelty == pytest.approx(np.average(-np.log2(popularity), weights=counts))
    by_value = evaluate_ranking(model, split.test, n=3, relevant=4, rank_by="value")
    assert by_value.popularity.novelty is not None and by_value.model.novelty is not None
    # the most popular columns tell the least
    assert by_value.popularity.novelty < by_value.model.novelty


def test_lists_are_measured_by_popularity_and_similarity(split: Split) -> None:
    genres = np.where(np.arange(len(split.train.column_labels)) % 2, "odd", "even")
    model = ALS(seed=0).fit(
        split.train,
        column_features=Features.from_columns(split.train.column_labels, {"genre": genres}),
    )
    found = evaluate_ranking(model, split.test, n=3, relevant=4, feature="genre")
    rows, _, values = split.test.entries()
    best = model.recommend(np.unique(rows[values >= 4]), n=3, relevant=4).labels
    at = split.train.columns.positions(best.ravel())
    counts = np.bincount(at, minlength=split.train.shape[1])
    # the Gini coefficient by its definition
    gaps = np.abs(counts[:, None] - counts).mean() / 2 / counts.mean()
    assert found.model.gini == pytest.approx(gaps)
    popularity = split.train.column_counts
    assert found.model.mean_popularity == pytest.approx(
        popularity[at].mean() / len(model.row_labels_)
    )
    order = np.argsort(popularity, kind="stable")
    tail = order[np.cumsum(popularity[order]) <= 0.2 * popularity.sum()]
    assert found.model.tail_share == pytest.approx(np.isin(at, tail).mean())
    latents = model.column_latents_ / np.linalg.norm(model.column_latents_, axis=1, keepdims=True)
    cosines = [(own @ own.T)[np.triu_indices(3, 1)].mean() for own in latents[at.reshape(-1, 3)]]
    assert found.model.list_similarity == pytest.approx(np.mean(cosines), abs=1e-5)
    assert found.model.miscalibration is not None and found.model.miscalibration > 0


def test_areas_are_ranked_among_their_own_columns() -> None:
    areas = split_areas(
        generate(60, 40, density=0.5, seed=0).matrix, new_rows=0.3, new_columns=0.3, seed=0
    )
    model = Means().fit(areas.train).extend(areas.extension)
    tests = [areas.test[area].entries() for area in "I II III IV".split()]
    test = ObservedMatrix.from_entries(
        *(np.concatenate([np.asarray(part[at]) for part in tests]) for at in range(3)),
        areas.train.scale,
    )
    found = evaluate_ranking(model, test, n=5, relevant=4, rank_by="value")  # popularity has ties
    assert list(found.areas) == ["I", "II", "III", "IV"]
    n_known = areas.train.shape[1]
    for area, own in found.areas.items():
        liked = list_liked(areas.test[area])
        assert own.n_relevant == len(liked)
        alone = evaluate_ranking(model, areas.test[area], n=5, relevant=4, rank_by="value")
        assert alone.areas == {area: own}
        is_known = area in ("I", "II")
        among = model.column_labels_[:n_known] if is_known else model.column_labels_[n_known:]
        assert {column for _, column in liked} <= set(among.tolist())
        hits = []
        for row in sorted({row for row, _ in liked}):
            best = model.recommend(row, n=5, among=among, rank_by="value").labels.tolist()
            hits.append(any((row, column) in liked for column in best))
        assert own.model.hit_rate == pytest.approx(np.mean(hits))
    only = evaluate_ranking(Means().fit(areas.train), areas.validation, n=5, relevant=1)
    assert only.areas["I"].model == only.model


def test_rows_that_were_never_seen_are_ranked_by_what_is_given() -> None:
    split = split_rows(generate(80, 40, density=0.4, seed=0).matrix, new_rows=0.25, seed=0)
    model = ALS(latent_size=3, epochs=3).fit(split.train)
    found = evaluate_ranking(model, split.test, given=split.given, n=5, relevant=4)
    assert (found.n_given, list(found.areas)) == (split.given.n_entries, ["II"])
    liked, hits = list_liked(split.test), []
    for row in sorted({row for row, _ in liked}):
        own = split.given.entries().rows == row
        best = model.fold_in(
            split.given.entries().columns[own], split.given.entries().values[own]
        ).recommend(5)
        hits.append(sum((row, column) in liked for column in best.labels.tolist()) / 5)
    assert found.model.precision == pytest.approx(np.mean(hits))
    # Popularity knows the training entries alone.
    popular = np.argsort(-split.train.column_counts, kind="stable")[:10]
    assert found.popularity.novelty is not None
    information = -np.log2(split.train.column_counts[popular] / len(split.train.rows))
    assert information[0] < found.popularity.novelty < information[-1]


def test_nothing_leaks_from_given_rows() -> None:
    matrix = generate(60, 30, density=0.4, seed=0).matrix
    split = split_rows(matrix, new_rows=0.25, seed=0)
    # popularity depends on other rows
    model = ALS(latent_size=3, epochs=3, rank_by="value").fit(split.train)
    with pytest.raises(BadEntries, match="knows"):
        evaluate_ranking(ALS(latent_size=3, epochs=3).fit(matrix), split.test, given=split.given)
    with pytest.raises(UnknownLabel):
        evaluate_ranking(model, split.test)
    # A row is ranked by its own given entries, whoever else is there; one without any cannot be.
    whole = evaluate_ranking(model, split.test, given=split.given, n=5, relevant=1)
    first = split.given.take(np.array([0]), np.arange(30))
    with pytest.raises(UnknownLabel):
        evaluate_ranking(model, split.test, given=first)
    alone = evaluate_ranking(model, split.test, given=first, n=5, relevant=1, unknown="nan")
    own = evaluate_ranking(
        model, split.test.take(np.array([0]), np.arange(30)), given=split.given, n=5, relevant=1
    )
    assert alone.model == own.model
    assert whole.n_rows > alone.n_rows == 1
    assert not np.isin(split.given.row_labels, model.row_labels_).any()  # the model is as it was
    with pytest.raises(CannotExtend):
        evaluate_ranking(OptSpace(latent_size=2).fit(split.train), split.test, given=split.given)


@pytest.mark.parametrize("rank_by", ["relevance", "value"])
def test_either_order_is_that_of_recommend(split: Split, rank_by: Any) -> None:
    model = ALS(latent_size=3, epochs=3, presence="full").fit(split.train)
    found = evaluate_ranking(model, split.test, n=4, relevant=4, rank_by=rank_by)
    assert found.rank_by == rank_by
    rows, columns, values = split.test.entries()
    liked = set(zip(rows[values >= 4].tolist(), columns[values >= 4].tolist(), strict=True))
    users = sorted({row for row, _ in liked})
    best = model.recommend(users, n=4, rank_by=rank_by, relevant=4).labels.tolist()
    hits = [
        [(row, column) in liked for column in line] for row, line in zip(users, best, strict=True)
    ]
    assert found.model.precision == pytest.approx(np.mean(hits))


def test_orders_that_a_model_does_not_have(split: Split) -> None:
    model = Means(presence=None).fit(split.train)
    with pytest.raises(BadSetting, match="presence"):
        evaluate_ranking(model, split.test, rank_by="relevance")
    with pytest.raises(BadSetting, match="rank_by"):
        evaluate_ranking(model, split.test, rank_by="luck")  # type: ignore[arg-type]


def test_all_interactions_are_relevant() -> None:
    rows, columns, _ = generate(60, 40, density=0.1, seed=0).matrix.entries()
    split = split_entries(ObservedMatrix.from_interactions(rows, columns), seed=0)
    model = Means().fit(split.train)
    found = evaluate_ranking(model, split.test, n=5)
    assert (found.relevant, found.rank_by, found.n_relevant) == (
        None,
        "relevance",
        split.test.n_entries,
    )
    with pytest.raises(BadSetting, match="interactions"):
        evaluate_ranking(model, split.test, relevant=1)


def test_rows_are_ranked_for_the_day_of_their_first_test_entry() -> None:
    rng, day = np.random.default_rng(0), 86400
    rows, columns = np.divmod(rng.permutation(60 * 10)[:300], 10)
    days = rng.integers(0, 365, rows.size)
    values = np.where(columns % 2 == 0, 4.0, -4.0) * (days / 365 - 0.5) + 0.1 * rng.standard_normal(
        rows.size
    )
    scale = Scale(low=-9, high=9)
    train = ObservedMatrix.from_entries(rows, columns, values, scale, times=10**9 + day * days)
    model = Means(times="auto", presence=None, rank_by="value").fit(train)
    times = {row: 10**9 + day * (10 + 340 * (row % 2)) for row in range(20)}
    best = {row: model.recommend(row, 1, at=at).labels[0] for row, at in times.items()}
    assert best != {row: model.recommend(row, 1).labels[0] for row in times}
    test = ObservedMatrix.from_entries(
        [*best], [*best.values()], [5.0] * 20, scale, times=times.values()
    )
    assert evaluate_ranking(model, test, n=1, relevant=4).model.precision == 1.0
    undated = ObservedMatrix.from_entries([*best], [*best.values()], [5.0] * 20, scale)
    assert evaluate_ranking(model, undated, n=1, relevant=4).model.precision < 1.0
