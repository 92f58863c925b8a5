"""Calibration on asked cells: predictions for any cell, where rows choose what they like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import ALS, BayesianMF, Means, ObservedMatrix, OrdinalDMF, Scale, load
from deepmf.errors import BadEntries, BadSetting
from deepmf.metrics import rmse_error
from deepmf.models.paper.low_rank import OptSpace
from deepmf.scoring.asked import Line

LEVELS = Scale([1, 2, 3, 4, 5])


def draw_chosen(n_rows: int = 240, n_columns: int = 120, *, signal: float = 1.0, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return chosen entries (24 a row, mostly of high values), a tenth of 2,000 random cells, and the others."""
    numbers = np.random.default_rng(seed)
    rows, columns = numbers.normal(size=(n_rows, 3)), numbers.normal(size=(n_columns, 3))
    taste = 0.5 * rows @ columns.T + 0.4 * numbers.normal(size=(n_rows, 1)) + 0.4 * numbers.normal(size=(1, n_columns))
    values = np.clip(np.round(1.8 + signal * taste + numbers.normal(size=taste.shape)), 1, 5)
    chosen = np.argsort(-1.2 * values - numbers.gumbel(size=values.shape), axis=1)[:, :24]
    train = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(train, chosen, True, axis=1)
    cells = numbers.permutation(np.flatnonzero(~train))[:2000]

    def pick(flat: Any) -> ObservedMatrix:
        at = np.unravel_index(flat, values.shape)
        return ObservedMatrix.from_entries(*at, values[at], LEVELS)

    return pick(np.flatnonzero(train)), pick(cells[:200]), pick(cells[200:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [Means(), ALS(seed=0), BayesianMF(seed=0, epochs=60, burn_in=30), OrdinalDMF(seed=0, effort="quick")],
    ids=lambda model: type(model).__name__,
)
def test_predictions_for_any_cell_beat_the_constant_and_intervals_hold(model: Any, tmp_path: Path) -> None:
    train, asked, test = draw_chosen()
    rows, columns, values = test.entries()
    learned = rmse_error(model.fit(train, progress=False).predict(rows, columns), values)
    model.fit(train, asked=asked, progress=False)
    constant = rmse_error(np.full(values.size, asked.values.mean()), values)
    assert rmse_error(model.predict(rows, columns), values) < constant < learned
    assert model.asked_["cells"] == 200 and model.asked_["slope"] < 1
    assert model.entries_.n_entries == train.n_entries + 200  # they count as entries
    assert abs(float(np.mean(model.predict(rows, columns))) - values.mean()) < 0.12
    if model.gives_distribution:
        lower, upper = model.predict_interval(rows, columns)
        assert 0.87 < np.mean((lower <= values) & (values <= upper)) < 0.93
        shares = model.predict_distribution(rows, columns).mean(axis=0)
        assert np.abs(shares - [np.mean(values == level) for level in range(1, 6)]).max() < 0.06
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.asked_ == model.asked_
    np.testing.assert_array_equal(again.complete(), model.complete())
    if model.gives_distribution:
        pair = rows[:9], columns[:9]
        np.testing.assert_array_equal(again.predict_interval(*pair), model.predict_interval(*pair))


def test_a_model_that_knows_nothing_about_random_cells_becomes_their_mean() -> None:
    train, asked, test = draw_chosen(signal=0.0)
    rows, columns, values = test.entries()
    model = ALS(seed=0, presence=None).fit(train, asked=asked)
    constant = rmse_error(np.full(values.size, asked.values.mean()), values)
    assert rmse_error(model.predict(rows, columns), values) < 1.01 * constant


@pytest.mark.slow
def test_the_calibration_stays_when_the_model_changes_and_relevance_keeps_its_order() -> None:
    train, asked, _ = draw_chosen()
    plain, model = ALS(seed=0).fit(train).extend(asked), ALS(seed=0).fit(train, asked=asked)
    line = model._fitted.asked.line  # type: ignore[union-attr]
    history = [3, 5, 8], [4, 2, 3]
    expected = np.clip(line.apply(plain.fold_in(*history).predict(range(40))), 1, 5)
    np.testing.assert_allclose(
        model.with_names(columns={0: "Alien"}).fold_in(*history).predict(range(40)), expected, rtol=1e-5
    )
    for rank_by in ("relevance", "value"):
        found, learned = (each.fold_in(*history).recommend(8, rank_by=rank_by) for each in (model, plain))
        assert found.labels.tolist() == learned.labels.tolist()
        assert found.values.mean() < learned.values.mean()
    moved = [each.predict([10**6], [3], unknown="fallback")[0] for each in (model, plain)]
    assert moved[0] < moved[1] - 0.5
    left = model.forget(rows=[0])
    np.testing.assert_allclose(left.predict([1], [2]), line.apply(plain.forget(rows=[0]).predict([1], [2])), rtol=1e-5)


@pytest.mark.slow
def test_new_rows_are_added_where_the_model_can_predict_for_them() -> None:
    train, asked, _ = draw_chosen()
    rows, columns, values = asked.entries()
    more = ObservedMatrix.from_entries([*rows, 999, 999], [*columns, 1, 2], [*values, 1, 5], LEVELS)
    assert ALS(seed=0, presence=None).fit(train, asked=more).entries_.n_entries == train.n_entries + 202
    with pytest.warns(UserWarning, match="2 of 202 asked cells"):
        model = OptSpace(seed=0).fit(train, asked=more)
    assert model.asked_ is not None and model.asked_["cells"] == 200


def test_chosen_cells_and_other_mistakes_are_refused() -> None:
    train, asked, _ = draw_chosen()
    model = Means(presence=None)
    with pytest.raises(BadEntries, match="training or validation"):
        model.fit(train, asked=train)
    with pytest.raises(BadEntries, match="training or validation"):
        model.fit(train, asked, asked=asked)
    with pytest.raises(BadEntries, match="scale"):
        model.fit(train, asked=ObservedMatrix.from_entries([0, 1], [0, 1], [7, 8]))
    with pytest.raises(BadSetting, match="interactions"):
        ALS().fit(ObservedMatrix.from_interactions([0, 1], [0, 1]), asked=asked)


def test_a_handful_of_cells_moves_little_and_many_fit_the_line() -> None:
    predicted = np.linspace(1, 5, 4000)
    line = Line.fit(predicted, 0.4 * predicted + 0.3)
    np.testing.assert_allclose(line.apply(predicted), 0.4 * predicted + 0.3, atol=5e-3)
    few = Line.fit(np.array([3.0, 3.5]), np.array([1.0, 1.5]))
    assert few.slope == 1.0 and few.level == pytest.approx(-2 * 2 / 7)
    assert Line.fit(predicted, 6 - predicted).slope == 0.0  # the order of columns never turns round


@pytest.mark.slow
def test_rows_that_choose_what_they_like_are_told_unless_cells_were_asked() -> None:
    train, asked, _ = draw_chosen()
    assert "too high" in (ALS(seed=0).fit(train).describe_choice() or "")
    rows, columns, values = train.entries()
    upside_down = ObservedMatrix.from_entries(rows, columns, 6 - values, LEVELS)
    assert "too low" in (ALS(seed=0).fit(upside_down).describe_choice() or "")
    assert ALS(seed=0).fit(train, asked=asked).describe_choice() is None
    shuffled = np.random.default_rng(0).permutation(values)
    assert ALS(seed=0).fit(ObservedMatrix.from_entries(rows, columns, shuffled, LEVELS)).describe_choice() is None
    assert ALS(seed=0, presence=None).fit(train).describe_choice() is None
