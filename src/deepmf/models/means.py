"""Shrunk means: the plainest model, which every other one must beat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.fallback import mean_at, shrunk_effects
from deepmf.models.means_settings import MeansSettings
from deepmf.models.model import Model
from deepmf.storage.packed import Packed, Tensors, field, number, numbers
from deepmf.training.loop import Callback
from deepmf.training.settings import Settings


class Means(Model):
    """Overall mean + column effect + row effect, each shrunk to 0 where there are few entries; covers all four areas.

    A column's effect is the mean of its entries above the overall mean, a row's the mean of what is left then.

    >>> from deepmf.matrix.matrix import ObservedMatrix
    >>> model = Means(shrinkage=0).fit(ObservedMatrix.from_array([[1, 2], [3, np.nan]]))
    >>> model.predict([1], [1])
    array([3.])
    """

    settings_class: ClassVar[type[Settings]] = MeansSettings
    settings: MeansSettings
    mean_: float
    row_effects_: FloatArray
    column_effects_: FloatArray

    def _fit(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        *,
        callbacks: Sequence[Callback],
        checkpoint: Path | None,
        checkpoint_every: int,
    ) -> None:
        self.observations_ = EntryStore.of(train)
        self.mean_ = train.mean
        self.row_effects_, self.column_effects_ = np.empty(0), np.empty(0)
        n_rows, n_columns = train.shape
        self._extend(np.arange(n_rows), np.arange(n_columns))

    def _extend(self, rows: IndexArray, columns: IndexArray) -> None:
        # Column effects from the column's own entries alone, so that a new column is described by known rows only.
        seen = self._seen
        entries = seen.column_entries(columns)
        effects = np.zeros(len(seen.columns))
        effects[: self.column_effects_.size] = self.column_effects_
        effects[columns] = shrunk_effects(entries, entries.values - self.mean_, self.settings.shrinkage)
        self.column_effects_ = effects
        entries = seen.row_entries(rows)
        effects = np.zeros(len(seen.rows))
        effects[: self.row_effects_.size] = self.row_effects_
        deviations = entries.values - self.mean_ - self.column_effects_[entries.others]
        effects[rows] = shrunk_effects(entries, deviations, self.settings.shrinkage)
        self.row_effects_ = effects

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._means_of_known(rows, columns)

    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self.mean_ + self.row_effects_[rows][:, None] + self.column_effects_[columns]

    def _means_of_known(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        return mean_at(self.mean_, self.row_effects_, self.column_effects_, rows, columns)

    def _learned(self) -> Packed:
        effects = {"effects.rows": self.row_effects_, "effects.columns": self.column_effects_}
        return Packed({"mean": self.mean_}, effects)

    def _set_learned(self, content: Any, tensors: Tensors) -> None:
        self.mean_ = number(field(content, "mean"), "a stored mean")
        self.row_effects_ = numbers(tensors, "effects.rows", "float64", (len(self._seen.rows),))
        self.column_effects_ = numbers(tensors, "effects.columns", "float64", (len(self._seen.columns),))
