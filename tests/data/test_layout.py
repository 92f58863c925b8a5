"""The layout of text files: header, separator, and wide tables that would pass for entries."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from deepmf.data import read_matrix
from deepmf.data.layout import COLUMNS, ENTRIES, HISTORY, PAIRS, ROWS, LineKind
from deepmf.errors import BadEntries, GuessedColumns, UnreadableFile
from deepmf.matrix.scale import Scale


@pytest.mark.parametrize(
    ("first", "rest", "expected"),
    [
        ("user,item,rating", "1,10,4", True),
        ("u,i,2020", "1,10,4", True),
        ("u,i,2020", "ann,Alien,4", True),
        ("member,film,2020", "1,10,4", True),  # words where all that follow are numbers
        ("member,thing,points", "ann,Alien,4", True),
        ("userId,itemId,", "ann,Alien,4", True),
        (",a,b", "0,10,4", True),
        ("ann,Alien,4", "bob,Big,3", False),
        ("ann,Alien,", "bob,Big,3", False),  # an entry whose value is missing
        ("ann,Alien,NA", "bob,Big,3", False),
        ("1,10,", "2,10,3", False),
        ("1,10,x", "2,10,3", False),
        ("1,1,1", "2,10,3", False),
        ("x9,5,4", "1,2,3", False),
    ],
)
def test_headers_of_entries(first: str, rest: str, expected: bool) -> None:
    assert ENTRIES.is_header(first.split(","), [rest.split(",")], lambda _: False) is expected


KNOWN = ("ann", "Alien", "book")


@pytest.mark.parametrize(
    ("kind", "headers", "others"),
    [
        # ann is known
        (
            PAIRS,
            ["user,item", "item,when,user", "who,what"],
            ["ann,what", "who,7", "who,", "007,x"],
        ),
        (HISTORY, ["title,stars", "title,points", "item,2020"], ["Alien,4", "Alien,", "Alien,NA"]),
        # an unknown id is to be refused, not left out
        (
            COLUMNS,
            ["film", "title,how much", "user,item,rating"],
            ["Alien", "Nobody's film", "book", "7"],
        ),
        (ROWS, ["user", "name,age", "user,item,rating"], ["ann", "Nobody", "7"]),
    ],
)
def test_headers_of_other_lines(kind: LineKind, headers: list[str], others: list[str]) -> None:
    for line in (*headers, *others):
        assert kind.is_header(line.split(","), [], lambda text: text in KNOWN) is (
            line in headers
        ), line


QUESTIONS = [f"A{k}" for k in range(1, 29)]

WIDE = {
    "many.csv": f"id,{','.join(QUESTIONS)}\n" + "".join(f"{k}{',3' * 28}\n" for k in range(5)),
    "holes.csv": "who,a,b,c\nann,1,,3\nbob,2,3,\n",
    "few.csv": "respondent,q1,q2,q3\n1,4,5,3\n2,5,5,4\n3,1,2,2\n",
    "years.csv": "country,2019,2020,2021\nFR,1.5,2.5,3.5\nDE,4.5,1.0,2.0\n",
    "tabs.tsv": "id\tx\ty\tz\n7\t0.5\t1.5\t2.5\n8\t1.5\t0.25\t9\n",
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_tables_are_refused_with_the_way_to_read_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(WIDE[name])
    with pytest.raises(UnreadableFile, match="wide=True"):
        read_matrix(path)
    matrix = read_matrix(path, wide=True, scale=Scale(low=0, high=10))
    n_columns = WIDE[name].splitlines()[0].replace("\t", ",").count(",")
    assert matrix.shape == (WIDE[name].count("\n") - 1, n_columns)


def test_a_wide_parquet_file_is_refused_and_named_columns_are_read(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], **{name: [1.0, None, 3.0] for name in QUESTIONS}})
    frame.write_parquet(tmp_path / "wide.parquet")
    with pytest.raises(UnreadableFile, match="wide=True"):
        read_matrix(tmp_path / "wide.parquet")
    (tmp_path / "few.csv").write_text(WIDE["few.csv"])
    assert read_matrix(tmp_path / "few.csv", column="q1", value="q2").column_labels.tolist() == [
        1,
        4,
        5,
    ]
    assert read_matrix(tmp_path / "few.csv", column=1, value=2).n_entries == 3


@pytest.mark.parametrize(
    "content",
    [
        # columns that reach unequally far
        "member,thing,stars,moment\n1,310,4,881250949\n2,20,5,881250950\n",
        "1\t30\t4\t881250949\n2\t31\t3\t891717742\n",
        "userId,movieId,rating,a,b,c,d,e\n1,2,3,4,5,6,7,8\n2,2,4,4,5,6,7,8\n",  # usual names
        "a,b,c,d\n1,2,3,x\n1,3,4,y\n",  # a row twice
        "who,what,points,extra\nann,Alien,3,x\nbob,Big,4,4\n",  # the second column holds words
    ],
)
@pytest.mark.filterwarnings("ignore::deepmf.errors.GuessedColumns")
def test_what_has_a_line_per_entry_is_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "r.txt").write_text(content)
    read = read_matrix(tmp_path / "r.txt", duplicates="last")
    assert read.n_entries == 2
    assert sorted(read.values.tolist()) in ([3, 4], [4, 5])


@pytest.mark.parametrize(
    "content, found",
    [
        ("timestamp,user_id,item_id,plays\n881250949,1,10,4\n881250950,1,20,2\n", [4, 2]),
        ("day,visitor,page,seconds\n2024-05-01,1,10,4\n2024-05-02,1,20,2\n", [4, 2]),
        ("user,item,moment,plays\n1,10,1700000000000,4\n1,20,1700000000001,2\n", [4, 2]),
        ("userID,artistID,sessionID,weight\n1,10,7,4\n1,20,8,2\n", [4, 2]),
    ],
)
def test_times_and_ids_are_no_values_and_a_guess_is_a_warning(
    tmp_path: Path, content: str, found: list[int]
) -> None:
    (tmp_path / "r.csv").write_text(content)
    with pytest.warns(GuessedColumns, match="value"):
        assert read_matrix(tmp_path / "r.csv").values.tolist() == found


@pytest.mark.parametrize(
    "content, words",
    [
        ("user_id,item_id,timestamp\n1,10,881250949\n2,20,881250950\n", "'timestamp'"),
        ("1,10,881250949\n2,20,881250950\n", "time"),
        ("user,item,seen_at\nann,Alien,2024-05-01\nbob,Big,2024-05-02\n", "'seen_at'"),
        ("user,item,session_id\n1,10,3\n2,20,4\n", "'session_id'"),
        ("order_date,customer_id,sku\n2024-01-01,7,A\n2024-01-02,8,B\n", "'order_date'"),
        ("user,item,plays,skips\n1,10,3,1\n2,20,4,2\n", "'skips'"),
    ],
)
def test_a_file_without_a_clear_column_of_values_is_refused(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "r.csv").write_text(content)
    with pytest.raises(BadEntries, match=words) as caught:
        read_matrix(tmp_path / "r.csv")
    assert "value=None" in str(caught.value)
    assert read_matrix(tmp_path / "r.csv", value=None).shape == (2, 2)
