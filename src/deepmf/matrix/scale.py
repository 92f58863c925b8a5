"""The scale of a matrix: its legal levels or interval, the map to [-1, 1], and encodings of values
as inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import (
    BadEntries,
    BadSetting,
    ConstantValues,
    OffScale,
    check_flag,
    show_value,
    warn,
)
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, Numbers, iterate_pieces, to_numbers


class UnitMap(NamedTuple):
    """The linear map from [low, high] to [-1, 1] and back, exact at both ends; NaN stays NaN.

    bounded: whether all values lie between the ends; if not, values beyond them map to -1 and 1.

    >>> import numpy as np
    >>> UnitMap(1.0, 5.0).to_unit(np.array([1.0, 3.0, 5.0]))
    array([-1.,  0.,  1.])
    """

    low: float
    high: float
    bounded: bool = True

    def to_unit(self, values: Numbers) -> Numbers:
        """Map values to [-1, 1]; if both ends are equal, to 0.

        This is the footnote to equation 1 of the paper, written so that rounding never leaves the
        interval.
        """
        if self.high == self.low:
            return 0.0 * (values - self.low)
        # (value - low) + (value - high) is antisymmetric, so the middle is exactly 0.
        units = ((values - self.low) + (values - self.high)) / (self.high - self.low)
        return units if self.bounded else units.clip(-1.0, 1.0)

    def from_unit(self, units: Numbers) -> Numbers:
        """Map [-1, 1] to values."""
        share = (units + 1.0) / 2.0
        return self.low * (1.0 - share) + self.high * share


# Values with more distinct numbers than this are treated as continuous.
MOST_LEVELS = 64

# The difference and the mean of two numbers up to this magnitude are finite.
LARGEST = 1e307


class Scale:
    """All legal levels of a matrix, or the interval its values lie in.

    Give either `levels` or both `low` and `high`. A scale is immutable and hashable.

    Values outside a given interval are an error, and predictions are clipped to it. An interval
    that was inferred from values has `bounded=False`: other values may lie beyond it, and
    outliers do not stretch it. A model clips its predictions to the range of its training values.

    Parameters
    ----------
    levels : legal values in increasing order, of any spacing.
    low, high : ends of the interval.
    bounded : whether values beyond `low` and `high` are illegal.

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

    levels: FloatArray | None  # in increasing order, read-only; None for an interval
    # the lowest legal value; of an inferred interval, the lowest value that is no outlier
    low: float
    high: float
    # whether values beyond the ends are illegal; False only for an inferred interval
    is_bounded: bool
    is_interactions: bool  # whether entries are interactions, which are counted and have no values
    # the ends of predictions on an unbounded scale; equal scales may have others
    _limits: tuple[float, float] | None = None

    def __init__(
        self,
        levels: Iterable[float] | None = None,
        *,
        low: float | None = None,
        high: float | None = None,
        bounded: bool = True,
    ) -> None:
        check_flag("bounded", bounded)
        if levels is not None:
            if low is not None or high is not None or not bounded:
                raise BadSetting(
                    "a scale takes levels alone, or low, high and bounded; got levels, "
                    f"low={show_value(low)}, high={show_value(high)} and bounded={bounded}"
                )
            levels = _check_levels(levels)
            levels.flags.writeable = False
            ends = float(levels[0]), float(levels[-1])
        else:
            ends = _check_interval(low, high)
        vars(self).update(
            levels=levels, low=ends[0], high=ends[1], is_bounded=bounded, is_interactions=False
        )

    @classmethod
    def interactions(cls) -> Scale:
        """Return the scale of interactions: entries exist and may be counted, but have no values.

        >>> Scale.interactions()
        Scale.interactions()
        """
        # counts have no ends; these keep the map to units defined
        scale = cls(low=0, high=1, bounded=False)
        vars(scale)["is_interactions"] = True
        return scale

    @classmethod
    def infer(cls, values: npt.ArrayLike) -> Scale:
        """Infer a scale: levels if there are at most 64 distinct values, otherwise
        `infer_interval`."""
        array = np.asarray(values).ravel()
        if array.size == 0:
            raise BadEntries(
                "there are no entries to infer a scale from; give scale=Scale(levels=[...])"
            )
        levels = find_few_levels(array)
        if levels is None:
            return cls.infer_interval(array)
        if levels.size == 1:
            warn(
                f"all entries have the value {levels[0]:g}: every prediction will be {levels[0]:g} unless a wider "
                "scale is given; if they only say that an entry exists, read them as interactions "
                "(value=None in Python, --no-values on the command line)",
                ConstantValues,
            )
        return cls(levels)

    @classmethod
    def infer_interval(cls, values: Array) -> Scale:
        """Infer an unbounded interval from values (n,), of which at least two differ.

        It reaches from the lowest to the highest value, but on either side at most twice as far
        from the median as the 1st or the 99th percentile. For normal values this is 4.65 standard
        deviations, exceeded by one value in 300,000. Percentiles are those of at most a million
        values, drawn at random.
        """
        low = float(values.min())
        high = float(values.max())
        n_values = values.size
        if n_values > 1 << 20:
            values = values[np.sort(np.random.PCG64(0).random_raw(1 << 20) % np.uint64(n_values))]
        last = values.size - 1
        middle = (values.size - 1) // 2
        ranks = [tail := min(math.ceil(0.01 * last), middle), middle, last - tail]
        lower, median, upper = np.partition(np.asarray(values, dtype=np.float64), ranks)[
            ranks
        ].tolist()
        # If a percentile equals the median, its side says nothing about outliers.
        low = max(low, median - 2.0 * (median - lower)) if lower < median else low
        high = min(high, median + 2.0 * (upper - median)) if upper > median else high
        return cls(low=low, high=high, bounded=False)

    def infer_again(self, values: Array) -> Scale:
        """Infer the interval again from a part of the values; keep levels, given intervals and
        constant values."""
        if self.is_bounded or self.is_interactions or values.size == 0:
            return self
        array = np.asarray(values)
        return self if array.min() == array.max() else Scale.infer_interval(array)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON content, exact to the bit."""
        if self.is_interactions:
            return {"interactions": True}
        if self.levels is not None:
            return {"levels": self.levels.tolist()}
        return {"low": self.low, "high": self.high} | (
            {} if self.is_bounded else {"bounded": False}
        )

    @property
    def is_whole(self) -> bool:
        """Whether there are levels and all of them are integers."""
        return self.levels is not None and bool(
            np.all((self.levels % 1 == 0) & (np.abs(self.levels) < 2**53))
        )

    @property
    def unit_map(self) -> UnitMap:
        """The map between the scale and [-1, 1], for arrays and tensors."""
        return UnitMap(self.low, self.high, self.is_bounded)

    def to_unit(self, values: npt.ArrayLike) -> FloatArray:
        """Map values linearly to [-1, 1], exact at both ends; the only value of a scale maps to 0.

        Values beyond an inferred interval map to -1 and 1.
        """
        return self.unit_map.to_unit(np.asarray(values, dtype=np.float64))

    def from_unit(self, values: npt.ArrayLike) -> FloatArray:
        """Map [-1, 1] linearly to the scale, exact at both ends."""
        return self.unit_map.from_unit(np.asarray(values, dtype=np.float64))

    def nearest_level(self, values: npt.ArrayLike) -> FloatArray:
        """Return the nearest level of each value, the higher of two equally near ones; an interval
        clips values."""
        if self.levels is None:
            return self.clip(values)
        return self.level_of(values, (self.levels[:-1] + self.levels[1:]) / 2.0)

    def level_of(self, values: npt.ArrayLike, boundaries: npt.ArrayLike) -> FloatArray:
        """Return the level of each value, given increasing boundaries; a value on a boundary gets
        the higher level."""
        if self.levels is None:
            raise BadSetting(f"{self!r} has no levels")
        array = np.asarray(values, dtype=np.float64)
        return self.levels[np.searchsorted(np.asarray(boundaries), array, side="right")]

    def limit(self, low: float, high: float) -> Scale:
        """Return the same unbounded scale, whose predictions have these ends."""
        scale = object.__new__(Scale)
        vars(scale).update(vars(self) | {"_limits": (low, high)})
        return scale

    def clip(self, values: npt.ArrayLike) -> FloatArray:
        """Clip values to the ends of the scale; if it is unbounded, to its limits, if it has any."""
        array = np.asarray(values, dtype=np.float64)
        ends = (self.low, self.high) if self.is_bounded else self._limits
        return array if ends is None else np.clip(array, *ends)

    def require_levels(self, method: str) -> FloatArray:
        """Return the levels; raise an error in the name of a method if there are fewer than two."""
        if self.levels is None or self.levels.size < 2:
            raise BadSetting(f"{method} needs a scale of at least two levels; this one is {self}")
        return self.levels

    def level_positions(self, values: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Return the position of each value among the levels; a value that is no level raises
        `OffScale`."""
        if self.levels is None:
            raise BadSetting(f"{self!r} has no levels")
        array = np.asarray(values, dtype=np.float64)
        positions = np.minimum(np.searchsorted(self.levels, array), self.levels.size - 1)
        off = self.levels[positions] != array
        if np.any(off):
            raise OffScale(f"{np.extract(off, array)[0]:g} is not a level of {self!r}")
        return positions

    def holds(self, values: npt.ArrayLike) -> BoolArray:
        """Return whether each value is legal: a level, or inside the given interval."""
        array = np.asarray(values, dtype=np.float64)
        if self.is_interactions:
            return (array > 0) & np.isfinite(array)
        if not self.is_bounded:
            return np.isfinite(array)
        if self.levels is None:
            return (array >= self.low) & (array <= self.high)
        return _are_among(self.levels, array)

    def __str__(self) -> str:
        """Return a short description for messages, such as `1 to 5 in steps of 1`."""
        if self.is_interactions:
            return "interactions"
        if self.levels is None or self.levels.size == 1:
            return f"{self.low:g} to {self.high:g}" if self.levels is None else f"only {self.low:g}"
        steps = np.diff(self.levels)
        if self.levels.size > 2 and np.allclose(steps, steps[0], rtol=1e-9):
            return f"{self.low:g} to {self.high:g} in steps of {steps[0]:g}"
        return "one of " + ", ".join(f"{level:g}" for level in self.levels)

    def __repr__(self) -> str:
        if self.is_interactions:
            return "Scale.interactions()"
        if self.levels is None:
            return f"Scale(low={self.low:g}, high={self.high:g}{'' if self.is_bounded else ', bounded=False'})"
        return f"Scale(levels=[{', '.join(f'{level:g}' for level in self.levels)}])"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scale) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Scale is immutable: {name} cannot be set")

    def _key(self) -> tuple[float, float, bool, bool, tuple[float, ...] | None]:
        levels = None if self.levels is None else tuple(self.levels.tolist())
        return self.low, self.high, self.is_bounded, self.is_interactions, levels


