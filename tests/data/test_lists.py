"""Lists and RecBole's files: what is read, what is recognised, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from deepmf import read_matrix
from deepmf.data.packing import pack
from deepmf.data.splits import split_last
from deepmf.errors import BadSetting, UnreadableFile, UserError
from deepmf.matrix.matrix import ObservedMatrix

LISTS = "0 7 3 5 4 1\n1 3\n2 5 7 \n3 \n"
PAIRS = [(0, 7), (0, 3), (0, 5), (0, 4), (0, 1), (1, 3), (2, 5), (2, 7)]
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"


def read(path: Path, content: str, **options: Any) -> ObservedMatrix:
    """Return the matrix of some text."""
    path.write_text(content)
    return read_matrix(path, **options)


def list_pairs(matrix: ObservedMatrix) -> list[tuple[Any, Any]]:
    """Return the entries without values, sorted."""
    rows, columns, _ = matrix.entries()
    return sorted(zip(rows.tolist(), columns.tolist(), strict=True))


@pytest.mark.parametrize(
    "content", [LISTS, LISTS.replace(" ", "\t"), LISTS.replace("\n", "\r\n"), LISTS.rstrip()]
)
def test_lists_are_recognised(tmp_path: Path, content: str) -> None:
    matrix = read(tmp_path / "train.txt", content)
    assert not matrix.has_values
    assert list_pairs(matrix) == sorted(PAIRS)
    assert list_pairs(pack(tmp_path / "train.txt", tmp_path / "train.store")) == sorted(PAIRS)


@pytest.mark.parametrize(
    ("content", "separator", "pairs"),
    [
        ("ann Alien Big\nbob Big\n", None, [("ann", "Alien"), ("ann", "Big"), ("bob", "Big")]),
        ("a,b c,d\n", ",", [("a", "b c"), ("a", "d")]),
        ("1 2 2\n2 2\n", None, [(1, 2), (2, 2)]),  # what is repeated is counted
    ],
)
def test_lists_that_are_asked_for(
    tmp_path: Path, content: str, separator: str | None, pairs: list[tuple[Any, Any]]
) -> None:
    matrix = read(tmp_path / "train.txt", content, form="lists", separator=separator)
    assert list_pairs(matrix) == pairs
    assert matrix.values.max() == (2 if pairs[0] == (1, 2) else 1)


def test_sequences_keep_the_order_of_a_line(tmp_path: Path) -> None:
    path, later = tmp_path / "played.txt", tmp_path / "later.txt"
    made = read(path, "ann Big Alien\nbob Alien\nann Heat\n", form="sequences")
    expected = ObservedMatrix.from_sequences({"ann": ["Big", "Alien", "Heat"], "bob": ["Alien"]})
    assert made == expected and made.extras.places is not None
    assert list_pairs(split_last(made).test) == [("ann", "Heat")]
    later.write_text("bob Big\nann Alien\n")
    packed = pack([path, later], tmp_path / "played.store", form="sequences")
    assert list_pairs(split_last(packed).test) == [("ann", "Alien"), ("bob", "Big")]
    again = pack([tmp_path / "played.store", later], tmp_path / "more.store", form="sequences")
    assert list_pairs(split_last(again).test) == list_pairs(split_last(packed).test)


@pytest.mark.parametrize(
    "content",
    [
        "1 7 3 881250949 2\n2 7 4 881250950 1\n",  # lines of one length
        "1 7 3\n1 8 4 5 6\n2 7 4\n",  # a row in two lines
        "1 7 3\n2 8\n3 9 4\n",  # a value is missing
    ],
)
def test_what_may_be_entries_is_not_read_as_lists(tmp_path: Path, content: str) -> None:
    try:
        assert read(tmp_path / "u.data", content, time=None).has_values
    except UserError as error:
        assert "value" in str(error) or "more columns" in str(error)


@pytest.mark.parametrize(
    ("content", "options", "error"),
    [
        ("1\n2\n", {"form": "lists"}, UnreadableFile),
        (" 7 8\n2 3\n", {"form": "lists"}, UnreadableFile),
        (LISTS, {"form": "lists", "value": 2}, BadSetting),
        (LISTS, {"form": "list"}, BadSetting),
        (LISTS, {"form": "inter"}, UnreadableFile),
        ("user,item\n1,2\n", {"form": "inter"}, UnreadableFile),
        ("user_id:token\titem_list:token_seq\titem_id:token\n1\t2 3\t4\n", {}, UnreadableFile),
    ],
)
def test_what_is_refused(
    tmp_path: Path, content: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(tmp_path / "train.txt", content, **options)


@pytest.mark.parametrize("form", [None, "inter"])
def test_recboles_files(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "ml-100k.inter"
    matrix = read(path, f"{INTER}196\t242\t3\t881250949\n186\t302\t4\t891717742\n", form=form)
    assert list_pairs(matrix) == [(186, 302), (196, 242)]
    assert matrix.form[:3] == ("user_id", "item_id", "rating")
    assert matrix.times is not None
    assert sorted(matrix.times.tolist()) == [881250949, 891717742]
    third = "user_id:token\ttimestamp:float\titem_id:token\nann\t881250949\tBig\n"
    for content in ("user_id:token\titem_id:token\nann\tBig\n", third):
        without = read(path, content, form=form)
        assert (without.has_values, list_pairs(without)) == (False, [("ann", "Big")])
    assert list_pairs(pack(path, tmp_path / "s", form=form)) == [("ann", "Big")]
