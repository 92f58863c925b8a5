"""A summary of a matrix in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.coded_values import pieces
from deepmf.matrix.matrix_view import matrix_html
from deepmf.matrix.scale import Scale

_QUANTILES = {"min": 0.0, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "max": 1.0}


@dataclass(frozen=True)
class Description:
    """Counts, density, quantiles of entries per row and column, and the histogram of the values.

    `histogram` maps each level to its number of entries; for an interval, the middle of each of ten bins.
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
        levels = self.scale.levels
        plain["scale"] = {
            "low": self.scale.low,
            "high": self.scale.high,
            "levels": None if levels is None else levels.tolist(),
        }
        plain["histogram"] = {f"{value:g}": count for value, count in self.histogram.items()}
        return plain

    def _repr_html_(self) -> str:
        return matrix_html("Description", self)

    def __str__(self) -> str:
        lines = [
            f"{self.n_entries:,} entries in {self.n_rows:,} rows x {self.n_columns:,} columns "
            f"({100 * self.density:.3g} % observed)",
            f"scale {self.scale}; mean {self.mean:.4g}, standard deviation {self.standard_deviation:.4g}",
            _quantile_line("entries per row", self.entries_per_row, self.n_empty_rows),
            _quantile_line("entries per column", self.entries_per_column, self.n_empty_columns),
        ]
        most = max(self.histogram.values(), default=1) or 1
        for value, count in self.histogram.items():
            share = count / max(self.n_entries, 1)
            lines.append(f"{value:>10.4g} {100 * share:5.1f} % {'█' * round(30 * count / most)}")
        return "\n".join(lines)


def describe(
    *,
    shape: tuple[int, int],
    scale: Scale,
    values: npt.NDArray[np.floating[Any]],
    row_counts: npt.NDArray[np.integer[Any]],
    column_counts: npt.NDArray[np.integer[Any]],
) -> Description:
    """Count what a matrix of this shape holds; both arrays of counts are reordered."""
    n_rows, n_columns = shape
    mean, deviation = _moments(values)
    return Description(
        n_rows=n_rows,
        n_columns=n_columns,
        n_entries=int(values.size),
        density=values.size / max(n_rows * n_columns, 1),
        n_empty_rows=int(np.count_nonzero(row_counts == 0)),
        n_empty_columns=int(np.count_nonzero(column_counts == 0)),
        mean=mean,
        standard_deviation=deviation,
        scale=scale,
        entries_per_row=_quantiles(row_counts),
        entries_per_column=_quantiles(column_counts),
        histogram=_histogram(scale, values),
    )


def _moments(values: npt.NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Return the mean and the standard deviation, computed some values at a time."""
    if not values.size:
        return float("nan"), float("nan")
    mean = sum(float(piece.sum(dtype=np.float64)) for piece in pieces(values)) / values.size
    with np.errstate(over="ignore"):  # the squares of huge values: infinite is what they deviate
        squares = sum(float(np.square(piece.astype(np.float64) - mean).sum()) for piece in pieces(values))
    return mean, float(np.sqrt(squares / values.size))


def _quantiles(counts: npt.NDArray[np.integer[Any]]) -> dict[str, float]:
    if counts.size == 0:
        return dict.fromkeys(_QUANTILES, 0.0)
    quantiles = np.quantile(counts, list(_QUANTILES.values()), overwrite_input=True)  # a copy of 10^8 counts is dear
    return dict(zip(_QUANTILES, quantiles.tolist(), strict=True))


def _histogram(scale: Scale, values: npt.NDArray[np.floating[Any]]) -> dict[float, int]:
    if scale.levels is not None:
        counts = np.zeros(scale.levels.size, dtype=np.int64)
        for piece in pieces(values):
            counts += np.bincount(scale.level_positions(piece), minlength=counts.size)
        return dict(zip(scale.levels.tolist(), counts.tolist(), strict=True))
    counts, edges = np.zeros(10, dtype=np.int64), np.histogram_bin_edges([], bins=10, range=(scale.low, scale.high))
    for piece in pieces(values):
        inside = np.clip(piece, scale.low, scale.high)  # outliers count in the first and last bins
        counts += np.histogram(inside, bins=10, range=(scale.low, scale.high))[0]
    return dict(zip(((edges[:-1] + edges[1:]) / 2).tolist(), counts.tolist(), strict=True))


def _quantile_line(name: str, quantiles: dict[str, float], n_empty: int) -> str:
    shown = ", ".join(f"{label} {count:g}" for label, count in quantiles.items())
    return f"{name}: {shown}" + (f"; {n_empty:,} without any" if n_empty else "")
