"""Running a fit: the loop with its checkpoint and threads, and the error or warning of one that ends early."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepmf.errors import BadSetting, NotBetterThanMeans, TrainingDiverged, TrainingInterrupted
from deepmf.layers.ranks import ranks_here
from deepmf.matrix.coded_values import pieces
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.warm_start import WarmStart
from deepmf.training.checkpoint import Checkpoint, numbered_states, remove_checkpoint
from deepmf.training.epoch_progress import EpochDisplay
from deepmf.training.history import History
from deepmf.training.loop import Callback, Loop, Task
from deepmf.training.settings import LoopSettings, Settings
from deepmf.training.sharded_checkpoint import ShardedCheckpoint
from deepmf.training.threads import Threads
from deepmf.training.trainer import Trainer
from deepmf.training.validation import ValidationEntries

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
        if isinstance(task, Trainer):
            _check_alike(fingerprint)
        if self.checkpoint is None:
            return loop.run()
        kept = self._kept(self.checkpoint, task, fingerprint)
        return kept.run(loop, every=self.checkpoint_every)

    @staticmethod
    def _kept(path: Path, task: Task, fingerprint: dict[str, Any]) -> Checkpoint:
        """Return where the state is kept: in a file, or by several ranks in a folder, which one process continues."""
        if isinstance(task, Trainer) and (ranks_here() is not None or numbered_states(path)):
            return ShardedCheckpoint(path, fingerprint, task.divided())
        return Checkpoint(path, fingerprint)

    def tell_stage(self, name: str) -> None:
        """Show what is being done after the epochs, where these were shown."""
        for callback in self.callbacks:
            if isinstance(callback, EpochDisplay):
                callback.tell_stage(name)


@contextmanager
def removing_checkpoint(path: Path | None, *, is_over: Callable[[], bool]) -> Iterator[None]:
    """Remove a checkpoint at the end of a training that is over, or has diverged; others can be continued from it."""
    over = False
    try:
        yield
        over = is_over()
    except TrainingDiverged:
        over = True
        raise
    finally:
        if over and path is not None:
            remove_checkpoint(path)


def check_ranks(model: str, train: ObservedMatrix, settings: Any, *, able: bool) -> None:
    """Refuse a fit that the processes that were started together cannot share."""
    ranks = ranks_here()
    if ranks is None:
        return
    if not able:
        raise BadSetting(
            f"{model} is fitted by one process, and {ranks.size} were started together; OrdinalDMF, DMF and DMFD are "
            "fitted by several"
        )
    gamma = getattr(settings, "gamma", 0.0)
    if gamma:
        raise BadSetting(f"gamma must be 0 where several processes fit a model together; got {gamma!r}")
    n_rows, n_columns = train.shape
    if ranks.size > min(train.shape):
        raise BadSetting(
            f"{ranks.size} processes cannot divide {n_rows} rows x {n_columns} columns among them; "
            f"start at most {min(train.shape)}"
        )


def _check_alike(fingerprint: dict[str, Any]) -> None:
    """Refuse to let processes train together that were given different entries or settings."""
    ranks = ranks_here()
    if ranks is None:
        return
    first, *others = ranks.collected(fingerprint)
    for rank, other in enumerate(others, 1):
        differing = [name for name in first | other if first.get(name) != other.get(name)]
        if differing:
            raise BadSetting(
                f"all processes must fit the same, and process {rank} differs from process 0 in its "
                f"{', '.join(differing)}; give every process the same files and settings"
            )


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


def fingerprint_of(
    method: str,
    settings: Settings,
    entries: EntryStore,
    validation: ValidationEntries | None,
    start: WarmStart | None,
) -> dict[str, Any]:
    """Return what identifies a training, so that only its own checkpoint continues it."""
    found = {
        "model": method,
        **settings.to_dict(),
        "training entries": digest(entries.train),
        "validation entries": None if validation is None else validation.digest(),
    }
    for name, features in (("row features", entries.row_features), ("column features", entries.column_features)):
        if features is not None:
            found[name] = features.digest()
    if start is not None:
        found["start"] = start.digest()
    return found


def digest(matrix: ObservedMatrix) -> str:
    """Return a short fingerprint of a matrix's entries."""
    digest = hashlib.sha256(repr(matrix.scale).encode())
    for array in (matrix.by_row.starts, matrix.by_row.columns, matrix.values):
        for piece in pieces(array):
            digest.update(np.ascontiguousarray(piece).data)
    digest.update(repr((matrix.rows[:1000].tolist(), matrix.columns[:1000].tolist())).encode())
    return digest.hexdigest()[:16]
