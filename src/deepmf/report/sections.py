"""The sections of a report, in the order of the page: each answers one question about a model on test entries."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from deepmf.evaluation.areas import STARTS, UNKNOWN, AreaErrors, ColumnErrors
from deepmf.evaluation.calibration import IntervalCoverage
from deepmf.evaluation.ranking import ROW_METRICS, TITLES, AreaRanking, RankingEvaluation, RankingScores
from deepmf.formatting import (
    format_amount,
    format_count,
    format_difference,
    format_percent,
    format_quantity,
    format_short,
)
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.names import format_label
from deepmf.matrix.scale import Scale
from deepmf.plots import (
    MOST_WRITTEN,
    list_points,
    plot_areas,
    plot_bars,
    plot_calibration,
    plot_cold_start,
    plot_confusion,
    plot_lines,
)
from deepmf.report.content import Figure, LeftOut, Section, Table, shorten
from deepmf.report.findings import Findings
from deepmf.storage.model_file import find_version
from deepmf.training.history import History, describe_stages, describe_training, list_curves
from deepmf.training.runtime import Runtime

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_BINS = 20  # of values on a scale without levels

_FACTS = ("entries", "rows", "columns", "density", "mean", "standard deviation")


MEANINGS = {
    "I": "known row, known column",
    "II": "new row, known column",
    "III": "known row, new column",
    "IV": "new row, new column",
    UNKNOWN: "row or column unknown to the model: predicted by means",
    "all": "all areas together",
}

# The least number of test entries for an error bar and of a column that is compared.
ENOUGH = 20

_LISTED = 10  # columns from either end

_BARS = f"Error bars are standard errors; they need {ENOUGH} test entries."


def make_data_section(found: Findings) -> Section:
    """Return the section on the training entries and the test entries."""
    train = found.seen.train
    return Section(
        title="The data",
        how="The model was trained on the training entries and predicts the test entries. Expect the same errors on "
        f"future entries if they are distributed like the test entries.{_describe_choice(found)}",
        template="data.html",
        content={
            "sizes": _make_size_table(found),
            "scale": _describe_scale(found.seen.scale),
            "dropped": _describe_dropped(found.seen.dropped.size),
            "figures": [
                _plot_values(train, found.test),
                _plot_counts("row", train.row_counts),
                _plot_counts("column", train.column_counts),
            ],
        },
    )


def _describe_choice(found: Findings) -> str:
    """Return a sentence on cells that nobody chose, if there is something to say."""
    choice = found.model.describe_choice()
    return "" if choice is None else f" Beware: {choice}."


def _make_size_table(found: Findings) -> Table:
    parts = {"training": found.seen.train, "extension": found.seen.extension, "test": found.test}
    there = {name: part for name, part in parts.items() if part is not None}
    lines = [list(line) for line in zip(_FACTS, *(_list_facts(part) for part in there.values()), strict=True)]
    return Table("Size", ["", *there], lines)


def _describe_dropped(number: int) -> str:
    """Return a sentence on training entries that were replaced or forgotten; an empty text if there are none."""
    return f"{format_count(number)} training entries were replaced or forgotten later." if number else ""


def _describe_scale(scale: Scale) -> str:
    if scale.levels is None or len(str(scale)) <= 60:
        return str(scale)
    return f"on {scale.levels.size} levels from {scale.low:g} to {scale.high:g}"


def _list_facts(part: ObservedMatrix) -> list[str]:
    """Return the column of the size table for some entries, in the order of `_FACTS`."""
    shown = part.describe()
    n_rows, n_columns = shown.n_rows - shown.n_empty_rows, shown.n_columns - shown.n_empty_columns
    return [
        format_count(shown.n_entries),
        format_count(n_rows),
        format_count(n_columns),
        format_percent(shown.n_entries / max(n_rows * n_columns, 1), digits=2),
        format_amount(shown.mean),
        format_amount(shown.standard_deviation),
    ]


def _plot_values(train: ObservedMatrix, test: ObservedMatrix) -> Figure:
    names, edges = _name_groups(train.scale, test)
    shares = {name: _compute_shares(train.scale, part, edges) for name, part in (("training", train), ("test", test))}
    lines = [[name, *(format_percent(share[at]) for share in shares.values())] for at, name in enumerate(names)]
    return Figure(
        "Distribution of values",
        plot_bars(
            names,
            {name: share.tolist() for name, share in shares.items()},
            x_label="level" if edges is None else "value",
            y_label="share of entries",
            percent=True,
        ),
        f"Share of entries by value, training and test; the most frequent training value is "
        f"{names[int(np.argmax(shares['training']))]}",
        numbers=Table("Share of entries by value", ["value", *shares], lines),
    )


def _name_groups(scale: Scale, test: ObservedMatrix) -> tuple[list[str], FloatArray | None]:
    """Return the names of the groups of values: the levels, or the middles of bins with their edges."""
    if scale.levels is not None:
        return [format_short(level) for level in scale.levels], None
    low, high = min(scale.low, float(test.values.min())), max(scale.high, float(test.values.max()))
    edges = np.linspace(low, high, _BINS + 1)
    return [format_short(float(f"{middle:.3g}")) for middle in (edges[:-1] + edges[1:]) / 2], edges


def _compute_shares(scale: Scale, part: ObservedMatrix, edges: FloatArray | None) -> FloatArray:
    if edges is not None:
        counts, _ = np.histogram(part.values, edges)
    else:
        counts = np.bincount(
            scale.level_positions(part.values), minlength=0 if scale.levels is None else scale.levels.size
        )
    shares: FloatArray = counts / max(part.n_entries, 1)
    return shares


def _plot_counts(axis: str, counts: npt.NDArray[np.integer]) -> Figure:
    """Plot a histogram of the number of training entries per row (or column)."""
    which = np.searchsorted(STARTS, counts, side="right") - 1
    numbers = np.bincount(which, minlength=len(STARTS))
    used = range(int(which.min()), int(which.max()) + 1)
    names = [name_group(STARTS[at], STARTS[at + 1] - 1 if at + 1 < len(STARTS) else None) for at in used]
    shown = [int(numbers[at]) for at in used]
    median = float(np.median(counts))
    return Figure(
        f"Training entries per {axis}",
        plot_bars(names, {f"{axis}s": shown}, x_label=f"entries of a {axis} (median {median:g})", y_label=f"{axis}s"),
        f"Number of {axis}s by number of training entries; the median is {median:g}",
        numbers=Table(
            f"Training entries per {axis}",
            ["entries", f"{axis}s"],
            [[name, format_count(n)] for name, n in zip(names, shown, strict=True)],
        ),
    )


def keep_margin(margin: float | None, n_entries: int) -> float | None:
    """Return the margin of an error if enough test entries support it, otherwise None."""
    return margin if n_entries >= ENOUGH else None


def name_group(first: int, last: int | None) -> str:
    """Return the name of a group of counts: 0, 2–4, 500+."""
    if last is None:
        return f"{first}+"
    return f"{first}" if last == first else f"{first}–{last}"


def make_area_section(found: Findings) -> Section:
    """Return the section on the errors of the model and of the means in each area."""
    areas = _select_areas(found.measured.areas)
    return Section(
        title="Error by area",
        how="Lower is better. RMSE is the typical error in the units of the values; it weighs large errors more than "
        f"small ones, MAE weighs them equally. {_BARS}",
        template="areas.html",
        content={
            "errors": _plot_area_errors(found, areas),
            "meanings": [
                (part.area if part.area == UNKNOWN else f"Area {part.area}", MEANINGS[part.area])
                for part in found.measured.areas
                if part.area != "all"
            ],
            "baseline": None if found.baseline is None else found.baseline.name,
            "numbers": _make_area_table(found, areas),
        },
    )


def _select_areas(errors: list[AreaErrors]) -> list[AreaErrors]:
    """Return the areas to show; `all` is left out if there is only one area."""
    return errors if len(errors) > 2 else errors[:1]


def _plot_area_errors(found: Findings, areas: list[AreaErrors]) -> Figure:
    shown = {each.name: each.areas[: len(areas)] for each in found.measurements}
    errors = "; ".join(f"{part.area} {format_amount(part.rmse)}" for part in areas)
    return Figure(
        "RMSE on the test entries",
        plot_areas(
            [part.area for part in areas],
            {name: [part.rmse for part in parts] for name, parts in shown.items()},
            margins={
                name: [keep_margin(part.margin, part.n_entries) for part in parts] for name, parts in shown.items()
            },
            counts=[part.n_entries for part in areas],
        ),
        f"RMSE of {found.measured.name} by area: {errors}",
    )


def _make_area_table(found: Findings, areas: list[AreaErrors]) -> Table:
    has_levels = areas[0].level_rmse is not None and not found.measured.answers_levels
    names = ["area", "entries", "RMSE", "MAE"]
    has_medians = areas[0].median_rmse is not None
    names += ["RMSE of levels", "MAE of levels"] * has_levels
    names += ["RMSE of median levels", "MAE of median levels"] * has_medians
    names += [f"RMSE, {each.name}" for each in found.measurements[1:]]
    names += ["difference"] * (found.baseline is not None)
    lines = []
    for number, part in enumerate(areas):
        line = [part.area, format_count(part.n_entries), format_amount(part.rmse), format_amount(part.mae)]
        line += [format_amount(part.level_rmse), format_amount(part.level_mae)] * has_levels
        line += [format_amount(part.median_rmse), format_amount(part.median_mae)] * has_medians
        if found.baseline is not None:
            means = found.baseline.areas[number].rmse
            line += [format_amount(means), format_difference(part.rmse, means)]
        lines.append(line)
    return Table("Errors by area", names, lines)


def make_confusion_section(found: Findings) -> Section | LeftOut:
    """Return the section on predicted and true levels."""
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
    hits = _describe_hits(found)
    shown = Figure(
        "Predicted levels for each true level, " + ("in per cent" if few else f"up to {format_percent(shares.max())}"),
        plot_confusion(shares, levels),
        f"Map of predicted levels for each true level. {hits}",
        numbers=numbers,
    )
    return Section(
        title=title,
        how="Each row of the map shows the predictions for one true level. A perfect model has all predictions on the "
        "diagonal.",
        template="confusion.html",
        content={"map": shown, "hits": hits, "ends": _describe_ends(found)},
    )


def _describe_hits(found: Findings) -> str:
    exact, near = map(format_percent, compute_hit_shares(found))
    return f"The predicted level is exactly right for {exact} of the test entries and at most one level off for {near}."


def compute_hit_shares(found: Findings) -> tuple[float, float]:
    """Return the share of test entries whose level is exactly right, and at most one level off."""
    assert found.confusion is not None
    counts = found.confusion
    n_levels = counts.shape[0]
    off = np.abs(np.arange(n_levels)[:, None] - np.arange(n_levels))
    return float(counts[off == 0].sum() / counts.sum()), float(counts[off <= 1].sum() / counts.sum())


def _describe_ends(found: Findings) -> str:
    """Compare how often the lowest and the highest level are predicted with how often they occur."""
    assert found.confusion is not None
    assert found.model.scale_.levels is not None
    counts, levels = found.confusion, found.model.scale_.levels
    n_entries = counts.sum()
    return "; ".join(
        f"{levels[at]:g} is {format_percent(counts[:, at].sum() / n_entries)} of the predictions and "
        f"{format_percent(counts[at].sum() / n_entries)} of the test entries"
        for at in sorted({0, levels.size - 1})
    )


def make_calibration_section(found: Findings) -> Section | LeftOut:
    """Return the section on the calibration of probabilities and intervals."""
    title, held = "Calibration", found.calibration
    if found.intervals is not None:
        return _make_interval_section(title, found.intervals)
    if held is None:
        return LeftOut(title, f"{found.measured.name} predicts no probabilities")
    lines = [
        [format_percent(each.forecast), format_percent(each.observed), format_count(each.n_forecasts)]
        for each in held.bins
    ]
    shown = Figure(
        "Reliability diagram",
        plot_calibration(
            [each.forecast for each in held.bins],
            [each.observed for each in held.bins],
            [each.n_forecasts for each in held.bins],
            margins=[keep_margin(each.margin, each.n_forecasts) for each in held.bins],
        ),
        f"The expected calibration error is {format_percent(held.error, digits=2)}",
        numbers=Table("Forecasts by probability", ["forecast", "observed", "forecasts"], lines),
    )
    return Section(
        title=title,
        how="On the diagonal, probabilities are calibrated: of ten forecasts of 30\N{NO-BREAK SPACE}%, three come "
        "true. Above it, events are more frequent than forecast; below it, less frequent. "
        + _BARS.replace("test entries", "forecasts"),
        template="calibration.html",
        content={
            "reliability": shown,
            "error": format_percent(held.error, digits=2),
            "wanted_coverage": format_percent(held.wanted_coverage, digits=0),
            "coverage": format_percent(held.coverage),
            "width": format_amount(held.width),
        },
    )


def _make_interval_section(title: str, held: Sequence[IntervalCoverage]) -> Section:
    """Return the section on the share of real values inside prediction intervals."""
    listed = "; ".join(f"{format_percent(each.wanted, digits=0)}: {format_percent(each.coverage)}" for each in held)
    shown = Figure(
        "Coverage of prediction intervals",
        plot_calibration(
            [each.wanted for each in held],
            [each.coverage for each in held],
            [each.n_entries for each in held],
            margins=[keep_margin(each.margin, each.n_entries) for each in held],
            x_label="nominal coverage",
            y_label="share of values inside",
        ),
        f"Share of test values inside intervals, by nominal coverage: {listed}",
    )
    lines = [
        [
            format_percent(each.wanted, digits=0),
            f"{format_percent(each.coverage)} ± {format_percent(keep_margin(each.margin, each.n_entries))}",
            format_count(each.n_entries),
            format_amount(each.width),
        ]
        for each in held
    ]
    return Section(
        title=title,
        how="On the diagonal, intervals contain as many values as they should. Below it they are too narrow, above it "
        "too wide. Of two calibrated models, the one with narrower intervals is better.",
        template="intervals.html",
        content={
            "coverage": shown,
            "numbers": Table("Intervals by nominal coverage", ["nominal", "values inside", "of", "mean width"], lines),
        },
    )


def make_cold_start_section(found: Findings) -> Section:
    """Return the section on the error by the number of known entries of the row."""
    groups = found.measured.cold_start
    names = [name_group(group.first, group.last) for group in groups]
    errors = {each.name: [group.rmse for group in each.cold_start] for each in found.measurements}
    margins = {
        each.name: [keep_margin(group.margin, group.n_entries) for group in each.cold_start]
        for each in found.measurements
    }
    lines = [
        [name, format_count(group.n_entries), *(format_amount(own[at]) for own in errors.values())]
        for at, (name, group) in enumerate(zip(names, groups, strict=True))
    ]
    shown = Figure(
        "RMSE by number of known entries",
        plot_cold_start(names, errors, margins=margins, counts=[group.n_entries for group in groups]),
        "RMSE from rows with few entries to rows with many: "
        + "; ".join(f"{name} {format_amount(group.rmse)}" for name, group in zip(names, groups, strict=True)),
    )
    numbers = Table(
        "RMSE by entries of the row",
        ["entries of the row", "test entries", *(f"RMSE, {name}" for name in errors)],
        lines,
    )
    return Section(
        title="Cold start",
        how=f"A falling curve means that more known entries of a row make its predictions better. {_BARS}",
        template="cold_start.html",
        content={"errors": shown, "numbers": numbers},
    )


def make_column_section(found: Findings) -> Section | LeftOut:
    """Return the section on the columns with the highest and the lowest error, among those with enough test entries."""
    title, errors = "Worst and best columns", found.measured.columns
    enough = np.flatnonzero(errors.n_entries >= ENOUGH)
    if enough.size < 2:
        few = "no column has" if enough.size == 0 else "only one column has"
        return LeftOut(title, f"{few} at least {ENOUGH} test entries, the least for a meaningful error")
    by_error = enough[np.argsort(-errors.rmse[enough], kind="stable")]
    n_listed = min(_LISTED, enough.size // 2)
    return Section(
        title=title,
        how="Columns with a high error may have divided opinions or wrong values. The number after ± is the standard "
        "error.",
        template="columns.html",
        content={
            "sentence": f"Of {format_quantity(errors.labels.size, 'column')} with test entries, "
            f"{format_count(enough.size)} have at least {ENOUGH}; the median of their RMSE is "
            f"{format_amount(float(np.median(errors.rmse[enough])))}.",
            "worst": _make_column_table("Highest error", found, by_error[:n_listed]),
            "best": _make_column_table("Lowest error", found, by_error[::-1][:n_listed]),
        },
    )


def _make_column_table(caption: str, found: Findings, which: npt.NDArray[np.intp]) -> Table:
    errors = found.measured.columns
    names = ["column", "entries", "RMSE", *(f"RMSE, {each.name}" for each in found.measurements[1:])]
    lines = []
    for at in which.tolist():
        line = [
            shorten(format_label(errors.labels[at : at + 1].tolist()[0], found.model.column_names_)),
            format_count(errors.n_entries[at]),
            _format_margin(errors, at),
        ]
        if found.baseline is not None:
            line.append(format_amount(float(found.baseline.columns.rmse[at])))
        lines.append(line)
    return Table(caption, names, lines)


def _format_margin(errors: ColumnErrors, at: int) -> str:
    return f"{format_amount(float(errors.rmse[at]))} ± {format_amount(float(errors.uncertainty[at]))}"


def make_ranking_section(found: Findings) -> Section | LeftOut:
    """Return the section on the ranking of columns, compared with popularity."""
    title, ranked = "Ranking", found.ranking
    if ranked is None:
        return LeftOut(title, found.no_ranking)
    both = (ranked.model, ranked.popularity)
    scores = {each.name: [getattr(each, metric) for metric in ROW_METRICS] for each in both}
    margins = {each.name: [keep_margin(each.margins[metric], ranked.n_rows) for metric in ROW_METRICS] for each in both}
    names = [TITLES[metric] for metric in ROW_METRICS]
    listed = "; ".join(
        f"{name} {format_amount(score)}" for name, score in zip(names, scores[ranked.model.name], strict=True)
    )
    shown = Figure(
        f"The first {ranked.n} columns of each row",
        plot_bars(names, scores, margins=margins, y_label="score"),
        f"Scores of the first {ranked.n} columns of each row, ranked by {ranked.model.name}: {listed}",
    )
    lines = [
        [name, *(_format_score(scores[model][at], margins[model][at]) for model in scores)]
        for at, name in enumerate(names)
    ]
    lines += _describe_lists(both)
    return Section(
        title=title,
        how="Higher is better. For each row, the columns without an entry are ranked; the scores tell how many of its "
        f"relevant test entries are among the first {ranked.n}. {_BARS.replace('test entries', 'rows')}",
        template="ranking.html",
        content={
            "scores": shown,
            "meanings": _explain_scores(ranked),
            "sentence": _describe_ranking(ranked),
            "steered": _plot_steered(found, ranked.n),
            "tables": [Table(f"Scores at {ranked.n}", ["", *scores], lines), *_tabulate_areas(ranked)],
        },
    )


def _plot_steered(found: Findings, n: int) -> Figure | None:
    """Return the figure on accuracy against popularity; None where lists cannot be steered."""
    if not found.steered:
        return None
    ndcg, popularity = ([getattr(each, name) for each in found.steered] for name in ("ndcg", "mean_popularity"))
    axes = plot_lines({"lists": (popularity, ndcg)}, x_label="mean popularity of listed columns", y_label="NDCG")
    for each in found.steered:
        axes.annotate(f"{each.popularity:g}", (each.mean_popularity, each.ndcg), (4, 5), textcoords="offset points")
    listed = "; ".join(f"{each.popularity:g}: {each.ndcg:.3f} at {each.mean_popularity:.3f}" for each in found.steered)
    title = f"Accuracy against popularity, by the option popularity (0 removes it, 1 as learned), first {n} columns"
    return Figure(title, axes, f"NDCG and mean popularity of the lists by the option popularity: {listed}")


_OF_LISTS = ("gini", "tail_share", "mean_popularity", "list_similarity", "miscalibration")


def _describe_lists(rankings: tuple[RankingScores, ...]) -> list[list[str]]:
    """Return the lines on the columns of all lists; none where all lists are empty."""
    if any(each.n_distinct is None for each in rankings):
        return []
    return [
        ["distinct columns", *(format_count(each.n_distinct or 0) for each in rankings)],
        ["coverage", *(format_percent(each.coverage or 0.0) for each in rankings)],
        ["novelty", *(f"{each.novelty or 0.0:.2f} bits" for each in rankings)],
        *(
            [TITLES[metric], *(f"{getattr(each, metric):.3f}" for each in rankings)]
            for metric in _OF_LISTS
            if getattr(rankings[0], metric) is not None
        ),
    ]


def _tabulate_areas(ranked: RankingEvaluation) -> list[Table]:
    """Return a table of NDCG and recall in each area; none if there is only one area."""
    if len(ranked.areas) < 2:
        return []
    metrics = ("ndcg", "recall")
    names = [
        "area",
        "rows",
        *(f"{TITLES[metric]}, {each}" for metric in metrics for each in (ranked.model.name, "popularity")),
    ]

    def line(own: AreaRanking) -> list[str]:
        scores = [getattr(each, metric) for metric in metrics for each in (own.model, own.popularity)]
        return [own.area, format_count(own.n_rows), *(f"{score:.3f}" for score in scores)]

    caption = f"Scores at {ranked.n} by area, among its own columns"
    return [Table(caption, names, [line(own) for own in ranked.areas.values()])]


def _format_score(score: float, margin: float | None) -> str:
    return f"{score:.3f} ± {'–' if margin is None else f'{margin:.3f}'}"


def _explain_scores(ranked: RankingEvaluation) -> list[tuple[str, str]]:
    return [
        (
            "NDCG",
            f"relevant entries among the first {ranked.n}, the first places with more weight; 1 is the best order",
        ),
        (
            "recall",
            f"the share of a row\N{RIGHT SINGLE QUOTATION MARK}s relevant entries that is among the first {ranked.n}",
        ),
        (
            "precision",
            f"the share of the first {ranked.n} that is relevant; columns without a test entry count as not relevant",
        ),
        ("MRR", "one divided by the place of the first relevant entry"),
        ("MAP", "the mean precision at the places of all relevant entries"),
        ("hit rate", f"the share of rows with a relevant entry among the first {ranked.n}"),
        ("coverage", "the share of all columns that is in the list of at least one row"),
        ("Gini", "how unequally the columns share the places of all lists: 0 alike, 1 one column has all"),
        ("share of tail", "the places of the least popular columns, which have a fifth of the entries"),
        ("mean popularity", "the share of the rows that have an entry in a listed column"),
        ("list similarity", "the mean cosine of two columns of a list"),
        ("novelty", "how rare the columns of the lists are: 1 bit if half of the rows have an entry there"),
    ]


def _describe_ranking(ranked: RankingEvaluation) -> str:
    what = "All test entries" if ranked.relevant is None else f"Test entries of at least {ranked.relevant:g}"
    rows = f"{format_quantity(ranked.n_rows, 'row')} with {format_quantity(ranked.n_relevant, 'relevant test entry')}"
    left_out = (
        f"{format_count(ranked.n_without)} rows without one are left out" if ranked.n_without else "every row has one"
    )
    sentence = f"{what} are relevant: {rows}; {left_out}. The model ranks columns by {ranked.rank_by}."
    if ranked.n_not_drawn:
        share = format_percent(ranked.n_rows / (ranked.n_rows + ranked.n_not_drawn))
        sentence += f" These rows are a random sample: {share} of all rows with relevant entries."
    if ranked.n_given is not None:
        sentence += (
            f" The model had never seen these rows: it was given {format_quantity(ranked.n_given, 'entry')} of them."
        )
    if ranked.min_entries:
        sentence += f" Columns with fewer than {format_count(ranked.min_entries)} entries are not ranked."
    return (
        f"{sentence} Popularity, the baseline, ranks columns by their number of entries. Popular columns have most "
        "of the test entries, so a model that predicts values well may still score lower."
    )


def make_learning_section(found: Findings) -> Section | LeftOut:
    """Return the section on the loss and the validation error by epoch."""
    title, history = "Learning curve", found.model.history_
    errors = dict(list_points(history, "validation_error"))
    if not list_points(history, "loss"):
        return LeftOut(title, f"{found.measured.name} is not trained in epochs")
    curves = [_plot_curve(history, name, plot()) for name, plot in list_curves(history).items()]
    how = "The curve should fall and level off. Without validation entries it does not show overfitting."
    if errors:
        how = "Both curves should fall and level off. A validation error that rises while the loss falls shows overfit."
    return Section(title, how, "learning.html", {"sentence": _describe_history(history, errors), "curves": curves})


def _plot_curve(history: History, name: str, plot: Axes) -> Figure:
    """Return a learning curve; the description gives its first and last value."""
    points = list_points(history, "loss" if "Loss" in name else "validation_error")
    ends = ", ".join(f"{number:.4g} in epoch {epoch}" for epoch, number in (points[0], points[-1]))
    return Figure(name, plot, f"{name}: {ends}")


def _describe_history(history: History, errors: dict[int, float]) -> str:
    sentence = f"Training ran for {describe_training(history)}."
    kept = len(history) if history.best_epoch is None else history.best_epoch + 1
    if history.best_error is None:
        return f"{sentence} There were no validation entries; the weights are those of epoch {kept}."
    lowest = errors.get(kept, history.best_error)
    sentence += f" The weights are those of epoch {kept}, which has the lowest validation RMSE, {lowest:.4f}."
    if history.stages:
        sentence += f" The steps after training are not on the curve: {describe_stages(history.stages)}."
    means = history.means_error
    return sentence if means is None else f"{sentence} The means have a validation RMSE of {means:.4f}."


def make_settings_section(found: Findings) -> Section:
    """Return the section on the settings of the model and on the machine that wrote the page."""
    model = found.model
    settings = [
        [name, _format_setting(value) + (" (chosen)" if name in model.chosen_ else "")]
        for name, value in model.settings.to_dict().items()
    ]
    runtime = [
        ["page written", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())],
        ["deepmf", find_version()],
        ["Python", platform.python_version()],
        ["torch", str(torch.__version__)],
        ["numpy", np.__version__],
        ["system", f"{platform.system()}, {platform.machine()}"],
        ["device", Runtime().describe()],
    ]
    return Section(
        title="Settings and environment",
        how="These settings and the same entries give the same model again; settings marked as chosen were chosen at "
        "fit. The second table describes the machine that wrote this page.",
        template="settings.html",
        content={
            "settings": Table(f"Settings of {type(model).__name__}", ["setting", "value"], settings),
            "runtime": Table("Environment of this page", ["part", "version"], runtime),
        },
    )


def _format_setting(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_format_setting(item) for item in value)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
