"""A summary of a matrix: counts, density, quantiles of entries per row and column, and a
histogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deepmf.matrix.arrays import IndexArray, ValueArray, iterate_pieces
from deepmf.matrix.scale import Scale

_QUANTILES = {"min": 0.0, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "max": 1.0}


def scale_to_json(scale: Scale) -> dict[str, Any]:
    """Return a scale as JSON content."""
    if scale.is_interactions:
        return scale.to_dict()
    levels = None if scale.levels is None else scale.levels.tolist()
    return {"low": scale.low, "high": scale.high, "levels": levels}


@dataclass(frozen=True, repr=False)
class Description:
    """Counts, density, quantiles of entries per row and column, and the histogram of the values.

    `histogram` maps each level to its number of entries; for an interval, the middle of each of ten
    bins.
    """

    n_rows: int
    n_columns: int
    n_entries: int
    density: float
    n_empty_rows: int
    n_empty_columns: int
    mean: float
    standard_deviation: float
    scale: Scale
    entries_per_row: dict[str, float]
    entries_per_column: dict[str, float]
    histogram: dict[float, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python values, ready for JSON."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["scale"] = scale_to_json(self.scale)
        plain["histogram"] = {f"{value:g}": count for value, count in self.histogram.items()}
        return plain

    def __repr__(self) -> str:
        lines = [
            f"{self.n_entries:,} entries in {self.n_rows:,} rows x {self.n_columns:,} columns "
            f"({100 * self.density:.3g} % observed)",
            f"{'' if self.scale.is_interactions else 'scale '}{self.scale}; mean {self.mean:.4g}, standard deviation "
            f"{self.standard_deviation:.4g}",
            _format_quantiles("entries per row", self.entries_per_row, self.n_empty_rows),
            _format_quantiles("entries per column", self.entries_per_column, self.n_empty_columns),
        ]
        most = max(self.histogram.values(), default=1) or 1
        for value, count in self.histogram.items():
            share = count / max(self.n_entries, 1)
            lines.append(f"{value:>10.4g} {100 * share:5.1f} % {'█' * round(30 * count / most)}")
        return "\n".join(lines)


def describe(matrix: Any) -> Description:
    """Summarise a matrix."""
    (n_rows, n_columns), values = matrix.shape, matrix.values
    row_counts = matrix.row_counts
    column_counts = matrix.column_counts
    mean = deviation = float("nan")
    if values.size:
        with np.errstate(over="ignore"):  # the deviation of huge values is infinite
            mean = float(values.mean(dtype=np.float64))
            deviation = float(values.std(dtype=np.float64))
    return Description(
        n_rows=n_rows,
        n_columns=n_columns,
        n_entries=matrix.n_entries,
        density=matrix.n_entries / max(n_rows * n_columns, 1),
        n_empty_rows=int(np.count_nonzero(row_counts == 0)),
        n_empty_columns=int(np.count_nonzero(column_counts == 0)),
        mean=mean,
        standard_deviation=deviation,
        scale=matrix.scale,
        entries_per_row=_compute_quantiles(row_counts),
        entries_per_column=_compute_quantiles(column_counts),
        histogram=_compute_histogram(matrix.scale, values),
    )


def _compute_quantiles(counts: IndexArray) -> dict[str, float]:
    quantiles = np.quantile(counts if counts.size else [0], list(_QUANTILES.values()))
    return dict(zip(_QUANTILES, quantiles.tolist(), strict=True))


def _compute_histogram(scale: Scale, values: ValueArray) -> dict[float, int]:
    if scale.levels is not None:
        counts = np.zeros(scale.levels.size, dtype=np.int64)
        for piece in iterate_pieces(values):
            counts += np.bincount(scale.level_positions(piece), minlength=counts.size)
        return dict(zip(scale.levels.tolist(), counts.tolist(), strict=True))
    # counts 1 to 10, and more
    low, high = (scale.low, scale.high) if not scale.is_interactions else (0.5, 10.5)
    counts = np.zeros(10, dtype=np.int64)
    edges = np.histogram_bin_edges([], bins=10, range=(low, high))
    for piece in iterate_pieces(values):
        inside = np.clip(piece, low, high)  # outliers count in the first and last bins
        counts += np.histogram(inside, bins=10, range=(low, high))[0]
    if scale.is_interactions:
        counts = np.trim_zeros(counts, "b")
    return dict(zip(((edges[:-1] + edges[1:]) / 2).tolist(), counts.tolist(), strict=False))


def _format_quantiles(name: str, quantiles: dict[str, float], n_empty: int) -> str:
    shown = ", ".join(f"{label} {count:g}" for label, count in quantiles.items())
    return f"{name}: {shown}" + (f"; {n_empty:,} without any" if n_empty else "")
