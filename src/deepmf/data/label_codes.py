"""Labels that are read some at a time: numbered in order of appearance, sorted once all are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.data.delimited import parse_ids
from deepmf.errors import BadEntries
from deepmf.files import import_polars
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.labels import Labels, build_label_array
from deepmf.matrix.text_labels import TextLabels, encode_texts

if TYPE_CHECKING:
    import polars as pl


CodeKind = Literal["int", "text", "object"]


MOST_WAITING = 1 << 22  # ints that are collected before they are merged into the distinct ones


class CodedLabels(NamedTuple):
    """Labels as numbers: ints are their own codes, others are numbered in order of appearance."""

    kind: CodeKind
    codes: IndexArray

    def take(self, places: IndexArray) -> CodedLabels:
        """Return the labels at some places, (places,)."""
        return CodedLabels(self.kind, self.codes[places])


class SortedLabels(NamedTuple):
    """All labels of an axis in order, and for each kind of code a function from codes to positions among them."""

    labels: Labels
    positions: dict[CodeKind, Callable[[IndexArray], IndexArray]]

    def find_positions(self, coded: CodedLabels) -> IndexArray:
        """Return the positions of coded labels."""
        return self.positions[coded.kind](coded.codes)


class LabelCodes:
    """Collects the labels of one axis from one file after another.

    Ids of delimited text become ints if all of them are whole numbers, as when a file is read at once. Ints become
    text where other ids are text.
    """

    def __init__(self, axis: str, *, most_waiting: int = MOST_WAITING) -> None:
        self.axis = axis
        self._ints = _Ints(most_waiting)
        self._texts = _Texts()
        self._objects: dict[Any, int] = {}
        self._has_typed_text = False

    def add(self, ids: pl.Series, *, is_typed: bool) -> CodedLabels:
        """Return the codes of some ids; texts may turn out to be ints unless the file makes them text (`is_typed`)."""
        polars = import_polars()
        if ids.dtype in (polars.String, polars.Categorical, polars.Enum):
            self._has_typed_text |= is_typed
            return CodedLabels("text", self._texts.add(ids.cast(polars.String)))
        if ids.dtype.is_integer() and ids.dtype not in (polars.Int128, polars.UInt128):
            return self._encode_array(ids.to_numpy())
        return self._encode_array(build_label_array(ids.to_list(), axis=self.axis))

    def add_labels(self, labels: Labels) -> CodedLabels:
        """Return the codes of all labels of a matrix's axis."""
        array = labels.array
        if array.size and isinstance(array[0], str):
            return self.add(import_polars().Series(array.tolist()), is_typed=True)
        return self._encode_array(array)

    def _encode_array(self, array: npt.NDArray[Any]) -> CodedLabels:
        array = build_label_array(array, axis=self.axis)
        if array.dtype.kind == "i":
            self._ints.add(array)
            return CodedLabels("int", array)
        known = self._objects
        if known and array.size and type(array[0]) is not type(next(iter(known))):
            raise self._build_mixed_error(array[0], next(iter(known)))
        codes = [known.setdefault(label, len(known)) for label in array]
        return CodedLabels("object", np.fromiter(codes, dtype=np.int64, count=len(codes)))

    def sort(self) -> SortedLabels:
        """Sort all labels; labels of two kinds are refused."""
        ints, texts = self._ints.collect(), self._texts.collect()
        if self._objects:
            if ints.size or texts.len():
                other = ints[0].item() if ints.size else texts[0]
                raise self._build_mixed_error(next(iter(self._objects)), other)
            return self._sort_objects()
        if texts.len() == 0:
            return self._sort_ints(ints)
        ids = texts if self._has_typed_text else parse_ids(texts)
        if ids.dtype.is_integer():
            codes = ids.to_numpy()
            labels = self._sort_ints(np.union1d(ints, codes))
            find = labels.positions["int"]
            table = find(codes)
            return labels._replace(positions=labels.positions | {"text": table.__getitem__})
        return self._sort_texts(ints, texts)

    def _sort_ints(self, distinct: npt.NDArray[np.int64]) -> SortedLabels:
        labels = Labels.from_distinct(distinct, axis=self.axis)
        return SortedLabels(labels, {"int": labels.find})

    def _sort_texts(self, ints: npt.NDArray[np.int64], texts: pl.Series) -> SortedLabels:
        polars = import_polars()
        numbers = polars.Series(ints).cast(polars.String)
        every = texts.unique().sort() if ints.size == 0 else polars.concat([texts, numbers]).unique().sort()
        enum = polars.Enum(every)
        of_texts, of_ints = (each.cast(enum).to_physical().to_numpy().astype(np.int64) for each in (texts, numbers))
        labels = _build_text_labels(every, axis=self.axis)
        known = Labels.from_distinct(ints, axis=self.axis)
        return SortedLabels(labels, {"text": of_texts.__getitem__, "int": lambda codes: of_ints[known.find(codes)]})

    def _sort_objects(self) -> SortedLabels:
        gathered = Labels.gather(list(self._objects), axis=self.axis)
        return SortedLabels(gathered.labels, {"object": gathered.positions.__getitem__})

    def _build_mixed_error(self, one: Any, other: Any) -> BadEntries:
        shown = " and ".join(sorted(f"{type(item).__name__} {item!r}" for item in (one, other)))
        return BadEntries(f"{self.axis} labels must be of one kind; got {shown}")


