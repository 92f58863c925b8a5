"""Relevance: rankings by what a row takes and likes, thresholds, and bad input."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from tests.recommend.test_presence import N_COLUMNS, choosy

from deepmf.data.splits import split_entries
from deepmf.datasets import generate
from deepmf.errors import BadSetting
from deepmf.evaluation.comparison import compare
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.means import Means
from deepmf.recommend.ranker import RelevanceRanker, find_relevant
from deepmf.recommend.request import Request


@pytest.fixture(scope="module")
def model() -> Means:
    return Means(rank_by="relevance").fit(choosy())


def test_rows_get_columns_of_their_kind(model: Means) -> None:
    """Values say nothing about the kind of a row; presence does."""
    best = model.recommend(model.row_labels_, n=2, relevant=1, include_observed=True)
    assert np.mean(best.labels % 2 == model.row_labels_[:, None] % 2) > 0.9
    for kind in (0, 1):
        guest = model.fold_in([kind, kind + 4, kind + 8], [3, 3, 3]).recommend(n=2, relevant=1)
        assert set(guest.labels % 2) == {kind}


def test_keys_are_the_products_of_both_probabilities(model: Means) -> None:
    best = model.recommend(3, n=N_COLUMNS, relevant=4, include_observed=True)
    assert best.presence is not None and best.liked is not None
    assert np.all((best.presence > 0) & (best.presence < 1))
    relevance = model.make_ranker(Request(rank_by="relevance")).relevance
    assert relevance is not None
    presence = relevance.presence
    margins = model.predict([3] * N_COLUMNS, best.labels) - 3.5
    np.testing.assert_allclose(best.liked, norm.cdf(margins / presence.spread), rtol=1e-6)
    products = best.presence * best.liked**presence.liking_weight
    assert np.all(np.diff(products) <= 1e-9)
    keys = model.make_ranker(Request(rank_by="relevance", relevant=4)).rank_block(
        np.array([3]), np.arange(N_COLUMNS)
    )
    np.testing.assert_allclose(np.sort(np.exp(keys[0]))[::-1], products, rtol=1e-4)


@pytest.mark.slow
def test_the_best_keys_are_those_of_whole_rows() -> None:
    wide = ALS(latent_size=4, epochs=2, seed=0).fit(generate(60, 500, density=0.1, seed=0).matrix)
    ranker, rows, n, known = (
        wide.make_ranker(Request(rank_by="relevance")),
        np.arange(20),
        3,
        slice(0, 200),
    )
    keys = ranker.rank_block(rows, slice(0, 500))
    keys[:, known] = -np.inf
    order = np.argsort(-keys, axis=1, kind="stable")[:, :n]
    best = np.take_along_axis(keys, order, axis=1)

    def omit(scores: FloatArray) -> None:
        scores[:, known] = -np.inf

    found = ranker.rank_best(rows, slice(0, 500), n, omit)
    assert np.mean(found > -np.inf) < 0.4 and np.all(found[:, known] == -np.inf)
    np.testing.assert_array_equal(np.argsort(-found, axis=1, kind="stable")[:, :n], order)
    np.testing.assert_allclose(np.take_along_axis(found, order, axis=1), best, rtol=1e-5)


def test_the_best_columns_are_found_also_where_they_are_unlikely() -> None:
    wide = ALS(latent_size=4, epochs=2, seed=0).fit(generate(60, 500, density=0.1, seed=0).matrix)
    ranker, rows = wide.make_ranker(Request(rank_by="relevance")), np.arange(20)
    assert isinstance(ranker, RelevanceRanker)
    for liking_weight in (1.0, 3.0, 10.0):
        presence = replace(ranker.relevance.presence, liking_weight=liking_weight)
        liking = replace(ranker, relevance=replace(ranker.relevance, presence=presence))
        best = liking.rank_best(rows, slice(0, 500), 3, lambda _: None)
        keys = liking.rank_block(rows, slice(0, 500))
        np.testing.assert_allclose(np.sort(best)[:, -3:], np.sort(keys)[:, -3:], rtol=1e-5)


def test_presence_is_the_same_in_both_orders(model: Means) -> None:
    """By value it is computed for the best columns alone; by relevance for all."""
    best, other = (
        model.recommend(2, n=N_COLUMNS, rank_by=by, include_observed=True).to_frame().sort("column")
        for by in ("relevance", "value")
    )
    np.testing.assert_allclose(best["presence"], other["presence"], rtol=1e-5)


def make_long_tail(seed: int) -> ObservedMatrix:
    """Return entries whose columns have popularity alone, and whose values are noise."""
    generator = np.random.default_rng(seed)
    cells = np.unique(
        generator.integers(0, 200, 3000) * 400 + np.minimum(generator.zipf(1.5, 3000) - 1, 399)
    )
    return ObservedMatrix.from_entries(
        cells // 400, cells % 400, generator.integers(1, 6, cells.size)
    )


def test_noise_is_ranked_by_popularity() -> None:
    """Values that the model was fitted to must not make noise look like liking."""
    model = ALS(latent_size=20, epochs=5, seed=0).fit(make_long_tail(0))
    best = model.recommend(0, n=5)
    order = np.argsort(-model.entries_.column_counts, kind="stable")
    unseen = order[~np.isin(order, model.entries_.seen_columns(np.array([0])).others)]
    assert best.labels.tolist() == model.column_labels_[unseen[:5]].tolist()


def test_a_row_without_entries_gets_popular_columns() -> None:
    matrix = choosy()
    model = Means(rank_by="relevance").fit(matrix)
    first = matrix.column_labels[matrix.by_row.columns[: matrix.by_row.starts[1]]]
    nobody = model.forget(entries=([0] * first.size, first))
    relevance = nobody.make_ranker(Request(rank_by="relevance")).relevance
    assert relevance is not None
    by_presence = np.argsort(
        -relevance.score_block(np.array([0]), slice(0, N_COLUMNS))[0], kind="stable"
    )
    columns = np.tile(np.arange(N_COLUMNS)[::-1], (2, 1))
    scores = relevance.score_block(np.arange(2), columns[0])
    offsets = relevance.find_offsets(np.arange(2))[:, None]
    chances = np.exp(relevance.presence.log_probabilities(scores, offsets))
    np.testing.assert_allclose(relevance.read_presence(np.arange(2), columns), chances, rtol=1e-5)
    popular = np.argsort(-nobody.entries_.column_counts, kind="stable")
    assert by_presence.tolist() == popular.tolist()
    assert nobody.recommend(0, n=4).labels.size == 4


def test_a_model_without_presence_ranks_by_value_alone() -> None:
    model = Means(presence=None).fit(choosy())
    assert model.chosen_["rank_by"] == "value"
    best = model.recommend(0)
    assert best.presence is None and best.liked is None and np.all(np.diff(best.values) <= 0)
    with pytest.raises(BadSetting, match="presence"):
        model.recommend(0, rank_by="relevance")


def test_the_order_is_chosen_by_density() -> None:
    dense = generate(60, 30, density=0.5, named=False, seed=0).matrix
    assert ALS(epochs=1).fit(dense).chosen_["rank_by"] == "value"
    some = choosy(200, 40)
    assert 0.2 < some.n_entries / (200 * 40) < 0.5
    model = ALS(epochs=1).fit(some)
    assert model.chosen_ == {"presence": "full", "rank_by": "relevance"}
    assert (
        model.recommend(0).labels.tolist()
        == model.recommend(0, rank_by="relevance").labels.tolist()
    )
    assert ALS(epochs=1, rank_by="value").fit(some).chosen_ == {"presence": "full"}


@pytest.mark.parametrize(
    ("values", "scale", "relevant"),
    [
        ([4, 3, 3], Scale([1, 2, 3, 4, 5]), 4),  # the mean is 10 / 3
        ([4, 2, 3], Scale([1, 2, 3, 4, 5]), 4),  # above a mean that is a level
        ([2, 2, 2], Scale([0, 1, 2]), 2),  # no level is above the mean
        ([0.5, 0.25, 0.0], Scale(low=0, high=1), 0.25),  # no levels: the mean
    ],
)
def test_liked_is_what_lies_above_the_mean_of_the_training_entries(
    values: list[float], scale: Scale, relevant: float
) -> None:
    train = ObservedMatrix.from_entries([0, 0, 1], [0, 1, 0], values, scale)
    assert find_relevant(train) == relevant
    assert find_relevant(train, 1.0) == 1


def test_every_way_to_rank_counts_the_same_entries_as_liked() -> None:
    split = split_entries(choosy(), seed=0)
    model = ALS(epochs=2, latent_size=4, seed=0).fit(split.train)
    found = evaluate_ranking(model, split.test, n=5)
    rows, columns, values = split.test.entries()
    at_least = find_relevant(split.train)
    is_liked = values >= at_least
    tested = np.unique(rows[is_liked])
    best = model.recommend(tested, n=5)
    hits = [
        np.isin(labels, columns[(rows == row) & is_liked])
        for row, labels in zip(tested, best.labels, strict=True)
    ]
    assert found.relevant == best.relevant == at_least
    assert found.model.precision == pytest.approx(np.mean(hits))
    assert best.labels.tolist() == model.recommend(tested, n=5, relevant=at_least).labels.tolist()
    compared = compare([model], split.train, folds=2, n=5, metric="ndcg")
    assert compared.plan.ranking is not None and compared.plan.ranking.relevant == at_least
