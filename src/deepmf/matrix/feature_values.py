"""Values of features as a user gives them: read, of an inferred kind, and converted to it."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from deepmf.errors import BadEntries, BadFeatures
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, check_years, is_missing
from deepmf.matrix.extras import parse_times

# Separator of a list of categories that is written as one text.
SEPARATOR = "|"

# Integers are categories if they have at most 32 distinct values, and at most one distinct value
# for ten values.
_MOST_CODES = 32
_ONE_IN = 10

# Squares and sums of larger numbers could overflow.
_LARGEST_NUMBER = 1e100

NUMBERS = (int, float, np.integer, np.floating, Decimal)

LISTS = (list, tuple, set, frozenset, np.ndarray)

_DATES = (datetime.date, np.datetime64)

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?")

_MONTH_OR_YEAR = re.compile(r"[0-9]{4}(-[0-9]{2})?")

_KIND_NAMES = {
    "number": "numbers",
    "position": "positions (numbers or dates)",
    "category": "categories",
    "list": "lists of categories",
    "date": "dates",
    "vector": "vectors of numbers",
    "similarity": "similarities (dicts of numbers by label)",
}

KINDS = tuple(_KIND_NAMES)


@dataclass(frozen=True, eq=False)
class Similarities:
    """The similarities of a label to others.

    labels: of others, as texts. at, weights: the places of some among these, and the similarities.
    itself: the similarity of the label to itself; NaN where it is not known.
    """

    labels: tuple[str, ...]
    at: IndexArray
    weights: FloatArray
    itself: float = math.nan


def read_values(values: Iterable[Any]) -> Array:
    """Return values as an array of numbers, dates or objects; missing values are NaN, NaT or
    None."""
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.dtype.kind == "f":  # a vector for each label
            return _to_objects(
                [None if np.isnan(line).any() else tuple(line) for line in values.tolist()]
            )
        if values.ndim != 1:
            raise ValueError(f"it has the shape {values.shape}; give one value for each label")
        if values.dtype.kind in "iufbM":
            return values
    elif isinstance(values, str | bytes):
        raise TypeError(f"give one value for each label; got {values!r}")
    items_given = values.tolist() if isinstance(values, np.ndarray) else list(values)
    items = convert_each(items_given, lambda item: None if is_missing(item) else item)
    types = _find_types(items)
    if types and all(issubclass(kind, NUMBERS) and kind is not bool for kind in types):
        are_whole = None not in items and all(issubclass(kind, int | np.integer) for kind in types)
        if are_whole and max(map(abs, items)) < 2**62:
            return np.array(items, dtype=np.int64)
        return np.array([np.nan if item is None else float(item) for item in items])
    return _to_objects(items)


def infer_kind(values: Array) -> str:
    """Infer the kind of values.

    Integers are categories if they have at most 32 distinct values, at most a tenth of all values.
    Texts are lists if some contain "|", and dates if all look like 2001-12-31. Dicts are
    similarities.
    """
    if values.dtype.kind == "M":
        return "date"
    if values.dtype.kind == "b":
        return "category"
    if values.dtype.kind in "iuf":
        numbers = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        are_whole = (
            numbers.size and np.all(numbers == np.round(numbers)) and np.all(np.isfinite(numbers))
        )
        n_distinct = np.unique(numbers).size
        if are_whole and n_distinct <= min(_MOST_CODES, numbers.size / _ONE_IN):
            return "category"
        return "number"
    items = values.tolist()
    types = _find_types(items)
    if types and all(issubclass(kind, (Mapping, Similarities)) for kind in types):
        return "similarity"
    if any(issubclass(kind, LISTS) for kind in types):
        lists = [item for item in items if item is not None]
        are_vectors = all(
            len(item) and all(isinstance(number, float | np.floating) for number in item)
            for item in lists
        )
        return "vector" if are_vectors else "list"
    if types and all(issubclass(kind, _DATES) for kind in types):
        return "date"
    if not types or not all(issubclass(kind, str) for kind in types):
        return "category"
    texts = set(items) - {None}
    if all(_DAY.fullmatch(text) for text in texts):
        return "date"
    if any(SEPARATOR in text for text in texts):
        return "list"
    return "category"


def convert_values(kind: str, values: Iterable[Any], name: str) -> Array:
    """Convert values to a kind: float64, strings or None, tuples of strings or None, or datetime64
    days."""
    try:
        array = read_values(values)
        if kind in _TO_ARRAYS:
            return _TO_ARRAYS[kind](array)
        items = _to_dates(array) if array.dtype.kind == "M" else array
        return _to_objects(convert_each(items.tolist(), _TO_ITEMS[kind]))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadFeatures(
            f"the feature {name!r} cannot be read as {_KIND_NAMES[kind]}: {error}"
        ) from error


def are_missing(kind: str, values: Array) -> BoolArray:
    """Return whether each value of a kind is missing."""
    if kind in ("number", "date", "position"):
        return np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)
    return np.fromiter((item is None for item in values.tolist()), dtype=bool, count=values.size)


def convert_each(items: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Convert items; equal items of one type are converted once (True and 1 are equal, but not
    alike)."""
    if len(_find_types(items)) > 1:
        return list(map(convert, items))
    try:
        different = dict.fromkeys(items)
    except TypeError:  # lists are not hashable
        return list(map(convert, items))
    for item in different:
        different[item] = convert(item)
    return list(map(different.__getitem__, items))


