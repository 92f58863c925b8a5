"""How features become inputs of a model: numbers are standardised, categories and dates become indicators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.feature_values import mapped, values_as
from deepmf.matrix.feature_vectors import FeatureVectors

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
    def learned(cls, name: str, values: FloatArray) -> NumberEncoding:
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
    def learned(cls, name: str, values: npt.NDArray[Any]) -> CategoryEncoding:
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

        found = mapped(values.tolist(), inputs_of)
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
    def learned(cls, name: str, values: npt.NDArray[Any]) -> DateEncoding:
        """Return the encoding for values, of which some may be missing."""
        known = values[~np.isnat(values)]
        latest = str(known.max()) if known.size else "1970-01-01"
        return cls(
            name,
            latest,
            NumberEncoding.learned("year", _years(values)),
            NumberEncoding.learned("age", _ages(values, latest)),
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
        for first, column in self._placed():
            name = column.name
            own = values[name] if name in values else values_as(column.kind, [None] * count, name)
            parts += [(which, inputs + first, weights) for which, inputs, weights in column.parts(own)]
        return FeatureVectors.of_parts(count, self.n_inputs, parts)

    def items(self, vectors: FeatureVectors) -> list[FeatureItem]:
        """Return all that is known of a single vector."""
        known = vectors.weights[0] != 0
        inputs, weights = vectors.inputs[0][known].tolist(), vectors.weights[0][known].tolist()
        items = []
        for first, column in self._placed():
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

    def _placed(self) -> Iterable[tuple[int, ColumnEncoding]]:
        first = 1
        for column in self.columns:
            yield first, column
            first += column.n_inputs
