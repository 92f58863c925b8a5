"""The calibration on asked cells: lines, curves and effects whose answer is known, and errors on
cells that nothing was fitted to."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import ALS, Means, ObservedMatrix, Scale, load
from deepmf.matrix.axis_entries import PlacedEntries
from deepmf.scoring.asked import Calibration, Line, Odds, bend, move
from deepmf.scoring.distribution import PredictiveDistribution
from deepmf.scoring.effects import Effects, assign_folds
from deepmf.scoring.encoders import NoEncoder
from deepmf.scoring.factors import Factors
from deepmf.scoring.latents import Latents
from deepmf.scoring.learning import AskedCells
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout

LEVELS = Scale([1, 2, 3, 4, 5])


def test_few_cells_shrink_the_slope_by_their_noise() -> None:
    # With five cells as predicted, the slope is 13/16; the squares of the residuals are 434/256,
    # with one degree of freedom, and those of the slope 169/48.
    line = Line.fit(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    assert line.centre == 2.0 and line.level == 0.0
    assert line.slope == pytest.approx(13 / 16 * (1 - (434 / 256) / (169 / 48)))


@pytest.mark.parametrize("slope", [0.3, 1.0])
def test_a_curve_goes_through_its_knots_and_on_beside_the_line(slope: float) -> None:
    line, knots = Line(3.0, -0.5, slope), np.array([[2.0, 3.0, 4.0], [1.5, 1.7, 2.9]])
    np.testing.assert_allclose(move(line, knots, knots[0]), knots[1])
    assert move(line, knots, np.array([3.5]))[0] == pytest.approx((1.7 + 2.9) / 2)
    np.testing.assert_allclose(
        move(line, knots, np.array([0.0, 1.0, 5.0, 6.0])),
        [1.5 - 2 * slope, 1.5 - slope, 2.9 + slope, 2.9 + 2 * slope],
    )
    np.testing.assert_array_equal(move(line, None, knots[0]), line.apply(knots[0]))


def test_a_curve_follows_the_means_of_distributions_unless_it_falls() -> None:
    predicted = np.linspace(1, 5, 200)
    line, cubes = Line(3.0, 0.0, 1.0), (predicted - 3) ** 3
    knots = bend(line, predicted, cubes)
    assert knots is not None
    np.testing.assert_allclose(knots[1], (knots[0] - 3) ** 3, atol=1e-9)
    assert bend(line, predicted, -cubes) is None
    assert bend(line, predicted[:49], cubes[:49]) is None
    assert bend(line, np.ones(200), cubes) is None


def test_every_fold_has_a_fifth_of_the_cells() -> None:
    assert np.bincount(assign_folds(100)).tolist() == [20] * 5
    assert sorted(assign_folds(3).tolist()) == [0, 1, 2]


def test_effects_of_unknown_rows_and_columns_are_zero() -> None:
    effects = Effects(np.array([1.0, 2.0]), np.array([10.0]))
    found = effects.evaluate(np.array([0, 1, -1, 2]), np.array([0, -1, 0, 1]), mean=0.5)
    assert found.tolist() == [11.5, 2.5, 10.5, 0.5]


def test_a_row_has_the_effect_that_its_columns_leave() -> None:
    pairs = np.array([[0, 0, 1], [0, 1, 0]])
    effects = Effects.of(np.array([3.0, 1.0, 1.0]), pairs, (0.0, 0.0), (2, 2))
    assert effects.columns.tolist() == [2.0, 1.0]
    assert effects.rows.tolist() == [0.5, -1.0]
    shrunk = Effects.of(np.array([3.0, 1.0, 1.0]), pairs, (math.inf, 2.0), (2, 2))
    assert shrunk.columns.tolist() == [4 / (2 + 2), 1 / (1 + 2)] and not shrunk.rows.any()


def test_noise_has_no_effects_of_rows_and_columns() -> None:
    chosen = []
    for seed in range(12):
        dice = np.random.default_rng(seed)
        cells = PlacedEntries(dice.integers(0, 15, 150), dice.integers(0, 15, 150), np.zeros(150))
        effects, _ = Effects.fit(dice.normal(size=150), cells, assign_folds(150), (15, 15))
        chosen.append(effects)
    assert sum(effects is not None for effects in chosen) <= 1


def say_nothing(n_pairs: int) -> PredictiveDistribution:
    """Return distributions over two values that are as likely."""
    return PredictiveDistribution(np.arange(2.0), np.array([0.5]), np.full((n_pairs, 1), 0.5))


def test_odds_are_those_of_values_without_their_effects() -> None:
    effects = np.repeat([0.0, -0.8, 0.4], [10, 10, 20])
    plain, moved = (
        Odds.fit(
            say_nothing(40), np.repeat([0.0, 1.0], [n_zeros, 40 - n_zeros]), amounts, of_levels=True
        )
        for n_zeros, amounts in ((10, np.zeros(40)), (20, effects))
    )
    np.testing.assert_allclose(moved.offsets, plain.offsets)
    assert plain.offsets[0] > 0.5


def test_five_values_move_odds_half_as_far_as_the_prior_lets_them() -> None:
    """The prior pulls by five fair coins: at odds x by 5/4 x, five values above by 5 - 5 p."""
    offset = Odds.fit(say_nothing(5), np.ones(5), np.zeros(5), of_levels=True).offsets[0]
    assert 5 / 4 * offset == pytest.approx(5 / (1 + np.exp(offset)), rel=1e-4)


def draw_noise(n_asked: int, seed: int) -> tuple[ObservedMatrix, ObservedMatrix, ObservedMatrix]:
    """Return high entries, asked cells and others, whose values have nothing to do with a model."""
    numbers = np.random.default_rng(seed)
    rows, columns = np.divmod(numbers.permutation(40 * 60), 60)
    values = numbers.integers(1, 6, rows.size).astype(float)
    values[:900] = np.maximum(values[:900], 3.0)
    parts = np.split(np.arange(rows.size), [900, 900 + n_asked])
    train, asked, others = (
        ObservedMatrix.from_entries(rows[part], columns[part], values[part], LEVELS)
        for part in parts
    )
    return train, asked, others


def predict_threes(number: int) -> Any:
    """Return a predictor, and means, of 3 for each cell of a fold."""
    threes, ones = Latents(np.full((2, 1), 3.0, np.float32)), Latents(np.ones((2, 1), np.float32))
    predictor = Predictor.of(Factors(threes, ones, NoEncoder()), Readout(LEVELS))
    return predictor, lambda rows, columns: np.full(rows.size, 3.0)


def test_errors_on_asked_cells_are_those_of_a_calibration_on_the_others() -> None:
    # A cell of 1 and one of 5. The other cell moves a prediction of 3 by a sixth of its residual,
    # away from the value; both together would not move it.
    at = np.arange(2)
    cells = PlacedEntries(at, at, np.array([1.0, 5.0]))
    found = Calibration.fit(AskedCells(cells, at, predict_threes), (2, 2))
    assert found.line == Line(3.0, 0.0, 1.0)
    assert found.errors == pytest.approx((2.0, 2.0 + 2.0 / 6.0, 4.0))


def test_a_single_cell_has_no_others_to_be_calibrated_by() -> None:
    train, asked, _ = draw_noise(1, 0)
    model = Means(presence=None).fit(train, asked=asked)
    assert model.asked_ is not None
    assert model.asked_["rmse"] == model.asked_["rmse_as_learned"] > 0


@pytest.fixture(scope="module")
def fitted() -> Means:
    """A model with effects of rows and columns on asked cells."""
    train, asked, _ = draw_noise(200, 0)
    model = Means(presence=None).fit(train, asked=asked)
    assert model._fitted is not None
    numbers = np.random.default_rng(1)
    effects = Effects(numbers.uniform(0.5, 1, train.shape[0]), numbers.uniform(0.5, 1, 60))
    part: Any = model._fitted.parts["asked"]
    parts = model._fitted.parts | {"asked": replace(part, effects=effects)}
    model._fitted = replace(model._fitted, parts=parts)
    return model


def test_effects_of_forgotten_rows_and_columns_are_gone_also_from_the_file(
    fitted: Means, tmp_path: Path
) -> None:
    part: Any = fitted._fitted.parts["asked"]  # type: ignore[union-attr]
    row, column = fitted.row_labels_[3], fitted.column_labels_[20]
    left = fitted.forget(rows=[row], columns=[column])
    left.save(tmp_path / "model")
    for model in (left, load(tmp_path / "model")):
        effects = model._fitted.parts["asked"].effects
        np.testing.assert_array_equal(
            effects.rows, np.where(np.arange(40) == 3, 0, part.effects.rows)
        )
        np.testing.assert_array_equal(
            effects.columns, np.where(np.arange(60) == 20, 0, part.effects.columns)
        )
        # as any row and column of which nothing is known
        unknown = model.scores([10**6], [10**6], unknown="fallback")
        np.testing.assert_allclose(model.scores([row], [column]), unknown, atol=1e-6)
    assert part.effects.rows[3] >= 0.5 and part.effects.columns[20] >= 0.5


def test_effects_of_others_stay_when_an_added_row_is_forgotten(fitted: Means) -> None:
    new = ObservedMatrix.from_entries([999], fitted.column_labels_[:1], [3.0], LEVELS)
    left = fitted.extend(new).forget(rows=[999])
    part: Any = left._fitted.parts["asked"]  # type: ignore[union-attr]
    assert part.effects.rows.min() >= 0.5 and part.effects.columns.min() >= 0.5


def test_a_model_of_values_alone_is_calibrated_by_the_line() -> None:
    train, asked, _ = draw_noise(60, 0)
    model = ALS(seed=0, presence=None).fit(train, asked=asked)
    part: Any = model._fitted.parts["asked"]  # type: ignore[union-attr]
    assert part.odds is None and part.knots is None
    by_line = model._with_state(
        replace(model._fitted, parts={"asked": replace(part, effects=None)})
    )
    plain = model._with_state(replace(model._fitted, parts={}))
    pairs = asked.entries()[:2]
    expected = LEVELS.clip(part.line.apply(plain.scores(*pairs)))
    np.testing.assert_allclose(by_line.scores(*pairs), expected, rtol=1e-5)
