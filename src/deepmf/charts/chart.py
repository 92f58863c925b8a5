"""A chart: SVG of a size, for a page that styles it, for a larger chart, or as a file of its own."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deepmf.charts.axes import Frame
from deepmf.charts.markup import Markup, tag
from deepmf.files.atomic import write_atomically

# What XML cannot hold, not even escaped: control characters and halves of characters.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Chart:
    """A drawing, and one sentence that says what it shows to those who do not see it."""

    drawn: Markup
    title: str
    frame: Frame

    def __html__(self) -> str:
        """Return the chart as a part of a page, whose style must include `style_sheet()`."""
        return tag("svg", self.drawn, viewBox=self._box, role="img", aria_label=self.title)

    def __str__(self) -> str:
        """Return the chart as a part of a page."""
        return self.__html__()

    def as_file(self) -> str:
        """Return the chart as a whole SVG file: its style inside, light or dark as the reader's system is."""
        written = tag(
            "svg",
            tag("title", self.title, id="title"),
            tag("style", Markup(style_sheet())),
            tag("rect", width="100%", height="100%", class_="paper"),
            self.drawn,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=self._box,
            width=self.frame.width,
            height=self.frame.height,
            class_="alone",
            role="img",
            aria_labelledby="title",
        )
        return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", written) + "\n"

    @property
    def _box(self) -> str:
        return f"0 0 {self.frame.width:g} {self.frame.height:g}"


def write_chart(chart: Chart, path: str | os.PathLike[str]) -> None:
    """Write a chart to an SVG file, whole or not at all; the same chart gives the same bytes."""
    write_atomically(path, lambda temporary: temporary.write_bytes(chart.as_file().encode("utf-8")))


@cache
def style_sheet() -> str:
    """Return the colours and strokes of charts, as CSS."""
    return Path(__file__).with_name("chart.css").read_text(encoding="utf-8")
