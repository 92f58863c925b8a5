"""Labels of rows and columns: distinct ids of one type, looked up by position and by label; in
files as text."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, UnknownLabel, UnreadableFile, show_value
from deepmf.matrix.arrays import Array, IndexArray, check_years


class Labelled(NamedTuple):
    """The labels of an axis, and the position of each given item among them."""

    labels: Labels
    positions: IndexArray


class Labels(Sequence[Any]):
    """Distinct labels of one kind (all ints, all strings, all of one other hashable type), in a
    fixed order.

    `array` holds all labels in order, read-only: int64 for ints, otherwise Python objects.

    >>> movies = Labels(["Alien", "Big", "Cube"], axis="column")
    >>> movies.positions(["Cube", "Alien"])
    array([2, 0])
    >>> movies[1], len(movies), "Big" in movies
    ('Big', 3, True)
    """

    array: Array

    def __init__(self, labels: Iterable[Any], *, axis: str) -> None:
        array = build_label_array(labels, axis=axis)
        self._set(array.copy() if array is labels else array, axis)
        n_distinct = np.unique(array).size if array.dtype.kind == "i" else len(self._index)
        if n_distinct < array.size:
            twice = Counter(array.tolist()).most_common(1)[0][0]
            raise BadEntries(
                f"{axis} labels must differ; {array.size - n_distinct} of {array.size} are repeats, such as {twice!r}"
            )

    @classmethod
    def of(cls, labels: Iterable[Any], *, axis: str) -> Labels:
        """Return labels as they are, or build them from items."""
        return labels if isinstance(labels, Labels) else Labels(labels, axis=axis)

    def _set(self, array: Array, axis: str) -> None:
        array.flags.writeable = False
        self.array = array
        self.axis = axis

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
        return Labelled(Labels.from_distinct(distinct, axis=axis), positions)

    @classmethod
    def from_distinct(cls, array: Array, *, axis: str) -> Labels:
        """Return labels from distinct ints or objects, without a check; an array of ints is not
        copied."""
        labels = Labels.__new__(Labels)
        labels._set(array if array.dtype.kind == "i" else array.astype(object, copy=False), axis)
        return labels

    def positions(self, items: Iterable[Any]) -> IndexArray:
        """Return the position of each item; an unknown item raises `UnknownLabel`."""
        array = build_label_array(items, axis=self.axis)
        positions = self.find(array)
        unknown = positions < 0
        if np.any(unknown):
            raise self.build_unknown_error(np.extract(unknown, array))
        return positions

    def build_unknown_error(self, labels: Array, *others: str) -> UnknownLabel:
        """Return an error that names the first unknown label and counts the others."""
        n_more = count_distinct(labels) - 1
        more = " and ".join([f"{n_more} more"] * (n_more > 0) + list(others))
        message = (
            f"{self.axis} {labels.tolist()[0]!r} is not known{f' (and {more})' if more else ''}"
        )
        return UnknownLabel(f"{message}; there are {self._summarise()}")

    def check_kind(self, array: Array) -> None:
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
        if len(self) == 0 or array.size == 0 or array.dtype != self.array.dtype:
            return np.full(array.size, -1, dtype=np.int64)
        if array.dtype.kind != "i":
            return np.fromiter(
                map(self._index.get, array, repeat(-1)), dtype=np.int64, count=array.size
            )
        near = np.searchsorted(self.array, array, sorter=self._order)
        places = self._order[np.minimum(near, len(self) - 1)]
        return np.where(self.array[places] == array, places, -1)

    def take(self, positions: IndexArray) -> Labels:
        """Return the labels at some positions."""
        return Labels.from_distinct(self[positions], axis=self.axis)

    def join(self, other: Labels) -> Labels:
        """Return these labels followed by the labels of `other` that are not among them."""
        fresh = other.array[self.find(other.array) < 0]
        if fresh.size == 0:
            return self
        self.check_kind(fresh)
        return self._append(fresh)

    def extend_to(self, longer: Labels) -> Labels:
        """Return these labels followed by the rest of a longer list that begins with them."""
        return self if len(longer) == len(self) else self._append(longer[len(self) :])

    def _append(self, fresh: Array) -> Labels:
        """Return these labels followed by new ones, without copying these."""
        later = Labels.from_distinct(fresh, axis=self.axis)
        return JoinedLabels(self, later) if len(self) else later

    @cached_property
    def _order(self) -> IndexArray:
        """The places of integer labels, by increasing label."""
        return np.argsort(self.array, kind="stable")

    @cached_property
    def _index(self) -> dict[Any, int]:
        return dict(zip(self.array.tolist(), range(len(self.array)), strict=True))

    def _summarise(self) -> str:
        shown = ", ".join(repr(label) for label in self[:3].tolist())
        return f"{len(self)} {self.axis}s: {shown}{', ...' if len(self) > 3 else ''}"

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, position: Any) -> Any:
        return self.array[position]

    def __contains__(self, item: object) -> bool:
        return bool(self.find([item])[0] >= 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and (
            self is other
            or (self.array.dtype == other.array.dtype and np.array_equal(self.array, other.array))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Labels({self._summarise()})"


class JoinedLabels(Labels):
    """Labels followed by others; both keep their arrays and indexes."""

    def __init__(self, first: Labels, rest: Labels) -> None:
        self._first = first
        self._rest = rest
        self.axis = first.axis

    @cached_property
    def array(self) -> Array:  # type: ignore[override]
        """All labels in order, read-only."""
        array = np.concatenate([self._first.array, self._rest.array])
        array.flags.writeable = False
        return array

    def find(self, items: Iterable[Any]) -> IndexArray:
        array = build_label_array(items, axis=self.axis)
        positions = self._first.find(array)
        unknown = np.flatnonzero(positions < 0)
        if unknown.size:
            behind = self._rest.find(array[unknown])
            positions[unknown] = np.where(behind < 0, -1, behind + len(self._first))
        return positions

    def _append(self, fresh: Array) -> Labels:
        # Each part is at least 8 times as long as the next, so there are few parts and copies are
        # rare.
        first: Labels = self
        while isinstance(first, JoinedLabels) and len(first._rest) < 8 * fresh.size:
            fresh = np.concatenate([first._rest.array, fresh])
            first = first._first
        return JoinedLabels(first, Labels.from_distinct(fresh, axis=self.axis))

    def __len__(self) -> int:
        return len(self._first) + len(self._rest)

    def __getitem__(self, position: Any) -> Any:
        n_first = len(self._first)
        positions = (
            np.arange(*position.indices(len(self)))
            if isinstance(position, slice)
            else np.asarray(position)
        )
        if positions.dtype == bool or np.any(positions < 0):
            return self.array[position]
        inside = positions < n_first
        labels = np.empty(positions.shape, dtype=self._rest.array.dtype)
        labels[inside], labels[~inside] = (
            self._first[positions[inside]],
            self._rest[positions[~inside] - n_first],
        )
        return labels[()]


# Arrays of labels


def build_label_array(items: Iterable[Any], *, axis: str) -> Array:
    """Return labels as an array of int64 or of objects; nulls and labels of several types raise an
    error."""
    if isinstance(items, Labels):
        return items.array
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise BadEntries(
            f"{axis}s must be a list of labels, not a single one; got {show_value(items)}"
        )
    if isinstance(items, range):
        return np.arange(items.start, items.stop, items.step, dtype=np.int64)
    if not isinstance(items, np.ndarray):
        sequence = items if isinstance(items, Sequence) else list(items)
        items = np.fromiter(sequence, dtype=object, count=len(sequence))
    array = items
    if array.ndim != 1:
        raise BadEntries(f"{axis} labels must be one-dimensional; got shape {array.shape}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise BadEntries(
            f"{axis} labels must fit in 64 bits with a sign; give larger ids, such as {array.max()}, as strings"
        )
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind in "mM":
        array = _round_moments(array, axis)
    if array.dtype.kind != "O":
        array = array.astype(object)  # str, float, datetime of Python
    return _check_objects(array, axis=axis)


def _round_moments(moments: Array, axis: str) -> Array:
    """Return dates, times or durations in microseconds, the precision of Python."""
    if moments.dtype.kind == "M":
        check_years(moments, f"{axis} label")
        return moments.astype("datetime64[us]")
    unit = np.datetime_data(moments.dtype)[0]
    is_gap = np.isnat(moments)
    # a duration in months or years has no length
    if unit in ("Y", "M") or np.any(
        np.abs(moments[~is_gap]).astype("m8[D]") > np.timedelta64(timedelta.max.days, "D")
    ):
        raise BadEntries(f"{axis} labels of type {moments.dtype} are no durations of Python")
    return moments.astype("timedelta64[us]")


def _check_objects(array: Array, *, axis: str) -> Array:
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
            raise BadEntries(
                f"{axis} labels must fit in 64 bits; give larger ids as strings"
            ) from error
    for kind in kinds:
        if kind.__hash__ is None:
            raise BadEntries(
                f"{axis} labels must be hashable; {kind.__name__} is not, such as {array[0]!r}"
            )
    return array


def _is_missing(item: Any) -> bool:
    return item is None or (item.is_nan() if isinstance(item, Decimal) else bool(item != item))


def count_distinct(labels: Array) -> int:
    """Return the number of different labels."""
    return len(set(labels.tolist()))


def _name_kind(array: Array) -> str:
    """Return the type of at least one label as a plural, for messages."""
    return "ints" if array.dtype.kind == "i" else f"{type(array[0]).__name__}s"


# Numbering


def gather_integers(array: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the distinct integers in increasing order, and the position of each given integer."""
    if array.size == 0:
        return array.copy(), array.copy()
    low = int(array.min())
    high = int(array.max())
    if high - low > 8 * array.size + 1024:  # a table of the range would be large
        distinct, positions = np.unique(array, return_inverse=True)
        return distinct, positions
    offsets = array - low
    is_used = np.zeros(high - low + 1, dtype=bool)
    is_used[offsets] = True
    # 32-bit positions halve the memory traffic of every later pass over the entries.
    position_of = np.cumsum(is_used, dtype=np.int64) - 1
    if is_used.size < 2**31:
        position_of = position_of.astype(np.int32)
    return np.flatnonzero(is_used) + low, position_of[offsets]


