"""Encoded features of some rows, or of some columns: for each a few inputs and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.matrix.arrays import IndexArray


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

    def padded(self, n_slots: int) -> FeatureVectors:
        """Return the same vectors with at least this many slots."""
        more = ((0, 0), (0, max(0, n_slots - self.inputs.shape[1])))
        if not more[1][1]:
            return self
        return FeatureVectors(np.pad(self.inputs, more), np.pad(self.weights, more), self.n_inputs)

    def followed_by(self, others: FeatureVectors) -> FeatureVectors:
        """Return these vectors and others."""
        n_slots = max(self.inputs.shape[1], others.inputs.shape[1])
        parts = self.padded(n_slots), others.padded(n_slots)
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
