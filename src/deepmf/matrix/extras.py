"""Times and weights of entries: parsing, checking, and carrying them along with entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, show_value
from deepmf.matrix.arrays import (
    Array,
    BoolArray,
    FloatArray,
    IndexArray,
    ValueArray,
    check_years,
    is_missing,
    to_numbers,
)

TimeArray = npt.NDArray[np.int64]  # Unix seconds, `NO_TIME` for an entry without a date
PlaceArray = npt.NDArray[np.int32]

NO_TIME = int(np.iinfo(np.int64).min)
FIRST_TIME = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
LAST_TIME = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())

# Weights outside this range leave nothing of other entries, or of their own, in sums of floats.
SMALLEST_WEIGHT = 1e-6
LARGEST_WEIGHT = 1e6

# Types of the time column of a table.
TIME_TYPES = ("seconds", "milliseconds", "date", "datetime", "datetime_utc")

DAY = 86400  # seconds


class Extras(NamedTuple):
    """The optional time, weight and place of each entry.

    times: Unix seconds, `NO_TIME` for an entry without a date; None where no entry has a date.
    weights: numbers from `SMALLEST_WEIGHT` to `LARGEST_WEIGHT`; None where all weights are 1.
    places: the order of the entries of a row that have the same time, or no time; None where times
        alone order them.
    """

    times: TimeArray | None = None
    weights: ValueArray | None = None
    places: PlaceArray | None = None

    @property
    def are_absent(self) -> bool:
        """Whether no entry has a date, a place or a weight other than 1."""
        return self.times is None and self.weights is None and self.places is None

    @property
    def are_ordered(self) -> bool:
        """Whether times or places order the entries of a row."""
        return self.times is not None or self.places is not None

    def sort_within(self, groups: IndexArray) -> IndexArray:
        """Return the permutation that sorts entries by their group, then by time and place."""
        return np.lexsort(
            (*(keys for keys in (self.places, self.times) if keys is not None), groups)
        )

    def take(self, which: Any) -> Extras:
        """Return the times and weights of some entries, by places, a slice or a mask."""
        return Extras(*(None if field is None else field[which] for field in self))

    def simplify(self) -> Extras:
        """Return None in place of times without a date and of weights that are all 1."""
        times, weights, places = self
        if times is not None and not np.any(times != NO_TIME):
            times = None
        if weights is not None and not np.any(weights != 1):
            weights = None
        return Extras(times, weights, places)

    def equals(self, other: Extras) -> bool:
        """Whether all times and weights are equal; where there are no times, also all places."""
        mine: Any = self[: 2 + (self.times is None)]
        theirs: Any = other
        return all(map(np.array_equal, mine, theirs))  # also where both are None

    @classmethod
    def join(cls, parts: Sequence[tuple[int, Extras]]) -> Extras:
        """Join the times and weights of several groups of entries, given the number of entries of
        each group."""
        fields: list[Array | None] = [None, None, None]
        for at, empty in enumerate((np.int64(NO_TIME), np.float64(1.0), np.int32(0))):
            if any(part[at] is not None for _, part in parts):
                fields[at] = np.concatenate(
                    [np.full(n, empty) if part[at] is None else part[at] for n, part in parts]
                )
        return cls(*fields)

    def fill_weights(self, n_entries: int) -> ValueArray:
        """Return the weight of each entry, also where all of them are 1."""
        return np.ones(n_entries) if self.weights is None else self.weights

    def merge(
        self,
        values: FloatArray,
        firsts: IndexArray,
        picks: IndexArray | None,
        *,
        counts: bool = False,
    ) -> Extras:
        """Return the time and weight of each run of repeated entries.

        `firsts` is the first place of each run, and `picks` the place of the entry that is kept. If
        there is none, a run has its latest time and its mean weight; a sum of counts has the mean
        weight of its interactions.
        """
        if self.are_absent or picks is not None:
            return self.take(picks)
        times, places = (
            None if keys is None else np.maximum.reduceat(keys, firsts)
            for keys in (self.times, self.places)
        )
        if self.weights is None:
            return Extras(times, places=places)
        amounts = values if counts else np.ones(values.size)
        means = np.add.reduceat(amounts * self.weights, firsts) / np.add.reduceat(amounts, firsts)
        return Extras(times, means, places)

    def decay(self, half_life: float) -> Extras:
        """Return weights that halve with every half-life (seconds) before the latest time, to
        `SMALLEST_WEIGHT`.

        An entry without a date is as old as the earliest one.
        """
        assert self.times is not None
        weights = self.fill_weights(self.times.size).astype(np.float64)
        dated = self.times[self.times != NO_TIME]
        if dated.size:
            filled = np.where(self.times == NO_TIME, dated.min(), self.times)
            ages = dated.max() - filled
            weights = np.maximum(np.exp2(-ages / half_life) * weights, SMALLEST_WEIGHT)
        return self._replace(weights=weights)


PLAIN_EXTRAS = Extras()  # of entries without dates and weights


# Weights


def check_weights(weights: Any, n_entries: int, *, of: str = "entry") -> FloatArray:
    """Return weights as floats; each must be 0, or lie between `SMALLEST_WEIGHT` and
    `LARGEST_WEIGHT`."""
    floats = to_numbers(weights, noun="weight")
    if floats.size != n_entries:
        raise BadEntries(f"there must be one weight per {of}; got {floats.size} for {n_entries}")
    bad = np.flatnonzero((floats != 0) & ~are_weights(floats))
    if bad.size:
        raise BadEntries(
            f"the weight {floats[bad[0]]:g} is not allowed; weights lie between {SMALLEST_WEIGHT:g} and "
            f"{LARGEST_WEIGHT:g}, or are 0 to leave the {of} out",
            position=int(bad[0]),
        )
    return floats


def are_weights(numbers: ValueArray) -> BoolArray:
    """Return whether each number is a legal weight, up to the rounding of means and of single
    precision."""
    return (numbers >= SMALLEST_WEIGHT * (1 - 1e-6)) & (numbers <= LARGEST_WEIGHT * (1 + 1e-6))


# Times


class ParsedTimes(NamedTuple):
    """Unix seconds, and how the times were given: one of `TIME_TYPES`."""

    seconds: TimeArray
    type: str


def parse_times(values: Any, n_entries: int | None = None) -> ParsedTimes:
    """Return times as Unix seconds: from numbers, `datetime64`, dates, datetimes and ISO texts;
    None is no date."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise BadEntries(f"times must be a list of dates; got {show_value(values)}")
    array: Any = values
    if not isinstance(values, np.ndarray):
        items = list(values)
        array = np.fromiter(items, dtype=object, count=len(items))
    if array.ndim != 1 or n_entries not in (None, array.size):
        raise BadEntries(
            f"there must be one time per entry; got shape {array.shape} for {n_entries} entries"
        )
    if array.dtype.kind == "M":
        check_years(array)
        seconds = array.astype("datetime64[s]").astype(np.int64)  # NaT becomes NO_TIME
        return ParsedTimes(
            seconds, "date" if np.datetime_data(array.dtype)[0] == "D" else "datetime"
        )
    if array.dtype.kind in "iuf":
        return _parse_numbers(array)
    return _parse_objects(array.tolist())


