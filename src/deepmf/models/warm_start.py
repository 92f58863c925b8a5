"""Warm start: weights and factors that a fitted model passes by label to the fit of a similar matrix."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.errors import BadEntries, BadSetting, warn
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor
from deepmf.training.holdout import HeldOut
from deepmf.training.settings import RECOMMENDATION, LoopSettings, Settings, StepDecaySettings, TrainingSettings

# A warm fit has half the epochs. With a quarter, fits to a matrix of which a tenth was new were worse than cold ones.
_SHARE = 0.5


# The axis of the lines of a learned table: rows, columns, or None for neither.
LineOf = Literal["row", "column"] | None

# A branch for rows reads the columns of a matrix, one for columns its rows.
TWO_BRANCHES: dict[str, LineOf] = {"rows.first.weight": "column", "columns.first.weight": "row"}

# The weights that read features, and the features that they read.
FEATURE_WEIGHTS = {"rows.features.weight": "row_features", "columns.features.weight": "column_features"}

AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True)
class WarmStart:
    """A fitted model's entries and predictor, and the matrix and features that the next fit learns from."""

    entries: EntryStore
    predictor: Predictor
    train: ObservedMatrix
    row_features: AxisFeatures | None = None
    column_features: AxisFeatures | None = None

    @staticmethod
    def shorten(settings: AnySettings) -> AnySettings:
        """Return settings with half the epochs."""
        if not isinstance(settings, LoopSettings):
            return settings
        return replace(settings, epochs=math.ceil(_SHARE * settings.epochs))

    def schedule(self, settings: TrainingSettings) -> Callable[[int], int]:
        """Return which epoch of the whole schedule each epoch of a warm fit of a network stands for.

        They begin where the learning rate has fallen to half, in the middle at the latest, and run to the end.
        """
        n_epochs, whole = self.shorten(settings).epochs, settings.epochs
        fallen = bisect_left(
            range(whole), -settings.learning_rate / 2, key=lambda each: -settings.learning_rate_at(each)
        )
        first = min(fallen, whole - n_epochs)
        return lambda epoch: first + epoch * (whole - first) // n_epochs

    def weights(
        self, fresh: Mapping[str, Tensor], learned: Mapping[str, Tensor], lines: Mapping[str, LineOf]
    ) -> dict[str, Tensor]:
        """Return a network's weights to start from; weights of rows and columns are matched by label.

        `lines` names the tensors that have a line, or several blocks of lines, for each row or column, and (None) those
        that stay fresh. A label that the model was not trained on keeps its fresh weights.
        """
        return {
            name: tensor if self._of_other_features(name) else self._match_lines(name, tensor, learned[name], lines)
            for name, tensor in fresh.items()
        }

    def _of_other_features(self, name: str) -> bool:
        """Whether weights belong to features that the model was not trained with."""
        axis = FEATURE_WEIGHTS.get(name)
        if axis is None:
            return False
        old, new = getattr(self.entries, axis), getattr(self, axis)
        return old is None or old.encoding != new.encoding

    def _match_lines(self, name: str, fresh: Tensor, learned: Tensor, lines: Mapping[str, LineOf]) -> Tensor:
        line_of = lines.get(name, "all")
        if line_of is None:
            return fresh
        if line_of == "all" or self.same_labels:
            if fresh.shape != learned.shape:
                raise BadSetting(
                    f"start_from has {name} of shape {tuple(learned.shape)}, and a fit to this matrix needs one of "
                    f"{tuple(fresh.shape)}; it takes a model of the same sizes"
                )
            return learned
        axis = 0 if line_of == "row" else 1
        places = self._places[axis]
        known = torch.from_numpy((places >= 0) & (places < self.entries.train.shape[axis]))
        carried = fresh.clone()
        blocks = carried.view(-1, self.train.shape[axis], *fresh.shape[1:])
        old = learned.to(fresh.device).view(-1, self.entries.train.shape[axis], *fresh.shape[1:])
        blocks[:, known] = old[:, torch.from_numpy(places)[known]]
        return carried

    @cached_property
    def same_labels(self) -> bool:
        """Whether the new matrix has the rows and columns that the model was trained on, in the same order."""
        old = self.entries.train
        return bool(self.train.rows == old.rows and self.train.columns == old.columns)

    def latents(self, *, rank: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the latents of rows and of columns by label, `rank` of them and what follows.

        Unknown labels get zeros, even where known ones have a constant; so do latents that the model lacks.
        """
        rows, columns = (
            self._align(latents, places, rank)
            for latents, places in zip((self.predictor.rows, self.predictor.columns), self._places, strict=True)
        )
        return rows, columns

    def find_trained(self) -> tuple[IndexArray, IndexArray]:
        """Return where the model was trained on each row, and each column, of the new matrix; -1 where it was not."""
        rows, columns = (
            np.where(places < size, places, -1)
            for places, size in zip(self._places, self.entries.train.shape, strict=True)
        )
        return rows, columns

    def has_same_features(self, axis: Literal["row", "column"]) -> bool:
        """Whether the new matrix has features of rows (or columns) that the model was trained with."""
        old, new = getattr(self.entries, f"{axis}_features"), getattr(self, f"{axis}_features")
        return old is not None and new is not None and bool(old.encoding == new.encoding)

    def _align(self, latents: Latents, places: IndexArray, rank: int) -> npt.NDArray[np.float64]:
        known, table = places >= 0, latents.whole()
        n_beside = self.predictor.n_beside
        n_old = table.shape[1] - n_beside
        aligned = np.zeros((places.size, rank + n_beside))
        kept = min(rank, n_old)
        aligned[known, :kept] = table[places[known], :kept]
        aligned[known, rank:] = table[places[known], n_old:]
        return aligned

    @cached_property
    def _places(self) -> tuple[IndexArray, IndexArray]:
        """Where the model has each row, and each column, of the new matrix; -1 where it does not know it."""
        return self.entries.rows.find(self.train.row_labels), self.entries.columns.find(self.train.column_labels)

    def check(self, validation: HeldOut | None) -> None:
        """Refuse a model that knows no label of the matrix; warn if it was trained on validation entries."""
        rows, columns = self._places
        if np.all(rows < 0) and np.all(columns < 0):
            raise BadEntries(
                "start_from knows no row and no column of this matrix, "
                f"such as row {_first(self.train.rows)} and column {_first(self.train.columns)}"
            )
        if validation is None:
            return
        unseen = self.are_unseen(validation.rows, validation.columns)
        n_trained = np.count_nonzero(~unseen)
        if n_trained:
            warn(
                f"{n_trained} of {unseen.size} validation entries are training entries of start_from: "
                "the validation error is too low, and the best epoch may be another"
            )

    def are_unseen(self, row_at: IndexArray, column_at: IndexArray) -> npt.NDArray[np.bool_]:
        """Return which pairs of positions in the new matrix are not training entries of the model."""
        rows, columns = self._places
        unseen: npt.NDArray[np.bool_] = self.entries.train_places(rows[row_at], columns[column_at]) < 0
        return unseen

    def digest(self) -> str:
        """Return a short fingerprint of the warm start."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.predictor.pack().tensors.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor).data)
        for places in self._places:
            digest.update(places.data)
        return digest.hexdigest()[:16]


def check_settings(own: Settings, other: Settings) -> None:
    """Refuse to start from a model with other settings; only settings of training may differ."""
    free = {field.name for field in fields(StepDecaySettings)} | set(RECOMMENDATION)
    theirs = other.to_dict()
    differing = [
        f"{name} {theirs[name]!r}, not {value!r}"
        for name, value in own.to_dict().items()
        if name not in free and theirs[name] != value
    ]
    if differing:
        raise BadSetting(f"start_from has other settings: {', '.join(differing)}; only those of training may differ")


def _first(labels: Labels) -> str:
    return repr(labels[:1].tolist()[0]) if len(labels) else "none"
