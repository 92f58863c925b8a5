"""Models of a comparison: means and spreads over splits, paired differences, order, and what cannot be compared."""

import numpy as np
import pytest

from deepmf.data.splits import AreaSplit
from deepmf.errors import BadEntries, UnknownLabel
from deepmf.evaluation.area_evaluation import AreaErrors, evaluate
from deepmf.evaluation.ranking_evaluation import evaluate_ranking
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.report.compared_models import ComparedModel, Comparison, evaluated_models


def errors_of(**by_area: float) -> list[AreaErrors]:
    return [AreaErrors(area, 100, error, error / 2, None, None) for area, error in by_area.items()]


def model_of(name: str, *numbers: float) -> ComparedModel:
    return ComparedModel(name, [errors_of(I=number, all=number) for number in numbers])


def test_means_and_spreads_over_splits() -> None:
    found = model_of("ALS", 0.8, 0.9, 1.0).error("I")
    assert found is not None
    assert (found.mean, found.margin) == (pytest.approx(0.9), pytest.approx(0.1))
    alone = model_of("ALS", 0.8)
    assert alone.error("I") == (0.8, pytest.approx(0.8 / np.sqrt(200)))
    assert alone.error("I", "mae") == (0.4, None)
    assert alone.error("II") is None
    assert alone.score("ndcg") is None


def test_differences_are_those_on_the_same_splits() -> None:
    one, other = model_of("one", 0.8, 1.0, 1.2), model_of("other", 0.7, 0.9, 1.1)  # far apart, and always by 0.1
    above = one.above(other, "I")
    assert above is not None
    assert (above.mean, above.margin) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-9))
    assert model_of("one", 0.8).above(model_of("other", 0.7), "I") == (pytest.approx(0.1), None)


def test_the_lowest_error_comes_first() -> None:
    compared = Comparison([model_of("b", 0.9), model_of("a", 0.8), model_of("c", 1.0)])
    assert [model.name for model in compared.models] == ["a", "b", "c"]
    assert (compared.areas, compared.main_area, compared.n_splits) == (["I"], "I", 1)


def test_a_model_that_does_not_predict_everywhere_is_compared_where_all_do() -> None:
    whole = ComparedModel("whole", [errors_of(I=0.9, II=0.5, all=0.6)])
    partly = ComparedModel("partly", [errors_of(I=0.8, all=0.8)])
    compared = Comparison([whole, partly])
    assert (compared.areas, compared.main_area) == (["I", "II", "all"], "I")
    assert compared.best is partly
    assert compared.error(partly, "all") is None  # its "all" is area I alone
    assert compared.error(whole, "all") is not None
    assert Comparison([whole]).main_area == "all"


def test_what_cannot_be_compared() -> None:
    with pytest.raises(BadEntries, match="nothing to compare: give at least one model"):
        Comparison([])
    with pytest.raises(BadEntries, match="two models of the comparison have the name 'a'"):
        Comparison([model_of("a", 1), model_of("a", 2)])
    with pytest.raises(BadEntries, match=r"on the same splits; the numbers of splits are \{'a': 1, 'b': 2\}"):
        Comparison([model_of("a", 1), model_of("b", 1, 2)])
    with pytest.raises(BadEntries, match="have no area in common"):
        Comparison([model_of("a", 1), ComparedModel("b", [errors_of(II=1, all=1)])])
    for nothing in ([], [[]]):
        with pytest.raises(BadEntries, match="'a' has no errors to compare"):
            ComparedModel("a", nothing)


def test_fitted_models_on_one_test(split: AreaSplit) -> None:
    models = {"means": Means().fit(split.train), "ALS": ALS(latent_size=2, epochs=2).fit(split.train)}
    means, als = evaluated_models(models, split.test["I"], n=3, relevant_from=4)
    assert (means.name, als.name) == ("means", "ALS")
    assert als.areas == [evaluate(models["ALS"], split.test["I"])]
    assert als.rankings == [evaluate_ranking(models["ALS"], split.test["I"], n=3, relevant_from=4)]
    assert als.settings["latent_size"] == 2
    with pytest.raises(UnknownLabel):
        evaluated_models(models, split.test["II"])
    reals = ObservedMatrix.from_array(np.random.default_rng(0).normal(size=(20, 20)))
    assert evaluated_models({"means": Means().fit(reals)}, reals)[0].rankings == []
