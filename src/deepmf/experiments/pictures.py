"""Pictures of a table's results: areas, learning curves, the quantizer, confused levels, the cold start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from deepmf.errors import MissingDependency
from deepmf.experiments.recipe import Recipe, layout_of, read_table
from deepmf.experiments.result_table import NAMES, Cell, cells
from deepmf.experiments.trial import Record
from deepmf.matrix.areas import AREAS
from deepmf.storage.atomic import write_atomically

Figure = Any  # a matplotlib figure: imported where it is drawn

# Okabe and Ito's colours, which colour-blind readers tell apart; then repeated with other markers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
ENDINGS = ("svg", "png")


def draw(table: str, records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw every picture that the records allow, each as SVG and PNG; return the files."""
    paths = []
    with _one_style():
        for name, picture in PICTURES.items():
            figure = picture(table, records)
            if figure is not None:
                paths += [_write(figure, folder / f"{name}.{ending}", ending) for ending in ENDINGS]
    return paths


def areas(table: str, records: Sequence[Record]) -> Figure | None:
    """Return the error of each method in the four areas side by side, with the published figures as open marks."""
    metric = layout_of(table).metrics[0]
    shown = [cell for cell in cells(table, records) if cell.metric == metric and cell.mean is not None]
    shown = [cell for cell in shown if cell.new_share in (None, _first_share(shown))]
    if not shown:
        return None
    titles = list(dict.fromkeys(cell.recipe.title for cell in shown))
    names = [area for area in AREAS if any(cell.area == area for cell in shown)]
    figure, axes = _figure(width=1.6 + 2.6 * len(names), height=1.2 + 0.36 * len(titles), columns=len(names))
    for axis, area in zip(axes, names, strict=True):
        _mark_area(axis, [cell for cell in shown if cell.area == area], titles)
        axis.set_title(f"area {area}")
        axis.set_xlabel(NAMES[metric])
    axes[0].set_yticks(range(len(titles)), titles)
    axes[0].set_ylim(len(titles) - 0.5, -0.5)  # the first method on top
    axes[0].plot([], [], "o", color=COLOURS[0], label="ours, mean and spread over splits")
    axes[0].plot([], [], "o", color=COLOURS[1], fillstyle="none", label="published")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def learning_curves(table: str, records: Sequence[Record]) -> Figure | None:
    """Return the validation error of each method against the share of its epochs, on its first split."""
    curves = _first_of_each(table, [record for record in records if len(record.get("curve", ())) > 1])
    if not curves:
        return None
    figure, (axis,) = _figure(width=7.2, height=4.4)
    for number, (recipe, record) in enumerate(curves):
        epochs, _, errors = (np.array(column, dtype=float) for column in zip(*record["curve"], strict=True))
        axis.plot((epochs + 1) / (epochs[-1] + 1), errors, label=recipe.title, **_style(number), markevery=0.1)
    lowest = min(min(point[2] for point in record["curve"]) for _, record in curves)
    axis.set_ylim(lowest - 0.01, lowest + 0.2)
    axis.set_xlabel("share of the epochs that were run")
    axis.set_ylabel("RMSE on validation entries")
    axis.legend(frameon=False, fontsize="small", ncols=2)
    return figure


def quantizer(table: str, records: Sequence[Record]) -> Figure | None:
    """Return the learned quantizer against the uniform one, with the histogram of scores underneath."""
    learned = _first_of_each(table, [record for record in records if "boundaries" in record])
    if not learned:
        return None
    figure, axes = _figure(width=4.2 * len(learned), height=4.8, columns=len(learned), rows=2)
    for (recipe, record), upper, lower in zip(learned, *np.array_split(np.array(axes), 2), strict=True):
        edges, counts = np.array(record["scores"]["edges"]), np.array(record["scores"]["counts"])
        levels = np.array(record["levels"])
        uniform = (levels[:-1] + levels[1:]) / 2
        for boundaries, label, style in ((uniform, "uniform", ":"), (record["boundaries"], "learned", "-")):
            colour = COLOURS[0] if label == "learned" else "0.4"
            upper.stairs(
                levels, [edges[0], *boundaries, edges[-1]], baseline=None, label=label, color=colour, ls=style, lw=1.8
            )
        upper.set_title(recipe.title)
        upper.set_ylabel("predicted level")
        upper.legend(frameon=False)
        lower.stairs(counts, edges, fill=True, color=COLOURS[5])
        for boundary in record["boundaries"]:
            lower.axvline(boundary, color=COLOURS[0], lw=1)
        lower.set_xlabel("score")
        lower.set_ylabel("test entries")
    return figure


