"""What models refuse, whichever they are: wrong pairs, histories, extensions, questions; and
filters of rankings."""

from typing import Any

import numpy as np
import pytest

from deepmf.errors import BadEntries, BadSetting, DuplicateEntries, OffScale, UnknownLabel
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.means import Means
from deepmf.testing import HISTORY, additive


@pytest.fixture(scope="module")
def matrix() -> ObservedMatrix:
    return additive()


@pytest.fixture(scope="module", params=[Means, ALS])
def fitted(request: pytest.FixtureRequest, matrix: ObservedMatrix) -> Model:
    settings = {"latent_size": 2, "epochs": 3} if request.param is ALS else {}
    return request.param(**settings).fit(matrix)


# Columns, values, and how they are refused.
BAD_HISTORIES: list[Any] = [
    (["column 1", "column 99"], [1, 2], UnknownLabel, "'column 99'"),
    (["column 1", "column 2", "column 1"], [1, 2, 1], BadEntries, "twice"),
    (["column 1", "column 2"], [1, 6], OffScale, "'column 2'"),
    (["column 1"], [2.5], OffScale, "2.5"),
    (["column 1"], [np.nan], OffScale, "nan"),
    ([], [], BadEntries, "entry"),
    (["column 1", "column 2"], [1], BadEntries, "2 and 1"),
    (["column 1"], [1, 2], BadEntries, "1 and 2"),
    ("column 1", [1], BadEntries, "single"),
    (["column 1"], 1, BadEntries, "^values"),
    (["column 1"], ["five"], BadEntries, "'five'"),
    ([7], [1], UnknownLabel, "column 7"),
]

BAD_COLUMNS: list[Any] = [
    (["row 1", "row 99"], [1, 2], UnknownLabel, "'row 99'"),
    (["row 1", "row 2", "row 1"], [1, 2, 1], BadEntries, "twice"),
    (["row 1", "row 2"], [1, 6], OffScale, "'row 2'"),
    ([], [], BadEntries, "entry"),
    (["row 1", "row 2"], [1], BadEntries, "2 and 1"),
    ("row 1", [1], BadEntries, "single"),
]

BAD_TO_FORGET: list[Any] = [
    ({}, BadEntries, "nothing"),
    ({"rows": ["row 99"]}, UnknownLabel, "'row 99'"),
    ({"columns": ["column 99"]}, UnknownLabel, "column 99"),
    ({"rows": "row 1"}, BadEntries, "single"),
    ({"entries": (["row 1"], ["column 99"])}, UnknownLabel, "column 99"),
    ({"entries": (["row 1"], [])}, BadEntries, "1 and 0"),
    ({"entries": [("row 1", "column 1")]}, BadEntries, "list"),
    ({"rows": ["row 1"], "missing": "skip"}, BadSetting, "'skip'"),
]

BAD_PAIRS: list[Any] = [
    (["row 1", "row 99"], ["column 1"] * 2, UnknownLabel, "'row 99'"),
    (["row 1"], ["column 99"], UnknownLabel, "column 99"),
    (["row 1", "row 2"], ["column 1"], BadEntries, "2 and 1"),
    ("row 1", "column 1", BadEntries, "single"),
    (1, 2, BadEntries, "^rows"),
]


def test_bad_histories(fitted: Model) -> None:
    for columns, values, error, message in BAD_HISTORIES:
        with pytest.raises(error, match=message):
            fitted.fold_in(columns, values)


def test_bad_questions_to_what_is_folded_in(fitted: Model) -> None:
    folded = fitted.fold_in(*HISTORY)
    with pytest.raises(UnknownLabel, match="column 99"):
        folded.predict(["column 99"])
    with pytest.raises(BadSetting, match="'rms'"):
        folded.predict_levels(["column 1"], metric="rms")
    with pytest.raises(BadSetting, match="^n "):
        folded.recommend(n=0)
    with pytest.raises(BadSetting, match="coverage"):
        folded.predict_interval(["column 1"], coverage=2)
    if not fitted.gives_distribution:
        for ask in (folded.predict_distribution, folded.predict_interval):
            with pytest.raises(BadSetting, match="BayesianMF"):
                ask(["column 1"])


