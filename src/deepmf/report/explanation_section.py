"""The section on explanations: the entries that pulled predictions for chosen pairs up or down."""

from __future__ import annotations

from deepmf.formatting import format_amount, format_effect
from deepmf.plots import describe_explanation, plot_explanation
from deepmf.report.content import Figure, LeftOut, Section, Table, shortened
from deepmf.report.findings import ExplainedPair, Findings


def explanation_section(found: Findings) -> Section | LeftOut:
    """Return a bar for each entry that pulled a prediction up or down, of the pairs that were asked for."""
    title = "Why these predictions"
    if not found.explained:
        return LeftOut(title, "no pair was chosen: explain, on the command line --explain ROW COLUMN, does")
    return Section(
        title=title,
        how="A bar to the right stands for an entry of the row that pulled the prediction up, one to the left for an "
        "entry that pulled it down: its length is the prediction with all entries less the one without it; so for "
        "features of the row, if any.",
        template="explanations.html",
        content={"figures": [_figure(pair) for pair in found.explained]},
    )


def _figure(pair: ExplainedPair) -> Figure:
    found = pair.explanation
    actual = "" if pair.value is None else f", {pair.value:g} in the test"
    lines = [
        [shortened(label), f"{value:g}", format_effect(effect)]
        for label, value, effect in zip(
            found.labels.tolist(), found.values.tolist(), found.effects.tolist(), strict=True
        )
    ]
    lines += [[shortened(each.name), shortened(each.value), format_effect(each.effect)] for each in found.features]
    row, column = shortened(pair.row, 40), shortened(pair.column, 40)
    return Figure(
        f"{column} for {row}: {format_amount(found.prediction)}{actual}",
        plot_explanation(found),
        describe_explanation(found, row=row, column=column),
        numbers=Table(f"Effects on {column} for {row}", ["column", "value", "effect"], lines),
    )