def confusion(table: str, records: Sequence[Record]) -> Figure | None:
    """Return how often each level is predicted where another is right, in area I, for each method."""
    counted = [record for record in records if record["area"] == "I" and "confusion" in record]
    shown = _first_of_each(table, counted)
    if not shown:
        return None
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure, axes = _figure(width=2.6 * columns, height=2.7 * rows, columns=columns, rows=rows)
    for axis, (recipe, record) in zip(axes, shown, strict=False):
        counts = np.array(record["confusion"], dtype=float)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for (true, predicted), share in np.ndenumerate(shares):
            colour = "white" if share > 0.5 else "black"
            axis.text(predicted, true, f"{share:.0%}", ha="center", va="center", fontsize=7, color=colour)
        axis.set_title(recipe.title, fontsize="medium")
        axis.set_xlabel("predicted level, from the lowest")
        axis.set_ylabel("true level")
        axis.set_xticks(range(len(counts)), range(1, len(counts) + 1))
        axis.set_yticks(range(len(counts)), range(1, len(counts) + 1))
        axis.grid(visible=False)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    return figure


def cold_start(table: str, records: Sequence[Record]) -> Figure | None:
    """Return the error against the number of observed entries of the row, all splits together.

    New rows where there are any, otherwise known ones.
    """
    area = "II" if any(record["area"] == "II" for record in records) else "I"
    shown = _of_each(table, [record for record in records if record["area"] == area and record["cold_start"]])
    if not shown:
        return None
    figure, (axis,) = _figure(width=7.2, height=4.4)
    for number, (recipe, own) in enumerate(shown):
        middles, errors = _pooled([group for record in own for group in record["cold_start"]])
        axis.plot(middles, errors, label=recipe.title, **_style(number))
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")
    axis.set_xlabel(f"observed entries of the {'new ' if area == 'II' else ''}row")
    axis.set_ylabel(f"RMSE in area {area}")
    axis.legend(frameon=False, fontsize="small", ncols=2)
    return figure


def cold_start_curve(table: str, records: Sequence[Record]) -> Figure | None:
    """Return the error for the same test entries of new rows as more and more of their other entries are known."""
    shown = _of_each(table, [record for record in records if "cold_start_curve" in record])
    if not shown:
        return None
    figure, (axis,) = _figure(width=7.2, height=4.4)
    for number, (recipe, own) in enumerate(shown):
        known = [n_known for n_known, _ in own[0]["cold_start_curve"]]
        each = np.array([[error for _, error in record["cold_start_curve"]] + [record["rmse"]] for record in own])
        axis.plot(range(len(known) + 1), each.mean(axis=0), label=recipe.title, **_style(number))
    axis.set_xticks(range(len(known) + 1), [*map(str, known), "all"])
    axis.set_xlabel("known entries of each new row, at most")
    axis.set_ylabel("RMSE in area II")
    axis.legend(frameon=False, fontsize="small")
    return figure