def gather_objects(array: Array) -> tuple[Array, IndexArray]:
    """Return the distinct objects, sorted if they have an order, and the position of each given
    object."""
    items = array.tolist()
    distinct = list(dict.fromkeys(items))
    with suppress(TypeError):  # labels without an order
        distinct.sort()
    index = dict(zip(distinct, range(len(distinct)), strict=True))
    labels = np.fromiter(distinct, dtype=object, count=len(distinct))
    return labels, np.fromiter(map(index.__getitem__, items), dtype=np.int64, count=len(items))


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
        except (ValueError, LookupError, ArithmeticError) as error:
            # ArithmeticError: from decimals
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
    first = labels[:1]
    if first.dtype.kind == "i":
        return "int"
    label_type = type(first[0]) if len(labels) else str
    if label_type is datetime and any(
        type(label.tzinfo) not in (type(None), timezone) for label in labels.array
    ):
        raise BadSetting(
            f"{labels.axis} labels with a named time zone cannot be saved, such as {first[0]!r}; "
            "use times in UTC, or strings"
        )
    type_names = {float: "float"} | {kind.type: name for name, kind in AS_TEXT.items()}
    if label_type not in type_names:
        raise BadSetting(
            f"{labels.axis} labels of type {label_type.__name__} cannot be saved, such as "
            f"{first[0]!r}; use ints or strings"
        )
    return type_names[label_type]


