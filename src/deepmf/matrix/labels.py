"""Labels of rows and columns: distinct ids of one type, looked up by position and by label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, UnknownLabel
from deepmf.matrix.arrays import IndexArray

# Integer labels are looked up in a table unless their range is more than this many times their number.
_TABLE_SPREAD = 8

# When labels are joined repeatedly, each part is at least this many times as long as the next.
_PART_GROWTH = 8

ENCODING = ("utf-8", "surrogatepass")  # lone surrogates come from odd file names and are kept


class Labelled(NamedTuple):
    """The labels of an axis, and the position of each given item among them."""

    labels: Labels
    positions: IndexArray


class Labels(Sequence[Any]):
    """Distinct labels of one kind (all ints, all strings, all of one other hashable type), in a fixed order.

    `array` is int64 for ints, otherwise an array of Python objects. Labels 0, 1, 2, ... take no memory until `array` is
    used.

    >>> movies = Labels(["Alien", "Big", "Cube"], axis="column")
    >>> movies.positions(["Cube", "Alien"])
    array([2, 0])
    >>> movies[1], len(movies), "Big" in movies
    ('Big', 3, True)
    """

    def __init__(self, labels: Iterable[Any], *, axis: str) -> None:
        array = build_label_array(labels, axis=axis)
        self._set(array.copy() if array is labels else array, axis)
        n_distinct = np.unique(array).size if array.dtype.kind == "i" else len(self._index)
        if n_distinct < array.size:
            raise BadEntries(f"{axis} labels must differ; {array.size - n_distinct} of {array.size} are repeats")

    def _set(self, labels: npt.NDArray[Any] | range, axis: str) -> None:
        if isinstance(labels, np.ndarray):
            labels.flags.writeable = False
        self._labels = labels
        self.axis = axis

    @cached_property
    def array(self) -> npt.NDArray[Any]:
        """All labels in order, read-only."""
        if isinstance(self._labels, np.ndarray):
            return self._labels
        numbers = np.arange(len(self._labels), dtype=np.int64)
        numbers.flags.writeable = False
        return numbers

    @classmethod
    def gather(cls, items: Iterable[Any], *, axis: str) -> Labelled:
        """Return the distinct labels among `items`, and the position of each item.

        Labels are sorted; labels without an order keep the order of their first appearance.
        """
        array = build_label_array(items, axis=axis)
        if array.dtype.kind == "i":
            distinct, positions = gather_integers(array)
        else:
            distinct, positions = gather_objects(array)
        labels = cls.__new__(cls)
        labels._set(distinct, axis)
        return Labelled(labels, positions)

    @classmethod
    def from_range(cls, count: int, *, axis: str) -> Labels:
        """Return the labels 0, 1, 2, ..., without an array."""
        labels = cls.__new__(cls)
        labels._set(range(count), axis)
        return labels

    @classmethod
    def from_distinct(cls, array: npt.NDArray[Any], *, axis: str) -> Labels:
        """Return labels from distinct ints or floats, without a check; an array of ints is not copied."""
        labels = Labels.__new__(Labels)
        labels._set(array if array.dtype.kind == "i" else array.astype(object), axis)
        return labels

    def positions(self, items: Iterable[Any]) -> IndexArray:
        """Return the position of each item; an unknown item raises `UnknownLabel`."""
        array = build_label_array(items, axis=self.axis)
        positions = self.find(array)
        unknown = positions < 0
        if np.any(unknown):
            raise self.build_unknown_error(np.extract(unknown, array))
        return positions

    def build_unknown_error(self, labels: npt.NDArray[Any], *others: str) -> UnknownLabel:
        """Return an error that names the first unknown label and counts the others."""
        n_more = count_distinct(labels) - 1
        more = " and ".join([f"{n_more} more"] * (n_more > 0) + list(others))
        message = f"{self.axis} {labels.tolist()[0]!r} is not known{f' (and {more})' if more else ''}"
        return UnknownLabel(f"{message}; there are {self._summarise()}")

    def check_kind(self, array: npt.NDArray[Any]) -> None:
        """Raise an error if labels have another type than these."""
        if len(self) and array.size and _name_kind(array) != _name_kind(self[:1]):
            raise BadEntries(
                f"{self.axis} labels are {_name_kind(self[:1])}; got {_name_kind(array)}, such as {array.tolist()[0]!r}"
            )

    def find_distinct(self, items: Iterable[Any]) -> IndexArray:
        """Return the positions of the distinct items, in the order of their first appearance."""
        positions = self.positions(items)
        return positions[np.sort(np.unique(positions, return_index=True)[1])]

    def find(self, items: Iterable[Any]) -> IndexArray:
        """Return the position of each item, -1 if it is unknown."""
        array = build_label_array(items, axis=self.axis)
        if len(self) == 0 or array.size == 0 or array.dtype != self._dtype:
            return np.full(array.size, -1, dtype=np.int64)
        if array.dtype.kind == "i":
            return self._find_integers(array)
        return np.fromiter(map(self._index.get, array, repeat(-1)), dtype=np.int64, count=array.size)

    def _find_integers(self, array: npt.NDArray[np.int64]) -> IndexArray:
        if isinstance(self._labels, range):
            return np.where((array >= 0) & (array < len(self)), array, -1)
        return self._integers.find(array)

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> Labels:
        """Return the labels at some positions."""
        labels = Labels.__new__(Labels)
        labels._set(self[positions], self.axis)
        return labels

    def join(self, other: Labels) -> Labels:
        """Return these labels followed by the labels of `other` that are not among them."""
        if self.is_numbered and other.is_numbered:
            return max(self, other, key=len)
        fresh = other.array[self.find(other.array) < 0]
        if fresh.size == 0:
            return self
        if len(self) and _name_kind(fresh) != _name_kind(self[:1]):
            raise BadEntries(
                f"{self.axis} labels are of one kind; got {_name_kind(fresh)} beside {_name_kind(self[:1])}, "
                f"such as {fresh.tolist()[0]!r}"
            )
        return self._append(fresh)

    def extend_to(self, longer: Labels) -> Labels:
        """Return these labels followed by the rest of a longer list that begins with them."""
        return self if len(longer) == len(self) else self._append(longer[len(self) :])

    def _append(self, fresh: npt.NDArray[Any]) -> Labels:
        """Return these labels followed by new ones, without copying these."""
        rest = Labels.__new__(Labels)
        rest._set(fresh, self.axis)
        return JoinedLabels(self, rest) if len(self) else rest

    @property
    def is_numbered(self) -> bool:
        """Whether the labels are 0, 1, 2, ... without an array."""
        return isinstance(vars(self).get("_labels"), range)

    @property
    def nbytes(self) -> int:
        """Bytes of the array, without the objects that it points to."""
        return int(self.array.nbytes) if "array" in vars(self) or isinstance(self._labels, np.ndarray) else 0

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64) if isinstance(self._labels, range) else self._labels.dtype

    @cached_property
    def _integers(self) -> IntegerIndex:
        return IntegerIndex(self.array)

    @cached_property
    def _index(self) -> dict[Any, int]:
        return dict(zip(self.array.tolist(), range(len(self.array)), strict=True))

    def _summarise(self) -> str:
        shown = ", ".join(repr(label) for label in self[:3].tolist())
        return f"{len(self)} {self.axis}s: {shown}{', ...' if len(self) > 3 else ''}"

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(self._labels, range):
            return _take_numbers(self._labels, position)
        return self._labels[position]

    def __contains__(self, item: object) -> bool:
        return bool(self.find([item])[0] >= 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        if self.is_numbered and other.is_numbered:
            return len(self) == len(other)
        return self is other or (self._dtype == other._dtype and np.array_equal(self.array, other.array))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Labels({self._summarise()})"


class JoinedLabels(Labels):
    """Labels followed by others; both keep their arrays and indexes."""

    def __init__(self, first: Labels, rest: Labels) -> None:
        self._first, self._rest = first, rest
        self.axis = first.axis

    @cached_property
    def array(self) -> npt.NDArray[Any]:
        """All labels in order, read-only."""
        array = np.concatenate([self._first.array, self._rest.array])
        array.flags.writeable = False
        return array

    def find(self, items: Iterable[Any]) -> IndexArray:
        """Return the position of each item, -1 if it is unknown."""
        array = build_label_array(items, axis=self.axis)
        positions = self._first.find(array)
        unknown = np.flatnonzero(positions < 0)
        if unknown.size:
            behind = self._rest.find(array[unknown])
            positions[unknown] = np.where(behind < 0, -1, behind + len(self._first))
        return positions

    def _append(self, fresh: npt.NDArray[Any]) -> Labels:
        # Parts grow geometrically from the last to the first, so there are few parts and copies are rare.
        first: Labels = self
        while isinstance(first, JoinedLabels) and len(first._rest) < _PART_GROWTH * fresh.size:
            fresh = np.concatenate([first._rest.array, fresh])
            first = first._first
        rest = Labels.__new__(Labels)
        rest._set(fresh, self.axis)
        return JoinedLabels(first, rest)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        own = int(self.array.nbytes) if "array" in vars(self) else 0
        return own + self._first.nbytes + self._rest.nbytes

    @property
    def _labels(self) -> npt.NDArray[Any]:  # type: ignore[override]
        return self.array

    @property
    def _dtype(self) -> np.dtype[Any]:
        return self._rest._dtype

    def __len__(self) -> int:
        return len(self._first) + len(self._rest)

    def __getitem__(self, position: Any) -> Any:
        n_first = len(self._first)
        if isinstance(position, slice):
            start, stop, step = position.indices(len(self))
            if step == 1 and stop <= n_first:
                return self._first[start:stop]
            return self.array[position]
        positions = np.asarray(position)
        if positions.dtype == bool or positions.size == 0 or positions.min() < 0:
            return self.array[position]
        if positions.max() < n_first:
            return self._first[position]
        if positions.min() >= n_first:
            return self._rest[position - n_first]
        taken = np.empty(positions.shape, dtype=self._dtype)
        inside = positions < n_first
        taken[inside], taken[~inside] = self._first[positions[inside]], self._rest[positions[~inside] - n_first]
        return taken


# Arrays of labels


def build_label_array(items: Iterable[Any], *, axis: str) -> npt.NDArray[Any]:
    """Return labels as an array of int64 or of objects; nulls and labels of several types raise an error."""
    if isinstance(items, Labels):
        return items.array
    if isinstance(items, str | bytes):
        raise BadEntries(f"{axis}s must be a list of labels; got the single label {items!r}")
    if not isinstance(items, Iterable):
        raise BadEntries(f"{axis}s must be a list of labels; got {items!r}")
    array = items if isinstance(items, np.ndarray) else _from_iterable(items)
    if array.ndim != 1:
        raise BadEntries(f"{axis} labels must be one-dimensional; got shape {array.shape}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise BadEntries(
            f"{axis} labels must fit in 64 bits with a sign; give larger ids, such as {array.max()}, as strings"
        )
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind in "mM":
        array = array.astype(f"{array.dtype.kind}8[us]")  # the precision of Python's dates and times
    if array.dtype.kind != "O":
        array = array.astype(object)  # str, float, datetime of Python
    return _check_objects(array, axis=axis)


def _from_iterable(items: Iterable[Any]) -> npt.NDArray[Any]:
    if isinstance(items, range):
        return np.arange(items.start, items.stop, items.step, dtype=np.int64)
    sequence = items if isinstance(items, Sequence) else list(items)
    return np.fromiter(sequence, dtype=object, count=len(sequence))


def _check_objects(array: npt.NDArray[Any], *, axis: str) -> npt.NDArray[Any]:
    kinds = set(map(type, array))
    if any(issubclass(kind, np.generic) for kind in kinds):
        plain = (item.item() if isinstance(item, np.generic) else item for item in array)
        return _check_objects(np.fromiter(plain, dtype=object, count=array.size), axis=axis)
    if kinds & {type(None), float, Decimal}:
        where = next((i for i, item in enumerate(array) if _is_missing(item)), None)
        if where is not None:
            raise BadEntries(f"the {axis} id is missing ({array[where]})", position=where)
    if len(kinds) > 1:
        firsts = [next(item for item in array if type(item) is kind) for kind in kinds]
        shown = " and ".join(sorted(f"{type(item).__name__} {item!r}" for item in firsts))
        raise BadEntries(f"{axis} labels must be of one kind; got {shown}")
    if kinds == {int}:
        try:
            return array.astype(np.int64)
        except OverflowError as error:
            raise BadEntries(f"{axis} labels must fit in 64 bits; give larger ids as strings") from error
    for kind in kinds:
        if kind.__hash__ is None:
            raise BadEntries(f"{axis} labels must be hashable; {kind.__name__} is not, such as {array[0]!r}")
    return array


def _is_missing(item: Any) -> bool:
    return item is None or (item.is_nan() if isinstance(item, Decimal) else bool(item != item))


def count_distinct(labels: npt.NDArray[Any]) -> int:
    """Return the number of different labels."""
    return len(set(labels.tolist()))


def _name_kind(array: npt.NDArray[Any]) -> str:
    """Return the type of at least one label as a plural, for messages."""
    return "ints" if array.dtype.kind == "i" else f"{type(array[0]).__name__}s"


def _take_numbers(numbers: range, position: Any) -> Any:
    """Index a range like an array: by a position, a slice, an array of positions or a mask."""
    if isinstance(position, slice):
        part = numbers[position]
        return np.arange(part.start, part.stop, part.step, dtype=np.int64)
    positions = np.asarray(position)
    if positions.dtype == bool:
        positions = np.flatnonzero(positions)
    if positions.size and not -len(numbers) <= positions.min() <= positions.max() < len(numbers):
        raise IndexError(f"there are {len(numbers)} labels; got a position from {positions.min()} to {positions.max()}")
    return np.where(positions < 0, positions + len(numbers), positions).astype(np.int64)[()]


# Looking up and numbering


class IntegerIndex:
    """Finds integers among distinct ones, by a table or, if their range is large, by binary search.

    >>> IntegerIndex(np.array([4, 2, 9])).find(np.array([9, 3, 4]))
    array([ 2, -1,  0])
    """

    def __init__(self, labels: IndexArray) -> None:
        self._labels = labels
        self._low, self._high = int(labels.min()), int(labels.max())

    def find(self, items: IndexArray) -> IndexArray:
        """Return the position of each item, -1 if it is unknown."""
        if _is_spread(self._low, self._high, self._labels.size):
            near = np.minimum(np.searchsorted(self._sorted_labels, items), self._labels.size - 1)
            positions = self._order[near]
            return np.where(self._labels[positions] == items, positions, -1)
        inside = (items >= self._low) & (items <= self._high)
        return np.where(inside, self._table[np.where(inside, items - self._low, 0)], -1)

    @cached_property
    def _table(self) -> IndexArray:
        """Position of each integer from the lowest label to the highest, -1 if it is no label."""
        table = np.full(self._high - self._low + 1, -1, dtype=np.int64)
        table[self._labels - self._low] = np.arange(self._labels.size)
        return table

    @cached_property
    def _order(self) -> IndexArray:
        return np.argsort(self._labels, kind="stable")

    @cached_property
    def _sorted_labels(self) -> IndexArray:
        ordered: IndexArray = self._labels[self._order]
        return ordered


def gather_integers(array: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the distinct integers in increasing order, and the position of each given integer."""
    if array.size == 0:
        return array.copy(), array.copy()
    low, high = int(array.min()), int(array.max())
    if _is_spread(low, high, array.size):
        distinct, positions = np.unique(array, return_inverse=True)
        return distinct, positions
    offsets = array - low if low else array
    seen = np.zeros(high - low + 1, dtype=bool)
    seen[offsets] = True
    # 32-bit positions halve the memory traffic of every later pass over the entries.
    position_of = np.cumsum(seen, dtype=np.int64) - 1
    if seen.size < 2**31:
        position_of = position_of.astype(np.int32)
    return np.flatnonzero(seen) + low, position_of[offsets]


