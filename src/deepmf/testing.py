"""What every model must do: inherit a contract in the tests of a model, here or elsewhere. Needs pytest."""

from concurrent.futures import ThreadPoolExecutor
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
    NotFitted,
    NothingObserved,
    TrainingDiverged,
    UnknownLabel,
)
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.fitted import Fitted
from deepmf.models.fold_in import FoldedColumns, FoldedRows
from deepmf.models.loading import load, verify
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import SolvingEncoder


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


def assert_same_as_stored(folded: FoldedRows | FoldedColumns, model: Model, others: Any) -> None:
    """Check that what was folded in predicts and ranks as the row (or column) "new" of a model does, to the bit."""
    new, is_row = ["new"] * len(others), isinstance(folded, FoldedRows)
    pairs = (new, others) if is_row else (others, new)
    np.testing.assert_array_equal(folded.predict(others), model.predict(*pairs))
    for metric in ("rmse", "mae", "accuracy"):
        levels = folded.predict_levels(others, metric=metric)
        np.testing.assert_array_equal(levels, model.predict_levels(*pairs, metric=metric))
    if model.gives_distribution:
        np.testing.assert_array_equal(folded.predict_distribution(others), model.predict_distribution(*pairs))
        for coverage in (0.9, 0.5):
            interval = folded.predict_interval(others, coverage=coverage)
            np.testing.assert_array_equal(interval, model.predict_interval(*pairs, coverage=coverage))
    if not isinstance(folded, FoldedRows):
        return
    options: Any
    for options in ({}, {"n": 3}, {"n": 99, "include_observed": True}, {"among": others[5:9], "exclude": others[6:8]}):
        # By value: popularity, a part of relevance, counts stored rows alone.
        best = folded.recommend(rank_by="value", **options)
        expected = model.recommend("new", rank_by="value", **options)
        assert best.labels.tolist() == expected.labels.tolist()
        np.testing.assert_array_equal(best.values, expected.values)


def predicted_all(model: Model, row: Any) -> Any:
    """Return the predictions of a model for all columns of a row."""
    return model.predict([row] * model.column_labels_.size, model.column_labels_)


