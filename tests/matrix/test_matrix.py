"""The observed matrix: every entry by row and by column, conversions, and files that read back as
they were."""

from __future__ import annotations

import datetime
import itertools
import re
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, strategies as st

from deepmf.data import pack, read_matrix
from deepmf.errors import (
    BadEntries,
    BadSetting,
    CannotSave,
    DuplicateEntries,
    MeansOffLevels,
    UnknownLabel,
    UserError,
)
from deepmf.matrix import TableForm
from deepmf.matrix.frame_file import ENDINGS
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import sort_by_row

BUILD = ObservedMatrix.from_entries
CELLS = list(itertools.product("cab", [30, 10, 20]))


some_entries = st.lists(st.sampled_from(CELLS), min_size=2, unique=True).flatmap(
    lambda cells: st.tuples(
        st.just(cells),
        st.lists(st.integers(0, 4), min_size=len(cells), max_size=len(cells)).filter(
            lambda v: len(set(v)) > 1
        ),
    )
)


def build(cells: list[tuple[str, int]], values: list[int], **options: object) -> ObservedMatrix:
    rows, columns = zip(*cells, strict=True)
    return ObservedMatrix.from_entries(rows, columns, values, **options)  # type: ignore[arg-type]


@given(some_entries)
def test_every_entry_is_there_by_row_and_by_column(
    given: tuple[list[tuple[str, int]], list[int]],
) -> None:
    cells, values = given
    matrix = build(cells, values)
    expected = dict(zip(cells, values, strict=True))
    assert {(r, c): v for r, c, v in zip(*matrix.entries(), strict=True)} == expected
    assert matrix.shape == (len({r for r, _ in cells}), len({c for _, c in cells}))
    by_column = matrix.by_column
    for axis, starts, others, places in (
        (0, *matrix.by_row, np.arange(matrix.n_entries)),
        (1, by_column.starts, by_column.rows, by_column.entries),
    ):
        labels = (matrix.row_labels, matrix.column_labels)
        for at, label in enumerate(labels[axis]):
            inside = slice(starts[at], starts[at + 1])
            of_label = labels[1 - axis][others[inside]], matrix.values[places[inside]]
            shown = dict(zip(*of_label, strict=True))
            assert shown == {
                cell[1 - axis]: v for cell, v in expected.items() if cell[axis] == label
            }
            assert np.all(np.diff(others[inside]) > 0)


@given(some_entries, st.randoms(use_true_random=False))
def test_order_of_entries_is_irrelevant(
    given: tuple[list[tuple[str, int]], list[int]], random: Any
) -> None:
    pairs = list(zip(*given, strict=True))
    shuffled = random.sample(pairs, len(pairs))
    one, other = (build(*map(list, zip(*some, strict=True))) for some in (pairs, shuffled))
    assert one == other


@pytest.mark.parametrize("row_bits", [29, 30, 31, 32])
def test_axes_that_just_fit_into_a_number_and_that_just_do_not_are_sorted_alike(
    row_bits: int,
) -> None:
    n_rows, n_columns = 2**row_bits - 1, 2**31 - 1  # with two bits of places: 62 to 65 bits
    rows, columns = np.array([n_rows - 1, 0, n_rows - 1]), np.array([1, n_columns - 1, 0])
    found = sort_by_row(rows, columns, n_rows=n_rows, n_columns=n_columns)
    assert found[0].tolist() == [1, 2, 0]
    np.testing.assert_array_equal(found[1], rows[[1, 2, 0]])
    np.testing.assert_array_equal(found[2], columns[[1, 2, 0]])


def test_stored_zeros_and_middle_levels_are_entries() -> None:
    cells = np.array([0.0, 1.0, -1.0]), (np.array([0, 0, 1]), np.array([0, 1, 1]))
    matrix = ObservedMatrix.from_sparse(scipy.sparse.csr_array(cells, shape=(2, 3)))
    assert (matrix.n_entries, matrix.shape, matrix.scale) == (3, (2, 3), Scale([-1, 0, 1]))
    assert matrix.to_sparse().nnz == 3
    np.testing.assert_array_equal(matrix.to_array(), [[0, 1, np.nan], [np.nan, -1, np.nan]])


