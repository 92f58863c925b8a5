"""How features become inputs of a model: numbers are standardised, categories and dates become indicators."""

from __future__ import annotations

import datetime
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.errors import BadFeatures
from deepmf.matrix.arrays import FloatArray, IndexArray

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


def read_values(values: Iterable[Any]) -> npt.NDArray[Any]:
    """Return values as an array: numbers with NaN and dates with NaT for what is missing, else objects with None."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"it has the shape {values.shape}, and one value for each label is right")
        if values.dtype.kind in "iufbM":
            return values
    elif isinstance(values, str | bytes):
        raise TypeError(f"a value for each label is right; got {values!r}")
    items = convert_each(values.tolist() if isinstance(values, np.ndarray) else list(values), _clear_missing)
    types = _types(items)
    if types and all(issubclass(kind, _NUMBERS) and kind is not bool for kind in types):
        return _number_array(items, are_whole=all(issubclass(kind, int | np.integer) for kind in types))
    return _objects(items)


def infer_kind(values: npt.NDArray[Any]) -> str:
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


def convert_values(kind: str, values: Iterable[Any], name: str) -> npt.NDArray[Any]:
    """Return raw values as those of a kind: float64, texts or tuples of texts or None, or datetime64 of days."""
    try:
        array = read_values(values)
        if kind == "number":
            return _as_numbers(array, name)
        if kind == "date":
            return _as_dates(array)
        array = array.astype("datetime64[D]") if array.dtype.kind == "M" else array  # finer ones become plain ints
        return _objects(convert_each(array.tolist(), _categories if kind == "list" else _category))
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


def convert_each(items: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
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
        array = np.array(convert_each(array.tolist(), lambda item: np.nan if item is None else float(item)))
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
    return np.array(convert_each(array.tolist(), _date), dtype="datetime64[D]")


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


def _clear_missing(item: Any) -> Any:
    return None if _is_missing(item) else item


def _is_missing(item: Any) -> bool:
    if isinstance(item, str):
        return not item or item.isspace()
    if item is None or item is np.ma.masked:
        return True
    if isinstance(item, float | np.floating | np.datetime64 | Decimal):
        return bool(item != item)
    return type(item).__name__ in ("NAType", "NaTType")  # of pandas, which need not be installed


@dataclass(frozen=True)
class FeatureVectors:
    """Sparse vectors side by side, padded to the most inputs that one has.

    inputs, weights: (vectors, slots); a weight of 0 is padding. n_inputs: how many inputs there are in all.
    """

    inputs: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    n_inputs: int

    @classmethod
    def of_parts(
        cls, count: int, n_inputs: int, parts: Sequence[tuple[IndexArray, IndexArray, npt.NDArray[Any]]]
    ) -> FeatureVectors:
        """Return vectors made of parts: of which vector, at which input, with which weight."""
        known = [_in_order(*part) for part in parts]
        part_counts = [np.bincount(which, minlength=count) for which, _, _ in known]
        filled = np.zeros(count, dtype=np.int64)
        shape = count, int(np.sum(part_counts, axis=0, initial=0).max(initial=0)) if known else 0
        vectors = cls(np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.float32), n_inputs)
        for (which, inputs, weights), counts in zip(known, part_counts, strict=True):
            slots = np.arange(which.size) + (filled - (np.cumsum(counts) - counts))[which]
            vectors.inputs[which, slots], vectors.weights[which, slots] = inputs, weights
            filled += counts
        return vectors

    @classmethod
    def empty(cls, count: int, n_inputs: int) -> FeatureVectors:
        """Return vectors without any features."""
        return cls.of_parts(count, n_inputs, [])

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    def take(self, positions: npt.NDArray[Any]) -> FeatureVectors:
        """Return the vectors at some positions; behind the last one there are vectors without features."""
        inside = positions < len(self)
        if inside.all():
            return FeatureVectors(self.inputs[positions], self.weights[positions], self.n_inputs)
        taken = FeatureVectors(
            np.zeros((positions.size, self.inputs.shape[1]), dtype=np.int32),
            np.zeros((positions.size, self.inputs.shape[1]), dtype=np.float32),
            self.n_inputs,
        )
        taken.inputs[inside], taken.weights[inside] = self.inputs[positions[inside]], self.weights[positions[inside]]
        return taken

    def pad(self, n_slots: int) -> FeatureVectors:
        """Return the same vectors with at least this many slots."""
        more = ((0, 0), (0, max(0, n_slots - self.inputs.shape[1])))
        if not more[1][1]:
            return self
        return FeatureVectors(np.pad(self.inputs, more), np.pad(self.weights, more), self.n_inputs)

    def join(self, others: FeatureVectors) -> FeatureVectors:
        """Return these vectors and others."""
        n_slots = max(self.inputs.shape[1], others.inputs.shape[1])
        parts = self.pad(n_slots), others.pad(n_slots)
        inputs, weights = (np.concatenate([getattr(part, name) for part in parts]) for name in ("inputs", "weights"))
        return FeatureVectors(inputs, weights, self.n_inputs)

    def without_inputs(self, groups: Sequence[Sequence[int]]) -> FeatureVectors:
        """Return a vector for each of some groups of inputs: the only one there is, without them."""
        dropped = np.stack([np.isin(self.inputs[0], list(group)) for group in groups])
        inputs = np.repeat(self.inputs, len(groups), axis=0)
        return FeatureVectors(inputs, np.where(dropped, np.float32(0.0), self.weights), self.n_inputs)

    def product(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the products (vectors, width) with a table (inputs, width)."""
        found: npt.NDArray[Any] = self.sparse() @ table
        return found

    def sparse(self) -> scipy.sparse.csr_array:
        """Return the vectors as a sparse matrix (vectors, inputs), whose sums do not depend on padding."""
        starts = np.arange(len(self) + 1) * self.inputs.shape[1]
        return scipy.sparse.csr_array(
            (self.weights.ravel(), self.inputs.ravel(), starts), shape=(len(self), self.n_inputs)
        )

    @property
    def are_known(self) -> npt.NDArray[np.bool_]:
        """Whether each vector has any features."""
        known: npt.NDArray[np.bool_] = (self.weights != 0).any(axis=1)
        return known