class CoreContract:
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

    def test_asked_cells_move_predictions_for_any_cell_and_stay_in_the_file(
        self, fitted: Model, matrix: ObservedMatrix, tmp_path: Path
    ) -> None:
        at = np.nonzero(np.isnan(matrix.to_array()))
        rows, columns = matrix.row_labels[at[0]], matrix.column_labels[at[1]]
        asked = ObservedMatrix.from_entries(rows[::2], columns[::2], np.ones(rows[::2].size), matrix.scale)
        model, others = self.new().fit(matrix, asked=asked), (rows[1::2], columns[1::2])
        assert np.mean(model.predict(*others)) < np.mean(fitted.predict(*others)) - 0.5
        if model.gives_distribution:
            assert model.predict_distribution(*others)[:, 0].mean() > 0.8
        model.save(tmp_path / "asked")
        np.testing.assert_array_equal(load(tmp_path / "asked").predict(*others), model.predict(*others))

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
        labels: Any = {"row_labels": matrix.row_labels, "column_labels": matrix.column_labels}
        shuffled = ObservedMatrix.from_entries(rows[order], columns[order], values[order], matrix.scale, **labels)
        numpy_state: Any = np.random.get_state
        before = torch.get_rng_state(), numpy_state()[1].copy()
        again = self.new().fit(shuffled)
        assert torch.equal(torch.get_rng_state(), before[0])  # global generators are never touched
        np.testing.assert_array_equal(numpy_state()[1], before[1])
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
        labels: Any = (copied, columns[order]) if axis == "row" else (rows[order], copied)
        copies = fitted.extend(ObservedMatrix.from_entries(labels[0], labels[1], values[order], matrix.scale))
        n_rows, n_columns = matrix.shape
        whole = fitted.predictor_.score_block(np.arange(n_rows), np.arange(n_columns))
        at = [copies.entries_.rows, copies.entries_.columns][axis == "column"].positions(
            [f"copy of {label}" for label in (matrix.row_labels if axis == "row" else matrix.column_labels)]
        )
        block = (at, np.arange(n_columns)) if axis == "row" else (np.arange(n_rows), at)
        np.testing.assert_allclose(copies.predictor_.score_block(*block), whole, atol=self.copy_error)

    def test_predictions_lie_on_the_scale_and_areas_are_told(
        self, widest: Model, areas: AreaSplit, reached: dict[str, ObservedMatrix]
    ) -> None:
        for area, test in reached.items():
            rows, columns, _ = test.entries()
            predicted = widest.predict(rows, columns)
            assert predicted.dtype == np.float64
            assert np.all((predicted >= 1) & (predicted <= 5))
            assert np.all(areas.train.scale.holds(widest.predict_levels(rows, columns)))
            assert set(widest.areas(rows, columns)) == {area}
            alone = [widest.predict([row], [column])[0] for row, column in zip(rows[:5], columns[:5], strict=True)]
            np.testing.assert_allclose(alone, predicted[:5], rtol=1e-6)
        assert widest.predict([], []).shape == (0,)

    def test_extending_leaves_the_old_model_untouched_and_is_the_same_bit_by_bit(
        self,
        trained: Model,
        areas: AreaSplit,
        extension: ObservedMatrix,
        extended: Model,
        pairs: tuple[Any, Any],
        tmp_path: Path,
    ) -> None:
        rows, columns, _ = areas.test["I"].entries()
        before = trained.predict(rows, columns)
        parts = split_entries(extension, train=0.5, validation=0.25, test=0.25, seed=3)
        model = trained.extend(parts.train).extend(parts.validation).extend(parts.test)
        np.testing.assert_allclose(model.predict(*pairs), extended.predict(*pairs), rtol=1e-5)
        np.testing.assert_array_equal(trained.predict(rows, columns), before)
        with pytest.raises(UnknownLabel):
            trained.predict(*pairs)
        for name in ("trained.safetensors", "trained.model"):  # and from files
            trained.save(tmp_path / name)
            again = load(tmp_path / name).extend(extension)
            np.testing.assert_array_equal(again.predict(*pairs), extended.predict(*pairs))
        n_rows, n_columns = (labels.size for labels in (trained.row_labels_, trained.column_labels_))
        extended.forget(rows=extended.row_labels_[n_rows:], columns=extended.column_labels_[n_columns:]).save(
            tmp_path / "none.safetensors"
        )
        assert (tmp_path / "none.safetensors").read_bytes() == (tmp_path / "trained.safetensors").read_bytes()

    def test_without_entries_in_area_iv_trained_rows_and_columns_alone_encode(self, extended: Model) -> None:
        predictor, seen = extended.predictor_, extended.entries_
        if not isinstance(predictor.encoder, SolvingEncoder):
            pytest.skip(f"{self.model.__name__} never reads area IV")
        n_rows, n_columns = seen.train.shape
        rows, columns = np.arange(n_rows, len(seen.rows)), np.arange(n_columns, len(seen.columns))
        by_row = predictor.encoder.rows(seen.row_entries(rows), Latents(predictor.columns.base))
        by_column = predictor.encoder.columns(seen.column_entries(columns), Latents(predictor.rows.base))
        np.testing.assert_array_equal(predictor.rows.whole(), np.concatenate([predictor.rows.base, by_row]))
        np.testing.assert_array_equal(predictor.columns.whole(), np.concatenate([predictor.columns.base, by_column]))

    def test_entries_of_new_rows_in_new_columns_count_in_any_order_and_can_be_forgotten(
        self, extended: Model, areas: AreaSplit, tmp_path: Path
    ) -> None:
        if "IV" not in self.model.predicts:
            pytest.skip(f"{self.model.__name__} cannot predict in area IV")
        late = areas.unused
        at_once = extended.extend(late)
        row, column, value = (part.tolist() for part in late.entries())
        asked = areas.test["IV"].entries()[:2]
        reads_all = isinstance(extended.predictor_.encoder, SolvingEncoder)
        assert reads_all != np.array_equal(at_once.predictor_.rows.whole(), extended.predictor_.rows.whole())
        parts = split_entries(late, train=0.4, validation=0.3, test=0.3, seed=5)
        in_turn = extended.extend(parts.test).extend(parts.train)
        in_turn.predict(*asked)  # what is read between two extensions makes no difference
        in_turn = in_turn.extend(parts.validation)
        everything = [each.ravel() for each in np.meshgrid(at_once.row_labels_, at_once.column_labels_)]
        np.testing.assert_allclose(in_turn.predict(*everything), at_once.predict(*everything), rtol=1e-5)
        in_turn.save(tmp_path / "model.safetensors")
        again, one = load(tmp_path / "model.safetensors"), ([row[0]], [column[0]])
        replaced = again.forget(entries=one).extend(ObservedMatrix.from_entries(*one, [value[0]], late.scale))
        np.testing.assert_allclose(replaced.predict(*everything), at_once.predict(*everything), rtol=1e-5)
        without = replaced.forget(entries=(row[:3], column[:3])).forget(entries=(row[3:], column[3:]))
        np.testing.assert_allclose(without.predict(*everything), extended.predict(*everything), rtol=1e-5)

    def test_what_it_cannot_predict_for_is_refused(self, fitted: Model, matrix: ObservedMatrix) -> None:
        new_row = ObservedMatrix.from_entries(["carol"], ["column 1"], [3], matrix.scale)
        new_column = ObservedMatrix.from_entries(["row 1"], ["Alien"], [3], matrix.scale)
        for new, area, axis, fold in (
            (new_row, "II", "row", lambda: fitted.fold_in(["column 1"], [3])),
            (new_column, "III", "column", lambda: fitted.fold_in_column(["row 1"], [3])),
        ):
            if area in self.model.predicts:
                assert area in fitted.extend(new).areas(*new.entries()[:2]) and fold().single
                continue
            message = "extended" if self.model.predicts == ("I",) else f"{axis}s"
            with pytest.raises(CannotExtend, match=message):
                fitted.extend(new)
            with pytest.raises(CannotExtend, match=f"{axis}s"):
                fold()
            with pytest.raises(CannotExtend, match="explain"):
                fitted.explain("row 3", "column 4", axis=axis)  # type: ignore[arg-type]

    def test_folding_in_is_extending_by_the_same_entries(self, fitted: Model, widest: Model, areas: AreaSplit) -> None:
        new_columns = widest.column_labels_[-2:]
        if "II" in self.model.predicts:
            assert_same_as_stored(fitted.fold_in(*HISTORY), extended_by(fitted, *HISTORY), fitted.column_labels_)
            history = [*areas.train.column_labels[5:8], *new_columns], [5, 1, 4, 2, 2]
            more = extended_by(widest, *history)  # a row that is stored may change new columns
            assert_same_as_stored(more.fold_in(*history), more, more.column_labels_)
        if "III" in self.model.predicts:
            for model, rows in (
                (fitted, ["row 7", "row 2", "row 19"]),
                (widest, [*areas.train.row_labels[5:8], *widest.row_labels_[-2:]]),
            ):
                values = [5, 1, 4, 2, 2][: len(rows)]
                new = ObservedMatrix.from_entries(rows, ["new"] * len(rows), values, model.scale_)
                more = model.extend(new)
                folded = (model if model is fitted else more).fold_in_column(rows, values)
                assert_same_as_stored(folded, more, model.row_labels_)

    def test_files_and_folders_are_the_same_model_to_the_bit(
        self, widest: Model, reached: dict[str, ObservedMatrix], tmp_path: Path
    ) -> None:
        for name in ("one.safetensors", "one.model"):
            widest.save(tmp_path / name)
            for again in (load(tmp_path / name), verify(tmp_path / name)):
                for test in reached.values():
                    rows, columns, _ = test.entries()
                    np.testing.assert_array_equal(again.predict(rows, columns), widest.predict(rows, columns))
                np.testing.assert_array_equal(again.complete(), widest.complete())
                row = widest.row_labels_[0]
                assert again.recommend(row, 5).labels.tolist() == widest.recommend(row, 5).labels.tolist()
                again.save(tmp_path / "again.safetensors")
                assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()

    def test_complete_keeps_what_is_observed(self, fitted: Model, matrix: ObservedMatrix) -> None:
        completed, observed = fitted.complete(), matrix.to_array()
        assert completed.shape == matrix.shape
        known = ~np.isnan(observed)
        np.testing.assert_array_equal(completed[known], observed[known])
        row, column = np.argwhere(~known)[0]
        expected = fitted.predict([matrix.row_labels[row]], [matrix.column_labels[column]])
        np.testing.assert_allclose(completed[row, column], expected[0], rtol=1e-6)

    def test_recommendations_are_the_best_columns_without_an_entry(self, fitted: Model, matrix: ObservedMatrix) -> None:
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
        many = fitted.recommend(["row 3", "row 5"], n=4)
        assert many.labels.shape == many.values.shape == (2, 4)
        assert many.labels[0].tolist() == labels.tolist()

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

    def test_bad_settings(self, fitted: Model) -> None:
        with pytest.raises(BadSetting, match="'seed'"):
            self.new(sed=3)
        assert self.new(seed=np.int64(3)).settings.to_dict()["seed"] == 3
        with pytest.raises(BadSetting, match="seed"):
            self.new(seed=-1)
        with pytest.raises(BadSetting, match=r"^n "):
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


