"""Models of interactions: recommendations by the presence part alone, and one sentence where values
are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import BayesianMF, load
from deepmf.errors import BadEntries, BadSetting, OffScale
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.dmf import DMF
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.autorec import UAutoRec

N_ROWS, N_COLUMNS = 30, 20


def make_clicks(seed: int = 0) -> ObservedMatrix:
    """Even rows click on even columns, odd rows on odd ones; each misses some."""
    generator = np.random.default_rng(seed)
    rows, columns = np.divmod(np.arange(N_ROWS * N_COLUMNS), N_COLUMNS)
    clicked = (rows % 2 == columns % 2) & (generator.random(rows.size) < 0.7)
    return ObservedMatrix.from_interactions(
        [f"u{k}" for k in rows[clicked]],
        [f"i{k}" for k in columns[clicked]],
        generator.integers(1, 9, clicked.sum()),
    )


@pytest.fixture(scope="module")
def model() -> ALS:
    return ALS(seed=0).fit(make_clicks())


def own_kind(row: str, columns: Any) -> bool:
    return all(int(column[1:]) % 2 == int(row[1:]) % 2 for column in columns)


@pytest.mark.parametrize("build", [ALS, DMF, OrdinalDMF, Means])
def test_every_model_with_a_presence_part_learns_interactions(build: Callable[..., Model]) -> None:
    fitted = build(seed=0).fit(make_clicks())
    for row in ("u0", "u1", "u7"):
        best = fitted.recommend(row, n=2)
        assert own_kind(row, best.labels.tolist())
        assert best.liked is None
        assert np.all(
            (best.values > 0) & (best.values < 1) & (np.diff(best.values, prepend=1) <= 0)
        )
    assert fitted.chosen_["rank_by"] == "relevance"
    assert "interactions" in repr(fitted)
    assert fitted.plan(make_clicks()) is None


def test_rows_are_left_what_they_have(model: ALS) -> None:
    clicks = make_clicks()
    rows, columns, _ = clicks.entries()
    known = set(columns[rows == "u0"].tolist())
    assert known.isdisjoint(model.recommend("u0", n=N_COLUMNS).labels.tolist())
    several = model.recommend(["u0", "u1"], n=2)
    assert several.labels.shape == (2, 2)
    np.testing.assert_array_equal(several.values[0], model.recommend("u0", n=2).values)


def test_what_was_trained_before_and_its_validation_change_nothing_else() -> None:
    ratings = ObservedMatrix.from_entries(["ann", "bob", "ann"], ["x", "x", "y"], [1, 2, 3])
    fitted = Means().fit(ratings)
    with pytest.raises(BadEntries, match="every"):
        fitted.fit(ObservedMatrix.from_interactions(["ann"], ["x"]))
    assert fitted.predict(["ann"], ["y"]).shape == (1,)  # as it was
    clicks = make_clicks()
    some = np.arange(clicks.n_entries) % 10 == 0
    held_out = Means().fit(clicks.take_entries(~some), clicks.take_entries(some))
    assert own_kind("u0", held_out.recommend("u0", n=2).labels.tolist())


def test_folding_in_takes_columns_alone_and_counts_repeats(model: ALS) -> None:
    guest = model.fold_in(["i0", "i2", "i2", "i4"])
    best = guest.recommend(3)
    assert own_kind("u0", best.labels.tolist())
    assert not {"i0", "i2", "i4"} & set(best.labels.tolist())
    counted = model.fold_in(["i0", "i2", "i4"], [1, 2, 1]).recommend(3)
    np.testing.assert_array_equal(counted.values, best.values)
    many = model.fold_in_many([(["i0", "i2"], ()), (["i1"], [3])])
    assert many.recommend(2).labels.shape == (2, 2)
    for ask in (guest.predict, guest.predict_levels, guest.predict_interval):
        with pytest.raises(BadSetting, match="no values to predict"):
            ask(["i6"])
    with pytest.raises(OffScale, match="interactions"):
        model.fold_in(["i0"], [-1])
    with pytest.raises(BadEntries, match="length"):
        model.fold_in(["i0"], [1, 2])


def test_nothing_is_drawn_for_interactions() -> None:
    with pytest.raises(BadSetting, match="no values to predict"):
        BayesianMF(seed=0).fit(make_clicks()).draw(["u0"], ["i1"])


def test_extending_and_forgetting(model: ALS) -> None:
    new = ObservedMatrix.from_interactions(
        ["new", "new", "u0", "u2"], ["i1", "i3", "fresh", "fresh"]
    )
    grown = model.extend(new)
    assert own_kind("u1", grown.recommend("new", n=2).labels.tolist())
    assert grown.areas(["new", "u0"], ["i1", "fresh"]).tolist() == ["II", "III"]
    np.testing.assert_array_equal(
        grown.recommend("new", n=3).values, model.extend(new).recommend("new", n=3).values
    )
    assert "fresh" not in grown.recommend("u0", n=N_COLUMNS + 1).labels.tolist()
    assert "fresh" in grown.recommend("u4", n=N_COLUMNS + 1).labels.tolist()
    left = grown.forget(rows=["new"], columns=["fresh"])
    np.testing.assert_array_equal(left.recommend("u0").values, model.recommend("u0").values)
    with pytest.raises(OffScale, match="interactions"):
        model.extend(ObservedMatrix.from_entries(["new", "newer"], ["i1", "i1"], [3, 4]))


@pytest.mark.parametrize("name", ["m.safetensors", "m.model"])
def test_a_saved_model_recommends_the_same(model: ALS, tmp_path: Path, name: str) -> None:
    grown = model.extend(ObservedMatrix.from_interactions(["new", "u0"], ["i1", "fresh"]))
    grown.save(tmp_path / name)
    again = load(tmp_path / name)
    assert not again.entries_.train.has_values
    for row in ("u0", "new"):
        assert again.recommend(row).labels.tolist() == grown.recommend(row).labels.tolist()
        np.testing.assert_array_equal(again.recommend(row).values, grown.recommend(row).values)
    assert again.chosen_ == grown.chosen_


def test_similar_rows_and_columns_share_entries(model: ALS) -> None:
    table = (np.nan_to_num(make_clicks().to_array()) > 0).astype(float)
    lengths = np.linalg.norm(table, axis=0)
    cosines = table.T @ table / np.outer(lengths, lengths)
    labels = make_clicks().column_labels.tolist()
    at = labels.index("i3")
    cosines[at, at] = -1
    best = model.similar_columns("i3", n=4)
    np.testing.assert_allclose(best.values, np.sort(cosines[at])[::-1][:4])
    assert own_kind("u1", best.labels.tolist())
    assert own_kind("u4", ["i" + row[1:] for row in model.similar_rows("u4", n=4).labels.tolist()])
    grown = model.extend(ObservedMatrix.from_interactions(["u0", "u2"], ["fresh", "fresh"]))
    assert own_kind("u0", grown.similar_columns("fresh", n=3).labels.tolist())
    n_columns = len(grown.column_labels_)
    assert "fresh" not in grown.similar_columns("i3", n=n_columns).labels  # 2 entries
    assert "fresh" in grown.similar_columns("i3", n=n_columns, min_entries=2).labels


def make_plays(*, loud: bool) -> ObservedMatrix:
    """Rows play a third of the columns of their kind often, and as many of the others once; or all
    of them once."""
    generator = np.random.default_rng(0)
    rows, columns = np.divmod(np.arange(150 * 60), 60)
    own = rows % 3 == columns % 3
    played = generator.random(rows.size) < np.where(own, 0.5, 0.25)
    counts = np.where(own & loud, 20, 1)
    return ObservedMatrix.from_interactions(rows[played], columns[played], counts[played])


def test_counts_weigh_entries_where_that_ranks_better(tmp_path: Path) -> None:
    model = Means(presence="full", seed=0).fit(make_plays(loud=True))
    assert model.chosen_on_entries_["count_weight"] > 0
    quiet = Means(presence="full", seed=0).fit(make_plays(loud=False))
    assert quiet.chosen_on_entries_["count_weight"] == 0
    assert (
        model.chosen_on_entries_["presence_ndcg"] > quiet.chosen_on_entries_["presence_ndcg"] + 0.02
    )
    model.save(tmp_path / "plays.safetensors")
    again = load(tmp_path / "plays.safetensors")
    np.testing.assert_array_equal(again.recommend(0).values, model.recommend(0).values)
    loud, soft = (
        model.fold_in([0, 1], counts).recommend(n=9).labels for counts in ([50, 1], [1, 50])
    )
    assert (loud % 3 == 0).sum() > (soft % 3 == 0).sum()


@pytest.mark.parametrize("kind", ["full", "nearest"])
def test_clicks_that_raise_a_probability_are_named(kind: str) -> None:
    model = ALS(presence=kind, seed=0).fit(make_clicks())
    best = model.recommend("u0", n=1)
    found = model.explain("u0", best.labels[0], n=3)
    assert found.prediction == pytest.approx(best.values[0], rel=1e-4)
    assert own_kind("u0", found.labels) and found.effects[0] > 0
    rows, columns, counts = make_clicks().entries()
    known = dict(zip(columns[rows == "u0"].tolist(), counts[rows == "u0"].tolist(), strict=True))
    assert [known[label] for label in found.labels.tolist()] == found.values.tolist()
    guest = model.fold_in(["i0", "i1"])
    (first, *_) = guest.explain("i2", n=2).presence
    assert first.label == "i0" and first.value == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.predict(["u0"], ["i0"]),
        lambda model: model.predict(["nobody"], ["nothing"], unknown="fallback"),
        lambda model: model.predict_levels(["u0"], ["i0"]),
        lambda model: model.predict_distribution(["u0"], ["i0"]),
        lambda model: model.predict_interval(["u0"], ["i0"]),
        lambda model: model.scores(["u0"], ["i0"]),
        lambda model: model.complete(),
        lambda model: model.explain("u0", "i0", axis="column"),
        lambda model: model.fold_in(["i0"]).predict(["i2"]),
        lambda model: model.fold_in(["i0"]).predict_distribution(["i2"]),
        lambda model: model.fold_in_column(["u0"]).explain("u2"),
        lambda model: model.recommend("u0", rank_by="value"),
        lambda model: model.recommend("u0", relevant=1),
    ],
)
def test_questions_about_values_are_refused_in_a_sentence(
    model: ALS, ask: Callable[[Model], Any]
) -> None:
    with pytest.raises(BadSetting, match="interactions"):
        ask(model)


def test_models_without_a_presence_part_refuse_interactions() -> None:
    for unable in (UAutoRec(), ALS(presence=None)):
        with pytest.raises(BadSetting, match="presence"):
            unable.fit(make_clicks())
        assert not unable.is_fitted
    with pytest.raises(BadSetting, match="column_features") as error:
        ALS().fit(make_clicks(), column_features=Features(["a"], {"year": [1990]}))
    assert error.value.hint is not None and "--column-features" in error.value.hint.command
