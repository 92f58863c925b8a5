"""Tables in time: outages, single cells, and times that say nothing."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from deepmf.errors import BadEntries, BadFeatures, BadSetting, DeepMFError
from deepmf.sklearn.imputer import DMFImputer

Array = npt.NDArray[np.float64]

N_ROWS, N_COLUMNS, OUTAGE = 240, 8, slice(60, 70)
TIMES = np.arange(float(N_ROWS))


def make_smooth(seed: int = 0) -> tuple[Array, Array]:
    """Waves (rows, columns) of a few causes, and the table without an outage and some cells."""
    random = np.random.default_rng(seed)
    waves = np.sin(TIMES[:, None] / np.array([4.0, 9.0, 23.0]) + random.uniform(0, 6, 3))
    table = waves @ random.normal(size=(3, N_COLUMNS))
    table += 0.1 * random.normal(size=table.shape)
    holes = np.where(random.random(table.shape) < 0.1, np.nan, table)
    holes[OUTAGE] = np.nan
    return table, holes


def complete(table: Any, **parameters: Any) -> Any:
    return DMFImputer(random_state=0, **parameters).fit_transform(table)


def find_errors(completed: Array, table: Array, holes: Array) -> tuple[float, float]:
    """Errors of the outage, and of other missing cells, in standard deviations."""
    squares = np.square((completed - table) / table.std(axis=0))
    is_out = np.zeros(table.shape, dtype=bool)
    is_out[OUTAGE] = True
    cells = np.isnan(holes) & ~is_out
    return float(np.sqrt(squares[is_out].mean())), float(np.sqrt(squares[cells].mean()))


@pytest.mark.slow
def test_rows_in_time_read_those_around() -> None:
    table, holes = make_smooth()
    outage, cells = find_errors(complete(holes, order=TIMES), table, holes)
    plain_outage, plain_cells = find_errors(complete(holes), table, holes)
    line = np.empty((OUTAGE.stop - OUTAGE.start, table.shape[1]))
    for column, values in enumerate(holes.T):
        known = ~np.isnan(values)
        line[:, column] = np.interp(TIMES[OUTAGE], TIMES[known], values[known])
    errors = (line - table[OUTAGE]) / table.std(axis=0)
    assert outage < 1.05 * np.sqrt(np.mean(np.square(errors)))
    assert outage < 0.7 * plain_outage and cells < 0.9 * plain_cells


@pytest.mark.slow
def test_an_index_of_dates_is_an_order_and_none_ignores_it() -> None:
    holes = make_smooth()[1][:120]
    names = [f"sensor {number}" for number in range(N_COLUMNS)]
    dates = pd.date_range("2024-03-01", periods=120, freq="h", tz="Europe/Vienna")
    frame = pd.DataFrame(holes, columns=names, index=dates)
    by_index = complete(frame)
    by_order = complete(frame.reset_index(drop=True), order=dates.tz_localize(None))
    np.testing.assert_allclose(by_index.to_numpy(), by_order.to_numpy())
    plain = complete(frame.reset_index(drop=True))
    np.testing.assert_array_equal(complete(frame, order=None).to_numpy(), plain.to_numpy())
    assert not np.allclose(by_index.to_numpy(), plain.to_numpy())
    undated = frame.set_index(pd.DatetimeIndex([*dates[:-1], pd.NaT]))
    np.testing.assert_array_equal(complete(undated).to_numpy(), plain.to_numpy())


@pytest.mark.slow
def test_shuffled_times_cost_nothing() -> None:
    table, holes = make_smooth()
    shuffled = np.random.default_rng(1).permutation(TIMES)
    by_shuffled = find_errors(complete(holes, order=shuffled), table, holes)
    plain = find_errors(complete(holes), table, holes)
    assert np.all(np.array(by_shuffled) < 1.03 * np.array(plain))


@pytest.mark.slow
def test_new_rows_are_completed_at_their_times_and_outages_are_less_certain() -> None:
    table, holes = make_smooth()
    imputer = DMFImputer(order=TIMES, random_state=0).fit(holes)
    assert imputer.chosen_model_ == "positions"
    half = np.full((1, N_COLUMNS), np.nan)
    (between,) = imputer.transform(half, order=[30.5])
    assert np.abs(between - table[30:32].mean(axis=0)).max() < 0.4
    _, interval = imputer.transform(holes, return_interval=True)
    widths = interval[1] - interval[0]
    assert widths[OUTAGE].mean() > 1.5 * widths[np.isnan(holes) & (widths > 0)].min()
    np.testing.assert_allclose(imputer.transform(half, order=None)[0], np.nanmean(holes, axis=0))
    with pytest.raises(BadEntries, match="240 rows"):
        imputer.transform(half)


@pytest.mark.slow
def test_columns_in_order_read_those_beside_them() -> None:
    random = np.random.default_rng(0)
    wide = np.cumsum(random.normal(size=(25, 80)), axis=1)
    hidden = random.random(wide.shape) < 0.2
    order = random.permutation(80)
    holes = np.where(hidden, np.nan, wide)[:, order]

    def find_error(**parameters: Any) -> float:
        errors = complete(holes, **parameters)[:, np.argsort(order)] - wide
        return float(np.sqrt(np.mean(np.square(errors[hidden]))))

    assert find_error(column_order=order) < 0.9 * find_error()


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"order": [1.0, 2.0]}, BadEntries, "each of the 3 rows"),
        ({"order": [1.0, np.nan, 2.0]}, BadFeatures, "missing"),
        ({"order": [1.0, np.inf, 2.0]}, BadFeatures, "infinite"),
        ({"order": [1.0, 1.0, 1.0]}, BadFeatures, "equal"),
        ({"order": "time"}, BadSetting, "auto"),
        ({"column_order": [1.0]}, BadEntries, "each of the 2 columns"),
        ({"order": [1.0, 2.0, 3.0], "model": "als"}, BadSetting, "als"),
    ],
)
def test_orders_that_say_nothing_are_refused(
    parameters: dict[str, Any], error: type[DeepMFError], words: str
) -> None:
    table = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])
    with pytest.raises(error, match=words):
        complete(table, **parameters)


@pytest.mark.slow
def test_drawn_tables_read_the_rows_around() -> None:
    table, holes = make_smooth()
    imputer = DMFImputer(order=TIMES, random_state=0).fit(holes)
    draws = np.stack(list(imputer.impute_many(holes, 10, seed=3)))
    plain = np.stack(list(imputer.impute_many(holes, 10, seed=3, order=None)))
    np.testing.assert_array_equal(next(imputer.impute_many(holes, 1, seed=3)), draws[0])
    np.testing.assert_array_equal(draws[:, ~np.isnan(holes)][0], holes[~np.isnan(holes)])
    outages, truth = draws[:, OUTAGE], table[OUTAGE]
    errors = outages.mean(axis=0) - truth
    assert np.mean(np.square(errors)) < 0.7 * np.mean(np.square(plain[:, OUTAGE] - truth))
    assert 0.6 < np.mean((outages.min(axis=0) < truth) & (truth < outages.max(axis=0))) < 1.0
    between = next(imputer.impute_many(np.full((1, N_COLUMNS), np.nan), 1, order=[30.5]))
    assert np.abs(between - table[30:32].mean(axis=0)).max() < 0.6
    with pytest.raises(DeepMFError, match="numbers"):
        next(imputer.impute_many(holes[:1], 1, order=np.array(["2024-03-01"], dtype="datetime64")))
