"""The sections on errors: by area, by the number of entries of a row, and by column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepmf.charts.bars import bars
from deepmf.charts.lines import dots
from deepmf.charts.series import Series
from deepmf.charts.styles import PAIR
from deepmf.charts.wording import amount, count, counted, difference
from deepmf.evaluation.area_evaluation import UNKNOWN, AreaErrors
from deepmf.evaluation.columns import ColumnErrors
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
    series = [
        Series(
            each.name,
            [part.rmse for part in each.areas[: len(areas)]],
            style,
            [part.margin for part in each.areas[: len(areas)]],
        )
        for each, style in zip(found.compared, PAIR, strict=False)
    ]
    errors = "; ".join(f"{part.area} {amount(part.rmse)}" for part in areas)
    return Figure(
        "RMSE on the test entries",
        bars(
            [part.area for part in areas],
            series,
            title=f"RMSE of {found.measured.name} by area: {errors}",
            x_label="area",
            y_label="RMSE",
        ),
        legend=[(each.style, each.name) for each in series],
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
        line = [part.area, count(part.n_entries), amount(part.rmse), amount(part.mae)]
        line += [amount(part.level_rmse), amount(part.level_mae)] * has_levels
        line += [amount(part.median_rmse), amount(part.median_mae)] * has_medians
        if found.baseline is not None:
            means = found.baseline.areas[number].rmse
            line += [amount(means), difference(part.rmse, means)]
        lines.append(line)
    return Table("Errors by area", names, lines)


def cold_start_section(found: Findings) -> Section:
    """Return the error against how many entries describe the row."""
    groups = found.measured.cold_start
    names = [group_name(group.first, group.last) for group in groups]
    series = [
        Series(
            each.name,
            [group.rmse for group in each.cold_start],
            style,
            [group.margin for group in each.cold_start],
        )
        for each, style in zip(found.compared, PAIR, strict=False)
    ]
    lines = [
        [name, count(group.n_entries), *(amount(each.numbers[at]) for each in series)]
        for at, (name, group) in enumerate(zip(names, groups, strict=True))
    ]
    chart = Figure(
        "RMSE by what is known of the row",
        dots(
            names,
            series,
            title="RMSE from rows with few entries to rows with many: "
            + "; ".join(f"{name} {amount(group.rmse)}" for name, group in zip(names, groups, strict=True)),
            x_label="entries that describe the row",
            y_label="RMSE",
        ),
        legend=[(each.style, each.name) for each in series],
    )
    numbers = Table(
        "RMSE by entries of the row",
        ["entries of the row", "test entries", *(f"RMSE, {each.name}" for each in series)],
        lines,
    )
    return Section(
        title="Cold start",
        how="From left to right come rows of which more is known, so a falling curve shows what further entries are "
        "worth; the bars are the uncertainty of a point, which is largest where it has few test entries.",
        template="cold_start.html",
        content={"errors": chart, "numbers": numbers},
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
            "sentence": f"Of {counted(errors.labels.size, 'column')} with test entries, {count(enough.size)} have at "
            f"least {ENOUGH}; the median of their RMSE is {amount(float(np.median(errors.rmse[enough])))}.",
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
            count(errors.n_entries[at]),
            _with_margin(errors, at),
        ]
        if found.baseline is not None:
            line.append(amount(float(found.baseline.columns.rmse[at])))
        lines.append(line)
    return Table(caption, names, lines)


def _with_margin(errors: ColumnErrors, at: int) -> str:
    return f"{amount(float(errors.rmse[at]))} ± {amount(float(errors.uncertainty[at]))}"
