"""The trainer: a network with its objective, optimiser and blocks as a task of the loop."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from deepmf.nn.branch import use_generator
from deepmf.nn.parallel import Division, SpreadNetwork, find_divisions
from deepmf.training.blocks import BlockSource
from deepmf.training.holdout import HeldOut
from deepmf.training.loop import Epoch
from deepmf.training.runtime import GraphStep, Runtime, make_generator
from deepmf.training.settings import TrainingSettings


class ExponentialAverage:
    """An exponential moving average of parameters, which replaces them between epochs.

    Step t, counted from 1, keeps min(decay, (t + 1) / (t + 10)) of the average, so that the start
    of training is soon forgotten. Tensors stay in place and the step count is on the device, so
    that a CUDA graph can replay the update.
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float) -> None:
        self._parameters = list(parameters)
        self._decay = decay
        # The averages during an epoch, the stepped weights between epochs.
        self._others = [parameter.detach().clone() for parameter in self._parameters]
        self._steps = torch.zeros((), dtype=torch.float32, device=self._parameters[0].device)

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the parameters after a step."""
        self._steps += 1
        # 9 / (t + 10) = 1 - (t + 1) / (t + 10)
        share = (9.0 / (self._steps + 10.0)).clamp(min=1.0 - self._decay)
        for average, parameter in zip(self._others, self._parameters, strict=True):
            average.lerp_(parameter, share.to(average.dtype))

    @contextmanager
    def swap_out(self) -> Iterator[None]:
        """Make the parameters the stepped weights, and their average again at the end."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, Tensor]:
        """Return the stepped weights and the step count, not copied."""
        stepped = {f"{number}.stepped": weight for number, weight in enumerate(self._others)}
        return {"steps": self._steps} | stepped

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, parameter in zip(self._others, self._parameters, strict=True):
            copy = parameter.clone()
            parameter.copy_(weight)
            weight.copy_(copy)


class Optimiser(ABC):
    """Parameters, their state by name (`slots`), and a learning rate, which is on the GPU if they
    are.

    Written here because importing `torch.optim` takes long.
    """

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float) -> None:
        self._parameters = list(parameters)
        device = self._parameters[0].device
        self._on_gpu = device.type == "cuda"
        self._rate: Tensor | float = (
            torch.tensor(learning_rate, dtype=torch.float32, device=device)
            if self._on_gpu
            else learning_rate
        )
        self._slots: dict[str, list[Tensor]] = {}

    @abstractmethod
    def _update(self, gradients: list[Tensor]) -> None:
        """Update the parameters and their slots by gradients."""

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate, in place if a CUDA graph reads it."""
        if isinstance(self._rate, Tensor):
            self._rate.fill_(rate)
        else:
            self._rate = rate

    def step(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Take a step by the gradients that `evaluate` computes; return the loss before it."""
        for parameter in self._parameters:
            parameter.grad = None  # so that the backward pass does not accumulate
        loss = evaluate()
        with torch.no_grad():
            self._update(
                [parameter.grad for parameter in self._parameters if parameter.grad is not None]
            )
        return loss

    def state(self) -> dict[str, Tensor]:
        """Return the slots of all parameters, not copied."""
        return {
            f"{number}.{name}": slot
            for name, slots in self._slots.items()
            for number, slot in enumerate(slots)
        }

    def _make_zeros(self) -> list[Tensor]:
        return [torch.zeros_like(parameter) for parameter in self._parameters]


class Adam(Optimiser):
    """Adam with the settings of the paper's code, fused."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float) -> None:
        super().__init__(parameters, learning_rate)
        steps = [
            torch.zeros((), dtype=torch.float32, device=parameter.device)
            for parameter in self._parameters
        ]
        self._slots = {
            "step": steps,
            "exp_avg": self._make_zeros(),
            "exp_avg_sq": self._make_zeros(),
        }

    def _update(self, gradients: list[Tensor]) -> None:
        adam(
            self._parameters,
            gradients,
            self._slots["exp_avg"],
            self._slots["exp_avg_sq"],
            [],
            self._slots["step"],
            fused=True,
            capturable=self._on_gpu,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )


class SGD(Optimiser):
    """Stochastic gradient descent with momentum: v <- momentum v + g, weight <- weight - rate v."""

    def __init__(
        self, parameters: Iterable[Tensor], learning_rate: float, *, momentum: float = 0.9
    ) -> None:
        super().__init__(parameters, learning_rate)
        self._momentum = momentum
        self._slots = {"velocity": self._make_zeros()}

    def _update(self, gradients: list[Tensor]) -> None:
        # Torch's own function reads a learning rate in a tensor on the host, which no CUDA graph
        # can capture.
        rate = torch.as_tensor(self._rate, dtype=torch.float32)
        for parameter, velocity, gradient in zip(
            self._parameters, self._slots["velocity"], gradients, strict=True
        ):
            velocity.mul_(self._momentum).add_(gradient)
            parameter.addcmul_(velocity, rate, value=-1.0)


Evaluate = Callable[[], Tensor]

NewOptimiser = Callable[[Iterable[Tensor], float], Optimiser]


class Objective(nn.Module, ABC):
    """The loss on a block and the predictions for pairs, independent of matrix and device.

    It is a module so that its tensors move to the device.
    """

    @abstractmethod
    def loss(self, network: Any, block: Any) -> Tensor:
        """Return the loss on a block."""

    def list_passes(self, network: Any, block: Any) -> Sequence[Evaluate]:
        """Return functions of the losses to minimise on a block, one step for each."""
        return [lambda: self.loss(network, block)]

    def begin_epoch(self, epoch: int) -> None:
        """Update tensors that depend on the epoch."""

    def take_notes(self, network: Any) -> dict[str, Any]:
        """Return the notes of an epoch for the history."""
        return {}

    @abstractmethod
    def predictions(self, network: Any, source: Any, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the predictions for pairs of positions, (pairs,), in the units of the scale."""