def _in_order(which: IndexArray, inputs: IndexArray, weights: npt.NDArray[Any]) -> tuple[Any, Any, Any]:
    """Return a part in the order of its vectors, without weights of 0."""
    there = np.flatnonzero(weights)
    if there.size < weights.size:
        which, inputs, weights = which[there], inputs[there], weights[there]
    if np.all(which[1:] >= which[:-1]):
        return which, inputs, weights
    order = np.argsort(which, kind="stable")
    return which[order], inputs[order], weights[order]


Part = tuple[IndexArray, IndexArray, npt.NDArray[Any]]  # of which vector, at which input, with which weight


# The most categories of a feature that are told apart; and of how many vectors a category must at least be, as a share
# of the root of all of them: the weights of rarer ones would learn single rows by heart.
MOST_CATEGORIES = 1000

_OF_ROOT, _FEWEST = 1 / 8, 2

# A standardised number beyond this counts as this: one outlier should not drown all else.
LARGEST_WEIGHT = 4.0

# Numbers whose spread is a smaller share of their size are equal but for rounding.
_LEAST_SPREAD = 1e-12

# Between how many quantiles a number is also interpolated, so that what is linear can follow a curve.
_N_KNOTS = 9


_MONTHS = tuple(f"{month:02d}" for month in range(1, 13))


class FeatureItem(NamedTuple):
    """One thing that is known of a row or column: which feature, what it says, and its inputs."""

    name: str
    text: str
    inputs: tuple[int, ...]


class ColumnEncoding(ABC):
    """The encoding of one feature, into inputs that are counted from 0."""

    kind: ClassVar[str]
    name: str

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """How many inputs it has."""

    @abstractmethod
    def parts(self, values: npt.NDArray[Any]) -> list[Part]:
        """Return the inputs of values of its kind."""

    @abstractmethod
    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        """Return what some of its inputs, with their weights, say; nothing of what is missing."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON content."""


