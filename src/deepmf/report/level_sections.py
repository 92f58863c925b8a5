"""The sections on levels: the confusion matrix, the calibration of probabilities, the learned boundaries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepmf.evaluation.calibration import IntervalCoverage
from deepmf.formatting import format_amount, format_count, format_percent, format_short
from deepmf.matrix.arrays import FloatArray
from deepmf.models.dmf.dmfd import DMFD
from deepmf.models.factorization.odmc import ODMC
from deepmf.plots import MOST_WRITTEN, plot_boundaries, plot_calibration, plot_confusion
from deepmf.report.content import Figure, LeftOut, Section, Table
from deepmf.report.findings import Findings

_SCORE_BINS = 60


def confusion_section(found: Findings) -> Section | LeftOut:
    """Return which levels were predicted where others were right."""
    title = "Confusion of levels"
    if found.confusion is None or found.model.scale_.levels is None:
        return LeftOut(title, f"the scale {found.model.scale_} has no levels")
    counts, levels = found.confusion, [format_short(level) for level in found.model.scale_.levels]
    totals = counts.sum(axis=1)
    shares: FloatArray = counts / np.maximum(totals, 1)[:, None]
    lines = [
        [level, format_count(totals[at]), *(format_percent(share, digits=0) for share in shares[at])]
        for at, level in enumerate(levels)
    ]
    few = len(levels) <= MOST_WRITTEN
    numbers = (
        Table("Predicted levels (across) for each true level (down)", ["true level", "entries", *levels], lines)
        if few
        else None
    )
    hits = _hits(found)
    shown = Figure(
        "Predicted levels for each true level, " + ("in per cent" if few else f"up to {format_percent(shares.max())}"),
        plot_confusion(shares, levels),
        f"Map of predicted levels for each true level. {hits}",
        numbers=numbers,
    )
    return Section(
        title=title,
        how="Each line of the map is a true level and shows what was predicted for it; a perfect model has everything "
        "on the diagonal from the lower left to the upper right.",
        template="confusion.html",
        content={"map": shown, "hits": hits, "ends": _ends(found)},
    )


def _hits(found: Findings) -> str:
    exact, near = map(format_percent, hit_shares(found))
    return (
        f"The predicted level is exactly right for {exact} of the test entries, and at most one level off for {near}."
    )


def hit_shares(found: Findings) -> tuple[float, float]:
    """Return the share of test entries whose level is exactly right, and at most one level off."""
    assert found.confusion is not None
    counts = found.confusion
    n_levels = counts.shape[0]
    off = np.abs(np.arange(n_levels)[:, None] - np.arange(n_levels))
    return float(counts[off == 0].sum() / counts.sum()), float(counts[off <= 1].sum() / counts.sum())


def _ends(found: Findings) -> str:
    """Return how often the lowest and the highest level are predicted, against how often they are right."""
    assert found.confusion is not None
    assert found.model.scale_.levels is not None
    counts, levels = found.confusion, found.model.scale_.levels
    n_entries = counts.sum()
    return "; ".join(
        f"{levels[at]:g} is {format_percent(counts[:, at].sum() / n_entries)} of the predictions and "
        f"{format_percent(counts[at].sum() / n_entries)} of the truth"
        for at in sorted({0, levels.size - 1})
    )


def calibration_section(found: Findings) -> Section | LeftOut:
    """Return how well the model's probabilities and intervals are calibrated."""
    title, held = "Calibration", found.calibration
    if found.intervals is not None:
        return _interval_section(title, found.intervals)
    if held is None:
        return LeftOut(title, f"{found.measured.name} predicts no probabilities")
    lines = [
        [format_percent(each.forecast), format_percent(each.observed), format_count(each.n_forecasts)]
        for each in held.bins
    ]
    shown = Figure(
        "What came true against what was forecast",
        plot_calibration(
            [each.forecast for each in held.bins],
            [each.observed for each in held.bins],
            [each.n_forecasts for each in held.bins],
            margins=[each.margin for each in held.bins],
        ),
        f"Reliability diagram; the expected calibration error is {format_percent(held.error, digits=2)}",
        numbers=Table("Forecasts by probability", ["forecast", "came true", "forecasts"], lines),
    )
    return Section(
        title=title,
        how="Points on the diagonal mean that probabilities are calibrated (of ten forecasts of "
        "30\N{NO-BREAK SPACE}%, three come true); above it they come true more often than forecast, below it less.",
        template="calibration.html",
        content={
            "reliability": shown,
            "error": format_percent(held.error, digits=2),
            "wanted_coverage": format_percent(held.wanted_coverage, digits=0),
            "coverage": format_percent(held.coverage),
            "width": format_amount(held.width),
        },
    )


