"""The areas that a method predicts in: what lies in others is refused with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from deepmf.data import split_areas
from deepmf.datasets import generate
from deepmf.errors import CannotExtend
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.cfnade import UCFNADE
from deepmf.scoring.pairs import Fallback, FallbackPredictor, PredictedAreas
from deepmf.scoring.readouts import Readout
from deepmf.testing import additive

KNOWN, MORE = Labels(["a"], axis="column"), Labels(["a", "b"], axis="column")


def test_what_covers_all_areas_refuses_nothing() -> None:
    areas = PredictedAreas("All", ("I", "II", "III", "IV"), "")
    areas.check_extends()
    for axis in ("row", "column"):
        assert areas.covers_new(axis)
        areas.require(axis, "do it")
        areas.check_new(axis, KNOWN, MORE)


def test_new_columns_are_refused_by_name_where_rows_alone_may_be_new() -> None:
    areas = PredictedAreas("Rows", ("I", "II"), "columns have weights")
    areas.check_extends()
    areas.check_new("column", KNOWN, KNOWN)
    with pytest.raises(CannotExtend, match="'b'"):
        areas.check_new("column", KNOWN, MORE)
    with pytest.raises(CannotExtend, match="columns"):
        areas.require("column", "predict for new columns")
    with pytest.raises(CannotExtend, match="explain"):
        areas.require("column", "explain by the entries of a column")


def test_what_predicts_in_the_first_area_alone_is_never_extended() -> None:
    with pytest.raises(CannotExtend, match="factors"):
        PredictedAreas("One", ("I",), "it has factors alone").check_extends()


QUICK = {
    "hidden_sizes": (8,),
    "latent_size": 4,
    "epochs": 2,
    "views": 2,
    "landmarks": 4,
    "device": "cpu",
}
QUICK |= {"linear_size": 0, "presence": None}

BOUNDARIES = np.array([-0.75, -0.25, 0.25, 0.75], dtype=np.float32)  # between the levels 1 to 5


def restated(values: np.ndarray, overall: np.ndarray) -> np.ndarray:
    """How frequent the levels 1 to 5 are among values, mixed with five entries of the overall
    frequencies."""
    counts = np.array([(values == level).sum() for level in range(1, 6)])
    mixed: np.ndarray = (counts + 5 * overall) / (counts.sum() + 5)
    return mixed


def test_the_means_are_those_of_the_model_of_means_in_every_area() -> None:
    split = split_areas(generate(60, 40, density=0.3, seed=0).matrix, seed=0)
    means = Means().fit(split.train).extend(split.extension)
    rows, columns = np.arange(len(means.row_labels_)), np.arange(len(means.column_labels_))
    fallback = Fallback(means.entries_)
    of_columns = fallback.means(np.full(columns.size, -1), columns)
    np.testing.assert_allclose(of_columns, means.mean_ + means.column_effects_)
    of_rows = fallback.means(rows, np.full(rows.size, -1))
    # the entries of known rows over new columns move columns, but not these means
    new = rows >= split.train.shape[0]
    np.testing.assert_allclose(of_rows[new], (means.mean_ + means.row_effects_)[new])
    assert fallback.means(np.array([-1]), np.array([-1])) == pytest.approx([split.train.mean])


def test_the_model_of_means_keeps_its_own_shrinkage() -> None:
    model = Means(shrinkage=0.0).fit(
        ObservedMatrix.from_array([[1, 2], [5, 4]], Scale([1, 2, 3, 4, 5]))
    )
    assert model.predict([0, 7, 7], [9, 0, 9], unknown="fallback") == pytest.approx([1.5, 3.0, 3.0])


def test_an_extension_counts_and_another_extension_is_not_confused_with_it() -> None:
    model = Means().fit(additive())
    before = model.predict(["n"], ["column 1"], unknown="fallback")
    low, high = (
        model.extend(
            ObservedMatrix.from_entries(
                ["n"] * 3, ["column 1", "column 2", "column 3"], [level] * 3, model.scale_
            )
        )
        for level in (1, 5)
    )
    asked = (["n"], ["nowhere"])
    assert low.predict(*asked, unknown="fallback") < high.predict(*asked, unknown="fallback")
    assert model.predict(["n"], ["column 1"], unknown="fallback") == before


def test_distributions_restated() -> None:
    matrix = additive()
    fallback, dense = Fallback(EntryStore.of(matrix)), matrix.to_array()
    readout = Readout(matrix.scale, matrix.scale.levels, BOUNDARIES)
    found = fallback.distribution(
        np.array([-1, 2, 2, -1]), np.array([-1, -1, -1, 3]), readout
    ).probabilities
    counts = np.array([(dense == level).sum() for level in range(1, 6)]) + 0.5
    overall = counts / counts.sum()
    expected = [
        overall,
        restated(dense[2], overall),
        restated(dense[2], overall),
        restated(dense[:, 3], overall),
    ]
    np.testing.assert_allclose(found, expected)
    assert np.all(found > 0)


def test_frequencies_count_entries_by_their_weights() -> None:
    rows, columns, values = ["a", "a", "b"], ["x", "y", "x"], [1.0, 2.0, 2.0]
    weighted = ObservedMatrix.from_entries(rows, columns, values, weights=[3.0, 1.0, 1.0])
    readout = Readout(weighted.scale, weighted.scale.levels, np.zeros(1, np.float32))
    nobody = np.array([-1])
    found = Fallback(EntryStore.of(weighted)).distribution(nobody, nobody, readout)
    np.testing.assert_allclose(found.probabilities, [[3.5 / 6, 2.5 / 6]])


def test_distributions_of_unknown_pairs_have_the_calibrated_mean() -> None:
    matrix = additive()
    fallback = Fallback(EntryStore.of(matrix))
    readout = Readout(matrix.scale, matrix.scale.levels, BOUNDARIES)
    nobody, column = np.array([-1, -1]), np.array([2, 3])
    plain, moved = (
        FallbackPredictor(readout, fallback.means, fallback, calibrate).distribution(nobody, column)
        for calibrate in (lambda means: means, lambda means: means - 0.25)
    )
    support = matrix.scale.levels
    np.testing.assert_allclose(
        moved.probabilities @ support, plain.probabilities @ support - 0.25, atol=1e-6
    )


def test_a_value_that_bins_are_cut_at_lies_in_the_lower_one() -> None:
    values = np.array([[0.1, 0.1, 0.1], [0.1, 0.7, 0.9]])
    fallback = Fallback(EntryStore.of(ObservedMatrix.from_array(values, Scale(low=0, high=1))))
    at = Scale(low=0, high=1).to_unit([0.1]).astype(np.float32)
    readout = Readout(Scale(low=0, high=1), np.array([0.1, 0.8]), at)
    found = fallback.distribution(np.array([-1]), np.array([-1]), readout).probabilities
    np.testing.assert_allclose(found, [[4.5 / 7, 2.5 / 7]])


@pytest.fixture(scope="module")
def ordinal() -> OrdinalDMF:
    return OrdinalDMF(**QUICK).fit(additive())


ROWS, COLUMNS = (
    ["row 1", "row 99", "row 2", "row 98"],
    ["column 1", "column 2", "column 99", "column 99"],
)


def test_what_a_distribution_says_of_unknown_pairs(ordinal: OrdinalDMF) -> None:
    chances = ordinal.predict_distribution(ROWS, COLUMNS, unknown="fallback")
    rows, columns = np.array([-1, 2, -1]), np.array([2, -1, -1])
    frequencies = Fallback(ordinal.entries_).distribution(rows, columns, ordinal.predictor_.readout)
    np.testing.assert_allclose(chances[1:], frequencies.probabilities)
    np.testing.assert_allclose(
        chances[:1], ordinal.predict_distribution(ROWS[:1], COLUMNS[:1]), rtol=1e-5
    )
    lower, upper = ordinal.predict_interval(ROWS, COLUMNS, coverage=0.8, unknown="fallback")
    covered = (np.arange(1, 6) >= lower[:, None]) & (np.arange(1, 6) <= upper[:, None])
    inside = (chances * covered).sum(1)[1:]
    assert np.all((inside >= 0.8) & (inside < 1.0))
    # calibrated
    assert (lower[:1], upper[:1]) == ordinal.predict_interval(ROWS[:1], COLUMNS[:1], coverage=0.8)
    modes = ordinal.predict_levels(ROWS, COLUMNS, metric="accuracy", unknown="fallback")
    np.testing.assert_array_equal(modes, chances.argmax(1) + 1)


def test_what_a_distribution_leaves_out(ordinal: OrdinalDMF) -> None:
    missing = [False, True, True, True]
    assert (
        np.isnan(ordinal.predict_distribution(ROWS, COLUMNS, unknown="nan")).all(1).tolist()
        == missing
    )
    for ends in ordinal.predict_interval(ROWS, COLUMNS, unknown="nan"):
        assert np.isnan(ends).tolist() == missing
    for metric in ("mae", "accuracy"):
        assert (
            np.isnan(ordinal.predict_levels(ROWS, COLUMNS, metric=metric, unknown="nan")).tolist()
            == missing
        )


def test_bins_and_the_levels_of_an_autoregressive_network() -> None:
    board = generate(20, 15, density=0.6, seed=0).matrix
    rows, columns, values = board.entries()
    real = OrdinalDMF(bins=4, **QUICK).fit(
        ObservedMatrix.from_entries(
            rows, columns, values + 0.01 * np.arange(len(values)), Scale(low=0, high=20)
        )
    )
    chances = real.predict_distribution(["x", rows[0]], [columns[0], "y"], unknown="fallback")
    np.testing.assert_allclose(chances.sum(1), 1.0)
    lower, upper = real.predict_interval(["x", rows[0]], [columns[0], "y"], unknown="fallback")
    assert np.all((lower >= 0) & (lower < upper) & (upper <= 20))
    autoregressive = UCFNADE(hidden_size=4, epochs=1, device="cpu").fit(board)
    asked = (["x", rows[0]], ["y", columns[0]])
    counts = np.bincount(values.astype(int) - 1, minlength=5) + 0.5
    said = autoregressive.predict_distribution(*asked, unknown="fallback")
    np.testing.assert_allclose(said[0], counts / counts.sum())
    np.testing.assert_allclose(
        said[1], autoregressive.predict_distribution(rows[:1], columns[:1])[0], rtol=1e-5
    )
    assert np.isnan(autoregressive.predict_distribution(*asked, unknown="nan")[0]).all()


def test_no_pairs_at_all(ordinal: OrdinalDMF) -> None:
    assert ordinal.predict([], [], unknown="fallback").shape == (0,)
    assert ordinal.predict_distribution([], [], unknown="fallback").shape == (0, 5)
    assert ordinal.areas([], [], unknown="nan").shape == (0,)