@dataclass(frozen=True)
class NumberEncoding(ColumnEncoding):
    """A number: standardised; an indicator where it is missing; and where it lies between quantiles of all."""

    kind: ClassVar[str] = "number"
    name: str
    mean: float
    spread: float
    knots: tuple[float, ...]

    @classmethod
    def learn(cls, name: str, values: FloatArray) -> NumberEncoding:
        """Return the encoding for values, of which some may be missing."""
        known = values[~np.isnan(values)]
        if not known.size:
            return cls(name, 0.0, 1.0, ())
        knots, spread = np.unique(np.quantile(known, np.linspace(0, 1, _N_KNOTS))), float(known.std())
        if knots.size == 1 or spread <= _LEAST_SPREAD * np.abs(known).max():
            return cls(name, float(known.mean()), 1.0, ())
        return cls(name, float(known.mean()), spread, tuple(knots.tolist()))

    @property
    def n_inputs(self) -> int:
        return 2 + len(self.knots)

    def parts(self, values: npt.NDArray[Any]) -> list[Part]:
        which, missing = np.flatnonzero(~np.isnan(values)), np.flatnonzero(np.isnan(values))
        known = values[which]
        standard = np.clip((known - self.mean) / self.spread, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        parts: list[Part] = [
            (which, np.zeros(which.size, dtype=np.int64), standard),
            (missing, np.ones(missing.size, dtype=np.int64), np.ones(missing.size)),
        ]
        if self.knots:
            knots = np.array(self.knots)
            places = np.interp(known, knots, np.arange(knots.size))
            below = np.minimum(places.astype(np.int64), knots.size - 2)
            parts += [(which, 2 + below, 1.0 - (places - below)), (which, 3 + below, places - below)]
        return parts

    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        if 1 in found or not found:
            return []
        number = self.mean + self.spread * found.get(0, 0.0)
        return [FeatureItem(self.name, f"{number:.6g}", tuple(range(self.n_inputs)))]

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "mean": self.mean,
            "spread": self.spread,
            "knots": list(self.knots),
        }


@dataclass(frozen=True)
class CategoryEncoding(ColumnEncoding):
    """A category, or a list of them: an indicator for each that is told apart, one for all others, one for missing."""

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]

    @classmethod
    def learn(cls, name: str, values: npt.NDArray[Any]) -> CategoryEncoding:
        """Return the encoding for values, of which some may be missing."""
        counts = cls.counts(values)
        fewest = max(_FEWEST, _OF_ROOT * np.sqrt(values.size))
        common = sorted(
            (item for item, count in counts.items() if count >= fewest), key=lambda item: (-counts[item], item)
        )
        return cls(name, tuple(sorted(common[:MOST_CATEGORIES])))

    @classmethod
    def counts(cls, values: npt.NDArray[Any]) -> Counter[str]:
        """Return of how many values each category is."""
        counts = Counter(values.tolist())
        del counts[None]
        return counts

    @property
    def n_inputs(self) -> int:
        return 2 + len(self.categories)

    @property
    def _places(self) -> dict[str | None, int]:
        return {None: 1} | {category: 2 + at for at, category in enumerate(self.categories)}

    def parts(self, values: npt.NDArray[Any]) -> list[Part]:
        inputs = np.fromiter(map(self._places.get, values.tolist(), repeat(0)), dtype=np.int64, count=values.size)
        return [(np.arange(values.size), inputs, np.ones(values.size))]

    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        return [FeatureItem(self.name, self.categories[at - 2], (at,)) for at in sorted(found) if at >= 2]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "categories": list(self.categories)}


@dataclass(frozen=True)
class ListEncoding(CategoryEncoding):
    """A list of categories; the indicators of its items are of length 1 together."""

    kind: ClassVar[str] = "list"

    @classmethod
    def counts(cls, values: npt.NDArray[Any]) -> Counter[str]:
        """Return in how many lists each category is."""
        return Counter(chain.from_iterable(items for items in values.tolist() if items is not None))

    def parts(self, values: npt.NDArray[Any]) -> list[Part]:
        places = self._places

        def inputs_of(items: tuple[str, ...] | None) -> list[int]:
            return [1] if items is None else sorted({places.get(item, 0) for item in items})

        found = convert_each(values.tolist(), inputs_of)
        counts = np.fromiter(map(len, found), dtype=np.int64, count=len(found))
        inputs = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=int(counts.sum()))
        weights = np.repeat(np.maximum(counts, 1) ** -0.5, counts)
        return [(np.repeat(np.arange(counts.size), counts), inputs, weights)]