def gather_objects(array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IndexArray]:
    """Return the distinct objects, sorted if they have an order, and the position of each given object."""
    items = array.tolist()
    distinct = list(dict.fromkeys(items))
    with suppress(TypeError):  # labels without an order
        distinct.sort()
    index = dict(zip(distinct, range(len(distinct)), strict=True))
    labels = np.fromiter(distinct, dtype=object, count=len(distinct))
    return labels, np.fromiter(map(index.__getitem__, items), dtype=np.int64, count=len(items))


def _is_spread(low: int, high: int, count: int) -> bool:
    """Whether a table from the lowest to the highest integer would be much longer than their number."""
    return high - low > _TABLE_SPREAD * count + 1024


# Labels in files


class TextKind(NamedTuple):
    """A type of label that is stored as text, with the functions that write and read it."""

    type: type
    write: Callable[[Any], str]
    read: Callable[[str], Any]

    def label(self, text: str) -> Any:
        """Return the label of a text; a text that `write` would not produce raises `ValueError`."""
        try:
            label = self.read(text)
        except (ValueError, LookupError, ArithmeticError) as error:  # ArithmeticError: from decimals
            raise ValueError(f"{text!r} is no {self.type.__name__}") from error
        if self.write(label) != text:
            raise ValueError(f"{text!r} is no {self.type.__name__}")
        return label


