"""HTML and SVG put together so that nothing can be left unescaped, tables, and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_VOID = frozenset(("br", "link", "meta"))


class Markup(str):
    """Text that is HTML already; every other string is escaped where it becomes a part of the page."""

    __slots__ = ()


def tag(element: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """Return an element; a child or an attribute of None is left out, `class_` is class, and _ stands for -.

    >>> tag("td", "<script>", class_="name")
    '<td class="name">&lt;script&gt;</td>'
    >>> tag("p", tag("b", "R&D"))
    '<p><b>R&amp;D</b></p>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if element in _VOID:
        return Markup(f"<{element}{written}>")
    return Markup(f"<{element}{written}>{join(children)}</{element}>")


def join(children: Iterable[str | None]) -> Markup:
    """Return parts one behind the other, each escaped if it is not markup."""
    return Markup("".join(_escaped(child) for child in children if child is not None))


def label(text: object, *, longest: int = 80) -> Markup:
    """Return a label that someone else has chosen: cut to a bearable length, and kept from turning its line around."""
    whole = str(text)
    return tag("bdi", whole if len(whole) <= longest else f"{whole[: longest - 1]}…")


def table(caption: str, names: Sequence[str], lines: Iterable[Sequence[str]]) -> Markup:
    """Return a table whose first column names its lines; the rest are numbers, to the right."""
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    body = [tag("tr", tag("th", line[0], scope="row"), *(tag("td", cell) for cell in line[1:])) for line in lines]
    inside = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    # It can be scrolled sideways where it is too wide, with the keyboard too.
    return tag("div", inside, class_="scroll", role="region", aria_label=caption, tabindex="0")


def figure(
    title: str, picture: Markup, *, legend: Sequence[tuple[str, str]] = (), numbers: Markup | None = None
) -> Markup:
    """Return a chart under its title, with a legend of (style, name) and its numbers as a table to unfold."""
    keys = [tag("span", tag("i", class_=style, aria_hidden="true"), name, class_="key") for style, name in legend]
    return tag(
        "figure",
        tag("figcaption", tag("span", title, class_="title"), *keys),
        picture,
        None if numbers is None else tag("details", tag("summary", "The numbers"), numbers),
    )


def paragraph(*children: str | None, class_: str | None = None) -> Markup:
    """Return a paragraph."""
    return tag("p", *children, class_=class_)


def _escaped(child: str) -> str:
    return child if isinstance(child, Markup) else escape(child, quote=False)


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
