"""Encodings: how the values of entries become the inputs of a branch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, ConstantValues, OffScale
from deepmf.matrix.arrays import FloatArray

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


# A matrix with more distinct values than this is treated as continuous.
MOST_LEVELS = 64


# The ends of an inferred interval lie at most this many times as far from the median as the 1st and the 99th percentile
# do: 4.65 standard deviations of normal values, beyond which one in 300,000 lies; all of light-tailed ones lie within.
_REACH, _TAIL = 2.0, 0.01

# Percentiles of more values are those of as many, drawn at random.
_SAMPLE = 1 << 20


# The spread and the middle of two numbers of this size are finite.
LARGEST = 1e307


class Scale:
    """All legal levels of a matrix, or the interval its values lie in.

    Give either `levels` (increasing, any spacing) or both ends `low` and `high`. Immutable and hashable.

    An interval that is given is a law: a value outside is an error, and predictions are clipped to it. One that was
    inferred from values is only what these show (`bounded=False`): other values may lie beyond it, nothing is clipped,
    and outliers do not stretch it.

    >>> stars = Scale(levels=[1, 2, 3, 4, 5])
    >>> stars
    Scale(levels=[1, 2, 3, 4, 5])
    >>> stars.to_unit([1, 3, 5])
    array([-1.,  0.,  1.])
    >>> stars.from_unit([-1.0, 0.25])
    array([1. , 3.5])
    >>> stars.nearest_level([3.5, 0.2])
    array([4., 1.])
    >>> Scale(low=-40, high=60).levels is None
    True
    >>> Scale.infer(range(100))
    Scale(low=0, high=99, bounded=False)
    """

    __slots__ = ("_high", "_is_bounded", "_levels", "_low")

    def __init__(
        self,
        levels: Iterable[float] | None = None,
        *,
        low: float | None = None,
        high: float | None = None,
        bounded: bool = True,
    ) -> None:
        if not isinstance(bounded, bool):
            raise BadSetting(f"bounded must be True or False; got {bounded!r}")
        self._is_bounded = bounded
        if levels is not None:
            if low is not None or high is not None:
                raise BadSetting("a scale takes levels, or low and high, not both")
            if not bounded:
                raise BadSetting("a scale of levels holds no other values; bounded=False is for low and high")
            array = _check_levels(levels)
            array.flags.writeable = False
            self._levels: FloatArray | None = array
            self._low, self._high = float(array[0]), float(array[-1])
        else:
            self._levels = None
            self._low, self._high = _check_interval(low, high)

    @classmethod
    def infer(cls, values: npt.ArrayLike) -> Scale:
        """Return the scale that the values show: their levels if at most 64 differ, otherwise `infer_interval`."""
        array = np.asarray(values, dtype=np.float64).ravel()
        if array.size == 0:
            raise BadEntries("a scale cannot be inferred from no entries; give scale=Scale(levels=[...])")
        levels = find_few_levels(array)
        if levels is None:
            return cls.infer_interval(array)
        if levels.size == 1:
            warnings.warn(
                f"all entries have the value {levels[0]:g}: every prediction will be {levels[0]:g} "
                "unless a wider scale is given",
                ConstantValues,
                stacklevel=2,
            )
        return cls(levels)

    @classmethod
    def infer_interval(cls, values: npt.NDArray[Any]) -> Scale:
        """Return the interval that at least two different values (n,) lie in, but for outliers; it is not bounded.

        It reaches from the lowest to the highest value, and on either side at most twice as far from the median as 98 %
        of the values do.
        """
        low, high, n_values = float(values.min()), float(values.max()), values.size
        if n_values > _SAMPLE:
            values = values[np.sort(np.random.PCG64(0).random_raw(_SAMPLE) % np.uint64(n_values))]
        last, middle = values.size - 1, (values.size - 1) // 2
        ranks = [tail := min(math.ceil(_TAIL * last), middle), middle, last - tail]
        lower, median, upper = np.partition(np.asarray(values, dtype=np.float64), ranks)[ranks].tolist()
        # A side on which nearly all values are the median says nothing about outliers.
        low = max(low, median - _REACH * (median - lower)) if lower < median else low
        high = min(high, median + _REACH * (upper - median)) if upper > median else high
        return cls(low=low, high=high, bounded=False)

    def infer_again(self, values: npt.NDArray[Any]) -> Scale:
        """Return the interval that some values show, in the place of one that was inferred from others beside them.

        Levels, and an interval that was given, stay as they are; so does any where no two values differ.
        """
        if self._is_bounded or values.size == 0:
            return self
        array = np.asarray(values)
        return self if array.min() == array.max() else Scale.infer_interval(array)

    @property
    def levels(self) -> FloatArray | None:
        """The legal levels in increasing order, read-only; None for an interval."""
        return self._levels

    @property
    def is_whole(self) -> bool:
        """Whether there are levels and all are whole numbers."""
        return self._levels is not None and bool(np.all((self._levels % 1 == 0) & (np.abs(self._levels) < 2**53)))

    @property
    def is_bounded(self) -> bool:
        """Whether values beyond its ends are illegal: always, but for an interval that was inferred."""
        return self._is_bounded

    @property
    def low(self) -> float:
        """The lowest legal value; of an interval that was inferred, the lowest but for outliers."""
        return self._low

    @property
    def high(self) -> float:
        """The highest legal value; of an interval that was inferred, the highest but for outliers."""
        return self._high

    @property
    def unit_map(self) -> UnitMap:
        """The map between the ends of the scale and [-1, 1], for tensors too."""
        return UnitMap(self._low, self._high, self._is_bounded)

    def to_unit(self, values: npt.ArrayLike) -> FloatArray:
        """Map the scale linearly onto [-1, 1], exact at both ends; a scale of one value maps to 0.

        Values beyond an interval that was inferred map to its ends.
        """
        return self.unit_map.to_unit(np.asarray(values, dtype=np.float64))

    def from_unit(self, values: npt.ArrayLike) -> FloatArray:
        """Map [-1, 1] linearly onto the scale, exact at both ends."""
        return self.unit_map.from_unit(np.asarray(values, dtype=np.float64))

    def nearest_level(self, values: npt.ArrayLike) -> FloatArray:
        """Return the nearest legal level of each value; halfway between two levels goes to the higher one.

        For an interval, values are clipped.
        """
        if self._levels is None:
            return self.clip(values)
        return self.level_of(values, (self._levels[:-1] + self._levels[1:]) / 2.0)

    def level_of(self, values: npt.ArrayLike, boundaries: npt.ArrayLike) -> FloatArray:
        """Return the level of each value by increasing boundaries between the levels; one on a boundary goes up."""
        if self._levels is None:
            raise BadSetting(f"{self!r} has no levels")
        array = np.asarray(values, dtype=np.float64)
        chosen: FloatArray = self._levels[np.searchsorted(np.asarray(boundaries), array, side="right")]
        return chosen

    def clip(self, values: npt.ArrayLike) -> FloatArray:
        """Return the values brought inside the scale's ends; as they are where it is not bounded."""
        array = np.asarray(values, dtype=np.float64)
        return np.clip(array, self._low, self._high) if self._is_bounded else array

    def require_levels(self, method: str) -> FloatArray:
        """Return the levels for a method that needs at least two; a scale without them is refused."""
        if self._levels is None or self._levels.size < 2:
            raise BadSetting(f"{method} needs a scale of at least two levels; this one is {self}")
        return self._levels

    def level_positions(self, values: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Return the position of each value among the levels; every value must be one of them."""
        if self._levels is None:
            raise BadSetting(f"{self!r} has no levels")
        array = np.asarray(values, dtype=np.float64)
        positions = np.minimum(np.searchsorted(self._levels, array), self._levels.size - 1)
        off = self._levels[positions] != array
        if np.any(off):
            raise OffScale(f"{np.extract(off, array)[0]:g} is not a level of {self!r}")
        return positions

    def holds(self, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Say of each value whether it is legal: one of the levels, or inside an interval that was given."""
        array = np.asarray(values, dtype=np.float64)
        if not self._is_bounded:
            return np.isfinite(array)
        if self._levels is None:
            return (array >= self._low) & (array <= self._high)
        return _among(self._levels, array)

    def __str__(self) -> str:
        """A few words for messages: `1 to 5 in steps of 1`."""
        if self._levels is None or self._levels.size == 1:
            return f"{self._low:g} to {self._high:g}" if self._levels is None else f"only {self._low:g}"
        steps = np.diff(self._levels)
        if self._levels.size > 2 and np.allclose(steps, steps[0], rtol=1e-9):
            return f"{self._low:g} to {self._high:g} in steps of {steps[0]:g}"
        return "one of " + ", ".join(f"{level:g}" for level in self._levels)

    def __repr__(self) -> str:
        if self._levels is None:
            return f"Scale(low={self._low:g}, high={self._high:g}{'' if self._is_bounded else ', bounded=False'})"
        return f"Scale(levels=[{', '.join(f'{level:g}' for level in self._levels)}])"

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Scale) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise AttributeError(f"a Scale is immutable: {name} cannot be set")
        object.__setattr__(self, name, value)

    def _key(self) -> tuple[float, float, bool, tuple[float, ...] | None]:
        levels = None if self._levels is None else tuple(self._levels.tolist())
        return self._low, self._high, self._is_bounded, levels