def test_arrays() -> None:
    array = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, 2.0]])
    matrix = ObservedMatrix.from_array(array)
    np.testing.assert_array_equal(matrix.to_array(), array)
    assert (matrix.row_counts.tolist(), matrix.column_counts.tolist()) == ([1, 0, 2], [2, 1])
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    assert ObservedMatrix.from_array(masked).n_entries == 3
    named = ObservedMatrix.from_array(array, row_labels=["x", "y", "z"], column_labels=["b", "a"])
    assert [part.tolist() for part in named.entries()[:2]] == [list("xzz"), list("bba")]


def test_values_come_back_exactly() -> None:
    values = np.random.default_rng(0).random(100)
    matrix = ObservedMatrix.from_entries(range(100), [0] * 100, values)
    np.testing.assert_array_equal(matrix.entries().values, values)
    assert matrix.values.dtype == np.float64
    assert ObservedMatrix.from_entries([1, 2], [1, 2], [0.5, 5]).values.dtype == np.float32
    huge = ObservedMatrix.from_entries([1, 2], [1, 2], [1e300, -1e300])
    assert huge.entries().values.tolist() == [1e300, -1e300]


def test_given_labels_fix_the_order_and_keep_the_empty() -> None:
    matrix = ObservedMatrix.from_entries(
        ["b", "a"], [1, 2], [1, 2], row_labels=["c", "b", "a"], column_labels=[2, 1, 9]
    )
    np.testing.assert_array_equal(
        matrix.to_array(), [[np.nan] * 3, [np.nan, 1, np.nan], [2, np.nan, np.nan]]
    )
    with pytest.raises(UnknownLabel, match="'z'"):
        ObservedMatrix.from_entries(["z"], [1], [1], row_labels=["a"])


def test_duplicates() -> None:
    repeated: Any = (["a", "b", "a", "a"], ["x", "x", "x", "x"], [1, 2, 5, 3])
    with pytest.raises(DuplicateEntries, match="entry 2"):
        BUILD(*repeated)
    for duplicates, values in {"first": [1, 2], "last": [3, 2], "mean": [3, 2]}.items():
        assert BUILD(*repeated, duplicates=duplicates).values.tolist() == values
    # a level that only a replaced entry has is none
    assert BUILD(*repeated, duplicates="last").scale == Scale([2, 3])
    with pytest.warns(MeansOffLevels, match="mean"):
        inferred = BUILD([1, 1, 2, 2], [1, 1, 1, 2], [4, 5, 3, 1], duplicates="mean")
    assert inferred.scale == Scale([1, 3, 4, 5])  # 4.5 is nobody's level
    assert inferred.values.tolist() == [5, 3, 1]
    with pytest.warns(MeansOffLevels):
        rounded = BUILD(["a", "a"], [1, 1], [1, 2], Scale([1, 2, 3, 4, 5]), duplicates="mean")
    assert rounded.values.tolist() == [2]


def test_taking_entries_and_parts() -> None:
    matrix = ObservedMatrix.from_array(np.arange(12.0).reshape(3, 4))
    even = matrix.take_entries(matrix.values % 2 == 0)
    assert even.shape == matrix.shape and even.scale == matrix.scale
    assert even.entries().values.tolist() == [0, 2, 4, 6, 8, 10]
    assert even == matrix.take_entries(np.array([10, 0, 2, 8, 4, 6]))
    part = matrix.take(np.array([2, 0]), np.array([3, 1]))
    np.testing.assert_array_equal(part.to_array(), [[11, 9], [3, 1]])
    assert part.row_labels.tolist() == [2, 0]
    nothing = matrix.take_entries(np.zeros(12, dtype=bool))
    assert (nothing.n_entries, nothing.shape, nothing.describe().n_empty_rows) == (0, (3, 4), 3)


