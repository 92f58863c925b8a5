"""The section on the data: how much there is, which values, and how they are spread over rows and columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepmf.evaluation.cold_start import STARTS
from deepmf.formatting import format_amount, format_count, format_percent, format_short
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.plots import plot_bars
from deepmf.report.content import Figure, Section, Table
from deepmf.report.findings import Findings

_BINS = 20  # of values on a scale without levels
_FACTS = ("entries", "rows", "columns", "density", "mean", "standard deviation")


def data_section(found: Findings) -> Section:
    """Return the section on the training entries and the test entries."""
    train = found.seen.train
    return Section(
        title="The data",
        how="The model learned from the training entries and predicts the test entries, so its errors are a "
        "good estimate for future entries as far as these are distributed like the test entries.",
        template="data.html",
        content={
            "sizes": _sizes(found),
            "scale": _in_words(found.seen.scale),
            "dropped": _dropped(found.seen.dropped.size),
            "figures": [
                _values(train, found.test),
                _per_axis("row", train.row_counts),
                _per_axis("column", train.column_counts),
            ],
        },
    )


def _sizes(found: Findings) -> Table:
    parts = {"training": found.seen.train, "extension": found.seen.extension, "test": found.test}
    there = {name: part for name, part in parts.items() if part is not None}
    lines = [list(line) for line in zip(_FACTS, *(_facts(part) for part in there.values()), strict=True)]
    return Table("How much there is", ["", *there], lines)


def _dropped(number: int) -> str:
    """Return how many training entries no longer hold, as a sentence; nothing where all do."""
    return f"Of the training entries, {format_count(number)} were replaced or forgotten since." if number else ""


def _in_words(scale: Scale) -> str:
    """Return a scale in a few words."""
    if scale.levels is None or len(str(scale)) <= 60:
        return str(scale)
    return f"on {scale.levels.size} levels from {scale.low:g} to {scale.high:g}"


def _facts(part: ObservedMatrix) -> list[str]:
    """Return the lines of one kind of entries."""
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


def _values(train: ObservedMatrix, test: ObservedMatrix) -> Figure:
    """Return the shares of values, in training and in the test."""
    names, edges = _groups(train.scale, test)
    shares = {name: _shares(train.scale, part, edges) for name, part in (("training", train), ("test", test))}
    lines = [[name, *(format_percent(share[at]) for share in shares.values())] for at, name in enumerate(names)]
    return Figure(
        "Which values there are",
        plot_bars(
            names,
            {name: share.tolist() for name, share in shares.items()},
            x_label="level" if edges is None else "value",
            y_label="share of entries",
            percent=True,
        ),
        f"Share of entries by value, training and test; the most frequent value in training is "
        f"{names[int(np.argmax(shares['training']))]}",
        numbers=Table("Share of entries by value", ["value", *shares], lines),
    )


def _groups(scale: Scale, test: ObservedMatrix) -> tuple[list[str], FloatArray | None]:
    """Return the names of the groups of values: the levels, or the middles of bins with their edges."""
    if scale.levels is not None:
        return [format_short(level) for level in scale.levels], None
    low, high = min(scale.low, float(test.values.min())), max(scale.high, float(test.values.max()))
    edges = np.linspace(low, high, _BINS + 1)
    return [format_short(float(f"{middle:.3g}")) for middle in (edges[:-1] + edges[1:]) / 2], edges


def _shares(scale: Scale, part: ObservedMatrix, edges: FloatArray | None) -> FloatArray:
    if edges is not None:
        counts, _ = np.histogram(part.values, edges)
    else:
        counts = np.bincount(
            scale.level_positions(part.values), minlength=0 if scale.levels is None else scale.levels.size
        )
    shares: FloatArray = counts / max(part.n_entries, 1)
    return shares


def _per_axis(axis: str, counts: npt.NDArray[np.integer]) -> Figure:
    """Return how many rows (or columns) have how many training entries."""
    which = np.searchsorted(STARTS, counts, side="right") - 1
    numbers = np.bincount(which, minlength=len(STARTS))
    used = range(int(which.min()), int(which.max()) + 1)
    names = [group_name(STARTS[at], STARTS[at + 1] - 1 if at + 1 < len(STARTS) else None) for at in used]
    shown = [int(numbers[at]) for at in used]
    median = float(np.median(counts))
    return Figure(
        f"Training entries per {axis}",
        plot_bars(names, {f"{axis}s": shown}, x_label=f"entries of a {axis} (median {median:g})", y_label=f"{axis}s"),
        f"Number of {axis}s by how many training entries they have; the median is {median:g}",
        numbers=Table(
            f"Training entries per {axis}",
            ["entries", f"{axis}s"],
            [[name, format_count(n)] for name, n in zip(names, shown, strict=True)],
        ),
    )


def group_name(first: int, last: int | None) -> str:
    """Return the name of a group of counts: 0, 2–4, 500+."""
    if last is None:
        return f"{first}+"
    return f"{first}" if last == first else f"{first}–{last}"