def _interval_section(title: str, held: Sequence[IntervalCoverage]) -> Section:
    """Return how many real values lie inside intervals of several coverages."""
    told = "; ".join(f"{format_percent(each.wanted, digits=0)}: {format_percent(each.coverage)}" for each in held)
    shown = Figure(
        "Values inside intervals against what was forecast",
        plot_calibration(
            [each.wanted for each in held],
            [each.coverage for each in held],
            [each.n_entries for each in held],
            margins=[each.margin for each in held],
            x_label="nominal coverage",
            y_label="share of values inside",
        ),
        f"Share of test values inside intervals, by nominal coverage: {told}",
    )
    lines = [
        [
            format_percent(each.wanted, digits=0),
            f"{format_percent(each.coverage)} ± {format_percent(each.margin)}",
            format_amount(each.width),
        ]
        for each in held
    ]
    return Section(
        title=title,
        how="Points on the diagonal mean that intervals hold as many values as they should; below it they are too "
        "narrow, above it too wide, and of two models on it the one with narrower intervals is better.",
        template="intervals.html",
        content={
            "coverage": shown,
            "numbers": Table("Intervals by nominal coverage", ["nominal", "values inside", "mean width"], lines),
        },
    )


def boundary_section(found: Findings) -> Section | LeftOut:
    """Return the learned boundaries between levels beside those of rounding."""
    title, model = "Learned boundaries", found.model
    if not isinstance(model, DMFD | ODMC):
        return LeftOut(title, f"{found.measured.name} has none")
    levels = model.scale_.levels_for(found.measured.name)
    uniform, learned = (levels[:-1] + levels[1:]) / 2, model.boundaries_
    scores, _ = np.histogram(model.scores(*found.test.entries()[:2]), bins=_SCORE_BINS, range=(levels[0], levels[-1]))
    furthest = int(np.argmax(np.abs(learned - uniform)))
    sentence = (
        f"The boundary that moved furthest is the one between {levels[furthest]:g} and {levels[furthest + 1]:g}: "
        f"from {format_amount(uniform[furthest])} to {format_amount(learned[furthest])}."
    )
    numbers = _boundary_table(levels, uniform, learned)
    few = levels.size <= MOST_WRITTEN
    shown = Figure(
        "Which level a score becomes",
        plot_boundaries(levels, uniform.tolist(), learned.tolist(), scores.astype(float)),
        sentence,
        numbers=None if few else numbers,
    )
    return Section(
        title=title,
        how="The model computes a real number, the score, and predicts the level whose interval the score falls into; "
        "a level whose interval is wider than the uniform one is predicted more often than by rounding.",
        template="boundaries.html",
        content={"strips": shown, "numbers": numbers if few else None, "sentence": sentence},
    )


def _boundary_table(levels: FloatArray, uniform: FloatArray, learned: FloatArray) -> Table:
    lines = [
        [f"{low:g} and {high:g}", format_amount(middle), format_amount(own), _shift(own - middle)]
        for low, high, middle, own in zip(levels[:-1], levels[1:], uniform, learned, strict=True)
    ]
    return Table("Boundaries between levels", ["between", "uniform", "learned", "shift"], lines)


def _shift(number: float) -> str:
    return f"{'+' if number > 0 else '−' if number < 0 else ''}{abs(number):.3g}"
