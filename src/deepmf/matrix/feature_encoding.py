"""Encoding of features as inputs of a model: standardised numbers and dates, indicators of
categories, and vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.errors import BadFeatures, BadSetting, check_number, suggest_name
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, SingleArray
from deepmf.matrix.feature_values import (
    LISTS,
    NUMBERS,
    are_missing,
    convert_each,
    convert_values,
    to_text,
)

Part = tuple[IndexArray, IndexArray, Array]  # vector, input and weight of each non-zero


@dataclass(frozen=True)
class FeatureVectors:
    """Sparse feature vectors, padded to the same number of slots.

    inputs, weights: (vectors, slots); a weight of 0 is padding. n_inputs: number of inputs of a
        dense vector.
    """

    inputs: npt.NDArray[np.int32]
    weights: SingleArray
    n_inputs: int

    @classmethod
    def of_parts(cls, count: int, n_inputs: int, parts: Sequence[Part]) -> FeatureVectors:
        """Build vectors from parts."""
        nothing = np.empty(0, dtype=np.int64)
        which, inputs, weights = map(
            np.concatenate, zip((nothing, nothing, nothing), *parts, strict=True)
        )
        order = np.flatnonzero(weights)
        order = order[np.argsort(which[order], kind="stable")]
        which, counts = which[order], np.bincount(which[order], minlength=count)
        slots = np.arange(order.size) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = count, int(counts.max(initial=0))
        vectors = cls(np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.float32), n_inputs)
        vectors.inputs[which, slots], vectors.weights[which, slots] = inputs[order], weights[order]
        return vectors

    @classmethod
    def empty(cls, count: int, n_inputs: int) -> FeatureVectors:
        """Return vectors without any features."""
        return cls.of_parts(count, n_inputs, [])

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    def take(self, positions: Array) -> FeatureVectors:
        """Return the vectors at some positions; positions past the end are vectors without
        features."""
        inside = positions < len(self)
        if inside.all():
            return FeatureVectors(self.inputs[positions], self.weights[positions], self.n_inputs)
        return self.join(FeatureVectors.empty(1, self.n_inputs)).take(
            np.minimum(positions, len(self))
        )

    def pad(self, n_slots: int) -> FeatureVectors:
        """Return the same vectors with at least this many slots."""
        more = ((0, 0), (0, max(0, n_slots - self.inputs.shape[1])))
        if not more[1][1]:
            return self
        return FeatureVectors(np.pad(self.inputs, more), np.pad(self.weights, more), self.n_inputs)

    def join(self, others: FeatureVectors) -> FeatureVectors:
        """Return these vectors followed by others."""
        parts = self.pad(others.inputs.shape[1]), others.pad(self.inputs.shape[1])
        inputs, weights = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("inputs", "weights")
        )
        return FeatureVectors(inputs, weights, self.n_inputs)

    def without_inputs(self, groups: Sequence[Sequence[int]]) -> FeatureVectors:
        """Return a single vector once for each group of inputs, without the inputs of the group."""
        dropped = np.stack([np.isin(self.inputs[0], list(group)) for group in groups])
        inputs = np.repeat(self.inputs, len(groups), axis=0)
        return FeatureVectors(
            inputs, np.where(dropped, np.float32(0.0), self.weights), self.n_inputs
        )

    def product(self, table: Array) -> Array:
        """Return the products (vectors, width) with a table (inputs, width)."""
        products: Array = self.to_sparse() @ table
        return products

    def read_input(self, first: int, at: int = 0) -> SingleArray:
        """Return the weight of each vector at an input after the first; 0 if it has none."""
        span = slice(*self._by_input.indptr[first + at : first + at + 2])
        column_weights = np.zeros(len(self), dtype=np.float32)
        column_weights[self._by_input.indices[span]] = self._by_input.data[span]
        return column_weights

    @cached_property
    def _by_input(self) -> scipy.sparse.csc_array:
        """The vectors by input, so that a condition reads only the vectors that have its inputs."""
        which, slots = np.nonzero(self.weights)
        at = self.inputs[which, slots]
        return scipy.sparse.csc_array(
            (self.weights[which, slots], (which, at)), shape=(len(self), self.n_inputs)
        )

    def to_sparse(self) -> scipy.sparse.csr_array:
        """Return the vectors as a sparse matrix (vectors, inputs); sums over it do not depend on
        padding."""
        starts = np.arange(len(self) + 1) * self.inputs.shape[1]
        cells = self.weights.ravel(), self.inputs.ravel(), starts
        return scipy.sparse.csr_array(cells, shape=(len(self), self.n_inputs))

    @property
    def are_known(self) -> BoolArray:
        """Whether each vector has any features."""
        have_features: BoolArray = (self.weights != 0).any(axis=1)
        return have_features


# A feature has at most this many categories of its own; the others share one input.
MOST_CATEGORIES = 1000

# A category needs at least 2 vectors, and an eighth of the square root of all vectors: rarer ones
# would be memorised.
_ROOT_SHARE = 1 / 8
_FEWEST = 2

# Standardised numbers are clipped to this, so that outliers do not dominate.
LARGEST_WEIGHT = 4.0

# Numbers are constant, up to rounding, if their spread is below this share of their magnitude.
_LEAST_SPREAD = 1e-12

# In years; weights are rounded to 32 bits, so years are told apart with a margin.
_PART_OF_DAY = 1e-3

# Number of quantiles for piecewise linear interpolation, which lets a linear model follow a curve.
_N_KNOTS = 9


# Similarities are inputs for this many labels at most, evenly chosen, and the largest are shown.
MOST_SIMILAR, _MOST_SHOWN = 2000, 10


class FeatureItem(NamedTuple):
    """A known feature of a row or column: its name, its value as text, and its inputs."""

    name: str
    text: str
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class ColumnEncoding(ABC):
    """The encoding of one feature; its inputs are numbered from 0."""

    kind: ClassVar[str]
    name: str

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Number of inputs."""

    @abstractmethod
    def parts(self, values: Array) -> list[Part]:
        """Encode values of its kind."""

    @abstractmethod
    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        """Decode weights by input; a missing value gives no item."""

    def match(self, condition: Any, weights: WeightsOf) -> BoolArray:
        """Return which vectors with features meet a condition; a missing value meets none.

        weights: the weights of the vectors at one of the inputs.
        """
        raise BadSetting(
            f"{self.name} is of the kind {self.kind}, which has no conditions; use another feature"
        )