def find_few_levels(values: Array, *, piece: int = 1 << 16) -> FloatArray | None:
    """Return the sorted distinct values, or None if there are more than `MOST_LEVELS`.

    Comparing pieces of the values with the levels found so far is much faster than sorting all
    values.
    """
    levels = np.empty(0, dtype=np.float64)
    for part in iterate_pieces(values, piece):
        fresh = part.astype(np.float64)
        if levels.size:
            fresh = fresh[~_are_among(levels, fresh)]
        if fresh.size:
            levels = np.union1d(levels, fresh)
        if levels.size > MOST_LEVELS:
            return None
    return levels


def _are_among(levels: FloatArray, values: FloatArray) -> BoolArray:
    """Return whether each value is one of the sorted levels; for few levels, comparisons are faster
    than a search."""
    if levels.size > 16:
        return np.equal(levels[np.searchsorted(levels[:-1], values)], values)
    among: BoolArray = values == levels[0]
    for level in levels[1:]:
        among |= values == level
    return among


def _check_levels(levels: Iterable[float]) -> FloatArray:
    try:
        array = to_numbers(levels, noun="level")
    except BadEntries as error:
        shown = show_value(levels)
        raise BadSetting(f"the levels of a scale must be numbers; got {shown}") from error
    shown = array.tolist()
    is_rising = array.size > 0 and bool(np.all(np.diff(array) > 0))
    if not is_rising or not np.all(np.abs(array) <= LARGEST):
        raise BadSetting(
            f"the levels of a scale must be finite, at most {LARGEST:g} in magnitude, and increase; "
            f"got {shown}"
        )
    return array.copy()


