"""Pairs to predict: a known id in line 1, ids of the kind that the model has, standard input."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import polars
import pytest

from deepmf.cli.inputs import Reading
from deepmf.cli.pairs import read_pairs
from deepmf.errors import BadEntries, UnknownLabel, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.means import Means
from deepmf.models.model import Model


@pytest.fixture(scope="module")
def named() -> Model:
    return Means().fit(ObservedMatrix.from_entries(["ann", "ann", "7"], ["Big, the", "Alien", "Alien"], [1, 2, 3]))


@pytest.fixture(scope="module")
def numbered() -> Model:
    return Means().fit(ObservedMatrix.from_entries([1, 1, 2], [10, 20, 20], [1, 2, 3]))


def pairs_of(path: Path | str, model: Model, **names: str) -> list[tuple[object, object]]:
    rows, columns = read_pairs(Path(path), model, Reading(**names)).labels
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


@pytest.mark.parametrize(
    "content",
    [
        "user,item\nann,Alien\n7,Alien\n",
        "who,what\nann,Alien\n7,Alien\n",  # names that nobody knows are a header
        "item,user\nAlien,ann\nAlien,7\n",  # usual names say which is which
        "ann,Alien\n7,Alien\n",  # known ids are none
        "rating,item,user\n3,Alien,ann\n,Alien,7\n",  # a third is ignored
        "rating,who,what\n3,ann,Alien\n,7,Alien\n",
        "who,what,when\nann,Alien,2020\n7,Alien,2021\n",
        "ann\tAlien\n7\tAlien\n",
        "ann::Alien::3\n7::Alien::4\n",
        "ann;Alien\r\n7;Alien\r\n",
        "ann,Alien\n7,Alien\n\n\n",
        "\n\nuser,item\nann,Alien\n7,Alien\n",
        "\ufeffuser,item\nann,Alien\n7,Alien\n",  # the mark that spreadsheets write
    ],
)
def test_layouts(tmp_path: Path, named: Model, content: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(content, newline="")
    assert pairs_of(path, named) == [("ann", "Alien"), ("7", "Alien")]


@pytest.mark.parametrize("content", ["user,item\n1,10\n2,20\n", "1,10\n2,20\n", "1 10\n2 20\n", "1::10::5\n2::20::5\n"])
def test_numbers(tmp_path: Path, numbered: Model, content: str) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(content)
    assert pairs_of(path, numbered) == [(1, 10), (2, 20)]


def test_chosen_names(tmp_path: Path, numbered: Model) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("user|b|c\n9|10|1\n9|20|2\n")
    assert pairs_of(path, numbered, row="c", column="b") == [(1, 10), (2, 20)]
    assert pairs_of(path, numbered, row="2", column="1", separator="|") == [(1, 10), (2, 20)]


def test_parquet_ids_become_of_the_kind_that_the_model_has(tmp_path: Path, named: Model, numbered: Model) -> None:
    path = tmp_path / "pairs.parquet"
    polars.DataFrame({"user": ["1", "2"], "item": [10, 20]}).write_parquet(path)
    assert pairs_of(path, numbered) == [(1, 10), (2, 20)]
    polars.DataFrame({"item": ["Alien"], "user": [7]}).write_parquet(path)
    assert pairs_of(path, named) == [("7", "Alien")]


def test_standard_input(monkeypatch: pytest.MonkeyPatch, numbered: Model) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"user,item\n2,10\n")))
    assert pairs_of("-", numbered) == [(2, 10)]
    with pytest.raises(UnreadableFile, match="standard input is empty"):
        pairs_of("-", numbered)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"user,item\n1,10\none,20\n", UnknownLabel, "row 'one' is not known; the model's rows are whole numbers"),
        (b"user,item\n1,10\n,20\n", BadEntries, "pair 1 has no row id"),
    ],
)
def test_bad_ids(tmp_path: Path, numbered: Model, content: bytes, error: type[Exception], message: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(content)
    with pytest.raises(error, match=message):
        pairs_of(path, numbered)


def test_ids_of_a_type_that_no_model_has(tmp_path: Path, numbered: Model) -> None:
    path = tmp_path / "pairs.parquet"
    polars.DataFrame({"user": [[1]], "item": [10]}).write_parquet(path)
    with pytest.raises((BadEntries, UnknownLabel)):
        pairs_of(path, numbered)


@pytest.mark.parametrize("other", ["007", "+1", "1_0", "-0", "1٣", "99999999999999999999"])
def test_ids_are_parsed_strictly(tmp_path: Path, numbered: Model, other: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(f"user,item\n{other},10\n")
    with pytest.raises(UnknownLabel, match="is not known; the model's rows are whole numbers"):
        pairs_of(path, numbered)


def test_ids_of_19_digits(tmp_path: Path) -> None:
    large = 1234567890123456789
    model = Means().fit(ObservedMatrix.from_entries([large, 2], [1, 2], [1, 2]))
    path = tmp_path / "pairs.csv"
    path.write_text(f"user,item\n{large},1\n")
    assert pairs_of(path, model) == [(large, 1)]


def test_a_first_pair_with_a_gap_is_no_header(tmp_path: Path, named: Model) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("zed,\nann,Alien\n")
    with pytest.raises(BadEntries, match="pair 0 has no column id"):
        pairs_of(path, named)
