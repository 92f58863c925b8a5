"""The content of a page, as data for its templates: sections with figures and tables, or why there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepmf.plots import render_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Table:
    """Lines of text under names; the first cell of a line names it, the rest are numbers."""

    caption: str
    names: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A plot under its title, a description for readers who do not see it, and its numbers as a table to unfold."""

    title: str
    plot: Axes
    description: str
    numbers: Table | None = None

    @property
    def svg(self) -> str:
        """The plot as a part of the page, with all text escaped."""
        return render_svg(self.plot, title=self.description)


@dataclass(frozen=True)
class Section:
    """A part of the page under a title, with one sentence that says how to read it.

    `template` is the file in templates/ that lays out `content`.
    """

    title: str
    how: str
    template: str
    content: Mapping[str, object]

    @property
    def anchor(self) -> str:
        """The name that links lead to."""
        return self.title.lower().replace(" ", "-")


@dataclass(frozen=True)
class LeftOut:
    """A section that this model, or these entries, give nothing for."""

    title: str
    reason: str


def shortened(text: object, longest: int = 80) -> str:
    """Return a text that someone else has chosen, cut to a bearable length.

    >>> shortened("Alien", 4)
    'Ali…'
    """
    whole = str(text)
    return whole if len(whole) <= longest else f"{whole[: longest - 1]}…"
