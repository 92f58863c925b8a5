"""Reading files: every form, and a clear sentence for every bad one."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tracemalloc
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from deepmf.data import read_matrix
from deepmf.data.read import ReadOptions, read_entry_file
from deepmf.errors import (
    BadEntries,
    BadSetting,
    DeepMFWarning,
    DuplicateEntries,
    FileAbsent,
    OffScale,
    UnreadableFile,
)
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale

HEADER = "user,item,rating\n"
EXPECTED = ObservedMatrix.from_entries([1, 2, 2], [30, 30, 10], [4, 2.5, 1])


@pytest.mark.parametrize(
    "name, content",
    [
        ("header.csv", "userId,movieId,rating\n1,30,4\n2,30,2.5\n2,10,1\n"),
        ("reordered.csv", "rating,when,item,user\n4,9,30,1\n2.5,9,30,2\n1,9,10,2\n"),
        ("bare.csv", "1,30,4\n2,30,2.5\n2,10,1"),
        ("windows.csv", "user,item,rating\r\n1,30,4\r\n2,30,2.5\r\n2,10,1\r\n"),
        ("mark.csv", "\ufeffuser,item,rating\n1,30,4\n2,30,2.5\n2,10,1\n"),
        ("blank_end.csv", "user,item,rating\n1,30,4\n2,30,2.5\n2,10,1\n\n\n"),
        ("tabs.tsv", "user\titem\trating\n1\t30\t4\n2\t30\t2.5\n2\t10\t1\n"),
        ("u.data", "1\t30\t4\t881250949\n2\t30\t2.5\t891717742\n2\t10\t1\t878887116\n"),
        ("ratings.dat", "1::30::4::978300760\n2::30::2.5::978302109\n2::10::1::978301968\n"),
        ("semicolon.txt", "user;item;rating\n1;30;4\n2;30;2.5\n2;10;1\n"),
        ("spaces.txt", "1 30 4\n2 30 2.5\n2 10 1\n"),
        ("blank_start.csv", "\n\nuser,item,rating\n1,30,4\n2,30,2.5\n2,10,1\n"),
        ("pipe.txt", "1|30|4\n2|30|2.5\n2|10|1\n"),
        ("spaced.csv", "user, item, rating \n1 , 30,4\n2, 30, 2.5\n 2,10,1\n"),
        ("control.tsv", "1\t30\t4\n2\t30\t2.5\v\n2\t10\t1\n"),
        ("note.csv", '# my "data\n\nuser,item,rating\n1,30,4\n2,30,2.5\n2,10,1\n'),
        ("konect.txt", "% bip weighted posweighted two\n% 3\n1 30 4\n2 30 2.5\n2 10 1\n"),
    ],
)
def test_text_in_many_forms(tmp_path: Path, name: str, content: str) -> None:
    plain = content.encode()
    (tmp_path / name).write_bytes(plain)
    assert read_matrix(tmp_path / name) == EXPECTED
    for ending, compress in {"gz": gzip, "bz2": bz2, "xz": lzma}.items():
        (tmp_path / f"{name}.{ending}").write_bytes(compress.compress(plain))
        assert read_matrix(tmp_path / f"{name}.{ending}") == EXPECTED
    with zipfile.ZipFile(tmp_path / "r.zip", "w") as archive:
        archive.writestr(f"folder/{name}", plain)
    assert read_matrix(tmp_path / "r.zip") == EXPECTED


def test_an_archive_of_several_files_and_a_cut_file_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "r.zip", "w") as archive:
        for name in ("a.csv", "b.csv"):
            archive.writestr(name, "1,2,3\n")
    with pytest.raises(UnreadableFile, match=r"2 files \(a.csv, b.csv"):
        read_matrix(tmp_path / "r.zip")
    for compress in (gzip, bz2, lzma):
        with pytest.raises(UnreadableFile, match="damaged"):
            read_matrix(write(tmp_path, compress.compress(b"user,item,rating\n1,30,4\n")[:-9]))


def test_ids_that_differ_by_spaces_alone_are_one_id(tmp_path: Path) -> None:
    def read(content: str, **options: Any) -> tuple[list[str], list[str]]:
        matrix = read_matrix(write(tmp_path, content), **options)
        return list(matrix.rows), list(matrix.columns)

    lines = HEADER + 'ann, big,3\nbob,"big ",4\nbob,#1,5\n'
    assert read(lines) == (["ann", "bob"], ["#1", "big"])
    wide = "id, q1,q2\n ann,1, 2\nbob ,3,\n"
    assert read(wide, wide=True) == (["ann", "bob"], ["q1", "q2"])
    lists = "ann\tbig \tup\nbob\t big\n"
    assert read(lists, form="lists") == (["ann", "bob"], ["big", "up"])
    with pytest.raises(DuplicateEntries, match="line 3"):
        read(HEADER + "ann,big,3\nann, big,4\n")
    with pytest.raises(BadEntries, match="line 3: the column id"):
        read(HEADER + "ann,big,3\nann, ,4\n")


def test_ids_that_differ_by_spaces_alone_are_named_where_a_file_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "entries.parquet"
    rows = ["ann", " ann", "bob"]
    pl.DataFrame({"user": rows, "film": ["big"] * 3, "stars": [1, 2, 3]}).write_parquet(path)
    with pytest.warns(DeepMFWarning, match="1 row ids"):
        assert list(read_matrix(path).rows) == [" ann", "ann", "bob"]


VISITS = "timestamp,visitorid,event,itemid,transactionid\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            f"{VISITS}1433221332117,25,view,355,\n1433224214164,99,view,248,\n",
            "'view' is not a number .*'visitorid' is taken as the row, 'itemid' as the column.*=None",
        ),
        ("user,item,note\nann,big,\nbob,big,3\n", "missing.*'note' as the value.*value=None"),
        (
            "1433221332117,25,view,355\n1433224214164,25,view,248\n",
            "before.*field 1 is taken as the row, field 2 as the column .*value=None",
        ),
        (
            "ann\t2009-05-04T23:08:57Z\tDeep\tUp\nbob\t2009-05-04T13:54:10Z\tMoby\tHonor\n",
            "'Up' is not.* field 2 as the column.*value=None",
        ),
    ],
)
def test_events_without_values_hint_at_interactions(
    tmp_path: Path, content: str, message: str
) -> None:
    path = write(tmp_path, content, "events")
    with pytest.raises(BadEntries, match=message):
        read_matrix(path)
    assert not read_matrix(path, value=None).has_values


def write(folder: Path, content: str | bytes, name: str = "ratings.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_columns_by_name_and_position(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c,d\n9,4,30,1\n9,2.5,30,2\n9,1,10,2\n")
    assert read_matrix(path, row="d", column="c", value="b") == EXPECTED
    assert read_matrix(path, row=3, column=2, value=1) == EXPECTED
    numeric_header = write(tmp_path, "1,2,3\n1,30,4\n2,30,2.5\n2,10,1\n")
    assert read_matrix(numeric_header, header=True) == EXPECTED


def test_ids_are_kept_as_given(tmp_path: Path) -> None:
    for content, rows, columns in (
        ('"Ng, A.","The ""It""",3\nBo,Käse,4\n', ["Bo", "Ng, A."], ["Käse", 'The "It"']),
        ("007,1,3\n12,2,4\n", ["007", "12"], [1, 2]),
    ):
        matrix = read_matrix(write(tmp_path, HEADER + content))
        assert (list(matrix.rows), list(matrix.columns)) == (rows, columns)
    # a quotation mark in a tab-separated file is a character
    tabs = read_matrix(write(tmp_path, 'a\t"Weird\t5\nb\t"Odd"\t3\n', "films.tsv"))
    assert tabs.column_labels.tolist() == ['"Odd"', '"Weird']