def test_bad_columns_to_fold_in(fitted: Model) -> None:
    for rows, values, error, message in BAD_COLUMNS:
        with pytest.raises(error, match=message):
            fitted.fold_in_column(rows, values)


def test_bad_questions_for_an_explanation(fitted: Model) -> None:
    for axis in ("row", "column"):
        for asked, error, message in (
            (("row 99", "column 4"), UnknownLabel, "'row 99'"),
            (("row 3", "column 99"), UnknownLabel, "column 99"),
            (("row 3", "column 4", 0), BadSetting, "n "),
        ):
            with pytest.raises(error, match=message):
                fitted.explain(*asked, axis=axis)  # type: ignore[arg-type, misc]
    with pytest.raises(BadSetting, match="'both'"):
        fitted.explain("row 3", "column 4", axis="both")  # type: ignore[arg-type]


def test_bad_things_to_forget(fitted: Model) -> None:
    for asked, error, message in BAD_TO_FORGET:
        with pytest.raises(error, match=message):
            fitted.forget(**asked)


def test_what_is_not_there_is_not_forgotten(fitted: Model, matrix: ObservedMatrix) -> None:
    row, column = np.argwhere(np.isnan(matrix.to_array()))[0]
    pair = [matrix.row_labels[row]], [matrix.column_labels[column]]
    with pytest.raises(BadEntries, match="forget"):
        fitted.forget(entries=(pair[0], pair[1]))
    with pytest.raises(BadEntries, match="row 1"):
        fitted.forget(rows=["row 1"]).forget(rows=["row 1"])
    with pytest.raises(BadEntries, match="column 1"):
        fitted.forget(columns=["column 1"]).forget(columns=["column 1"])


def test_bad_pairs(fitted: Model) -> None:
    for rows, columns, error, message in BAD_PAIRS:
        for ask in (fitted.predict, fitted.predict_levels, fitted.areas):
            with pytest.raises(error, match=message):
                ask(rows, columns)


def test_unknown_labels_are_refused_left_out_or_answered_by_the_means(
    fitted: Model, matrix: ObservedMatrix
) -> None:
    rows = ["row 1", "row 99", "row 2", "row 98", "row 3"]
    columns = ["column 1", "column 2", "column 99", "column 99", "column 4"]
    known, new = np.array([0, 4]), np.array([1, 2, 3])
    pairs = [rows[at] for at in known], [columns[at] for at in known]
    refused = "'row 99'"
    asks = [fitted.predict, fitted.predict_levels, fitted.scores]
    for ask in asks:
        with pytest.raises(UnknownLabel, match=refused):
            ask(rows, columns)
        left_out, answered = (
            ask(rows, columns, unknown=unknown) for unknown in ("nan", "fallback")
        )
        np.testing.assert_array_equal(np.isnan(left_out), [False, True, True, True, False])
        np.testing.assert_array_equal(ask(*pairs, unknown="fallback"), ask(*pairs))
        np.testing.assert_allclose(left_out[known], ask(*pairs), rtol=1e-6)
        np.testing.assert_array_equal(answered[known], left_out[known])
    means = Means().fit(matrix)
    expected = means.mean_ + np.array([means.column_effects_[2], means.row_effects_[2], 0.0])
    if not isinstance(fitted, Means):  # which has a shrinkage of its own
        np.testing.assert_allclose(fitted.scores(rows, columns, unknown="fallback")[new], expected)
    levels = fitted.predict_levels(rows, columns, unknown="fallback")[new]
    np.testing.assert_array_equal(levels, matrix.scale.nearest_level(expected))
    predicted = fitted.predict(rows, columns, unknown="fallback")[new]
    np.testing.assert_allclose(
        predicted, levels if fitted.predictor_.readout.predicts_levels else expected
    )
    assert fitted.areas(rows, columns, unknown="nan").tolist() == ["I", "", "", "", "I"]
    with pytest.raises(BadSetting, match="'mean'"):
        fitted.predict(rows, columns, unknown="mean")  # type: ignore[arg-type]
    with pytest.raises(BadEntries, match="ints"):
        fitted.predict([7], ["column 1"], unknown="fallback")