def parse_time(value: Any) -> int:
    """Return one time as Unix seconds.

    >>> parse_time("1970-01-02"), parse_time(86400)
    (86400, 86400)
    """
    if value is None:
        raise BadSetting(
            "a time is needed: Unix seconds, a date, a datetime or an ISO text; got None"
        )
    try:
        return int(parse_times([value]).seconds[0])
    except BadEntries as error:
        raise BadSetting(error.message) from error


def format_time(seconds: int) -> str:
    """Return Unix seconds as ISO text in UTC, a date alone at midnight.

    >>> format_time(86400), format_time(86401)
    ('1970-01-02', '1970-01-02T00:00:01Z')
    """
    text = str(np.datetime64(int(seconds), "s"))
    return text.removesuffix("T00:00:00") if text.endswith("T00:00:00") else f"{text}Z"


def _parse_numbers(array: Array) -> ParsedTimes:
    """Return Unix seconds from seconds or milliseconds; the median tells which, since both may lie
    in one column."""
    is_gap = np.isnan(array) | (array == NO_TIME)
    numbers = array[~is_gap].astype(np.float64)
    are_milliseconds = numbers.size > 0 and float(np.median(np.abs(numbers))) > LAST_TIME
    step, unit = (1000, "milliseconds") if are_milliseconds else (1, "seconds")
    seconds = np.full(array.size, NO_TIME)
    seconds[~is_gap] = np.clip(numbers, step * (FIRST_TIME - 1), step * (LAST_TIME + 1)) // step
    check_time_range(seconds, lambda at: f"{array[at]} ({unit})")
    return ParsedTimes(seconds, unit)


