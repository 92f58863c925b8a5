"""Calibration on asked cells: predictions for any cell, where rows choose what they like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import ALS, BayesianMF, Means, ObservedMatrix, OrdinalDMF, Scale, load
from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.extras import DAY
from deepmf.metrics import rmse_error
from deepmf.models.paper.low_rank import OptSpace
from deepmf.recommend.presence import Recency
from deepmf.scoring.asked import Line
from deepmf.scoring.effects import Effects

LEVELS = Scale([1, 2, 3, 4, 5])


def draw_chosen(
    n_rows: int = 240,
    n_columns: int = 120,
    *,
    level: float = 1.8,
    signal: float = 1.0,
    strength: float = 1.2,
    unevenness: float = 0.0,
    n_asked: int = 200,
    seed: int = 0,
) -> tuple[Any, Any, Any]:
    """Return chosen entries (24 a row, mostly of high values), asked ones of random cells, and
    1,800 others."""
    numbers = np.random.default_rng(seed)
    rows, columns = numbers.normal(size=(n_rows, 3)), numbers.normal(size=(n_columns, 3))
    taste = (
        0.5 * rows @ columns.T
        + 0.4 * numbers.normal(size=(n_rows, 1))
        + 0.4 * numbers.normal(size=(1, n_columns))
    )
    values = np.clip(
        np.round(level + signal * taste + max(signal, 1.0) * numbers.normal(size=taste.shape)), 1, 5
    )
    gumbel, uneven = (
        numbers.gumbel(size=values.shape),
        np.exp(unevenness * numbers.normal(size=n_columns)),
    )
    chosen = np.argsort(-strength * uneven * values - gumbel, axis=1)[:, :24]
    train = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(train, chosen, True, axis=1)
    cells = numbers.permutation(np.flatnonzero(~train & train.any(axis=0)))[: n_asked + 1800]

    def pick(flat: Any) -> ObservedMatrix:
        at = np.unravel_index(flat, values.shape)
        return ObservedMatrix.from_entries(*at, values[at], LEVELS)

    return pick(np.flatnonzero(train)), pick(cells[:n_asked]), pick(cells[n_asked:])


# Rows that rate what they like, and rows that rate nearly only what they love: entries of 4.4,
# random cells of 1.6.
LIKED, LOVED = {}, {"level": 0.8, "signal": 2.0, "strength": 2.0, "n_columns": 240, "n_asked": 300}


@pytest.mark.slow
@pytest.mark.parametrize("choice", [LIKED, LOVED], ids=["liked", "loved"])
@pytest.mark.parametrize(
    "model",
    [
        Means(),
        ALS(seed=0),
        BayesianMF(seed=0, epochs=40, burn_in=20, presence=None),
        OrdinalDMF(
            seed=0,
            epochs=20,
            hidden_sizes=(32,),
            latent_size=8,
            networks=1,
            views=4,
            landmarks=16,
            linear_iterations=40,
            presence=None,
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_predictions_for_any_cell_beat_the_constant_and_intervals_hold(
    model: Any, choice: dict[str, Any], tmp_path: Path
) -> None:
    train, asked, test = draw_chosen(**choice)
    rows, columns, values = test.entries()
    learned = rmse_error(model.fit(train, progress=False).predict(rows, columns), values)
    model.fit(train, asked=asked, progress=False)
    constant = rmse_error(np.full(values.size, asked.values.mean()), values)
    assert rmse_error(model.predict(rows, columns), values) < constant < learned
    assert model.asked_["cells"] == asked.n_entries and model.asked_["slope"] < 1
    assert model.entries_.n_entries == train.n_entries + asked.n_entries  # they count as entries
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
def test_many_asked_cells_tell_effects_of_columns_and_count_as_entries_without_moving_levels(
    tmp_path: Path,
) -> None:
    train, asked, test = draw_chosen(unevenness=0.8, n_asked=3000)
    rows, columns, values = test.entries()
    model = ALS(seed=0, presence=None).fit(train, asked=asked)
    assert model.asked_ is not None and model.asked_["column_effects"] > 0.1
    effects = model._fitted.parts["asked"].effects  # type: ignore
    places = model.entries_.rows.positions(rows), model.entries_.columns.positions(columns)
    plain = np.clip(model.predict(rows, columns) - effects.evaluate(*places), 1, 5)
    constant = rmse_error(np.full(values.size, asked.values.mean()), values)
    found = rmse_error(model.predict(rows, columns), values)
    assert found < 0.98 * rmse_error(plain, values) and found < 0.95 * constant
    assert abs(float(np.mean(model.predict(rows, columns))) - values.mean()) < 0.08
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(rows, columns), model.predict(rows, columns))
    np.testing.assert_allclose(again.complete()[places], model.predict(rows, columns), rtol=1e-6)
    listed = model.recommend(7, n=5, rank_by="value")
    np.testing.assert_allclose(listed.values, model.predict([7] * 5, listed.labels), rtol=1e-6)
    labels = model.entries_.columns[np.arange(40)]
    guest = model.fold_in([3, 5], [4, 2])  # a row of its own has the effects of columns alone
    moved = guest.predict(labels) - model._with_state(replace_effects(model)).fold_in(
        [3, 5], [4, 2]
    ).predict(labels)
    np.testing.assert_allclose(moved, effects.columns[:40], atol=1e-6)


def replace_effects(model: Any, effects: Effects | None = None) -> Any:
    """Return the state of a model with other effects, or without any."""
    parts = model._fitted.parts
    asked = replace(parts["asked"], effects=effects)
    return replace(model._fitted, parts=parts | {"asked": asked})


@pytest.mark.parametrize("recency", [None, Recency(30.0 * DAY, 0)])
def test_rankings_by_value_are_those_of_predictions_with_effects(recency: Recency | None) -> None:
    train, asked, _ = draw_chosen(n_rows=40, n_columns=60, n_asked=60)
    model = Means(presence="full").fit(train, asked=asked)
    effects = Effects(
        np.zeros(train.shape[0]), np.random.default_rng(0).normal(size=train.shape[1])
    )
    fitted = replace_effects(model, effects)
    more = {} if recency is None else {"recency": recency}
    model._fitted = replace(fitted, parts=fitted.parts | more)
    labels = model.column_labels_
    values = model.predict([7] * len(labels), labels)
    for at in (None,) if recency is None else (None, 10**9):
        listed = model.recommend(7, n=5, rank_by="value", at=at, include_observed=True)
        np.testing.assert_allclose(listed.values, np.sort(values)[::-1][:5], rtol=1e-6)
        np.testing.assert_allclose(listed.values, model.predict([7] * 5, listed.labels), rtol=1e-6)


@pytest.mark.slow
def test_the_calibration_stays_when_the_model_changes_and_relevance_keeps_its_order() -> None:
    train, asked, _ = draw_chosen()
    plain, model = ALS(seed=0).fit(train).extend(asked), ALS(seed=0).fit(train, asked=asked)
    line = model._fitted.parts["asked"].line  # type: ignore
    history = [3, 5, 8], [4, 2, 3]
    expected = np.clip(line.apply(plain.fold_in(*history).predict(range(40))), 1, 5)
    np.testing.assert_allclose(
        model.with_names(columns={0: "Alien"}).fold_in(*history).predict(range(40)),
        expected,
        rtol=1e-5,
    )
    for rank_by in ("relevance", "value"):
        found, learned = (
            each.fold_in(*history).recommend(8, rank_by=rank_by) for each in (model, plain)
        )
        assert found.labels.tolist() == learned.labels.tolist()
        assert found.values.mean() < learned.values.mean()
    moved = [each.predict([10**6], [3], unknown="fallback")[0] for each in (model, plain)]
    assert moved[0] < moved[1] - 0.5
    left = model.forget(rows=[0])
    np.testing.assert_allclose(
        left.predict([1], [2]), line.apply(plain.forget(rows=[0]).predict([1], [2])), rtol=1e-5
    )


@pytest.mark.slow
def test_new_rows_are_added_where_the_model_can_predict_for_them() -> None:
    train, asked, _ = draw_chosen()
    rows, columns, values = asked.entries()
    more = ObservedMatrix.from_entries([*rows, 999, 999], [*columns, 1, 2], [*values, 1, 5], LEVELS)
    assert (
        ALS(seed=0, presence=None).fit(train, asked=more).entries_.n_entries
        == train.n_entries + 202
    )
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
    assert (
        ALS(seed=0)
        .fit(ObservedMatrix.from_entries(rows, columns, shuffled, LEVELS))
        .describe_choice()
        is None
    )
    assert ALS(seed=0, presence=None).fit(train).describe_choice() is None
