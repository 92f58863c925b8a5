"""The sections on errors: by area, by the number of entries of a row, and by column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepmf.evaluation.area_evaluation import UNKNOWN, AreaErrors
from deepmf.evaluation.columns import ColumnErrors
from deepmf.formatting import format_amount, format_count, format_difference, format_quantity
from deepmf.plots import plot_areas, plot_cold_start
from deepmf.report.content import Figure, LeftOut, Section, Table, shortened
from deepmf.report.data_section import group_name
from deepmf.report.findings import Findings

MEANINGS = {
    "I": "known row, known column",
    "II": "new row, known column",
    "III": "known row, new column",
    "IV": "new row, new column",
    UNKNOWN: "a row or column that the model does not know: predicted by the means of what is known",
    "all": "all areas together",
}
# The least number of test entries of a column that is compared, and how many columns are listed from either end.
ENOUGH = 20
_LISTED = 10


def area_section(found: Findings) -> Section:
    """Return the errors in each area, against those of the means."""
    areas = _shown_areas(found.measured.areas)
    return Section(
        title="Error by area",
        how="Shorter bars are better: RMSE is the typical size of an error in the units of the values, weighing large "
        "errors more than small ones (MAE weighs them equally); the thin bars are its uncertainty.",
        template="areas.html",
        content={
            "errors": _area_bars(found, areas),
            "meanings": [
                (part.area if part.area == UNKNOWN else f"Area {part.area}", MEANINGS[part.area])
                for part in found.measured.areas
                if part.area != "all"
            ],
            "baseline": None if found.baseline is None else found.baseline.name,
            "numbers": _area_table(found, areas),
        },
    )


def _shown_areas(errors: list[AreaErrors]) -> list[AreaErrors]:
    """Return the areas to show: with one alone, all together is no news."""
    return errors if len(errors) > 2 else errors[:1]


def _area_bars(found: Findings, areas: list[AreaErrors]) -> Figure:
    shown = {each.name: each.areas[: len(areas)] for each in found.compared}
    errors = "; ".join(f"{part.area} {format_amount(part.rmse)}" for part in areas)
    return Figure(
        "RMSE on the test entries",
        plot_areas(
            [part.area for part in areas],
            {name: [part.rmse for part in parts] for name, parts in shown.items()},
            margins={name: [part.margin for part in parts] for name, parts in shown.items()},
        ),
        f"RMSE of {found.measured.name} by area: {errors}",
    )


def _area_table(found: Findings, areas: list[AreaErrors]) -> Table:
    has_levels = areas[0].level_rmse is not None and not found.measured.answers_levels
    names = ["area", "entries", "RMSE", "MAE"]
    has_medians = areas[0].median_rmse is not None
    names += ["RMSE of levels", "MAE of levels"] * has_levels
    names += ["RMSE of median levels", "MAE of median levels"] * has_medians
    names += [f"RMSE, {each.name}" for each in found.compared[1:]]
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


def cold_start_section(found: Findings) -> Section:
    """Return the error against how many entries describe the row."""
    groups = found.measured.cold_start
    names = [group_name(group.first, group.last) for group in groups]
    errors = {each.name: [group.rmse for group in each.cold_start] for each in found.compared}
    margins = {each.name: [group.margin for group in each.cold_start] for each in found.compared}
    lines = [
        [name, format_count(group.n_entries), *(format_amount(own[at]) for own in errors.values())]
        for at, (name, group) in enumerate(zip(names, groups, strict=True))
    ]
    shown = Figure(
        "RMSE by what is known of the row",
        plot_cold_start(names, errors, margins=margins),
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
        how="From left to right come rows of which more is known, so a falling curve shows what further entries are "
        "worth; the bars are the uncertainty of a point, which is largest where it has few test entries.",
        template="cold_start.html",
        content={"errors": shown, "numbers": numbers},
    )


def column_section(found: Findings) -> Section | LeftOut:
    """Return the columns that are predicted worst and best, of those with enough test entries."""
    title, errors = "Worst and best columns", found.measured.columns
    enough = np.flatnonzero(errors.n_entries >= ENOUGH)
    if enough.size < 2:
        few = "no column has" if enough.size == 0 else "only one column has"
        return LeftOut(title, f"{few} at least {ENOUGH} test entries, and of fewer an error says little")
    by_error = enough[np.argsort(-errors.rmse[enough], kind="stable")]
    n_listed = min(_LISTED, enough.size // 2)
    return Section(
        title=title,
        how="A column at the top of the first table is where to look for what goes wrong, such as values that opinions "
        "divide on; the number behind ± is how far an error would move by chance with other test entries.",
        template="columns.html",
        content={
            "sentence": f"Of {format_quantity(errors.labels.size, 'column')} with test entries, "
            f"{format_count(enough.size)} have at least {ENOUGH}; the median of their RMSE is "
            f"{format_amount(float(np.median(errors.rmse[enough])))}.",
            "worst": _column_table("Predicted worst", found, by_error[:n_listed]),
            "best": _column_table("Predicted best", found, by_error[::-1][:n_listed]),
        },
    )


def _column_table(caption: str, found: Findings, which: npt.NDArray[np.intp]) -> Table:
    errors = found.measured.columns
    names = ["column", "entries", "RMSE", *(f"RMSE, {each.name}" for each in found.compared[1:])]
    lines = []
    for at in which.tolist():
        line = [
            shortened(errors.labels[at : at + 1].tolist()[0]),
            format_count(errors.n_entries[at]),
            _with_margin(errors, at),
        ]
        if found.baseline is not None:
            line.append(format_amount(float(found.baseline.columns.rmse[at])))
        lines.append(line)
    return Table(caption, names, lines)


def _with_margin(errors: ColumnErrors, at: int) -> str:
    return f"{format_amount(float(errors.rmse[at]))} ± {format_amount(float(errors.uncertainty[at]))}"