@pytest.mark.parametrize(
    "content, options, row, column, warned",
    [
        # An index and numbers for names, as pandas writes a frame without names.
        (",0,1,2\n0,700,a,4\n1,7,b,3\n2,700,b,5\n", {}, [7, 700], ["a", "b"], "'0' is taken as the row"),
        # Ids beside gaps, which made floats of them.
        ("user,item,rating\n17850.0,a,4\n,a,3\n12.0,b,5\n", {"missing": "drop"}, [12, 17850], ["a", "b"], "17850.0"),
        ("user,item,rating\n1.0,a,4\n1.5,b,5\n", {}, ["1.0", "1.5"], ["a", "b"], None),
        # Times are no items.
        ("order_date,customer_id,sku\n2024-01-01,7,30\n2024-01-02,8,31\n", {"value": None}, [7, 8], [30, 31], None),
        ("order_date,client,thing\n2024-01-01,7,A\n2024-01-02,8,B\n", {"value": None}, [7, 8], ["A", "B"], "'thing'"),
        # Dates that may be read in two ways.
        ("user,item,rating,date\nann,a,4,31/12/2023\nbob,b,5,01/02/2024\n", {}, ["ann", "bob"], ["a", "b"], "31/12"),
        ('{"user": 7, "item": "a", "rating": 4}\n{"user": 8, "item": "b", "rating": 5}', {}, [7, 8], ["a", "b"], None),
    ],
)  # fmt: skip
def test_which_columns_hold_ids(
    tmp_path: Path,
    content: str,
    options: dict[str, Any],
    row: list[Any],
    column: list[Any],
    warned: str | None,
) -> None:
    path = write(tmp_path, content, "r.json" if content[0] == "{" else "r.csv")
    with nullcontext() if warned is None else pytest.warns(DeepMFWarning, match=warned):
        matrix = read_matrix(path, **options)
    assert matrix.row_labels.tolist() == row and matrix.column_labels.tolist() == column


