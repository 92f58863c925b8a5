"""The sections of a report, in the order of the page: each answers one question about a model on
test entries."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.evaluation.areas import STARTS, UNKNOWN, AreaErrors, ColdStart
from deepmf.evaluation.calibration import CertaintyByCount, IntervalCoverage
from deepmf.evaluation.ranking import ROW_METRICS, TITLES, RankingEvaluation
from deepmf.formatting import (
    describe_relevant,
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
from deepmf.models.base import Model
from deepmf.models.neighbours import Neighbours, find_block
from deepmf.models.positions.curves import find_curves
from deepmf.plots import (
    MOST_WRITTEN,
    plot_bars,
    plot_block,
    plot_calibration,
    plot_cold_start,
    plot_confusion,
    plot_lines,
)
from deepmf.report.content import Figure, LeftOut, Section, Table, shorten
from deepmf.report.findings import Findings
from deepmf.scoring.factors import Factors
from deepmf.storage.model_file import find_version
from deepmf.training.history import History, describe_stages, describe_training

MEANINGS = {
    "I": "known row, known column",
    "II": "new row, known column",
    "III": "known row, new column",
    "IV": "new row, new column",
    UNKNOWN: "row or column unknown to the model: predicted by means",
}

# The least number of test entries for an error bar and of a column that is compared.
ENOUGH = 20

_LEAST_POINTS = 2  # of a curve

_ROWS_OF_BLOCK = 30  # of a heat map
_BINS = 20  # of values on a scale without levels
_LISTED = 10  # columns from either end
_BARS = f"Error bars are standard errors; they need {ENOUGH} test entries."


def make_data_section(found: Findings) -> Section:
    """Return the section on the training entries and the test entries."""
    train, scale, n_dropped = found.seen.train, found.seen.scale, found.seen.dropped.size
    parts = {"training": train, "extension": found.seen.extension, "test": found.test}
    sizes = {name: _list_facts(part) for name, part in parts.items() if part is not None}
    lines = [
        [fact, *(facts_of_part[fact] for facts_of_part in sizes.values())]
        for fact in sizes["training"]
    ]
    choice = found.model.describe_choice()  # of cells that nobody chose
    levels = f"on {0 if scale.levels is None else scale.levels.size} levels from {scale.low:g} to {scale.high:g}"
    dropped = (
        f" {format_count(n_dropped)} training entries were replaced or forgotten later."
        if n_dropped
        else ""
    )
    return Section(
        title="The data",
        how="The model was trained on the training entries and predicts the test entries. Expect the same errors on "
        f"future entries if they are distributed like the test entries. Values are "
        f"{levels if scale.levels is not None and len(str(scale)) > 60 else scale}. Density is the share of the pairs "
        f"of rows and columns with entries that have one.{dropped}"
        + (f" Beware: {choice}." if choice else ""),
        figures=[
            _plot_values(train, found.test),
            _plot_counts("row", train.row_counts),
            _plot_counts("column", train.column_counts),
        ],
        tables=[Table("Size", ["", *sizes], lines)],
    )


def _list_facts(part: ObservedMatrix) -> dict[str, str]:
    shown = part.describe()
    n_rows, n_columns = shown.n_rows - shown.n_empty_rows, shown.n_columns - shown.n_empty_columns
    return {
        "entries": format_count(shown.n_entries),
        "rows": format_count(n_rows),
        "columns": format_count(n_columns),
        "density": format_percent(shown.n_entries / max(n_rows * n_columns, 1), digits=2),
        "mean": format_amount(shown.mean),
        "standard deviation": format_amount(shown.standard_deviation),
    }


def _plot_values(train: ObservedMatrix, test: ObservedMatrix) -> Figure:
    """Plot the shares of the levels, or of bins, among training and test entries."""
    levels = train.scale.levels
    if levels is None:
        low, high = (
            min(train.scale.low, float(test.values.min())),
            max(train.scale.high, float(test.values.max())),
        )
        edges = np.linspace(low, high, _BINS + 1)
        names = [format_short(float(f"{middle:.3g}")) for middle in (edges[:-1] + edges[1:]) / 2]
    else:
        edges = np.array([-np.inf, *(levels[:-1] + levels[1:]) / 2, np.inf])
        names = [format_short(level) for level in levels]
    shares: dict[str, FloatArray] = {
        name: np.histogram(part.values, edges)[0] / max(part.n_entries, 1)
        for name, part in (("training", train), ("test", test))
    }
    lines = [
        [name, *(format_percent(share[at]) for share in shares.values())]
        for at, name in enumerate(names)
    ]
    return Figure(
        "Distribution of values",
        plot_bars(
            names,
            {name: share.tolist() for name, share in shares.items()},
            x_label="value" if levels is None else "level",
            y_label="share of entries",
            percent=True,
        ),
        f"Share of entries by value, training and test; the most frequent training value is "
        f"{names[int(np.argmax(shares['training']))]}",
        numbers=Table("Share of entries by value", ["value", *shares], lines),
    )


def _plot_counts(axis: str, counts: npt.NDArray[np.integer]) -> Figure:
    """Plot a histogram of the number of training entries per row (or column)."""
    which = np.searchsorted(STARTS, counts, side="right") - 1
    numbers = np.bincount(which, minlength=len(STARTS)).tolist()
    ends = [*(start - 1 for start in STARTS[1:]), None]
    shown = {
        name_group(STARTS[at], ends[at]): int(numbers[at])
        for at in range(int(which.min()), int(which.max()) + 1)
    }
    median, title = float(np.median(counts)), f"Training entries per {axis}"
    lines = [[name, format_count(n)] for name, n in shown.items()]
    return Figure(
        title,
        plot_bars(
            list(shown),
            {f"{axis}s": list(shown.values())},
            x_label=f"entries of a {axis} (median {median:g})",
            y_label=f"{axis}s",
        ),
        f"Number of {axis}s by number of training entries; the median is {median:g}",
        numbers=Table(title, ["entries", f"{axis}s"], lines),
    )


def keep_margin(margin: float | None, n_entries: int) -> float | None:
    """Return the margin of an error if enough test entries support it, otherwise None."""
    return margin if n_entries >= ENOUGH else None


def _list_margins(parts: Sequence[AreaErrors | ColdStart | IntervalCoverage]) -> list[float | None]:
    return [keep_margin(part.margin, part.n_entries) for part in parts]


def name_group(first: int, last: int | None) -> str:
    """Return the name of a group of counts: 0, 2–4, 500+."""
    if last is None:
        return f"{first}+"
    return f"{first}" if last == first else f"{first}–{last}"


def make_area_section(found: Findings) -> Section:
    """Return the section on the errors of the model and of the means in each area."""
    # Of one area, the errors of all areas say the same.
    parts = {
        measurement.name: measurement.areas if len(measurement.areas) > 2 else measurement.areas[:1]
        for measurement in found.measurements
    }
    areas = parts[found.measured.name]
    errors = "; ".join(f"{part.area} {format_amount(part.rmse)}" for part in areas)
    figure = Figure(
        "RMSE on the test entries",
        plot_bars(
            [part.area for part in areas],
            {
                name: [part.rmse for part in errors_of_model]
                for name, errors_of_model in parts.items()
            },
            margins={
                name: _list_margins(errors_of_model) for name, errors_of_model in parts.items()
            },
            counts=[part.n_entries for part in areas],
            x_label="area, and its test entries",
            y_label="RMSE",
        ),
        f"RMSE of {found.measured.name} by area: {errors}",
    )
    of_means = "the overall mean plus an effect of the row and an effect of the column, computed from the same entries"
    return Section(
        title="Error by area",
        how="Lower is better. RMSE is the typical error in the units of the values; it weighs large errors more than "
        f"small ones, MAE weighs them equally. {_BARS}",
        figures=[figure],
        meanings=[
            (part.area if part.area == UNKNOWN else f"Area {part.area}", MEANINGS[part.area])
            for part in found.measured.areas
            if part.area in MEANINGS
        ],
        sentences=[
            "Known rows and columns were there in training; new ones were added later, without training.",
            "This model is the baseline itself."
            if found.baseline is None
            else f"The {found.baseline.name} are the baseline: {of_means}.",
        ],
        tables=[_tabulate_areas(found, list(parts.values()))],
    )


def _tabulate_areas(found: Findings, parts: list[list[Any]]) -> Table:
    shown = {"RMSE": "rmse", "MAE": "mae"}
    if not found.measured.answers_levels:
        shown |= {"RMSE of levels": "level_rmse", "MAE of levels": "level_mae"}
    shown |= {"RMSE of median levels": "median_rmse", "MAE of median levels": "median_mae"}
    shown = {title: name for title, name in shown.items() if getattr(parts[0][0], name) is not None}
    names, lines = ["area", "entries", *shown], []
    if found.baseline is not None:
        names += [f"RMSE, {found.baseline.name}", "difference"]
    for part, *means in zip(*parts, strict=True):
        line = [part.area, format_count(part.n_entries)]
        line += [format_amount(getattr(part, name)) for name in shown.values()]
        lines.append(
            line
            + [
                text
                for model_errors in means
                for text in (
                    format_amount(model_errors.rmse),
                    format_difference(part.rmse, model_errors.rmse),
                )
            ]
        )
    return Table("Errors by area", names, lines)


def make_confusion_section(found: Findings) -> Section | LeftOut:
    """Return the section on predicted and true levels."""
    title, counts, scale = "Confusion of levels", found.confusion, found.model.scale_
    if counts is None or scale.levels is None:
        return LeftOut(title, f"the scale {scale} has no levels")
    levels, totals = [format_short(level) for level in scale.levels], counts.sum(axis=1)
    shares: FloatArray = counts / np.maximum(totals, 1)[:, None]
    few = len(levels) <= MOST_WRITTEN
    lines = [
        [
            level,
            format_count(totals[at]),
            *(format_percent(share, digits=0) for share in shares[at]),
        ]
        for at, level in enumerate(levels)
    ]
    exact, near = map(format_percent, compute_hit_shares(found))
    hits = f"The predicted level is exactly right for {exact} of the test entries and at most one level off for {near}."
    shown = Figure(
        "Predicted levels for each true level, "
        + ("in per cent" if few else f"up to {format_percent(shares.max())}"),
        plot_confusion(shares, levels),
        f"Map of predicted levels for each true level. {hits}",
        Table(
            "Predicted levels (across) for each true level (down)",
            ["true level", "entries", *levels],
            lines,
        )
        if few
        else None,
    )
    return Section(
        title=title,
        how="Each row of the map shows the predictions for one true level. A perfect model has all predictions on the "
        "diagonal.",
        figures=[shown],
        sentences=[
            hits,
            "Models that minimise the error predict the ends of the scale too rarely.",
        ],
    )


def compute_hit_shares(found: Findings) -> tuple[float, float]:
    """Return the share of test entries whose level is exactly right, and at most one level off."""
    assert found.confusion is not None
    counts, n_levels = found.confusion, found.confusion.shape[0]
    off = np.abs(np.arange(n_levels)[:, None] - np.arange(n_levels))
    return float(counts[off == 0].sum() / counts.sum()), float(
        counts[off <= 1].sum() / counts.sum()
    )


def make_calibration_section(found: Findings) -> Section | LeftOut:
    """Return the section on the calibration of probabilities and intervals."""
    title, calibration = "Calibration", found.calibration
    if found.intervals is not None:
        return _make_interval_section(title, found.intervals, found.certainty)
    if calibration is None:
        return LeftOut(title, f"{found.measured.name} predicts no probabilities")
    lines = [
        [
            format_percent(reliability.forecast),
            format_percent(reliability.observed),
            format_count(reliability.n_forecasts),
        ]
        for reliability in calibration.bins
    ]
    error, expectation = (
        format_percent(calibration.error, digits=2),
        format_percent(calibration.wanted_coverage, digits=0),
    )
    shown = Figure(
        "Reliability diagram",
        plot_calibration(
            [reliability.forecast for reliability in calibration.bins],
            [reliability.observed for reliability in calibration.bins],
            [reliability.n_forecasts for reliability in calibration.bins],
            margins=[
                keep_margin(reliability.margin, reliability.n_forecasts)
                for reliability in calibration.bins
            ],
        ),
        f"The expected calibration error is {error}",
        Table("Forecasts by probability", ["forecast", "observed", "forecasts"], lines),
    )
    return Section(
        title=title,
        how="On the diagonal, probabilities are calibrated: of ten forecasts of 30\N{NO-BREAK SPACE}%, three come "
        "true. Above it, events are more frequent than forecast; below it, less frequent. "
        + _BARS.replace("test entries", "forecasts"),
        figures=[shown, *_plot_certainty(found.certainty)],
        meanings=[
            (
                error,
                "Expected calibration error: mean difference between forecast and observed frequency; 0 is best",
            ),
            (
                format_percent(calibration.coverage),
                f"Coverage of the {expectation} interval: share of values inside; it differs from "
                f"{expectation} because intervals end at levels",
            ),
            (
                format_amount(calibration.width),
                "Mean width of that interval in the units of the values; at equal coverage, narrower is better",
            ),
        ],
    )


def _plot_certainty(certainty: Sequence[CertaintyByCount]) -> list[Figure]:
    """Plot the share of values inside intervals by the number of known entries of the row, where
    there is any."""
    if not certainty:
        return []
    names = [name_group(group.first, group.last) for group in certainty]
    intervals = [group.interval for group in certainty]
    nominal = format_percent(intervals[0].wanted, digits=0)
    lines = [
        [
            name,
            format_count(group.interval.n_entries),
            format_percent(group.interval.coverage),
            format_amount(group.interval.width),
            "" if group.error is None else format_percent(group.error, digits=2),
        ]
        for name, group in zip(names, certainty, strict=True)
    ]
    heads = ["entries of the row", "test entries", "values inside", "mean width"]
    if certainty[0].error is None:
        lines = [line[:-1] for line in lines]
    else:
        heads.append("calibration error")
    label = f"inside {nominal} intervals"
    drawing = plot_cold_start(
        names,
        {
            "test values": [interval.coverage for interval in intervals],
            "wanted": [interval.wanted for interval in intervals],
        },
        margins={"test values": _list_margins(intervals)},
        counts=[interval.n_entries for interval in intervals],
        y_label=label,
        percent=True,
    )
    caption = f"Share of test values {label}, from rows with few entries to rows with many: "
    return [
        Figure(
            "Coverage by number of known entries",
            drawing,
            caption + "; ".join(f"{line[0]} {line[2]}" for line in lines),
            Table("Probabilities by entries of the row", heads, lines),
        )
    ]


def _make_interval_section(
    title: str, held: Sequence[IntervalCoverage], certainty: Sequence[CertaintyByCount]
) -> Section:
    """Return the section on the share of real values inside prediction intervals."""
    margins = _list_margins(held)
    lines = [
        [
            format_percent(coverage.wanted, digits=0),
            f"{format_percent(coverage.coverage)} ± {format_percent(margin)}",
            format_count(coverage.n_entries),
            format_amount(coverage.width),
        ]
        for coverage, margin in zip(held, margins, strict=True)
    ]
    shown = Figure(
        "Coverage of prediction intervals",
        plot_calibration(
            [coverage.wanted for coverage in held],
            [coverage.coverage for coverage in held],
            [coverage.n_entries for coverage in held],
            margins=margins,
            x_label="nominal coverage",
            y_label="share of values inside",
        ),
        "Share of test values inside intervals, by nominal coverage: "
        + "; ".join(": ".join(line[:2]) for line in lines),
    )
    return Section(
        title=title,
        how="On the diagonal, intervals contain as many values as they should. Below it they are too narrow, above it "
        "too wide. Of two calibrated models, the one with narrower intervals (in the units of the values) is better.",
        figures=[shown, *_plot_certainty(certainty)],
        tables=[
            Table(
                "Intervals by nominal coverage",
                ["nominal", "values inside", "of", "mean width"],
                lines,
            )
        ],
    )


def make_cold_start_section(found: Findings) -> Section:
    """Return the section on the error by the number of known entries of the row."""
    groups = found.measured.cold_start
    names = [name_group(group.first, group.last) for group in groups]
    curves_of_models = {
        measurement.name: measurement.cold_start for measurement in found.measurements
    }
    lines = [
        [
            name,
            format_count(group.n_entries),
            *(format_amount(parts[at].rmse) for parts in curves_of_models.values()),
        ]
        for at, (name, group) in enumerate(zip(names, groups, strict=True))
    ]
    shown = Figure(
        "RMSE by number of known entries",
        plot_cold_start(
            names,
            {name: [group.rmse for group in parts] for name, parts in curves_of_models.items()},
            margins={name: _list_margins(parts) for name, parts in curves_of_models.items()},
            counts=[group.n_entries for group in groups],
        ),
        "RMSE from rows with few entries to rows with many: "
        + "; ".join(f"{line[0]} {line[2]}" for line in lines),
    )
    heads = ["entries of the row", "test entries", *(f"RMSE, {name}" for name in curves_of_models)]
    return Section(
        title="Cold start",
        how=f"A falling curve means that more known entries of a row make its predictions better. {_BARS}",
        figures=[shown],
        tables=[Table("RMSE by entries of the row", heads, lines)],
    )


def make_column_section(found: Findings) -> Section | LeftOut:
    """Return the section on the columns with the highest and the lowest error, among those with
    enough test entries."""
    title, errors = "Worst and best columns", found.measured.columns
    enough = np.flatnonzero(errors.n_entries >= ENOUGH)
    if enough.size < 2:
        few = "no column has" if enough.size == 0 else "only one column has"
        return LeftOut(
            title, f"{few} at least {ENOUGH} test entries, the least for a meaningful error"
        )
    by_error = enough[np.argsort(-errors.rmse[enough], kind="stable")]
    n_listed = min(_LISTED, enough.size // 2)
    names = [
        "column",
        "entries",
        "RMSE",
        *(f"RMSE, {measurement.name}" for measurement in found.measurements[1:]),
    ]

    def describe(at: int) -> list[str]:
        other_errors = (
            []
            if found.baseline is None
            else [format_amount(float(found.baseline.columns.rmse[at]))]
        )
        return [
            shorten(
                format_label(errors.labels[at : at + 1].tolist()[0], found.model.column_names_)
            ),
            format_count(errors.n_entries[at]),
            f"{format_amount(float(errors.rmse[at]))} ± {format_amount(float(errors.uncertainty[at]))}",
            *other_errors,
        ]

    return Section(
        title=title,
        how="Columns with a high error may have divided opinions or wrong values. The number after ± is the standard "
        f"error. Of {format_quantity(errors.labels.size, 'column')} with test entries, {format_count(enough.size)} "
        f"have at least {ENOUGH}; the median of their RMSE is {format_amount(float(np.median(errors.rmse[enough])))}.",
        tables=[
            Table("Highest error", names, list(map(describe, by_error[:n_listed].tolist()))),
            Table("Lowest error", names, list(map(describe, by_error[::-1][:n_listed].tolist()))),
        ],
    )


def make_ranking_section(found: Findings) -> Section | LeftOut:
    """Return the section on the ranking of columns, compared with popularity."""
    title, ranked = "Ranking", found.ranking
    if ranked is None:
        return LeftOut(title, found.no_ranking)
    both_scores = (ranked.model, ranked.popularity)
    scores = {
        ranking_scores.name: [getattr(ranking_scores, metric) for metric in ROW_METRICS]
        for ranking_scores in both_scores
    }
    margins = {
        ranking_scores.name: [
            keep_margin(ranking_scores.margins[metric], ranked.n_rows) for metric in ROW_METRICS
        ]
        for ranking_scores in both_scores
    }
    names = [TITLES[metric] for metric in ROW_METRICS]
    lines = [
        [
            name,
            *(
                f"{scores[ranking_name][at]:.3f} ± {_round_margin(margins[ranking_name][at])}"
                for ranking_name in scores
            ),
        ]
        for at, name in enumerate(names)
    ]
    if ranked.model.n_distinct is not None:
        lines.append(
            [
                "distinct columns",
                *(format_count(ranking_scores.n_distinct or 0) for ranking_scores in both_scores),
            ]
        )
        lines += [
            [text, *(f"{getattr(ranking_scores, metric):.3f}" for ranking_scores in both_scores)]
            for metric, text in TITLES.items()
            if metric not in ROW_METRICS
            and all(getattr(ranking_scores, metric) is not None for ranking_scores in both_scores)
        ]
    listed = "; ".join(f"{line[0]} {line[1]}" for line in lines[: len(names)])
    shown = Figure(
        f"The first {ranked.n} columns of each row",
        plot_bars(names, scores, margins=margins, y_label="score"),
        f"Scores of the first {ranked.n} columns of each row, ranked by {ranked.model.name}: {listed}",
    )
    return Section(
        title=title,
        how="Higher is better. For each row, the columns without an entry are ranked; the scores tell how many of its "
        f"relevant test entries are among the first {ranked.n}. {_BARS.replace('test entries', 'rows')}",
        figures=[shown],
        meanings=_SCORES,
        sentences=[_describe_ranking(ranked)],
        tables=[Table(f"Scores at {ranked.n}", ["", *scores], lines)],
    )


def _round_margin(margin: float | None) -> str:
    return format_amount(None) if margin is None else f"{margin:.3f}"


_SCORES = [
    (
        "NDCG",
        "relevant entries in the list, the first places with more weight; 1 is the best order",
    ),
    (
        "recall",
        "share of a row\N{RIGHT SINGLE QUOTATION MARK}s relevant entries that is in the list",
    ),
    (
        "precision",
        "share of the list that is relevant; columns without a test entry count as not relevant",
    ),
    ("MRR", "one divided by the place of the first relevant entry"),
    ("MAP", "mean precision at the places of all relevant entries"),
    ("hit rate", "share of rows with a relevant entry in the list"),
    ("coverage", "share of all columns that is in the list of at least one row"),
    ("novelty", "how rare the listed columns are: 1 bit if half of the rows have an entry there"),
    (
        "Gini",
        "how unequally the columns share the places of all lists: 0 alike, 1 one column has all",
    ),
    ("share of tail", "places of the least popular columns, which have a fifth of the entries"),
    ("mean popularity", "share of the rows that have an entry in a listed column"),
    ("list similarity", "mean cosine of two columns of a list"),
]


def _describe_ranking(ranked: RankingEvaluation) -> str:
    rows = f"{format_quantity(ranked.n_rows, 'row')} with {format_quantity(ranked.n_relevant, 'relevant test entry')}"
    left_out = (
        f"{format_count(ranked.n_without)} rows without one are left out"
        if ranked.n_without
        else "every row has one"
    )
    sentence = (
        f"{rows} ({describe_relevant(ranked.relevant)}); {left_out}. "
        f"The model ranks columns by {ranked.rank_by}."
    )
    if ranked.n_not_drawn:
        share = format_percent(ranked.n_rows / (ranked.n_rows + ranked.n_not_drawn))
        sentence += f" These rows are a random sample: {share} of all rows with relevant entries."
    if ranked.n_given is not None:
        n_given = format_quantity(ranked.n_given, "entry")
        sentence += f" The model had never seen these rows: it was given {n_given} of them."
    if ranked.min_entries:
        sentence += (
            f" Columns with fewer than {format_count(ranked.min_entries)} entries are not ranked."
        )
    return (
        f"{sentence} Popularity, the baseline, ranks columns by their number of entries. Popular columns have most "
        "of the test entries, so a model that predicts values well may still score lower."
    )


def make_learning_section(found: Findings) -> Section | LeftOut:
    """Return the section on the loss and the validation error by epoch."""
    title, history = "Learning curve", found.model.history_
    curves = {
        "Loss on the training entries": _list_points(history, "loss"),
        "RMSE on the validation entries": _list_points(history, "validation_error"),
    }
    losses, errors = curves.values()
    if len(losses) < _LEAST_POINTS:
        return LeftOut(title, f"{found.measured.name} was not trained in several epochs")
    how = "The curve should fall and level off. Without validation entries it does not show overfitting."
    if errors:
        how = "Both curves should fall and level off. A validation error that rises while the loss falls shows overfit."
    figures = []
    for name, points in curves.items():
        if points:
            epochs, numbers = zip(*points, strict=True)
            plot = plot_lines({name: (epochs, numbers)}, x_label="epoch", y_label=name.split()[0])
            ends = f"{numbers[0]:.4g} in epoch {epochs[0]}, {numbers[-1]:.4g} in epoch {epochs[-1]}"
            figures.append(Figure(name, plot, f"{name}: {ends}"))
    return Section(title, f"{how} {_describe_history(history, dict(errors))}", figures)


def _list_points(history: History, metric: str) -> list[tuple[int, float]]:
    """Return (epoch, number) for the epochs with a metric, counted from 1."""
    points = ((record.epoch + 1, getattr(record, metric)) for record in history.records)
    return [
        (epoch, number) for epoch, number in points if number is not None and math.isfinite(number)
    ]


def _describe_history(history: History, errors: dict[int, float]) -> str:
    sentence = f"Training ran for {describe_training(history)}."
    n_kept = len(history) if history.best_epoch is None else history.best_epoch + 1
    if history.best_error is None:
        return (
            f"{sentence} There were no validation entries; the weights are those of epoch {n_kept}."
        )
    lowest = errors.get(n_kept, history.best_error)
    sentence += f" The weights are those of epoch {n_kept}, which has the lowest validation RMSE, {lowest:.4f}."
    if history.stages:
        sentence += (
            f" The steps after training are not on the curve: {describe_stages(history.stages)}."
        )
    means = history.means_error
    if means is None:
        return sentence
    return f"{sentence} The means have a validation RMSE of {means:.4f}."


def _list_members(model: Model) -> list[Table]:
    """Return what each member of a blend gains on held-out entries; nothing of other models."""
    chosen = model.chosen_
    shares: dict[str, float] = chosen.get("members", {})
    lines = [
        [name, format_percent(shares.get(name, 0.0)), words]
        for name, words in chosen.get("parts", {}).items()
    ]
    names = ["member", "share", "on held-out entries"]
    return [Table("Members", names, lines, in_words=True)] if lines else []


def _plot_curves(model: Model) -> list[Figure]:
    """Plot the curves that smooth factors have learned, where there are any."""
    member = model.predictor_.members.get("positions")
    if member is None or not isinstance(member.fitted, Factors):
        return []
    found = find_curves(member.fitted, model.entries_)
    lines = {
        f"{number}: {format_percent(share)} of the variation": (
            found.positions.tolist(),
            curve.tolist(),
        )
        for number, (curve, share) in enumerate(zip(found.curves, found.shares, strict=True), 1)
    }
    title = f"Main curves along {found.name}"
    plot = plot_lines(lines, x_label=found.name, y_label="deviation")
    return [Figure(title, plot, f"{title}, which all series are mixtures of")]


def _plot_neighbours(model: Model) -> list[Figure]:
    """Plot columns that predict each other, where values are predicted so."""
    member = model.predictor_.members.get("neighbours")
    if member is None or not isinstance(member.fitted, Neighbours):
        return []
    if member.fitted.predicts_residuals:
        return []
    entries = model.entries_
    block = find_block(member.fitted, entries, n_rows=_ROWS_OF_BLOCK)
    is_observed = ~np.isnan(block.values)
    values = block.values.copy()
    missing_rows, missing_columns = np.nonzero(~is_observed)
    row_labels = entries.rows.take(block.rows[missing_rows])
    column_labels = entries.columns.take(block.columns[missing_columns])
    values[~is_observed] = model.predict(row_labels.array, column_labels.array)
    name = format_label(entries.columns[int(block.columns[0])], model.column_names_)
    title = f"Column {shorten(name)} and those nearest to it"
    plot = plot_block(
        values, is_observed, x_label="columns (orange: predicted)", y_label="rows that lack entries"
    )
    words = (
        f"{title}: entries in blue, predictions of missing ones in orange; large values are deep"
    )
    return [Figure(title, plot, words)]


def make_settings_section(found: Findings) -> Section:
    """Return the section on the settings of the model."""
    model = found.model
    settings = [
        [name, _format_setting(value) + (" (chosen)" if name in model.chosen_ else "")]
        for name, value in model.settings.to_dict().items()
    ]
    written = f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())} by deepmf {find_version()}"
    return Section(
        title="Settings",
        how="These settings and the same entries give the same model again; settings marked as chosen were chosen at "
        f"fit. Written on {written} on {platform.machine()}.",
        figures=[*_plot_curves(model), *_plot_neighbours(model)],
        tables=[
            *_list_members(model),
            Table(
                f"Settings of {type(model).__name__}", ["setting", "value"], settings, in_words=True
            ),
        ],
    )


def _format_setting(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_format_setting(item) for item in value)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


SECTIONS = (
    make_data_section,
    make_area_section,
    make_confusion_section,
    make_calibration_section,
    make_cold_start_section,
    make_column_section,
    make_ranking_section,
    make_learning_section,
    make_settings_section,
)
