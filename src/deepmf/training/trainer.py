"""The trainer: a network, its loss and its optimiser as a task of the loop; an epoch is a walk of block steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from deepmf.layers.dropout import use_generator
from deepmf.training.block_sampler import BlockSampler, SampledAxis
from deepmf.training.ema import ExponentialAverage
from deepmf.training.loop import Epoch, part
from deepmf.training.optimisers import Adam, Optimiser
from deepmf.training.runtime import Runtime, private_generator
from deepmf.training.settings import TrainingSettings

Evaluate = Callable[[], Tensor]


class Objective(ABC):
    """What a model hands to the trainer: a network, its loss on a block, its error on validation entries."""

    network: nn.Module  # everything that is learned
    static_shapes: bool  # whether every step runs the same kernels on the same shapes

    @abstractmethod
    def loss(self, *block: Tensor) -> Tensor:
        """Return the loss on the observed training entries of a block: positions on each axis of the walk."""

    def passes(self, *block: Tensor) -> Sequence[Evaluate]:
        """Return the losses to step along on a block, one after another."""
        return [lambda: self.loss(*block)]

    def begin_epoch(self, epoch: int) -> None:  # noqa: B027 (most have nothing that changes by the epoch)
        """Bring what changes by the epoch up to date."""

    def notes(self) -> dict[str, Any]:
        """Return what the history should keep of an epoch beside its losses."""
        return {}

    @abstractmethod
    def validation_error(self) -> float | None:
        """Return the error on validation entries, or None where there are none."""


class Trainer:
    """Trains the network of an objective, as a task of the loop."""

    def __init__(
        self,
        objective: Objective,
        settings: TrainingSettings,
        runtime: Runtime,
        *,
        axes: Sequence[SampledAxis],
        optimiser: Optimiser | None = None,
    ) -> None:
        self.objective, self.settings, self.runtime = objective, settings, runtime
        self._network = objective.network
        self._generator = runtime.generator(settings.seed, "dropout")
        use_generator(self._network, self._generator)
        self._walk_generator = private_generator(settings.seed, "walk")
        placed = [SampledAxis(axis.positions.to(runtime.device), axis.block) for axis in axes]
        self._walk = BlockSampler(placed, generator=self._walk_generator)
        self._optimiser = optimiser or Adam(self._network.parameters(), settings.learning_rate)
        self._average = (
            ExponentialAverage(self._network.parameters(), settings.averaging) if settings.averaging else None
        )
        self._loss_sum = torch.zeros((), dtype=torch.float32, device=runtime.device)
        self._step = runtime.capture(self._train_step, [self._generator], static_shapes=objective.static_shapes)

    def run_epoch(self, epoch: int) -> Epoch:
        """Step over all rows, or all columns, once."""
        rate = self.settings.learning_rate_at(epoch)
        self._optimiser.set_learning_rate(rate)
        self.objective.begin_epoch(epoch)
        self._walk.begin_epoch()
        self._network.train()
        self._loss_sum.zero_()
        with nullcontext() if self._average is None else self._average.swapped_out():
            for _ in range(self._walk.n_steps):
                self._step()
        return Epoch(self._loss_sum.item() / self._walk.n_steps, rate, self.objective.notes())

    def validation_error(self) -> float | None:
        """Return the objective's error; without validation entries, NaN where the weights no longer answer."""
        self._network.eval()
        with torch.no_grad(), self.runtime.autocast():
            error = self.objective.validation_error()
            if error is None and not math.isfinite(self.objective.loss(*self._walk.next_block()).item()):
                return math.nan
        return error

    def learned(self) -> dict[str, Tensor]:
        """Return the weights (their average, where there is one) and statistics of the network, not copied."""
        return dict(self._network.state_dict())

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        """Go back to weights learned earlier."""
        self._network.load_state_dict(learned)

    def state(self) -> dict[str, Tensor]:
        """Return the state of the optimiser, of the average and of the generators."""
        tensors = {f"optimiser.{name}": slot for name, slot in self._optimiser.state().items()}
        if self._average is not None:
            tensors |= {f"average.{name}": slot for name, slot in self._average.state().items()}
        tensors["generator.dropout"] = self._generator.get_state()
        tensors["generator.walk"] = self._walk_generator.get_state()
        return tensors

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up such a state."""
        self._optimiser.restore(part(state, "optimiser"))
        if self._average is not None:
            self._average.restore(part(state, "average"))
        self._generator.set_state(state["generator.dropout"])
        self._walk_generator.set_state(state["generator.walk"])

    def _train_step(self) -> None:
        for number, evaluate in enumerate(self.objective.passes(*self._walk.next_block())):
            loss = self._optimiser.step(lambda evaluate=evaluate: self._differentiated(evaluate))  # type: ignore[misc]
            if self._average is not None:
                self._average.update()
            if number == 0:
                self._loss_sum += loss

    def _differentiated(self, evaluate: Evaluate) -> Tensor:
        """Return a loss, and leave its gradients with the parameters."""
        with self.runtime.autocast():
            loss = evaluate()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()
