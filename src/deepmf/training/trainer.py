"""The trainer: epochs of block steps, validation, best weights, early stopping, exact continuation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from deepmf.networks.dropout import use_generator
from deepmf.training.adam import Adam
from deepmf.training.history import EpochRecord, History
from deepmf.training.machine import Machine, private_generator
from deepmf.training.settings import TrainingSettings
from deepmf.training.walk import Walk

Callback = Callable[[EpochRecord, History], None]


class Objective(Protocol):
    """What a model hands to the trainer: a network, its loss on a block, its error on validation entries."""

    @property
    def network(self) -> nn.Module:
        """Everything that is learned."""

    @property
    def fixed_shapes(self) -> bool:
        """Whether every step runs the same kernels on the same shapes."""

    def loss(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the loss on the observed training entries of a block."""

    def begin_epoch(self, epoch: int) -> None:
        """Bring what changes by the epoch up to date."""

    def notes(self) -> dict[str, Any]:
        """Return what the history should keep of an epoch beside its losses."""

    def validation_error(self) -> float | None:
        """Return the error on validation entries, or None where there are none."""


@dataclass(frozen=True)
class TrainingState:
    """Everything a training needs to continue as if it had never stopped."""

    content: dict[str, Any]
    tensors: dict[str, Tensor]


class Trainer:
    """Trains the network of an objective; the only loop there is."""

    def __init__(
        self,
        objective: Objective,
        settings: TrainingSettings,
        machine: Machine,
        *,
        rows: Tensor,
        columns: Tensor,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.objective, self.settings, self.machine = objective, settings, machine
        self.history = History()
        self._callbacks = callbacks
        self._network = objective.network
        self._generator = machine.generator(settings.seed, "dropout")
        use_generator(self._network, self._generator)
        self._walk_generator = private_generator(settings.seed, "walk")
        self._walk = Walk(
            rows.to(machine.device),
            columns.to(machine.device),
            block_rows=settings.block_rows,
            block_columns=settings.block_columns,
            generator=self._walk_generator,
        )
        self._optimiser = Adam(self._network.parameters(), settings.learning_rate)
        self._loss_sum = torch.zeros((), device=machine.device)
        self._good: dict[str, Tensor] | None = None  # the best weights, or the last with a finite loss
        self._step = machine.repeated(self._train_step, [self._generator], fixed_shapes=objective.fixed_shapes)

    def run(self, *, keep: Callable[[TrainingState], None] | None = None, keep_every: int = 1) -> History:
        """Train to the end, and leave the network with its best weights.

        `keep` is called with the state every so many epochs. Ctrl-C ends training early; `history.stopped` tells. A
        loss or validation error that is not finite ends it too, with the last good weights.
        """
        try:
            for epoch in range(len(self.history), self.settings.epochs):
                if not self._run_epoch(epoch):
                    break
                if keep is not None and (epoch + 1) % keep_every == 0:
                    keep(self.state())
            else:
                self.history.stopped = "epochs"
        except KeyboardInterrupt:
            self.history.stopped = "interrupted"
        if self._good is not None:
            self._network.load_state_dict(self._good)
        return self.history

    def state(self) -> TrainingState:
        """Return a copy of everything that the next epoch depends on."""
        tensors = {f"network.{name}": tensor for name, tensor in self._network.state_dict().items()}
        tensors |= {f"good.{name}": tensor for name, tensor in (self._good or {}).items()}
        tensors |= {f"optimiser.{name}": slot for name, slot in self._optimiser.state().items()}
        tensors["generator.dropout"] = self._generator.get_state()
        tensors["generator.walk"] = self._walk_generator.get_state()
        return TrainingState(
            {"history": self.history.to_dict()}, {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        )

    def restore(self, state: TrainingState) -> None:
        """Continue from a state: the next epoch runs as it would have."""
        self.history = History.from_dict(state.content["history"])
        parts = {prefix: _part(state.tensors, prefix) for prefix in ("network", "good", "optimiser", "generator")}
        self._network.load_state_dict(parts["network"])
        if parts["good"]:
            device = self.machine.device
            self._good = {name: tensor.to(device) for name, tensor in parts["good"].items()}
        self._optimiser.restore(parts["optimiser"])
        self._generator.set_state(parts["generator"]["dropout"])
        self._walk_generator.set_state(parts["generator"]["walk"])

    def _run_epoch(self, epoch: int) -> bool:
        """Run one epoch; say whether to go on."""
        start = time.perf_counter()
        rate = self.settings.learning_rate * self.settings.decay ** (epoch // self.settings.decay_every)
        self._optimiser.set_learning_rate(rate)
        self.objective.begin_epoch(epoch)
        self._walk.begin_epoch()
        self._network.train()
        self._loss_sum.zero_()
        for _ in range(self._walk.n_steps):
            self._step()
        loss = self._loss_sum.item() / self._walk.n_steps
        looked = (epoch + 1) % self.settings.validate_every == 0 or epoch + 1 == self.settings.epochs
        error = self._validate(epoch) if looked and math.isfinite(loss) else None
        if not math.isfinite(loss) or (error is not None and not math.isfinite(error)):
            self.history.stopped = "diverged"
            return False
        record = EpochRecord(epoch, loss, error, rate, time.perf_counter() - start, self.objective.notes())
        self.history.records.append(record)
        for callback in self._callbacks:
            callback(record, self.history)
        if looked and self._out_of_patience(epoch):
            self.history.stopped = "patience"
            return False
        return True

    def _train_step(self) -> None:
        rows, columns = self._walk.next_block()
        self._optimiser.forget_gradients()
        with self.machine.autocast():
            loss = self.objective.loss(rows, columns)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        self._loss_sum += loss.detach()

    def _validate(self, epoch: int) -> float | None:
        """Look at the validation error, and remember the weights that it recommends; NaN if they are no good at all."""
        self._network.eval()
        with torch.no_grad(), self.machine.autocast():
            error = self.objective.validation_error()
            # Without validation entries, one more block shows whether the last step left weights that still answer.
            shown = self.objective.loss(*self._walk.next_block()).item() if error is None else error
        if not math.isfinite(shown):
            return math.nan
        if error is None or self.history.best_error is None or error < self.history.best_error:
            self._remember()
            self.history.best_epoch, self.history.best_error = epoch, error
        return error

    def _remember(self) -> None:
        current = self._network.state_dict()
        if self._good is None:
            self._good = {name: tensor.clone() for name, tensor in current.items()}
        else:
            for name, tensor in current.items():
                self._good[name].copy_(tensor)

    def _out_of_patience(self, epoch: int) -> bool:
        patience, best = self.settings.patience, self.history.best_epoch
        has_error = self.history.best_error is not None
        return patience is not None and has_error and best is not None and epoch - best >= patience


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
