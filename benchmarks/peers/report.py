"""The report on all runs: a table of each task as Markdown, all figures as JSON, and pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deepmf.files import write_atomically
from deepmf.matrix.matrix import AREAS
from deepmf.plots import save_svg
from peers.declared import ABSENT
from peers.figures import Clock, Line, as_json, failures, lines_of, on_first, on_most
from peers.pictures import plot_by_time, plot_memory, plot_new_lines
from peers.ranking import GROUPS
from peers.records import Record, Records
from peers.tasks import COUNTS, SIZES, TASKS

_KNOWN = {"RMSE": "rmse", "MAE": "mae", "nearest level, RMSE": "level_rmse", "MAE ": "level_mae"}
_RANKED = {
    "NDCG@10": "ndcg",
    "recall@10": "recall",
    "recall@20": "recall_20",
    "precision@10": "precision",
}
_RANKED |= {"NDCG@20": "ndcg_20", "MRR@10": "mrr", "MAP@10": "map"}
_KNOWN |= {
    "median level, MAE": "median_mae",
    "log loss": "log_loss",
    "calibration error": "calibration_error",
}


def write_report(records: Records, folder: Path, clock: Clock = Clock.PROCESSOR) -> list[Path]:
    """Write tables, figures and pictures of everything that is recorded, with times by a clock;
    return the files."""
    found = list(records.all())
    tables = {
        name: table(name, lines_of(found, name), clock) for name in TASKS if lines_of(found, name)
    }
    sized = {size: lines_of(found, f"size-{size}") for size in SIZES}
    tables |= {
        "tables": tabulate_tables(found),
        "sizes": tabulate_sizes(sized, clock),
        "not-run": list_not_run(found),
    }
    paths = [_write_text(folder / f"{name}.md", text) for name, text in tables.items() if text]
    figures = {name: as_json(lines_of(found, name)) for name in TASKS if lines_of(found, name)}
    paths.append(_write_text(folder / "figures.json", json.dumps(figures, indent=1) + "\n"))
    plots = {"memory-by-size": plot_memory(sized)}
    for name, task in TASKS.items():
        lines = on_first(lines_of(found, name))
        if "known" in task.kinds:
            plots[f"{name}-by-time"] = plot_by_time(task.title, lines, clock)
        if "new" in task.kinds:
            for axis in ("new rows", "new columns", "both"):
                plots[f"{name}-{axis.replace(' ', '-')}"] = plot_new_lines(task.title, lines, axis)
    for name, drawn in plots.items():
        if drawn is not None:
            paths.append(folder / f"{name}.svg")
            save_svg(drawn[0], paths[-1], title=drawn[1])
    return paths


def _write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def table(name: str, lines: Sequence[Line], clock: Clock) -> str:
    """Return the table of a task: the errors of known rows and columns, or those by area and by
    what is known."""
    if {"table", "size"} & set(TASKS[name].kinds):
        return ""  # one table for all of these
    kinds = TASKS[name].kinds
    write = tabulate_new
    if "known" in kinds:
        write = tabulate_known
    elif {"ranking", "wide"} & set(kinds):
        write = tabulate_rankings
    several = on_most(lines)
    parts = [f"On the first split:\n\n{write(on_first(lines), clock)}"]
    if several:
        parts.append(
            f"Mean and standard deviation over {len(several[0].seeds)} splits:\n\n{write(several, clock)}"
        )
    return "\n".join(parts)


def tabulate_known(lines: Sequence[Line], clock: Clock) -> str:
    """Return errors and costs of known rows and columns, the lowest error first; the best of each
    column is bold."""
    ordered = sorted(lines, key=lambda line: line.mean("I", "rmse") or 9.0)
    columns = {title: _cells(ordered, "I", metric) for title, metric in _KNOWN.items()}
    columns |= {
        clock.title: [f"{line.cost(clock.value):.1f}" for line in ordered],
        "MiB": [f"{line.cost('peak_memory_mb'):.0f}" for line in ordered],
    }
    return _markdown([line.title for line in ordered], columns)


def tabulate_rankings(lines: Sequence[Line], clock: Clock) -> str:
    """Return ranking metrics and costs, the highest NDCG first; a model that ranks by value too has
    a second row."""
    rows = [
        (line, group)
        for line in lines
        for group in GROUPS.values()
        if line.mean(group, "ndcg") is not None
    ]
    rows.sort(key=lambda row: -(row[0].mean(row[1], "ndcg") or 0.0))
    titles = [
        line.title + (", by value" if group.endswith("value") else "") for line, group in rows
    ]
    columns = {}
    for title, metric in _RANKED.items():
        if any(line.mean(group, metric) is None for line, group in rows):
            continue  # recorded before it was measured
        means = _best_of([line.mean(group, metric) for line, group in rows], digits=4, best=max)
        spreads = [line.spread(group, metric) for line, group in rows]
        columns[title] = [
            mean if spread is None else f"{mean} ± {_short(spread)}"
            for mean, spread in zip(means, spreads, strict=True)
        ]
    columns |= {
        "distinct columns": [f"{line.mean(group, 'n_distinct') or 0:.0f}" for line, group in rows],
        "novelty, bits": [f"{line.mean(group, 'novelty') or 0:.2f}" for line, group in rows],
        clock.title: [f"{line.cost(clock.value):.1f}" for line, _ in rows],
        "MiB": [f"{line.cost('peak_memory_mb'):.0f}" for line, _ in rows],
    }
    return _markdown(titles, columns)


def tabulate_new(lines: Sequence[Line], clock: Clock) -> str:
    """Return the errors by area, then those with few entries."""
    return tabulate_areas(lines, clock) + "\n" + tabulate_few_entries(lines)


def tabulate_areas(lines: Sequence[Line], clock: Clock) -> str:
    """Return the RMSE in each area with all that describes new rows and columns, and what that
    took."""
    columns = {f"area {area}": _cells(lines, area, "rmse") for area in AREAS}
    columns |= {
        "log loss, area I": _cells(lines, "I", "log_loss"),
        clock.title: [f"{line.cost(clock.value):.1f}" for line in lines],
    }
    return _markdown([line.title for line in lines], columns)


def tabulate_few_entries(lines: Sequence[Line]) -> str:
    """Return the RMSE for new rows, new columns and both, by how many entries of each are known at
    most."""
    parts = []
    for axis in ("new rows", "new columns", "both"):
        columns = {
            f"{axis}, {count}": _cells(lines, f"{axis}, {count}", "rmse") for count in COUNTS
        }
        parts.append(_markdown([line.title for line in lines], columns))
    return "\n".join(parts)


def tabulate_tables(records: Sequence[Record]) -> str:
    """Return the errors on hidden cells of each table, in standard deviations of the column."""
    names = [name for name, task in TASKS.items() if "table" in task.kinds]
    by_task = {
        name: {line.title: line for line in on_first(lines_of(records, name))} for name in names
    }
    titles = list(dict.fromkeys(title for found in by_task.values() for title in found))
    columns = {}
    for name, found in by_task.items():
        own = [found.get(title) for title in titles]
        columns[name.removeprefix("table-").replace("_", " ")] = _best_of(
            [None if line is None else line.mean("cells", "rmse") for line in own], digits=3
        )
    return _markdown(titles, columns) if titles else ""


def tabulate_sizes(found: Mapping[int, Sequence[Line]], clock: Clock) -> str:
    """Return peak memory, time and error of each method by the number of entries, the least memory
    first."""
    by_title = {size: {line.title: line for line in of_size} for size, of_size in found.items()}
    titles = list(dict.fromkeys(title for of_size in by_title.values() for title in of_size))
    largest = max((size for size, of_size in by_title.items() if of_size), default=0)

    def cost(title: str, size: int, name: str) -> float | None:
        return by_title[size][title].cost(name) if title in by_title[size] else None

    titles.sort(key=lambda title: cost(title, largest, "peak_memory_mb") or math.inf)
    columns = {}
    for size in found:
        columns[f"{size:,} entries: MiB"] = _best_of(
            [cost(title, size, "peak_memory_mb") for title in titles], digits=0
        )
    for size in found:
        seconds = [cost(title, size, clock.value) for title in titles]
        columns[f"{size:,}: seconds"] = ["-" if each is None else f"{each:.1f}" for each in seconds]
    for size in found:
        errors = [
            by_title[size][title].mean("I", "rmse") if title in by_title[size] else None
            for title in titles
        ]
        columns[f"{size:,}: RMSE"] = _best_of(errors, digits=4)
    return _markdown(titles, columns) if titles else ""


def list_not_run(records: Sequence[Record]) -> str:
    """Return what was not run, or did not end, and why."""
    lines = [f"- {absent.title}: {absent.reason}." for absent in ABSENT]
    lines += [
        f"- {title}, {TASKS[task].title if task in TASKS else task}: {why}."
        for title, task, why in failures(records)
    ]
    return "\n".join(lines) + "\n"


def _cells(lines: Sequence[Line], group: str, metric: str) -> list[str]:
    spreads = [line.spread(group, metric) for line in lines]
    shown = _best_of([line.mean(group, metric) for line in lines], digits=4)
    return [
        cell if spread is None else f"{cell} ± {_short(spread)}"
        for cell, spread in zip(shown, spreads, strict=True)
    ]


def _best_of(
    numbers: Sequence[float | None], *, digits: int, best: Callable[[list[float]], float] = min
) -> list[str]:
    """Return numbers with the best in bold, - where there is none."""
    there = [number for number in numbers if number is not None]
    write: Callable[[float], str] = lambda number: f"{number:.{digits}f}".removeprefix("0")  # noqa: E731
    return [
        "-"
        if number is None
        else f"**{write(number)}**"
        if number == best(there)
        else write(number)
        for number in numbers
    ]


def _short(number: float) -> str:
    return f"{number:.4f}".removeprefix("0")


def _markdown(titles: Sequence[str], columns: dict[str, list[str]]) -> str:
    """Return a table; columns without a single figure are left out, and so are rows."""
    kept = {name: cells for name, cells in columns.items() if any(cell != "-" for cell in cells)}
    head = (
        f"| method | {' | '.join(name.strip() for name in kept)} |\n"
        + "| --- " * (len(kept) + 1)
        + "|\n"
    )
    rows = [[title, *(cells[at] for cells in kept.values())] for at, title in enumerate(titles)]
    return head + "".join(
        f"| {' | '.join(row)} |\n" for row in rows if any(cell != "-" for cell in row[1:])
    )