@pytest.mark.parametrize("header", ["", "user,item,plays\n"])
def test_counts_hint_at_the_option_that_reads_them(tmp_path: Path, header: str) -> None:
    counts = [1, 1, 2, 3, 1, 40, 2, 7312]
    lines = "".join(f"{at % 3},{at},{count}\n" for at, count in enumerate(counts))
    path = write(tmp_path, header + lines)
    with pytest.warns(DeepMFWarning) as given:
        read_matrix(path)
    assert sum("--count" in str(each.message) for each in given) == 1
    assert read_matrix(path, count=2).n_entries == len(counts)
    read_matrix(
        write(tmp_path, header.replace("plays", "rating") + lines.replace("7312", "5")), value=2
    )


@pytest.mark.parametrize("name", ["ratings.jsonl", "rat*[1]ngs.NDJSON"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    lines = (4, 1, 30), (2.5, 2, 30), (1, 2, 10), (None, 1, 10)
    named = [dict(zip(("rating", "user", "item"), line, strict=True)) for line in lines]
    path.write_text("\n\n".join(map(json.dumps, named)))
    assert read_matrix(path, missing="drop") == EXPECTED
    assert read_matrix(path, row="user", column=2, value="rating", missing="drop") == EXPECTED
    with pytest.raises(BadEntries, match="value|missing"):
        read_matrix(path)
    path.write_text('{"rating": 4, "user": 1, "it')
    with pytest.raises(UnreadableFile, match="lines"):
        read_matrix(path)


@pytest.mark.parametrize(
    "name, content, error, message",
    [
        ("e.csv", "", UnreadableFile, "empty"),
        ("e.csv", "\n\n", UnreadableFile, "empty"),
        ("h.csv", HEADER, UnreadableFile, "entries"),
        ("f.csv", "user,item,rating,when\n1,2,3\n", UnreadableFile, "the header 4"),
        ("two.csv", "item,rating\n1,2\n", BadEntries, "columns are needed"),
        ("v.csv", HEADER + "1,2,3\n2,2,four\n", BadEntries, "'four'"),
        ("n.csv", HEADER + "1,2,3\n2,2,nan\n", BadEntries, "missing='drop'"),
        ("i.csv", "1,2,3\n2,2,inf\n", BadEntries, "line 2: .*inf"),
        ("m.csv", HEADER + "1,2,3\n2,2,\n", BadEntries, "line 3"),
        ("s.csv", HEADER + "1,2,3\n2,2\n", BadEntries, "line 3"),
        ("r.csv", HEADER + "1,2,3\n,2,4\n", BadEntries, "line 3"),
        ("c.csv", HEADER + "ann,x,3\nbob,,4\n", BadEntries, "line 3"),
        ("l.csv", HEADER + "1,2,3\n1,3,3,4\n", UnreadableFile, "more"),
        ("t.csv", "user,user,rating\n1,2,3\n", UnreadableFile, "twice"),
        ("u.csv", b"user,item,rating\nJos\x81,2,3\nA,1,2\n", UnreadableFile, "UTF-8"),
        ("u.csv", HEADER.encode() + b"a,1,2\n" * 500 + b"Jos\x81,2,3\n", UnreadableFile, "UTF-8"),
        ("p.parquet", "not parquet at all", UnreadableFile, "Parquet"),
        ("q.npz", "not a zip", UnreadableFile, ".npz"),
        ("array.json", '[{"user": 1, "item": 2, "rating": 3}]', UnreadableFile, "JSON lines"),
        ("array.jsonl", '\n [\n{"user": 1, "item": 2, "rating": 3}]', UnreadableFile, "JSON lines"),
    ],
)
def test_bad_files(
    tmp_path: Path, name: str, content: str | bytes, error: type[Exception], message: str
) -> None:
    path = write(tmp_path, content, name)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error, match=message) as caught:
        read_matrix(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1, 2, 2], "item": [30, 30, 10], "rating": [4.0, 2.5, 1.0]})
    for ending, content in (("csv", frame.write_csv), ("parquet", frame.write_parquet)):
        content(tmp_path / "named")
        path = (tmp_path / "named").rename(
            Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff." + ending.encode()))
        )
        assert read_matrix(path) == EXPECTED


