"""The linear map between the ends of a scale and [-1, 1], one formula for arrays and tensors alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

Numbers = TypeVar("Numbers", npt.NDArray[Any], "Tensor")


class UnitMap(NamedTuple):
    """Maps [low, high] linearly onto [-1, 1] and back, exact at both ends; what is NaN stays NaN.

    bounded: whether no value lies beyond the ends; where some may, they map to -1 and 1.

    >>> import numpy as np
    >>> UnitMap(1.0, 5.0).to_unit(np.array([1.0, 3.0, 5.0]))
    array([-1.,  0.,  1.])
    """

    low: float
    high: float
    bounded: bool = True

    def to_unit(self, values: Numbers) -> Numbers:
        """Return values in units of [-1, 1]; where both ends are the same value, 0.

        The footnote to equation 1 of the paper, written so that no rounding leaves the interval.
        """
        if self.high == self.low:
            return 0.0 * (values - self.low)
        # (value - low) + (value - high) is antisymmetric, so the middle is exactly 0.
        units = ((values - self.low) + (values - self.high)) / (self.high - self.low)
        return units if self.bounded else units.clip(-1.0, 1.0)

    def from_unit(self, units: Numbers) -> Numbers:
        """Return what lies between the ends as units do in [-1, 1]."""
        share = (units + 1.0) / 2.0
        return self.low * (1.0 - share) + self.high * share
