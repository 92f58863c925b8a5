"""A model of latents: learned in epochs, it scores a pair by the inner product of a row's and a column's latent."""

from __future__ import annotations

import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadModelFile, TrainingDiverged, TrainingInterrupted
from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.latents import Latents, pair_products
from deepmf.models.model import Model
from deepmf.storage.packed import Packed, Tensors, numbers
from deepmf.training.checkpoint import Checkpoint
from deepmf.training.history import History
from deepmf.training.loop import Callback, Loop, Task
from deepmf.training.settings import LoopSettings
from deepmf.training.threads import training_threads


class LatentModel(Model):
    """What all models share that the loop learns and whose answers are made of latents.

    A subclass says which task the loop runs (`_task`) and takes from it what was learned (`_adopt`).
    """

    settings: LoopSettings
    extra_columns: ClassVar[int] = 0  # how many of a latent's last numbers are means, effects or constants
    row_latents_: Latents
    column_latents_: Latents

    @abstractmethod
    def _task(self, train: ObservedMatrix, validation: ObservedMatrix | None) -> Any:
        """Return the task that learns from a matrix."""

    @abstractmethod
    def _width(self) -> int:
        """Return how many numbers a latent has, by the settings and by what else was learned."""

    @abstractmethod
    def _adopt(self, task: Any) -> None:
        """Set the latents, and all else that is learned, from a task that has run."""

    def _fit(
        self,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        *,
        callbacks: Sequence[Callback],
        checkpoint: Path | None,
        checkpoint_every: int,
    ) -> None:
        with training_threads(getattr(self.settings, "device", "cpu")) as threads:
            task: Task = self._task(train, validation)
            loop = Loop(task, self.settings, callbacks=callbacks, threads=threads)
            if checkpoint is None:
                self.history_ = loop.run()
            else:
                kept = Checkpoint(checkpoint, self._fingerprint(train, validation))
                self.history_ = kept.run(loop, every=checkpoint_every)
            if self.history_.best_epoch is not None or self.history_.stopped != "diverged":
                self.observations_ = EntryStore.of(train)
                self._adopt(task)
                if not (self.row_latents_.are_finite() and self.column_latents_.are_finite()):
                    self.observations_ = None
                    raise TrainingDiverged("what was learned is too large: latents are not finite numbers")
        _say_how_it_ended(self.history_, self.settings)

    def _fingerprint(self, train: ObservedMatrix, validation: ObservedMatrix | None) -> dict[str, Any]:
        """Return what tells this training run from others."""
        return {
            "model": type(self).__name__,
            **self.settings.to_dict(),
            "training entries": digest(train),
            "validation entries": None if validation is None else digest(validation),
        }

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return pair_products(self.row_latents_, self.column_latents_, rows, columns)

    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        every = columns.size == len(self.column_latents_) and np.array_equal(columns, np.arange(columns.size))
        column_latents = self.column_latents_.whole() if every else self.column_latents_.take(columns)
        products: LatentArray = self.row_latents_.take(rows) @ column_latents.T
        return products

    def _row_directions(self) -> LatentArray:
        return self._directions(self.row_latents_)

    def _column_directions(self) -> LatentArray:
        return self._directions(self.column_latents_)

    def _directions(self, latents: Latents) -> LatentArray:
        """Return the latents proper, of length 1; those of length 0 as they are."""
        whole = latents.whole()
        proper = whole[:, : whole.shape[1] - self.extra_columns]
        lengths = np.linalg.norm(proper, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        directions: LatentArray = (proper / lengths).astype(np.float32)
        return directions

    def _learned(self) -> Packed:
        tensors: dict[str, npt.NDArray[Any]] = {}
        for axis, latents in (("rows", self.row_latents_), ("columns", self.column_latents_)):
            tensors |= {f"latents.{axis}.{part}": getattr(latents, part) for part in ("base", "extra", "slots")}
        return Packed({}, tensors)

    def _set_learned(self, content: Any, tensors: Tensors) -> None:
        seen, width = self._seen, self._width()
        n_rows, n_columns = seen.train.shape
        self.row_latents_ = _stored_latents(tensors, "rows", (n_rows, width), len(seen.rows))
        self.column_latents_ = _stored_latents(tensors, "columns", (n_columns, width), len(seen.columns))
        if width * self.row_latents_.largest() * self.column_latents_.largest() > float(np.finfo(np.float32).max):
            raise BadModelFile("the stored latents are so large that their products are not finite")


def _say_how_it_ended(history: History, settings: LoopSettings) -> None:
    """Say what ended training if it was not its own end."""
    epoch, best = len(history), history.best_epoch
    if history.stopped == "diverged":
        kept = "" if best is None else f"; the model keeps what it had learned in epoch {best}"
        hint = "; try a smaller learning_rate" if hasattr(settings, "learning_rate") else ""
        raise TrainingDiverged(
            f"the loss of epoch {epoch}, or its validation error, is not a finite number{kept}{hint}"
        )
    if history.stopped == "interrupted":
        warnings.warn(f"training was interrupted in epoch {epoch}", TrainingInterrupted, stacklevel=4)


def _stored_latents(tensors: Tensors, axis: str, shape: tuple[int, int], count: int) -> Latents:
    """Return the latents of so many positions, of which those of training are of this shape."""
    base = numbers(tensors, f"latents.{axis}.base", "float32", shape)
    extra = numbers(tensors, f"latents.{axis}.extra", "float32", (None, shape[1]))
    slots = numbers(tensors, f"latents.{axis}.slots", "int64", (count,))
    changed = slots != np.arange(count)  # where it was, or among those computed since
    changed[shape[0] :] = True
    if not np.all((slots[changed] >= len(base)) & (slots[changed] < len(base) + len(extra))):
        raise BadModelFile(f"the stored latents of {axis} are not all there")
    return Latents(base, extra, slots)


def digest(matrix: ObservedMatrix) -> str:
    """Return a short fingerprint of a matrix's entries."""
    digest = hashlib.sha256(repr(matrix.scale).encode())
    for array in (matrix.by_row.starts, matrix.by_row.columns, matrix.values):
        digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((matrix.row_labels.tolist()[:1000], matrix.column_labels.tolist()[:1000])).encode())
    return digest.hexdigest()[:16]