class Trainer:
    """Trains a network as a task of the loop; every block of the source is one step.

    It is the only user of the runtime.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        source: BlockSource,
        settings: TrainingSettings,
        *,
        validation: HeldOut | None = None,
        new_optimiser: NewOptimiser = Adam,
    ) -> None:
        self.runtime = runtime = Runtime(settings.device, settings.precision)
        self.settings, self.source, self.validation = settings, source, validation
        # The word "walk" is part of the seed of the blocks: another word would change every result.
        self._sampling_generator = make_generator(settings.seed, "walk")
        source.prepare(
            runtime.device,
            half=runtime.half,
            generator=self._sampling_generator,
            ranks=runtime.ranks,
        )
        self._divisions = find_divisions(network)
        self._spread = None if runtime.ranks is None else SpreadNetwork(network, runtime.ranks)
        self.network, self.objective = network.to(runtime.device), objective.to(runtime.device)
        self._generator = make_generator(settings.seed, "dropout", runtime.device)
        use_generator(network, self._generator)
        self._optimiser = new_optimiser(network.parameters(), settings.learning_rate)
        self._average = (
            ExponentialAverage(network.parameters(), settings.averaging)
            if settings.averaging
            else None
        )
        compared_on = None if validation is None else validation.sample(seed=settings.seed)
        self._validation = None if compared_on is None else compared_on.to(runtime.device)
        self._loss_sum = torch.zeros((), dtype=torch.float32, device=runtime.device)
        self._step = runtime.capture(
            self._train_step, [self._generator], static_shapes=source.dense
        )

    @property
    def replays_steps(self) -> bool:
        """Whether a CUDA graph of a step has been recorded, which all further steps replay."""
        return isinstance(self._step, GraphStep) and self._step.is_recorded

    def run_epoch(self, epoch: int) -> Epoch:
        """Take a step on every block."""
        rate = self.settings.find_learning_rate(epoch)
        self._optimiser.set_learning_rate(rate)
        self.objective.begin_epoch(epoch)
        self.source.begin_epoch()
        self.network.train()
        self._loss_sum.zero_()
        with nullcontext() if self._average is None else self._average.swap_out():
            for _ in range(self.source.n_steps):
                self._step()
        loss = self.runtime.agree_on(self._loss_sum.item() / self.source.n_steps)
        return Epoch(loss, rate, self.objective.take_notes(self.network))

    def validation_error(self) -> float | None:
        """Return the root mean squared error on validation entries, in the units of the scale.

        Without validation entries, return None, or NaN if the loss is no longer finite.
        """
        self.network.eval()
        with torch.no_grad(), self.runtime.autocast():
            if self._validation is None:
                loss = self.objective.loss(self.network, self.source.next_block())
                return None if math.isfinite(self.runtime.agree_on(loss.item())) else math.nan
            rows, columns, values = self._validation
            predictions = self.objective.predictions(self.network, self.source, rows, columns)
            return self.runtime.agree_on(float((predictions - values).square().mean().sqrt()))

    def get_learned(self) -> dict[str, Tensor]:
        """Return the weights (their average, if there is one) and statistics of the network, not
        copied.

        Divided tables have the lines of this rank only.
        """
        return dict(self.network.state_dict())

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        """Go back to weights learned earlier."""
        self.network.load_state_dict(learned)

    def find_divided(self) -> dict[str, Division]:
        """Return the divisions of those tensors of `get_learned` and `state` that ranks divide, by
        name."""
        divided = {f"learned.{name}": division for name, division in self._divisions.items()}
        for number, (name, _) in enumerate(self.network.named_parameters()):
            if name in self._divisions:
                starts = f"optimiser.{number}.", f"average.{number}."
                slots = [
                    slot
                    for slot, tensor in self.state().items()
                    if slot.startswith(starts) and tensor.ndim
                ]
                divided |= {f"state.{slot}": self._divisions[name] for slot in slots}
        return divided

    def join(self) -> None:
        """Give every rank the whole network at the end of training."""
        if self._spread is not None:
            self._spread.join()
            self._spread = None
            self.source.join()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the optimiser, the average and the generators."""
        return self._list_slots() | {
            "generator.dropout": self._generator.get_state(),
            "generator.sampling": self._sampling_generator.get_state(),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""
        for name, slot in self._list_slots().items():
            slot.copy_(state[name])
        self._generator.set_state(state["generator.dropout"])
        self._sampling_generator.set_state(state["generator.sampling"])

    def _list_slots(self) -> dict[str, Tensor]:
        slots = {f"optimiser.{name}": slot for name, slot in self._optimiser.state().items()}
        if self._average is not None:
            slots |= {f"average.{name}": slot for name, slot in self._average.state().items()}
        return slots

    def _train_step(self) -> None:
        for number, evaluate in enumerate(
            self.objective.list_passes(self.network, self.source.next_block())
        ):
            loss = self._optimiser.step(lambda evaluate=evaluate: self._differentiate(evaluate))  # type: ignore[misc]
            if self._average is not None:
                self._average.update()
            if number == 0:
                self._loss_sum += loss

    def _differentiate(self, evaluate: Evaluate) -> Tensor:
        with self.runtime.autocast():
            loss = evaluate()
        loss.backward()  # type: ignore[no-untyped-call]
        if self._spread is not None:
            self._spread.average_gradients()
        return loss.detach()
