"""A section of the page, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from deepmf.report.markup import Markup, paragraph, tag


@dataclass(frozen=True)
class Section:
    """A part of the page under a title, with one sentence that says how to read it."""

    title: str
    how: str
    body: Markup

    @property
    def anchor(self) -> str:
        """The name that links lead to."""
        return self.title.lower().replace(" ", "-")

    def written(self) -> Markup:
        """Return the section as HTML."""
        heading = tag("h2", self.title, id=self.anchor)
        return tag("section", heading, paragraph(self.how, class_="how"), self.body, aria_labelledby=self.anchor)


@dataclass(frozen=True)
class LeftOut:
    """A section that this model, or these entries, give nothing for."""

    title: str
    reason: str
