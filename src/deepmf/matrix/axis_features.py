"""The features of all rows, or of all columns, that a model knows: those of training, and those that came since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadFeatures
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.feature_encoding import FeatureEncoding
from deepmf.matrix.feature_values import values_as
from deepmf.matrix.feature_vectors import FeatureVectors
from deepmf.matrix.features import Features, check_names
from deepmf.matrix.labels import Labels


@dataclass(frozen=True)
class AxisFeatures:
    """Encoded features by position, which can be changed and lengthened without copying those of training.

    base: those of training. positions: where they came later, in increasing order. extra: these.
    """

    encoding: FeatureEncoding
    base: FeatureVectors
    positions: IndexArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    extra: FeatureVectors | None = None

    @classmethod
    def of(cls, labels: Labels, features: Features, counts: IndexArray | None = None) -> AxisFeatures:
        """Return features for the labels of a matrix.

        counts: how many training entries each label has. The encoding is learned from labels with entries alone (all
        labels of the matrix unless counts are given); features of the others are encoded by it, as by `extend`.
        """
        features.check_labels(labels)
        at = labels.find(features.labels)
        trained = at >= 0 if counts is None else (at >= 0) & (counts[at] > 0)
        encoding = features.encoding(np.flatnonzero(trained))
        vectors = features.encoded(encoding)
        own = np.full(len(labels), len(features))  # behind the last one: no features
        own[at[at >= 0]] = np.flatnonzero(at >= 0)
        return cls(encoding, vectors.take(own))

    @property
    def n_inputs(self) -> int:
        """How many inputs a vector of features has."""
        return self.encoding.n_inputs

    def take(self, positions: npt.NDArray[Any]) -> FeatureVectors:
        """Return the features at some positions."""
        if self.extra is None:
            return self.base.take(positions)
        places = np.minimum(np.searchsorted(self.positions, positions), self.positions.size - 1)
        newer = self.positions[places] == positions
        taken, extra = self.base.padded(0).take(positions), self.extra.take(places[newer])
        n_slots = max(taken.inputs.shape[1], extra.inputs.shape[1])
        taken, extra = taken.padded(n_slots), extra.padded(n_slots)
        taken.inputs[newer], taken.weights[newer] = extra.inputs, extra.weights
        return taken

    def changed(self, positions: IndexArray, vectors: FeatureVectors) -> AxisFeatures:
        """Return a table in which some positions have other features."""
        if not positions.size:
            return self
        order = np.argsort(positions)
        positions, vectors = positions[order], vectors.take(order)
        if self.extra is None:
            return AxisFeatures(self.encoding, self.base, positions, vectors)
        kept = np.flatnonzero(~np.isin(self.positions, positions))
        together = np.concatenate([self.positions[kept], positions])
        order = np.argsort(together)
        return AxisFeatures(
            self.encoding, self.base, together[order], self.extra.take(kept).followed_by(vectors).take(order)
        )

    def cleared(self, positions: IndexArray) -> AxisFeatures:
        """Return a table in which some positions have no features."""
        if not positions.size:
            return self
        left = self
        if self.extra is not None:
            kept = np.flatnonzero(~np.isin(self.positions, positions))
            extra = self.extra.take(kept) if kept.size else None
            left = AxisFeatures(self.encoding, self.base, self.positions[kept], extra)
        trained = positions[positions < len(self.base)]
        trained = trained[self.base.take(trained).are_known]
        return left.changed(trained, FeatureVectors.empty(trained.size, self.n_inputs)) if trained.size else left

    def without(self, forgotten: IndexArray) -> AxisFeatures:
        """Return a table without the features at some positions; behind those of training, later ones move up."""
        cleared, gone = self.cleared(forgotten), forgotten[forgotten >= len(self.base)]
        if not gone.size:
            return cleared
        moved = cleared.positions - np.searchsorted(gone, cleared.positions)
        return AxisFeatures(self.encoding, self.base, moved, cleared.extra)

    def are_as_trained(self, positions: IndexArray) -> npt.NDArray[np.bool_]:
        """Say where the features are those of training."""
        return ~np.isin(positions, self.positions)

    def digest(self) -> str:
        """Return a short fingerprint of the features."""
        found = hashlib.sha256(json.dumps(self.encoding.to_dict(), sort_keys=True).encode())
        for array in (self.base.inputs, self.base.weights):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()[:16]

    def of_one(self, values: Mapping[str, Any] | None) -> FeatureVectors:
        """Return the features of a single row or column from values by name, which may lack some, or all."""
        given: object = values
        if given is not None and not isinstance(given, Mapping):
            kind = type(given).__name__
            raise BadFeatures(f"the features of one row or column are values by name, such as a dict; got {kind}")
        if not values:
            return FeatureVectors.empty(1, self.n_inputs)
        check_names(values, self.encoding)
        kinds = self.encoding.kinds
        return self.encoding.encode(1, {name: values_as(kinds[name], [each], name) for name, each in values.items()})
