"""What our own models do beside the contract of every model."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.data import AreaSplit, split_entries
from deepmf.datasets import generate
from deepmf.errors import BadEntries, BadSetting, NothingObserved
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.models.fitted import Fitted
from deepmf.models.loading import load
from deepmf.scoring.encoders import SolvingEncoder
from deepmf.testing import HISTORY, ModelContract


class FullContract(ModelContract):
    """All of it: cells that were asked, many rows at once, threads, and probabilities of
    entries."""

    @pytest.fixture(scope="class")
    @classmethod
    def folding(cls, fitted: Model) -> Model:
        cls.require_area("II")
        return fitted

    def test_asked_cells_move_predictions_for_any_cell_and_stay_in_the_file(
        self, fitted: Model, matrix: ObservedMatrix, tmp_path: Path
    ) -> None:
        at = np.nonzero(np.isnan(matrix.to_array()))
        rows, columns = matrix.row_labels[at[0]], matrix.column_labels[at[1]]
        asked = ObservedMatrix.from_entries(
            rows[::2], columns[::2], np.ones(rows[::2].size), matrix.scale
        )
        model, others = self.new().fit(matrix, asked=asked), (rows[1::2], columns[1::2])
        assert np.mean(model.predict(*others)) < np.mean(fitted.predict(*others)) - 0.5
        if model.gives_distribution:
            assert model.predict_distribution(*others)[:, 0].mean() > 0.8
        model.save(tmp_path / "asked")
        np.testing.assert_array_equal(
            load(tmp_path / "asked").predict(*others), model.predict(*others)
        )

    def test_entries_of_new_rows_in_new_columns_count_in_any_order_and_can_be_forgotten(
        self, extended: Model, areas: AreaSplit, tmp_path: Path
    ) -> None:
        self.require_area("IV")
        late = areas.unused
        at_once = extended.extend(late)
        row, column, value = (part.tolist() for part in late.entries())
        reads_all = isinstance(extended.predictor_.encoder, SolvingEncoder)
        assert reads_all != np.array_equal(
            at_once.predictor_.rows.whole(), extended.predictor_.rows.whole()
        )
        parts = split_entries(late, train=0.4, validation=0.3, test=0.3, seed=5)
        in_turn = extended.extend(parts.test).extend(parts.train)
        # what is read between two extensions makes no difference
        in_turn.predict(*areas.test["IV"].entries()[:2])
        in_turn = in_turn.extend(parts.validation)
        everything = [
            each.ravel() for each in np.meshgrid(at_once.row_labels_, at_once.column_labels_)
        ]
        np.testing.assert_allclose(
            in_turn.predict(*everything), at_once.predict(*everything), rtol=1e-5
        )
        in_turn.save(tmp_path / "model")
        again, one = load(tmp_path / "model"), ([row[0]], [column[0]])
        replaced = again.forget(entries=one).extend(
            ObservedMatrix.from_entries(*one, [value[0]], late.scale)
        )
        np.testing.assert_allclose(
            replaced.predict(*everything), at_once.predict(*everything), rtol=1e-5
        )
        without = replaced.forget(entries=(row[:3], column[:3])).forget(
            entries=(row[3:], column[3:])
        )
        np.testing.assert_allclose(
            without.predict(*everything), extended.predict(*everything), rtol=1e-5
        )

    def test_new_entries_of_known_rows_count(self, fitted: Model, matrix: ObservedMatrix) -> None:
        if self.model.predicts == ("I",):
            pytest.skip(f"{self.model.__name__} cannot be extended")
        missing = np.argwhere(np.isnan(matrix.to_array()))[:8]
        labels = matrix.row_labels[missing[:, 0]], matrix.column_labels[missing[:, 1]]
        more = fitted.extend(ObservedMatrix.from_entries(*labels, [5] * len(missing), matrix.scale))
        whole = [np.arange(size) for size in matrix.shape]
        changed = more.predictor_.score_block(*whole) != fitted.predictor_.score_block(*whole)
        assert changed[tuple(missing.T)].any()
        rows, columns = (
            np.isin(each, touched) for each, touched in zip(whole, missing.T, strict=True)
        )
        assert not changed[np.ix_(~rows, ~columns)].any()
        # Each of the rows is described anew where rows are read, each of the columns where columns
        # are.
        assert changed[np.ix_(rows, ~columns)].any(axis=1).all() == ("II" in self.model.predicts)
        assert changed[np.ix_(~rows, columns)].any(axis=0).all() == ("III" in self.model.predicts)

    def test_a_row_without_usable_entries_is_named(self, fitted: Model) -> None:
        self.require_area("IV")
        nobody = ObservedMatrix.from_entries(
            ["stranger"],
            ["unheard of"],
            [3],
            Scale([1, 2, 3, 4, 5]),
            row_labels=["stranger", "empty"],
        )
        with pytest.warns(NothingObserved) as warned:
            more = fitted.extend(nobody)
        reads_all = isinstance(fitted.predictor_.encoder, SolvingEncoder)
        assert ("'empty'" if reads_all else "'stranger', 'empty'") in str(warned[0].message)
        assert np.all(np.isfinite(more.predict(["stranger", "empty"], ["column 1", "unheard of"])))
        assert more.areas(["stranger", "empty"], ["column 1", "unheard of"]).tolist() == [
            "II",
            "IV",
        ]

    def test_many_rows_are_folded_in_as_each_alone(self, folding: Model) -> None:
        histories = [HISTORY, (["column 3"], [2]), (["column 0", "column 24"], [5, 4])]
        columns = folding.column_labels_[[4, 0, 9]]
        many, alone = (
            folding.fold_in_many(histories),
            [folding.fold_in(*history) for history in histories],
        )
        np.testing.assert_allclose(
            many.predict(columns), [each.predict(columns) for each in alone], rtol=1e-5
        )
        best = many.recommend(n=4)
        np.testing.assert_allclose(
            best.values, [each.recommend(n=4).values for each in alone], rtol=1e-5
        )
        with pytest.raises(BadSetting, match="single"):
            many.explain("column 4")
        for wrong in ([], [HISTORY, ([], [])]):
            with pytest.raises(BadEntries, match="histor|one"):
                folding.fold_in_many(wrong)

    @pytest.mark.slow
    def test_eight_threads_are_answered_as_one_alone(self, folding: Model) -> None:
        others, known = folding.column_labels_, folding.row_labels_[:8]

        def ask(number: int) -> tuple[Any, ...]:
            some, values = (
                others[[number, number + 1, number + 9]],
                [1 + number % 5, 3, 5 - number % 5],
            )
            more = folding.extend(
                ObservedMatrix.from_entries([f"new {number}"] * 3, some, values, folding.scale_)
            )
            folded = folding.fold_in(some, values)
            return (
                folding.predict(["nobody"] * others.size, others, unknown="fallback"),
                folded.explain(others[4]).effects,
                more.complete(),
                *folding.recommend(known[number], n=5),
                *folded.recommend(n=5),
            )

        alone = [ask(number) for number in range(8)]
        # whichever thread is first makes its fallback
        folding._fitted = Fitted(folding.entries_, folding.predictor_)
        with ThreadPoolExecutor(8) as threads:
            together = list(threads.map(ask, [*range(8)] * 2))
        for number, found in enumerate(together):
            for one, other in zip(found, alone[number % 8], strict=True):
                np.testing.assert_array_equal(one, other)

    @pytest.mark.slow
    def test_rankings_by_relevance_survive_files_and_leave_values_alone(
        self, tmp_path: Path
    ) -> None:
        sparse = generate(80, 40, density=0.15, seed=3).matrix
        model, row = self.new().fit(sparse), sparse.row_labels[3]
        if not hasattr(model.settings, "presence"):
            with pytest.raises(BadSetting, match="presence"):
                model.recommend(row, rank_by="relevance")
            return
        assert model.chosen_["presence"] == "full" and model.chosen_["rank_by"] == "relevance"
        every: Any = {"n": 99, "include_observed": True}
        best = model.recommend(row, **every)
        for chances in (best.presence, best.liked):
            assert chances is not None and np.all((chances >= 0) & (chances <= 1))
        predicted = model.predict([row] * best.labels.size, best.labels)
        np.testing.assert_allclose(best.values, predicted, rtol=1e-6)
        for name in ("one.safetensors", "one.model"):
            model.save(tmp_path / name)
            found = load(tmp_path / name).recommend(row, **every)
            assert found.labels.tolist() == best.labels.tolist()
            np.testing.assert_array_equal(found.presence, best.presence)
        without = self.new(presence=None).fit(sparse)
        np.testing.assert_array_equal(
            without.predict([row] * best.labels.size, best.labels), predicted
        )
        assert (
            without.recommend(row).labels.tolist()
            == model.recommend(row, rank_by="value").labels.tolist()
        )

    def test_recommendations_carry_the_probabilities_that_the_model_has(
        self, fitted: Model, tmp_path: Path
    ) -> None:
        best = fitted.recommend("row 3", n=2)
        has_presence = fitted.rankers_.presence is not None
        assert (best.presence is not None) == (best.liked is not None) == has_presence
        assert (best.distribution is not None) == fitted.gives_distribution
        names = [
            name
            for name in ("presence", "liked", "distribution")
            if getattr(best, name) is not None
        ]
        if best.distribution is not None:
            expected = fitted.predict_distribution(["row 3"] * 2, best.labels)
            np.testing.assert_allclose(best.distribution, expected, rtol=1e-5, atol=1e-7)
        fitted.recommend_to(tmp_path / "top.csv", ["row 3"], n=2)
        header, *lines = [
            line.split(",") for line in (tmp_path / "top.csv").read_text().splitlines()
        ]
        assert header == ["row", "rank", "column", "prediction", *names]
        for place, line in enumerate(lines):
            for name, text in zip(names, line[4:], strict=True):
                assert list(map(float, text.split("|"))) == pytest.approx(
                    np.ravel(getattr(best, name)[place]).tolist()
                )
