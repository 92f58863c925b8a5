"""Markup: whatever is not markup already is escaped, wherever it goes."""

import pytest

from deepmf.report.markup import Markup, figure, join, label, paragraph, table, tag

EVIL = """<script>alert("1")</script>&'"""


@pytest.mark.parametrize(
    "written",
    [
        tag("p", EVIL),
        tag("p", tag("b", EVIL)),
        tag("p", class_=EVIL),
        join([EVIL]),
        paragraph(EVIL, class_=EVIL),
        label(EVIL),
        table(EVIL, [EVIL, EVIL], [[EVIL, EVIL]]),
        figure(EVIL, Markup("<svg></svg>"), legend=[(EVIL, EVIL)], numbers=tag("p", EVIL)),
    ],
)
def test_nothing_gets_through(written: Markup) -> None:
    assert isinstance(written, Markup)
    assert "<script" not in written
    assert "&lt;script&gt;alert(" in written


def test_an_attribute_cannot_be_left() -> None:
    assert tag("p", title='"><b>') == '<p title="&quot;&gt;&lt;b&gt;"></p>'


def test_attributes_and_children() -> None:
    assert tag("text", "a", None, "b", x=1.0, y=2.345, class_="end", aria_label=None) == (
        '<text x="1" y="2.35" class="end">ab</text>'
    )
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_labels_are_cut_and_isolated() -> None:
    assert label("x" * 80) == f"<bdi>{'x' * 80}</bdi>"
    assert label("x" * 81) == f"<bdi>{'x' * 79}…</bdi>"
    assert label(("a", 1)) == "<bdi>('a', 1)</bdi>"
    assert label("&" * 1000).count("&amp;") == 79  # cut before it is escaped, never inside an escape


def test_tables_name_their_lines_and_columns() -> None:
    written = table("Sizes", ["part", "entries"], [["train", "3"], ["test", "1"]])
    assert written.count('<th scope="col">') == 2
    assert written.count('<th scope="row">') == 2
    assert "<caption>Sizes</caption>" in written
    assert "<td>3</td>" in written
