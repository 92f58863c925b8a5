"""The roles of files: what each needs, and whether line 1 is a header."""

import pytest

from deepmf.data.roles import COLUMNS, ENTRIES, HISTORY, PAIRS, ROWS


def test_what_a_line_must_hold() -> None:
    assert ENTRIES.needed == "a row, a column and a value"
    assert PAIRS.needed == "a row and a column"
    assert HISTORY.needed == "a column and a value"
    assert COLUMNS.needed == "a column"


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


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("user,item", True),
        ("item,when,user", True),
        ("who,what", True),
        ("ann,what", False),  # ann is known
        ("who,7", False),
        ("who,what,2020", False),
        ("who,", False),
        ("who,what,", True),
        ("007,x", True),  # no whole number
    ],
)
def test_headers_of_pairs(first: str, expected: bool) -> None:
    assert PAIRS.is_header(first.split(","), [], lambda text: text == "ann") is expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("title,stars", True),
        ("title,points", True),
        ("item,2020", True),
        ("Alien,4", False),
        ("Alien,", False),
        ("Alien,NA", False),
        ("user,title,7", False),
    ],
)
def test_headers_of_histories(first: str, expected: bool) -> None:
    assert HISTORY.is_header(first.split(","), [], lambda _: False) is expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("film", True),
        ("title,how much", True),
        ("user,item,rating", True),
        ("Alien", False),
        ("Nobody's film", False),  # an unknown id, which is to be refused
        ("book", False),  # known
        ("7", False),
    ],
)
def test_headers_of_columns(first: str, expected: bool) -> None:
    assert COLUMNS.is_header(first.split(","), [], lambda text: text in ("Alien", "book")) is expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [("user", True), ("name,age", True), ("user,item,rating", True), ("ann", False), ("Nobody", False), ("7", False)],
)
def test_headers_of_rows(first: str, expected: bool) -> None:
    assert ROWS.is_header(first.split(","), [], lambda text: text == "ann") is expected
