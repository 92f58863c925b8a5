"""Models of interactions: entries without values, which only the presence part of a model can rank.

Such a model has no latents. Its predictor refuses every question about values, and rows or columns
are similar if they have many entries in common.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, OTHER_AXIS, Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.recommend.ranking import Ranking, rank_cosines
from deepmf.scoring.distribution import PredictiveDistribution
from deepmf.scoring.encoders import Encoder
from deepmf.scoring.factors import Factors
from deepmf.scoring.latents import Latents
from deepmf.scoring.pairs import NO_VALUES
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Packed


class InteractionPredictor(Predictor):
    """Knows rows and columns, and nothing about values; every interaction is liked."""

    @classmethod
    def of_entries(cls, entries: EntryStore) -> Self:
        """Return the predictor of all rows and columns of a store."""
        rows, columns = (
            Latents(np.zeros((count, 1), dtype=np.float32)) for count in entries.train.shape
        )
        factors = Factors(rows, columns, _InteractionEncoder(), n_beside=1)
        trained = cls.of(factors, _InteractionReadout(entries.scale))
        n_rows, n_columns = entries.train.shape
        return trained.extend(
            entries,
            np.arange(n_rows, len(entries.rows)),
            np.arange(n_columns, len(entries.columns)),
        )

    def pack(self) -> Packed:
        return Packed({}, {})


class _InteractionEncoder(Encoder):
    """The presence part reads entries itself."""

    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        return np.zeros((entries.starts.size - 1, 1), dtype=np.float32)


class _InteractionReadout(Readout):
    """Refuses to read values."""

    def units(self, scores: Array) -> FloatArray:
        """Return one for each pair: an interaction that happens once."""
        return np.ones(scores.shape)

    def values(self, scores: Array) -> FloatArray:
        raise BadSetting(NO_VALUES)

    def distribution(self, products: Array, row_fields: LatentArray) -> PredictiveDistribution:
        raise BadSetting(NO_VALUES)


def find_similar(
    entries: EntryStore, axis: Axis, label: Any, n: int, *, barred: IndexArray = NOTHING
) -> Ranking:
    """Return the n rows (or columns) with the largest cosines: shared entries / sqrt(entries of one
    * of the other)."""
    labels, counts = entries.get_labels(axis), entries.get_counts(axis)
    position = labels.positions([label])
    others = entries.all_entries(axis, position).others
    sharing = entries.all_entries(OTHER_AXIS[axis], others).others
    shared = np.bincount(sharing, minlength=len(labels))
    cosines = np.minimum(shared / np.sqrt(np.maximum(counts * counts[position], 1)), 1.0)
    return rank_cosines(cosines, labels, position[0], n, barred=barred)
