"""A table of results beside the published figures, as cells or Markdown, and the notes below it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepmf.experiments.recipe import NAMES, RANKING_METRICS, Recipe, read_layout, read_table
from deepmf.experiments.run import Record
from deepmf.matrix.matrix import AREAS

# The errors of median levels, which have a row of their own, and the columns that they stand in.
COLUMN_OF = {"median_rmse": "level_rmse", "median_mae": "level_mae"}


@dataclass(frozen=True)
class Cell:
    """One figure: its mean and standard deviation over splits (None without results), and the
    published figure."""

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
        """`0.8613 ± 0.0024 (0.850, +0.011)`: ours, its spread, the published figure, the
        difference; `-` where none."""
        if self.mean is None:
            return "-" if self.published is None else f"({self.published:.3f})"
        spread = "" if self.spread is None else f" ± {self.spread:.4f}"
        beside = (
            "" if self.published is None else f" ({self.published:.3f}, {self.difference:+z.3f})"
        )
        return f"{self.mean:.4f}{spread}{beside}"


def compute_cells(table: str, records: Sequence[Record]) -> list[Cell]:
    """Return every figure of a table that has results, ordered by recipe, share, area and
    metric."""
    shown = read_layout(table).metrics
    metrics = [*shown, *(median for median, column in COLUMN_OF.items() if column in shown)]
    run = {(record["recipe"], record["new_share"]) for record in records}
    return [
        _compute_cell(recipe, share, area, metric, records)
        for recipe in read_table(table)
        for share in (recipe.new_shares if recipe.has_areas else (None,))
        if (recipe.name, share) in run
        for area in AREAS
        for metric in metrics
    ]


def list_lines(table: str, records: Sequence[Record]) -> list[list[str]]:
    """Return the header and the lines of a table: one for each recipe and share, and one for its
    median levels."""
    metrics = read_layout(table).metrics
    cells = compute_cells(table, records)
    areas = [
        area for area in AREAS if any(cell.area == area and str(cell) != "-" for cell in cells)
    ]
    shares = any(cell.new_share for cell in cells)  # otherwise nothing is new
    uses = list_validation_uses(table, records)
    differ = len(set(uses.values())) > 1  # otherwise a note says it of all rows
    names = ["method", *["new"] * shares, *["validation entries"] * differ]
    header = [
        *names,
        *(_format_heading(area, metric, areas, metrics) for area in areas for metric in metrics),
    ]
    rows = []
    for run in _group_rows(cells):
        first = run[0]
        title = first.recipe.title + (", median levels" if first.metric in COLUMN_OF else "")
        share = f"{first.new_share:.0%}" if first.new_share else "none"
        shown = {(cell.area, COLUMN_OF.get(cell.metric, cell.metric)): str(cell) for cell in run}
        figures = [shown.get((area, metric), "-") for area in areas for metric in metrics]
        rows.append([title, *[share] * shares, *[uses[first.recipe.name]] * differ, *figures])
    for title, published in read_layout(table).others.items():
        figures = [
            f"({published[metric]:.4f})" if metric in published else "-" for metric in metrics
        ]
        rows.append([f"{title}, published", *["-"] * (shares + differ), *figures * len(areas)])
    return [header, *rows]


def format_markdown(table: str, records: Sequence[Record]) -> str:
    """Return a table as Markdown, with the published figure and the difference from it in
    brackets."""
    return _to_markdown(list_lines(table, records))


def list_validation_uses(table: str, records: Sequence[Record]) -> dict[str, str]:
    """Return how each recipe used validation entries, from its records or the recipe."""
    uses = {}
    for recipe in read_table(table):
        descriptions = set[str]()
        for record in (record for record in records if record["recipe"] == recipe.name):
            then = {
                "inputs": record.get("joined", recipe.joined),
                "training": record.get("refit", recipe.refit),
            }
            descriptions.add(
                ", then ".join(["choose", *(use for use, is_so in then.items() if is_so)])
            )
        if descriptions:
            uses[recipe.name] = " / ".join(sorted(descriptions))
    return uses


def format_costs(records: Sequence[Record]) -> str:
    """Return the mean seconds of a fit, peak memory of the process and hardware of each recipe, as
    Markdown."""
    rows = [["row", "protocol", "fits", "seconds each", "peak main memory, MB", "on"]]
    for recipe in dict.fromkeys(record["recipe"] for record in records):
        # once for each trial
        recipe_records = [
            record for record in records if record["recipe"] == recipe and "curve" in record
        ]
        seconds, memory = (
            statistics.mean(record[name] for record in recipe_records)
            for name in ("seconds", "peak_memory_mb")
        )
        costs = [str(len(recipe_records)), f"{seconds:.1f}", f"{memory:.0f}"]
        rows.append(
            [
                recipe.partition("/")[2],
                recipe_records[0]["protocol"],
                *costs,
                recipe_records[0]["hardware"],
            ]
        )
    return _to_markdown(rows)


def _to_markdown(lines: Sequence[Sequence[str]]) -> str:
    header, *rows = lines
    return (
        "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows]) + "\n"
    )


def _group_rows(found: Iterable[Cell]) -> list[list[Cell]]:
    """Return the cells of each row: a recipe and share, then its median levels if it has any."""
    rows: dict[tuple[str, float | None, bool], list[Cell]] = {}
    for cell in found:
        rows.setdefault((cell.recipe.name, cell.new_share, cell.metric in COLUMN_OF), []).append(
            cell
        )
    return [
        row
        for (_, _, of_medians), row in rows.items()
        if not of_medians or any(cell.mean is not None for cell in row)
    ]


def _compute_cell(
    recipe: Recipe, share: float | None, area: str, metric: str, records: Iterable[Record]
) -> Cell:
    values = [
        record[metric]
        for record in records
        if (record["recipe"], record["new_share"], record["area"]) == (recipe.name, share, area)
        and record.get(metric) is not None
    ]
    mean = statistics.mean(values) if values else None
    spread = statistics.stdev(values) if len(values) > 1 else None
    exists = share != 0 or area == "I"  # with nothing new, the other areas have no entries
    published = recipe.published.get(area, {}).get(metric) if exists else None
    return Cell(recipe, share, area, metric, mean, spread, len(values), published)


def _format_heading(area: str, metric: str, areas: Sequence[str], metrics: Sequence[str]) -> str:
    parts = ([f"area {area}"] if len(areas) > 1 else []) + (
        [NAMES[metric]] if len(metrics) > 1 else []
    )
    return " ".join(parts) or NAMES[metric]


# How rows use validation entries: a note where all do the same, otherwise a column.
ALIKE = {
    "choose": "Validation entries choose the best epoch; no row has them as inputs or learns from them.",
    "choose, then inputs": "Validation entries choose the best epoch; every row has them as inputs at test time.",
    "choose, then training": "Validation entries choose the best epoch; every row is then fitted on them too.",
}

USES = (
    "Validation entries choose the best epoch in every row; where the column says so they are inputs at test time as "
    'well ("inputs"), or the method is then fitted again on them too ("training"). Rows that differ in this have not '
    "had the same information."
)

MEDIANS = (
    "Both errors of a row are those of the same levels: the method's own, or its prediction rounded to the nearest. "
    "Median levels are those of the same fits by the median of the predicted distribution, which is best by MAE; "
    "- where they were not measured."
)


def list_remarks(table: str, records: Sequence[Record]) -> list[str]:
    """Return the lines below a table: remarks, notes, sources of the published figures, and
    assumptions."""
    run = {record["recipe"] for record in records}
    recipes = [recipe for recipe in read_table(table) if recipe.name in run]
    sources = dict.fromkeys(f"Published in {recipe.source}." for recipe in recipes if recipe.source)
    assumed: dict[str, list[str]] = {}
    for recipe in recipes:
        for assumption in recipe.assumptions:
            assumed.setdefault(assumption, []).append(recipe.title)
    assumptions = [
        f"Assumed for {', '.join(titles)}: {assumption}." for assumption, titles in assumed.items()
    ]
    return [*read_layout(table).remarks, *list_notes(table, records), *sources, *assumptions]


def list_notes(table: str, records: Sequence[Record]) -> list[str]:
    """Return the notes that every table needs: its use of validation entries, kind of levels, and
    source."""
    if read_layout(table).metrics == RANKING_METRICS:  # no errors, and no epochs
        return _describe_sources(table, records)
    uses = set(list_validation_uses(table, records).values())
    notes = [ALIKE.get(use, USES) for use in uses] if len(uses) < 2 else [USES]
    if any(
        cell.mean is not None for cell in compute_cells(table, records) if cell.metric in COLUMN_OF
    ):
        notes.append(MEDIANS)
    return notes + _describe_sources(table, records)


def _describe_sources(table: str, records: Sequence[Record]) -> list[str]:
    """Return which state of the source measured the rows; with several states, the rows of each."""
    titles = {recipe.name: recipe.title for recipe in read_table(table)}
    states: dict[str, dict[str, None]] = {}
    for record in records:
        digest, commit = record.get("digest"), record.get("commit", "unknown")
        state = (
            f"commit {commit}, digest {digest[:12]}"
            if digest
            else f"commit {commit}, no digest kept"
        )
        states.setdefault(state, {})[titles[record["recipe"]]] = None
    if len(states) < 2:
        return [f"Measured with {state}." for state in states]
    shown = (f"{state[0].upper()}{state[1:]}: {'; '.join(rows)}." for state, rows in states.items())
    return [f"Rows come from different states of the source. {' '.join(shown)}"]
