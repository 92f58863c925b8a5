"""Labels as one UTF-8 text, in memory or memory-mapped, decoded on access; and fast coding of text columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import UnreadableFile
from deepmf.files import import_polars
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.labels import AS_TEXT, ENCODING, Labels, build_label_array

if TYPE_CHECKING:
    import polars as pl


# Sizes of hash tables in bits: the first fits into a processor cache, later ones fit the hashes that are left.
_FIRST_BITS, _FEWEST_BITS, _MOST_BITS = 18, 10, 22

_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # an odd factor that sends hashes to other slots of the next table


class TextCodes(NamedTuple):
    """Distinct texts in sorted order, and the position of each given text among them."""

    distinct: pl.Series
    positions: IndexArray


def encode_texts(texts: pl.Series) -> TextCodes:
    """Return the distinct texts and the position of each text; there are no nulls.

    Texts are grouped by their hash, then compared with the text of their group. Hashing in polars, a few passes in
    numpy and the comparison take a third of the time of polars' dictionary encoding.
    """
    first_places, codes = _group_hashes(texts.hash().to_numpy())
    some = texts.gather(first_places)
    order = some.arg_sort().to_numpy()
    rank = np.empty(order.size, dtype=codes.dtype)
    rank[order] = np.arange(order.size)
    distinct, positions = some.gather(order), rank[codes]
    if (distinct.gather(positions) == texts).all():
        return TextCodes(distinct, positions)
    return _encode_by_dictionary(texts)  # two texts have the same hash


def _group_hashes(hashes: npt.NDArray[np.uint64]) -> tuple[IndexArray, IndexArray]:
    """Number the distinct hashes; return a place of each distinct hash, and the number of each given hash.

    Every hash writes its place into a slot of a table, and the last one stays. Hashes equal to it are done; the few
    that share its slot go into the next table.
    """
    index: type[np.int32] | type[np.int64] = np.int32 if hashes.size < 2**31 else np.int64
    bits = _FIRST_BITS
    codes: IndexArray = np.empty(hashes.size, dtype=index)
    firsts: list[IndexArray] = []
    rest: IndexArray | None = None  # None: all
    left, n_found = hashes, 0
    while left.size:
        slots = (left >> np.uint64(64 - bits)).astype(np.int32)
        table: IndexArray = np.full(1 << bits, -1, dtype=index)
        table[slots] = np.arange(left.size, dtype=index)
        taken = np.flatnonzero(table >= 0)
        of_slot = np.zeros(1 << bits, dtype=np.uint64)
        of_slot[taken] = left[table[taken]]
        places = table[taken] if rest is None else rest[table[taken]]
        table[taken] = np.arange(n_found, n_found + taken.size)
        firsts.append(places)
        n_found += taken.size
        alike = of_slot[slots] == left
        if rest is None:
            codes = table[slots]
            rest = np.flatnonzero(~alike)
        else:
            codes[rest[alike]] = table[slots[alike]]
            rest = rest[~alike]
        left = left[~alike] * _SPREAD
        bits = int(np.clip(left.size.bit_length(), _FEWEST_BITS, _MOST_BITS))
    return (np.concatenate(firsts) if firsts else np.empty(0, dtype=index)), codes


def _encode_by_dictionary(texts: pl.Series) -> TextCodes:
    polars = import_polars()
    distinct = texts.unique().sort()
    return TextCodes(distinct, texts.cast(polars.Enum(distinct)).to_physical().to_numpy().astype(np.int64))


# With more than this many labels per lookup, binary search is faster than building an index.
_SEARCHED_SHARE = 64


class TextLabels(Labels):
    """Labels as one text and the start of each label in it.

    Parameters
    ----------
    text : UTF-8, (bytes,).
    starts : first byte of each label, (labels + 1,).
    kind : a name in `AS_TEXT`.
    is_sorted : whether the labels increase.
    axis : "row" or "column".

    >>> films = TextLabels.of(Labels(["Alien", "Big"], axis="column"), "str")
    >>> films[1], films.positions(["Alien"])
    ('Big', array([0]))
    """

    def __init__(
        self, text: npt.NDArray[np.uint8], starts: IndexArray, *, kind: str, is_sorted: bool, axis: str
    ) -> None:
        self.text, self.starts, self.kind, self.is_sorted = text, starts, kind, is_sorted
        self.axis = axis

    @classmethod
    def of(cls, labels: Labels, kind: str) -> TextLabels:
        """Return labels of a kind in `AS_TEXT` as text."""
        if isinstance(labels, TextLabels):
            return labels
        return cls.encode(labels.array.tolist(), kind=kind, axis=labels.axis)

    @classmethod
    def encode(cls, labels: list[Any], *, kind: str, axis: str) -> TextLabels:
        """Return labels, which may repeat, as text."""
        items = [AS_TEXT[kind].write(label).encode(*ENCODING) for label in labels]
        starts = np.zeros(len(items) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, items), dtype=np.int64, count=len(items)), out=starts[1:])
        text = np.frombuffer(b"".join(items), dtype=np.uint8)
        return cls(text, starts, kind=kind, is_sorted=is_increasing(np.array(labels, dtype=object)), axis=axis)

    @cached_property
    def array(self) -> npt.NDArray[Any]:
        """All labels in order, read-only."""
        content, starts = self.text.tobytes(), self.starts.tolist()
        labels = [self._parse(content[start:end], at) for at, (start, end) in enumerate(pairwise(starts))]
        array = np.fromiter(labels, dtype=object, count=len(labels))
        array.flags.writeable = False
        return array

    def find(self, items: Iterable[Any]) -> IndexArray:
        """Return the position of each item, -1 if it is unknown."""
        array = build_label_array(items, axis=self.axis)
        if not self.is_sorted or "_index" in vars(self) or _SEARCHED_SHARE * array.size > len(self):
            return super().find(array)
        return np.fromiter(map(self._search, array), dtype=np.int64, count=array.size)

    def _search(self, item: Any) -> int:
        if type(item) is not AS_TEXT[self.kind].type:
            return -1
        wanted: Any = item
        at = bisect_left(range(len(self)), wanted, key=self._decode_one)
        return at if at < len(self) and self._decode_one(at) == item else -1

    def _decode_one(self, at: int) -> Any:
        return self._parse(self.text[self.starts[at] : self.starts[at + 1]].tobytes(), at)

    def _parse(self, content: bytes, at: int) -> Any:
        try:
            text = content.decode(*ENCODING)
            return text if self.kind == "str" else AS_TEXT[self.kind].label(text)
        except ValueError as error:  # only in a damaged file
            raise UnreadableFile(f"{self.axis} {at} has a label that cannot be read ({error})") from error

    def _decode(self, positions: Iterable[int]) -> npt.NDArray[Any]:
        labels = [self._decode_one(at) for at in positions]
        return np.fromiter(labels, dtype=object, count=len(labels))

    @property
    def nbytes(self) -> int:
        """Bytes of the text, its starts, and the array of labels if it was used."""
        own = int(self.array.nbytes) if "array" in vars(self) else 0
        return own + int(self.text.nbytes) + int(self.starts.nbytes)

    @property
    def _labels(self) -> npt.NDArray[Any]:  # type: ignore[override]
        return self.array

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(object)

    def __len__(self) -> int:
        return int(self.starts.size) - 1

    def __getitem__(self, position: Any) -> Any:
        if "array" in vars(self):
            return self.array[position]
        if isinstance(position, slice):
            return self._decode(range(*position.indices(len(self))))
        positions = np.asarray(position)
        if positions.ndim != 1 or positions.dtype == bool or _SEARCHED_SHARE * positions.size > len(self):
            return self._decode_one(self._wrap(int(position))) if positions.ndim == 0 else self.array[position]
        return self._decode(map(self._wrap, positions.tolist()))

    def _wrap(self, position: int) -> int:
        if not -len(self) <= position < len(self):
            raise IndexError(f"there are {len(self)} labels; got the position {position}")
        return position % len(self)


def is_increasing(labels: npt.NDArray[Any]) -> bool:
    """Whether labels increase; labels without an order do not."""
    try:
        return bool(np.all(labels[1:] > labels[:-1]))
    except TypeError:
        return False


def has_lone_surrogates(labels: Labels) -> bool:
    """Whether some labels contain a lone surrogate, as odd file names do."""
    if isinstance(labels, TextLabels):  # in UTF-8 it begins with ED and a byte of A0 to BF
        return bool(np.any((labels.text[:-1] == 0xED) & (labels.text[1:] >= 0xA0)))
    try:
        "".join(labels.array.tolist()).encode()
    except UnicodeEncodeError:
        return True
    return False