def check_scale(scale: object) -> None:
    """Refuse anything but a `Scale`, or None."""
    if not isinstance(scale, Scale | None):
        raise BadSetting(f"scale must be a Scale, such as Scale([1, 2, 3]); got {scale!r}")


def _check_interval(low: Any, high: Any) -> tuple[float, float]:
    # numpy's durations pass for whole numbers
    are_numbers = all(
        isinstance(end, Real) and not isinstance(end, np.timedelta64) for end in (low, high)
    )
    if not (are_numbers and abs(low) <= LARGEST and abs(high) <= LARGEST and low < high):
        raise BadSetting(
            "a scale takes levels=[...], or numbers low < high, both finite and at most "
            f"{LARGEST:g} in magnitude; got {show_value(low)} and {show_value(high)}"
        )
    return float(low), float(high)


# A rule that turns values into inputs of a branch; missing entries are 0 under every rule.
Encoding = Callable[[Scale, npt.ArrayLike], FloatArray]

# "scaled" is the paper's footnote 1: a missing entry looks like the middle of the scale, which
# favours new rows. "raw" is what the authors' code does: the branch can see which entries exist,
# which favours known rows.
ENCODINGS: dict[str, Encoding] = {
    "scaled": Scale.to_unit,
    "raw": lambda _, values: np.asarray(values, dtype=np.float64),
}
