"""Times and weights of entries: what is read, what is refused, and that every operation carries
them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deepmf import ObservedMatrix, Scale, pack, read_matrix
from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.entries import EntryStore, forget, plan_forget
from deepmf.matrix.extras import (
    NO_TIME,
    SMALLEST_WEIGHT,
    Extras,
    format_time,
    parse_time,
    parse_times,
)

DAY = 86400
ROWS, COLUMNS, VALUES = [1, 1, 2, 3], [10, 20, 10, 30], [5.0, 3.0, 4.0, 1.0]
TIMES, WEIGHTS = [5 * DAY, 3 * DAY, None, 9 * DAY], [1.0, 2.0, 0.5, 3.0]
SCALE = Scale(levels=[1, 2, 3, 4, 5])


def build(**options: Any) -> ObservedMatrix:
    return ObservedMatrix.from_entries(ROWS, COLUMNS, VALUES, SCALE, **options)


def list_entries(matrix: ObservedMatrix) -> dict[tuple[Any, Any], tuple[float, int | None, float]]:
    """Return value, time and weight by row and column."""
    rows, columns, values = (part.tolist() for part in matrix.entries())
    times = (
        [None] * len(rows)
        if matrix.times is None
        else [None if t == NO_TIME else t for t in matrix.times.tolist()]
    )
    weights = [1.0] * len(rows) if matrix.weights is None else matrix.weights.tolist()
    return dict(
        zip(zip(rows, columns, strict=True), zip(values, times, weights, strict=True), strict=True)
    )


ALL = {
    (1, 10): (5.0, 5 * DAY, 1.0),
    (1, 20): (3.0, 3 * DAY, 2.0),
    (2, 10): (4.0, None, 0.5),
    (3, 30): (1.0, 9 * DAY, 3.0),
}


@pytest.mark.parametrize(
    "given, kind",
    [
        ([86400, None], "seconds"),
        ([86400.5, float("nan")], "seconds"),
        ([86_400_000 * 20_000, None], "milliseconds"),
        (["1970-01-02", None], "date"),
        (["1970-01-02", ""], "date"),
        (["1970-01-02T00:00:00", None], "datetime"),
        (["1970-01-02 02:00:00+02:00", None], "datetime_utc"),
        (["1970-01-02T00:00:00Z", None], "datetime_utc"),
        ([date(1970, 1, 2), None], "date"),
        ([datetime(1970, 1, 2), None], "datetime"),
        ([datetime(1970, 1, 2, 1, tzinfo=timezone(timedelta(hours=1))), None], "datetime_utc"),
        (["1970-01-02", pd.NA], "date"),
        ([86400, pd.NA], "seconds"),
        ([date(1970, 1, 2), pd.NaT], "date"),
        (np.array(["1970-01-02", "NaT"], dtype="datetime64[D]"), "date"),
        (np.array(["1970-01-02T00:00:00.5", "NaT"], dtype="datetime64[ms]"), "datetime"),
    ],
    ids=range(16),
)
def test_times_of_many_forms(given: Any, kind: str) -> None:
    parsed = parse_times(given)
    expected = DAY * (20_000 if kind == "milliseconds" else 1)
    assert parsed.seconds.tolist() == [expected, NO_TIME]
    assert parsed.type == kind


@pytest.mark.parametrize(
    "given, word",
    [
        *(([text], "date") for text in ("yesterday", "2024", "31.12.2024", "10000-01-01")),
        ([10**16], "9999"),
        ([-(10**11)], "years"),
        (np.array(["10000-01-01"], dtype="datetime64[s]"), "9999"),
        (np.array([2**62], dtype="datetime64[D]"), "9999"),  # in seconds, this wraps to 1970
        ([np.datetime64(2**62, "D"), "2024-05-01"], "date"),
        (["2024-05-01T00:00:00Z", "2024-05-01T00:00:00"], "zone"),
        ([datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1)], "zone"),
        ([True], "date"),
        ([[1]], "times"),
        ("2024-05-01", "list"),
        (["0001-01-01T00:00:00+14:00"], "years"),
    ],
    ids=range(15),
)
def test_times_that_are_refused(given: Any, word: str) -> None:
    with pytest.raises(BadEntries, match=word):
        parse_times(given)


@pytest.mark.parametrize(
    "given",
    [*([1, 1, bad, 1] for bad in (-1, np.nan, np.inf, 9e-7, 1e-320, 1.1e6)), [1, 1], ["a"] * 4],
    ids=range(8),
)
def test_weights_that_are_refused(given: Any) -> None:
    with pytest.raises(BadEntries, match="weight"):
        build(weights=given)


def test_one_time() -> None:
    assert parse_time("1970-01-02") == parse_time(DAY) == DAY
    assert format_time(DAY) == "1970-01-02"
    for wrong in ("soon", None):
        with pytest.raises(BadSetting):
            parse_time(wrong)


def test_weights_halve_with_each_half_life() -> None:
    times = np.array([0, 10 * DAY, 20 * DAY, NO_TIME])
    weights = Extras(times, np.full(4, 2.0)).decay(10 * DAY).weights
    assert weights is not None and weights.tolist() == pytest.approx([0.5, 1.0, 2.0, 0.5])
    assert min(Extras(times).decay(3600).weights) == SMALLEST_WEIGHT  # type: ignore[arg-type]


def test_joined_entries_without_a_weight_or_date_have_weight_one_and_no_date() -> None:
    found = Extras.join(
        [(2, Extras()), (1, Extras(np.array([7]), np.array([0.5]))), (1, Extras(np.array([8])))]
    )
    assert found.times is not None and found.times.tolist() == [NO_TIME, NO_TIME, 7, 8]
    assert found.weights is not None and found.weights.tolist() == [1, 1, 0.5, 1]


def test_entries_keep_their_times_and_weights_in_row_order() -> None:
    order = [2, 0, 3, 1]
    shuffled = ObservedMatrix.from_entries(
        *([part[at] for at in order] for part in (ROWS, COLUMNS, VALUES)),
        SCALE,
        times=[TIMES[at] for at in order],
        weights=[WEIGHTS[at] for at in order],
    )
    assert list_entries(shuffled) == ALL
    assert shuffled == build(times=TIMES, weights=WEIGHTS)
    assert shuffled.mean == pytest.approx(np.average(VALUES, weights=WEIGHTS))


def test_plain_times_and_weights_are_none_and_a_weight_of_zero_leaves_an_entry_out() -> None:
    matrix = build(times=[None] * 4, weights=[1] * 4)
    assert (matrix.times, matrix.weights) == (None, None)
    assert matrix == build() != build(times=TIMES)
    assert build(weights=WEIGHTS) != build()
    without = ObservedMatrix.from_entries(ROWS[:3], COLUMNS[:3], VALUES[:3], SCALE)
    assert build(weights=[1, 1, 1, 0]) == without


def test_selections_carry_times_and_weights() -> None:
    matrix = build(times=TIMES, weights=WEIGHTS)
    some = matrix.take_entries(np.array([0, 3]))
    assert list_entries(some) == {pair: ALL[pair] for pair in ((1, 10), (3, 30))}
    turned = matrix.take(np.array([2, 0]), np.array([2, 1, 0]))
    assert list_entries(turned) == {pair: ALL[pair] for pair in ((3, 30), (1, 10), (1, 20))}


@pytest.mark.parametrize(
    "duplicates, expected",
    [
        ("first", (5.0, 2 * DAY, 1.0)),
        ("last", (2.0, 1 * DAY, 3.0)),
        ("latest", (3.0, 4 * DAY, 2.0)),
        ("mean", (np.average([5, 3, 2], weights=[1, 2, 3]), 4 * DAY, 2.0)),
    ],
)
def test_repeats_merge_times_and_weights(
    duplicates: Any, expected: tuple[float, int, float]
) -> None:
    repeated: Any = [1, 1, 1], [1, 1, 1], [5, 3, 2], Scale(low=0, high=5)
    extras: Any = {"times": [2 * DAY, 4 * DAY, DAY], "weights": [1, 2, 3]}
    merged = ObservedMatrix.from_entries(*repeated, duplicates=duplicates, **extras)
    assert list_entries(merged) == {(1, 1): pytest.approx(expected)}


def test_the_latest_of_repeats_needs_dates_and_takes_the_last_of_equal_dates() -> None:
    def merge(**options: Any) -> ObservedMatrix:
        repeated = [1, 1, 1], [1, 1, 1], [5, 3, 2]
        return ObservedMatrix.from_entries(*repeated, SCALE, duplicates="latest", **options)

    with pytest.raises(BadSetting, match="dates"):
        merge()
    assert merge(times=[DAY, DAY, None]).values.tolist() == [3]


def test_counts_add_up_to_the_latest_time_and_the_mean_weight() -> None:
    extras: Any = {"times": [DAY, 2 * DAY], "weights": [1, 3]}
    plays = ObservedMatrix.from_interactions([1, 1], [1, 1], [3, 1], **extras)
    assert list_entries(plays) == {(1, 1): (4.0, 2 * DAY, 1.5)}
    store = EntryStore.of(ObservedMatrix.from_interactions([1, 2], [1, 1], times=[DAY, DAY]))
    more = ObservedMatrix.from_interactions([1], [1], [3], times=[4 * DAY], weights=[5])
    extension = store.extend(more).entries.extension
    assert extension is not None and list_entries(extension) == {(1, 1): (4.0, 4 * DAY, 4.0)}


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "store"])
@pytest.mark.parametrize(
    "times", [TIMES, ["2024-05-01", "2024-05-03", None, "2024-05-02"]], ids=["numbers", "dates"]
)
def test_files_give_times_and_weights_back(tmp_path: Path, ending: str, times: Any) -> None:
    matrix = build(times=times, weights=WEIGHTS)
    matrix.write(tmp_path / f"m.{ending}")
    named = {} if ending == "store" else {"time": "time", "weight": "weight"}
    read = read_matrix(tmp_path / f"m.{ending}", scale=SCALE, **named)
    assert read == matrix
    assert read.form.time_type == matrix.form.time_type
    assert read.to_frame()["time"].dtype == matrix.to_frame()["time"].dtype


LINES = (
    "user,film,stars,timestamp,w\n1,10,5,432000,1\n1,20,3,259200,2\n2,10,4,,0.5\n3,30,1,777600,3\n"
)


def test_packed_files_are_what_reading_gives(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(LINES + "3,30,2,1000,9\n4,40,5,5,0\n")
    options: dict[str, Any] = {"time": "timestamp", "weight": "w", "scale": SCALE}
    options["duplicates"] = "latest"
    packed = pack(tmp_path / "m.csv", tmp_path / "m.store", **options)
    assert packed == read_matrix(tmp_path / "m.csv", **options)
    assert list_entries(packed) == ALL
    assert packed.mean == pytest.approx(np.average(VALUES, weights=WEIGHTS))
    assert packed.to_frame().columns == ["user", "film", "stars", "timestamp", "w"]
    assert pack([tmp_path / "m.store"], tmp_path / "again.store", scale=SCALE) == packed


def test_a_time_is_detected_by_its_name_and_content(tmp_path: Path) -> None:
    def read(name: str, *times: Any, **options: Any) -> ObservedMatrix:
        head = f"user,film,stars,{name}\n" if name else ""
        (tmp_path / "m.csv").write_text(f"{head}1,10,5,{times[0]}\n1,20,3,{times[1]}\n")
        return read_matrix(tmp_path / "m.csv", **options)

    seconds = 881250949, 881250950
    assert read("timestamp", *seconds).times.tolist() == list(seconds)
    assert read("date", "2024-05-01", "2024-05-02").form.time_type == "date"
    assert read("timestamp", *seconds, time=None).times is None
    assert read("year", 1994, 1995).times is None  # numbers that are no times
    assert read("visits", *seconds).times is None  # no name of a time
    assert read("", *seconds).times is None  # no name
    assert read("", *seconds, time=3).times.tolist() == list(seconds)
    with pytest.raises(BadEntries, match="line 3"):
        read("date", "2024-05-01", "soon", time="date")
    with pytest.raises(BadEntries, match="nothing"):
        read("date", "2024-05-01", "2024-05-02", time="nothing")


def test_a_frame_of_datetimes() -> None:
    moments = [datetime(2024, 5, 1, 12, tzinfo=UTC), None]
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [3, 4], "created": moments})
    matrix = ObservedMatrix.from_frame(frame)
    assert matrix.times is not None
    assert matrix.times.tolist() == [1714564800, NO_TIME]
    assert matrix.to_frame()["created"].to_list() == moments
    assert matrix.to_frame().columns == frame.columns


def test_an_index_of_a_store_carries_times_and_weights() -> None:
    store = EntryStore.of(build(times=TIMES, weights=WEIGHTS))
    extras: Any = {"times": [20 * DAY, 21 * DAY], "weights": [4, 5]}
    new = ObservedMatrix.from_entries([1, 4], [30, 10], [2, 2], SCALE, **extras)
    added = {(1, 30): (2.0, 20 * DAY, 4.0), (4, 10): (2.0, 21 * DAY, 5.0)}
    grown = store.extend(new).entries
    assert grown.extension is not None and list_entries(grown.extension) == added
    of_first = grown.row_entries(np.array([0]))
    assert of_first.extras.equals(Extras(np.array([5, 3, 20]) * DAY, np.array([1.0, 2.0, 4.0])))
    of_column = grown.column_entries(np.array([0]))
    assert of_column.extras.times.tolist() == [5 * DAY, NO_TIME]  # type: ignore[union-attr]
    left = forget(grown, plan_forget(grown, [4], None, None, missing="error")).entries
    del added[4, 10]
    assert left.extension is not None and list_entries(left.extension) == added


def test_an_entry_with_the_same_value_and_a_new_time_is_new() -> None:
    def see(day: int) -> ObservedMatrix:
        return ObservedMatrix.from_entries([1], [10], [5], SCALE, times=[day * DAY])

    store = EntryStore.of(build(times=TIMES))
    with pytest.raises(BadEntries, match="nothing"):
        store.extend(see(5))
    later = store.extend(see(8)).entries
    assert later.take_extras(np.array([0]), np.array([0])).times.tolist() == [8 * DAY]  # type: ignore[union-attr]
    assert later.n_entries == store.n_entries
    back = later.extend(see(5)).entries
    assert back.extension is None and back.dropped.size == 0
