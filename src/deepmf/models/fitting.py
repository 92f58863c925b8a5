"""Running a fit: the loop with its checkpoint and threads, and the error or warning of one that ends early."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepmf.errors import TrainingDiverged, TrainingInterrupted
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.training.checkpoint import Checkpoint
from deepmf.training.history import History
from deepmf.training.loop import Callback, Loop, Task
from deepmf.training.settings import LoopSettings
from deepmf.training.threads import Threads


@dataclass(frozen=True)
class Fitting:
    """The arguments of `fit` beside the matrices."""

    callbacks: Sequence[Callback] = ()
    checkpoint: Path | None = None
    checkpoint_every: int = 25
    threads: Threads | None = None

    def run(self, task: Task, settings: LoopSettings, fingerprint: dict[str, Any]) -> History:
        """Run the loop on a task, from its checkpoint where there is one of the same fingerprint."""
        loop = Loop(task, settings, callbacks=self.callbacks, threads=self.threads)
        if self.checkpoint is None:
            return loop.run()
        return Checkpoint(self.checkpoint, fingerprint).run(loop, every=self.checkpoint_every)


def tell_ending(history: History, settings: Any) -> None:
    """Raise or warn where training diverged or was interrupted."""
    epoch, best = len(history), history.best_epoch
    if history.stopped == "diverged":
        kept = "" if best is None else f"; the model keeps what it had learned in epoch {best}"
        hint = "; try a smaller learning_rate" if hasattr(settings, "learning_rate") else ""
        raise TrainingDiverged(
            f"the loss of epoch {epoch}, or its validation error, is not a finite number{kept}{hint}"
        )
    if history.stopped == "interrupted":
        warnings.warn(f"training was interrupted in epoch {epoch}", TrainingInterrupted, stacklevel=4)


def digest(matrix: ObservedMatrix) -> str:
    """Return a short fingerprint of a matrix's entries."""
    digest = hashlib.sha256(repr(matrix.scale).encode())
    for array in (matrix.by_row.starts, matrix.by_row.columns, matrix.values):
        digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((matrix.row_labels.tolist()[:1000], matrix.column_labels.tolist()[:1000])).encode())
    return digest.hexdigest()[:16]