# With more than this many labels per lookup, labels are decoded one by one.
_FEW = 64


class TextLabels(Labels):
    """Labels as one text and the start of each label in it.

    Parameters
    ----------
    text : UTF-8, (bytes,).
    starts : first byte of each label, (labels + 1,).
    kind : a name in `AS_TEXT`.
    is_sorted : whether the labels increase.
    axis : "row" or "column".

    >>> films = TextLabels.from_labels(Labels(["Alien", "Big"], axis="column"), "str")
    >>> films[1], films.positions(["Alien"])
    ('Big', array([0]))
    """

    def __init__(
        self,
        text: npt.NDArray[np.uint8],
        starts: IndexArray,
        *,
        kind: str,
        is_sorted: bool,
        axis: str,
    ) -> None:
        self.text = text
        self.starts = starts
        self.kind = kind
        self.is_sorted = is_sorted
        self.axis = axis

    @classmethod
    def from_labels(cls, labels: Labels, kind: str) -> TextLabels:
        """Return labels of a kind in `AS_TEXT` as text."""
        if isinstance(labels, TextLabels):
            return labels
        return cls.encode(labels.array.tolist(), kind=kind, axis=labels.axis)

    @classmethod
    def encode(cls, labels: list[Any], *, kind: str, axis: str) -> TextLabels:
        """Return labels, which may repeat, as text."""
        try:
            items = [AS_TEXT[kind].write(label).encode() for label in labels]
        except UnicodeEncodeError as error:
            raise BadSetting(
                f"the {axis} text {error.object[:20]!r} holds half of a surrogate pair, which no file can hold"
            ) from error
        lengths = np.fromiter(map(len, items), dtype=np.int64, count=len(items))
        starts = np.append(0, np.cumsum(lengths))
        text = np.frombuffer(b"".join(items), dtype=np.uint8)
        return cls(
            text,
            starts,
            kind=kind,
            is_sorted=is_increasing(np.array(labels, dtype=object)),
            axis=axis,
        )

    @cached_property
    def array(self) -> Array:  # type: ignore[override]
        """All labels in order, read-only."""
        array = self._decode(range(len(self)))
        array.flags.writeable = False
        return array

    def find(self, items: Iterable[Any]) -> IndexArray:
        array = build_label_array(items, axis=self.axis)
        if not self.is_sorted or "_index" in vars(self) or _FEW * array.size > len(self):
            return super().find(array)
        return np.fromiter(map(self._search, array), dtype=np.int64, count=array.size)

    def _search(self, item: Any) -> int:
        if type(item) is not AS_TEXT[self.kind].type:
            return -1
        wanted: Any = item
        at = bisect_left(range(len(self)), wanted, key=self._decode_one)
        return at if at < len(self) and self._decode_one(at) == item else -1

    def _decode_one(self, at: int) -> Any:
        try:
            text = self.text[self.starts[at] : self.starts[at + 1]].tobytes().decode()
            return text if self.kind == "str" else AS_TEXT[self.kind].label(text)
        except ValueError as error:  # only in a damaged file
            raise UnreadableFile(
                f"{self.axis} {at} has a label that cannot be read ({error})"
            ) from error

    def _decode(self, positions: Iterable[int]) -> Array:
        labels = [self._decode_one(at) for at in positions]
        return np.fromiter(labels, dtype=object, count=len(labels))

    def __len__(self) -> int:
        return int(self.starts.size) - 1

    def __getitem__(self, position: Any) -> Any:
        positions = (
            np.arange(*position.indices(len(self)))
            if isinstance(position, slice)
            else np.asarray(position)
        )
        if (
            "array" in vars(self)
            or positions.dtype == bool
            or positions.size > max(1, len(self) // _FEW)
        ):
            return self.array[position]
        positions = np.where(positions < 0, positions + len(self), positions)
        return self._decode(positions.ravel().tolist()).reshape(positions.shape)[()]


def is_increasing(labels: Array) -> bool:
    """Whether labels increase; labels without an order do not."""
    try:
        return bool(np.all(labels[1:] > labels[:-1]))
    except TypeError:
        return False
