"""The training loop: epochs, validation, early stopping and exact resume for every method."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import AnyArray, Array, fetch, send_like
from deepmf.storage.parts import Form
from deepmf.training.history import Callback, EpochRecord, History
from deepmf.training.settings import LoopSettings
from deepmf.training.threads import Threads, count_threads

Learned = dict[str, AnyArray]


@dataclass(frozen=True)
class Epoch:
    """The outcome of one epoch: its loss, its learning rate if it has one, and notes for the
    history."""

    loss: float
    learning_rate: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)


class Task(Protocol):
    """A method that the loop trains: a network with its optimiser, or linear algebra."""

    def run_epoch(self, epoch: int) -> Epoch:
        """Learn for one epoch."""

    def validation_error(self) -> float | None:
        """Return the error on validation entries: None without any, NaN if it cannot be
        computed."""

    def get_learned(self) -> Learned:
        """Return all learned arrays, not copied."""

    def set_learned(self, learned: Mapping[str, Any]) -> None:
        """Go back to arrays learned earlier."""

    def state(self) -> Learned:
        """Return the arrays that the next epoch depends on beside the learned ones, not copied; by
        default none."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the arrays that `state` returned; by default nothing."""
        return


@dataclass(frozen=True)
class TrainingState:
    """Everything that a training needs to continue as if it had never stopped."""

    content: dict[str, Any]
    tensors: dict[str, Array]


class Loop:
    """Runs the epochs of a task, for all methods."""

    def __init__(
        self,
        task: Task,
        settings: LoopSettings,
        *,
        callbacks: Sequence[Callback] = (),
        threads: Threads | None = None,
    ) -> None:
        self.task, self.settings = task, settings
        self.history = History(threads=count_threads())
        self._callbacks = callbacks
        self._threads = threads
        # learned in the best epoch, or in the last with a finite loss
        self._good: Learned | None = None

    def run(
        self, *, keep: Callable[[TrainingState], None] | None = None, keep_every: int = 1
    ) -> History:
        """Run to the end and leave the task with the tensors of its best epoch.

        `keep` is called with the state every `keep_every` epochs and at the end; a loop restored
        from the final state runs nothing. Ctrl-C ends the loop early without keeping the state, and
        `history.stopped` says so; on several ranks it raises, because it reaches each rank in
        another step. A loss or validation error that is not finite ends the loop with the last good
        tensors.
        """
        from deepmf.nn.group import find_ranks

        if self.history.stopped:  # restored from the end
            return self.history
        try:
            for epoch in range(len(self.history), self.settings.epochs):
                if not self._run_epoch(epoch):
                    break
                if (
                    keep is not None
                    and (epoch + 1) % keep_every == 0
                    and epoch + 1 < self.settings.epochs
                ):
                    keep(self.state())
            else:
                self.history.stopped = "epochs"
            if self._good is not None:
                self.task.set_learned(self._good)
            if keep is not None:
                keep(self.state())
        except KeyboardInterrupt:
            if find_ranks() is not None:
                raise
            self.history.stopped = "interrupted"
            if self._good is None and self.history.records:
                # else nobody would know how good it is by now
                self._validate(len(self.history) - 1)
            if self._good is not None:
                self.task.set_learned(self._good)
        return self.history

    def state(self) -> TrainingState:
        """Return a copy of everything that the next epoch depends on."""
        tensors = {f"learned.{name}": tensor for name, tensor in self.task.get_learned().items()}
        tensors |= {f"good.{name}": tensor for name, tensor in (self._good or {}).items()}
        tensors |= {f"state.{name}": tensor for name, tensor in self.task.state().items()}
        copies = {name: np.array(fetch(tensor)) for name, tensor in tensors.items()}
        return TrainingState({"history": self.history.to_dict()}, copies)

    def restore(self, state: TrainingState) -> None:
        """Continue from a state: the next epoch runs as it would have run.

        Raise `BadModelFile` for a state that this training cannot have been in.
        """
        history = History.from_dict(state.content.get("history"))
        learned, best, task_state = (
            select_prefix(state.tensors, name) for name in ("learned", "good", "state")
        )
        current, current_state = self.task.get_learned(), self.task.state()
        for prefix, arrays in (
            ("learned", current),
            ("good", current if best else {}),
            ("state", current_state),
        ):
            Form.like(arrays, prefix).read({}, state.tensors)
        never = history.stopped == "interrupted" or bool(best) != (history.best_epoch is not None)
        if never or len(history) > self.settings.epochs:
            raise BadModelFile("the stored history does not belong to a training that can continue")
        try:
            self.task.set_learned(_send_all(learned, current))
            self.task.restore(_send_all(task_state, current_state))
        except (RuntimeError, np.linalg.LinAlgError) as error:
            # a bad generator state, or factors without a solution
            raise BadModelFile(
                f"the stored state of training cannot be restored ({error})"
            ) from error
        self.history = history
        if self._threads is not None:
            self._threads.resume_with(history.threads)
        self._good = _send_all(best, current) or None

    def _run_epoch(self, epoch: int) -> bool:
        """Run one epoch; return whether to continue."""
        start = time.perf_counter()
        outcome = self.task.run_epoch(epoch)
        is_validated = (
            epoch + 1
        ) % self.settings.validate_every == 0 or epoch + 1 == self.settings.epochs
        error = self._validate(epoch) if is_validated and math.isfinite(outcome.loss) else None
        if not math.isfinite(outcome.loss) or (error is not None and not math.isfinite(error)):
            self.history.stopped = "diverged"
            return False
        seconds = time.perf_counter() - start
        record = EpochRecord(
            epoch, outcome.loss, error, outcome.learning_rate, seconds, outcome.notes
        )
        self.history.records.append(record)
        for callback in self._callbacks:
            callback(record, self.history)
        patience, best = self.settings.patience, self.history.best_epoch
        if is_validated and patience is not None and best is not None and epoch - best >= patience:
            self.history.stopped = "patience"
            return False
        return True

    def _validate(self, epoch: int) -> float | None:
        """Compute the validation error and remember the tensors if it is the lowest so far."""
        error = self.task.validation_error()
        if error is not None and not math.isfinite(error):
            return math.nan
        if error is None or self.history.best_error is None or error < self.history.best_error:
            current = self.task.get_learned()
            if self._good is None:
                self._good = copy.deepcopy(current)
            for name, array in current.items():
                self._good[name][...] = array
            self.history.best_epoch, self.history.best_error = epoch, error
        return error


def select_prefix(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays whose names start with a prefix and a dot, under the rest of their names."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)
    }


def _send_all(arrays: Mapping[str, Array], like: Learned) -> Learned:
    return {name: send_like(array, like[name]) for name, array in arrays.items()}
