"""Entries come out of tables of every kind, and go back into them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from deepmf.errors import BadEntries, ConstantValues, DeepMFWarning
from deepmf.matrix.scale import Scale
from deepmf.sklearn.imputer import DMFImputer
from deepmf.sklearn.table import (
    REACH,
    ColumnCodes,
    ColumnUnits,
    MixedTable,
    TableEntries,
    make_dense,
    with_columns,
)

TABLE = np.array([[1.0, np.nan, 0.0], [np.nan, 5.0, 6.0]])


def test_entries_of_arrays_and_sparse_matrices_are_the_same() -> None:
    rows, columns = [0, 0, 1, 1, 1], [0, 2, 0, 1, 2]
    stored = scipy.sparse.csr_array(([1.0, 0.0, np.nan, 5.0, 6.0], (rows, columns)), shape=(2, 3))
    np.testing.assert_array_equal(make_dense(stored), TABLE)
    entries = TableEntries.of(TABLE)
    found = [part.tolist() for part in (entries.rows, entries.columns, entries.values)]
    assert (entries.shape, found) == ((2, 3), [[0, 0, 1, 1], [0, 2, 1, 2], [1, 0, 5, 6]])


FRAME = pd.DataFrame(
    {
        "size": pd.Categorical(["s", None, "l"], categories=["s", "m", "l"], ordered=True),
        "colour": ["red", None, "blue"],
        "kind": pd.Categorical(["a", "b", None]),
        "number": [1.0, np.nan, 3.0],
        "count": pd.array([1, None, 3], dtype="Int64"),
        "yes": [True, False, True],
    }
)


def sizes(frame: pd.DataFrame) -> pl.DataFrame:
    return pl.from_pandas(frame).with_columns(pl.col("size").cast(pl.Enum(["s", "m", "l"])))


@pytest.mark.parametrize("frame", [FRAME, sizes(FRAME)], ids=["pandas", "polars"])
def test_frames(frame: Any) -> None:
    table = MixedTable.of(frame, missing=np.nan)
    assert table is not None
    assert {at: cells.tolist() for at, cells in table.texts.items()} == {
        0: ["s", None, "l"],
        1: ["red", None, "blue"],
        2: ["a", "b", None],
        5: [True, False, True],
    }
    assert table.orders == {0: ("s", "m", "l")}
    gaps = np.full((3, 3), np.nan)
    np.testing.assert_array_equal(
        table.numbers, np.column_stack([gaps, [1, np.nan, 3], [1, np.nan, 3], gaps[:, 0]])
    )
    assert table.missing.tolist() == [
        [False] * 6,
        [True, True, False, True, True, False],
        [False] * 2 + [True] + [False] * 3,
    ]


def test_arrow() -> None:
    table = MixedTable.of(
        pa.table({"colour": ["red", None], "number": [1.5, None]}), missing=np.nan
    )
    assert table is not None and table.texts[0].tolist() == ["red", None]


def test_arrays_of_objects_and_lists() -> None:
    rows = [["red", 1.5, None], [float("nan"), 2, pd.NA], ["blue", np.float32("nan"), 4]]
    for given in (rows, np.array(rows, dtype=object)):
        table = MixedTable.of(given, missing=np.nan)
        assert table is not None and list(table.texts) == [0]
        np.testing.assert_array_equal(
            table.numbers[:, 1:], [[1.5, np.nan], [2, np.nan], [np.nan, 4]]
        )
        assert table.texts[0].tolist() == ["red", None, "blue"]


def test_marks_of_what_is_missing() -> None:
    table = MixedTable.of([["?", 1.0], ["a", "?"]], missing="?")
    assert table is not None and table.texts[0].tolist() == [None, "a"]
    np.testing.assert_array_equal(table.numbers[:, 1], [1.0, np.nan])
    table = MixedTable.of(pd.DataFrame({"t": ["a", "b"], "n": [-1, 2]}), missing=-1)
    assert table is not None
    np.testing.assert_array_equal(table.numbers[:, 1], [np.nan, 2.0])


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames_come_back_in_their_types_and_dates_as_they_are(kind: Any) -> None:
    random = np.random.default_rng(0)
    size = random.normal(size=90)
    cells = {
        "size": size,
        "leaves": np.rint(3 * size).astype(int),
        "tall": size > 0,
        "odd": size > 0.5,
    }
    table = {
        name: [None if at % 3 == 0 else cell for at, cell in enumerate(own.tolist())]
        for name, own in cells.items()
    }
    days = np.arange("2024-01-01", "2024-03-31", dtype="datetime64[D]").astype("datetime64[us]")
    frame = kind({"day": days, **table})
    if kind is pd.DataFrame:
        frame = frame.astype({"leaves": "Int64", "tall": "boolean", "odd": object})
    with pytest.warns(DeepMFWarning, match="'day'"):
        fitted = DMFImputer("gaussian", random_state=0).fit(frame)
    assert fitted.get_feature_names_out().tolist() == list(frame.columns)
    for completed in (fitted.transform(frame), *fitted.impute_many(frame, 2)):
        assert type(completed) is kind and list(completed.columns) == list(frame.columns)
        assert list(completed.dtypes) == list(frame.dtypes)
        assert completed["day"].to_list() == frame["day"].to_list()
        assert set(completed["odd"]) == {True, False}
    with pytest.raises(BadEntries, match="'size' holds dates"):
        fitted.transform(
            kind({name: days if name == "size" else frame[name] for name in frame.columns})
        )
    truth = np.asarray(completed["tall"], dtype=bool)[::3] == (
        np.asarray(completed["leaves"])[::3] > 0
    )
    assert truth.mean() > 0.5


def test_numbers_that_do_not_fit_a_type_are_cut_off() -> None:
    frame = pd.DataFrame({"n": pd.array([1, None, None], dtype="UInt8")})
    filled = with_columns(frame, {"n": np.array([1.0, -3.2, 7.6])}, {"n": np.arange(3) > 0})
    assert filled["n"].tolist() == [1, 0, 8]


HUGE = 2**53 + 2 * np.arange(40) + 1  # no float64 holds these


GAP = 3  # the row of the only missing cell, which is in the second column


def make_huge(kind: str) -> tuple[Any, Any]:
    """Return a table of huge whole numbers with a gap, and its mark of missing values."""
    frame = pd.DataFrame({"huge": HUGE, "gappy": HUGE, "text": np.repeat(["a", "b"], 20)})
    is_gap = frame.index == GAP
    if kind == "int64":
        return frame.assign(gappy=np.where(is_gap, -1, HUGE)), -1
    if kind == "array":
        return np.column_stack([HUGE, np.where(is_gap, -1, HUGE)]), -1
    frame = frame.astype({"huge": "Int64", "gappy": "Int64"})
    frame.loc[GAP, "gappy"] = pd.NA
    if kind == "Int64":
        return frame, np.nan
    if kind == "objects":
        return frame.to_numpy(dtype=object), np.nan
    return pl.from_pandas(frame), np.nan


@pytest.mark.parametrize("kind", ["array", "objects", "int64", "Int64", "polars"])
def test_whole_numbers_come_back_bit_for_bit(kind: str) -> None:
    given, mark = make_huge(kind)

    def list_columns(table: Any) -> list[list[Any]]:
        if isinstance(table, np.ndarray):
            return table.T.tolist()[:2]
        return [table[name].to_list() for name in ("huge", "gappy")]

    imputer = DMFImputer("gaussian", random_state=0, missing_values=mark).fit(given)
    for completed in (imputer.transform(given), next(imputer.impute_many(given, 1))):
        huge, gappy = list_columns(completed)
        assert huge == HUGE.tolist()
        filled = gappy.pop(GAP)
        assert gappy == np.delete(HUGE, GAP).tolist()
        assert filled == pytest.approx(HUGE.mean())


def make_dates(kind: str) -> Any:
    days = pd.date_range("2024-01-01", periods=40)
    return {"date": days.date, "period": days.to_period("D"), "time": days.time}[kind]


@pytest.mark.parametrize("kind", ["date", "period", "time"])
def test_dates_of_any_type_stay_as_they_are(kind: str) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"day": make_dates(kind), "a": random.normal(size=40)})
    frame["b"] = frame["a"].mask(random.random(40) < 0.3)
    with pytest.warns(DeepMFWarning, match="'day'"):
        completed = DMFImputer("gaussian", random_state=0).fit_transform(frame)
    pd.testing.assert_series_equal(completed["day"], frame["day"])
    assert completed["b"].notna().all()


@pytest.mark.parametrize("cells", [[{}], [[1, 2]], [object()], [pd.Interval(0, 1)]])
def test_a_column_of_other_objects_is_named(cells: list[Any]) -> None:
    frame = pd.DataFrame({"a": np.arange(10.0), "odd": pd.Series(cells * 10)})
    with pytest.raises(BadEntries, match="'odd'"):
        DMFImputer("gaussian").fit(frame)


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pd.DataFrame(np.eye(4), columns=["a", "b", "a", "c"])
    with pytest.raises(BadEntries, match="2 columns are named 'a'"):
        DMFImputer("gaussian").fit(frame)


@pytest.mark.parametrize("add_indicator", [False, True])
def test_several_levels_of_column_names_stay(add_indicator: bool) -> None:
    random = np.random.default_rng(0)
    names = pd.MultiIndex.from_product([["x", "y"], ["low", "high"]], names=["axis", "end"])
    frame = pd.DataFrame(random.normal(size=(40, 4)), columns=names, index=range(7, 47))
    frame = frame.mask(random.random(frame.shape) < 0.2)
    imputer = DMFImputer(
        "gaussian", random_state=0, add_indicator=add_indicator, constraints={("x", "low"): (0, 9)}
    )
    plain = imputer.fit(frame).transform(frame)
    wrapped = imputer.set_output(transform="pandas").transform(frame)
    pd.testing.assert_frame_equal(wrapped, plain)
    pd.testing.assert_index_equal(plain.columns[:4], names)
    assert plain.columns[4:].tolist() == [
        (f"missingindicator_{axis}", end) for axis, end in names if add_indicator
    ]
    filled = plain["x", "low"][frame["x", "low"].isna()]
    assert filled.between(0, 9).all()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_intervals_of_frames_are_frames_with_the_same_labels(kind: str) -> None:
    random = np.random.default_rng(0)
    cells = random.normal(size=(60, 3)) + random.normal(size=(60, 1))
    cells[random.random(cells.shape) < 0.2] = np.nan
    frame: Any = pd.DataFrame(cells, columns=list("abc"), index=range(9, 69))
    if kind == "polars":
        frame = pl.DataFrame(cells, schema=list("abc"))
    imputer = DMFImputer(random_state=0).fit(frame)
    completed, interval = imputer.transform(frame, return_interval=True)
    expected = DMFImputer(random_state=0).fit(cells).transform(cells, return_interval=True)[1]
    for end, array in zip(interval, expected, strict=True):
        assert type(end) is type(frame) and list(end.columns) == list("abc")
        np.testing.assert_array_equal(end.to_numpy(), array)
        assert kind == "polars" or end.index.equals(completed.index)


def test_levels_of_whole_numbers_are_whole() -> None:
    random = np.random.default_rng(0)
    income = np.rint(np.exp(random.normal(10, 1, size=80)))  # hardly two are equal
    table = np.column_stack([income, income + 0.5, income % 3])
    table[random.random(table.shape) < 0.3] = np.nan
    imputer = DMFImputer("gaussian", answers="levels", random_state=0).fit(table)
    for completed in (imputer.transform(table), next(imputer.impute_many(table, 1))):
        assert np.all(completed[:, [0, 2]] % 1 == 0)
        assert np.any(completed[:, 1] % 1 != 0.5)
    assert np.any(DMFImputer("gaussian").fit_transform(table)[:, 0] % 1 != 0)


def test_a_code_for_missing_values_is_noticed() -> None:
    random = np.random.default_rng(0)
    for code, expected in ((-99, True), (99, False), (999, True), (-1, False)):
        table = random.normal(50, 10, size=(80, 2))
        table[:5, 1] = code
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            DMFImputer("gaussian", random_state=0).fit(table)
        assert any("missing_values" in str(each.message) for each in caught) == expected, code


def test_what_pandas_has_for_nothing_is_a_mark_too() -> None:
    table = MixedTable.of(pd.DataFrame({"t": pd.array(["a", None], dtype="string")}), missing=pd.NA)
    assert table is not None and table.texts[0].tolist() == ["a", None]


NAMES = ["size", "colour", "number"]


@pytest.fixture
def table() -> MixedTable:
    order = pd.CategoricalDtype(["s", "m", "l"], ordered=True)
    frame = pd.DataFrame(
        {"size": ["s", "l", None], "colour": ["red", None, "blue"], "number": [1.0, 2.0, np.nan]}
    )
    found = MixedTable.of(frame.astype({"size": order}), missing=np.nan)
    assert found is not None
    return found


def test_a_column_for_each_category_and_one_for_an_order(table: MixedTable) -> None:
    codes = ColumnCodes.of(table, NAMES)
    assert codes.labels.tolist() == ["size", "colour=blue", "colour=red", "number"]
    assert codes.sources.tolist() == [0, 1, 1, 2]
    assert codes.are_shares.tolist() == [False, True, True, False]
    nan = np.nan
    np.testing.assert_array_equal(
        codes.encode(table), [[0, 0, 1, 1], [2, nan, nan, 2], [nan, 1, 0, nan]]
    )


def test_back_again(table: MixedTable) -> None:
    codes = ColumnCodes.of(table, NAMES)
    numbers = np.array([[9.0, 9, 9, 9], [1.2, 0.3, 0.2, 2], [1.4, 0, 0, 3]])
    size, colour, number = codes.decode(numbers, table).values()
    assert (size, colour) == (["s", "l", "m"], ["red", "blue", "blue"])
    assert number.tolist() == [9, 2, 3]


def test_a_category_that_nobody_knows_is_missing_to_the_model(table: MixedTable) -> None:
    codes = ColumnCodes.of(table, NAMES)
    other = MixedTable.of([["s", "pink", 1.0]], missing=np.nan, texts=[0, 1])
    assert other is not None
    np.testing.assert_array_equal(codes.encode(other), [[0, np.nan, np.nan, 1]])
    assert codes.decode(np.ones((1, 4)), other)[1] == ["pink"]


def test_texts_that_are_no_categories_are_refused() -> None:
    table = MixedTable.of([[f"name {number}", 1.0] for number in range(65)], missing=np.nan)
    assert table is not None
    with pytest.raises(BadEntries, match="65"):
        ColumnCodes.of(table, ["who", "n"])


RANDOM = np.random.default_rng(0)

MEASURES = np.column_stack([RANDOM.normal(50, 7, 30), RANDOM.integers(1, 4, 30), np.full(30, 0.1)])

MEASURES[3, 0] = MEASURES[5, 1] = np.nan

ENTRIES = TableEntries.of(MEASURES)


def test_a_model_sees_standardised_columns() -> None:
    seen = ColumnUnits.from_columns(ENTRIES).standardise(ENTRIES)
    spreads = np.nanstd(MEASURES, axis=0)
    expected = (MEASURES - np.nanmean(MEASURES, axis=0)) / np.where(spreads < 1e-9, 1, spreads)
    np.testing.assert_allclose(seen.values, TableEntries.of(expected).values, atol=1e-12)


def test_values_undo_what_a_model_sees() -> None:
    units = ColumnUnits.from_columns(ENTRIES)
    np.testing.assert_allclose(
        units.convert_values(units.standardise(ENTRIES).values, ENTRIES.columns),
        ENTRIES.values,
        rtol=1e-12,
    )
    other = units.standardise(TableEntries.of(np.array([[np.nan, np.nan, 0.3]])))
    # not infinitely far from the column's only value
    np.testing.assert_allclose(other.values, [0.2])
    constant = units.convert_values(np.array([-3.0, 3.0]), np.array([2, 2]))
    assert constant.tolist() == [0.1, 0.1]


def test_what_lies_far_out_is_seen_at_the_end() -> None:
    units = ColumnUnits.from_columns(ENTRIES)
    far = TableEntries.of(np.array([[1e9, -1e9, np.nan]]))
    assert units.standardise(far).values.tolist() == [REACH, -REACH]
    ends = np.array([REACH, -REACH])
    assert units.convert_values(ends, np.array([0, 0])).tolist() == [
        np.nanmax(MEASURES[:, 0]),
        np.nanmin(MEASURES[:, 0]),
    ]


def test_columns_have_levels_where_values_repeat() -> None:
    real, levels, constant = ColumnUnits.from_columns(ENTRIES).column_scales
    assert real == Scale(low=np.nanmin(MEASURES[:, 0]), high=np.nanmax(MEASURES[:, 0]))
    assert levels == Scale([1, 2, 3])
    assert constant == Scale([0.1])
    nearest = ColumnUnits.from_columns(ENTRIES).round_to_levels(
        np.array([1.4, 51.25, 2.6]), np.array([1, 0, 1])
    )
    assert nearest.tolist() == [1, 51.25, 3]


def test_a_shared_scale_leaves_values_as_they_are() -> None:
    stars = TableEntries.of(np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 4.0]]))
    units = ColumnUnits.from_shared_scale(stars, None)
    assert units.scale == Scale([1, 2, 3, 4, 5])
    assert units.means.tolist() == [2, 4.5]
    np.testing.assert_array_equal(units.standardise(stars).values, stars.values)
    assert ColumnUnits.from_shared_scale(stars, Scale([1, 2, 3, 4, 5, 6])).scale.high == 6
    with pytest.warns(ConstantValues):
        ColumnUnits.from_shared_scale(TableEntries.of(np.full((2, 2), 3.0)), None)
