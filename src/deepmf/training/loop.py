"""The training loop: epochs, validation, early stopping and exact resume for every method."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import BadModelFile
from deepmf.storage.parts import Form
from deepmf.training.history import Callback, EpochRecord, History
from deepmf.training.settings import LoopSettings
from deepmf.training.threads import Threads


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

    def get_learned(self) -> dict[str, Tensor]:
        """Return all learned tensors, not copied."""

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        """Go back to tensors learned earlier."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that the next epoch depends on beside the learned ones, not copied; by
        default none."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors that `state` returned; by default nothing."""
        return


@dataclass(frozen=True)
class TrainingState:
    """Everything that a training needs to continue as if it had never stopped."""

    content: dict[str, Any]
    tensors: dict[str, Tensor]


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
        self.history = History(threads=torch.get_num_threads())
        self._callbacks = callbacks
        self._threads = threads
        # learned in the best epoch, or in the last with a finite loss
        self._good: dict[str, Tensor] | None = None

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
        from deepmf.nn.ranks import find_ranks

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
        copies = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        return TrainingState({"history": self.history.to_dict()}, copies)

    def restore(self, state: TrainingState) -> None:
        """Continue from a state: the next epoch runs as it would have run.

        Raise `BadModelFile` for a state that this training cannot have been in.
        """
        history = History.from_dict(state.content.get("history"))
        learned, good, rest = (
            select_prefix(state.tensors, name) for name in ("learned", "good", "state")
        )
        known = self.task.get_learned()
        try:
            stored = {name: tensor.numpy() for name, tensor in state.tensors.items()}
        except TypeError as error:  # a type that numpy lacks
            raise BadModelFile(
                f"the stored state of training has tensors of another type ({error})"
            ) from error
        for prefix, own in (
            ("learned", known),
            ("good", known if good else {}),
            ("state", self.task.state()),
        ):
            Form.like(own, prefix).read({}, stored)
        never = history.stopped == "interrupted" or bool(good) != (history.best_epoch is not None)
        if never or len(history) > self.settings.epochs:
            raise BadModelFile("the stored history does not belong to a training that can continue")
        try:
            self.task.set_learned(learned)
            self.task.restore(rest)
        except (RuntimeError, np.linalg.LinAlgError) as error:
            # a bad generator state, or factors without a solution
            raise BadModelFile(
                f"the stored state of training cannot be restored ({error})"
            ) from error
        self.history = history
        if self._threads is not None:
            self._threads.resume_with(history.threads)
        self._good = {name: tensor.to(known[name].device) for name, tensor in good.items()} or None

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
                self._good = {name: tensor.clone() for name, tensor in current.items()}
            else:
                for name, tensor in current.items():
                    self._good[name].copy_(tensor)
            self.history.best_epoch, self.history.best_error = epoch, error
        return error


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix and a dot, under the rest of their
    names."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): tensor
        for name, tensor in tensors.items()
        if name.startswith(start)
    }
