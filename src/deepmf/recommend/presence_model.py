"""The interface of presence models: EASE (`ease.py`) and weighted ALS (`weighted_als.py`).

A presence model reads the 0/1 matrix X of the positions of all entries. A row is described by its entries when it is
ranked, so that rows fold in without training and nothing can become stale.

Entries of interactions have counts. An entry that happened c times weighs 1 + count_weight * log(c).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.storage.model_file import Tensors

CPU = torch.device("cpu")

Numbers = TypeVar("Numbers", npt.NDArray[Any], Tensor)  # tensors lie on the device of a fit

PAIRS_AT_A_TIME = 1 << 16  # pairs of a row and a column whose numbers are gathered together


class PresenceModel(ABC):
    """Scores which entries exist, from the positions of other entries."""

    kind: ClassVar[str]
    penalty: float
    count_weight: float

    @classmethod
    @abstractmethod
    def prepare(cls, train: ObservedMatrix, count_weight: float = 0.0, device: torch.device = CPU) -> Any:
        """Return the data that fits with different penalties share, on the device to fit on."""

    @classmethod
    @abstractmethod
    def narrow(cls, prepared: Any, columns: IndexArray) -> Any:
        """Return the prepared data of some columns, in increasing order."""

    @classmethod
    @abstractmethod
    def fit_prepared(cls, prepared: Any, penalty: float) -> Self:
        """Return the model of a prepared matrix."""

    @classmethod
    def fit(cls, train: ObservedMatrix, penalty: float, count_weight: float = 0.0, device: torch.device = CPU) -> Self:
        """Return the model of a matrix."""
        return cls.fit_prepared(cls.prepare(train, count_weight, device), penalty)

    @classmethod
    @abstractmethod
    def list_penalties(cls, train: ObservedMatrix) -> list[float]:
        """Return the penalties to try on held-out entries, the usual one first."""

    @property
    @abstractmethod
    def n_trained(self) -> int:
        """The number of trained columns."""

    @abstractmethod
    def encode_rows(self, entries: AxisEntries) -> Any:
        """Return rows with these entries over the trained columns, ready for scoring."""

    @abstractmethod
    def score_block(self, encoded: Any, columns: slice | IndexArray) -> npt.NDArray[Any]:
        """Return the scores (rows, columns) of encoded rows; larger is likelier."""

    @abstractmethod
    def score_pairs(self, encoded: Any, columns: IndexArray) -> npt.NDArray[Any]:
        """Return the scores (rows, n) of encoded rows for columns (rows, n) of their own."""

    def score_all(self, entries: AxisEntries, columns: IndexArray, device: torch.device) -> Tensor:
        """Return the scores (rows, columns) of rows with these entries, on a device."""
        return self.send(columns, device).score(entries)

    @abstractmethod
    def send(self, columns: IndexArray, device: torch.device) -> DevicePresence:
        """Return the model of some columns on a device."""

    @abstractmethod
    def find_effects(self, entries: AxisEntries, column: int) -> FloatArray:
        """Return how much each entry of a single row adds to its score for a column."""

    @abstractmethod
    def extend(self, entries: EntryStore, columns: IndexArray) -> PresenceModel:
        """Return a model in which the new columns among some positions are described by their entries."""

    @abstractmethod
    def without_columns(self, columns: IndexArray) -> PresenceModel:
        """Return a model without some new columns."""

    @abstractmethod
    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the learned tensors by name; new columns are left out, because their entries describe them."""

    @classmethod
    @abstractmethod
    def unpack(cls, tensors: Tensors, entries: EntryStore, penalty: float, count_weight: float = 0.0) -> PresenceModel:
        """Return the model whose `pack` gave these tensors, with the new columns of a store."""


class DevicePresence(Protocol):
    """A presence model of some columns on a device, such as a GPU."""

    def score(self, entries: AxisEntries) -> Tensor:
        """Return the scores (rows, columns) of rows with these entries over the trained columns."""
        ...


def weigh_counts(counts: FloatArray, count_weight: float) -> LatentArray:
    """Return the weight of each entry by its count."""
    if not count_weight:
        return np.ones(counts.shape, dtype=np.float32)
    return (1.0 + count_weight * np.log(np.maximum(counts, 1.0))).astype(np.float32)
