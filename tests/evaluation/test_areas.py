"""Errors by area: against a plain restatement, and on matrices whose answer is known."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from deepmf.data import AreaSplit, split_areas, split_entries
from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadSetting, OffScale, UnknownLabel
from deepmf.evaluation.areas import (
    AreaErrors,
    confusion_matrix,
    count_seen,
    evaluate,
    evaluate_cold_start,
    evaluate_columns,
    select_known_entries,
)
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.means import Means

STARS = Scale([1, 2, 3, 4, 5])


@pytest.fixture(scope="module")
def split() -> AreaSplit:
    return split_areas(generate(60, 40, density=0.3, seed=0).matrix, seed=0)


@pytest.fixture(scope="module")
def model(split: AreaSplit) -> Means:
    return Means().fit(split.train).extend(split.extension)


def joined(parts: list[ObservedMatrix]) -> ObservedMatrix:
    rows, columns, values = (
        np.concatenate(arrays) for arrays in zip(*(p.entries() for p in parts), strict=True)
    )
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
    """Answers with another level for each metric: 2 for the squared error, 4 for the absolute
    one."""

    def predict_levels(self, rows: Any, columns: Any, **options: Any) -> FloatArray:
        return np.full(len(rows), {"rmse": 2.0, "mae": 4.0}[options["metric"]])


class Forecasting(ByMetric):
    """The same, and it has a distribution."""

    gives_distribution = True


@pytest.mark.parametrize("kind", [ByMetric, Forecasting])
def test_both_errors_of_levels_are_those_of_the_same_levels(
    split: AreaSplit, kind: type[ByMetric]
) -> None:
    _, _, values = split.test["I"].entries()
    errors = evaluate(kind().fit(split.train), split.test["I"])[0]
    two, four = (
        (np.sqrt(np.mean((level - values) ** 2)), np.mean(abs(level - values))) for level in (2, 4)
    )
    expected = four if kind is Forecasting else (None, None)
    assert (errors.level_rmse, errors.level_mae) == pytest.approx(two)
    assert (errors.median_rmse, errors.median_mae) == pytest.approx(expected)


def test_batches_change_nothing(split: AreaSplit, model: Means) -> None:
    test = joined(list(split.test.values()))
    whole = evaluate(model, test)
    assert evaluate(model, test, batch_size=7) == whole


def test_an_interval_has_no_level_errors_and_may_be_left() -> None:
    train = ObservedMatrix.from_array([[1.0, 2.0], [3.0, np.nan]], Scale(low=0, high=3.5))
    test = ObservedMatrix.from_entries([1], [1], [5.0], Scale(low=0, high=10))
    model = Means(shrinkage=0).fit(train)
    assert model.predict([1], [1]) == pytest.approx([3.0])
    only = evaluate(model, test)[0]
    assert only == AreaErrors("I", 1, pytest.approx(2.0), pytest.approx(2.0), None, None)


def test_all_unknown_ids_are_counted_however_many_entries_are_predicted_at_a_time(
    split: AreaSplit,
) -> None:
    model, test = Means().fit(split.train), joined([split.test["II"], split.test["III"]])
    n_rows = np.unique(split.test["II"].entries().rows).size
    n_columns = np.unique(split.test["III"].entries().columns).size
    with pytest.raises(UnknownLabel, match=f"(?s){n_rows - 1} .*{n_columns} .*extend"):
        evaluate(model, test, batch_size=7)


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
    assert select_known_entries(model, test).n_entries == split.test["I"].n_entries
    assert select_known_entries(model, split.test["I"]) is split.test["I"]
    with pytest.raises(BadEntries, match="entry"):
        evaluate(model, split.test["IV"], unknown="nan")


def test_a_value_that_is_no_level_is_refused(model: Means) -> None:
    rows, columns = model.row_labels_[:1], model.column_labels_[:1]
    test = ObservedMatrix.from_entries(rows, columns, [7.0], Scale(levels=[1, 7]))
    with pytest.raises(OffScale, match="7"):
        evaluate(model, test)


def test_nothing_to_evaluate_on(split: AreaSplit, model: Means) -> None:
    empty = split.train.take_entries(np.empty(0, dtype=np.intp))
    with pytest.raises(BadEntries, match="no test entry"):
        evaluate(model, empty)


def test_entries_that_the_model_has_seen_are_counted(split: AreaSplit, model: Means) -> None:
    assert count_seen(model, split.train) == split.train.n_entries
    assert count_seen(model, split.extension) == split.extension.n_entries
    assert [count_seen(model, test) for test in split.test.values()] == [0, 0, 0, 0]
    assert (
        count_seen(model, joined([split.extension, split.test["I"]])) == split.extension.n_entries
    )
    assert count_seen(Means().fit(split.train), split.extension) == 0


def test_each_column_by_itself() -> None:
    split = split_entries(
        generate(60, 40, density=0.3, seed=0).matrix, train=0.7, validation=0.0, test=0.3, seed=0
    )
    model = Means().fit(split.train)
    errors = evaluate_columns(model, split.test)
    rows, columns, values = split.test.entries()
    assert errors.labels.tolist() == [
        name for name in split.test.column_labels.tolist() if name in set(columns)
    ]
    assert errors.n_entries.sum() == split.test.n_entries
    for label, n_entries, rmse, uncertainty in zip(*vars(errors).values(), strict=True):
        inside = columns == label
        squares = (model.predict(rows[inside], columns[inside]) - values[inside]) ** 2
        assert n_entries == inside.sum()
        assert rmse == pytest.approx(np.sqrt(squares.mean()))
        if n_entries > 1:
            assert uncertainty == pytest.approx(
                squares.std(ddof=1) / np.sqrt(n_entries) / (2 * rmse)
            )
    overall = np.sqrt(np.average(errors.rmse**2, weights=errors.n_entries))
    assert overall == pytest.approx(evaluate(model, split.test)[-1].rmse)


def test_no_error_has_no_uncertainty_and_one_entry_does_not_tell_it() -> None:
    # answers 3 everywhere
    model = Means().fit(ObservedMatrix.from_array(np.full((3, 4), 3.0), STARS))
    test = ObservedMatrix.from_entries(
        [0, 1, 2], [0, 0, 3], [3, 3, 5], STARS, column_labels=range(4)
    )
    errors = evaluate_columns(model, test)
    assert errors.labels.tolist() == [0, 3]
    assert errors.n_entries.tolist() == [2, 1]
    assert errors.rmse.tolist() == [0, 2]
    assert errors.uncertainty[0] == 0
    assert np.isnan(errors.uncertainty[1])


def test_groups_and_their_errors() -> None:
    array = np.full((4, 30), np.nan)
    array[0, :1] = array[1, :3] = array[2, :29] = 3
    array[3, 29] = 3
    model = Means().fit(ObservedMatrix.from_array(array, STARS))  # answers 3 everywhere
    test = ObservedMatrix.from_entries([0, 0, 1, 2, 3], [28, 29, 29, 29, 0], [3, 5, 4, 3, 2], STARS)
    groups = [
        (group.first, group.last, group.n_entries) for group in evaluate_cold_start(model, test)
    ]
    assert groups == [(1, 1, 3), (2, 4, 1), (20, 49, 1)]
    errors = [group.rmse for group in evaluate_cold_start(model, test)]
    assert errors == pytest.approx([np.sqrt((0 + 4 + 1) / 3), 1, 0])


def test_rows_are_true_levels_and_columns_predicted_ones() -> None:
    train = ObservedMatrix.from_array([[2, 2, np.nan], [2, 2, 2]], STARS)
    test = ObservedMatrix.from_entries([0, 1, 1], [2, 0, 1], [5, 2, 1], STARS)
    counts = confusion_matrix(Means(shrinkage=0).fit(train), test)  # answers 2 everywhere
    expected = np.zeros((5, 5), dtype=int)
    expected[4, 1] = expected[1, 1] = expected[0, 1] = 1
    np.testing.assert_array_equal(counts, expected)


def test_a_scale_without_levels() -> None:
    matrix = ObservedMatrix.from_array([[0.5, 0.25], [0.1, 0.2]], Scale(low=0, high=1))
    with pytest.raises(BadSetting, match="levels"):
        confusion_matrix(Means().fit(matrix), matrix)


@pytest.mark.parametrize("measure", [evaluate, evaluate_ranking])
def test_a_test_is_a_matrix(measure: Any) -> None:
    model = Means().fit(ObservedMatrix.from_array([[1.0, 2.0], [2.0, np.nan]]))
    with pytest.raises(BadEntries, match="from_array"):
        measure(model, np.ones((2, 2)))
