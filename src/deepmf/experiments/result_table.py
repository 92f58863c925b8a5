"""A table of results beside the published figures: as Markdown, as CSV, and as cells for a terminal."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deepmf.experiments.recipe import Recipe, layout_of, read_table
from deepmf.experiments.trial import Record
from deepmf.matrix.areas import AREAS

NAMES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "level_rmse": "RMSE of levels",
    "level_mae": "MAE of levels",
    "calibration_error": "calibration error",
    "coverage": "share inside the 90 % interval",
}


@dataclass(frozen=True)
class Cell:
    """One figure: mean and standard deviation over splits (None where there are none yet), and what was published."""

    recipe: Recipe
    new_share: float | None
    area: str
    metric: str
    mean: float | None
    spread: float | None
    n_splits: int
    published: float | None

    @property
    def difference(self) -> float | None:
        """Ours less the published figure."""
        return None if self.mean is None or self.published is None else self.mean - self.published

    def __str__(self) -> str:
        """`0.8613 ± 0.0024 (0.850, +0.011)`: ours, its spread, the published figure, the difference; `-` where none."""
        if self.mean is None:
            return "-" if self.published is None else f"({self.published:.3f})"
        spread = "" if self.spread is None else f" ± {self.spread:.4f}"
        beside = "" if self.published is None else f" ({self.published:.3f}, {self.difference:+.3f})"
        return f"{self.mean:.4f}{spread}{beside}"


def cells(table: str, records: Sequence[Record]) -> list[Cell]:
    """Return every figure of a table that has results: recipes in their order, then shares, areas and metrics."""
    metrics = layout_of(table).metrics
    run = {(record["recipe"], record["new_share"]) for record in records}
    return [
        _cell(recipe, share, area, metric, records)
        for recipe in read_table(table)
        for share in (recipe.new_shares if recipe.protocol == "areas" else (None,))
        if (recipe.name, share) in run
        for area in AREAS
        for metric in metrics
    ]


def lines(table: str, records: Sequence[Record]) -> list[list[str]]:
    """Return the header and the lines of a table, one line for each recipe and share."""
    metrics = layout_of(table).metrics
    found = cells(table, records)
    areas = [area for area in AREAS if any(cell.area == area and str(cell) != "-" for cell in found)]
    shares = any(cell.new_share for cell in found)  # otherwise nothing is new
    names = ["method", "new"] if shares else ["method"]
    header = [*names, *(_heading(area, metric, areas, metrics) for area in areas for metric in metrics)]
    rows: dict[tuple[str, float | None], list[str]] = {}
    for cell in found:
        if cell.area in areas:
            share = f"{cell.new_share:.0%}" if cell.new_share else "none"
            start = [cell.recipe.title, share][: len(names)]
            rows.setdefault((cell.recipe.name, cell.new_share), start).append(str(cell))
    return [header, *rows.values()]


def markdown(table: str, records: Sequence[Record]) -> str:
    """Return a table as Markdown; the published figure, and how far ours is from it, stand in brackets."""
    header, *rows = lines(table, records)
    shown = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown) + "\n"


def remarks(table: str, records: Sequence[Record]) -> list[str]:
    """Return what stands under a table: its remarks, where published figures are from, what was assumed for which."""
    run = {record["recipe"] for record in records}
    recipes = [recipe for recipe in read_table(table) if recipe.name in run]
    sources = dict.fromkeys(f"Published in {recipe.source}." for recipe in recipes if recipe.source)
    assumed: dict[str, list[str]] = {}
    for recipe in recipes:
        for assumption in recipe.assumptions:
            assumed.setdefault(assumption, []).append(recipe.title)
    assumptions = [f"Assumed for {', '.join(titles)}: {assumption}." for assumption, titles in assumed.items()]
    return [*layout_of(table).remarks, *notes(table, records), *sources, *assumptions]


def notes(table: str, records: Sequence[Record]) -> list[str]:
    """Return what a table must never be shown without: that its rows do not come from one state of the source."""
    titles = {recipe.name: recipe.title for recipe in read_table(table)}
    states: dict[str, dict[str, None]] = {}
    for record in records:
        states.setdefault(_state(record), {})[titles[record["recipe"]]] = None
    if len(states) < 2:
        return []
    shown = (f"{state} ({', '.join(rows)})" for state, rows in states.items())
    return [f"Rows come from different states of the source: {'; '.join(shown)}."]


def costs(records: Sequence[Record]) -> str:
    """Return what each recipe took, as Markdown: seconds to fit, peak memory of the process, and on what; means."""
    rows = [["row", "protocol", "fits", "seconds each", "peak main memory, MB", "on"]]
    for recipe in dict.fromkeys(record["recipe"] for record in records):
        own = [record for record in records if record["recipe"] == recipe and "curve" in record]  # once for each trial
        means = [statistics.mean(record[name] for record in own) for name in ("seconds", "peak_memory_mb")]
        first = own[0]
        rows.append(
            [
                recipe.partition("/")[2],
                first["protocol"],
                str(len(own)),
                f"{means[0]:.1f}",
                f"{means[1]:.0f}",
                first["hardware"],
            ]
        )
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def as_csv(table: str, records: Sequence[Record]) -> str:
    """Return every figure of a table as a line of CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow("recipe method new_share area metric mean spread splits published difference".split())
    for cell in cells(table, records):
        if cell.mean is not None or cell.published is not None:
            figures = (cell.mean, cell.spread, cell.n_splits, cell.published, cell.difference)
            names = cell.recipe.name, cell.recipe.title, cell.new_share, cell.area, cell.metric
            writer.writerow([_plain(value) for value in (*names, *figures)])
    return text.getvalue()


def _cell(recipe: Recipe, share: float | None, area: str, metric: str, records: Iterable[Record]) -> Cell:
    values = [
        record[metric]
        for record in records
        if (record["recipe"], record["new_share"], record["area"]) == (recipe.name, share, area) and metric in record
    ]
    mean = statistics.mean(values) if values else None
    spread = statistics.stdev(values) if len(values) > 1 else None
    exists = share != 0 or area == "I"  # with nothing new, the other areas have no entries
    published = recipe.published.get(area, {}).get(metric) if exists else None
    return Cell(recipe, share, area, metric, mean, spread, len(values), published)


def _state(record: Record) -> str:
    digest, commit = record.get("digest"), record.get("commit", "unknown")
    return f"commit {commit}, digest {digest[:12]}" if digest else f"commit {commit}, no digest kept"


def _heading(area: str, metric: str, areas: Sequence[str], metrics: Sequence[str]) -> str:
    parts = ([f"area {area}"] if len(areas) > 1 else []) + ([NAMES[metric]] if len(metrics) > 1 else [])
    return " ".join(parts) or NAMES[metric]


def _plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else ("" if value is None else value)
