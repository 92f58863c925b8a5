"""Validation entries: by their positions in the training matrix, checked once."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import BadEntries, BadModelFile
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.matrix import ObservedMatrix, check_unchanged
from deepmf.nn.ranks import find_ranks
from deepmf.training.history import Callback, EpochRecord, History
from deepmf.training.runtime import Threads
from deepmf.training.settings import LoopSettings

# Counts of steps and sweeps lie far below; up to here they are exact in double precision.
_MOST_COUNTED = 2**53


@dataclass(frozen=True)
class Epoch:
    """The outcome of one epoch: its loss, its step size where there is one, and what else the history should keep."""

    loss: float
    learning_rate: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)


class Task(Protocol):
    """What the loop trains: a network with its optimiser, or a method of linear algebra."""

    def run_epoch(self, epoch: int) -> Epoch:
        """Learn for one epoch."""

    def validation_error(self) -> float | None:
        """Return the error on validation entries: None where there are none, NaN where it cannot be computed."""

    def get_learned(self) -> dict[str, Tensor]:
        """Return everything that is learned, not copied."""

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        """Go back to what was learned earlier."""

    def state(self) -> dict[str, Tensor]:
        """Return what the next epoch depends on beside what is learned, not copied."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore such a state."""


@dataclass(frozen=True)
class TrainingState:
    """Everything a training needs to continue as if it had never stopped."""

    content: dict[str, Any]
    tensors: dict[str, Tensor]


class Loop:
    """Runs the epochs of a task; the only loop there is."""

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
        self._good: dict[str, Tensor] | None = None  # what validation recommends, or the last with a finite loss

    def run(self, *, keep: Callable[[TrainingState], None] | None = None, keep_every: int = 1) -> History:
        """Run to the end, and leave the task with the best it has learned.

        `keep` is called with the state every `keep_every` epochs, and at the end; a loop resumed from the final state
        has nothing left to run. Ctrl-C ends the loop early, and its state is not kept; `history.stopped` has the
        reason. (On several ranks it ends them all, as it reaches each in another step.) A loss or validation error that
        is not finite ends it too, with the last good weights.
        """
        if self.history.stopped:  # restored from the end
            return self.history
        try:
            for epoch in range(len(self.history), self.settings.epochs):
                if not self._run_epoch(epoch):
                    break
                if keep is not None and (epoch + 1) % keep_every == 0 and epoch + 1 < self.settings.epochs:
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
            if self._good is not None:
                self.task.set_learned(self._good)
        return self.history

    def state(self) -> TrainingState:
        """Return a copy of everything that the next epoch depends on."""
        tensors = {f"learned.{name}": tensor for name, tensor in self.task.get_learned().items()}
        tensors |= {f"good.{name}": tensor for name, tensor in (self._good or {}).items()}
        tensors |= {f"state.{name}": tensor for name, tensor in self.task.state().items()}
        return TrainingState(
            {"history": self.history.to_dict()}, {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        )

    def restore(self, state: TrainingState) -> None:
        """Continue from a state: the next epoch runs as it would have.

        A state that this training could not have been in raises `BadModelFile`, before or after it is restored.
        """
        history = History.from_dict(state.content.get("history"))
        learned, good, rest = (select_prefix(state.tensors, name) for name in ("learned", "good", "state"))
        known = self.task.get_learned()
        _check_learned(learned, known)
        if good:
            _check_learned(good, known)
        _check_like(rest, self.task.state())
        never = history.stopped == "interrupted" or bool(good) != (history.best_epoch is not None)
        if never or len(history) > self.settings.epochs:
            raise BadModelFile("the stored history is not that of a training to be continued")
        try:
            self.task.set_learned(learned)
            self.task.restore(rest)
        except (RuntimeError, np.linalg.LinAlgError) as error:  # the state of a generator, factors without a solution
            raise BadModelFile(f"the stored state of training cannot be restored ({error})") from error
        self.history = history
        if self._threads is not None:
            self._threads.resume_with(history.threads)
        self._good = {name: tensor.to(known[name].device) for name, tensor in good.items()} or None

    def _run_epoch(self, epoch: int) -> bool:
        """Run one epoch; return whether to go on."""
        start = time.perf_counter()
        outcome = self.task.run_epoch(epoch)
        looked = (epoch + 1) % self.settings.validate_every == 0 or epoch + 1 == self.settings.epochs
        error = self._validate(epoch) if looked and math.isfinite(outcome.loss) else None
        if not math.isfinite(outcome.loss) or (error is not None and not math.isfinite(error)):
            self.history.stopped = "diverged"
            return False
        seconds = time.perf_counter() - start
        record = EpochRecord(epoch, outcome.loss, error, outcome.learning_rate, seconds, outcome.notes)
        self.history.records.append(record)
        for callback in self._callbacks:
            callback(record, self.history)
        if looked and self._out_of_patience(epoch):
            self.history.stopped = "patience"
            return False
        return True

    def _validate(self, epoch: int) -> float | None:
        """Compute the validation error, and keep the weights where it is the lowest so far."""
        error = self.task.validation_error()
        if error is not None and not math.isfinite(error):
            return math.nan
        if error is None or self.history.best_error is None or error < self.history.best_error:
            self._remember()
            self.history.best_epoch, self.history.best_error = epoch, error
        return error

    def _remember(self) -> None:
        current = self.task.get_learned()
        if self._good is None:
            self._good = {name: tensor.clone() for name, tensor in current.items()}
        else:
            for name, tensor in current.items():
                self._good[name].copy_(tensor)

    def _out_of_patience(self, epoch: int) -> bool:
        patience, best = self.settings.patience, self.history.best_epoch
        has_error = self.history.best_error is not None
        return patience is not None and has_error and best is not None and epoch - best >= patience


def _check_learned(stored: Mapping[str, Tensor], known: Mapping[str, Tensor]) -> None:
    """Refuse what a task cannot have learned: other tensors, numbers that are not finite, counts below 0."""
    _check_like(stored, known)
    for name, tensor in stored.items():
        if not bool(tensor.isfinite().all()):
            raise BadModelFile(f"the tensor {name} must be of finite numbers; some are not")
        whole = not (tensor.is_floating_point() or tensor.dtype == torch.bool)
        if whole and tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) <= _MOST_COUNTED:
            raise BadModelFile(f"the tensor {name} must be of counts; some are none")


