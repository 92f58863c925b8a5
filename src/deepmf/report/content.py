"""The content of a page: sections, figures and tables, laid out by the templates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from deepmf.files import write_atomically
from deepmf.plots import colour_rules, render_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Table:
    """A table of text; the first cell of a line is its name, the others are numbers, or words if it
    is in words."""

    caption: str
    names: Sequence[str]
    lines: Sequence[Sequence[str]]
    in_words: bool = False


@dataclass(frozen=True)
class Figure:
    """A plot with its title, a description for screen readers, and its numbers as a table to
    unfold."""

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
    """A part of the page: a title, a sentence on how to read it, figures, words beside the first
    one, and tables.

    meanings: words and what they mean.
    """

    title: str
    how: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    sentences: Sequence[str] = ()
    meanings: Sequence[tuple[str, str]] = ()

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
    full_text = str(text)
    return full_text if len(full_text) <= longest else f"{full_text[: longest - 1]}…"


def render_page(
    title: str,
    summary: str,
    parts: Sequence[Section | LeftOut],
    *,
    cautions: Sequence[str] = (),
    tiles: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the HTML of a page; `tiles` are its main numbers with their names."""
    return render_template(
        "page.html",
        title=title,
        summary=summary,
        cautions=cautions,
        tiles=tiles,
        sections=[part for part in parts if isinstance(part, Section)],
        left_out=[part for part in parts if isinstance(part, LeftOut)],
    )


def write_page(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page to a file, which is replaced only when complete."""
    # A label may hold half of a surrogate pair, which UTF-8 cannot encode.
    write_atomically(
        path, lambda temporary: temporary.write_bytes(page.encode("utf-8", errors="replace"))
    )


def render_template(template: str, **content: object) -> str:
    """Fill in a template of this package; text is escaped, and a missing name is an error."""
    return _make_environment().get_template(template).render(**content)


@cache
def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("deepmf.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["shorten"] = shorten
    environment.globals["plot_colours"] = colour_rules()
    return environment
