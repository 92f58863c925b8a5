"""Smooth factors along positions: the chain against dense algebra, and models with times."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from deepmf import BayesianMF, Features, ObservedMatrix, OrdinalDMF
from deepmf.errors import BadFeatures
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures
from deepmf.models.loading import load
from deepmf.models.members import MemberInputs
from deepmf.models.positions.chain import Process, SmoothChain, Times
from deepmf.models.positions.member import PositionsMember, combine_errors
from deepmf.scoring.predictor import Link
from deepmf.training.holdout import HeldOut

Floats = npt.NDArray[np.float64]


def make_waves(n_series: int, at: Floats, *, noise: float, seed: int) -> Floats:
    """Series (series, times) that are mixtures of a few slow waves, each with a level of its own."""
    dice = np.random.default_rng(seed)
    waves = np.sin(at[:, None] / np.array([3.0, 7.0, 17.0]) + dice.uniform(0, 6, 3))
    table = 10.0 * dice.normal(size=(n_series, 1)) + dice.normal(size=(n_series, 3)) @ waves.T
    return table + noise * dice.normal(size=table.shape)


def place(at: Floats) -> Features:
    return Features.from_columns(np.arange(at.size), {"time": at}, kinds={"time": "position"})


def split(
    table: Floats, *, share: float, seed: int
) -> tuple[ObservedMatrix, npt.NDArray[np.bool_]]:
    """The matrix without a share of its cells, and where these are."""
    hidden = np.random.default_rng(seed).random(table.shape) < share
    rows, columns = np.nonzero(~hidden)
    return ObservedMatrix.from_entries(rows, columns, table[rows, columns]), hidden


def measure(model: BayesianMF | OrdinalDMF, table: Floats, hidden: npt.NDArray[np.bool_]) -> float:
    rows, columns = np.nonzero(hidden)
    errors = model.predict(rows, columns) - table[rows, columns]
    return float(np.sqrt(np.mean(np.square(errors))))


def test_factors_of_all_times_are_those_of_dense_algebra() -> None:
    dice = np.random.default_rng(0)
    positions = np.cumsum(dice.uniform(0.3, 3.0, 9))[dice.permutation(9)]
    features = dice.normal(size=(9, 2))
    observed = dice.random((4, 9)) < 0.6
    rows, columns = np.nonzero(observed)
    starts = np.concatenate([[0], np.cumsum(observed.sum(axis=1))])
    entries = AxisEntries(starts, columns, dice.normal(size=rows.size))
    chain = SmoothChain(entries, Times(positions, features), size=2, seed=0)
    process = Process(np.array([0.9, 0.4]), np.array([2.0, 0.7]), dice.normal(size=(2, 2)))
    chain._process, chain._series = process, dice.normal(size=(4, 3))
    alphas = dice.uniform(0.5, 3.0, 4)
    expected = chain._draw_times(alphas)

    order = np.argsort(positions)
    gaps = np.abs(positions[order][:, None] - positions[order])
    prior = features[order] @ process.weights
    precision = np.zeros((18, 18))  # time-major
    for factor in range(2):
        covariance = process.correlations[factor] ** gaps / process.precisions[factor]
        precision[factor::2, factor::2] = np.linalg.inv(covariance)
    sums = precision @ prior.ravel()
    for row, column, value in zip(rows, columns, entries.values, strict=True):
        place_of = 2 * int(np.flatnonzero(order == column)[0])
        vector = chain._series[row, :2]
        span = slice(place_of, place_of + 2)
        precision[span, span] += alphas[row] * np.outer(vector, vector)
        sums[span] += alphas[row] * vector * (value - chain._series[row, 2])
    np.testing.assert_allclose(expected.ravel(), np.linalg.solve(precision, sums), atol=1e-9)


def test_draws_of_times_vary_as_their_precision_says() -> None:
    positions = np.array([0.0, 1.0, 1.5, 4.0])
    entries = AxisEntries(np.array([0, 2]), np.array([0, 3]), np.array([1.0, -1.0]))
    chain = SmoothChain(entries, Times(positions, np.empty((4, 0))), size=1, seed=0)
    chain._process = Process(np.array([0.6]), np.array([1.5]), np.empty((0, 1)))
    chain._series = np.array([[2.0, 0.0]])
    draws = np.empty((4_000, 4))
    for draw in draws:
        chain._draw_times(np.array([0.8]))
        draw[:] = chain._times[:, 0]
    precision = np.linalg.inv(0.6 ** np.abs(positions[:, None] - positions) / 1.5)
    precision[[0, 3], [0, 3]] += 0.8 * 4.0
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(precision), atol=0.05)


@pytest.mark.slow
def test_times_tell_what_is_between_them_and_nothing_costs_nothing() -> None:
    dice = np.random.default_rng(3)
    at = np.cumsum(dice.choice([0.5, 1.0, 2.0], 150))
    table = make_waves(12, at, noise=0.1, seed=1)
    matrix, hidden = split(table, share=0.5, seed=2)
    model = OrdinalDMF(effort="quick", seed=0, device="cpu")
    with_times = measure(model.fit(matrix, column_features=place(at)), table, hidden)
    assert model.chosen_["members"]["positions"] > 0.7
    without = measure(OrdinalDMF(effort="quick", seed=0, device="cpu").fit(matrix), table, hidden)
    assert with_times < 0.2 and without > 2 * with_times
    shuffled = model.fit(matrix, column_features=place(dice.permutation(at)))
    assert measure(shuffled, table, hidden) < 1.02 * without


@pytest.fixture(scope="module")
def waves() -> tuple[OrdinalDMF, Floats, Floats]:
    """A model of waves whose last times and an outage of series 0 are missing, its table and times."""
    at = np.arange(120.0)
    table = make_waves(8, at, noise=0.02, seed=5)
    known = np.ones(table.shape, dtype=bool)
    known[0, 50:60] = False
    known[:, 100:] = False
    rows, columns = np.nonzero(known)
    matrix = ObservedMatrix.from_entries(rows, columns, table[rows, columns])
    model = OrdinalDMF(effort="quick", seed=0, device="cpu")
    return model.fit(matrix, column_features=place(at)), table, at


@pytest.mark.slow
def test_an_outage_is_filled_better_than_by_a_line(
    waves: tuple[OrdinalDMF, Floats, Floats],
) -> None:
    model, table, at = waves
    gap = np.arange(50, 60)
    line = np.interp(at[gap], at[[49, 60]], table[0, [49, 60]])
    errors = model.predict(np.zeros(10, dtype=int), gap) - table[0, gap]
    assert np.std(errors) < 0.5 * np.sqrt(np.mean(np.square(line - table[0, gap])))


@pytest.mark.slow
def test_new_times_continue_their_neighbours_and_end_at_the_mean(
    waves: tuple[OrdinalDMF, Floats, Floats],
) -> None:
    model, table, _ = waves
    new = Features.from_columns([130, 140], {"time": [30.5, 1e6]}, kinds={"time": "position"})
    more = model.extend(None, column_features=new)
    half = more.predict(np.arange(8), [130] * 8)
    assert np.abs(half - table[:, 30:32].mean(axis=1)).max() < 0.3
    means = table[:, :100].mean(axis=1)
    assert np.abs(more.predict(np.arange(8), [140] * 8) - means).max() < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OrdinalDMF, BayesianMF])
def test_intervals_of_new_times_are_wider_the_farther_these_are(
    kind: type[OrdinalDMF | BayesianMF], tmp_path: Path
) -> None:
    at = np.arange(120.0)
    table = make_waves(8, at, noise=0.02, seed=5)
    matrix = ObservedMatrix.from_array(table[:, :100])
    model = kind(effort="quick", seed=0, device="cpu").fit(matrix, column_features=place(at[:100]))
    new = Features.from_columns(
        [201, 202, 203, 204], {"time": [30.5, 105.0, 130.0, 400.0]}, kinds={"time": "position"}
    )
    more = model.extend(None, column_features=new)
    more.save(tmp_path / "model")
    again = load(tmp_path / "model")
    widths = []
    for label in (30, 201, 202, 203, 204):
        low, high = again.predict_interval(np.arange(8), [label] * 8)
        widths.append(float(np.mean(high - low)))
    assert np.all(np.diff(widths) > 0) and widths[-1] > 1.3 * widths[0]


@pytest.mark.slow
def test_what_is_stored_predicts_the_same_and_a_known_series_folds_in(
    waves: tuple[OrdinalDMF, Floats, Floats], tmp_path: Path
) -> None:
    model, table, _ = waves
    path = tmp_path / "model"
    model.save(path)
    again = load(path)
    rows, columns = np.repeat(np.arange(8), 100), np.tile(np.arange(100), 8)
    assert np.array_equal(again.predict(rows, columns), model.predict(rows, columns))
    guest = again.fold_in(np.arange(100), table[3, :100])
    expected = model.predict(np.full(100, 3), np.arange(100))
    np.testing.assert_allclose(guest.predict(np.arange(100)), expected, atol=1e-3)


@pytest.mark.slow
def test_samples_with_positions_are_better_and_intervals_hold_what_they_say(tmp_path: Path) -> None:
    at = np.arange(150.0)
    table = make_waves(12, at, noise=0.1, seed=1)
    matrix, hidden = split(table, share=0.5, seed=2)
    model = BayesianMF(effort="quick", seed=0, device="cpu").fit(matrix, column_features=place(at))
    assert model.chosen_["members"]["positions"] > 0.7
    assert measure(model, table, hidden) < 0.2
    rows, columns = np.nonzero(hidden)
    interval = model.predict_interval(rows, columns, coverage=0.9)
    is_inside = (interval[0] <= table[hidden]) & (table[hidden] <= interval[1])
    assert 0.8 < is_inside.mean() < 0.98
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(rows, columns)
    assert np.array_equal(again, model.predict(rows, columns))


def test_without_positions_there_is_no_member() -> None:
    matrix, _ = split(make_waves(4, np.arange(30.0), noise=0.1, seed=0), share=0.2, seed=0)
    numbers = Features.from_columns(np.arange(30), {"time": np.arange(30.0)})
    features = AxisFeatures.of(matrix.columns, numbers)
    seen, held_out = HeldOut.split(matrix, seed=0)
    store = EntryStore.of(seen, None, features)
    assert PositionsMember(seed=0).fit(MemberInputs(store, store, held_out, None)) is None  # type: ignore[arg-type]


def test_dates_bring_the_cycles_that_they_span() -> None:
    start = datetime(2024, 5, 6, 7)
    hours = [start + timedelta(hours=k) for k in range(24 * 21)]
    features = Features.from_columns(range(len(hours)), {"at": hours}, kinds={"at": "position"})
    encoding = features.learn_encoding()
    (column,) = encoding.columns
    assert column.cycles == ("hour", "weekday")  # type: ignore[attr-defined]
    (item,) = encoding.items(features.encode(encoding).take(np.array([30])))
    assert item.text == "2024-05-07T13:00:00"
    table = features.encode(encoding).to_sparse().toarray()[:, 1 + column.first_cycle :]  # type: ignore[attr-defined]
    assert np.array_equal(table[:, :24].argmax(axis=1), (7 + np.arange(504)) % 24)
    assert np.array_equal(table[:, 24:].argmax(axis=1), (7 + np.arange(504)) // 24 % 7)


@pytest.mark.parametrize(
    ("positions", "word"),
    [
        ([1.0, None, 3.0], "missing"),
        ([2.0, 2.0, 2.0], "equal"),
        ([1.0, float("inf"), 3.0], "infinite"),
    ],
)
def test_positions_that_say_nothing_are_refused(positions: list[float | None], word: str) -> None:
    features = Features.from_columns([*"abc"], {"time": positions}, kinds={"time": "position"})
    with pytest.raises(BadFeatures, match=word):
        features.learn_encoding()


def test_numbers_are_no_positions_of_a_model_of_dates() -> None:
    days = Features.from_columns(
        ["a", "b"], {"at": ["2024-01-01", "2024-03-01"]}, kinds={"at": "position"}
    )
    later = Features.from_columns(["c"], {"at": [3.0]}, kinds={"at": "position"})
    with pytest.raises(BadFeatures, match="dates"):
        later.encode(days.learn_encoding())


def test_a_link_with_a_support_expects_what_the_member_says() -> None:
    support = np.array([1.0, 4.0, 5.0, 50.0])
    link = Link(3.0, 0.0, (-6.0, 2.0, 30.0), support=tuple(support.tolist()))
    values = np.linspace(1.01, 49.9, 200)
    above = expit(link.locate(values)[:, None].astype(np.float64) - np.array(link.cutpoints))
    np.testing.assert_allclose(support[0] + above @ np.diff(support), values, atol=0.05)


def test_gaps_do_not_outweigh_single_cells_where_chains_are_compared() -> None:
    are_in_gaps = np.array([True, True, False, False])
    few_factors = combine_errors(np.array([2.0, -2.0, 0.4, -0.4]), are_in_gaps)
    many_factors = combine_errors(np.array([2.1, -2.1, 0.2, -0.2]), are_in_gaps)
    assert many_factors < few_factors
    assert combine_errors(np.array([3.0, 1.0]), np.zeros(2, dtype=bool)) == 5.0