AS_TEXT = {
    kind.type.__name__: kind
    for kind in (
        TextKind(str, str, str),
        TextKind(bool, str, {"False": False, "True": True}.__getitem__),
        TextKind(bytes, lambda label: label.decode("latin-1"), lambda text: text.encode("latin-1")),
        TextKind(date, date.isoformat, date.fromisoformat),
        TextKind(datetime, datetime.isoformat, datetime.fromisoformat),
        TextKind(Decimal, str, Decimal),
        TextKind(UUID, str, UUID),
    )
}


def find_stored_kind(labels: Labels) -> str:
    """Return the name of the labels' type in files; raise an error if it cannot be stored."""
    some = labels[:1]
    if some.dtype.kind == "i":
        return "int"
    found = type(some[0]) if len(labels) else str
    if found is datetime and any(type(label.tzinfo) not in (type(None), timezone) for label in labels.array):
        raise BadSetting(
            f"{labels.axis} labels with a named time zone cannot be saved, such as {some[0]!r}; "
            "use times in UTC, or strings"
        )
    known = {float: "float"} | {kind.type: name for name, kind in AS_TEXT.items()}
    if found not in known:
        raise BadSetting(
            f"{labels.axis} labels of type {found.__name__} cannot be saved, such as {some[0]!r}; use ints or strings"
        )
    return known[found]