WeightsOf = Callable[[int], SingleArray]


@dataclass(frozen=True)
class NumberEncoding(ColumnEncoding):
    """A standardised number, an indicator for a missing value, and an interpolation between
    quantiles."""

    kind: ClassVar[str] = "number"
    mean: float
    spread: float
    knots: tuple[float, ...]

    @classmethod
    def learn(cls, name: str, values: FloatArray) -> NumberEncoding:
        """Learn the encoding from values, some of which may be missing."""
        numbers = values[~np.isnan(values)]
        if not numbers.size:
            return cls(name, 0.0, 1.0, ())
        knots = np.unique(np.quantile(numbers, np.linspace(0, 1, _N_KNOTS)))
        spread = float(numbers.std())
        if knots.size == 1 or spread <= _LEAST_SPREAD * np.abs(numbers).max():
            return cls(name, float(numbers.mean()), 1.0, ())
        return cls(name, float(numbers.mean()), spread, tuple(knots.tolist()))

    @property
    def n_inputs(self) -> int:
        return 2 + len(self.knots)

    def parts(self, values: Array) -> list[Part]:
        which = np.flatnonzero(~np.isnan(values))
        missing = np.flatnonzero(np.isnan(values))
        numbers = values[which]
        standard = np.clip((numbers - self.mean) / self.spread, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        parts: list[Part] = [
            (which, np.zeros(which.size, dtype=np.int64), standard),
            (missing, np.ones(missing.size, dtype=np.int64), np.ones(missing.size)),
        ]
        if self.knots:
            knots = np.array(self.knots)
            places = np.interp(numbers, knots, np.arange(knots.size))
            below = np.minimum(places.astype(np.int64), knots.size - 2)
            parts += [
                (which, 2 + below, 1.0 - (places - below)),
                (which, 3 + below, places - below),
            ]
        return parts

    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        if 1 in found or not found:
            return []
        text = self._format(self.mean + self.spread * found.get(0, 0.0))
        return [FeatureItem(self.name, text, tuple(range(self.n_inputs)))]

    def _format(self, number: float) -> str:
        return f"{number:.6g}"

    def match(self, condition: Any, weights: WeightsOf) -> BoolArray:
        if not isinstance(condition, Mapping):
            condition = {"min": condition, "max": condition}
        _check_words(self.name, condition, ("min", "max"))
        limits = {"min": -np.inf, "max": np.inf}
        limits |= {word: self._read_limit(word, limit) for word, limit in condition.items()}
        standard = weights(0)
        margin = 1e-5  # weights are rounded to 32 bits
        is_inside = standard >= (limits["min"] - self.mean) / self.spread - margin
        is_inside &= standard <= (limits["max"] - self.mean) / self.spread + margin
        is_inside &= weights(1) == 0
        return is_inside

    def _read_limit(self, word: str, limit: Any) -> float:
        check_number(f"a limit of {self.name}", limit)
        return float(limit)


@dataclass(frozen=True)
class CategoryEncoding(ColumnEncoding):
    """Indicators: one for rare categories, one for a missing value, and one for each frequent
    category."""

    kind: ClassVar[str] = "category"
    categories: tuple[str, ...]

    @classmethod
    def learn(cls, name: str, values: Array) -> CategoryEncoding:
        """Learn the encoding from values, some of which may be missing."""
        counts = cls.count(values)
        fewest = max(_FEWEST, _ROOT_SHARE * np.sqrt(values.size))
        common = [item for item, count in counts.items() if count >= fewest]
        common.sort(key=lambda item: (-counts[item], item))
        return cls(name, tuple(sorted(common[:MOST_CATEGORIES])))

    @classmethod
    def count(cls, values: Array) -> Counter[str]:
        """Count each category."""
        counts = Counter(values.tolist())
        del counts[None]
        return counts

    @property
    def n_inputs(self) -> int:
        return 2 + len(self.categories)

    @property
    def _places(self) -> dict[str | None, int]:
        return {None: 1} | {category: 2 + at for at, category in enumerate(self.categories)}

    def parts(self, values: Array) -> list[Part]:
        inputs = np.fromiter(
            map(self._places.get, values.tolist(), repeat(0)), dtype=np.int64, count=values.size
        )
        return [(np.arange(values.size), inputs, np.ones(values.size))]

    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        return [
            FeatureItem(self.name, self.categories[at - 2], (at,))
            for at in sorted(found)
            if at >= 2
        ]

    def match(self, condition: Any, weights: WeightsOf) -> BoolArray:
        if not isinstance(condition, Mapping):
            condition = {"any": condition}
        _check_words(self.name, condition, ("any", "all", "none"))
        places = self._places
        is_match: BoolArray = weights(1) == 0
        for word, words in condition.items():
            items = list(words) if isinstance(words, LISTS) else [words]
            if not items:
                raise BadSetting(f"the condition {word!r} of {self.name} has no categories")
            unknown = [item for item in items if to_text(item) not in places]
            if unknown:
                raise BadSetting(
                    f"{unknown[0]!r} is not a category of {self.name} that the model knows; "
                    f"{suggest_name(unknown[0], self.categories[:20])}"
                )
            has = [weights(places[to_text(item)]) != 0 for item in items]
            is_match &= (
                np.all(has, axis=0) if word == "all" else np.any(has, axis=0) == (word == "any")
            )
        return is_match


@dataclass(frozen=True)
class ListEncoding(CategoryEncoding):
    """A list of categories; the indicators of a list form a vector of length 1."""

    kind: ClassVar[str] = "list"

    @classmethod
    def count(cls, values: Array) -> Counter[str]:
        """Count the lists that contain each category."""
        return Counter(chain.from_iterable(items for items in values.tolist() if items is not None))

    def parts(self, values: Array) -> list[Part]:
        places = self._places

        def find_inputs(items: tuple[str, ...] | None) -> list[int]:
            return [1] if items is None else sorted({places.get(item, 0) for item in items})

        columns = convert_each(values.tolist(), find_inputs)
        counts = np.fromiter(map(len, columns), dtype=np.int64, count=len(columns))
        inputs = np.fromiter(chain.from_iterable(columns), dtype=np.int64, count=int(counts.sum()))
        weights = np.repeat(np.maximum(counts, 1) ** -0.5, counts)
        return [(np.repeat(np.arange(counts.size), counts), inputs, weights)]


class DateEncoding(NumberEncoding):
    """A date: its year, with the part of the year that has passed, as a number."""

    kind: ClassVar[str] = "date"

    @classmethod
    def learn(cls, name: str, values: Array) -> NumberEncoding:
        return super().learn(name, _compute_years(values))

    def parts(self, values: Array) -> list[Part]:
        return super().parts(_compute_years(values))

    def _format(self, number: float) -> str:
        return str(int(number + _PART_OF_DAY))

    def _read_limit(self, word: str, limit: Any) -> float:
        """Return the year of a limit, which is a date, or a year, whose first or last day is
        meant."""
        day, margin = {"min": ("01-01", -_PART_OF_DAY), "max": ("12-31", _PART_OF_DAY)}[word]
        try:
            text = f"{int(limit):04}" if isinstance(limit, NUMBERS) else str(limit)
            date = np.array([f"{text}-{day}" if text.isdigit() else text], dtype="datetime64[D]")
        except (ValueError, OverflowError):
            date = np.array(["NaT"], dtype="datetime64[D]")
        if np.isnat(date[0]):
            raise BadSetting(
                f"{limit!r} is no limit of the date {self.name}; give a year or a date"
            )
        return float(_compute_years(date)[0]) + margin


class Cycle(NamedTuple):
    """A cycle of dates, such as the hours of a day.

    least_days: what positions must span for it to be read. find_step: the step of dates in the
        cycle.
    """

    least_days: int
    length: int
    find_step: Callable[[Array], IndexArray]


def _count_units(dates: Array, unit: str, since: str) -> IndexArray:
    """Return the units of dates since the start of a longer unit."""
    begin = dates.astype(f"datetime64[{since}]")
    units: IndexArray = (dates.astype(f"datetime64[{unit}]") - begin).astype(np.int64)
    return units


CYCLES = {
    "hour": Cycle(0, 24, lambda dates: _count_units(dates, "h", "D")),
    "weekday": Cycle(14, 7, lambda dates: (_count_units(dates, "D", "W") + 3) % 7),
    "month": Cycle(730, 12, lambda dates: _count_units(dates, "M", "Y")),
}


@dataclass(frozen=True)
class PositionEncoding(NumberEncoding):
    """A number or a date along which neighbours are alike, as a number; a date also has indicators
    of its cycles.

    cycles: those of dates, as far as they span several of them.
    """

    kind: ClassVar[str] = "position"
    are_dates: bool = False
    cycles: tuple[str, ...] = ()

    @classmethod
    def learn(cls, name: str, values: Array) -> PositionEncoding:
        """Learn the encoding; every position must be given, and two must differ."""
        n_missing = int(are_missing(cls.kind, values).sum())
        if n_missing:
            raise BadFeatures(
                f"the position {name!r} is missing for {n_missing:,} of {values.size:,} labels; "
                "leave these labels out"
            )
        numbers = _to_seconds(values)
        # all of them are far from the largest weight
        encoding = super().learn(name, numbers)
        if not encoding.knots:
            raise BadFeatures(f"the positions {name!r} are all equal; leave the feature out")
        spread = float(np.abs(numbers - encoding.mean).max()) / 2.0
        are_dates = values.dtype.kind == "M"
        days = (numbers.max() - numbers.min()) / _SECONDS_A_DAY
        cycles = [
            cycle
            for cycle, (least_days, _, find_step) in CYCLES.items()
            if are_dates and days >= least_days and np.unique(find_step(values)).size > 1
        ]
        return cls(name, encoding.mean, spread, encoding.knots, are_dates, tuple(cycles))

    @property
    def first_cycle(self) -> int:
        """The first input of the cycles."""
        return super().n_inputs

    @property
    def n_inputs(self) -> int:
        return self.first_cycle + sum(CYCLES[cycle].length for cycle in self.cycles)

    def parts(self, values: Array) -> list[Part]:
        if (
            self.are_dates != (values.dtype.kind == "M")
            and not are_missing(self.kind, values).all()
        ):
            kind = "dates" if self.are_dates else "numbers"
            raise BadFeatures(f"the model was fitted with positions {self.name!r} that are {kind}")
        parts = super().parts(_to_seconds(values))
        which = np.flatnonzero(~are_missing(self.kind, values))
        first = self.first_cycle
        for cycle in self.cycles:
            steps = CYCLES[cycle].find_step(values[which])
            parts.append((which, first + steps, np.ones(which.size)))
            first += CYCLES[cycle].length
        return parts

    def _format(self, number: float) -> str:
        if not self.are_dates:
            return super()._format(number)
        return str(np.array(round(number)).astype("datetime64[s]"))

    def _read_limit(self, word: str, limit: Any) -> float:
        if not self.are_dates:
            return super()._read_limit(word, limit)
        try:
            return float(np.array(str(limit), dtype="datetime64[s]").astype(np.int64))
        except ValueError as error:
            raise BadSetting(f"the limits of {self.name} must be dates: {error}") from error


_SECONDS_A_DAY = 86_400


def _to_seconds(positions: Array) -> FloatArray:
    """Return positions as numbers: dates in seconds since 1970, NaN where one is missing."""
    if positions.dtype.kind != "M":
        return positions
    seconds = positions.astype("datetime64[s]").astype(np.float64)
    return np.where(np.isnat(positions), np.nan, seconds)


def _compute_years(dates: Array) -> FloatArray:
    years = dates.astype("datetime64[Y]")
    passed = (dates.astype("datetime64[D]") - years.astype("datetime64[D]")).astype(
        np.float64
    ) / 366
    return np.where(np.isnat(dates), np.nan, years.astype(np.float64) + 1970.0 + passed)


@dataclass(frozen=True)
class VectorEncoding(ColumnEncoding):
    """An embedding that the user brings: centred, of length 1 on average, and an indicator for a
    missing one."""

    kind: ClassVar[str] = "vector"
    means: tuple[float, ...]
    spread: float

    @classmethod
    def learn(cls, name: str, values: Array) -> VectorEncoding:
        """Learn the encoding from vectors of one length, some of which may be missing."""
        vectors = [item for item in values.tolist() if item is not None]
        table = _stack_vectors(name, vectors, len(vectors[0]))
        means = table.mean(axis=0)
        spread = float(np.sqrt(np.square(table - means).sum(axis=1).mean()))
        return cls(
            name,
            tuple(means.tolist()),
            spread if spread > _LEAST_SPREAD * np.abs(table).max() else 1.0,
        )

    @property
    def n_inputs(self) -> int:
        return len(self.means) + 1

    def parts(self, values: Array) -> list[Part]:
        missing = are_missing(self.kind, values)
        size = len(self.means)
        which = np.flatnonzero(~missing)
        gaps = np.flatnonzero(missing)
        table = (
            _stack_vectors(self.name, values[which].tolist(), size) - np.array(self.means)
        ) / self.spread
        weights = np.clip(table, -LARGEST_WEIGHT, LARGEST_WEIGHT).ravel()
        return [
            (np.repeat(which, size), np.tile(np.arange(size), which.size), weights),
            (gaps, np.full(gaps.size, size), np.ones(gaps.size)),
        ]

    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        size = len(self.means)
        if size in found or not found:
            return []
        return [FeatureItem(self.name, f"{size} numbers", tuple(range(size + 1)))]


@dataclass(frozen=True)
class SimilarityEncoding(ColumnEncoding):
    """Similarities to labels of training, an input each, and to itself, the last input.

    unit: the mean similarity of a label to itself, of which weights are shares.
    """

    kind: ClassVar[str] = "similarity"
    labels: tuple[str, ...]
    unit: float

    @classmethod
    def learn(cls, name: str, values: Array, labels: Array) -> SimilarityEncoding:
        """Learn the encoding from the similarities of some labels."""
        items = [item for item in values.tolist() if item is not None]
        others = chain.from_iterable({id(item.labels): item.labels for item in items}.values())
        trained = set(map(str, labels.tolist()))
        known = [label for label in dict.fromkeys(others) if label in trained]
        if not known:
            raise BadFeatures(
                f"the feature {name!r} has similarities to no label with entries; give those of "
                "the labels to each other"
            )
        selves = np.array([item.itself for item in items])
        selves = selves[selves > 0]
        unit = float(selves.mean()) if selves.size else 1.0
        return cls(name, tuple(known[:: -(-len(known) // MOST_SIMILAR)]), unit)

    @property
    def n_inputs(self) -> int:
        return len(self.labels) + 1

    def parts(self, values: Array) -> list[Part]:
        items = values.tolist()
        which = [at for at, item in enumerate(items) if item is not None]
        input_of = {label: at for at, label in enumerate(self.labels)}
        labels_of = {id(items[at].labels): items[at].labels for at in which}
        inputs_of = {
            place: np.array([input_of.get(label, -1) for label in labels], dtype=np.int64)
            for place, labels in labels_of.items()
        }
        if inputs_of and all((inputs < 0).all() for inputs in inputs_of.values()):
            raise BadFeatures(
                f"{self.name!r} has similarities to labels that the model does not know; it knows "
                f"those to {', '.join(self.labels[:3])}, ..."
            )
        last = np.full(len(which), len(self.labels))
        selves = np.array([items[at].itself / self.unit for at in which])
        parts: list[Part] = [
            (np.array(which, dtype=np.int64), last, np.nan_to_num(selves, nan=1.0))
        ]
        for at in which:
            inputs = inputs_of[id(items[at].labels)][items[at].at]
            is_known = inputs >= 0
            weights = items[at].weights[is_known] / self.unit
            parts.append((np.full(weights.size, at), inputs[is_known], weights))
        return [
            (at, inputs, np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT))
            for at, inputs, weights in parts
        ]

    def items(self, found: Mapping[int, float]) -> list[FeatureItem]:
        others = [at for at in found if at < len(self.labels)]
        nearest = sorted(others, key=lambda at: -found[at])[:_MOST_SHOWN]
        return [FeatureItem(self.name, self.labels[at], (at,)) for at in nearest]


def _stack_vectors(name: str, vectors: list[tuple[float, ...]], size: int) -> FloatArray:
    wrong = next((vector for vector in vectors if len(vector) != size), None)
    if wrong is not None:
        raise BadFeatures(
            f"a vector of the feature {name!r} has {len(wrong)} numbers; the others have {size}"
        )
    return np.array(vectors, dtype=np.float64).reshape(len(vectors), size)


def _check_words(name: str, condition: Mapping[str, Any], known: tuple[str, ...]) -> None:
    wrong = [word for word in condition if word not in known]
    if wrong or not condition:
        example = repr(wrong[0]) if wrong else "nothing"
        raise BadSetting(f"a condition of {name} has {', '.join(known)}; got {example}")


ENCODINGS_OF_KINDS: dict[str, Any] = {
    encoding.kind: encoding
    for encoding in (
        NumberEncoding,
        PositionEncoding,
        CategoryEncoding,
        ListEncoding,
        DateEncoding,
        VectorEncoding,
        SimilarityEncoding,
    )
}


@dataclass(frozen=True)
class FeatureEncoding:
    """The encodings of all features of an axis; input 0 marks a row (or column) that has
    features."""

    columns: tuple[ColumnEncoding, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(column.name for column in self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each feature."""
        return {column.name: column.kind for column in self.columns}

    @property
    def n_inputs(self) -> int:
        """Number of inputs."""
        return 1 + sum(column.n_inputs for column in self.columns)

    def encode(self, count: int, values: Mapping[str, Array]) -> FeatureVectors:
        """Encode `count` vectors from values by name; a feature that is not given is missing in all
        of them."""
        parts: list[Part] = [(np.arange(count), np.zeros(count, dtype=np.int64), np.ones(count))]
        for first, column in self.locate_columns():
            name = column.name
            span = (
                values[name]
                if name in values
                else convert_values(column.kind, [None] * count, name)
            )
            parts += [
                (which, inputs + first, weights) for which, inputs, weights in column.parts(span)
            ]
        return FeatureVectors.of_parts(count, self.n_inputs, parts)

    def items(self, vectors: FeatureVectors) -> list[FeatureItem]:
        """Return the known features of a single vector."""
        is_known = vectors.weights[0] != 0
        inputs = vectors.inputs[0][is_known].tolist()
        weights = vectors.weights[0][is_known].tolist()
        items = []
        for first, column in self.locate_columns():
            input_weights = {
                at - first: weight
                for at, weight in zip(inputs, weights, strict=True)
                if 0 <= at - first < column.n_inputs
            }
            items += [
                item._replace(inputs=tuple(first + at for at in item.inputs))
                for item in column.items(input_weights)
            ]
        return items

    def decode(self, vectors: FeatureVectors) -> dict[str, float | str | list[str]]:
        """Return the known features of a single vector by name: numbers, categories, years, and
        lists of categories."""
        features: dict[str, Any] = {}
        for item in self.items(vectors):
            if self.kinds[item.name] in ("list", "similarity"):
                features.setdefault(item.name, []).append(item.text)
            else:
                features[item.name] = (
                    float(item.text) if self.kinds[item.name] == "number" else item.text
                )
        return features

    def match(self, where: Mapping[str, Any], vectors: FeatureVectors) -> BoolArray:
        """Return which vectors meet all conditions.

        A number has {"min": ..., "max": ...}, or a value that it must equal; a date the same with
        years or dates; a category or a list {"any": [...]}, {"all": [...]} or {"none": [...]}, or
        the categories of which it has any.
        """
        is_match: BoolArray = vectors.read_input(0) != 0
        for first, column in self.locate_columns():
            if column.name in where:
                read = partial(vectors.read_input, first)
                is_match &= column.match(where[column.name], read)
        return is_match

    def locate_columns(self) -> Iterable[tuple[int, ColumnEncoding]]:
        """Yield the first input of each feature, and its encoding."""
        first = 1
        for column in self.columns:
            yield first, column
            first += column.n_inputs
