"""Features (side information) of rows and columns: as the user gives them, and encoded for a
model."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from deepmf.errors import BadEntries, BadFeatures, show_value, warn
from deepmf.matrix.arrays import Array, BoolArray, IndexArray
from deepmf.matrix.feature_encoding import (
    ENCODINGS_OF_KINDS,
    MOST_CATEGORIES,
    CategoryEncoding,
    ColumnEncoding,
    FeatureEncoding,
    FeatureVectors,
)
from deepmf.matrix.feature_values import KINDS, are_missing, convert_values, infer_kind, read_values
from deepmf.matrix.labels import Labels
from deepmf.matrix.similarity import read_similarities


class Features:
    """Numbers, categories, lists of categories, dates and vectors of rows or columns, with gaps.

    Parameters
    ----------
    labels : distinct row or column labels.
    columns : values of each feature by name, one for each label; None, NaN and "" are missing.
    kinds : "number", "category", "list", "date", "vector" (an embedding, of one length for all
        labels), "similarity" (dicts of numbers by label) or "position" (numbers or dates along
        which neighbours are alike) by name (default: inferred from the values, which never gives
        positions).

    >>> films = Features.from_columns(["Alien", "Big"], {"year": [1979, 1988], "genres": ["Horror|Sci-Fi", "Comedy"]})
    >>> films
    Features(2 labels: year (number), genres (list))
    """

    def __init__(
        self,
        labels: Iterable[Any],
        columns: Mapping[str, Iterable[Any]],
        *,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        try:
            self.labels = Labels(labels, axis="feature").array
        except BadEntries as error:
            raise BadFeatures(f"the labels of the features are wrong: {error}") from error
        if not isinstance(columns, Mapping) or not columns:
            raise BadFeatures(
                f"features must be a dict of at least one list by name; got {show_value(columns)}"
            )
        self._values = {
            str(name): _read_column(str(name), values) for name, values in columns.items()
        }
        if len(self._values) < len(columns):
            raise BadFeatures(
                f"two features have the same name; got {', '.join(map(repr, columns))}"
            )
        for name, values in self._values.items():
            if values.size != self.labels.size:
                raise BadFeatures(
                    f"the feature {name!r} has {values.size} values for {self.labels.size} labels"
                )
        self._given = dict(kinds or {})
        self._converted: dict[str, Array] = {}
        for name, kind in self._given.items():
            if name not in self._values or kind not in KINDS:
                raise BadFeatures(
                    f"a kind must be that of a feature ({', '.join(self.names)}), and one of "
                    f"{', '.join(KINDS)}; got {kind!r} for {name!r}"
                )

    @classmethod
    def from_columns(
        cls,
        labels: Iterable[Any],
        columns: Mapping[str, Iterable[Any]],
        *,
        kinds: Mapping[str, str] | None = None,
    ) -> Features:
        """Build features from labels and a dict of columns."""
        return cls(labels, columns, kinds=kinds)

    @classmethod
    def from_frame(
        cls, frame: Any, label: str, *, kinds: Mapping[str, str] | None = None
    ) -> Features:
        """Build features from the columns of a frame (pandas, polars, arrow, ...).

        `label` names the column of labels, or the index of a pandas frame.
        """
        from deepmf.matrix.frames import read_feature_columns

        return cls.from_columns(*read_feature_columns(frame, label), kinds=kinds)

    @classmethod
    def from_similarity(
        cls, labels: Iterable[Any], similarity: Any, to: Iterable[Any] | None = None
    ) -> Features:
        """Build the feature "similarity": how much labels are alike.

        Parameters
        ----------
        labels : distinct row or column labels.
        similarity : a symmetric array, frame or sparse matrix (labels, labels), larger is more
            alike, such as a kernel; with `to`, (labels, known labels).
        to : known labels, where `labels` are new ones.

        >>> Features.from_similarity(["Alien", "Aliens"], [[1.0, 0.9], [0.9, 1.0]])
        Features(2 labels: similarity (similarity))
        """
        try:
            new, known = (
                None if each is None else Labels(each, axis="feature") for each in (labels, to)
            )
        except BadEntries as error:
            raise BadFeatures(f"the labels of the similarity are wrong: {error}") from error
        assert new is not None
        columns = {"similarity": read_similarities(new, similarity, known)}
        return cls(new.array, columns, kinds={"similarity": "similarity"})

    def join(self, others: Features) -> Features:
        """Return these features and others, which may have other labels and must have other
        names."""
        twice = [name for name in others.names if name in self.names]
        if twice:
            raise BadFeatures(f"both features have the name {twice[0]!r}")
        labels = dict.fromkeys([*self.labels.tolist(), *others.labels.tolist()])
        columns = {}
        for features in (self, others):
            for name in features.names:
                values = features.pair(name)
                columns[name] = [values.get(label) for label in labels]
        return Features(labels, columns, kinds=self._given | others._given)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(self._values)

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """Kind of each feature, given or inferred."""
        return {
            name: self._given.get(name) or infer_kind(values)
            for name, values in self._values.items()
        }

    def values(self, name: str) -> Array:
        """Return the values of a feature, (labels,).

        Numbers are floats, dates are days, categories are strings and lists are tuples of strings.
        Missing values are NaN, NaT, None and None.
        """
        if name not in self._values:
            raise BadFeatures(f"there is no feature {name!r}; there are {', '.join(self.names)}")
        if name not in self._converted:
            self._converted[name] = convert_values(self.kinds[name], self._values[name], name)
        return self._converted[name]

    def __len__(self) -> int:
        return int(self.labels.size)

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} ({kind})" for name, kind in self.kinds.items())
        return f"Features({len(self):,} label{'s' if len(self) != 1 else ''}: {listed})"

    def learn_encoding(self, positions: IndexArray | None = None) -> FeatureEncoding:
        """Learn an encoding from the features at some positions (default: all).

        Kinds that were not given are inferred from the values at these positions.
        """
        return (
            self if positions is None or positions.size == len(self) else self.take(positions)
        )._encoding

    @cached_property
    def _encoding(self) -> FeatureEncoding:
        return FeatureEncoding(
            tuple(self._learn_column_encoding(name, kind) for name, kind in self.kinds.items())
        )

    def encode(self, encoding: FeatureEncoding) -> FeatureVectors:
        """Encode the features; raise an error if the encoding lacks one or has it with another
        kind."""
        check_names(self._values, encoding)
        fitted_kinds = encoding.kinds
        for name, kind in self._given.items():
            if fitted_kinds[name] != kind:
                raise BadFeatures(
                    f"the model was fitted with the feature {name!r} as a {fitted_kinds[name]}, not as a {kind}"
                )
        values = {
            name: self.values(name)
            if self.kinds[name] == fitted_kinds[name]
            else convert_values(fitted_kinds[name], raw, name)
            for name, raw in self._values.items()
        }
        return encoding.encode(len(self), values)

    def pair(self, name: str) -> dict[Any, Any]:
        """Return the values of a feature as they were given, by label."""
        return dict(zip(self.labels.tolist(), self._values[name].tolist(), strict=True))

    def drop(self, name: str) -> Features | None:
        """Return the features without one of them; None if it is the only one."""
        columns = {column: values for column, values in self._values.items() if column != name}
        kinds = {column: kind for column, kind in self._given.items() if column != name}
        return Features(self.labels, columns, kinds=kinds) if columns else None

    def take_unknown(self, labels: Labels) -> Features | None:
        """Return the features of labels that are not among some labels; None if there are none."""
        unknown = np.flatnonzero(labels.find(self.labels) < 0)
        return self.take(unknown) if unknown.size else None

    def take(self, positions: Array) -> Features:
        """Return the features of the labels at some positions."""
        columns = {name: values[positions] for name, values in self._values.items()}
        return Features(self.labels[positions], columns, kinds=self._given)

    def relabel(self, labels: Iterable[Any]) -> Features:
        """Return the same features under other labels."""
        return Features(labels, self._values, kinds=self._given)

    def with_kinds(self, kinds: Mapping[str, str]) -> Features:
        """Return the same features with other kinds."""
        return Features(self.labels, self._values, kinds=self._given | dict(kinds))

    def check_labels(self, labels: Labels) -> None:
        """Raise an error if no label is among the labels of a matrix."""
        if len(self) and not np.any(labels.find(self.labels) >= 0):
            example, other_example = (
                reprlib.repr(axis_labels[:1].tolist()[0])
                for axis_labels in (self.labels, labels.array)
            )
            raise BadFeatures(
                f"no label of the {labels.axis} features is a {labels.axis} of the matrix: features have labels such "
                f"as {example} ({type(self.labels[:1].tolist()[0]).__name__}), the matrix has {labels.axis}s such as "
                f"{other_example} ({type(labels.array[:1].tolist()[0]).__name__})"
            )

    def _learn_column_encoding(self, name: str, kind: str) -> ColumnEncoding:
        values = self.values(name)
        missing = are_missing(kind, values)
        if np.all(missing):
            raise BadFeatures(f"the feature {name!r} has no values; leave it out")
        learn = ENCODINGS_OF_KINDS[kind].learn
        if kind == "similarity":
            learn = partial(learn, labels=self.labels)
        encoding: ColumnEncoding = learn(name, values)
        first = values[np.argmin(missing)]
        doubt = _find_doubt(encoding, values) if isinstance(encoding, CategoryEncoding) else None
        if not np.any(missing) and all(value == first for value in values):
            doubt = f"the feature {name!r} is always {first} and has no effect"
        if doubt is not None:
            warn(doubt)
        return encoding


def _read_column(name: str, values: Iterable[Any]) -> Array:
    try:
        return read_values(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadFeatures(f"the feature {name!r} cannot be read: {error}") from error


def check_names(names: Iterable[str], encoding: FeatureEncoding) -> None:
    """Raise an error if a model was fitted without one of the features."""
    unknown = [name for name in names if name not in encoding.names]
    if unknown:
        raise BadFeatures(
            f"the model was fitted without the feature {unknown[0]!r}; it knows {', '.join(encoding.names)}"
        )


def _find_doubt(encoding: CategoryEncoding, values: Array) -> str | None:
    """Return a warning if categories are too many or too rare to learn from; None if they are
    not."""
    n_distinct = len(encoding.count(values))
    n_apart = len(encoding.categories)
    subject = f"the feature {encoding.name!r} has {n_distinct:,} categories"
    if not n_apart:
        return f"{subject}, all too rare to learn from, and has no effect"
    if n_distinct > MOST_CATEGORIES:
        return f"{subject}; only the {n_apart:,} most frequent ones are used"
    return None


@dataclass(frozen=True)
class AxisFeatures:
    """Encoded features of all rows (or columns) of a model.

    base: features at training. positions, extra: increasing positions of later features, and these
        features.
    """

    encoding: FeatureEncoding
    base: FeatureVectors
    positions: IndexArray
    extra: FeatureVectors

    @classmethod
    def of(
        cls, labels: Labels, features: Features, counts: IndexArray | None = None
    ) -> AxisFeatures:
        """Encode features for the labels of a matrix.

        counts: number of training entries of each label. The encoding is learned only from labels
            with entries, or from all labels of the matrix if there are no counts.
        """
        features.check_labels(labels)
        at = labels.find(features.labels)
        trained = at >= 0 if counts is None else (at >= 0) & (counts[at] > 0)
        encoding = features.learn_encoding(np.flatnonzero(trained))
        vectors = features.encode(encoding)
        vector_of = np.full(len(labels), len(features))  # past the last vector: no features
        vector_of[at[at >= 0]] = np.flatnonzero(at >= 0)
        nothing = FeatureVectors.empty(0, encoding.n_inputs)
        return cls(encoding, vectors.take(vector_of), np.empty(0, dtype=np.int64), nothing)

    @property
    def n_inputs(self) -> int:
        """Number of inputs of a feature vector."""
        return self.encoding.n_inputs

    def take(self, positions: Array) -> FeatureVectors:
        """Return the features at some positions."""
        if not self.positions.size:
            return self.base.take(positions)
        places = np.minimum(np.searchsorted(self.positions, positions), self.positions.size - 1)
        newer = self.positions[places] == positions
        vectors = self.base.take(positions).join(self.extra.take(places[newer]))
        order = np.arange(positions.size)
        order[newer] = np.arange(positions.size, len(vectors))
        return vectors.take(order)

    def replace(self, positions: IndexArray, vectors: FeatureVectors) -> AxisFeatures:
        """Return features with other vectors at some positions."""
        remaining = np.flatnonzero(~np.isin(self.positions, positions))
        together = np.concatenate([self.positions[remaining], positions])
        order = np.argsort(together)
        return replace(
            self,
            positions=together[order],
            extra=self.extra.take(remaining).join(vectors).take(order),
        )

    def clear(self, positions: IndexArray) -> AxisFeatures:
        """Return features with nothing at some positions."""
        places = np.flatnonzero(~np.isin(self.positions, positions))
        changed = replace(self, positions=self.positions[places], extra=self.extra.take(places))
        trained = positions[positions < len(self.base)]
        trained = trained[self.base.take(trained).are_known]
        return changed.replace(trained, FeatureVectors.empty(trained.size, self.n_inputs))

    def without(self, forgotten: IndexArray) -> AxisFeatures:
        """Return features without some positions; new positions are removed, so later ones move
        up."""
        cleared = self.clear(forgotten)
        gone = forgotten[forgotten >= len(self.base)]
        return replace(
            cleared, positions=cleared.positions - np.searchsorted(gone, cleared.positions)
        )

    def match(self, where: Mapping[str, Any], count: int) -> BoolArray:
        """Return which of the first `count` positions meet all conditions, by name (see
        `FeatureEncoding.match`)."""
        self.check_conditions(where)
        is_match = np.zeros(count, dtype=bool)
        base_match = self.encoding.match(where, self.base)[:count]
        is_match[: base_match.size] = base_match
        is_match[self.positions] = self.encoding.match(where, self.extra)
        return is_match

    def check_conditions(self, where: Mapping[str, Any]) -> None:
        """Refuse conditions on unknown features or categories, and conditions of another kind."""
        check_names(where, self.encoding)
        self.encoding.match(where, FeatureVectors.empty(0, self.n_inputs))

    def are_as_trained(self, positions: IndexArray) -> BoolArray:
        """Return whether each position has its features of training."""
        return ~np.isin(positions, self.positions)

    def digest(self) -> str:
        """Return a short fingerprint of the features."""
        digest = hashlib.sha256(repr(self.encoding).encode())
        for array in (self.base.inputs, self.base.weights):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def encode_one(self, values: Mapping[str, Any] | None) -> FeatureVectors:
        """Encode the features of a single row or column from values by name; all of them may be
        missing."""
        given: object = values
        if given is not None and not isinstance(given, Mapping):
            kind = type(given).__name__
            raise BadFeatures(
                f"the features of a row or column must be a dict of values by name; got {kind}"
            )
        if not values:
            return FeatureVectors.empty(1, self.n_inputs)
        check_names(values, self.encoding)
        kinds = self.encoding.kinds
        converted = {
            name: convert_values(kinds[name], [value], name) for name, value in values.items()
        }
        return self.encoding.encode(1, converted)