@pytest.mark.parametrize("late", ["+7", "007", "-0", "12345678901234567890", "1٣"])
def test_types_are_decided_by_all_lines(tmp_path: Path, late: str) -> None:
    lines = "".join(f"{k},{k},{k % 5}\n" for k in range(300))
    for content in (f"{lines}{late},1,1\n", f"{late},1,1\n{lines}"):
        kept = read_matrix(write(tmp_path, HEADER + content))
        assert kept.rows.find([late, "7", "0"]).min() >= 0
        assert kept.shape == (301, 300)
        assert kept.column_labels.dtype == np.int64


def test_parquet_integers_of_128_bits(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    frame = pl.DataFrame({"user": [1, 2, 2], "item": [30, 30, 10], "rating": [4, 3, 1]}).cast(
        pl.Int128
    )
    frame.write_parquet(path)
    assert read_matrix(path).entries().values.tolist() == [4, 1, 3]
    frame.with_columns(user=pl.Series([1, 2, 2**100], dtype=pl.Int128)).write_parquet(path)
    with pytest.raises(BadEntries, match="64 bits"):
        read_matrix(path)


def test_sparse_matrices(tmp_path: Path) -> None:
    def read(matrix: Any) -> ObservedMatrix:
        scipy.sparse.save_npz(tmp_path / "m.npz", matrix)
        return read_matrix(tmp_path / "m.npz")

    # stored zeros and empty columns stay
    cells = np.array([0, 2]), (np.array([0, 1]), np.array([0, 2]))
    matrix = read(scipy.sparse.csr_array(cells, shape=(2, 5)))
    assert (matrix.shape, matrix.entries().columns.tolist()) == ((2, 5), [0, 2])
    with pytest.raises(BadEntries, match=r"\(3,\)"):
        read(scipy.sparse.coo_array(np.array([1.0, 0, 2])))
    with pytest.raises(BadEntries, match="complex128"):
        read(scipy.sparse.csr_array(np.array([[1 + 2j, 0], [0, 3]])))
    with pytest.raises(BadEntries, match="nan"):
        read(scipy.sparse.coo_array(np.array([[1.0, 0], [np.nan, 2.0]])))
    for indices, indptr in (([0, 7], [0, 1, 2]), ([0, 1], [0, 2, 1])):  # outside; falling
        parts: Any = {"shape": (2, 2), "data": [1.0, 2.0], "indices": indices, "indptr": indptr}
        np.savez(tmp_path / "m.npz", format=b"csr", **parts)
        with pytest.raises(UnreadableFile, match="whole"):
            read_matrix(tmp_path / "m.npz")
    np.save(tmp_path / "table.npy", np.ones((2, 2)))
    with pytest.raises(UnreadableFile, match="from_array"):
        read_matrix(tmp_path / "table.npy")


def test_the_rows_of_a_sparse_matrix_take_few_bytes_each(tmp_path: Path) -> None:
    n_rows = 10**6
    cells = np.array([1.0, 2, 3]), (np.array([0, 5, n_rows - 1]), np.array([0, 4, 1]))
    scipy.sparse.save_npz(tmp_path / "tall.npz", scipy.sparse.coo_array(cells, shape=(n_rows, 5)))
    tracemalloc.start()
    matrix = read_matrix(tmp_path / "tall.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (matrix.shape, matrix.entries().rows.tolist()) == ((n_rows, 5), [0, 5, n_rows - 1])
    assert peak < 16 * n_rows


def test_files_that_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepmf.data.source.ALWAYS_ALLOWED", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", bytes(4 << 20))
    ones = pl.repeat(1, 2_000_000, eager=True)
    frame = pl.DataFrame({"user": ones, "item": ones, "rating": ones})
    frame.write_parquet(tmp_path / "bomb.parquet")
    for name in ("bomb.npz", "bomb.parquet"):
        with pytest.raises(UnreadableFile, match="250"):
            read_matrix(tmp_path / name)


def test_a_panic_of_polars_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.parquet"
    pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1, 2]}).write_parquet(path)

    def panic(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("assertion failed: offset + length <= self.length")

    monkeypatch.setattr(pl.LazyFrame, "collect", panic)
    with pytest.raises(UnreadableFile, match="assertion"):
        read_matrix(path)


def test_an_npz_with_a_pickle_is_refused(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    np.savez(tmp_path / "bomb.npz", format=np.array([Bomb()], dtype=object))
    with pytest.raises(UnreadableFile, match="pickle"):
        read_matrix(tmp_path / "bomb.npz")
    assert not (tmp_path / "exploded").exists()


def test_paths_that_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nothing.csv", "nothing.npz"):
        with pytest.raises(FileAbsent, match=name):
            read_matrix(tmp_path / name)
    with pytest.raises(UnreadableFile, match="is a directory"):
        read_matrix(tmp_path)
    path = write(tmp_path, HEADER + "1,2,3\n")
    if os.geteuid() == 0:  # root may read everything: let the opening fail as it does for others

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
    path.chmod(0)
    with pytest.raises(UnreadableFile, match="Permission"):
        read_matrix(path)


def test_lines_without_a_value_are_counted_or_dropped(tmp_path: Path) -> None:
    messy = write(tmp_path, HEADER + "1,10,4\n1,20,NA\n2,10,\n,20,3\n2,20,null\n3,20,5\n", "m.csv")
    with pytest.raises(BadEntries, match="4 of 6"):
        read_matrix(messy)
    with pytest.raises(BadSetting, match="'zero'"):
        read_matrix(messy, missing="zero")  # type: ignore[arg-type]
    matrix, notes = read_entry_file(messy, ReadOptions(missing="drop"))
    rows, columns, values = (part.tolist() for part in matrix.entries())
    assert (rows, columns, values) == ([1, 3], [10, 20], [4, 5])
    assert (notes.n_dropped, matrix.row_labels.dtype) == (4, np.int64)
    with pytest.raises(OffScale, match="line 7"):  # its line in the file
        read_matrix(messy, missing="drop", scale=Scale([1, 2, 3, 4]))
    path = tmp_path / "r.parquet"
    values_with_gaps = [1.5, float("nan"), None]
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 2], "rating": values_with_gaps})
    frame.write_parquet(path)
    with pytest.raises(BadEntries, match="missing"):
        read_matrix(path)
    assert read_matrix(path, missing="drop", scale=Scale(low=0, high=2)).n_entries == 1
    with pytest.raises(UnreadableFile, match="entries"):
        read_matrix(write(tmp_path, HEADER + "1,10,NA\n"), missing="drop")