def test_immutable() -> None:
    source = np.array([1.0, 2.0])
    places = np.array([0, 1], dtype=np.int32), np.array([0, 1], dtype=np.int32)
    sparse = scipy.sparse.coo_array((source, places), shape=(2, 2))
    labels = np.array([5, 6])
    matrix = ObservedMatrix.from_sparse(sparse, row_labels=labels)
    with pytest.raises(AttributeError, match="immutable"):
        matrix.values = np.zeros(2)
    with pytest.raises(AttributeError, match="immutable"):
        matrix.weigths = np.ones(2)  # type: ignore[attr-defined]
    for array in (matrix.values, matrix.row_labels, *matrix.by_row, *matrix.by_column):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    # the caller's own arrays stay writable, and the matrix does not follow them
    places[1][0], sparse.col[1], source[0], labels[0] = 1, 0, 9.0, 7
    np.testing.assert_array_equal(matrix.to_array(), [[1, np.nan], [np.nan, 2]])
    assert matrix.row_labels.tolist() == [5, 6]


def test_equality() -> None:
    one = ObservedMatrix.from_array([[1, 2]])
    assert one == ObservedMatrix.from_array([[1, 2]])
    assert one != ObservedMatrix.from_array([[2, 1]])
    assert one != ObservedMatrix.from_array([[1, 2]], scale=Scale([1, 2, 3]))
    assert one != ObservedMatrix.from_array([[1, 2]], column_labels=["a", "b"])
    assert one != "something else"


