"""The units of a table's columns, and the one scale on which a model sees them all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.scale import MOST_LEVELS, Scale
from deepmf.sklearn.observed_table import TableEntries

# A model sees a column's values up to this many standard deviations from its mean; what lies beyond is clipped.
REACH = 4.0


@dataclass(frozen=True, eq=False)
class ColumnUnits:
    """What a table's values are to a model: (value - centre) / spread, on one scale for all columns.

    >>> entries = TableEntries.of(np.array([[1.0, 100.0], [3.0, np.nan], [2.0, 300.0]]))
    >>> ColumnUnits.own(entries).seen(entries).values
    array([-1.22474487, -1.        ,  1.22474487,  0.        ,  1.        ])
    """

    means: FloatArray  # (columns,) of the entries
    centres: FloatArray  # (columns,)
    spreads: FloatArray  # (columns,) 1 where a column has only one value
    scale: Scale  # what the model's values lie on
    column_scales: tuple[Scale, ...]  # what each column's own values lie on

    @classmethod
    def own(cls, entries: TableEntries, *, reach: float = REACH) -> ColumnUnits:
        """Give every column units of its own: its mean and its standard deviation."""
        columns = _by_column(entries)
        means = np.array([values.mean() for values in columns])
        scales = tuple(map(_scale_of, columns))
        constant = np.array([scale.low == scale.high for scale in scales])
        spreads = np.where(constant, 1.0, [values.std() for values in columns])
        return cls(means, means, spreads, Scale(low=-reach, high=reach), scales)

    @classmethod
    def shared(cls, entries: TableEntries, scale: Scale | None) -> ColumnUnits:
        """Leave all values as they are, on a scale that all columns share; None infers it."""
        means = np.array([values.mean() for values in _by_column(entries)])
        scale = scale or Scale.infer(entries.values)
        return cls(means, np.zeros(means.size), np.ones(means.size), scale, (scale,) * means.size)

    def seen(self, entries: TableEntries) -> TableEntries:
        """Return entries as a model sees them: what the scale does not hold is the nearest that it holds."""
        units = (entries.values - self.centres[entries.columns]) / self.spreads[entries.columns]
        return entries._replace(values=self.scale.nearest_level(units))

    def values(self, units: npt.NDArray[np.floating], columns: IndexArray) -> FloatArray:
        """Return what a model says as values of these columns, inside what a column with units of its own showed."""
        ends = [(scale.low, scale.high) if scale.is_bounded else (-np.inf, np.inf) for scale in self.column_scales]
        lows, highs = np.array(ends).T
        values: FloatArray = self.centres[columns] + self.spreads[columns] * units
        return np.clip(values, lows[columns], highs[columns])

    def levels(self, values: FloatArray, columns: IndexArray) -> FloatArray:
        """Return the nearest level of each value in columns that have levels, the value itself in others."""
        nearest = np.empty_like(values)
        for scale, places in zip(self.column_scales, _places(columns, len(self.column_scales)), strict=True):
            nearest[places] = scale.nearest_level(values[places])
        return nearest


def _by_column(entries: TableEntries) -> list[FloatArray]:
    return [entries.values[places] for places in _places(entries.columns, entries.shape[1])]


def _places(columns: IndexArray, n_columns: int) -> list[IndexArray]:
    """Return where each column occurs."""
    ends = np.cumsum(np.bincount(columns, minlength=n_columns))
    return np.split(np.argsort(columns, kind="stable"), ends[:-1])


def _scale_of(values: FloatArray) -> Scale:
    """Return the levels of a column whose values repeat (few, and each seen twice on average), otherwise its range."""
    levels = np.unique(values)
    if levels.size == 1 or levels.size <= min(MOST_LEVELS, values.size // 2):
        return Scale(levels)
    return Scale(low=float(levels[0]), high=float(levels[-1]))
