"""Raw values of a feature: of which kind they are, and as values of a kind."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadFeatures

KINDS = ("number", "category", "list", "date")

# Between the items of a list that is written as one text.
SEPARATOR = "|"

# Integers of at most this many different values, which are at most a tenth of all values, are codes of categories.
_MOST_CODES, _ONE_IN = 32, 10

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


def raw_values(values: Iterable[Any]) -> npt.NDArray[Any]:
    """Return values as an array: numbers with NaN and dates with NaT for what is missing, else objects with None."""
    array = values if isinstance(values, np.ndarray) else None
    if array is not None and array.ndim == 1 and array.dtype.kind in "iufbM":
        return array
    items = [None if _is_missing(item) else item for item in (values if array is None else array.tolist())]
    known = [item for item in items if item is not None]
    if known and all(isinstance(item, int | float | np.number) and not isinstance(item, bool) for item in known):
        if len(known) == len(items) and all(isinstance(item, int | np.integer) for item in known):
            return np.array(items, dtype=np.float64 if max(map(abs, known)) > 2**62 else np.int64)
        return np.array([np.nan if item is None else float(item) for item in items])
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def kind_of(values: npt.NDArray[Any]) -> str:
    """Return the kind of raw values: the one that they look like.

    Whole numbers are a category where they are at most 32 different ones and at most a tenth of all; texts are lists
    where some have a |, and dates where all are written as 2001-12-31.
    """
    if values.dtype.kind == "M":
        return "date"
    if values.dtype.kind == "b":
        return "category"
    if values.dtype.kind in "iuf":
        known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        whole = known.size and np.all(known == np.round(known)) and np.all(np.isfinite(known))
        n_distinct = np.unique(known).size
        return "category" if whole and n_distinct <= min(_MOST_CODES, known.size / _ONE_IN) else "number"
    known = [item for item in values.tolist() if item is not None]
    if any(isinstance(item, list | tuple | set | frozenset | np.ndarray) for item in known):
        return "list"
    if known and all(isinstance(item, datetime.date) for item in known):
        return "date"
    texts = [item for item in known if isinstance(item, str)]
    if texts and len(texts) == len(known) and all(_DATE.fullmatch(text) for text in texts):
        return "date"
    return "list" if any(SEPARATOR in text for text in texts) else "category"


def values_as(kind: str, values: Iterable[Any], name: str) -> npt.NDArray[Any]:
    """Return raw values as those of a kind: float64, texts or tuples of texts or None, or datetime64 of days."""
    array = raw_values(values)
    try:
        if kind == "number":
            return _numbers(array, name)
        if kind == "date":
            return _dates(array)
        items = [None if _is_missing(item) else item for item in array.tolist()]
        converted = np.empty(len(items), dtype=object)
        converted[:] = [None if item is None else (_items(item) if kind == "list" else _text(item)) for item in items]
        return converted
    except (TypeError, ValueError) as error:
        raise BadFeatures(f"the feature {name!r} cannot be read as {_A_KIND[kind]}: {error}") from error


_A_KIND = {"number": "numbers", "category": "categories", "list": "lists of categories", "date": "dates"}


def _numbers(array: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    if array.dtype == object:
        array = np.array([np.nan if item is None else float(item) for item in array.tolist()])
    numbers = array.astype(np.float64)
    if np.isinf(numbers).any():
        raise BadFeatures(f"the feature {name!r} has infinite numbers; leave them empty where they are not known")
    return numbers


def _dates(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind == "M":
        return array.astype("datetime64[D]")
    if array.dtype != object:
        raise ValueError("got numbers")
    items = ["NaT" if item is None else item.strip() if isinstance(item, str) else item for item in array.tolist()]
    return np.array([np.datetime64(item, "D") for item in items], dtype="datetime64[D]")


def _items(item: Any) -> tuple[str, ...]:
    if isinstance(item, str):
        return tuple(part.strip() for part in item.split(SEPARATOR) if part.strip())
    if isinstance(item, list | tuple | set | frozenset | np.ndarray):
        return tuple(_text(part) for part in item if not _is_missing(part))
    return (_text(item),)


def _text(item: Any) -> str:
    if isinstance(item, float) and item.is_integer():
        return str(int(item))
    if isinstance(item, list | dict | set):
        raise TypeError(f"{item!r} is not one category")
    return str(item)


def _is_missing(item: Any) -> bool:
    return item is None or item == "" or (isinstance(item, float) and item != item) or item is np.ma.masked