def test_at_most_20_bytes_per_entry() -> None:
    generator = np.random.default_rng(0)
    cells = generator.choice(2000 * 1000, size=500_000, replace=False)
    rows, columns = (cells // 1000).astype(np.int64), (cells % 1000).astype(np.int64)
    values = generator.integers(1, 6, cells.size).astype(float)
    tracemalloc.start()
    matrix = ObservedMatrix.from_entries(rows, columns, values)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    labels = matrix.row_labels.nbytes + matrix.column_labels.nbytes
    assert (held - labels) / matrix.n_entries < 16.2
    assert matrix.nbytes / matrix.n_entries < 16.1
    doubles = ObservedMatrix.from_entries(rows, columns, generator.random(cells.size))
    assert doubles.nbytes == 20 * doubles.n_entries + 4 * (sum(doubles.shape) + 2)


PAIR = ObservedMatrix.from_array([[1, 2]])
REPEATED = scipy.sparse.coo_array(([1, 2], ([0, 0], [1, 1])), shape=(2, 2))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: ObservedMatrix.from_sparse(np.eye(2)), "ndarray"),
        (lambda: ObservedMatrix.from_sparse(scipy.sparse.coo_array(np.ones(3))), "dimensions"),
        (lambda: ObservedMatrix.from_sparse(REPEATED), "before"),
        (lambda: ObservedMatrix.from_array([1, 2]), "2 dimension"),
        (lambda: ObservedMatrix.from_array([[1, 2], [3]]), "one length"),
        (lambda: ObservedMatrix.from_array(np.eye(2), row_labels=[1, 2, 3]), "labels"),
        (lambda: ObservedMatrix.from_array([[np.inf, 1]]), "inf"),
        (lambda: ObservedMatrix.from_array([[10**400, 1]]), "too large"),
        (lambda: BUILD([1, 2], [1, 2], [[1], [2, 3]]), "one length"),
        (lambda: BUILD([1, 2], [1, 2], [1, 2], weights=[[1], [2, 3]]), "weights"),
        (lambda: ObservedMatrix.from_interactions([1, 2], [1, 2], [[1], [2, 3]]), "counts"),
        (lambda: ObservedMatrix.from_interactions(3, [1]), "list"),
        (lambda: BUILD([1, 2], [1, 2], [10**5000, 1]), "entry 0: .*too large"),
        (lambda: BUILD([1, 2], [1, 2], [1, 2], weights=[1, 10**400]), "entry 1: weight"),
        (lambda: BUILD([1, 2], [1, 2], [1, 2], times=[1, 10**400]), "entry 1: time"),
        (lambda: BUILD([1, 10**400], [1, 2], [1, 2]), "64 bits"),
        (lambda: BUILD(np.array([1, 2**62], "M8[D]"), [1, 2], [1, 2]), "entry 1: .*9999"),
        (lambda: BUILD(np.array([1, 2**62], "m8[D]"), [1, 2], [1, 2]), "durations"),
        (lambda: BUILD(np.array([1, 2], "m8[M]"), [1, 2], [1, 2]), "durations"),
        (lambda: BUILD([1], [1], [1 + 2j]), "real"),
        (lambda: BUILD([1], [1], np.array(["2020-01-01"], "M8[D]")), "real"),
        (lambda: BUILD([1], [1], np.array([1], "m8[s]")), "real"),
        (lambda: BUILD([1, 2], [1, 2], [1, -1e308]), "1e.307"),
        (lambda: BUILD([1], [1], [1], scale=[1, 2]), r"Scale.*\[1, 2\]"),
        (lambda: BUILD([1], [1], [1], duplicates=np.array(["first", "last"])), "duplicates"),
        (lambda: PAIR.with_scale(3), "Scale; got 3"),
        (lambda: ObservedMatrix(), "from_entries"),
        (lambda: BUILD([1, 2], [1], [1, 2]), "2, 1 and 2"),
        (lambda: BUILD([1, 2], [1, 2], [1, np.nan]), "row 2, column 2 has value nan"),
        (lambda: BUILD(["a", "b"], [1, 2], [np.inf, 1]), "row 'a'"),
        (lambda: BUILD([1, 2], [1, 2], [1, "x"]), "'x'"),
        (lambda: BUILD([1, None], [1, 2], [1, 2]), "row id is missing"),
        (lambda: BUILD([1, 2], ["a", 3], [1, 2]), "kind"),
        (lambda: BUILD([1], [1], [[1]]), "1 dimension"),
        (lambda: BUILD([], [], []), "no entries"),
        (lambda: BUILD([1], [1], [1], duplicates="any"), "'any'"),  # type: ignore[arg-type]
        (lambda: BUILD([3, 17], [1, 2], [5, 7], Scale([1, 2, 5])), "row 17.* 7; the scale is"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(call: Callable[[], object], word: str) -> None:
    with pytest.raises(UserError, match=word) as caught:
        call()
    assert len(caught.value.message) < 250 and "\n" not in str(caught.value)


def test_description() -> None:
    scale = Scale([1, 2, 3, 5])
    array = [[1, 2, 2, np.nan], [5, np.nan, np.nan, np.nan]]
    description = ObservedMatrix.from_array(array, scale=scale).describe()
    assert (description.n_rows, description.n_columns, description.n_entries) == (2, 4, 4)
    assert (description.n_empty_rows, description.n_empty_columns) == (0, 1)
    assert description.histogram == {1.0: 1, 2.0: 2, 3.0: 0, 5.0: 1}
    quantiles = {"min": 1, "25 %": 1.5, "median": 2, "75 %": 2.5, "max": 3}
    assert description.entries_per_row == quantiles
    assert (description.density, description.mean) == (0.5, 2.5)
    assert description.standard_deviation == 1.5
    assert re.search("4 entries .*2 rows x 4 columns .*50 %", str(description))
    assert "1 without any" in str(description)
    as_json = {"low": 1.0, "high": 5.0, "levels": [1.0, 2.0, 3.0, 5.0]}
    assert description.to_dict()["scale"] == as_json


# Writing

FORM = TableForm("who", "what", "stars")
RATINGS = ObservedMatrix.from_entries(
    ["007", "ann", "ann"], [3, 3, 20], [4.5, 1, 0], Scale(low=0, high=5)
).with_form(FORM)


@pytest.mark.parametrize("ending", [*ENDINGS, ".store"])
def test_what_is_written_reads_back(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"r{ending}"
    RATINGS.write(path)
    read = read_matrix(path, scale=RATINGS.scale)
    assert read == RATINGS
    assert read.form == FORM
    assert read.column_labels.dtype == np.int64


def test_a_frame_has_the_words_and_types_of_its_source() -> None:
    days = [datetime.date(2020, 1, 2)] * 2
    frame = pl.DataFrame({"day": days, "film": ["x", "y"], "stars": [3, 4]})
    read = ObservedMatrix.from_frame(frame, row="day", column="film", value="stars")
    assert read.to_frame().equals(frame)
    # whole numbers stay whole
    assert read.take_entries(np.array([True, False])).to_frame().equals(frame.head(1))
    assert BUILD([1], [2], [0.5], Scale(low=0, high=1)).to_frame().rows() == [(1, 2, 0.5)]
    huge = BUILD([1, 2], [2, 2], [1.0, 1e30], Scale([1, 1e30]))
    assert huge.to_frame()["value"].to_list() == [1.0, 1e30]  # no 64-bit integer
    named = BUILD([uuid.UUID(int=1)] * 2, [2, 3], [1, 2])
    assert named.to_frame()["row"].to_list() == ["00000000-0000-0000-0000-000000000001"] * 2


def test_a_table_has_a_line_per_row(tmp_path: Path) -> None:
    table = pl.DataFrame({"id": ["a", "b"], "q1": [1, None], "q2": [2, 3]})
    matrix = ObservedMatrix.from_table(table, row="id")
    assert matrix.to_table().equals(table)
    matrix.write(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "id,q1,q2\na,1,2\nb,,3\n"
    assert matrix.to_frame().columns == ["id", "column", "value"]
    clash = ObservedMatrix.from_entries(["a", "a"], ["row", "x"], [1, 2])
    with pytest.raises(BadEntries, match="'row'"):
        clash.to_table()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="r.xlsx"):
        RATINGS.write("r.xlsx")
    with pytest.raises(CannotSave, match="folder"):
        RATINGS.write(tmp_path / "none" / "r.csv")


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "store"])
@pytest.mark.parametrize(
    "rows",
    [
        ["a\tb", "c\nd", "e,f", "g\rh"],
        ['"x"', 'q"y', "back\\slash", "\\t"],
        ["007", "8", "9", "10"],
    ],
)
def test_ids_come_back_as_they_were(tmp_path: Path, rows: list[str], ending: str) -> None:
    matrix = ObservedMatrix.from_entries(rows, ["x", "y z", "x", "y z"], [1, 2, 3, 4])
    if ending == "tsv" and "\t" in rows[0]:
        with pytest.raises(BadEntries, match="tab"):
            matrix.write(tmp_path / "m.tsv")
        return
    matrix.write(tmp_path / f"m.{ending}")
    assert read_matrix(tmp_path / f"m.{ending}") == matrix


def test_texts_of_digits_stay_texts_in_csv(tmp_path: Path) -> None:
    matrix = ObservedMatrix.from_entries(["1", "2", "2"], ["7", "8", "7"], [1, 2, 3])
    matrix.write(tmp_path / "m.csv")
    assert read_matrix(tmp_path / "m.csv") == matrix
    pack([tmp_path / "m.csv"], tmp_path / "m.store")
    assert read_matrix(tmp_path / "m.store") == matrix
    numbers = ObservedMatrix.from_entries([1, 2, 2], [7, 8, 7], [1, 2, 3])
    numbers.write(tmp_path / "n.csv")
    assert (tmp_path / "n.csv").read_text().splitlines()[1] == "1,7,1"
    (tmp_path / "all.csv").write_text(
        '"row","column","value"\n"1","7","1"\n"2","8","2"\n"2","7","3"\n'
    )
    assert read_matrix(tmp_path / "all.csv") == read_matrix(tmp_path / "n.csv") == numbers
