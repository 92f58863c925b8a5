"""The limits of what one row can do to another: the values and weights that a model reads.

A model reads a value that comes after training as the nearest value between the lowest and the
highest training value, and a weight as at most the largest training weight. On a scale of levels,
every level is read as it is. Without ends of its own, a scale gets the same limits for predictions.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from deepmf.matrix.arrays import ValueArray
from deepmf.matrix.axis_entries import AxisEntries, PlacedEntries
from deepmf.matrix.scale import Scale

AnyEntries = TypeVar("AnyEntries", AxisEntries, PlacedEntries)


class Limits(NamedTuple):
    """The lowest and the highest value, and the largest weight, that a model reads."""

    low: float
    high: float
    weight: float

    @classmethod
    def of(cls, scale: Scale, values: ValueArray, weights: ValueArray | None) -> Limits:
        """Return the limits that training values (entries,) and their weights set.

        If all training values are equal, the range reaches to the ends of the scale.

        >>> Limits.of(Scale(low=-9, high=9), np.array([-1.0, 3.0]), None)
        Limits(low=-1.0, high=3.0, weight=1.0)
        >>> Limits.of(Scale(low=-9, high=9), np.array([2.0, 2.0]), np.array([0.5, 4.0]))
        Limits(low=-9.0, high=9.0, weight=4.0)
        """
        weight = 1.0 if weights is None else float(weights.max(initial=0.0))
        if scale.levels is not None or not values.size:
            return cls(scale.low, scale.high, weight)
        low = float(values.min())
        high = float(values.max())
        if low < high:
            return cls(low, high, weight)
        return cls(min(low, scale.low), max(high, scale.high), weight)

    def bound(self, entries: AnyEntries) -> AnyEntries:
        """Return entries as a model reads them; the same object if all are within the limits."""
        values = entries.values
        weights = entries.extras.weights
        if np.any((values < self.low) | (values > self.high)):
            entries = entries._replace(values=np.clip(values, self.low, self.high))
        if weights is not None and np.any(weights > self.weight):
            extras = entries.extras._replace(weights=np.minimum(weights, self.weight))
            entries = entries._replace(extras=extras)
        return entries
