"""Plots of the results of a table: errors by area, quantizers, cold start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepmf.evaluation.areas import ColdStart
from deepmf.experiments.recipe import NAMES, Recipe, read_layout, read_table
from deepmf.experiments.run import Record
from deepmf.experiments.tables import compute_cells
from deepmf.matrix.matrix import AREAS
from deepmf.plots import (
    add_legend,
    add_note,
    add_title,
    make_axes,
    plot_boundaries,
    plot_comparison,
    plot_lines,
    save_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawn = tuple["Axes", str]  # a plot, and a sentence that describes it


def draw(table: str, records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw every plot for which there are records, as SVG files; return the files."""
    paths = []
    for name, picture in PICTURES.items():
        picture_and_title = picture(table, records)
        if picture_and_title is not None:
            folder.mkdir(parents=True, exist_ok=True)
            paths.append(folder / f"{name}.svg")
            save_svg(picture_and_title[0], paths[-1], title=picture_and_title[1])
    return paths


def plot_areas(table: str, records: Sequence[Record]) -> Drawn | None:
    """Plot the error of each method by area, next to the published error."""
    metric = read_layout(table).metrics[0]
    cells = [
        cell
        for cell in compute_cells(table, records)
        if cell.metric == metric and cell.mean is not None
    ]
    first_share = next((cell.new_share for cell in cells if cell.new_share is not None), None)
    shown = [cell for cell in cells if cell.new_share in (None, first_share)]
    if not shown:
        return None
    titles = list(dict.fromkeys(cell.recipe.title for cell in shown))
    names = [area for area in AREAS if any(cell.area == area for cell in shown)]
    beside = 6.8 * max(map(len, titles))
    width = beside + (380.0 if len(names) == 1 else 190.0 * len(names))
    axes = make_axes(1, len(names), width=width, height=26.0 * len(titles) + 96, sharey=True)
    ours = "ours, mean and spread over splits" if any(cell.spread for cell in shown) else "ours"
    for ax, area in zip(axes, names, strict=True):
        cells_by_title = {cell.recipe.title: cell for cell in shown if cell.area == area}
        series = {
            ours: {
                title: cell.mean for title, cell in cells_by_title.items() if cell.mean is not None
            }
        }
        if any(cell.published is not None for cell in shown):
            series["published"] = {
                title: cell.published
                for title, cell in cells_by_title.items()
                if cell.published is not None
            }
        spreads = {
            ours: {
                title: cell.spread
                for title, cell in cells_by_title.items()
                if cell.spread is not None
            }
        }
        plot_comparison(titles, series, ax, spreads=spreads, x_label=NAMES[metric])
        add_title(ax, f"area {area}")
    add_legend(axes[0])
    return (
        axes[0],
        f"{NAMES[metric]} of {len(titles)} methods in area {', '.join(names)}: {read_layout(table).title}",
    )


def plot_quantizer(table: str, records: Sequence[Record]) -> Drawn | None:
    """Plot learned and uniform boundaries under a histogram of scores."""
    learned = _group_by_recipe(table, [record for record in records if "boundaries" in record])
    if not learned:
        return None
    n_columns, n_rows = min(len(learned), 2), -(-len(learned) // 2)
    axes = make_axes(n_rows, n_columns, width=370.0 * n_columns, height=250.0 * n_rows + 40)
    for ax in axes[len(learned) :]:
        ax.set_visible(False)
    descriptions = []
    for ax, (recipe, (record, *_)) in zip(axes, learned, strict=False):
        levels, counts = (
            np.array(record["levels"]),
            np.array(record["scores"]["counts"], dtype=float),
        )
        plot_boundaries(
            levels, ((levels[:-1] + levels[1:]) / 2).tolist(), record["boundaries"], counts, ax
        )
        add_title(ax, recipe.title)
        boundaries = ", ".join(f"{boundary:.2f}" for boundary in record["boundaries"])
        descriptions.append(f"Boundaries that {recipe.title} learned: {boundaries}")
    add_note(axes[0], "intervals of the levels: uniform and learned")
    return axes[0], "; ".join(descriptions)


def plot_by_entries(table: str, records: Sequence[Record]) -> Drawn | None:
    """Plot the error by the number of observed entries of the row, over all splits; of new rows if
    there are any."""
    area = "II" if any(record["area"] == "II" for record in records) else "I"
    measured = [record for record in records if record["area"] == area and record.get("cold_start")]
    curves, margins = {}, {}
    for recipe, recipe_records in _group_by_recipe(table, measured):
        middles, errors, spreads = _pool(
            [group for record in recipe_records for group in record["cold_start"]]
        )
        if middles:
            curves[recipe.title], margins[recipe.title] = (middles, errors), spreads
    if not curves:
        return None
    ax = plot_lines(
        curves,
        make_axes(width=744.0, height=420.0 + 9 * len(curves))[0],
        margins=margins,
        x_label=f"observed entries of the {'new ' if area == 'II' else ''}row",
        y_label=f"RMSE in area {area}",
        log_x=True,
    )
    add_legend(ax, note="bars: standard error by the number of test entries")
    return (
        ax,
        f"Error by the number of observed entries of a row, {len(curves)} methods: {read_layout(table).title}",
    )


PICTURES: dict[str, Callable[[str, Sequence[Record]], Drawn | None]] = {
    "areas": plot_areas,
    "quantizer": plot_quantizer,
    "cold-start": plot_by_entries,
}


def _pool(groups: Sequence[Sequence[Any]]) -> tuple[list[float], list[float], list[float]]:
    """Return the middle, the error and the margin of each group of rows with enough test entries,
    over all splits."""
    middles, errors, margins = [], [], []
    for first, last in sorted(
        {(group[0], group[1]) for group in groups}, key=lambda ends: int(ends[0])
    ):
        counts, errors_of_splits = np.array(
            [group[2:] for group in groups if group[0] == first], dtype=float
        ).T
        if first > 0 and counts.sum() >= 30:  # the error of smaller groups is too uncertain
            pooled = ColdStart(
                first,
                last,
                int(counts.sum()),
                float(np.sqrt(np.average(errors_of_splits**2, weights=counts))),
            )
            middles.append(first if last is None else (first + last) / 2)
            errors.append(pooled.rmse)
            margins.append(pooled.margin)
    return middles, errors, margins


def _group_by_recipe(table: str, records: Sequence[Record]) -> list[tuple[Recipe, list[Record]]]:
    """Return the records of each recipe at its first share, in the table's order, the first split
    first."""
    groups = []
    for recipe in read_table(table):
        recipe_records = [record for record in records if record["recipe"] == recipe.name]
        recipe_records = [
            record
            for record in recipe_records
            if record["new_share"] in (None, recipe.new_shares[0])
        ]
        if recipe_records:
            groups.append((recipe, sorted(recipe_records, key=lambda record: int(record["seed"]))))
    return groups
