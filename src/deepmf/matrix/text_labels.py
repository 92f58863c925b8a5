"""Labels kept as text, in memory or in a file that is mapped into it: each is decoded when it is asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import UnreadableFile
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.label_kinds import AS_TEXT, ENCODING
from deepmf.matrix.labels import Labels, label_array

# Of this many labels for each one that is looked up, a search costs less than an index of all.
_SEARCHED_SHARE = 64


class TextLabels(Labels):
    """Labels as one text and where in it each starts.

    text: (bytes,) in UTF-8. starts: (labels + 1,) in bytes. kind: as `label_kinds` names them. is_sorted: whether the
    labels rise.

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
        """Return labels of a kind that is stored as text."""
        if isinstance(labels, TextLabels):
            return labels
        items = [AS_TEXT[kind].write(label).encode(*ENCODING) for label in labels.array.tolist()]
        starts = np.zeros(len(items) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, items), dtype=np.int64, count=len(items)), out=starts[1:])
        text = np.frombuffer(b"".join(items), dtype=np.uint8)
        return cls(text, starts, kind=kind, is_sorted=_rise(labels.array), axis=labels.axis)

    @cached_property
    def array(self) -> npt.NDArray[Any]:
        """All labels in order, read-only."""
        array = self._decoded(range(len(self)))
        array.flags.writeable = False
        return array

    def find(self, items: Iterable[Any]) -> IndexArray:
        """Return where each item stands, -1 for an unknown one."""
        array = label_array(items, axis=self.axis)
        if not self.is_sorted or "_index" in vars(self) or _SEARCHED_SHARE * array.size > len(self):
            return super().find(array)
        return np.fromiter(map(self._search, array), dtype=np.int64, count=array.size)

    def _search(self, item: Any) -> int:
        if type(item) is not AS_TEXT[self.kind].type:
            return -1
        wanted: Any = item
        at = bisect_left(range(len(self)), wanted, key=self._label)
        return at if at < len(self) and self._label(at) == item else -1

    def _label(self, at: int) -> Any:
        try:
            text = self.text[self.starts[at] : self.starts[at + 1]].tobytes().decode(*ENCODING)
            return text if self.kind == "str" else AS_TEXT[self.kind].label(text)
        except ValueError as error:  # only a damaged file has such
            raise UnreadableFile(f"{self.axis} {at} has a label that cannot be read ({error})") from error

    def _decoded(self, positions: Iterable[int]) -> npt.NDArray[Any]:
        labels = [self._label(at) for at in positions]
        return np.fromiter(labels, dtype=object, count=len(labels))

    @property
    def nbytes(self) -> int:
        """Bytes held by the text and its starts, and by the array of labels where it was asked for."""
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
            return self._decoded(range(*position.indices(len(self))))
        positions = np.asarray(position)
        if positions.ndim != 1 or positions.dtype == bool or _SEARCHED_SHARE * positions.size > len(self):
            return self._one(int(position)) if positions.ndim == 0 else self.array[position]
        return self._decoded(map(self._place, positions.tolist()))

    def _one(self, position: int) -> Any:
        return self._label(self._place(position))

    def _place(self, position: int) -> int:
        if not -len(self) <= position < len(self):
            raise IndexError(f"there are {len(self)} labels; got the position {position}")
        return position % len(self)


def _rise(labels: npt.NDArray[Any]) -> bool:
    try:
        return bool(np.all(labels[1:] > labels[:-1]))
    except TypeError:  # labels without an order
        return False


def has_half_characters(labels: Labels) -> bool:
    """Say whether some texts hold half of a surrogate pair, which is no character, as names of odd files do."""
    if isinstance(labels, TextLabels):  # in UTF-8, such a half begins by ED and A0 to BF
        return bool(np.any((labels.text[:-1] == 0xED) & (labels.text[1:] >= 0xA0)))
    try:
        "".join(labels.array.tolist()).encode()
    except UnicodeEncodeError:
        return True
    return False
