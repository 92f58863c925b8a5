"""Features: what is known of rows, or of columns, beside the entries."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadFeatures, DeepMFWarning
from deepmf.matrix.feature_encoding import ENCODINGS_OF_KINDS, MOST_CATEGORIES, ColumnEncoding, FeatureEncoding
from deepmf.matrix.feature_values import KINDS, kind_of, raw_values, values_as
from deepmf.matrix.feature_vectors import FeatureVectors
from deepmf.matrix.labels import Labels, label_array


class Features:
    """Numbers, categories, lists of categories and dates by label; missing values are allowed.

    kinds: "number", "category", "list" or "date" by name; those that are not given are inferred (`kinds` has them all).

    >>> films = Features.from_columns(["Alien", "Big"], {"year": [1979, 1988], "genres": ["Horror|Sci-Fi", "Comedy"]})
    >>> films
    Features(2 labels: year (number), genres (list))
    """

    def __init__(
        self, labels: Iterable[Any], columns: Mapping[str, Iterable[Any]], *, kinds: Mapping[str, str] | None = None
    ) -> None:
        array = label_array(labels, axis="feature")
        distinct, counts = np.unique(array.astype(str), return_counts=True)
        if distinct.size < array.size:
            raise BadFeatures(f"the label {distinct[counts > 1].tolist()[0]!r} has features twice; once is right")
        if not columns:
            raise BadFeatures("there are no features: at least one column beside the labels is needed")
        self.labels = array
        self._values = {str(name): raw_values(values) for name, values in columns.items()}
        for name, values in self._values.items():
            if values.size != array.size:
                raise BadFeatures(f"the feature {name!r} has {values.size} values for {array.size} labels")
        self._given = dict(kinds or {})
        self._check_kinds()

    @classmethod
    def from_columns(
        cls, labels: Iterable[Any], columns: Mapping[str, Iterable[Any]], *, kinds: Mapping[str, str] | None = None
    ) -> Features:
        """Return features by name, a value for each of some labels; None, NaN and "" are missing."""
        return cls(labels, columns, kinds=kinds)

    @classmethod
    def from_frame(cls, frame: Any, label: str, *, kinds: Mapping[str, str] | None = None) -> Features:
        """Return the columns of a frame (pandas, polars, arrow, ...) as features; `label` names that of the labels."""
        from deepmf.matrix.frames import feature_columns

        return cls(*feature_columns(frame, label), kinds=kinds)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(self._values)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each feature: as given, or as its values look."""
        return {name: self._given.get(name) or kind_of(values) for name, values in self._values.items()}

    def __len__(self) -> int:
        return int(self.labels.size)

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} ({kind})" for name, kind in self.kinds.items())
        return f"Features({len(self):,} label{'s' if len(self) != 1 else ''}: {listed})"

    def encoding(self) -> FeatureEncoding:
        """Return the encoding of features like these; it stays as it is when others are encoded by it."""
        return FeatureEncoding(tuple(self._column_encoding(name, kind) for name, kind in self.kinds.items()))

    def encoded(self, encoding: FeatureEncoding) -> FeatureVectors:
        """Return these features by an encoding; those that it does not know are refused."""
        check_names(self._values, encoding)
        return encoding.encode(len(self), self._values)

    def beyond(self, labels: Labels) -> Features | None:
        """Return the features of labels that are not among some; None where there are none."""
        new = np.flatnonzero(labels.find(self.labels) < 0)
        if not new.size:
            return None
        return Features(
            self.labels[new], {name: values[new] for name, values in self._values.items()}, kinds=self.kinds
        )

    def check_labels(self, labels: Labels) -> None:
        """Refuse features none of whose labels a matrix has."""
        if len(self) and not np.any(labels.find(self.labels) >= 0):
            own, theirs = (reprlib.repr(each[:1].tolist()[0]) for each in (self.labels, labels.array))
            raise BadFeatures(
                f"no label of the {labels.axis} features is a {labels.axis} of the matrix: "
                f"features are of {own} ({type(self.labels[:1].tolist()[0]).__name__}) and so on, "
                f"the {labels.axis}s are {theirs} ({type(labels.array[:1].tolist()[0]).__name__}) and so on"
            )

    def _check_kinds(self) -> None:
        for name, kind in self._given.items():
            if name not in self._values:
                raise BadFeatures(f"there is no feature {name!r} to be a {kind}; there are {', '.join(self.names)}")
            if kind not in KINDS:
                raise BadFeatures(f"the kind of {name!r} must be one of {', '.join(KINDS)}; got {kind!r}")

    def _column_encoding(self, name: str, kind: str) -> ColumnEncoding:
        values = values_as(kind, self._values[name], name)
        missing = np.isnan(values) if kind == "number" else np.isnat(values) if kind == "date" else values == None  # noqa: E711
        if np.all(missing):
            raise BadFeatures(f"the feature {name!r} has no value at all; leave it out")
        known = values[~missing]
        if not np.any(missing) and all(each == known[0] for each in known[1:]):
            warnings.warn(
                f"the feature {name!r} is {known[0]} everywhere, and so says nothing", DeepMFWarning, stacklevel=5
            )
        if kind in ("category", "list"):
            _warn_of_many(
                name, known if kind == "category" else np.concatenate([np.array(each, dtype=object) for each in known])
            )
        encoding: ColumnEncoding = ENCODINGS_OF_KINDS[kind].learned(name, values)
        return encoding


def check_names(names: Iterable[str], encoding: FeatureEncoding) -> None:
    """Refuse features that a model was not fitted with."""
    unknown = [name for name in names if name not in encoding.names]
    if unknown:
        raise BadFeatures(
            f"the model was fitted without the feature {unknown[0]!r}; it knows {', '.join(encoding.names)}"
        )


def _warn_of_many(name: str, items: npt.NDArray[Any]) -> None:
    n_distinct = len(set(items.tolist()))
    if n_distinct > MOST_CATEGORIES:
        warnings.warn(
            f"the feature {name!r} has {n_distinct:,} categories; no more than the {MOST_CATEGORIES:,} most frequent "
            "are told apart",
            DeepMFWarning,
            stacklevel=6,
        )
