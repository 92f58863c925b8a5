"""Templates filled in: whatever is not markup already is escaped, and a name that is not there is an error."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from deepmf.plots import colour_rules
from deepmf.report.content import shortened


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