def new_shares(table: str, records: Sequence[Record]) -> Figure | None:
    """Return the error in each area against the share of new rows and columns, where several shares were run."""
    shown = [cell for cell in cells(table, records) if cell.metric == "rmse" and cell.mean is not None]
    shares = sorted({cell.new_share for cell in shown if cell.new_share is not None})
    if len(shares) < 3:
        return None
    figure, axes = _figure(width=11, height=3.6, columns=len(AREAS))
    titles = list(dict.fromkeys(cell.recipe.title for cell in shown))
    for axis, area in zip(axes, AREAS, strict=True):
        for number, title in enumerate(titles):
            own = {cell.new_share: cell.mean for cell in shown if (cell.recipe.title, cell.area) == (title, area)}
            points = [share for share in shares if share in own]
            axis.plot(
                [100 * share for share in points], [own[share] for share in points], label=title, **_style(number)
            )
        axis.set_title(f"area {area}")
        axis.set_xlabel("new rows and columns, %")
    axes[0].set_ylabel("RMSE")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(titles), frameon=False)
    return figure


def _pooled(groups: Sequence[Sequence[Any]], *, least: int = 30) -> tuple[list[float], list[float]]:
    """Return the middle and the error of each group of rows over all splits; of fewer test entries it says little."""
    middles, errors = [], []
    for first, last in sorted({(group[0], group[1]) for group in groups}, key=lambda ends: int(ends[0])):
        counts, each = np.array([group[2:] for group in groups if group[0] == first], dtype=float).T
        if first > 0 and counts.sum() >= least:
            middles.append(first if last is None else (first + last) / 2)
            errors.append(float(np.sqrt(np.average(each**2, weights=counts))))
    return middles, errors


PICTURES: dict[str, Callable[[str, Sequence[Record]], Figure | None]] = {
    "areas": areas,
    "learning-curves": learning_curves,
    "quantizer": quantizer,
    "confusion": confusion,
    "cold-start": cold_start,
    "cold-start-curve": cold_start_curve,
    "new-shares": new_shares,
}


def _mark_area(axis: Any, shown: Sequence[Cell], titles: Sequence[str]) -> None:
    for cell in shown:
        height = titles.index(cell.recipe.title)
        axis.errorbar(cell.mean, height, xerr=cell.spread or 0, fmt="o", color=COLOURS[0], capsize=3)
        if cell.published is not None:
            axis.plot(cell.published, height, "o", color=COLOURS[1], fillstyle="none")


def _first_share(shown: Sequence[Cell]) -> float | None:
    return next((cell.new_share for cell in shown if cell.new_share is not None), None)


def _of_each(table: str, records: Sequence[Record]) -> list[tuple[Recipe, list[Record]]]:
    """Return the records of each recipe at its first share, in the table's order, the first split first."""
    found = []
    for recipe in read_table(table):
        own = [record for record in records if record["recipe"] == recipe.name]
        own = [record for record in own if record["new_share"] in (None, recipe.new_shares[0])]
        if own:
            found.append((recipe, sorted(own, key=lambda record: int(record["seed"]))))
    return found


def _first_of_each(table: str, records: Sequence[Record]) -> list[tuple[Recipe, Record]]:
    """Return the first split's record of each recipe, in the table's order."""
    return [(recipe, own[0]) for recipe, own in _of_each(table, records)]


def _style(number: int) -> dict[str, Any]:
    marker = MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]
    dashes = "-" if number < len(COLOURS) else "--"
    colour = COLOURS[number % len(COLOURS)]
    return {"color": colour, "marker": marker, "linestyle": dashes, "markersize": 4, "linewidth": 1.4}


def _figure(*, width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, row by row."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=rows == 1 and columns > 1, squeeze=False)
    return figure, list(axes.ravel())


@contextmanager
def _one_style() -> Iterator[None]:
    """Draw in one plain style, without touching matplotlib's global state; the same results give the same file."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingDependency("pictures need matplotlib: pip install 'deepmf[plots]'") from error
    plain: dict[Any, Any] = {"axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(plain | {"svg.hashsalt": "deepmf", "svg.fonttype": "none", "font.size": 10}):
        yield


def _write(figure: Figure, path: Path, ending: str) -> Path:
    metadata = {"Date": None} if ending == "svg" else {"Software": None}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=ending, dpi=160, metadata=metadata))
    return path