@pytest.mark.parametrize(
    ("content", "separator"),
    [
        ("user;item;rating\n1;10;4,5\n2;10;3\n", ";"),
        ('user,item,rating\n1,10,"4,5"\n2,10,3\n', ","),
        ("1;10;4,5\n2;10;3\n", ";"),
    ],
)
def test_decimal_commas(tmp_path: Path, content: str, separator: str) -> None:
    path = write(tmp_path, content)
    assert read_matrix(path, decimal=",").values.tolist() == [4.5, 3]
    with pytest.raises(BadEntries, match="decimal"):
        read_matrix(path, separator=separator)


TABLE = pl.DataFrame({"id": ["ann", "bob"], "q1": [1, None], "q2": [2, 3], "q3": [None, 5]})

ARRAY = [[1, 2, np.nan], [np.nan, 3, 5]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "id,q1,q2,q3\nann,1,2,\nbob,NA,3,5\n"),
        ("t.tsv", "id\tq1\tq2\tq3\nann\t1\t2\t\nbob\tnull\t3\t5\n\n"),
        ("t.txt", "id;q1;q2;q3\nann;1;2;\nbob;?;3;5\n"),
    ],
)
def test_text(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    matrix = read_matrix(tmp_path / name, wide=True)
    np.testing.assert_array_equal(matrix.to_array(), ARRAY)
    assert (list(matrix.rows), list(matrix.columns)) == (["ann", "bob"], ["q1", "q2", "q3"])
    assert matrix.form.wide and matrix.form.row == "id"
    matrix.write(tmp_path / "again.csv")
    assert read_matrix(tmp_path / "again.csv", wide=True) == matrix


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_typed_files_and_chosen_rows(tmp_path: Path, ending: str) -> None:
    frame, path = TABLE.select("q1", "id", "q2", "q3"), tmp_path / f"t.{ending}"
    frame.write_parquet(path) if ending == "parquet" else frame.write_ndjson(path)
    np.testing.assert_array_equal(read_matrix(path, row="id", wide=True).to_array(), ARRAY)
    np.testing.assert_array_equal(read_matrix(path, row=1, wide=True).to_array(), ARRAY)


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("country,2019,2020\nFR,1.5,2.5\nDE,4.5,1\n", ["2019", "2020"]),  # years count up
        ("id,3,3.5\n1,1.5,2.5\n2,4.5,1\n", ["3", "3.5"]),  # a heading
        ("FR,2.5,1.5\nDE,4.5,1\n", ["1", "2"]),  # no header: positions
        ("1,2.5,1.5\n2,4.5,1\n", ["1", "2"]),
    ],
)
def test_headers(tmp_path: Path, content: str, columns: list[str]) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert read_matrix(tmp_path / "t.csv", wide=True).column_labels.tolist() == columns


