"""The trainer: a network, its objective and its optimiser as a task of the loop; each block is one step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from deepmf.layers.dropout import use_generator
from deepmf.layers.spread_branch import Division, divisions
from deepmf.training.block_source import BlockSource
from deepmf.training.ema import ExponentialAverage
from deepmf.training.loop import Epoch, part
from deepmf.training.optimisers import Adam, Optimiser
from deepmf.training.runtime import Runtime, private_generator
from deepmf.training.settings import TrainingSettings
from deepmf.training.validation import ValidationEntries

Evaluate = Callable[[], Tensor]
NewOptimiser = Callable[[Iterable[Tensor], float], Optimiser]


class Objective(nn.Module, ABC):
    """The loss on a block, and the predictions for pairs; it knows neither matrix nor device.

    As a module, tensors that it needs move to the device with it.
    """

    @abstractmethod
    def loss(self, network: Any, block: Any) -> Tensor:
        """Return the loss on a block."""

    def passes(self, network: Any, block: Any) -> Sequence[Evaluate]:
        """Return the losses to step along on a block, one after another."""
        return [lambda: self.loss(network, block)]

    def begin_epoch(self, epoch: int) -> None:
        """Update what depends on the epoch."""

    def notes(self, network: Any) -> dict[str, Any]:
        """Return what the history should keep of an epoch beside its losses."""
        return {}

    @abstractmethod
    def predictions(self, network: Any, source: Any, rows: Tensor, columns: Tensor) -> Tensor:
        """Return what the network predicts for pairs of positions, in the scale's units."""


class Trainer:
    """Trains a network, as a task of the loop; the only place that knows the runtime."""

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        source: BlockSource,
        settings: TrainingSettings,
        *,
        validation: ValidationEntries | None = None,
        new_optimiser: NewOptimiser = Adam,
    ) -> None:
        self.runtime = runtime = Runtime(settings.device, settings.precision)
        self.settings, self.source, self.validation = settings, source, validation
        # "walk" seeds the generator of blocks: with another word every result would change.
        self._sampling_generator = private_generator(settings.seed, "walk")
        source.prepare(runtime.device, half=runtime.half, generator=self._sampling_generator, ranks=runtime.ranks)
        self._divisions = divisions(network)
        self._spread = runtime.spread(network)
        self.network, self.objective = network.to(runtime.device), objective.to(runtime.device)
        self._generator = runtime.generator(settings.seed, "dropout")
        use_generator(network, self._generator)
        self._optimiser = new_optimiser(network.parameters(), settings.learning_rate)
        self._average = ExponentialAverage(network.parameters(), settings.averaging) if settings.averaging else None
        compared_on = None if validation is None else validation.sampled(seed=settings.seed)
        self._validation = None if compared_on is None else compared_on.to(runtime.device)
        self._loss_sum = torch.zeros((), dtype=torch.float32, device=runtime.device)
        self._schedule: Callable[[int], int] | None = None
        self._step = runtime.capture(self._train_step, [self._generator], static_shapes=source.dense)

    def run_epoch(self, epoch: int) -> Epoch:
        """Take a step on every block."""
        epoch = epoch if self._schedule is None else self._schedule(epoch)
        rate = self.settings.learning_rate_at(epoch)
        self._optimiser.set_learning_rate(rate)
        self.objective.begin_epoch(epoch)
        self.source.begin_epoch()
        self.network.train()
        self._loss_sum.zero_()
        with nullcontext() if self._average is None else self._average.swapped_out():
            for _ in range(self.source.n_steps):
                self._step()
        loss = self.runtime.agreed(self._loss_sum.item() / self.source.n_steps)
        return Epoch(loss, rate, self.objective.notes(self.network))

    def validation_error(self) -> float | None:
        """Return the root mean squared error on validation entries, in the scale's units.

        Without any it is None, or NaN where the weights no longer predict anything.
        """
        self.network.eval()
        with torch.no_grad(), self.runtime.autocast():
            if self._validation is None:
                loss = self.objective.loss(self.network, self.source.next_block())
                return None if math.isfinite(self.runtime.agreed(loss.item())) else math.nan
            rows, columns, values = self._validation
            predictions = self.objective.predictions(self.network, self.source, rows, columns)
            return self.runtime.agreed(float((predictions - values).square().mean().sqrt()))

    def learned(self) -> dict[str, Tensor]:
        """Return the weights (their average, where there is one) and statistics of the network, not copied.

        Of divided tables they are the lines of this rank.
        """
        return dict(self.network.state_dict())

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        """Go back to weights learned earlier."""
        self.network.load_state_dict(learned)

    def whole_learned(self) -> dict[str, Tensor]:
        """Return the same with the lines of all ranks."""
        return self.learned() if self._spread is None else self._spread.whole(self.learned())

    def divided(self) -> dict[str, Division]:
        """Return of which tensors of `learned` and `state` each of several ranks holds some lines."""
        divided = {f"learned.{name}": division for name, division in self._divisions.items()}
        for number, (name, _) in enumerate(self.network.named_parameters()):
            if name in self._divisions:
                starts = f"optimiser.{number}.", f"average.{number}."
                slots = [slot for slot, tensor in self.state().items() if slot.startswith(starts) and tensor.ndim]
                divided |= {f"state.{slot}": self._divisions[name] for slot in slots}
        return divided

    def join(self) -> None:
        """Leave every rank with the whole network, which each may go on with alone; training is over."""
        if self._spread is not None:
            self._spread.join()
            self._spread = None
            self.source.join()

    def begin_from(self, learned: Mapping[str, Tensor], *, schedule: Callable[[int], int]) -> None:
        """Begin with weights learned earlier; `schedule` says which epoch of the whole schedule an epoch stands for."""
        self.set_learned(learned if self._spread is None else self._spread.share(learned))
        self._schedule = schedule
        if self._average is not None:
            self._average.restart()

    def state(self) -> dict[str, Tensor]:
        """Return the state of the optimiser, of the average and of the generators."""
        tensors = {f"optimiser.{name}": slot for name, slot in self._optimiser.state().items()}
        if self._average is not None:
            tensors |= {f"average.{name}": slot for name, slot in self._average.state().items()}
        tensors["generator.dropout"] = self._generator.get_state()
        tensors["generator.sampling"] = self._sampling_generator.get_state()
        return tensors

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore such a state."""
        self._optimiser.restore(part(state, "optimiser"))
        if self._average is not None:
            self._average.restore(part(state, "average"))
        self._generator.set_state(state["generator.dropout"])
        self._sampling_generator.set_state(state["generator.sampling"])

    def _train_step(self) -> None:
        for number, evaluate in enumerate(self.objective.passes(self.network, self.source.next_block())):
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
        if self._spread is not None:
            self._spread.sum_gradients()
        return loss.detach()
