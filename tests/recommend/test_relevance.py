"""Relevance: rankings by what a row takes and likes, thresholds, and bad input."""

import numpy as np
import pytest
from scipy.stats import norm
from tests.recommend.test_presence import N_COLUMNS, choosy

from deepmf.datasets import generate
from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.means import Means
from deepmf.recommend.ranker import find_thresholds
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
    chances = np.exp(
        relevance.presence.log_probabilities(relevance.score_block(np.arange(2), columns[0]))
    )
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


def test_thresholds_are_weighted_means_rounded_up() -> None:
    matrix = ObservedMatrix.from_entries(
        [0, 0, 1],
        [0, 1, 0],
        [1, 5, 2],
        Scale([1, 2, 3, 4, 5]),
        weights=[3, 1, 0.5],
        row_labels=[0, 1, 2],
    )
    entries = EntryStore.of(matrix).row_entries(np.arange(3))
    # (3 * 1 + 5) / 4; one entry; none
    assert find_thresholds(entries, matrix.scale, 3.5).tolist() == [2, 2, 4]
