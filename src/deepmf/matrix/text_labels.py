"""Labels as one UTF-8 text, in memory or memory-mapped, decoded on access."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting, UnreadableFile
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.labels import AS_TEXT, Labels, build_label_array

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
        try:
            items = [AS_TEXT[kind].write(label).encode() for label in labels]
        except UnicodeEncodeError as error:
            raise BadSetting(
                f"the {axis} text {error.object[:20]!r} holds half of a surrogate pair, which no file can hold"
            ) from error
        starts = np.zeros(len(items) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, items), dtype=np.int64, count=len(items)), out=starts[1:])
        text = np.frombuffer(b"".join(items), dtype=np.uint8)
        return cls(text, starts, kind=kind, is_sorted=is_increasing(np.array(labels, dtype=object)), axis=axis)

    @cached_property
    def array(self) -> npt.NDArray[Any]:  # type: ignore[override]
        """All labels in order, read-only."""
        array = self._decode(range(len(self)))
        array.flags.writeable = False
        return array

    def find(self, items: Iterable[Any]) -> IndexArray:
        """Return the position of each item, -1 if it is unknown."""
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
            raise UnreadableFile(f"{self.axis} {at} has a label that cannot be read ({error})") from error

    def _decode(self, positions: Iterable[int]) -> npt.NDArray[Any]:
        labels = [self._decode_one(at) for at in positions]
        return np.fromiter(labels, dtype=object, count=len(labels))

    def __len__(self) -> int:
        return int(self.starts.size) - 1

    def __getitem__(self, position: Any) -> Any:
        positions = np.arange(*position.indices(len(self))) if isinstance(position, slice) else np.asarray(position)
        if "array" in vars(self) or positions.dtype == bool or positions.size > max(1, len(self) // _FEW):
            return self.array[position]
        positions = np.where(positions < 0, positions + len(self), positions)
        return self._decode(positions.ravel().tolist()).reshape(positions.shape)[()]


def is_increasing(labels: npt.NDArray[Any]) -> bool:
    """Whether labels increase; labels without an order do not."""
    try:
        return bool(np.all(labels[1:] > labels[:-1]))
    except TypeError:
        return False