def _check_like(stored: Mapping[str, Tensor], known: Mapping[str, Tensor]) -> None:
    """Refuse tensors of other names, types or shapes."""
    if stored.keys() != known.keys():
        differing = sorted(stored.keys() ^ known.keys())
        raise BadModelFile(f"the stored state of training lacks tensors or has more than it needs: {differing[0]}")
    for name, tensor in known.items():
        if stored[name].shape != tensor.shape or stored[name].dtype != tensor.dtype:
            raise BadModelFile(
                f"the tensor {name} must be of {tensor.dtype} and of shape {tuple(tensor.shape)}; "
                f"got {stored[name].dtype} of shape {tuple(stored[name].shape)}"
            )


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix and a dot, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


# The most entries that epochs and settings are compared on: more would tell them apart no better, and need more rows
# and columns to be encoded.
_MOST_COMPARED_ON = 1 << 16


class ValidationEntries(NamedTuple):
    """Entries that choose the best epoch and never teach: positions in the training matrix, and values."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray

    @classmethod
    def of(cls, train: ObservedMatrix, validation: ObservedMatrix | None) -> ValidationEntries | None:
        """Return the validation entries, None where there are none; what training does not know is refused."""
        if validation is None:
            return None
        check_unchanged(train, validation)
        rows, columns, values = validation.entries()
        found = cls(train.rows.positions(rows), train.columns.positions(columns), values)
        # An interval is only what training showed: beyond it is no mistake.
        if train.scale.levels is not None and not np.all(train.scale.holds(values)):
            raise BadEntries(f"validation has the scale {validation.scale}; the training matrix has {train.scale}")
        return found if values.size else None

    def sample(self, *, seed: int) -> ValidationEntries:
        """Return these entries, or as many of them, drawn at random, as are enough to compare on."""
        if self.values.size <= _MOST_COMPARED_ON:
            return self
        chosen = np.random.default_rng(seed).choice(self.values.size, _MOST_COMPARED_ON, replace=False)
        chosen.sort()
        return ValidationEntries(self.rows[chosen], self.columns[chosen], self.values[chosen])

    def digest(self) -> str:
        """Return a short fingerprint of the entries."""
        digest = hashlib.sha256()
        for array in self:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def to(self, device: torch.device) -> ValidationTensors:
        """Return the entries on a device."""
        return ValidationTensors(*(torch.from_numpy(array).to(device) for array in self))


class ValidationTensors(NamedTuple):
    """Validation entries on a device."""

    rows: Tensor
    columns: Tensor
    values: Tensor
