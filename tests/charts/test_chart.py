"""A chart as a file: whole XML, styled, told to those who do not see it, and the same every time."""

import re
from pathlib import Path
from xml.dom import minidom

import pytest

from deepmf.charts.axes import Frame
from deepmf.charts.bars import level_bars
from deepmf.charts.chart import Chart, write_chart
from deepmf.charts.markup import tag
from deepmf.errors import CannotSave


def chart(title: str = "A & B") -> Chart:
    return Chart(tag("text", title), title, Frame(width=100, height=50))


def test_on_a_page_it_says_what_it_shows() -> None:
    assert str(chart()) == ('<svg viewBox="0 0 100 50" role="img" aria-label="A &amp; B"><text>A &amp; B</text></svg>')
    assert chart().__html__() == str(chart())


def test_a_file_stands_alone(tmp_path: Path) -> None:
    write_chart(chart(), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    root = minidom.parseString(text).documentElement
    assert root is not None
    assert (root.tagName, root.namespaceURI, root.getAttribute("role")) == ("svg", "http://www.w3.org/2000/svg", "img")
    title = root.firstChild
    assert isinstance(title, minidom.Element)
    assert (title.tagName, title.getAttribute("id")) == ("title", root.getAttribute("aria-labelledby"))
    assert "prefers-color-scheme: dark" in text
    assert not re.search("url\\(|@import|<script|href", text)
    assert (root.getAttribute("width"), root.getAttribute("height")) == ("100", "50")


def test_the_same_chart_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        write_chart(level_bars(["a", "b"], [0.7, 0.3], title="t", x_label="x"), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("title", ["</title><script>alert(1)</script>", "]]>", "null \x00 and \x1b", "half \ud800"])
def test_whatever_the_title_the_file_is_xml(tmp_path: Path, title: str) -> None:
    write_chart(chart(title), tmp_path / "a.svg")
    root = minidom.parse(str(tmp_path / "a.svg")).documentElement
    assert root is not None
    assert root.getElementsByTagName("script") == []


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(CannotSave, match="there is no folder"):
        write_chart(chart(), tmp_path / "none" / "a.svg")
    assert list(tmp_path.iterdir()) == []
