"""What every model must do: inherit the contract in the tests of a model, here or elsewhere. Needs
pytest."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from deepmf.data import AreaSplit, split_areas, split_entries
from deepmf.datasets import generate
from deepmf.errors import BadSetting, CannotExtend, NotFitted, UnknownLabel
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.loading import load, verify

# of a row that the additive matrix does not have
HISTORY = ["column 7", "column 2", "column 19"], [5, 1, 4]


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


def keep_known(
    extension: ObservedMatrix, known: ObservedMatrix, model: type[Model]
) -> ObservedMatrix:
    """Return the entries that a model can be extended by: without new rows, or new columns, where
    it cannot."""
    rows, columns, values = extension.entries()
    is_predictable = np.ones(values.size, dtype=bool)
    if "II" not in model.predicts:
        is_predictable &= np.isin(rows, known.row_labels)
    if "III" not in model.predicts:
        is_predictable &= np.isin(columns, known.column_labels)
    return ObservedMatrix.from_entries(
        rows[is_predictable], columns[is_predictable], values[is_predictable], extension.scale
    )


class ModelContract:
    """Inherit and set `model` and quick `settings` that recover an additive matrix to
    `recovery_error`.

    `permutation_error` is how far (root mean square) the scores of missing cells may move when the
    rows and columns of the training matrix come in another order, as a share of how much they
    differ: nothing but rounding where the method starts from the matrix alone, more where it starts
    from random numbers (rows or columns in the wrong order would move them by .8 and more).
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

    @classmethod
    def require_area(cls, area: str) -> None:
        if area not in cls.model.predicts:
            pytest.skip(f"{cls.model.__name__} cannot predict in area {area}")

    @pytest.fixture(scope="class", name="matrix")
    @classmethod
    def make_matrix(cls) -> ObservedMatrix:
        return additive()

    @pytest.fixture(scope="class", name="fitted")
    @classmethod
    def fit_matrix(cls, matrix: ObservedMatrix) -> Model:
        return cls.new().fit(matrix)

    @pytest.fixture(scope="class", name="areas")
    @classmethod
    def split_matrix(cls) -> AreaSplit:
        return split_areas(generate(40, 30, density=0.5, seed=1).matrix, seed=1)

    @pytest.fixture(scope="class", name="trained")
    @classmethod
    def train_on_areas(cls, areas: AreaSplit) -> Model:
        return cls.new().fit(areas.train)

    @pytest.fixture(scope="class", name="extension")
    @classmethod
    def select_extension(cls, areas: AreaSplit) -> ObservedMatrix:
        if cls.model.predicts == ("I",):
            pytest.skip(f"{cls.model.__name__} cannot be extended")
        return keep_known(areas.extension, areas.train, cls.model)

    @pytest.fixture(scope="class", name="extended")
    @classmethod
    def extend_trained(cls, trained: Model, extension: ObservedMatrix) -> Model:
        return trained.extend(extension)

    @pytest.fixture(scope="class", name="widest")
    @classmethod
    def find_widest(cls, request: pytest.FixtureRequest) -> Model:
        """A model of all the areas it can reach."""
        name = "trained" if cls.model.predicts == ("I",) else "extended"
        widest: Model = request.getfixturevalue(name)
        return widest

    @pytest.fixture(scope="class", name="reached")
    @classmethod
    def select_reached(cls, areas: AreaSplit) -> dict[str, ObservedMatrix]:
        return {area: test for area, test in areas.test.items() if area in cls.model.predicts}

    def test_recovers_a_known_matrix(self) -> None:
        split = split_entries(additive(), train=0.8, validation=0, test=0.2, seed=0)
        model = self.new().fit(split.train)
        rows, columns, values = split.test.entries()
        assert rmse_error(model.predict(rows, columns), values) < self.recovery_error

    def test_same_seed_same_file_whatever_the_order_of_entries(
        self, fitted: Model, matrix: ObservedMatrix, tmp_path: Path
    ) -> None:
        rows, columns, values = matrix.entries()
        order = np.random.default_rng(1).permutation(values.size)
        labels: Any = {"row_labels": matrix.row_labels, "column_labels": matrix.column_labels}
        shuffled = ObservedMatrix.from_entries(
            rows[order], columns[order], values[order], matrix.scale, **labels
        )
        numpy_state: Any = np.random.get_state
        before = torch.get_rng_state(), numpy_state()[1].copy()
        refitted = self.new().fit(shuffled)
        assert torch.equal(torch.get_rng_state(), before[0])  # global generators are never touched
        np.testing.assert_array_equal(numpy_state()[1], before[1])
        np.testing.assert_array_equal(
            refitted.predict(rows, columns), fitted.predict(rows, columns)
        )
        for model, name in ((fitted, "one"), (refitted, "two")):
            model.save(tmp_path / name)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    @pytest.mark.slow
    def test_permuting_rows_and_columns_permutes_predictions(
        self, fitted: Model, matrix: ObservedMatrix
    ) -> None:
        assert self.permutation_error <= 0.3, (
            "more would let through rows or columns in the wrong order"
        )
        generator = np.random.default_rng(2)
        row_order, column_order = (generator.permutation(size) for size in matrix.shape)
        permuted = ObservedMatrix.from_array(
            matrix.to_array()[row_order][:, column_order],
            matrix.scale,
            row_labels=matrix.row_labels[row_order],
            column_labels=matrix.column_labels[column_order],
        )
        positions, missing = [np.arange(size) for size in matrix.shape], np.isnan(matrix.to_array())
        scores = fitted.predictor_.score_block(*positions)[missing].astype(np.float64)
        permuted_scores = self.new().fit(permuted).predictor_.score_block(*positions)
        restored = permuted_scores[np.argsort(row_order)][:, np.argsort(column_order)]
        assert rmse_error(restored[missing], scores) <= self.permutation_error * scores.std()

    @pytest.mark.parametrize("axis, area", [("row", "II"), ("column", "III")])
    def test_a_copy_of_a_known_one_is_predicted_as_it_is(
        self, fitted: Model, matrix: ObservedMatrix, axis: str, area: str
    ) -> None:
        self.require_area(area)
        rows, columns, values = matrix.entries()
        order = np.random.default_rng(0).permutation(values.size)
        copied = [f"copy of {label}" for label in (rows if axis == "row" else columns)[order]]
        labels: Any = (copied, columns[order]) if axis == "row" else (rows[order], copied)
        copies = fitted.extend(
            ObservedMatrix.from_entries(labels[0], labels[1], values[order], matrix.scale)
        )
        block: list[Any] = [np.arange(size) for size in matrix.shape]
        scores = fitted.predictor_.score_block(*block)
        if axis == "row":
            block[0] = copies.entries_.rows.positions(
                [f"copy of {label}" for label in matrix.row_labels]
            )
        else:
            block[1] = copies.entries_.columns.positions(
                [f"copy of {label}" for label in matrix.column_labels]
            )
        np.testing.assert_allclose(
            copies.predictor_.score_block(*block), scores, atol=self.copy_error
        )

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
            alone = [
                widest.predict([row], [column])[0]
                for row, column in zip(rows[:5], columns[:5], strict=True)
            ]
            np.testing.assert_allclose(alone, predicted[:5], rtol=1e-6)
        assert widest.predict([], []).shape == (0,)

    def test_extending_leaves_the_old_model_untouched_and_can_be_taken_back(
        self,
        trained: Model,
        areas: AreaSplit,
        extension: ObservedMatrix,
        extended: Model,
        tmp_path: Path,
    ) -> None:
        known_pairs, farthest = (
            areas.test["I"].entries()[:2],
            areas.test[self.model.predicts[-1]].entries()[:2],
        )
        before = trained.predict(*known_pairs)
        parts = split_entries(extension, train=0.5, validation=0.25, test=0.25, seed=3)
        model = trained.extend(parts.train).extend(parts.validation).extend(parts.test)
        np.testing.assert_allclose(model.predict(*farthest), extended.predict(*farthest), rtol=1e-5)
        np.testing.assert_array_equal(trained.predict(*known_pairs), before)
        with pytest.raises(UnknownLabel):
            trained.predict(*farthest)
        trained.save(tmp_path / "trained")
        reloaded = load(tmp_path / "trained").extend(extension)
        np.testing.assert_array_equal(reloaded.predict(*farthest), extended.predict(*farthest))
        new_labels = (
            extended.row_labels_[trained.row_labels_.size :],
            extended.column_labels_[trained.column_labels_.size :],
        )
        extended.forget(rows=new_labels[0], columns=new_labels[1]).save(tmp_path / "none")
        assert (tmp_path / "none").read_bytes() == (tmp_path / "trained").read_bytes()

    def test_what_it_cannot_predict_for_is_refused(
        self, fitted: Model, matrix: ObservedMatrix
    ) -> None:
        new_row = ObservedMatrix.from_entries(["carol"], ["column 1"], [3], matrix.scale)
        new_column = ObservedMatrix.from_entries(["row 1"], ["Alien"], [3], matrix.scale)
        for extension, area, axis, fold in (
            (new_row, "II", "row", lambda: fitted.fold_in(["column 1"], [3])),
            (new_column, "III", "column", lambda: fitted.fold_in_column(["row 1"], [3])),
        ):
            if area in self.model.predicts:
                assert (
                    area in fitted.extend(extension).areas(*extension.entries()[:2])
                    and fold().single
                )
                continue
            message = "extended" if self.model.predicts == ("I",) else f"{axis}s"
            with pytest.raises(CannotExtend, match=message):
                fitted.extend(extension)
            with pytest.raises(CannotExtend, match=f"{axis}s"):
                fold()
            with pytest.raises(CannotExtend, match="explain"):
                fitted.explain("row 3", "column 4", axis=axis)  # type: ignore[arg-type]

    @pytest.mark.parametrize("start", ["fitted", "widest"])
    @pytest.mark.parametrize("axis, area", [("row", "II"), ("column", "III")])
    def test_folding_in_is_extending_by_the_same_entries(
        self, start: str, axis: str, area: str, request: pytest.FixtureRequest
    ) -> None:
        self.require_area(area)
        model: Model = request.getfixturevalue(start)
        is_row = axis == "row"
        partner_labels = model.column_labels_ if is_row else model.row_labels_
        # of the widest, the last ones are new
        partners, values = [*partner_labels[5:8], *partner_labels[-2:]], [5, 1, 4, 2, 2]
        new_labels = ["new"] * partner_labels.size
        labels: Any = (new_labels[:5], partners) if is_row else (partners, new_labels[:5])
        more = model.extend(ObservedMatrix.from_entries(labels[0], labels[1], values, model.scale_))
        base = model if start == "fitted" else more  # what is stored may change new partners
        folded: Any = (base.fold_in if is_row else base.fold_in_column)(partners, values)
        pairs: Any = (new_labels, partner_labels) if is_row else (partner_labels, new_labels)
        np.testing.assert_array_equal(folded.predict(partner_labels), more.predict(*pairs))
        levels = folded.predict_levels(partner_labels, metric="mae")
        np.testing.assert_array_equal(levels, more.predict_levels(*pairs, metric="mae"))
        if more.gives_distribution:
            np.testing.assert_array_equal(
                folded.predict_distribution(partner_labels), more.predict_distribution(*pairs)
            )
            interval = folded.predict_interval(partner_labels, coverage=0.5)
            np.testing.assert_array_equal(interval, more.predict_interval(*pairs, coverage=0.5))
        options: Any
        for options in (
            {"n": 3},
            {"n": 99, "include_observed": True},
            {"among": partner_labels[5:9], "exclude": partner_labels[6:8]},
        ):
            if is_row:  # by value: popularity, a part of relevance, counts stored rows alone
                best = folded.recommend(rank_by="value", **options)
                expected = more.recommend("new", rank_by="value", **options)
                assert best.labels.tolist() == expected.labels.tolist()
                np.testing.assert_array_equal(best.values, expected.values)

    @pytest.mark.slow
    @pytest.mark.parametrize("axis, area", [("row", "II"), ("column", "III")])
    def test_explanations_restated_by_leaving_out_each_entry(
        self, fitted: Model, matrix: ObservedMatrix, axis: Any, area: str
    ) -> None:
        self.require_area(area)
        rows, columns, values = matrix.entries()
        is_row = axis == "row"
        fold: Any = fitted.fold_in if is_row else fitted.fold_in_column
        partners, place = (columns, (0, 4)) if is_row else (rows, (3, 0))

        def score(entries: Any) -> float:
            predictor = fold(partners[entries], values[entries]).predictor
            return float(
                predictor.readout.units(predictor.score_pairs(*np.array(place)[:, None]))[0]
            )

        mine = np.flatnonzero(rows == "row 3" if is_row else columns == "column 4")
        effects = {partners[at]: score(mine) - score(mine[mine != at]) for at in mine}
        explanation = fitted.explain("row 3", "column 4", n=99, axis=axis)
        assert sorted(explanation.labels) == sorted(effects) and np.all(
            np.diff(np.abs(explanation.effects)) <= 0
        )
        np.testing.assert_allclose(
            explanation.effects, [effects[label] for label in explanation.labels], atol=1e-4
        )
        assert explanation.values.tolist() == [
            values[mine][partners[mine] == label][0] for label in explanation.labels
        ]
        assert explanation.prediction == pytest.approx(
            fitted.scores(["row 3"], ["column 4"])[0], abs=1e-6
        )
        folded = fold(partners[mine], values[mine]).explain("column 4" if is_row else "row 3", n=3)
        np.testing.assert_allclose(folded.effects, explanation.effects[:3], atol=1e-4)

    def test_files_mapped_or_not_are_the_same_model_to_the_bit(
        self, widest: Model, reached: dict[str, ObservedMatrix], tmp_path: Path
    ) -> None:
        for name in ("one.safetensors", "one.model"):
            widest.save(tmp_path / name)
            for reloaded in (load(tmp_path / name), verify(tmp_path / name)):
                for test in reached.values():
                    rows, columns, _ = test.entries()
                    np.testing.assert_array_equal(
                        reloaded.predict(rows, columns), widest.predict(rows, columns)
                    )
                np.testing.assert_array_equal(reloaded.complete(), widest.complete())
                row = widest.row_labels_[0]
                assert (
                    reloaded.recommend(row, 5).labels.tolist()
                    == widest.recommend(row, 5).labels.tolist()
                )
                reloaded.save(tmp_path / "again.safetensors")
                assert (tmp_path / "again.safetensors").read_bytes() == (
                    tmp_path / "one.safetensors"
                ).read_bytes()

    def test_what_is_observed_is_kept_and_not_recommended(
        self, fitted: Model, matrix: ObservedMatrix
    ) -> None:
        completed, observed = fitted.complete(), matrix.to_array()
        is_observed = ~np.isnan(observed)
        np.testing.assert_array_equal(completed[is_observed], observed[is_observed])
        labels, values = fitted.recommend("row 3", n=4)
        unrated = np.flatnonzero(~is_observed[3])
        assert set(labels) <= set(matrix.column_labels[unrated])
        np.testing.assert_allclose(
            values, fitted.predict(["row 3"] * labels.size, labels), rtol=1e-6
        )
        np.testing.assert_allclose(values, np.sort(completed[3, unrated])[::-1][:4], rtol=1e-6)
        everything = fitted.recommend("row 3", n=1000, include_observed=True)
        assert sorted(everything.labels) == sorted(matrix.column_labels)
        assert fitted.recommend(["row 3", "row 5"], n=4).labels[0].tolist() == labels.tolist()

    def test_wrong_settings_and_questions_before_the_fit_are_refused(self) -> None:
        with pytest.raises(BadSetting, match="'seed'"):
            self.new(sed=3)
        with pytest.raises(BadSetting, match="seed"):
            self.new(seed=-1)
        model = self.new(seed=np.int64(3))
        assert model.settings.to_dict()["seed"] == 3
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
