"""Errors by area: against a plain restatement, and on matrices whose answer is known."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from deepmf.data.splits import AreaSplit, split_areas
from deepmf.data.synthetic.generator import generate
from deepmf.errors import BadEntries, OffScale, UnknownLabel
from deepmf.evaluation import area_evaluation as areas
from deepmf.evaluation.area_evaluation import AreaErrors, count_seen, evaluate, known_entries
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.label_pairs import Unknown
from deepmf.models.means import Means


@pytest.fixture(scope="module")
def split() -> AreaSplit:
    return split_areas(generate(60, 40, density=0.3, seed=0).matrix, seed=0)


@pytest.fixture(scope="module")
def model(split: AreaSplit) -> Means:
    return Means().fit(split.train).extend(split.extension)


def joined(parts: list[ObservedMatrix]) -> ObservedMatrix:
    rows, columns, values = (np.concatenate(arrays) for arrays in zip(*(p.entries() for p in parts), strict=True))
    return ObservedMatrix.from_entries(rows, columns, values, parts[0].scale)


def test_every_area_is_measured_by_itself_and_all_together(split: AreaSplit, model: Means) -> None:
    errors = evaluate(model, joined(list(split.test.values())))
    assert [part.area for part in errors] == ["I", "II", "III", "IV", "all"]
    squares, n_entries = 0.0, 0
    for part in errors[:-1]:
        rows, columns, values = split.test[part.area].entries()
        differences = model.predict(rows, columns) - values
        level_differences = model.predict_levels(rows, columns) - values
        assert part.n_entries == values.size
        assert part.rmse == pytest.approx(np.sqrt(np.mean(differences**2)))
        assert part.mae == pytest.approx(np.mean(abs(differences)))
        assert part.level_rmse == pytest.approx(np.sqrt(np.mean(level_differences**2)))
        assert part.level_mae == pytest.approx(np.mean(abs(level_differences)))
        squares, n_entries = squares + np.sum(differences**2), n_entries + values.size
    assert errors[-1].n_entries == n_entries
    assert errors[-1].rmse == pytest.approx(np.sqrt(squares / n_entries))


class ByMetric(Means):
    """Answers with another level for each metric: 2 for the squared error, 4 for the absolute one."""

    def predict_levels(
        self, rows: Iterable[Any], columns: Iterable[Any], *, metric: str = "rmse", unknown: Unknown = "error"
    ) -> FloatArray:
        return np.full(self.predict(rows, columns, unknown=unknown).size, {"rmse": 2.0, "mae": 4.0}[metric])


class Forecasting(ByMetric):
    """The same, and it has a distribution."""

    gives_distribution = True


@pytest.mark.parametrize("kind", [ByMetric, Forecasting])
def test_both_errors_of_levels_are_those_of_the_same_levels(split: AreaSplit, kind: type[ByMetric]) -> None:
    _, _, values = split.test["I"].entries()
    errors = evaluate(kind().fit(split.train), split.test["I"])[0]
    two, four = ((np.sqrt(np.mean((level - values) ** 2)), np.mean(abs(level - values))) for level in (2, 4))
    assert (errors.level_rmse, errors.level_mae) == pytest.approx(two)
    if kind is Forecasting:
        assert (errors.median_rmse, errors.median_mae) == pytest.approx(four)
    else:
        assert (errors.median_rmse, errors.median_mae) == (None, None)


def test_only_areas_that_are_present(split: AreaSplit, model: Means) -> None:
    assert [part.area for part in evaluate(model, split.test["III"])] == ["III", "all"]


def test_batches_change_nothing(split: AreaSplit, model: Means, monkeypatch: pytest.MonkeyPatch) -> None:
    test = joined(list(split.test.values()))
    whole = evaluate(model, test)
    monkeypatch.setattr(areas, "_ENTRIES_AT_A_TIME", 7)
    assert evaluate(model, test) == whole


def test_an_interval_has_no_level_errors_and_may_be_left() -> None:
    train = ObservedMatrix.from_array([[1.0, 2.0], [3.0, np.nan]], Scale(low=0, high=3.5))
    test = ObservedMatrix.from_entries([1], [1], [5.0], Scale(low=0, high=10))
    model = Means(shrinkage=0).fit(train)
    assert model.predict([1], [1]) == pytest.approx([3.0])
    only = evaluate(model, test)[0]
    assert only == AreaErrors("I", 1, pytest.approx(2.0), pytest.approx(2.0), None, None)


def test_unknown_ids_are_named_and_extend_is_hinted_at(split: AreaSplit) -> None:
    with pytest.raises(UnknownLabel, match=r"row '.*' is not known .*--extend.* adds new rows and columns"):
        evaluate(Means().fit(split.train), split.test["II"])


def test_all_unknown_ids_are_counted_however_many_entries_are_predicted_at_a_time(
    split: AreaSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(areas, "_ENTRIES_AT_A_TIME", 7)
    test = joined([split.test["II"], split.test["III"]])
    n_rows, n_columns = (np.unique(split.test[area].entries()[axis]).size for axis, area in enumerate(("II", "III")))
    with pytest.raises(
        UnknownLabel, match=rf"\(and {n_rows - 1} more and {n_columns} column\(s\)\).*--unknown fallback"
    ):
        evaluate(Means().fit(split.train), test)


def test_entries_that_only_the_fallback_answers_are_measured_apart(split: AreaSplit) -> None:
    model, new = Means().fit(split.train), [split.test[area] for area in ("II", "III", "IV")]
    errors = evaluate(model, joined(list(split.test.values())), unknown="fallback")
    assert [part.area for part in errors] == ["I", "unknown", "all"]
    assert asdict(errors[0]) == pytest.approx(asdict(evaluate(model, split.test["I"])[0]))
    rows, columns, values = joined(new).entries()
    differences = model.predict(rows, columns, unknown="fallback") - values
    assert errors[1].n_entries == values.size
    assert errors[1].rmse == pytest.approx(np.sqrt(np.mean(differences**2)))
    squares = sum(part.n_entries * part.rmse**2 for part in errors[:2])
    assert errors[2].n_entries == errors[0].n_entries + values.size
    assert errors[2].rmse == pytest.approx(np.sqrt(squares / errors[2].n_entries))


def test_unknown_entries_can_be_left_out(split: AreaSplit) -> None:
    model, test = Means().fit(split.train), joined(list(split.test.values()))
    known, everything = evaluate(model, test, unknown="nan")
    assert asdict(known) == pytest.approx(asdict(evaluate(model, split.test["I"])[0]))
    assert asdict(everything) == asdict(known) | {"area": "all"}
    assert known_entries(model, test).n_entries == split.test["I"].n_entries
    assert known_entries(model, split.test["I"]) is split.test["I"]
    with pytest.raises(BadEntries, match="no test entry has a row and a column that the model knows"):
        evaluate(model, split.test["IV"], unknown="nan")


def test_a_value_that_is_no_level_is_refused(model: Means) -> None:
    rows, columns = model.row_labels_[:1], model.column_labels_[:1]
    test = ObservedMatrix.from_entries(rows, columns, [7.0], Scale(levels=[1, 7]))
    with pytest.raises(OffScale, match=r"has the value 7; the model's scale is 1 to 5 in steps of 1"):
        evaluate(model, test)


def test_nothing_to_evaluate_on(split: AreaSplit, model: Means) -> None:
    empty = split.train.take_entries(np.empty(0, dtype=np.intp))
    with pytest.raises(BadEntries, match="nothing to evaluate on"):
        evaluate(model, empty)


def test_entries_that_the_model_has_seen_are_counted(split: AreaSplit, model: Means) -> None:
    assert count_seen(model, split.train) == split.train.n_entries
    assert count_seen(model, split.extension) == split.extension.n_entries
    assert [count_seen(model, test) for test in split.test.values()] == [0, 0, 0, 0]
    assert count_seen(model, joined([split.extension, split.test["I"]])) == split.extension.n_entries
    assert count_seen(Means().fit(split.train), split.extension) == 0


def test_few_entries_have_a_wide_margin() -> None:
    assert AreaErrors("I", 2, 0.8, 0.6, None, None).margin == pytest.approx(0.4)
    errors = np.random.default_rng(0).normal(scale=0.8, size=(2000, 50))
    spread = np.sqrt(np.mean(errors**2, axis=1)).std()
    assert AreaErrors("I", 50, 0.8, 0.6, None, None).margin == pytest.approx(spread, rel=0.1)