class _Ints:
    """Distinct ints, collected some at a time."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._known = np.empty(0, dtype=np.int64)
        self._waiting: list[npt.NDArray[np.int64]] = []
        self._n_waiting = 0

    def add(self, array: npt.NDArray[np.int64]) -> None:
        if array.size == 0:
            return
        fresh = Labels.gather(array, axis="").labels.array
        if self._known.size:
            near = np.minimum(np.searchsorted(self._known, fresh), self._known.size - 1)
            fresh = fresh[self._known[near] != fresh]
        self._waiting.append(fresh)
        self._n_waiting += fresh.size
        if self._n_waiting > max(self._most_waiting, self._known.size // 4):
            self.collect()

    def collect(self) -> npt.NDArray[np.int64]:
        if self._n_waiting:
            self._known = np.unique(np.concatenate([self._known, *self._waiting]))
            self._waiting, self._n_waiting = [], 0
        return self._known


class _Texts:
    """Distinct texts, numbered as polars numbers categories: no Python string per entry."""

    def __init__(self) -> None:
        self._kept: pl.Series | None = None  # polars keeps categories alive only while a series has them
        self._found: list[pl.DataFrame] = []
        self._n_found = 0

    def add(self, texts: pl.Series) -> IndexArray:
        polars = import_polars()
        if self._kept is None:
            self._kept = polars.Series([], dtype=polars.Categorical(polars.Categories.random()))
        distinct, positions = encode_texts(texts)
        numbered = distinct.cast(self._kept.dtype)
        codes = numbered.to_physical()
        fresh = numbered.filter(codes >= self._n_found)
        if fresh.len():
            self._found.append(polars.DataFrame({"code": fresh.to_physical(), "text": fresh.cast(polars.String)}))
            self._n_found = int(fresh.to_physical().to_numpy().max()) + 1
        found: IndexArray = codes.to_numpy()[positions]
        return found

    def collect(self) -> pl.Series:
        polars = import_polars()
        empty = polars.DataFrame(schema={"code": polars.UInt32, "text": polars.String})
        found: pl.DataFrame = polars.concat([empty, *self._found]).sort("code")
        assert found.height == self._n_found
        return found["text"]


def _build_text_labels(texts: pl.Series, *, axis: str) -> TextLabels:
    """Return sorted texts as labels, without making Python strings."""
    starts = np.zeros(texts.len() + 1, dtype=np.int64)
    np.cumsum(texts.str.len_bytes().to_numpy(), out=starts[1:])
    text = np.frombuffer(texts.str.join("").item().encode(), dtype=np.uint8)
    return TextLabels(text, starts, kind="str", is_sorted=True, axis=axis)
