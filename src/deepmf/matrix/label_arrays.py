"""Labels as they are given, as an array of one kind: int64, or Python's own objects, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries


def checked_labels(items: Iterable[Any], *, axis: str) -> npt.NDArray[Any]:
    """Return labels as one array of one kind: int64, or objects; nulls and mixtures are errors."""
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
        array = array.astype(f"{array.dtype.kind}8[us]")  # what Python's own dates and times can hold
    if array.dtype.kind != "O":
        array = array.astype(object)  # Python's own str, float, datetime: kept as given
    return _checked_objects(array, axis=axis)


def n_distinct(labels: npt.NDArray[Any]) -> int:
    """Return how many different labels there are."""
    return len(set(labels.tolist()))


def kind_of(array: npt.NDArray[Any]) -> str:
    """Name what labels are, for messages; there is at least one."""
    return "ints" if array.dtype.kind == "i" else f"{type(array[0]).__name__}s"


def _from_iterable(items: Iterable[Any]) -> npt.NDArray[Any]:
    if isinstance(items, range):
        return np.arange(items.start, items.stop, items.step, dtype=np.int64)
    sequence = items if isinstance(items, Sequence) else list(items)
    return np.fromiter(sequence, dtype=object, count=len(sequence))


def _checked_objects(array: npt.NDArray[Any], *, axis: str) -> npt.NDArray[Any]:
    kinds = set(map(type, array))
    if any(issubclass(kind, np.generic) for kind in kinds):
        plain = (item.item() if isinstance(item, np.generic) else item for item in array)
        return _checked_objects(np.fromiter(plain, dtype=object, count=array.size), axis=axis)
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