def test_decimal_commas_and_the_guess_of_a_wide_file(tmp_path: Path) -> None:
    matrix = read_matrix(write(tmp_path, "7;3,5;2\n8;1;\n"), wide=True, decimal=",")
    assert (list(matrix.rows), matrix.values.tolist()) == ([7, 8], [3.5, 2, 1])
    path = write(tmp_path, "id,q1,q2\nann,1,2\nbob,,3\n")
    guess = read_entry_file(path, ReadOptions(wide=True)).notes.guess
    assert guess is not None and guess.startswith("'id' holds the row ids")
    assert read_entry_file(path, ReadOptions(row="id", wide=True)).notes.guess is None


@pytest.mark.parametrize(
    ("content", "options", "error", "message"),
    [
        ("id,a,b\n1,2,good\n", {}, BadEntries, "'good'"),
        ("id,a,b\n1,2,3\n,3,4\n", {}, BadEntries, "line 3"),
        ("id,a,b\n1,2,3\n1,3,4\n", {}, BadEntries, "'id'"),
        ("a,b,c\n1.5,2,3\n2,3,4\n", {}, BadEntries, "row="),
        ("a,b,c\n1,2,3\n,3,4\n", {}, BadEntries, "'a'"),
        ("id,a,b\n1,2,3\n1,3,4\n", {"row": "id"}, BadEntries, "are repeats"),
        ("id,a,b\n1,,\n2,NA,\n", {}, UnreadableFile, "entries"),
        ("id,a,b\n1,2,3\n", {"row": "x"}, BadEntries, "'x'"),
        ("id,a,b\n1,2,3\n", {"column": "a"}, BadSetting, "'a'"),
        ("id\n1\n", {}, UnreadableFile, "row"),
    ],
)
def test_what_does_not_fit(
    tmp_path: Path, content: str, options: dict[str, str], error: type[Exception], message: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(error, match=message):
        read_matrix(tmp_path / "t.csv", wide=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[1, 1], [1, None], [0.5, 1.0], ["1.5", "2"]])
def test_a_typed_table_without_ids_is_refused(tmp_path: Path, ids: list[object]) -> None:
    pl.DataFrame({"a": ids, "b": [1, 2], "c": [2, 2]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(BadEntries, match="'a'"):
        read_matrix(tmp_path / "t.parquet", wide=True)


def test_utf_16(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("user,film,stars\nann,Käse,5\nbob,Big,3\n".encode("utf-16"))
    assert read_matrix(tmp_path / "t.csv").column_labels.tolist() == ["Big", "Käse"]
    (tmp_path / "cut.csv").write_bytes((tmp_path / "t.csv").read_bytes()[:-1])
    with pytest.raises(UnreadableFile, match="cut.csv"):
        read_matrix(tmp_path / "cut.csv")
