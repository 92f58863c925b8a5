"""The influence of one row: whatever is written, the other rows keep predictions within the range
of training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.lies import small_model

from deepmf.errors import BadEntries, BadModelFile, UserError
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import ChangedStore, EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.extension import check_arrived
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.models.simple import SimpleModel
from deepmf.scoring.arrivals import Arrived
from deepmf.scoring.factors import Factors
from deepmf.storage.model_file import read_file

# trainings are short
pytestmark = pytest.mark.filterwarnings("ignore::deepmf.errors.DeepMFWarning")

NAMES = ("means", "als", "bayesian", "dmf", "dmf-d", "dmf-o")
KINDS = ("interval", "levels", "counts")


def make_matrix(kind: str, *, weighted: bool = False) -> ObservedMatrix:
    """A matrix of rank 2, half of it observed: values of ±6, levels of 1 to 5, or skewed counts."""
    generator = np.random.default_rng(0)
    table = generator.normal(size=(24, 2)) @ generator.normal(size=(2, 12))
    rows, columns = np.nonzero(generator.random(table.shape) < 0.5)
    values = table[rows, columns] + 0.3 * generator.normal(size=rows.size)
    scale = None
    if kind == "interval":
        values = np.clip(3 * values, -6, 6)
    elif kind == "levels":
        values, scale = np.clip(np.round(values + 3), 1, 5), Scale([1, 2, 3, 4, 5])
    else:
        values = np.round(np.exp(values) * 10)
        scale = Scale(low=0, high=values.max(), bounded=False)
    weights = generator.choice([0.5, 1.0, 2.0], rows.size) if weighted else None
    return ObservedMatrix.from_entries(rows, columns, values, scale, weights=weights)


FITTED: dict[tuple[str, str], Model] = {}


def fit(name: str, kind: str) -> Model:
    """Return a small model, fitted once, to weighted values unless they are levels."""
    if (name, kind) not in FITTED:
        matrix = make_matrix(kind, weighted=kind != "levels")
        FITTED[name, kind] = (
            small_model(name, presence=None, epochs=5).fit(matrix)
            if (name != "means")
            else Means(presence=None).fit(matrix)
        )
    return FITTED[name, kind]


def find_range(model: Model) -> tuple[float, float]:
    """Return the range in which the model promises to predict."""
    train = model.entries_.train
    if train.scale.levels is not None:
        return train.scale.low, train.scale.high
    return float(train.values.min()), float(train.values.max())


def predict_all(model: Model, rows: Any, columns: Any) -> FloatArray:
    pairs = np.repeat(np.array(rows, dtype=object), len(columns)), np.tile(columns, len(rows))
    return model.predict(pairs[0].tolist(), pairs[1].tolist()).reshape(len(rows), len(columns))


def write(model: Model, rows: Any, columns: Any, values: Any, **extras: Any) -> Model:
    new = ObservedMatrix.from_entries(rows, columns, values, model.scale_, **extras)
    return model.extend(new, conflicts="replace")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dmf-d"])
@pytest.mark.parametrize("value", [1e3, 1e9, 1e15, -1e300])
def test_an_outlier_of_one_row_is_read_as_the_largest_value_of_training(
    name: str, value: float, tmp_path: Path
) -> None:
    model = fit(name, "interval")
    low, high = find_range(model)
    model = write(model, [1, 999], [100, 100], [1.0, 2.0])
    others = [row for row in model.row_labels_ if row != 0]
    outlier = write(model, [0], [100], [value], weights=[1e6])
    highest = write(model, [0], [100], [np.clip(value, low, high)], weights=[2])
    answers = predict_all(outlier, others, outlier.column_labels_)
    np.testing.assert_array_equal(answers, predict_all(highest, others, highest.column_labels_))
    assert np.all((answers >= low) & (answers <= high))
    assert outlier.explain(0, 3, n=99).values.max() <= max(value, high)
    if isinstance(outlier, BayesianMF):
        assert np.all(np.isfinite(outlier.draw([0, 1, 2], [100, 100, 0], n=3)))
    outlier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.entries_.added.values.tolist() == outlier.entries_.added.values.tolist()
    np.testing.assert_array_equal(predict_all(again, others, again.column_labels_), answers)


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_one_row_leave_others_as_much_as_the_largest_weight_of_training(
    name: str,
) -> None:
    model = write(fit(name, "levels"), [1, 999], [100, 100], [1, 2])
    others = [row for row in model.row_labels_ if row != 0]
    heavy, usual = (write(model, [0], [100], [5], weights=[weight]) for weight in (1e6, 1.0))
    np.testing.assert_array_equal(
        *(predict_all(each, others, each.column_labels_) for each in (heavy, usual))
    )


@pytest.mark.parametrize("name", ["means", "als", "bayesian", "dmf-o"])
def test_a_guest_and_a_fallback_read_outliers_alike(name: str) -> None:
    model = fit(name, "interval")
    low, high = find_range(model)
    columns = model.column_labels_
    for outlier, limit in ((1e12, high), (-1e12, low)):
        for entry in (outlier, limit):
            guest = model.fold_in(columns[:3], [entry, 1.0, 2.0])
            answers = guest.predict(columns)
            assert np.all((answers >= low) & (answers <= high))
            premiere = model.fold_in_column([0, 1], [entry, 1.0]).predict(model.row_labels_)
            assert np.all((premiere >= low) & (premiere <= high))
            if entry == outlier:
                first, column = answers, premiere
        np.testing.assert_array_equal(first, answers)
        np.testing.assert_array_equal(column, premiere)
        written = write(model, [0], columns[:1], [outlier])
        assert low <= written.predict([-1], columns[:1], unknown="fallback")[0] <= high


class Broken(SimpleModel):
    """Solves for new columns with a number that no row can be solved by."""

    number = 0.0

    def solve_rows(self, entries: AxisEntries, columns: FloatArray) -> FloatArray:
        return np.ones((entries.starts.size - 1, columns.shape[1]))

    def solve_columns(self, entries: AxisEntries, rows: FloatArray) -> FloatArray:
        is_new = np.full((entries.starts.size - 1, rows.shape[1]), self.number)
        return np.ones_like(is_new) if entries.values.size > 3 else is_new


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_entries_after_which_a_model_could_not_predict_are_refused(number: float) -> None:
    model = Broken(epochs=1, latent_size=2).fit(make_matrix("interval"))
    before = model.complete()
    Broken.number = number
    try:
        with pytest.raises(BadEntries, match="finite"):
            write(model, [0, 900], [900, 900], [1.0, 2.0])
        if not np.isfinite(number):
            with pytest.raises(BadEntries, match="finite"):
                model.fold_in_column([0], [1.0])
    finally:
        Broken.number = 0.0
    np.testing.assert_array_equal(model.complete(), before)
    assert write(model, [0], [900], [1.0]).column_labels_[-1] == 900


def test_factors_of_arrivals_are_finite_in_the_type_they_are_kept_in() -> None:
    model = write(fit("bayesian", "interval"), [900], [900], [1.0])
    predictor = model.predictor_
    n_rows, n_columns = (np.arange(len(each)) for each in (predictor.rows, predictor.columns))
    change = ChangedStore(model.entries_, n_rows, n_columns)
    ((name, member),) = predictor.members.items()
    assert isinstance(member.fitted, Factors)
    arrived = member.fitted.arrived
    assert arrived is not None and arrived.columns is not None
    check_arrived(predictor, change)
    too_large = Arrived(arrived.rows, np.full_like(arrived.columns, np.inf))
    factors = replace(member.fitted, arrived=too_large)
    broken = replace(predictor, members={name: member._replace(fitted=factors)})
    with pytest.raises(BadEntries, match="finite"):
        check_arrived(broken, change)
    check_arrived(broken, change._replace(columns=n_columns[:3]))  # of trained columns, nothing


def test_a_file_whose_predictions_are_not_finite_does_not_open(tmp_path: Path) -> None:
    matrix = make_matrix("interval")
    missing = np.argwhere(np.isnan(matrix.to_array()))
    asked = ObservedMatrix.from_entries(*missing.T, np.arange(len(missing)) % 7.0, matrix.scale)
    Means(presence=None).fit(matrix, asked=asked).save(tmp_path / "model")
    file = read_file(tmp_path / "model", kind="model")
    Means.from_stored(file.content, dict(file.tensors))
    lines = np.full_like(file.tensors["asked.lines"], 1e308)
    with pytest.raises(BadModelFile, match="finite"):
        Means.from_stored(file.content, {**file.tensors, "asked.lines": lines})


@pytest.mark.parametrize("name", ["means", "als", "dmf-o"])
def test_entries_in_new_columns_are_explained(name: str) -> None:
    model = write(fit(name, "levels"), [900, 901, 901], [100, 100, 0], [5.0, 1.0, 2.0])
    found = model.explain(901, 3)
    assert found.effects[found.labels == 100] != 0


ROWS, COLUMNS = (0, 1, 2, 900, 901), (0, 1, 100, 101)
ENTRY = st.tuples(
    st.sampled_from(ROWS),
    st.sampled_from(COLUMNS),
    st.floats(-1e300, 1e300),
    st.sampled_from([1e-6, 1.0, 2.0, 1e6]),
)
STEP = st.one_of(
    st.lists(ENTRY, min_size=1, max_size=4, unique_by=lambda entry: entry[:2]),
    st.sampled_from(["forget", "restart"]),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_no_sequence_of_writes_leaves_the_range(
    name: str, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if name == "dmf-d" and kind != "levels":
        pytest.skip("DMF-D predicts levels")
    start, path = fit(name, kind), tmp_path_factory.mktemp("models") / "model"
    low, high = find_range(start)

    @settings(max_examples=12)
    @given(st.lists(STEP, min_size=1, max_size=5))
    def run(steps: list[Any]) -> None:
        model = start
        for step in steps:
            known = model
            if step == "forget":
                model = model.forget(rows=[900, 0], missing="ignore")
            elif step == "restart":
                model.save(path)
                model = load(path)
                np.testing.assert_array_equal(model.complete(), known.complete())
            else:
                rows, columns, values, weights = map(list, zip(*step, strict=True))
                if kind == "levels":
                    values = [1.0 + abs(value) % 5 // 1 for value in values]
                try:
                    model = write(model, rows, columns, values, weights=weights)
                except UserError as error:
                    assert "nothing to add" in str(error)
            answers = predict_all(model, model.row_labels_, model.column_labels_)
            assert np.all((answers >= low) & (answers <= high))  # NaN is not
            assert np.all(np.isfinite(model.recommend(1, n=3).values))

    run()


def test_a_store_of_a_model_knows_the_range_again_after_a_restart(tmp_path: Path) -> None:
    model = ALS(latent_size=2, epochs=2, presence=None).fit(make_matrix("counts"))
    write(model, [900], [0], [1e12]).save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again.entries_, EntryStore)
    assert again.predict([900] * 12, range(12)).max() <= find_range(model)[1]
