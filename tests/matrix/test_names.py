"""Names of rows and columns: what they are read from, and what is refused."""

import polars
import pytest

from deepmf.errors import BadSetting
from deepmf.matrix import TableForm
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labels
from deepmf.matrix.names import Names, choose_name_field, join_names, read_names, take_names_from

FILMS = polars.DataFrame({"year": [1979, 1988], "film": [7, 9], "title": ["Alien", "Big"]})
WANTED = {7: "Alien", 9: "Big"}


@pytest.mark.parametrize(
    "given",
    [
        WANTED,
        FILMS,
        FILMS.to_pandas(),
        FILMS.to_pandas().set_index("film"),
        FILMS.to_pandas().set_index("film")["title"],
        FILMS.to_arrow(),
        Features.from_frame(FILMS, "film"),
    ],
    ids=["dict", "polars", "pandas", "index", "series", "arrow", "features"],
)
def test_names_from_every_kind_of_table(given: object) -> None:
    assert dict(read_names(given, "column")) == WANTED


def test_missing_names_are_left_out_and_blanks_are_single() -> None:
    names = Names({1: None, 2: float("nan"), 3: " ", 4: "The \n Thing", 5: 1984}, axis="column")
    assert dict(names) == {4: "The Thing", 5: "1984"}
    assert names.find([5, 1]) == ["1984", None]
    assert names.without([4, 5]) is None


def test_later_names_replace_earlier_ones() -> None:
    labels = Labels([7, 8, 9], axis="column")
    joined = join_names(Names(WANTED, axis="column"), {9: "Big (1988)", 8: "Cube"}, labels)
    assert joined == {7: "Alien", 8: "Cube", 9: "Big (1988)"}
    assert join_names(joined, None, labels) is joined


@pytest.mark.parametrize("given", [{"7": "Alien"}, "title", 5], ids=["text ids", "text", "number"])
def test_names_of_nobody_are_refused(given: object) -> None:
    with pytest.raises(BadSetting, match="name"):
        join_names(None, given, Labels([7, 9], axis="column"))


def test_the_field_of_names() -> None:
    assert choose_name_field(("year", "Title")) == "Title"
    assert choose_name_field(("what",)) == "what"
    assert choose_name_field(("field 1", "field 2")) == "field 1"
    for fields in (("year", "director"), ()):
        with pytest.raises(BadSetting, match="clear"):
            choose_name_field(fields)


def test_a_feature_of_names_is_not_a_feature() -> None:
    features, names = take_names_from(Features.from_frame(FILMS, "film"), "title")
    assert features is not None and features.names == ("year",)
    assert names == WANTED
    alone, _ = take_names_from(Features.from_frame(FILMS.select("film", "title"), "film"), "title")
    assert alone is None
    for given in (None, Features.from_frame(FILMS, "film")):
        with pytest.raises(BadSetting, match="director"):
            take_names_from(given, "director")


def test_nouns_of_fields() -> None:
    assert TableForm("user_id", "movieId").nouns == ("user", "movie")
    assert TableForm("userid", "joke").nouns == ("user", "joke")
    assert TableForm("ID", "1").nouns == ("row", "column")
