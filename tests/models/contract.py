"""What every model must do; the tests of each model inherit it."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from deepmf.data import AreaSplit, split_areas, split_entries
from deepmf.datasets import generate
from deepmf.errors import (
    BadEntries,
    BadSetting,
    CannotExtend,
    CannotSave,
    DuplicateEntries,
    NotFitted,
    NothingObserved,
    OffScale,
    TrainingDiverged,
    UnknownLabel,
)
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.fitted import Fitted
from deepmf.models.fold_in import FoldedRows
from deepmf.models.loading import load, verify
from deepmf.models.means import Means


def additive(n_rows: int = 30, n_columns: int = 25, *, seed: int = 0) -> ObservedMatrix:
    """A matrix of row effect + column effect, 60 % observed: any model should complete it well."""
    generator = np.random.default_rng(seed)
    effects = generator.integers(0, 3, n_rows)[:, None] + generator.integers(0, 3, n_columns)
    hidden = np.where(generator.random(effects.shape) < 0.6, effects + 1.0, np.nan)
    return ObservedMatrix.from_array(
        hidden,
        Scale([1, 2, 3, 4, 5]),
        row_labels=[f"row {k}" for k in range(n_rows)],
        column_labels=[f"column {k}" for k in range(n_columns)],
    )


def keep_known(extension: ObservedMatrix, known: ObservedMatrix, model: type[Model]) -> ObservedMatrix:
    """Return the entries that a model can be extended by: without new rows, or new columns, where it cannot."""
    rows, columns, values = extension.entries()
    kept = np.ones(values.size, dtype=bool)
    if "II" not in model.predicts:
        kept &= np.isin(rows, known.row_labels)
    if "III" not in model.predicts:
        kept &= np.isin(columns, known.column_labels)
    return ObservedMatrix.from_entries(rows[kept], columns[kept], values[kept], extension.scale)


HISTORY = ["column 7", "column 2", "column 19"], [5, 1, 4]


def extended_by(model: Model, columns: Any, values: Any) -> Model:
    """Return a model that also covers the row "new" with these entries."""
    return model.extend(ObservedMatrix.from_entries(["new"] * len(columns), columns, values, model.scale_))


def assert_same_as_a_row(folded: FoldedRows, model: Model, columns: Any) -> None:
    """Check that what was folded in predicts and ranks as the row "new" of a model does, to the bit."""
    rows = ["new"] * len(columns)
    np.testing.assert_array_equal(folded.predict(columns), model.predict(rows, columns))
    for metric in ("rmse", "mae", "accuracy"):
        found = folded.predict_levels(columns, metric=metric)
        np.testing.assert_array_equal(found, model.predict_levels(rows, columns, metric=metric))
    for asked in ({}, {"n": 3}, {"n": 99, "include_observed": True}, {"among": columns[5:9], "exclude": columns[6:8]}):
        # By value: popularity, a part of relevance, counts stored rows alone.
        found, expected = (
            each(rank_by="value", **asked) for each in (folded.recommend, partial(model.recommend, "new"))
        )
        assert found.labels.tolist() == expected.labels.tolist()
        np.testing.assert_array_equal(found.values, expected.values)
    if model.gives_distribution:
        np.testing.assert_array_equal(folded.predict_distribution(columns), model.predict_distribution(rows, columns))
        for asked in ({}, {"coverage": 0.5}):
            found, expected = folded.predict_interval(columns, **asked), model.predict_interval(rows, columns, **asked)
            np.testing.assert_array_equal(found, expected)


def assert_same_as_a_column(model: Model, rows: Any, values: Any) -> None:
    """Check that a column folded in predicts as one that a model is extended by, to the bit."""
    folded = model.fold_in_column(rows, values)
    labels = rows, ["new"] * len(rows)
    more = model.extend(ObservedMatrix.from_entries(*labels, values, model.scale_))
    asked = model.row_labels_, ["new"] * model.row_labels_.size
    np.testing.assert_array_equal(folded.predict(asked[0]), more.predict(*asked))
    for metric in ("rmse", "mae", "accuracy"):
        found = folded.predict_levels(asked[0], metric=metric)
        np.testing.assert_array_equal(found, more.predict_levels(*asked, metric=metric))
    if model.gives_distribution:
        np.testing.assert_array_equal(folded.predict_distribution(asked[0]), more.predict_distribution(*asked))
        np.testing.assert_array_equal(folded.predict_interval(asked[0]), more.predict_interval(*asked))


def predicted_all(model: Model, row: Any) -> Any:
    """Return the predictions of a model for all columns of a row."""
    return model.predict([row] * model.column_labels_.size, model.column_labels_)


def one_entry(model: Model) -> ObservedMatrix:
    """Return an entry that a model does not know, of a row and a column that it knows."""
    row, column = np.argwhere(np.isnan(model.entries_.train.to_array()))[-1]
    return ObservedMatrix.from_entries([model.row_labels_[row]], [model.column_labels_[column]], [5], model.scale_)


def one_known(model: Model) -> ObservedMatrix:
    """Return the first training entry of a model."""
    return model.entries_.train.take_entries(np.array([0]))


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


class ModelContract:
    """Inherit and set `model` and quick `settings` that recover an additive matrix to `recovery_error`.

    `permutation_error` is how far (root mean square) the scores of missing cells may move when the rows and columns of
    the training matrix come in another order, as a share of how much they differ: nothing but rounding where the
    method starts from the matrix alone, more where it starts from random numbers (rows or columns in the wrong
    order would move them by .8 and more).
    `copy_error` is how far the score of a copy may lie from that of the original.
    """

    model: ClassVar[type[Model]]
    settings: ClassVar[dict[str, Any]] = {}
    recovery_error: ClassVar[float] = 0.5
    permutation_error: ClassVar[float] = 1e-4
    copy_error: ClassVar[float] = 1e-4

    @classmethod
    def new(cls, **changes: Any) -> Model:
        return cls.model(**(cls.settings | changes))

    @pytest.fixture(scope="class")
    @classmethod
    def matrix(cls) -> ObservedMatrix:
        return additive()

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, matrix: ObservedMatrix) -> Model:
        return cls.new().fit(matrix)

    @pytest.fixture(scope="class")
    @classmethod
    def areas(cls) -> AreaSplit:
        return split_areas(generate(40, 30, density=0.5, seed=1).matrix, seed=1)

    @pytest.fixture(scope="class")
    @classmethod
    def trained(cls, areas: AreaSplit) -> Model:
        return cls.new().fit(areas.train)

    @pytest.fixture(scope="class")
    @classmethod
    def extension(cls, areas: AreaSplit) -> ObservedMatrix:
        if cls.model.predicts == ("I",):
            pytest.skip(f"{cls.model.__name__} cannot be extended")
        return keep_known(areas.extension, areas.train, cls.model)

    @pytest.fixture(scope="class")
    @classmethod
    def extended(cls, trained: Model, extension: ObservedMatrix) -> Model:
        return trained.extend(extension)

    @pytest.fixture(scope="class")
    @classmethod
    def reached(cls, areas: AreaSplit) -> dict[str, ObservedMatrix]:
        return {area: test for area, test in areas.test.items() if area in cls.model.predicts}

    @pytest.fixture(scope="class")
    @classmethod
    def widest(cls, request: pytest.FixtureRequest) -> Model:
        """A model of all the areas it can reach."""
        name = "trained" if cls.model.predicts == ("I",) else "extended"
        widest: Model = request.getfixturevalue(name)
        return widest

    @pytest.fixture(scope="class")
    @classmethod
    def pairs(cls, reached: dict[str, ObservedMatrix]) -> tuple[Any, Any]:
        """Pairs of the farthest area it can reach."""
        rows, columns, _ = list(reached.values())[-1].entries()
        return rows, columns

    def test_recovers_a_known_matrix(self) -> None:
        split = split_entries(additive(), train=0.8, validation=0, test=0.2, seed=0)
        model = self.new().fit(split.train)
        rows, columns, values = split.test.entries()
        assert rmse_error(model.predict(rows, columns), values) < self.recovery_error

    def test_same_seed_same_predictions_and_same_file_whatever_the_order_of_entries(
        self, fitted: Model, matrix: ObservedMatrix, tmp_path: Path
    ) -> None:
        rows, columns, values = matrix.entries()
        order = np.random.default_rng(1).permutation(values.size)
        labels = {"row_labels": matrix.row_labels, "column_labels": matrix.column_labels}
        shuffled = ObservedMatrix.from_entries(rows[order], columns[order], values[order], matrix.scale, **labels)
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        again = self.new().fit(shuffled)
        assert torch.equal(torch.get_rng_state(), before[0])  # global generators are never touched
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
        np.testing.assert_array_equal(again.predict(rows, columns), fitted.predict(rows, columns))
        for model, name in ((fitted, "one"), (again, "two")):
            model.save(tmp_path / f"{name}.safetensors")
            model.save(tmp_path / f"{name}.model")
        assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()
        for file in (tmp_path / "one.model").iterdir():
            assert file.read_bytes() == (tmp_path / "two.model" / file.name).read_bytes()

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::deepmf.errors.ConstantValues")
    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_what_is_learned_from_huge_or_equal_values_is_loaded_again_or_refused(self, tmp_path: Path) -> None:
        few = additive(8, 6)
        rows, columns, values = few.entries()
        sizes = (1e30, 3e37, 1e155, 1e306)
        for these in (these for size in sizes for these in ((values - 3) / 2 * size, np.full(values.size, size))):
            path = tmp_path / "model.safetensors"
            try:
                model = self.new(**({"epochs": 1} if "epochs" in self.new().settings.to_dict() else {})).fit(
                    ObservedMatrix.from_entries(rows, columns, these)
                )
            except (BadSetting, TrainingDiverged):
                continue
            model.save(path)
            found = load(path).predict(rows, columns)
            assert np.isfinite(found).all()
            np.testing.assert_array_equal(found, model.predict(rows, columns))

    @pytest.mark.slow
    def test_permuting_rows_and_columns_permutes_predictions(self, fitted: Model, matrix: ObservedMatrix) -> None:
        generator = np.random.default_rng(2)
        row_order, column_order = (generator.permutation(size) for size in matrix.shape)
        permuted = ObservedMatrix.from_array(
            matrix.to_array()[row_order][:, column_order],
            matrix.scale,
            row_labels=matrix.row_labels[row_order],
            column_labels=matrix.column_labels[column_order],
        )
        assert self.permutation_error <= 0.3, "more would let through rows or columns in the wrong order"
        positions = [np.arange(size) for size in matrix.shape]
        missing = np.isnan(matrix.to_array())
        scores = fitted.predictor_.score_block(*positions)[missing].astype(np.float64)
        again = (
            self.new()
            .fit(permuted)
            .predictor_.score_block(*positions)[np.argsort(row_order)][:, np.argsort(column_order)]
        )
        assert rmse_error(again[missing], scores) <= self.permutation_error * scores.std()

    @pytest.mark.parametrize("axis, area", [("row", "II"), ("column", "III")])
    def test_a_copy_of_a_known_one_is_predicted_as_it_is(
        self, fitted: Model, matrix: ObservedMatrix, axis: str, area: str
    ) -> None:
        if area not in self.model.predicts:
            pytest.skip(f"{self.model.__name__} cannot predict in area {area}")
        rows, columns, values = matrix.entries()
        order = np.random.default_rng(0).permutation(values.size)
        copied = [f"copy of {label}" for label in (rows if axis == "row" else columns)[order]]
        labels = (copied, columns[order]) if axis == "row" else (rows[order], copied)
        copies = fitted.extend(ObservedMatrix.from_entries(*labels, values[order], matrix.scale))
        n_rows, n_columns = matrix.shape
        whole = fitted.predictor_.score_block(np.arange(n_rows), np.arange(n_columns))
        at = [copies.entries_.rows, copies.entries_.columns][axis == "column"].positions(
            [f"copy of {label}" for label in (matrix.row_labels if axis == "row" else matrix.column_labels)]
        )
        block = (at, np.arange(n_columns)) if axis == "row" else (np.arange(n_rows), at)
        np.testing.assert_allclose(copies.predictor_.score_block(*block), whole, atol=self.copy_error)

    def test_predictions_lie_on_the_scale(
        self, widest: Model, areas: AreaSplit, reached: dict[str, ObservedMatrix]
    ) -> None:
        for test in reached.values():
            rows, columns, _ = test.entries()
            assert np.all(areas.train.scale.holds(widest.predict_levels(rows, columns)))
            predicted = widest.predict(rows, columns)
            assert predicted.dtype == np.float64
            assert np.all((predicted >= 1) & (predicted <= 5))

    def test_one_pair_is_predicted_as_in_a_crowd(self, fitted: Model, matrix: ObservedMatrix) -> None:
        rows, columns, _ = matrix.entries()
        together = fitted.predict(rows, columns)
        alone = [fitted.predict([row], [column])[0] for row, column in zip(rows[:5], columns[:5], strict=True)]
        np.testing.assert_allclose(alone, together[:5], rtol=1e-6)
        assert fitted.predict([], []).shape == (0,)

    def test_extending_leaves_the_old_model_untouched(
        self, trained: Model, areas: AreaSplit, extension: ObservedMatrix, pairs: tuple[Any, Any]
    ) -> None:
        rows, columns, _ = areas.test["I"].entries()
        before = trained.predict(rows, columns)
        larger = trained.extend(extension)
        np.testing.assert_array_equal(trained.predict(rows, columns), before)
        n_known, n_covered = (each.row_labels_.size + each.column_labels_.size for each in (trained, larger))
        assert n_known < n_covered
        with pytest.raises(UnknownLabel):
            trained.predict(*pairs)

    def test_what_it_cannot_predict_for_is_refused(self, fitted: Model, matrix: ObservedMatrix) -> None:
        new_row = ObservedMatrix.from_entries(["carol"], ["column 1"], [3], matrix.scale)
        new_column = ObservedMatrix.from_entries(["row 1"], ["Alien"], [3], matrix.scale)
        for new, area, words in ((new_row, "II", "rows"), (new_column, "III", "columns")):
            if area in self.model.predicts:
                assert area in fitted.extend(new).areas(*new.entries()[:2])
                continue
            message = "extended" if self.model.predicts == ("I",) else words
            with pytest.raises(CannotExtend, match=message):
                fitted.extend(new)

    def test_areas_are_told(self, widest: Model, reached: dict[str, ObservedMatrix]) -> None:
        for name, test in reached.items():
            rows, columns, _ = test.entries()
            assert set(widest.areas(rows, columns)) == {name}

    def test_area_iv_entries_change_no_prediction(self, areas: AreaSplit, trained: Model, extended: Model) -> None:
        if "IV" not in self.model.predicts:
            pytest.skip(f"{self.model.__name__} cannot predict in area IV")
        rows, columns, values = areas.extension.entries()
        hidden_rows, hidden_columns, hidden = areas.unused.entries()
        pairs = areas.test["IV"].entries()[:2]
        for other in (hidden, 6 - hidden):  # any values at all
            more = ObservedMatrix.from_entries(
                [*rows, *hidden_rows],
                [*columns, *hidden_columns],
                [*values, *other],
                areas.train.scale,
                row_labels=areas.extension.row_labels,
                column_labels=areas.extension.column_labels,
            )
            # New labels come in another order, on which last bits of batched solutions may depend.
            np.testing.assert_allclose(trained.extend(more).predict(*pairs), extended.predict(*pairs), rtol=1e-6)

    def test_extending_bit_by_bit_is_extending_at_once(
        self, trained: Model, extension: ObservedMatrix, extended: Model, pairs: tuple[Any, Any]
    ) -> None:
        parts = split_entries(extension, train=0.5, validation=0.25, test=0.25, seed=3)
        model = trained.extend(parts.train).extend(parts.validation).extend(parts.test)
        np.testing.assert_allclose(model.predict(*pairs), extended.predict(*pairs), rtol=1e-5)

    def test_new_entries_of_known_rows_count(self, fitted: Model, matrix: ObservedMatrix) -> None:
        if self.model.predicts == ("I",):
            pytest.skip(f"{self.model.__name__} cannot be extended")
        missing = np.argwhere(np.isnan(matrix.to_array()))[:8]
        labels = matrix.row_labels[missing[:, 0]], matrix.column_labels[missing[:, 1]]
        more = fitted.extend(ObservedMatrix.from_entries(*labels, [5] * len(missing), matrix.scale))
        assert not np.array_equal(more.predictor_.score_pairs(*missing.T), fitted.predictor_.score_pairs(*missing.T))
        rows, columns = np.unique(missing[:, 0]), np.unique(missing[:, 1])
        other_rows, other_columns = (
            np.setdiff1d(np.arange(size), touched) for size, touched in zip(matrix.shape, (rows, columns), strict=True)
        )
        assert other_rows.size and other_columns.size
        changed = {
            (area, block): more.predictor_.score_block(*block_positions)
            != fitted.predictor_.score_block(*block_positions)
            for area, block, block_positions in (
                ("I", "neither", (other_rows, other_columns)),
                ("II", "rows", (rows, other_columns)),
                ("III", "columns", (other_rows, columns)),
            )
        }
        assert not changed["I", "neither"].any()
        # Each of the rows is described anew where rows are read, each of the columns where columns are.
        assert changed["II", "rows"].any(axis=1).all() == ("II" in self.model.predicts)
        assert changed["III", "columns"].any(axis=0).all() == ("III" in self.model.predicts)

    def test_a_row_without_usable_entries_is_named(self, fitted: Model) -> None:
        if "IV" not in self.model.predicts:
            pytest.skip(f"{self.model.__name__} cannot predict for new rows and columns at once")
        nobody = ObservedMatrix.from_entries(
            ["stranger"], ["unheard of"], [3], Scale([1, 2, 3, 4, 5]), row_labels=["stranger", "empty"]
        )
        with pytest.warns(NothingObserved) as warned:
            more = fitted.extend(nobody)
        assert "'stranger', 'empty'" in str(warned[0].message)
        predicted = more.predict(["stranger", "empty"], ["column 1", "unheard of"])
        assert np.all(np.isfinite(predicted))
        assert more.areas(["stranger", "empty"], ["column 1", "unheard of"]).tolist() == ["II", "IV"]

    @pytest.fixture(scope="class")
    @classmethod
    def folding(cls, fitted: Model) -> Model:
        if "II" not in cls.model.predicts:
            pytest.skip(f"{cls.model.__name__} cannot predict for new rows")
        return fitted

    def test_folding_in_is_extending_by_a_row_with_the_same_entries(self, folding: Model) -> None:
        folded, columns = folding.fold_in(*HISTORY), folding.column_labels_
        assert_same_as_a_row(folded, extended_by(folding, *HISTORY), columns)
        assert folded.predict([]).shape == (0,) and folded.predict(columns).dtype == np.float64
        again = folding.fold_in(HISTORY[0][::-1], tuple(reversed(HISTORY[1])))  # the order of entries is irrelevant
        np.testing.assert_array_equal(again.predict(columns), folded.predict(columns))
        other = folding.fold_in(HISTORY[0], [6 - value for value in HISTORY[1]])
        assert not np.array_equal(other.predict(columns), folded.predict(columns))

    def test_a_known_row_folded_in_is_predicted_as_it_is(self, folding: Model, matrix: ObservedMatrix) -> None:
        rows, columns, values = matrix.entries()
        mine = rows == "row 3"
        found = folding.fold_in(columns[mine], values[mine]).predictor.score_block(np.array([0]), np.arange(25))
        expected = folding.predictor_.score_block(np.array([3]), np.arange(25))
        np.testing.assert_allclose(found, expected, atol=self.copy_error)

    def test_what_was_extended_by_columns_folds_in_the_same(self, widest: Model, areas: AreaSplit) -> None:
        if "II" not in self.model.predicts:
            pytest.skip(f"{self.model.__name__} cannot predict for new rows")
        trained, every = areas.train.column_labels, widest.column_labels_
        history = [*trained[5:8], *every[-2:]], [5, 1, 4, 2, 2]
        folded = widest.fold_in(*history)
        assert_same_as_a_row(folded, extended_by(widest, *history), every)
        if "III" in self.model.predicts:  # entries over new columns are remembered, and describe nothing
            assert not set(every[-2:]) & set(trained)
            alone = widest.fold_in(trained[5:8], [5, 1, 4])
            np.testing.assert_array_equal(folded.predict(every), alone.predict(every))
            assert not set(every[-2:]) & set(folded.recommend(n=every.size).labels)
            assert set(every[-2:]) <= set(alone.recommend(n=every.size).labels)
            with pytest.warns(NothingObserved, match="1 row"):
                nothing = widest.fold_in(every[-2:], [2, 2])
            assert np.isfinite(nothing.predict(every)).all()

    def test_many_rows_are_folded_in_as_each_alone(self, folding: Model) -> None:
        histories = [HISTORY, (["column 3"], [2]), (["column 0", "column 24"], [5, 4])]
        columns = folding.column_labels_[[4, 0, 9]]
        many, alone = folding.fold_in_many(histories), [folding.fold_in(*history) for history in histories]
        np.testing.assert_allclose(many.predict(columns), [each.predict(columns) for each in alone], rtol=1e-5)
        assert many.predict_levels(columns).shape == (3, 3)
        best = many.recommend(n=4)
        assert best.labels.shape == best.values.shape == (3, 4)
        np.testing.assert_allclose(best.values, [each.recommend(n=4).values for each in alone], rtol=1e-5)
        assert folding.fold_in_many(histories[:1]).predict(columns).shape == (1, 3)
        with pytest.raises(BadEntries, match="history"):
            folding.fold_in_many([])
        with pytest.raises(BadEntries, match="one"):
            folding.fold_in_many([HISTORY, ([], [])])

    def test_folding_in_stores_nothing(self, folding: Model, tmp_path: Path) -> None:
        before, after = tmp_path / "before", tmp_path / "after"
        folding.save(before)
        entries, predictor = folding.entries_, folding.predictor_
        folded = folding.fold_in(*HISTORY)
        folded.predict(folding.column_labels_)
        folded.recommend()
        folding.save(after)
        assert after.read_bytes() == before.read_bytes()
        assert folding.entries_ is entries and folding.predictor_ is predictor

    def test_bad_histories(self, folding: Model) -> None:
        for columns, values, error, message in BAD_HISTORIES:
            with pytest.raises(error, match=message):
                folding.fold_in(columns, values)

    def test_bad_questions_to_what_is_folded_in(self, folding: Model) -> None:
        folded = folding.fold_in(*HISTORY)
        with pytest.raises(UnknownLabel, match="column 99"):
            folded.predict(["column 99"])
        with pytest.raises(BadSetting, match="'rms'"):
            folded.predict_levels(["column 1"], metric="rms")
        with pytest.raises(BadSetting, match="^n "):
            folded.recommend(n=0)
        with pytest.raises(BadSetting, match="coverage"):
            folded.predict_interval(["column 1"], coverage=2)
        if not folding.gives_distribution:
            for ask in (folded.predict_distribution, folded.predict_interval):
                with pytest.raises(BadSetting, match="BayesianMF"):
                    ask(["column 1"])

    def test_what_cannot_predict_for_new_rows_folds_none_in(self, fitted: Model) -> None:
        if "II" in self.model.predicts:
            assert fitted.fold_in(*HISTORY).single
            return
        for fold in (lambda: fitted.fold_in(*HISTORY), lambda: fitted.fold_in_many([HISTORY])):
            with pytest.raises(CannotExtend, match="rows"):
                fold()

    @pytest.fixture(scope="class")
    @classmethod
    def folding_columns(cls, fitted: Model) -> Model:
        if "III" not in cls.model.predicts:
            pytest.skip(f"{cls.model.__name__} cannot predict for new columns")
        return fitted

    def test_folding_a_column_in_is_extending_by_a_column_with_the_same_entries(
        self, folding_columns: Model, widest: Model, areas: AreaSplit
    ) -> None:
        assert_same_as_a_column(folding_columns, ["row 7", "row 2", "row 19"], [5, 1, 4])
        trained, every = areas.train.row_labels, widest.row_labels_
        assert_same_as_a_column(widest, [*trained[5:8], *every[-2:]], [5, 1, 4, 2, 2])
        folded = folding_columns.fold_in_column(["row 7"], [5])
        assert folded.predict([]).shape == (0,) and folded.predict(["row 1", "row 2"]).dtype == np.float64
        if "II" in self.model.predicts:  # entries of new rows describe no column
            with pytest.warns(NothingObserved, match="1 column"):
                nothing = widest.fold_in_column(every[-2:], [2, 2])
            assert np.isfinite(nothing.predict(every)).all()

    def test_bad_columns_to_fold_in(self, folding_columns: Model) -> None:
        for rows, values, error, message in BAD_COLUMNS:
            with pytest.raises(error, match=message):
                folding_columns.fold_in_column(rows, values)

    def test_what_cannot_predict_for_new_columns_folds_none_in(self, fitted: Model) -> None:
        if "III" in self.model.predicts:
            assert fitted.fold_in_column(["row 1"], [3]).single
            return
        with pytest.raises(CannotExtend, match="columns"):
            fitted.fold_in_column(["row 1"], [3])

    def test_explanations_restated_by_leaving_out_each_entry(self, folding: Model, matrix: ObservedMatrix) -> None:
        def scores(columns: Any, values: Any) -> float:
            predictor = folding.fold_in(columns, values).predictor
            return float(predictor.readout.units(predictor.score_pairs(np.array([0]), np.array([4])))[0])

        rows, columns, values = matrix.entries()
        mine = np.flatnonzero(rows == "row 3")
        effects = {
            columns[at]: scores(columns[mine], values[mine])
            - scores(columns[mine[mine != at]], values[mine[mine != at]])
            for at in mine
        }
        found = folding.explain("row 3", "column 4", n=99)
        assert sorted(found.labels) == sorted(effects) and np.all(np.diff(np.abs(found.effects)) <= 0)
        np.testing.assert_allclose(found.effects, [effects[label] for label in found.labels], atol=1e-4)
        assert found.values.tolist() == [values[mine][columns[mine] == label][0] for label in found.labels]
        assert found.prediction == pytest.approx(folding.scores(["row 3"], ["column 4"])[0], abs=1e-6)
        five, folded = folding.explain("row 3", "column 4"), folding.fold_in(columns[mine], values[mine])
        assert five.labels.tolist() == found.labels[:5].tolist()
        np.testing.assert_allclose(folded.explain("column 4", n=3).effects, found.effects[:3], atol=1e-4)
        with pytest.raises(BadSetting, match="single"):
            folding.fold_in_many([HISTORY, HISTORY]).explain("column 4")
        empty = folding.forget(rows=["row 3"]).explain("row 3", "column 4")
        assert empty.labels.size == empty.effects.size == 0 and np.isfinite(empty.prediction)

    def test_explanations_by_the_entries_of_a_column(self, folding_columns: Model, matrix: ObservedMatrix) -> None:
        rows, columns, values = matrix.entries()
        mine = columns == "column 4"
        found = folding_columns.explain("row 3", "column 4", n=99, axis="column")
        assert sorted(found.labels) == sorted(rows[mine])
        kept = mine & (rows != found.labels[0])
        both = [folding_columns.fold_in_column(rows[some], values[some]).predictor for some in (mine, kept)]
        scores = [each.readout.units(each.score_pairs(np.array([3]), np.array([0])))[0] for each in both]
        assert found.effects[0] == pytest.approx(scores[0] - scores[1], abs=1e-4)
        folded = folding_columns.fold_in_column(rows[mine], values[mine]).explain("row 3", n=2)
        np.testing.assert_allclose(folded.effects, found.effects[:2], atol=1e-4)

    def test_bad_questions_for_an_explanation(self, fitted: Model) -> None:
        for axis, area in (("row", "II"), ("column", "III")):
            if area not in self.model.predicts:
                with pytest.raises(CannotExtend, match="explain"):
                    fitted.explain("row 3", "column 4", axis=axis)  # type: ignore[arg-type]
                continue
            for asked, error, message in (
                (("row 99", "column 4"), UnknownLabel, "'row 99'"),
                (("row 3", "column 99"), UnknownLabel, "column 99"),
                (("row 3", "column 4", 0), BadSetting, "n "),
            ):
                with pytest.raises(error, match=message):
                    fitted.explain(*asked, axis=axis)  # type: ignore[arg-type, misc]
        with pytest.raises(BadSetting, match="'both'"):
            fitted.explain("row 3", "column 4", axis="both")  # type: ignore[arg-type]

    @pytest.mark.slow
    def test_eight_threads_are_answered_as_one_alone(self, fitted: Model) -> None:
        if self.model.predicts == ("I",):
            pytest.skip(f"{self.model.__name__} cannot be extended")
        by_row = "II" in self.model.predicts
        others = fitted.column_labels_ if by_row else fitted.row_labels_
        known = (fitted.row_labels_ if by_row else fitted.column_labels_)[:8]

        def pairs(label: Any) -> tuple[Any, Any]:
            labels = [label] * others.size
            return (labels, others) if by_row else (others, labels)

        def asked(number: int) -> tuple[Any, ...]:
            some, values = others[[number, number + 1, number + 9]], [1 + number % 5, 3, 5 - number % 5]
            new = [f"new {number}"] * 3
            entries = ObservedMatrix.from_entries(*((new, some) if by_row else (some, new)), values, fitted.scale_)
            more, less = fitted.extend(entries), fitted.forget(entries=one_known(fitted))
            folded = fitted.fold_in(some, values) if by_row else fitted.fold_in_column(some, values)
            return (
                fitted.predict(*pairs(known[number])),
                fitted.predict(*pairs("nobody"), unknown="fallback"),
                folded.predict(others),
                folded.explain(others[4]).effects,
                more.predict(*pairs(new[0])),
                more.complete(),
                less.complete(),
                *fitted.recommend(fitted.row_labels_[number], n=5),
                *(folded.recommend(n=5) if by_row else ()),
            )

        alone = [asked(number) for number in range(8)]
        fitted._fitted = Fitted(fitted.entries_, fitted.predictor_)  # its fallback is made by whichever thread is first
        with ThreadPoolExecutor(8) as threads:
            together = list(threads.map(asked, [*range(8)] * 2))
        for number, found in enumerate(together):
            for one, other in zip(found, alone[number % 8], strict=True):
                np.testing.assert_array_equal(one, other)

    def test_a_replaced_value_takes_the_place_of_the_old_one(
        self, fitted: Model, matrix: ObservedMatrix, tmp_path: Path
    ) -> None:
        if self.model.predicts == ("I",):
            pytest.skip(f"{self.model.__name__} cannot be extended")
        rows, columns, values = (array[[0, 1, 200]] for array in matrix.entries())
        old = ObservedMatrix.from_entries(rows, columns, values, matrix.scale)
        new = ObservedMatrix.from_entries(rows, columns, 6 - values + (values == 3), matrix.scale)
        more = fitted.extend(new, conflicts="replace")
        at = matrix.rows.positions(rows), matrix.columns.positions(columns)
        expected = matrix.to_array()
        expected[at] = new.values
        completed = more.complete()
        np.testing.assert_array_equal(completed[~np.isnan(expected)], expected[~np.isnan(expected)])
        assert more.entries_.train is fitted.entries_.train and more.row_counts(rows[:1]) == fitted.row_counts(rows[:1])
        if "II" in self.model.predicts:  # rows are encoded anew, from the new values
            row = expected[at[0][2]]
            folded = more.fold_in(matrix.column_labels[~np.isnan(row)], row[~np.isnan(row)])
            whole = folded.predictor.score_block(np.array([0]), np.arange(row.size))
            np.testing.assert_allclose(more.predictor_.score_block(at[0][2:], np.arange(row.size)), whole, atol=1e-4)
        assert not np.array_equal(completed, fitted.complete())
        more.save(tmp_path / "more")
        again = load(tmp_path / "more")
        np.testing.assert_array_equal(again.complete(), completed)
        np.testing.assert_array_equal(again.forget(rows=rows).complete(), more.forget(rows=rows).complete())
        back = again.extend(old, conflicts="replace")  # as trained, to the bit
        back.save(tmp_path / "back")
        fitted.extend(one_entry(fitted)).forget(entries=one_entry(fitted)).save(tmp_path / "once")
        fitted.save(tmp_path / "before")
        np.testing.assert_array_equal(back.complete(), fitted.complete())
        assert (tmp_path / "once").read_bytes() == (tmp_path / "before").read_bytes()
        assert (tmp_path / "back").read_bytes() == (tmp_path / "before").read_bytes()
        with pytest.raises(BadSetting, match="'last'"):
            fitted.extend(new, conflicts="last")  # type: ignore[arg-type]
        with pytest.raises(BadEntries, match="contradicts"):
            fitted.extend(new)
        with pytest.raises(BadEntries, match="nothing"):
            more.extend(new, conflicts="replace")

    def test_what_came_by_extension_is_forgotten_as_if_it_had_never_come(
        self, trained: Model, extension: ObservedMatrix, tmp_path: Path
    ) -> None:
        rows, columns, values = extension.entries()
        axis, labels = (0, rows) if "II" in self.model.predicts else (1, columns)
        new = np.setdiff1d(labels, (trained.row_labels_, trained.column_labels_)[axis])
        later = np.isin(labels, new[::2])
        parts = [
            ObservedMatrix.from_entries(rows[some], columns[some], values[some], extension.scale)
            for some in (~later, later)
        ]
        asked = {("rows", "columns")[axis]: new[::2]}
        once = trained.extend(parts[0])
        model = once.extend(parts[1]).forget(**asked)
        assert model.row_labels_.tolist() == once.row_labels_.tolist()
        assert model.column_labels_.tolist() == once.column_labels_.tolist()
        np.testing.assert_array_equal(model.complete(), once.complete())
        first = model.row_labels_[-1]
        assert model.recommend(first).labels.tolist() == once.recommend(first).labels.tolist()
        once.save(tmp_path / "once")
        model.save(tmp_path / "model")
        assert (tmp_path / "model").read_bytes() == (tmp_path / "once").read_bytes()
        # The other way round: those that came first leave, and those behind them move up.
        other = trained.extend(parts[0]).extend(parts[1]).forget(**{("rows", "columns")[axis]: new[1::2]})
        alone = trained.extend(parts[1])
        pairs = parts[1].entries()[:2]
        np.testing.assert_allclose(other.predict(*pairs), alone.predict(*pairs), rtol=1e-5)
        gone = [new[1]], (trained.column_labels_ if axis == 0 else trained.row_labels_)[:1]
        with pytest.raises(UnknownLabel):
            other.predict(*(gone if axis == 0 else gone[::-1]))
        # All of it, from a file.
        with_all = trained.extend(extension)
        with_all.save(tmp_path / "all")
        new_labels = {
            "rows": with_all.row_labels_[trained.row_labels_.size :],
            "columns": with_all.column_labels_[trained.column_labels_.size :],
        }
        load(tmp_path / "all").forget(**new_labels).save(tmp_path / "none")
        trained.save(tmp_path / "trained")
        assert (tmp_path / "none").read_bytes() == (tmp_path / "trained").read_bytes()

    def test_trained_entries_are_forgotten_in_descriptions_rankings_and_completions(
        self, fitted: Model, matrix: ObservedMatrix, tmp_path: Path
    ) -> None:
        rows, columns, _ = matrix.entries()
        mine = rows == "row 3"
        before = fitted.complete()
        less = fitted.forget(entries=(rows[mine][:2], columns[mine][:2]))
        assert set(columns[mine][:2]) <= set(less.recommend("row 3", n=99).labels)
        assert less.row_counts(["row 3"]) == fitted.row_counts(["row 3"]) - 2
        np.testing.assert_allclose(
            less.complete()[3, matrix.columns.positions(columns[mine][:2])],
            less.predict(["row 3"] * 2, columns[mine][:2]),
            rtol=1e-5,
        )
        np.testing.assert_array_equal(fitted.complete(), before)
        none = less.forget(rows=["row 3"])
        assert none.row_counts(["row 3"]) == 0 and none.recommend("row 3", n=99).labels.size == 25
        assert none.row_labels_.tolist() == fitted.row_labels_.tolist()
        none.save(tmp_path / "none")
        np.testing.assert_array_equal(load(tmp_path / "none").complete(), none.complete())
        column = fitted.forget(columns=["column 4"])
        for row in ("row 0", "row 7"):
            assert "column 4" in column.recommend(row, n=99).labels
        if "II" in self.model.predicts:
            kept = columns[mine][2:], matrix.values[mine][2:]
            folded = fitted.fold_in(*kept).predictor.score_block(np.array([0]), np.arange(25))
            others = np.setdiff1d(np.arange(25), matrix.columns.positions(columns[mine][:2]))  # described as before
            found = less.predictor_.score_block(np.array([3]), others)
            np.testing.assert_allclose(found, folded[:, others], atol=1e-4)
        nothing = fitted.forget(rows=fitted.row_labels_)
        assert np.isfinite(nothing.complete()).all() and nothing.row_counts(["row 1"]) == 0
        same = none.forget(rows=["row 3", "nobody"], entries=(["row 3", "x"], ["column 4", "y"]), missing="ignore")
        np.testing.assert_array_equal(same.complete(), none.complete())

    def test_bad_things_to_forget(self, fitted: Model) -> None:
        for asked, error, message in BAD_TO_FORGET:
            with pytest.raises(error, match=message):
                fitted.forget(**asked)

    def test_what_is_not_there_is_not_forgotten(self, fitted: Model, matrix: ObservedMatrix) -> None:
        row, column = np.argwhere(np.isnan(matrix.to_array()))[0]
        pair = [matrix.row_labels[row]], [matrix.column_labels[column]]
        with pytest.raises(BadEntries, match="forget"):
            fitted.forget(entries=(pair[0], pair[1]))
        with pytest.raises(BadEntries, match="row 1"):
            fitted.forget(rows=["row 1"]).forget(rows=["row 1"])
        with pytest.raises(BadEntries, match="column 1"):
            fitted.forget(columns=["column 1"]).forget(columns=["column 1"])

    def test_a_model_folder_is_the_same_model(
        self, widest: Model, reached: dict[str, ObservedMatrix], tmp_path: Path
    ) -> None:
        widest.save(tmp_path / "widest.model")
        widest.save(tmp_path / "widest.safetensors")
        row = widest.row_labels_[0]
        for again in (load(tmp_path / "widest.model"), verify(tmp_path / "widest.model")):
            for test in reached.values():
                rows, columns, _ = test.entries()
                np.testing.assert_array_equal(again.predict(rows, columns), widest.predict(rows, columns))
            assert again.recommend(row, 5).labels.tolist() == widest.recommend(row, 5).labels.tolist()
            again.save(tmp_path / "again.safetensors")
            assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "widest.safetensors").read_bytes()

    def test_a_model_folder_extends_the_same(
        self, trained: Model, extension: ObservedMatrix, extended: Model, pairs: tuple[Any, Any], tmp_path: Path
    ) -> None:
        trained.save(tmp_path / "trained.model")
        again = load(tmp_path / "trained.model").extend(extension)
        np.testing.assert_array_equal(again.predict(*pairs), extended.predict(*pairs))

    def test_save_and_load_agree_to_the_bit(
        self, widest: Model, reached: dict[str, ObservedMatrix], tmp_path: Path
    ) -> None:
        widest.save(tmp_path / "model.safetensors")
        again = load(tmp_path / "model.safetensors")
        assert type(again) is type(widest)
        assert again.settings == widest.settings
        for test in reached.values():
            rows, columns, _ = test.entries()
            np.testing.assert_array_equal(again.predict(rows, columns), widest.predict(rows, columns))
        np.testing.assert_array_equal(again.complete(), widest.complete())
        again.save(tmp_path / "again.safetensors")
        assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()

    def test_a_loaded_model_extends_the_same(
        self, trained: Model, extension: ObservedMatrix, extended: Model, pairs: tuple[Any, Any], tmp_path: Path
    ) -> None:
        trained.save(tmp_path / "model.safetensors")
        again = load(tmp_path / "model.safetensors").extend(extension)
        np.testing.assert_array_equal(again.predict(*pairs), extended.predict(*pairs))

    def test_a_full_disk_leaves_the_old_file(self, fitted: Model, tmp_path: Path) -> None:
        path = tmp_path / "model.safetensors"
        path.write_text("the old file")
        with pytest.MonkeyPatch.context() as patch:

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr("os.fsync", full)
            with pytest.raises(CannotSave, match="space"):
                fitted.save(path)
        assert path.read_text() == "the old file"
        assert list(tmp_path.iterdir()) == [path]

    def test_complete_keeps_what_is_observed(self, fitted: Model, matrix: ObservedMatrix) -> None:
        completed, observed = fitted.complete(), matrix.to_array()
        assert completed.shape == matrix.shape
        known = ~np.isnan(observed)
        np.testing.assert_array_equal(completed[known], observed[known])
        row, column = np.argwhere(~known)[0]
        expected = fitted.predict([matrix.row_labels[row]], [matrix.column_labels[column]])
        np.testing.assert_allclose(completed[row, column], expected[0], rtol=1e-6)

    def test_recommendations(self, fitted: Model, matrix: ObservedMatrix) -> None:
        labels, values = fitted.recommend("row 3", n=4)
        rated = matrix.column_labels[matrix.by_row.columns[slice(*matrix.by_row.starts[3:5])]]
        assert not set(labels) & set(rated)
        np.testing.assert_allclose(values, fitted.predict(["row 3"] * labels.size, labels), rtol=1e-6)
        scores = fitted.predictor_.score_block(np.array([3]), np.arange(matrix.shape[1]))[0]
        unrated = np.setdiff1d(np.arange(matrix.shape[1]), matrix.columns.positions(rated))
        best = np.sort(scores[unrated])[::-1][:4]  # scores of levels that are certain differ by rounding alone
        np.testing.assert_allclose(scores[matrix.columns.positions(labels)], best, rtol=1e-9)
        everything = fitted.recommend("row 3", n=1000, include_observed=True)
        assert sorted(everything.labels) == sorted(matrix.column_labels)
        assert fitted.recommend("row 3", n=1000).labels.size == matrix.shape[1] - rated.size
        some = fitted.recommend("row 3", n=2, among=["column 1", "column 2", "column 4"], include_observed=True)
        assert set(some.labels) <= {"column 1", "column 2", "column 4"}
        assert fitted.recommend("row 3", n=99, among=[*rated, *rated]).labels.size == 0
        twice = fitted.recommend("row 3", n=99, among=["column 1", "column 1"], include_observed=True)
        assert twice.labels.tolist() == ["column 1"]
        left = fitted.recommend("row 3", n=1000, exclude=labels[:2]).labels.tolist()
        assert left == fitted.recommend("row 3", n=1000).labels.tolist()[2:]
        both = fitted.recommend("row 3", among=["column 1", "column 2"], exclude=["column 2"], include_observed=True)
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

    @pytest.fixture(scope="class")
    @classmethod
    def sparse(cls) -> ObservedMatrix:
        return generate(80, 40, density=0.15, seed=3).matrix

    @pytest.mark.slow
    def test_rankings_by_relevance(self, sparse: ObservedMatrix, tmp_path: Path) -> None:
        """Rankings by relevance survive files and folders; values, extensions and fold-ins are as by value."""
        model = self.new().fit(sparse)
        if not hasattr(model.settings, "presence"):
            with pytest.raises(BadSetting, match="presence"):
                model.recommend(sparse.row_labels[0], rank_by="relevance")
            return
        assert model.chosen_["presence"] == "full" and model.chosen_["rank_by"] == "relevance"
        assert model.chosen_on_entries_["presence_ndcg"] >= 0
        row, every = sparse.row_labels[3], {"n": 99, "include_observed": True}
        best = model.recommend(row, **every)
        assert best.presence is not None and best.liked is not None
        for chances in (best.presence, best.liked):
            assert np.all((chances >= 0) & (chances <= 1))
        predicted = model.predict([row] * best.labels.size, best.labels)
        np.testing.assert_allclose(best.values, predicted, rtol=1e-6)
        for name in ("one.safetensors", "one.model"):
            model.save(tmp_path / name)
            again = load(tmp_path / name)
            found = again.recommend(row, **every)
            assert found.labels.tolist() == best.labels.tolist() and again.chosen_ == model.chosen_
            np.testing.assert_array_equal(found.presence, best.presence)
        without = self.new(presence=None).fit(sparse)
        np.testing.assert_array_equal(without.predict([row] * 40, sparse.column_labels), predicted_all(model, row))
        assert without.recommend(row).labels.tolist() == model.recommend(row, rank_by="value").labels.tolist()
        if self.model.predicts != ("I",):
            columns = sparse.column_labels[[1, 5, 9]]
            labels = [max(sparse.row_labels.tolist()) + 1 if sparse.row_labels.dtype.kind == "i" else "new"] * 3
            more = model.extend(ObservedMatrix.from_entries(labels, columns, [5, 1, 4], sparse.scale))
            guest = model.fold_in(columns, [5, 1, 4])
            assert guest.recommend(7).labels.tolist() == more.recommend(labels[0], 7).labels.tolist()
            assert not set(columns) & set(guest.recommend(99).labels)

    def test_recommendations_of_columns_with_enough_entries_and_for_all_rows(
        self, fitted: Model, matrix: ObservedMatrix, tmp_path: Path
    ) -> None:
        least = int(np.median(matrix.column_counts))
        often = matrix.column_counts >= least
        asked: dict[str, Any] = {"n": 1000, "include_observed": True}
        best = fitted.recommend("row 3", min_entries=least, **asked)
        assert set(best.labels) == set(matrix.column_labels[often])
        assert fitted.recommend("row 3", among=often, **asked).labels.tolist() == best.labels.tolist()
        assert fitted.recommend("row 3", exclude=~often, **asked).labels.tolist() == best.labels.tolist()
        path = tmp_path / "top.csv"
        assert fitted.recommend_to(path, n=2) == 2 * matrix.shape[0]
        lines = [line.split(",") for line in path.read_text().splitlines()]
        assert [line[2] for line in lines if line[0] == "row 3"] == fitted.recommend("row 3", n=2).labels.tolist()

    def test_recommendations_carry_the_probabilities_that_the_model_has(self, fitted: Model, tmp_path: Path) -> None:
        best = fitted.recommend("row 3", n=2)
        has_presence = fitted.rankers_.presence is not None
        assert (best.presence is not None) == (best.liked is not None) == has_presence
        assert (best.distribution is not None) == fitted.gives_distribution
        names = [name for name in ("presence", "liked", "distribution") if getattr(best, name) is not None]
        if best.distribution is not None:
            expected = fitted.predict_distribution(["row 3"] * 2, best.labels)
            np.testing.assert_allclose(best.distribution, expected, rtol=1e-5, atol=1e-7)
        fitted.recommend_to(tmp_path / "top.csv", ["row 3"], n=2)
        header, *lines = [line.split(",") for line in (tmp_path / "top.csv").read_text().splitlines()]
        assert header == ["row", "rank", "column", "prediction", *names]
        for place, line in enumerate(lines):
            for name, text in zip(names, line[4:], strict=True):
                assert list(map(float, text.split("|"))) == pytest.approx(np.ravel(getattr(best, name)[place]).tolist())

    def test_bad_pairs(self, fitted: Model) -> None:
        for rows, columns, error, message in BAD_PAIRS:
            for ask in (fitted.predict, fitted.predict_levels, fitted.areas):
                with pytest.raises(error, match=message):
                    ask(rows, columns)

    def test_unknown_labels_are_refused_left_out_or_answered_by_the_means(
        self, fitted: Model, matrix: ObservedMatrix
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
            left_out, answered = (ask(rows, columns, unknown=unknown) for unknown in ("nan", "fallback"))
            np.testing.assert_array_equal(np.isnan(left_out), [False, True, True, True, False])
            np.testing.assert_array_equal(ask(*pairs, unknown="fallback"), ask(*pairs))
            np.testing.assert_allclose(left_out[known], ask(*pairs), rtol=1e-6)
            np.testing.assert_array_equal(answered[known], left_out[known])
        means = Means().fit(matrix)
        expected = means.mean_ + np.array([means.column_effects_[2], means.row_effects_[2], 0.0])
        if self.model is not Means:  # which has a shrinkage of its own
            np.testing.assert_allclose(fitted.scores(rows, columns, unknown="fallback")[new], expected)
        levels = fitted.predict_levels(rows, columns, unknown="fallback")[new]
        np.testing.assert_array_equal(levels, matrix.scale.nearest_level(expected))
        predicted = fitted.predict(rows, columns, unknown="fallback")[new]
        np.testing.assert_allclose(predicted, levels if fitted.predictor_.readout.predicts_levels else expected)
        assert fitted.areas(rows, columns, unknown="nan").tolist() == ["I", "", "", "", "I"]
        with pytest.raises(BadSetting, match="'mean'"):
            fitted.predict(rows, columns, unknown="mean")  # type: ignore[arg-type]
        with pytest.raises(BadEntries, match="ints"):
            fitted.predict([7], ["column 1"], unknown="fallback")

    def test_asking_before_fitting(self) -> None:
        model = self.new()
        for ask in (
            lambda: model.predict([1], [1]),
            lambda: model.complete(),
            lambda: model.recommend(1),
            lambda: model.extend(additive()),
            lambda: model.fold_in(*HISTORY),
            lambda: model.fold_in_column([1], [1]),
            lambda: model.forget(rows=[1]),
            lambda: model.save("nowhere"),
        ):
            with pytest.raises(NotFitted, match="fitted"):
                ask()

    def test_bad_training_matrices(self, matrix: ObservedMatrix) -> None:
        with pytest.raises(BadEntries, match="entries"):
            self.new().fit(matrix.take_entries(np.zeros(matrix.n_entries, dtype=bool)))
        with pytest.raises(BadEntries, match="ndarray"):
            self.new().fit(matrix.to_array())  # type: ignore[arg-type]
        stranger = ObservedMatrix.from_entries(["row 1", "x"], ["y", "column 2"], [1, 2], matrix.scale)
        with pytest.raises(UnknownLabel, match="'y'"):
            self.new().fit(matrix, validation=stranger)
        with pytest.raises(BadEntries, match="validation"):
            self.new().fit(matrix, validation=[1])  # type: ignore[arg-type]
        ten = ObservedMatrix.from_entries(["row 1"], ["column 1"], [10], Scale([1, 10]))
        with pytest.raises(BadEntries, match="scale"):
            self.new().fit(matrix, validation=ten)

    def test_bad_extensions(self, fitted: Model, matrix: ObservedMatrix) -> None:
        with pytest.raises(BadEntries, match="list"):
            fitted.extend([1, 2])  # type: ignore[arg-type]
        if self.model.predicts == ("I",):
            return
        rows, columns, values = (array[:3] for array in matrix.entries())
        with pytest.raises(BadEntries, match="nothing"):
            fitted.extend(ObservedMatrix.from_entries(rows, columns, values, matrix.scale))
        with pytest.raises(BadEntries, match="contradicts"):
            fitted.extend(ObservedMatrix.from_entries(rows, columns, 6 - values + (values == 3), matrix.scale))
        with pytest.raises(OffScale, match="1, 10"):
            fitted.extend(ObservedMatrix.from_entries(["n", "n"], ["column 1", "column 2"], [1, 10]))
        with pytest.raises(BadEntries, match="ints"):
            fitted.extend(ObservedMatrix.from_entries([7, 7], ["column 1", "column 2"], [1, 2]))
        with pytest.raises(DuplicateEntries):
            fitted.extend(ObservedMatrix.from_entries(["n", "n"], ["column 1"] * 2, [1, 2]))

    def test_bad_settings(self, fitted: Model) -> None:
        with pytest.raises(BadSetting, match="'seed'"):
            self.new(sed=3)
        assert self.new(seed=np.int64(3)).settings.to_dict()["seed"] == 3
        with pytest.raises(BadSetting, match="seed"):
            self.new(seed=-1)
        with pytest.raises(BadSetting, match="^n "):
            fitted.recommend("row 1", n=0)

    @pytest.mark.slow
    def test_integer_labels_and_half_stars(self) -> None:
        values = np.array([[0.5, 1, np.nan], [1.5, np.nan, 2], [np.nan, 2.5, 3], [1, 1, 0.5]])
        matrix = ObservedMatrix.from_array(values, Scale(np.arange(1, 11) / 2), row_labels=[10, 7, 3, 99])
        model = self.new().fit(matrix)
        assert matrix.scale.holds(model.predict_levels([99, 7], [2, 1])).all()
        assert model.recommend(10, n=5).labels.tolist() == [2]

    @pytest.mark.slow
    def test_a_level_nobody_used_and_an_empty_column(self) -> None:
        matrix = ObservedMatrix.from_array([[1, 5, np.nan], [2, 4, np.nan], [5, 1, np.nan]], Scale([1, 2, 3, 4, 5]))
        model = self.new().fit(matrix)
        assert np.all(np.isfinite(model.predict([0, 1, 2], [2, 2, 2])))
