"""Comparing models: the same splits for all, test entries once, failures apart, memory of a process of one's own."""

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from deepmf.data.splits import split_folds
from deepmf.data.synthetic.generator import generate
from deepmf.errors import BadFeatures, BadSetting, BadSplit
from deepmf.evaluation.area_evaluation import evaluate
from deepmf.evaluation.compare_models import compare
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf.dmf import DMF
from deepmf.models.factorization.als import ALS
from deepmf.models.factorization.rankk import RankK
from deepmf.models.means import Means

MATRIX = generate(40, 30, density=0.3, seed=0).matrix


class Watched(Means):
    """Means that keep what they were given."""

    seen: ClassVar[list[tuple[ObservedMatrix, ObservedMatrix | None]]] = []

    def fit(self, train: ObservedMatrix, validation: ObservedMatrix | None = None, **options: Any) -> Self:
        self.seen.append((train, validation))
        return super().fit(train, validation, **options)


@pytest.fixture
def watched() -> Iterator[type[Watched]]:
    Watched.seen.clear()
    yield Watched


def test_the_errors_are_those_of_the_folds(watched: type[Watched]) -> None:
    found = compare([watched, "means"], MATRIX, folds=3, seed=4, own_processes=False)
    splits = split_folds(MATRIX, 3, seed=4)
    assert watched.seen == [(split.train, split.validation) for split in splits]
    wanted = [evaluate(Means().fit(split.train), split.test)[-1] for split in splits]
    for model in found.models:
        assert model.errors("rmse").tolist() == [errors.rmse for errors in wanted]
        assert model.spread("mae") == pytest.approx(np.std([errors.mae for errors in wanted], ddof=1))
        assert model.peak_memory_mb is None
    assert found.areas == ["I"]
    assert [model.label for model in found.models] == ["Watched", "means"]


def test_no_test_entry_is_ever_given(watched: type[Watched]) -> None:
    compare([watched], MATRIX, folds=4, own_processes=False)
    compare([watched], MATRIX, folds=2, areas=True, own_processes=False)
    for (train, validation), split in zip(watched.seen[:4], split_folds(MATRIX, 4), strict=True):
        assert validation is not None
        for part in (train, validation):
            assert np.count_nonzero(part.to_sparse().multiply(split.test.to_sparse()).toarray()) == 0
    assert watched.seen[4][0].shape == (32, 24)  # new rows and columns are unknown to training


def test_by_area_and_only_where_a_method_predicts() -> None:
    found = compare(["means", ALS(latent_size=2), RankK(epochs=2)], MATRIX, folds=2, areas=True, own_processes=False)
    _, als, rankk = found.models
    assert found.areas == ["I", "II", "III", "IV", "all"]
    assert list(rankk.splits[0].areas) == ["I"] and rankk.mean("rmse", "II") is None and rankk.mean() is None
    assert found.best in ("means", "als") and set(found.best_by_area) == {"I", "II", "III", "IV"}
    split = als.splits[1]
    parts = [split.areas[area] for area in ("I", "II", "III", "IV")]
    squares = sum(part.n_entries * part.rmse**2 for part in parts)
    assert split.areas["all"].rmse == pytest.approx(np.sqrt(squares / sum(part.n_entries for part in parts)))
    assert split.areas["all"].mae == pytest.approx(
        np.average([p.mae for p in parts], weights=[p.n_entries for p in parts])
    )
    assert found.to_frame().filter(model="rankk", area="IV")["rmse"].to_list() == [None]
    assert "-" in str(found).splitlines()[3]


def test_the_same_again(watched: type[Watched]) -> None:
    one, other = (compare(["als"], MATRIX, folds=2, own_processes=False) for _ in range(2))
    assert one.models[0].errors().tolist() == other.models[0].errors().tolist()


def test_one_that_fails_does_not_stop_the_others() -> None:
    diverging = DMF(hidden_sizes=(4,), latent_size=2, epochs=3, learning_rate=1e30, device="cpu")
    found = compare({"wild": diverging, "means": "means"}, MATRIX, folds=2, own_processes=False)
    assert found.models[0].failure is not None and found.models[0].splits == ()
    assert found.best == "means"
    assert "wild failed: " in str(found)


def test_how_far_it_is() -> None:
    told: list[tuple[int, int | None]] = []
    compare(["means", "als"], MATRIX, folds=2, own_processes=False, progress=lambda *done: told.append(done))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("models", "options", "error", "message"),
    [
        ("als", {}, BadSetting, r"takes a list of models, such as \['means', 'als'\]; got 'als'"),
        ([], {}, BadSetting, "there is no model to compare"),
        (["als", ALS()], {}, BadSetting, "two models are called 'als'; a mapping gives them names"),
        (["xyz"], {}, BadSetting, "xyz"),
        ([3], {}, BadSetting, "a name, a class or an unfitted model; got 3"),
        (["als"], {"folds": 1}, BadSplit, "folds must be a whole number from 2"),
        (["als"], {"folds": 0, "areas": True}, BadSplit, "at least 1"),
        (["als"], {"areas": True, "validation": 0.9}, BadSplit, "train must be a share"),
    ],
)
def test_what_cannot_be_compared(models: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compare(models, MATRIX, own_processes=False, **options)


def test_features_are_for_the_models_that_read_them() -> None:
    rated = generate(120, 80, density=0.05, noise=0.3, rank=1, explained=0.9, seed=0)
    given: dict[str, Any] = {"row_features": rated.row_features, "column_features": rated.column_features}
    options: dict[str, Any] = {"folds": 2, "areas": True, "own_processes": False}
    models = {"means": Means(), "rankk": RankK(epochs=2, latent_size=2)}
    plain, described = (compare(models, rated.matrix, **options, **each) for each in ({}, given))
    assert described.models[1].mean(area="I") == plain.models[1].mean(area="I")
    before, after = plain.models[0].mean(), described.models[0].mean()
    assert before is not None and after is not None and after < 0.97 * before


@pytest.mark.slow
def test_features_in_another_process() -> None:
    rated = generate(40, 30, density=0.3, explained=0.5, seed=0)
    given: dict[str, Any] = {"row_features": rated.row_features, "column_features": rated.column_features}
    here, apart = (compare(["als"], rated.matrix, folds=2, own_processes=own, **given) for own in (False, True))
    assert [split.areas for split in here.models[0].splits] == [split.areas for split in apart.models[0].splits]


def test_features_that_cannot_be_used_are_refused_before_anything_is_fitted() -> None:
    odd = Features(["nobody"], {"age": [3]})
    for given, said in (
        ({"row_features": odd}, "no label of the row features is a row of the matrix"),
        ({"column_features": [1, 2]}, "column_features must be Features"),
    ):
        with pytest.raises(BadFeatures, match=said):
            compare(["means"], MATRIX, own_processes=False, **given)  # type: ignore[arg-type]
