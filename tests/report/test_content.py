"""Templates: whatever is not markup already is escaped, wherever it goes, and nothing is left out
in silence."""

import pytest
from jinja2 import UndefinedError
from tests.report.conftest import lines_of

from deepmf.plots import plot_bars
from deepmf.report.content import (
    Figure,
    LeftOut,
    Section,
    Table,
    render_page,
    render_template,
    shorten,
)

EVIL = """<script>alert("1")</script>&'"""
TABLE = Table(EVIL, [EVIL, EVIL], [[EVIL, EVIL]])
FIGURE = Figure(EVIL, plot_bars([EVIL], {EVIL: [1.0], "other": [2.0]}), EVIL, numbers=TABLE)
WIDE = Table(EVIL, [EVIL] * 5, [[EVIL] * 5], in_words=True)


def test_nothing_gets_through() -> None:
    section = Section(EVIL, EVIL, [FIGURE], [TABLE, WIDE], [EVIL], [(EVIL, EVIL)])
    page = render_page(
        EVIL, EVIL, [section, LeftOut(EVIL, EVIL)], cautions=[EVIL], tiles=[(EVIL, EVIL)]
    )
    assert "<script" not in page
    assert '"&gt;' not in page  # what would leave an attribute
    assert page.count("&lt;script&gt;alert(") > 25


def test_what_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="title"):
        render_template("page.html")


def test_tables_name_their_lines_and_columns() -> None:
    shown = Table("Sizes", ["part", "entries"], [["train", "3"], ["test", "1"]])
    page = render_page("title", "summary", [Section("section", "how", tables=[shown])])
    assert page.count('<th scope="col">') == 2
    assert page.count('<th scope="row"><bdi>') == 2
    assert lines_of(page, "Sizes") == [["part", "entries"], ["train", "3"], ["test", "1"]]


def test_labels_are_cut_before_they_are_escaped() -> None:
    assert shorten("x" * 80) == "x" * 80
    assert shorten("x" * 81) == f"{'x' * 79}…"
    assert shorten(("a", 1)) == "('a', 1)"
    page = render_page("&" * 1000, "", [])
    assert page.count("<h1><bdi>" + "&amp;" * 199 + "…</bdi></h1>") == 1  # never inside an escape
