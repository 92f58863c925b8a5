"""Running a fit: the loop with its checkpoint and threads, and the error or warning of one that ends early."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepmf.errors import NotBetterThanMeans, TrainingDiverged, TrainingInterrupted
from deepmf.matrix.coded_values import pieces
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.warm_start import WarmStart
from deepmf.training.checkpoint import Checkpoint
from deepmf.training.epoch_progress import EpochDisplay
from deepmf.training.history import History
from deepmf.training.loop import Callback, Loop, Task
from deepmf.training.settings import LoopSettings
from deepmf.training.threads import Threads

# The settings that most often mend a fit that is no better than the means.
_TO_TRY = ("epochs", "learning_rate", "dropout", "penalty", "latent_size")


@dataclass(frozen=True)
class Fitting:
    """The arguments of `fit` beside the matrices."""

    callbacks: Sequence[Callback] = ()
    checkpoint: Path | None = None
    checkpoint_every: int = 25
    threads: Threads | None = None
    start: WarmStart | None = None

    def run(self, task: Task, settings: LoopSettings, fingerprint: dict[str, Any]) -> History:
        """Run the loop on a task, from its checkpoint where there is one of the same fingerprint."""
        loop = Loop(task, settings, callbacks=self.callbacks, threads=self.threads)
        if self.checkpoint is None:
            return loop.run()
        return Checkpoint(self.checkpoint, fingerprint).run(loop, every=self.checkpoint_every)

    def tell_stage(self, name: str) -> None:
        """Show what is being done after the epochs, where these were shown."""
        for callback in self.callbacks:
            if isinstance(callback, EpochDisplay):
                callback.tell_stage(name)


def tell_ending(history: History, settings: Any) -> None:
    """Raise or warn where training diverged or was interrupted, or where the means do as well."""
    epoch, best = len(history), history.best_epoch
    if history.stopped == "diverged":
        kept = "" if best is None else f"; the model keeps what it had learned in epoch {best}"
        hint = "; try a smaller learning_rate" if hasattr(settings, "learning_rate") else ""
        raise TrainingDiverged(
            f"the loss of epoch {epoch}, or its validation error, is not a finite number{kept}{hint}"
        )
    if history.stopped == "interrupted":
        warnings.warn(f"training was interrupted in epoch {epoch}", TrainingInterrupted, stacklevel=3)
    if history.stopped in ("epochs", "patience") and _is_no_better(history):
        named = ", ".join(name for name in _TO_TRY if hasattr(settings, name))
        warnings.warn(
            f"the validation RMSE of {history.best_error:.4f} is not below that of the means, "
            f"{history.means_error:.4f}: try other settings ({named}) or another model",
            NotBetterThanMeans,
            stacklevel=3,
        )


def _is_no_better(history: History) -> bool:
    """Say whether the means predict validation entries as well; where they are never wrong, nothing could be better."""
    best, means = history.best_error, history.means_error
    return best is not None and means is not None and best >= means > 0


def digest(matrix: ObservedMatrix) -> str:
    """Return a short fingerprint of a matrix's entries."""
    digest = hashlib.sha256(repr(matrix.scale).encode())
    for array in (matrix.by_row.starts, matrix.by_row.columns, matrix.values):
        for piece in pieces(array):
            digest.update(np.ascontiguousarray(piece).data)
    digest.update(repr((matrix.rows[:1000].tolist(), matrix.columns[:1000].tolist())).encode())
    return digest.hexdigest()[:16]