def _find_types(items: list[Any]) -> set[type]:
    return set(map(type, items)) - {type(None)}


def _to_objects(items: list[Any]) -> Array:
    return np.fromiter(items, dtype=object, count=len(items))


def _to_numbers(array: Array) -> FloatArray:
    if array.dtype.kind == "M":
        raise ValueError("they are dates")
    if array.dtype == object:
        array = np.array(
            convert_each(array.tolist(), lambda item: np.nan if item is None else float(item))
        )
    numbers = array.astype(np.float64)
    largest = np.abs(numbers[~np.isnan(numbers)]).max(initial=0.0)
    if largest > _LARGEST_NUMBER:
        raise ValueError(
            f"infinite or huge numbers, such as {largest:g}, are above the limit of "
            f"{_LARGEST_NUMBER:g}; unknown numbers are left empty"
        )
    return numbers


def _to_positions(array: Array) -> Array:
    """Return numbers, or dates to the second."""
    if array.dtype.kind == "M":
        return parse_times(array).seconds.astype("datetime64[s]")
    if array.dtype == object and any(isinstance(item, (str, *_DATES)) for item in array.tolist()):
        with suppress(BadEntries):  # texts of numbers
            return parse_times(array).seconds.astype("datetime64[s]")
    return _to_numbers(array)


def _to_dates(array: Array) -> Array:
    if array.dtype.kind not in "MO":
        raise ValueError("they are numbers")
    if array.dtype == object:
        array = np.array(convert_each(array.tolist(), _to_date), dtype="datetime64")
    check_years(array)
    return array.astype("datetime64[D]")


def _to_date(item: Any) -> Any:
    if item is None:
        return np.datetime64("NaT", "D")
    if isinstance(item, datetime.datetime):  # the local day in any time zone
        item = item.date()
    if isinstance(item, datetime.date | np.datetime64):
        return np.datetime64(item)
    text = item.strip() if isinstance(item, str) else ""
    if _DAY.fullmatch(text):
        return np.datetime64(text[:10], "D")
    if not _MONTH_OR_YEAR.fullmatch(text):
        raise ValueError(f"{item!r} is not a date such as 2001-12-31")
    return np.datetime64(text, "D")


def _to_categories(item: Any) -> tuple[str, ...] | None:
    if is_missing(item):
        return None
    parts = [item]
    if isinstance(item, str):
        parts = item.split(SEPARATOR)
    elif isinstance(item, LISTS):
        parts = list(item)
    present = [part for part in parts if not is_missing(part)]
    if isinstance(item, LISTS) and any(
        isinstance(part, float | np.floating) and part % 1 for part in present
    ):
        raise TypeError(f"{present[0]!r} is not a category; give each number a column of its own")
    texts = map(to_text, present)
    return tuple(dict.fromkeys(sorted(texts) if isinstance(item, set | frozenset) else texts))


def _to_vector(item: Any) -> tuple[float, ...] | None:
    if is_missing(item):
        return None
    parts = item
    if isinstance(item, str):
        parts = item.replace(SEPARATOR, " ").replace(",", " ").split()
    vector = tuple(map(float, parts))
    if not vector or not all(abs(number) < _LARGEST_NUMBER for number in vector):
        raise ValueError(f"{item!r} is no vector of finite numbers")
    return vector


def _to_similarities(item: Any) -> Similarities | None:
    if isinstance(item, Similarities) or is_missing(item):
        return item if isinstance(item, Similarities) else None
    item = json.loads(item) if isinstance(item, str) else item
    if not isinstance(item, Mapping):
        raise TypeError(f"{item!r} is no dict of numbers by label")
    weights = np.array([float(weight) for weight in item.values()])
    if not np.isfinite(weights).all():
        raise ValueError(f"{item!r} has numbers that are not finite")
    return Similarities(tuple(map(str, item)), np.arange(weights.size), weights)


def write_similarities(item: Similarities) -> str:
    """Return similarities as JSON, from which `convert_values` reads them."""
    others = [item.labels[at] for at in item.at.tolist()]
    return json.dumps(dict(zip(others, item.weights.tolist(), strict=True)))


def to_text(item: Any) -> str:
    if isinstance(item, float | np.floating) and item.is_integer():
        return str(int(item))
    if isinstance(item, (*LISTS, dict)):
        raise TypeError(f"{item!r} is not one category")
    return str(item).strip()


# What makes an array of all values, or an item of each.
_TO_ARRAYS: dict[str, Callable[[Array], Array]] = {
    "number": _to_numbers,
    "date": _to_dates,
    "position": _to_positions,
}
_TO_ITEMS: dict[str, Callable[[Any], Any]] = {
    "category": lambda item: None if is_missing(item) else to_text(item),
    "list": _to_categories,
    "vector": _to_vector,
    "similarity": _to_similarities,
}
