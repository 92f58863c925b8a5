"""Reranking: lists balanced by a feature, and places that a draw decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.data.synthetic import generate
from deepmf.errors import BadSetting
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.bayesian import BayesianMF
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.recommend.request import Request
from deepmf.recommend.reranking import Reranker, find_liked_shares, find_shares, measure_divergence


def _make_genres(n_rows: int = 60) -> tuple[ObservedMatrix, Features]:
    """Rows of which each likes comedies and dramas in its own proportion, and the genres of 40
    columns."""
    numbers = np.random.default_rng(0)
    genres = np.array(["comedy", "drama"] * 20)
    tastes = np.linspace(0.1, 0.9, n_rows)[:, None]
    is_taken = numbers.random((n_rows, 40)) < 0.4 * np.where(genres == "comedy", tastes, 1 - tastes)
    is_taken[:, :2] = True
    rows, columns = np.nonzero(is_taken)
    train = ObservedMatrix.from_entries(
        rows, columns, 4.0 + (columns % 3 == 0), Scale([1, 2, 3, 4, 5])
    )
    return train, Features.from_columns(range(40), {"genre": genres})


@pytest.mark.slow
def test_balanced_lists_have_the_shares_of_liked_entries(tmp_path: Path) -> None:
    train, features = _make_genres()
    model = ALS(seed=0).fit(train, column_features=features)
    rows = list(range(0, 60, 3))
    plain, balanced = (
        model.recommend(rows, n=8),
        model.recommend(rows, n=8, balance="genre", relevant=1),
    )
    own = [np.mean(train.by_row.columns[train.entry_rows == row] % 2 == 0) for row in rows]
    gaps = [
        np.abs((found.labels % 2 == 0).mean(axis=1) - own).mean() for found in (plain, balanced)
    ]
    assert gaps[1] < 0.5 * gaps[0] and gaps[1] < 0.12
    model.recommend_to(tmp_path / "top.csv", rows, n=8, balance="genre", relevant=1)
    assert len((tmp_path / "top.csv").read_text().splitlines()) == 1 + 8 * len(rows)
    for wrong in ({"balance": "colour"}, {"explore": 2}, {"explore": 0.5}):
        with pytest.raises(BadSetting):
            model.recommend(0, **wrong)


class Draws:
    """A predictor whose posterior is the noise alone."""

    def draw_values(self, rows: Any, columns: Any, noise: Any) -> Any:
        return noise.copy()


def explore(row: int, keys: list[float], n: int, **options: Any) -> list[int]:
    entries: Any = None
    predictor: Any = Draws()
    reranker = Reranker(entries, predictor, entries, Request(n=n, **options))
    columns = np.arange(100, 100 + len(keys))[None]
    return reranker.pick(np.array([row]), np.array([keys]), columns, n)[0].tolist()


def test_a_draw_decides_the_last_places_of_each_row_by_itself() -> None:
    keys = list(np.linspace(5, 1, 40))
    lists = {
        (row, seed): explore(row, keys, 10, explore=0.3, explore_seed=seed)
        for row in (1, 2)
        for seed in (0, 1)
    }
    for (row, seed), places in lists.items():
        assert places[:7] == list(range(7)) and len(set(places)) == 10
        noise = np.random.default_rng([seed, row]).standard_normal(40)
        noise[:10] = -np.inf  # columns of the list are not explored
        assert places[7:] == np.argsort(-noise)[:3].tolist()
    assert len({tuple(places[7:]) for places in lists.values()}) == 4


def test_only_columns_that_can_be_ranked_are_explored() -> None:
    keys = [3.0, 2.0, 1.0, 0.0, *[-np.inf] * 20]
    # of four columns three are listed, so one place is left to a draw, of the fourth
    assert explore(1, keys, 3, explore=1.0) == [0, 1, 3]
    assert explore(1, keys, 4, explore=1.0) == [0, 1, 2, 3]  # nothing is left to explore
    assert explore(1, keys[:4] + keys[4:5], 2, explore=0.2) == [0, 1]  # less than half a place


def test_shares_of_a_feature_are_those_of_its_categories() -> None:
    genres: Any = [["drama"], ["drama", "war"], [], None]
    features = Features.from_columns(range(4), {"genre": genres}, kinds={"genre": "list"})
    train = ObservedMatrix.from_entries([0, 0, 0, 0, 1], [0, 1, 2, 3, 1], [5, 5, 5, 1, 1])
    entries = ALS(epochs=1, presence=None).fit(train, column_features=features).entries_
    shares = find_shares(entries, np.arange(4), "genre")
    assert sorted(shares[0].tolist())[-2:] == [0, 1] and sorted(shares[1])[-2:] == [0.5, 0.5]
    assert not shares[2:].any()
    liked = find_liked_shares(entries, entries.seen_columns(np.array([0, 1])), "genre", 4.0)
    # of her liked entries, one is a drama, one is half a drama and half war, one is neither
    np.testing.assert_allclose(sorted(liked[0])[-2:], [0.25, 0.75])
    assert not liked[1].any()


def test_divergence_is_zero_for_equal_shares_and_grows_with_what_is_missing() -> None:
    liked = np.array([0.5, 0.3, 0.2])
    listed = np.array([[5.0, 3, 2], [6, 3, 1], [10, 0, 0], [0, 0, 0]])
    found = measure_divergence(liked, listed)
    assert found[0] == pytest.approx(0) and np.all(np.diff(found) > 0)


SMALL = {
    "epochs": 4,
    "hidden_sizes": (16,),
    "latent_size": 4,
    "networks": 1,
    "views": 2,
    "landmarks": 8,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [BayesianMF(seed=0, epochs=20, burn_in=10), OrdinalDMF(seed=0, linear_iterations=30, **SMALL)],  # type: ignore[arg-type]
    ids=["BayesianMF", "OrdinalDMF"],
)
def test_explored_places_are_drawn_from_the_posterior_and_seeded(model: Any) -> None:
    train, _ = _make_genres()
    model.fit(train, progress=False)
    plain = model.recommend(3, n=10)
    first, again, other = (
        model.recommend(3, n=10, explore=0.3, explore_seed=seed).labels for seed in (0, 0, 1)
    )
    assert first.tolist() == again.tolist() != other.tolist()
    assert first[:7].tolist() == plain.labels[:7].tolist() and len(set(first.tolist())) == 10
    batch = model.recommend([1, 3], n=10, explore=0.3).labels[1]
    assert batch.tolist() == first.tolist()  # whatever the other rows are
    assert model.fold_in([3, 5], [4, 5]).recommend(n=4, explore=1.0).labels.size == 4


@pytest.mark.slow
def test_the_sampled_part_of_a_network_draws_around_predictions_and_without_it_there_is_no_draw() -> (
    None
):
    train = generate(60, 40, density=0.3, seed=0).matrix
    model = OrdinalDMF(seed=0, linear_iterations=30, **SMALL).fit(train, progress=False)  # type: ignore[arg-type]
    rows, columns = np.zeros(2000, dtype=np.int64), np.repeat([0, 1], 1000)
    drawn = model.predictor_.draw_values(
        rows, columns, np.random.default_rng(0).standard_normal(2000)
    ).reshape(2, -1)
    np.testing.assert_allclose(
        drawn.mean(axis=1), model.predictor_.score_pairs(rows[:2], np.arange(2)), atol=0.1
    )
    assert np.all((drawn.std(axis=1) > 0.05) & (drawn.std(axis=1) < 1))
    model = OrdinalDMF(seed=0, linear_size=0, **SMALL).fit(train, progress=False)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="posterior"):
        model.recommend(train.row_labels[0], explore=0.5)
