"""What a notebook shows of an object: its name, a table of facts, and charts."""

from __future__ import annotations

from collections.abc import Mapping

from deepmf.charts.chart import Chart, style_sheet
from deepmf.charts.markup import Markup, join, tag

_OUTSIDE = "deepmf-view"
_STYLE = """
background: var(--paper); color: var(--ink); padding: .6em .9em; max-width: 60em; font-family: system-ui, sans-serif;
table { border-collapse: collapse; margin: .4em 0; background: none; color: inherit; }
th, td { text-align: left; padding: .15em 1.2em .15em 0; border: 0; vertical-align: top; font-size: 13px; }
th { font-weight: normal; color: var(--soft); white-space: nowrap; }
figure { display: inline-block; width: 360px; max-width: 100%; margin: .4em .8em .4em 0; }
figcaption { font-size: 12px; color: var(--soft); }
"""


def notebook_view(name: str, facts: Mapping[str, str], figures: Mapping[str, Chart] | None = None) -> str:
    """Return HTML for the output of a cell; its style holds inside of it alone, so that nothing else changes."""
    lines = [tag("tr", tag("th", what), tag("td", said)) for what, said in facts.items()]
    drawn = [
        tag("figure", Markup(chart.__html__()), tag("figcaption", caption))
        for caption, chart in (figures or {}).items()
    ]
    return tag(
        "div",
        tag("style", Markup(_style())),
        tag("strong", name),
        tag("table", join(lines)) if lines else None,
        *drawn,
        class_=_OUTSIDE,
    )


def _style() -> str:
    """Return the style of charts and of the table, nested so that it reaches no further than the view."""
    return f".{_OUTSIDE} {{{style_sheet().replace(':root', '&')}{_STYLE}}}"
