"""Markup: whatever is not markup already is escaped, wherever it goes."""

import pytest

from deepmf.charts.markup import Markup, join, tag

EVIL = """<script>alert("1")</script>&'"""


@pytest.mark.parametrize(
    "written",
    [
        tag("p", EVIL),
        tag("p", tag("b", EVIL)),
        tag("p", class_=EVIL),
        join([EVIL]),
    ],
)
def test_nothing_gets_through(written: Markup) -> None:
    assert isinstance(written, Markup)
    assert "<script" not in written
    assert "&lt;script&gt;alert(" in written


def test_an_attribute_cannot_be_left() -> None:
    assert tag("p", title='"><b>') == '<p title="&quot;&gt;&lt;b&gt;"/>'


def test_attributes_and_children() -> None:
    assert tag("text", "a", None, "b", x=1.0, y=2.345, class_="end", aria_label=None) == (
        '<text x="1" y="2.35" class="end">ab</text>'
    )
    assert tag("line", x1=0.0) == '<line x1="0"/>'


def test_templates_take_it_as_it_is() -> None:
    assert tag("b", "&").__html__() == "<b>&amp;</b>"