class ModelContract(CoreContract):
    """The core, and what users of a model do with it besides: explain, rank by relevance, ask from threads."""

    @pytest.fixture(scope="class")
    @classmethod
    def folding(cls, fitted: Model) -> Model:
        if "II" not in cls.model.predicts:
            pytest.skip(f"{cls.model.__name__} cannot predict for new rows")
        return fitted

    @pytest.fixture(scope="class")
    @classmethod
    def folding_columns(cls, fitted: Model) -> Model:
        if "III" not in cls.model.predicts:
            pytest.skip(f"{cls.model.__name__} cannot predict for new columns")
        return fitted

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
        reads_all = isinstance(fitted.predictor_.encoder, SolvingEncoder)
        assert ("'empty'" if reads_all else "'stranger', 'empty'") in str(warned[0].message)
        predicted = more.predict(["stranger", "empty"], ["column 1", "unheard of"])
        assert np.all(np.isfinite(predicted))
        assert more.areas(["stranger", "empty"], ["column 1", "unheard of"]).tolist() == ["II", "IV"]

    def test_a_known_row_folded_in_is_predicted_as_it_is(self, folding: Model, matrix: ObservedMatrix) -> None:
        rows, columns, values = matrix.entries()
        mine = rows == "row 3"
        found = folding.fold_in(columns[mine], values[mine]).predictor.score_block(np.array([0]), np.arange(25))
        expected = folding.predictor_.score_block(np.array([3]), np.arange(25))
        np.testing.assert_allclose(found, expected, atol=self.copy_error)

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

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_eight_threads_are_answered_as_one_alone(self, folding: Model) -> None:
        others, known = folding.column_labels_, folding.row_labels_[:8]

        def ask(number: int) -> tuple[Any, ...]:
            some, values = others[[number, number + 1, number + 9]], [1 + number % 5, 3, 5 - number % 5]
            new = [f"new {number}"] * 3
            more = folding.extend(ObservedMatrix.from_entries(new, some, values, folding.scale_))
            less = folding.forget(entries=folding.entries_.train.take_entries(np.array([0])))
            folded = folding.fold_in(some, values)
            return (
                folding.predict([known[number]] * others.size, others),
                folding.predict(["nobody"] * others.size, others, unknown="fallback"),
                folded.predict(others),
                folded.explain(others[4]).effects,
                more.complete(),
                less.complete(),
                *folding.recommend(known[number], n=5),
                *folded.recommend(n=5),
            )

        alone = [ask(number) for number in range(8)]
        folding._fitted = Fitted(folding.entries_, folding.predictor_)  # whichever thread is first makes its fallback
        with ThreadPoolExecutor(8) as threads:
            together = list(threads.map(ask, [*range(8)] * 2))
        for number, found in enumerate(together):
            for one, other in zip(found, alone[number % 8], strict=True):
                np.testing.assert_array_equal(one, other)

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
        row = sparse.row_labels[3]
        every: Any = {"n": 99, "include_observed": True}
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
