"""Comparisons: every model sees the same splits and nothing of the test, and the table shows its
errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
import pytest

from deepmf.data import split_areas, split_entries, split_folds
from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadFeatures, BadSetting, BadSplit
from deepmf.evaluation.areas import AreaErrors, evaluate
from deepmf.evaluation.comparison import (
    ComparedModel,
    Comparison,
    Problem,
    SplitErrors,
    SplitPlan,
    compare,
    join_tests,
    measure,
)
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.matrix.extras import Extras
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.dmf import DMF
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.low_rank import RankK
from deepmf.report.comparison_page import render_comparison
from deepmf.testing import additive


@pytest.mark.slow
def test_settings_that_were_not_given_are_chosen_for_the_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[dict[str, Any]] = []
    fit = Model.fit

    def watched(self: Model, *arguments: Any, **options: Any) -> Model:
        fitted = fit(self, *arguments, **options)
        chosen.append(self.chosen_)
        return fitted

    monkeypatch.setattr(Model, "fit", watched)
    split = split_entries(additive(12, 10), seed=0)
    model = OrdinalDMF(hidden_sizes=(8,), epochs=2, linear_size=0, device="cpu")
    measure(model, Problem.from_split(split))
    settings = set(OrdinalDMF.settings_class.chosen_at_fit) - {"hidden_sizes", "epochs"}
    assert chosen[0].keys() == settings | {"members", "parts"}
    found = compare([model], additive(12, 10), folds=2).models[0].settings
    assert found["epochs"] == 2 and not found.keys() & chosen[0].keys()
    assert type(model)(**found).own_settings == found


MATRIX = generate(40, 30, density=0.3, seed=0).matrix


def model(label: str, *errors: float, failure: str | None = None) -> ComparedModel:
    parts = [AreaErrors("I", 10, error, error / 2, None, None) for error in errors]
    splits = tuple(SplitErrors({"I": part, "all": part}, 2.0) for part in parts)
    return ComparedModel(label, "Means", {}, splits, failure)


def compared(*models: ComparedModel) -> Comparison:
    return Comparison(models, SplitPlan(folds=2), MATRIX.describe())


def test_the_best_has_the_smallest_mean_and_the_verdict_counts_folds() -> None:
    found = compared(model("one", 1.0, 0.8), model("two", 0.75, 0.85))
    assert found.best == "two"
    assert "best: two" in found.verdict and "1 of 2 folds" in found.verdict
    assert [each.label for each in found.rank()] == ["two", "one"]
    assert compared(model("one", 1.0)).verdict == "best: one, RMSE 1.0000"


def test_as_a_table() -> None:
    found = compared(model("means", 1.0, 0.8), model("als", failure="it diverged"))
    assert str(found).splitlines() == [
        "model             RMSE              MAE  seconds",
        "means  0.9000 ± 0.1414  0.4500 ± 0.0707     2.00",
        "als                  -                -         ",
        "als failed: it diverged",
        "best: means, RMSE 0.9000",
    ]
    plain = found.to_dict()
    assert (
        plain["models"][0]["rmse"] == {"I": 0.9} and plain["models"][1]["failure"] == "it diverged"
    )
    assert plain["models"][0]["splits"][1]["areas"]["I"]["mae"] == 0.4


class Watched(Means):
    """Means that keep what they were given."""

    seen: ClassVar[list[tuple[ObservedMatrix, ObservedMatrix | None]]] = []

    def fit(
        self, train: ObservedMatrix, validation: ObservedMatrix | None = None, **options: Any
    ) -> Self:
        self.seen.append((train, validation))
        return super().fit(train, validation, **options)


@pytest.fixture
def watched() -> Iterator[type[Watched]]:
    Watched.seen.clear()
    yield Watched


@pytest.mark.slow
def test_the_errors_are_those_of_the_folds(watched: type[Watched]) -> None:
    found = compare([watched, "means"], MATRIX, folds=3, seed=4)
    splits = split_folds(MATRIX, 3, seed=4)
    assert watched.seen == [(split.train, split.validation) for split in splits]
    wanted = [evaluate(Means().fit(split.train), split.test)[-1] for split in splits]
    for model in found.models:
        assert model.errors("rmse").tolist() == [errors.rmse for errors in wanted]
        assert model.spread("mae") == pytest.approx(
            np.std([errors.mae for errors in wanted], ddof=1)
        )
    assert found.areas == ["I"]
    assert [model.label for model in found.models] == ["Watched", "means"]


@pytest.mark.slow
def test_no_test_entry_is_ever_given(watched: type[Watched]) -> None:
    compare([watched], MATRIX, folds=4)
    compare([watched], MATRIX, folds=2, areas=True)
    for (train, validation), split in zip(watched.seen[:4], split_folds(MATRIX, 4), strict=True):
        assert validation is not None
        for part in (train, validation):
            assert (
                np.count_nonzero(part.to_sparse().multiply(split.test.to_sparse()).toarray()) == 0
            )
    assert watched.seen[4][0].shape == (32, 24)  # new rows and columns are unknown to training


def test_by_area_and_only_where_a_method_predicts() -> None:
    found = compare(["means", ALS(latent_size=2), RankK(epochs=2)], MATRIX, folds=2, areas=True)
    _, als, rankk = found.models
    assert found.areas == ["I", "II", "III", "IV", "all"]
    assert (
        list(rankk.splits[0].areas) == ["I"]
        and rankk.mean("rmse", "II") is None
        and rankk.mean() is None
    )
    assert found.best in ("means", "als") and set(found.best_by_area) == {"I", "II", "III", "IV"}
    split = als.splits[1]
    parts = [split.areas[area] for area in ("I", "II", "III", "IV")]
    squares = sum(part.n_entries * part.rmse**2 for part in parts)
    assert split.areas["all"].rmse == pytest.approx(
        np.sqrt(squares / sum(part.n_entries for part in parts))
    )
    assert split.areas["all"].mae == pytest.approx(
        np.average([p.mae for p in parts], weights=[p.n_entries for p in parts])
    )
    assert found.to_frame().filter(model="rankk", area="IV")["rmse"].to_list() == [None]
    assert "-" in str(found).splitlines()[3]


def test_one_that_fails_does_not_stop_the_others() -> None:
    diverging = DMF(hidden_sizes=(4,), latent_size=2, epochs=3, learning_rate=1e30, device="cpu")
    found = compare({"wild": diverging, "means": "means"}, MATRIX, folds=2)
    assert found.models[0].failure is not None and found.models[0].splits == ()
    assert found.best == "means"
    assert "wild failed: " in str(found)


class Interrupted(ALS):
    """A model whose user presses Ctrl-C in the first epoch."""

    def fit(self, *arguments: Any, **options: Any) -> Self:
        def press(*_: object) -> None:
            raise KeyboardInterrupt

        return super().fit(*arguments, callbacks=[press], **options)


def test_ctrl_c_ends_the_comparison() -> None:
    with pytest.raises(KeyboardInterrupt):
        compare([Interrupted, "means"], MATRIX, folds=2)


@pytest.mark.parametrize(
    ("models", "options", "error", "message"),
    [
        ("als", {}, BadSetting, "list"),
        ([], {}, BadSetting, "model"),
        (["als", ALS()], {}, BadSetting, "mapping"),
        (["xyz"], {}, BadSetting, "xyz"),
        ([3], {}, BadSetting, "3"),
        (["als"], {"folds": 1}, BadSplit, "folds"),
        (["als"], {"folds": 0, "areas": True}, BadSetting, "least"),
        (["als"], {"areas": True, "validation": 0.9}, BadSplit, "train"),
        (["als"], {"folds": np.int64(1)}, BadSplit, "got 1$"),
        (["als"], {"metric": np.array(["rmse", "mae"])}, BadSetting, "metric"),
        (["als"], {"by": np.array(["time"])}, BadSetting, "by"),
    ],
)
def test_what_cannot_be_compared(
    models: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        compare(models, MATRIX, **options)


def test_swapped_arguments_are_named() -> None:
    swapped: Any = MATRIX, ["als"]
    with pytest.raises(BadSetting, match="models first"):
        compare(*swapped)
    with pytest.raises(BadSetting, match="model, then the test"):
        evaluate(*swapped)
    with pytest.raises(BadSetting, match="model, then the test"):
        evaluate_ranking(*swapped)


@pytest.mark.slow
def test_features_are_for_the_models_that_read_them() -> None:
    rated = generate(120, 80, density=0.05, noise=0.3, rank=1, explained=0.9, seed=0)
    given: dict[str, Any] = {
        "row_features": rated.row_features,
        "column_features": rated.column_features,
    }
    options: dict[str, Any] = {"folds": 2, "areas": True}
    models = {"means": Means(), "rankk": RankK(epochs=2, latent_size=2)}
    plain, described = (compare(models, rated.matrix, **options, **each) for each in ({}, given))
    assert described.models[1].mean(area="I") == plain.models[1].mean(area="I")
    before, after = plain.models[0].mean(), described.models[0].mean()
    assert before is not None and after is not None and after < 0.97 * before


def test_features_that_cannot_be_used_are_refused_before_anything_is_fitted() -> None:
    odd = Features(["nobody"], {"age": [3]})
    for given, said in (
        ({"row_features": odd}, "row"),
        ({"column_features": [1, 2]}, "column_features"),
    ):
        with pytest.raises(BadFeatures, match=said):
            compare(["means"], MATRIX, **given)  # type: ignore[arg-type]


@pytest.mark.slow
def test_models_are_ordered_by_a_ranking_metric_on_request() -> None:
    matrix = generate(40, 30, density=0.4, seed=0).matrix
    found = compare(
        {"far": ALS(latent_size=12, penalty=1e-3), "near": "means"},
        matrix,
        folds=2,
        metric="ndcg",
        n=5,
    )
    assert found.plan.ranking is not None
    assert found.plan.ranking.relevant == min(level for level in range(1, 6) if level > matrix.mean)
    means = [model.mean("ndcg") for model in found.models]
    assert found.rank()[0] is found.models[int(np.argmax(means))]
    split = next(found.plan.split(matrix))
    model = Means(seed=0).fit(split.train, split.validation)
    wanted = evaluate_ranking(model, split.test["I"], n=5, relevant=found.plan.ranking.relevant)
    assert found.models[1].splits[0].rankings["I"].model == wanted.model
    assert found.popularity("ndcg")[0] == wanted.popularity.ndcg
    assert "NDCG@5" in str(found) and "popularity" in str(found)
    told = found.to_dict()
    assert told["popularity"]["recall"]["I"] == pytest.approx(found.popularity("recall").mean())
    assert told["models"][0]["ndcg"]["I"] == means[0]
    assert found.to_frame()["ndcg"].to_list() == means
    assert compare(["means"], matrix, folds=2).plan.ranking is None


@pytest.mark.slow
def test_rankings_by_area_and_of_methods_that_predict_in_one_alone() -> None:
    matrix = generate(60, 40, density=0.4, seed=0).matrix
    found = compare(
        ["means", "rankk"], matrix, folds=2, areas=True, metric="recall", n=5, relevant=4
    )
    assert [
        found.models[0].mean("recall", area) is not None for area in ("I", "II", "III", "IV", "all")
    ] == [True] * 5
    assert [found.models[1].mean("recall", area) is not None for area in ("I", "II", "all")] == [
        True,
        False,
        False,
    ]
    assert found.best == "means"
    rows = compare(
        ["means"], matrix, folds=1, areas=True, new_columns=0, metric="recall", relevant=4
    )
    assert [area for area in rows.areas if area != "all"] == ["I", "II"]


def test_a_metric_that_is_none() -> None:
    with pytest.raises(BadSetting, match="ndcg"):
        compare(["means"], generate(20, 10, density=0.5, seed=0).matrix, metric="ncdg")


def test_joined_areas_keep_times_and_weights() -> None:
    times, weights = np.arange(len(MATRIX.values)) + 10**9, np.arange(len(MATRIX.values)) % 3 + 1.0
    dated = MATRIX.with_extras(Extras(times, weights))
    parts = split_areas(dated, seed=0).test
    frames = [part.to_frame() for part in (join_tests(list(parts.values())), *parts.values())]
    assert frames[0].sort("row", "column").equals(pl.concat(frames[1:]).sort("row", "column"))


@pytest.mark.slow
def test_interactions_are_compared_by_ranking_alone() -> None:
    rows, columns, _ = generate(40, 30, density=0.1, seed=0).matrix.entries()
    clicks = ObservedMatrix.from_interactions(rows, columns)
    found = compare(["means"], clicks, folds=2, metric="ndcg", n=5)
    assert found.plan.ranking is not None
    assert found.plan.ranking.relevant is None
    assert found.models[0].mean("ndcg") is not None
    assert "RMSE" not in str(found)
    assert "interactions" in render_comparison(found)
    with pytest.raises(BadSetting, match="ndcg"):
        compare(["means"], clicks, folds=2)


@pytest.mark.parametrize("metric", ["rmse", "ndcg"])
def test_differences_to_the_best_are_paired_and_have_intervals(metric: str) -> None:
    ratings = generate(150, 60, density=0.3, seed=0).matrix
    models = {"a": Means(seed=0), "again": Means(seed=0), "b": ALS(seed=0)}
    found = compare(models, ratings, folds=2, metric=metric)
    by_label = {each.label: each for each in found.differences()}
    others = [label for label in models if label != found.best]
    assert set(by_label) == set(others)
    for each in by_label.values():
        assert each.low <= each.difference <= each.high
    twins = [by_label.get("a"), by_label.get("again")]
    if None in twins:  # one of the twins is the best, and the other is as good, in every draw
        twin = next(each for each in twins if each is not None)
        assert (twin.difference, twin.low, twin.high) == (0.0, 0.0, 0.0)
    else:
        assert twins[0][1:] == twins[1][1:]  # type: ignore[index]
    if metric == "rmse":
        gap = by_label["a"]
        assert found.best == "b" and gap.low > 0
        means, best = (
            next(each for each in found.models if each.label == label) for label in ("a", "b")
        )
        assert gap.difference == pytest.approx((means.mean() or 0) - (best.mean() or 0), abs=2e-3)
    assert "95 % interval" in found.verdict
    assert [each["label"] for each in found.to_dict()["differences"]] == [
        each.label for each in found.differences()
    ]
    json.dumps(found.to_dict())


def test_what_is_compared_on_is_a_matrix() -> None:
    with pytest.raises(BadEntries, match="from_array"):
        compare(["means"], np.ones((4, 5)))  # type: ignore[arg-type]
