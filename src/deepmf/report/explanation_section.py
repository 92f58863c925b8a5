"""The section on explanations: the entries and features that pulled predictions for chosen pairs up or down."""

from __future__ import annotations

from deepmf.charts.effect_bars import signed
from deepmf.charts.explanation_chart import explanation_chart
from deepmf.charts.wording import amount
from deepmf.report.content import Figure, LeftOut, Section, Table, shortened
from deepmf.report.findings import ExplainedPair, Findings


def explanation_section(found: Findings) -> Section | LeftOut:
    """Return a bar for each entry and feature that pulled a prediction up or down, of the pairs that were asked for."""
    title = "Why these predictions"
    if not found.explained:
        return LeftOut(title, "no pair was chosen: explain, on the command line --explain ROW COLUMN, does")
    features = any(pair.explanation.features for pair in found.explained)
    return Section(
        title=title,
        how="A bar to the right stands for an entry of the row that pulled the prediction up, one to the left for an "
        "entry that pulled it down: its length is the prediction with all entries less the one without it."
        + (" So for the features of the row, which come last." if features else ""),
        template="explanations.html",
        content={"figures": [_figure(pair) for pair in found.explained]},
    )


def _figure(pair: ExplainedPair) -> Figure:
    found = pair.explanation
    actual = "" if pair.value is None else f", {pair.value:g} in the test"
    lines = [
        [shortened(label), f"{value:g}", signed(effect)]
        for label, value, effect in zip(
            found.labels.tolist(), found.values.tolist(), found.effects.tolist(), strict=True
        )
    ]
    lines += [[shortened(name), shortened(value), signed(effect)] for name, value, effect in found.features]
    what = "column or feature" if found.features else "column"
    row, column = shortened(pair.row, 40), shortened(pair.column, 40)
    return Figure(
        f"{column} for {row}: {amount(found.prediction)}{actual}",
        explanation_chart(found, row=row, column=column),
        numbers=Table(f"Effects on {column} for {row}", [what, "value", "effect"], lines),
    )