def _parse_objects(values: list[Any]) -> ParsedTimes:
    """Return Unix seconds from texts, dates, datetimes and numbers; each distinct one is parsed
    once."""
    try:
        distinct = dict.fromkeys(values)
    except TypeError as error:
        raise BadEntries("times must be Unix times, dates, datetimes or ISO texts") from error
    if all(
        is_missing(value)
        or type(value) in (int, float)
        or isinstance(value, np.integer | np.floating)
        for value in distinct
    ):
        numbers = [np.nan if is_missing(value) else value for value in values]
        return _parse_numbers(to_numbers(numbers, noun="time"))
    parsed: dict[Any, tuple[int, str | None]] = {}
    for value in distinct:
        try:
            parsed[value] = _parse_object(value)
        except (ValueError, OverflowError) as error:
            raise BadEntries(
                f"{show_value(value)} is no date; give Unix seconds, or text such as 2024-05-01 or "
                "2024-05-01T12:30:00Z",
                position=values.index(value),
            ) from error
    kinds = {kind for _, kind in parsed.values() if kind is not None}
    if "datetime_utc" in kinds and len(kinds) > 1:
        bare = next(value for value in values if parsed[value][1] in ("date", "datetime"))
        raise BadEntries(
            f"some times have a time zone, and {bare!r} has none", position=values.index(bare)
        )
    seconds = np.fromiter((parsed[value][0] for value in values), dtype=np.int64, count=len(values))
    check_time_range(seconds, lambda at: repr(values[at]))
    return ParsedTimes(seconds, max(kinds, default="date"))  # the longest of these names


def _parse_object(value: Any) -> tuple[int, str | None]:
    """Return Unix seconds and the type of one time."""
    if is_missing(value):
        return NO_TIME, None
    if isinstance(value, str):
        text = value.strip()
        if len(text) < len("2024-01-01"):  # 2024 and 202405 are numbers, not dates
            raise ValueError(text)
        value = (
            datetime.fromisoformat(text)
            if len(text) > len("2024-01-01")
            else date.fromisoformat(text)
        )
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return _count_seconds(value.replace(tzinfo=UTC)), "datetime"
        return _count_seconds(value), "datetime_utc"
    if isinstance(value, date):
        return _count_seconds(datetime(value.year, value.month, value.day, tzinfo=UTC)), "date"
    if isinstance(value, np.datetime64):
        return int(parse_times(np.array([value])).seconds[0]), "datetime"
    raise ValueError(value)


def _count_seconds(moment: datetime) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * DAY + since.seconds


def check_time_range(seconds: TimeArray, show: Callable[[int], str]) -> None:
    """Refuse times outside the years 1 to 9999; `show` writes the time of an entry."""
    bad = np.flatnonzero((seconds != NO_TIME) & ((seconds < FIRST_TIME) | (seconds > LAST_TIME)))
    if bad.size:
        at = int(bad[0])
        raise BadEntries(f"the time {show(at)} lies outside the years 1 to 9999", position=at)
