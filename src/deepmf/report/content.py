"""Templates filled in: whatever is not markup already is escaped, and a name that is not there is an error."""

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


def rendered(template: str, **content: object) -> str:
    """Return a template of this package with its content."""
    return _environment().get_template(template).render(**content)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("deepmf.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["shortened"] = shortened
    made.globals["plot_colours"] = colour_rules()
    return made