def test_bad_training_matrices(matrix: ObservedMatrix) -> None:
    with pytest.raises(BadEntries, match="entries"):
        Means().fit(matrix.take_entries(np.zeros(matrix.n_entries, dtype=bool)))
    with pytest.raises(BadEntries, match="ndarray"):
        Means().fit(matrix.to_array())  # type: ignore[arg-type]
    stranger = ObservedMatrix.from_entries(["row 1", "x"], ["y", "column 2"], [1, 2], matrix.scale)
    with pytest.raises(UnknownLabel, match="'y'"):
        Means().fit(matrix, validation=stranger)
    with pytest.raises(BadEntries, match="validation"):
        Means().fit(matrix, validation=[1])  # type: ignore[arg-type]
    ten = ObservedMatrix.from_entries(["row 1"], ["column 1"], [10], Scale([1, 10]))
    with pytest.raises(BadEntries, match="scale"):
        Means().fit(matrix, validation=ten)


def test_bad_extensions(fitted: Model, matrix: ObservedMatrix) -> None:
    with pytest.raises(BadEntries, match="list"):
        fitted.extend([1, 2])  # type: ignore[arg-type]
    rows, columns, values = (array[:3] for array in matrix.entries())
    with pytest.raises(BadEntries, match="nothing"):
        fitted.extend(ObservedMatrix.from_entries(rows, columns, values, matrix.scale))
    with pytest.raises(DuplicateEntries, match="contradicts"):
        fitted.extend(
            ObservedMatrix.from_entries(rows, columns, 6 - values + (values == 3), matrix.scale)
        )
    with pytest.raises(OffScale, match="1, 10"):
        fitted.extend(ObservedMatrix.from_entries(["n", "n"], ["column 1", "column 2"], [1, 10]))
    with pytest.raises(BadEntries, match="ints"):
        fitted.extend(ObservedMatrix.from_entries([7, 7], ["column 1", "column 2"], [1, 2]))
    with pytest.raises(DuplicateEntries):
        fitted.extend(ObservedMatrix.from_entries(["n", "n"], ["column 1"] * 2, [1, 2]))


def test_recommendations(fitted: Model, matrix: ObservedMatrix) -> None:
    labels = fitted.recommend("row 3", n=4).labels
    rated = matrix.column_labels[matrix.by_row.columns[slice(*matrix.by_row.starts[3:5])]]
    some = fitted.recommend(
        "row 3", n=2, among=["column 1", "column 2", "column 4"], include_observed=True
    )
    assert set(some.labels) <= {"column 1", "column 2", "column 4"}
    assert fitted.recommend("row 3", n=99, among=[*rated, *rated]).labels.size == 0
    twice = fitted.recommend("row 3", n=99, among=["column 1", "column 1"], include_observed=True)
    assert twice.labels.tolist() == ["column 1"]
    left = fitted.recommend("row 3", n=1000, exclude=labels[:2]).labels.tolist()
    assert left == fitted.recommend("row 3", n=1000).labels.tolist()[2:]
    both = fitted.recommend(
        "row 3", among=["column 1", "column 2"], exclude=["column 2"], include_observed=True
    )
    assert both.labels.tolist() == ["column 1"]
    nothing = fitted.recommend("row 3", among=["column 1"], exclude=["column 1"])
    assert nothing.labels.size == nothing.values.size == 0
    for asked in ({"among": ["column 99"]}, {"exclude": ["column 99"]}):
        with pytest.raises(UnknownLabel, match="column 99"):
            fitted.recommend("row 3", **asked)
    for asked in ({"among": "column 1"}, {"exclude": "column 1"}):
        with pytest.raises(BadEntries, match="'column 1'"):
            fitted.recommend("row 3", **asked)
    assert fitted.recommend(("row 3", "row 5"), n=2).labels.shape == (2, 2)
    many = fitted.recommend(["row 3", "row 5"], n=4)
    assert many.labels.shape == many.values.shape == (2, 4)
    assert many.labels[0].tolist() == labels.tolist()
