"""The content of a page: sections, figures and tables, and the templates that lay them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from deepmf.plots import colour_rules, render_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Table:
    """A table of text; the first cell of a line is its name, the others are numbers."""

    caption: str
    names: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A plot with its title, a description for screen readers, and its numbers as a table to unfold."""

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
    """A part of the page with a title and a sentence on how to read it.

    `template` is the file in templates/ that lays out `content`.
    """

    title: str
    how: str
    template: str
    content: Mapping[str, object]

    @property
    def anchor(self) -> str:
        """The target of links to this section."""
        return self.title.lower().replace(" ", "-")


@dataclass(frozen=True)
class LeftOut:
    """A section that does not apply to this model or these entries."""

    title: str
    reason: str


def shorten(text: object, longest: int = 80) -> str:
    """Cut a text of unknown length, such as a label.

    >>> shorten("Alien", 4)
    'Ali…'
    """
    whole = str(text)
    return whole if len(whole) <= longest else f"{whole[: longest - 1]}…"


def render_template(template: str, **content: object) -> str:
    """Fill in a template of this package; text is escaped, and a missing name is an error."""
    return _make_environment().get_template(template).render(**content)


@cache
def _make_environment() -> Environment:
    made = Environment(
        loader=PackageLoader("deepmf.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["shorten"] = shorten
    made.globals["plot_colours"] = colour_rules()
    return made