def find_few_levels(values: FloatArray, *, piece: int = 1 << 16) -> FloatArray | None:
    """Return the sorted distinct values, or None when there are more than a scale may have levels.

    Goes piece by piece, comparing with the levels seen so far: sorting all values would cost far more.
    """
    seen = np.empty(0, dtype=np.float64)
    for start in range(0, values.size, piece):
        fresh = values[start : start + piece]
        if seen.size:
            fresh = fresh[~_among(seen, fresh)]
        if fresh.size:
            seen = np.union1d(seen, fresh)
        if seen.size > MOST_LEVELS:
            return None
    return seen


def _among(levels: FloatArray, values: FloatArray) -> npt.NDArray[np.bool_]:
    """Say of each value whether it is one of the sorted levels; a few comparisons beat a search by far."""
    if levels.size > 16:
        return np.equal(levels[np.searchsorted(levels[:-1], values)], values)
    among: npt.NDArray[np.bool_] = values == levels[0]
    for level in levels[1:]:
        among |= values == level
    return among


def _check_levels(levels: Iterable[float]) -> FloatArray:
    try:
        array = np.array(list(levels), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadSetting(f"the levels of a scale must be numbers; got {levels!r}") from error
    if array.ndim != 1 or array.size == 0:
        raise BadSetting(f"a scale needs at least one level; got {levels!r}")
    if not np.all(np.isfinite(array)):
        raise BadSetting(f"the levels of a scale must be finite; got {levels!r}")
    if np.abs(array).max() > LARGEST:
        raise BadSetting(f"the levels of a scale must be at most {LARGEST:g} in magnitude; got {levels!r}")
    if np.any(np.diff(array) <= 0):
        raise BadSetting(f"the levels of a scale must increase; got {levels!r}")
    return array


def _check_interval(low: float | None, high: float | None) -> tuple[float, float]:
    if low is None or high is None:
        raise BadSetting("a scale takes levels=[...], or both low= and high=")
    if not (abs(low) < math.inf and abs(high) < math.inf) or low >= high:
        raise BadSetting(f"the interval of a scale needs low < high, both finite; got {low!r} and {high!r}")
    if max(abs(low), abs(high)) > LARGEST:
        raise BadSetting(f"the ends of a scale must be at most {LARGEST:g} in magnitude; got {low!r} and {high!r}")
    return float(low), float(high)


@dataclass(frozen=True)
class Encoding:
    """A rule that turns the values of entries into inputs; what is missing is 0 under every rule.

    >>> stars = Scale(levels=[1, 2, 3, 4, 5])
    >>> ENCODINGS["scaled"].encode(stars, [1, 3, 5])
    array([-1.,  0.,  1.])
    >>> ENCODINGS["raw"].encode(stars, [1, 3, 5])
    array([1., 3., 5.])
    """

    name: str
    encode: Callable[[Scale, npt.ArrayLike], npt.NDArray[np.float64]]


def _to_unit(scale: Scale, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return scale.to_unit(values)


def _raw(_: Scale, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)


# "scaled" is the paper's footnote 1: missing looks like the middle of the scale, and new rows are predicted well. "raw"
# is what the authors' code does: which entries exist is plain to see; known rows are predicted better, new ones worse.
ENCODINGS = {rule.name: rule for rule in (Encoding("scaled", _to_unit), Encoding("raw", _raw))}