@dataclass(frozen=True)
class DateEncoding(ColumnEncoding):
    """A date: its year and its age at the latest date that was learned from, as numbers, and its month."""

    kind: ClassVar[str] = "date"
    name: str
    latest: str
    year: NumberEncoding
    age: NumberEncoding

    @classmethod
    def learn(cls, name: str, values: npt.NDArray[Any]) -> DateEncoding:
        """Return the encoding for values, of which some may be missing."""
        known = values[~np.isnat(values)]
        latest = str(known.max()) if known.size else "1970-01-01"
        return cls(
            name,
            latest,
            NumberEncoding.learn("year", _years(values)),
            NumberEncoding.learn("age", _ages(values, latest)),
        )

    @property
    def n_inputs(self) -> int:
        return self.year.n_inputs + self.age.n_inputs + self._month.n_inputs

    @property
    def _month(self) -> CategoryEncoding:
        return CategoryEncoding("month", _MONTHS)

    def parts(self, values: npt.NDArray[Any]) -> list[Part]:
        months = values.astype("datetime64[M]").astype(np.int64) % 12
        texts = np.array([None, *_MONTHS], dtype=object)[np.where(np.isnat(values), 0, months + 1)]
        encoded = (
            self.year.parts(_years(values)),
            self.age.parts(_ages(values, self.latest)),
            self._month.parts(texts),
        )
        first = np.cumsum([0, self.year.n_inputs, self.age.n_inputs])
        return [
            (which, inputs + start, weights)
            for start, parts in zip(first, encoded, strict=True)
            for which, inputs, weights in parts
        ]

    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        year = self.year.items({at: weight for at, weight in found.items() if at < self.year.n_inputs})
        return [FeatureItem(self.name, year[0].text, tuple(range(self.n_inputs)))] if year else []

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "latest": self.latest,
            "year": self.year.to_dict(),
            "age": self.age.to_dict(),
        }


def _years(dates: npt.NDArray[Any]) -> FloatArray:
    years = dates.astype("datetime64[Y]").astype(np.float64) + 1970.0
    return np.where(np.isnat(dates), np.nan, years)


def _ages(dates: npt.NDArray[Any], latest: str) -> FloatArray:
    days = (np.datetime64(latest, "D") - dates.astype("datetime64[D]")).astype(np.float64)
    return np.where(np.isnat(dates), np.nan, days / 365.25)


ENCODINGS_OF_KINDS: dict[str, Any] = {
    encoding.kind: encoding for encoding in (NumberEncoding, CategoryEncoding, ListEncoding, DateEncoding)
}


@dataclass(frozen=True)
class FeatureEncoding:
    """The encodings of all features of an axis; input 0 says that a row (or column) has features at all."""

    columns: tuple[ColumnEncoding, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(column.name for column in self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each feature."""
        return {column.name: column.kind for column in self.columns}

    @property
    def n_inputs(self) -> int:
        """How many inputs there are."""
        return 1 + sum(column.n_inputs for column in self.columns)

    def encode(self, count: int, values: Mapping[str, npt.NDArray[Any]]) -> FeatureVectors:
        """Return some vectors encoded from values of their kinds by name; a feature without any is missing in all."""
        parts: list[Part] = [(np.arange(count), np.zeros(count, dtype=np.int64), np.ones(count))]
        for first, column in self._locate_columns():
            name = column.name
            own = values[name] if name in values else convert_values(column.kind, [None] * count, name)
            parts += [(which, inputs + first, weights) for which, inputs, weights in column.parts(own)]
        return FeatureVectors.of_parts(count, self.n_inputs, parts)

    def items(self, vectors: FeatureVectors) -> list[FeatureItem]:
        """Return all that is known of a single vector."""
        known = vectors.weights[0] != 0
        inputs, weights = vectors.inputs[0][known].tolist(), vectors.weights[0][known].tolist()
        items = []
        for first, column in self._locate_columns():
            found = {
                at - first: weight
                for at, weight in zip(inputs, weights, strict=True)
                if 0 <= at - first < column.n_inputs
            }
            items += [item._replace(inputs=tuple(first + at for at in item.inputs)) for item in column.items(found)]
        return items

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON content."""
        return {"columns": [column.to_dict() for column in self.columns]}

    def _locate_columns(self) -> Iterable[tuple[int, ColumnEncoding]]:
        first = 1
        for column in self.columns:
            yield first, column
            first += column.n_inputs
