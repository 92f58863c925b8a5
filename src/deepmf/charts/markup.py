"""SVG put together so that nothing can be left unescaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is markup already; every other string is escaped where it becomes a part of a chart or a page."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text as it is: templates ask for this before they escape anything."""
        return self


def tag(element: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """Return an element; a child or an attribute of None is left out, `class_` is class, and _ stands for -.

    >>> tag("text", "<script>", class_="name")
    '<text class="name">&lt;script&gt;</text>'
    >>> tag("g", tag("text", "R&D"))
    '<g><text>R&amp;D</text></g>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = join(children)
    return Markup(f"<{element}{written}>{inside}</{element}>" if inside else f"<{element}{written}/>")


def join(children: Iterable[str | None]) -> Markup:
    """Return parts one behind the other, each escaped if it is not markup."""
    return Markup("".join(_escaped(child) for child in children if child is not None))


def _escaped(child: str) -> str:
    return child if isinstance(child, Markup) else escape(child, quote=False)


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
