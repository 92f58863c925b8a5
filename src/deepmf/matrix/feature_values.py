"""Raw values of a feature: of which kind they are, and as values of a kind."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadFeatures

KINDS = ("number", "category", "list", "date")

# Between the items of a list that is written as one text.
SEPARATOR = "|"

# Integers of at most this many different values, which are at most a tenth of all values, are codes of categories.
_MOST_CODES, _ONE_IN = 32, 10
# Squares and sums of larger numbers could overflow.
_LARGEST_NUMBER = 1e100

_NUMBERS = (int, float, np.integer, np.floating, Decimal)
_LISTS = (list, tuple, set, frozenset, np.ndarray)
_DATES = (datetime.date, np.datetime64)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?")
_MONTH_OR_YEAR = re.compile(r"[0-9]{4}(-[0-9]{2})?")
_A_KIND = {"number": "numbers", "category": "categories", "list": "lists of categories", "date": "dates"}


def raw_values(values: Iterable[Any]) -> npt.NDArray[Any]:
    """Return values as an array: numbers with NaN and dates with NaT for what is missing, else objects with None."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"it has the shape {values.shape}, and one value for each label is right")
        if values.dtype.kind in "iufbM":
            return values
    elif isinstance(values, str | bytes):
        raise TypeError(f"a value for each label is right; got {values!r}")
    items = mapped(values.tolist() if isinstance(values, np.ndarray) else list(values), _known)
    types = _types(items)
    if types and all(issubclass(kind, _NUMBERS) and kind is not bool for kind in types):
        return _number_array(items, are_whole=all(issubclass(kind, int | np.integer) for kind in types))
    return _objects(items)


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
    items = values.tolist()
    types = _types(items)
    if any(issubclass(kind, _LISTS) for kind in types):
        return "list"
    if types and all(issubclass(kind, _DATES) for kind in types):
        return "date"
    if not types or not all(issubclass(kind, str) for kind in types):
        return "category"
    texts = set(items) - {None}
    if all(_DAY.fullmatch(text) for text in texts):
        return "date"
    return "list" if any(SEPARATOR in text for text in texts) else "category"


def values_as(kind: str, values: Iterable[Any], name: str) -> npt.NDArray[Any]:
    """Return raw values as those of a kind: float64, texts or tuples of texts or None, or datetime64 of days."""
    try:
        array = raw_values(values)
        if kind == "number":
            return _as_numbers(array, name)
        if kind == "date":
            return _as_dates(array)
        array = array.astype("datetime64[D]") if array.dtype.kind == "M" else array  # finer ones become plain ints
        return _objects(mapped(array.tolist(), _categories if kind == "list" else _category))
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, BadFeatures):
            raise
        raise BadFeatures(f"the feature {name!r} cannot be read as {_A_KIND[kind]}: {error}") from error


def are_missing(kind: str, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Say which values of a kind are missing."""
    if kind in ("number", "date"):
        gaps: npt.NDArray[np.bool_] = np.isnan(values) if kind == "number" else np.isnat(values)
        return gaps
    return np.fromiter((item is None for item in values.tolist()), dtype=bool, count=values.size)


def mapped(items: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Convert items, equal ones once where they are of one type: True and 1 are equal, and are not alike."""
    if len(_types(items)) > 1:
        return list(map(convert, items))
    try:
        different = dict.fromkeys(items)
    except TypeError:  # lists cannot be looked up
        return list(map(convert, items))
    for item in different:
        different[item] = convert(item)
    return list(map(different.__getitem__, items))


def _types(items: list[Any]) -> set[type]:
    return set(map(type, items)) - {type(None)}


def _objects(items: list[Any]) -> npt.NDArray[Any]:
    return np.fromiter(items, dtype=object, count=len(items))


def _number_array(items: list[Any], *, are_whole: bool) -> npt.NDArray[Any]:
    if are_whole and None not in items and max(map(abs, items)) < 2**62:
        return np.array(items, dtype=np.int64)
    return np.array([np.nan if item is None else float(item) for item in items])


def _as_numbers(array: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    if array.dtype.kind == "M":
        raise ValueError("they are dates")
    if array.dtype == object:
        array = np.array(mapped(array.tolist(), lambda item: np.nan if item is None else float(item)))
    numbers = array.astype(np.float64)
    if np.isinf(numbers).any():
        raise BadFeatures(f"the feature {name!r} has infinite numbers; leave them empty where they are not known")
    largest = np.abs(numbers[~np.isnan(numbers)]).max(initial=0.0)
    if largest > _LARGEST_NUMBER:
        raise BadFeatures(f"the feature {name!r} has numbers up to {largest:g}; {_LARGEST_NUMBER:g} is the most")
    return numbers


def _as_dates(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind == "M":
        return array.astype("datetime64[D]")
    if array.dtype != object:
        raise ValueError("they are numbers")
    return np.array(mapped(array.tolist(), _date), dtype="datetime64[D]")


def _date(item: Any) -> Any:
    if item is None:
        return np.datetime64("NaT", "D")
    if isinstance(item, datetime.datetime):  # of whatever time zone: the day on the calendar there
        item = item.date()
    if isinstance(item, datetime.date | np.datetime64):
        day: Any = item
        return np.datetime64(day, "D")
    text = item.strip() if isinstance(item, str) else ""
    if _DAY.fullmatch(text):
        return np.datetime64(text[:10], "D")
    if not _MONTH_OR_YEAR.fullmatch(text):
        raise ValueError(f"{item!r} is no date such as 2001-12-31")
    return np.datetime64(text, "D")


def _categories(item: Any) -> tuple[str, ...] | None:
    """Return the different categories of a list."""
    if _is_missing(item):
        return None
    if isinstance(item, str):
        return tuple(filter(None, dict.fromkeys(map(str.strip, item.split(SEPARATOR)))))
    if isinstance(item, list | tuple) and all(type(part) is str for part in item):
        return tuple(filter(None, dict.fromkeys(map(str.strip, item))))
    if isinstance(item, _LISTS):
        known = [part for part in item if not _is_missing(part)]
        if any(isinstance(part, float | np.floating) and not part.is_integer() for part in known):
            raise TypeError(f"{known[0]!r} and others are no categories; numbers need a column each")
        texts = sorted(map(_text, known)) if isinstance(item, set | frozenset) else map(_text, known)
        return tuple(dict.fromkeys(texts))
    return (_text(item),)


def _category(item: Any) -> str | None:
    return None if _is_missing(item) else _text(item)


def _text(item: Any) -> str:
    if isinstance(item, float | np.floating) and item.is_integer():
        return str(int(item))
    if isinstance(item, (*_LISTS, dict)):
        raise TypeError(f"{item!r} is not one category")
    return str(item).strip()


def _known(item: Any) -> Any:
    return None if _is_missing(item) else item


def _is_missing(item: Any) -> bool:
    if isinstance(item, str):
        return not item or item.isspace()
    if item is None or item is np.ma.masked:
        return True
    if isinstance(item, float | np.floating | np.datetime64 | Decimal):
        return bool(item != item)
    return type(item).__name__ in ("NAType", "NaTType")  # of pandas, which need not be installed
