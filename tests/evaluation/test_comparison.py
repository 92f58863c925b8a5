"""A comparison in numbers: who is best, by how much, and how it reads as a table."""

from deepmf.data.synthetic.generator import generate
from deepmf.evaluation.area_evaluation import AreaErrors
from deepmf.evaluation.comparison import ComparedModel, Comparison
from deepmf.evaluation.split_errors import SplitErrors
from deepmf.evaluation.split_plan import SplitPlan

DATA = generate(10, 8, density=0.5, seed=0).matrix.describe()


def model(label: str, *errors: float, memory: int | None = None, failure: str | None = None) -> ComparedModel:
    parts = [AreaErrors("I", 10, error, error / 2, None, None) for error in errors]
    splits = tuple(SplitErrors({"I": part, "all": part}, 2.0) for part in parts)
    return ComparedModel(label, "Means", {}, splits, memory, failure)


def compared(*models: ComparedModel) -> Comparison:
    return Comparison(models, SplitPlan(folds=2), DATA)


def test_the_best_has_the_smallest_mean_and_the_verdict_counts_folds() -> None:
    found = compared(model("one", 1.0, 0.8), model("two", 0.75, 0.85))
    assert found.best == "two"
    assert found.verdict == "best: two, RMSE 0.8000; the next is one, 0.9000: two is better on 1 of 2 folds"
    assert [each.label for each in found.ranked()] == ["two", "one"]
    assert compared(model("one", 1.0)).verdict == "best: one, RMSE 1.0000"


def test_as_a_table() -> None:
    found = compared(model("means", 1.0, 0.8, memory=1234), model("als", failure="it diverged"))
    assert str(found).splitlines() == [
        "model             RMSE              MAE  seconds  peak MB",
        "means  0.9000 ± 0.1414  0.4500 ± 0.0707     2.00    1,234",
        "als                  -                -                  ",
        "als failed: it diverged",
        "best: means, RMSE 0.9000",
    ]
    plain = found.to_dict()
    assert plain["models"][0]["rmse"] == {"I": 0.9} and plain["models"][1]["failure"] == "it diverged"
    assert plain["models"][0]["splits"][1]["areas"]["I"]["mae"] == 0.4
    assert SplitErrors.from_dict(plain["models"][0]["splits"][0]) == found.models[0].splits[0]


def test_where_nothing_was_fitted() -> None:
    found = compared(model("als", failure="it diverged"))
    assert (found.best, found.areas, found.verdict) == (None, [], "no model predicts all test entries")
