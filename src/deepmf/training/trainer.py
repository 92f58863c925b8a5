"""The trainer: a network, its objective and its optimiser as a task of the loop; each block is one step."""

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
from deepmf.nn.parallel import Division, find_divisions
from deepmf.training.blocks import BlockSource
from deepmf.training.loop import Epoch, ValidationEntries, select_prefix
from deepmf.training.runtime import Runtime, make_generator
from deepmf.training.settings import TrainingSettings


class ExponentialAverage:
    """An exponential moving average of parameters, which takes their place between epochs.

    After step t, counted from 1, the average keeps min(decay, (t + 1) / (t + 10)) of itself: it forgets the start of
    training soon. Nothing moves in memory and the count of steps is on the device: a recorded graph can be replayed.
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float) -> None:
        self._parameters = list(parameters)
        self._decay = decay
        # In an epoch the averages, between epochs the stepped weights: what the parameters are not.
        self._others = [parameter.detach().clone() for parameter in self._parameters]
        self._steps = torch.zeros((), dtype=torch.float32, device=self._parameters[0].device)

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the parameters after a step."""
        self._steps += 1
        share = (9.0 / (self._steps + 10.0)).clamp(min=1.0 - self._decay)  # 9 / (t + 10) = 1 - (t + 1) / (t + 10)
        for average, parameter in zip(self._others, self._parameters, strict=True):
            average.lerp_(parameter, share.to(average.dtype))

    @torch.no_grad()
    def restart(self) -> None:
        """Average anew, from the parameters as they are."""
        for other, parameter in zip(self._others, self._parameters, strict=True):
            other.copy_(parameter)
        self._steps.zero_()

    @contextmanager
    def swap_out(self) -> Iterator[None]:
        """Let the parameters be the weights that are stepped, and their average again in the end."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on beside the average: the stepped weights and their count, not copied."""
        return {"steps": self._steps} | {f"{number}.stepped": other for number, other in enumerate(self._others)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state."""
        for name, slot in self.state().items():
            slot.copy_(state[name])

    @torch.no_grad()
    def _swap(self) -> None:
        for other, parameter in zip(self._others, self._parameters, strict=True):
            held = parameter.clone()
            parameter.copy_(other)
            other.copy_(held)


class Optimiser(ABC):
    """Parameters, the state of each (`slots`, by name), and a step size that lives on a GPU where they do."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float) -> None:
        self._parameters = list(parameters)
        device = self._parameters[0].device
        self._on_gpu = device.type == "cuda"
        self._rate: Tensor | float = (
            torch.tensor(learning_rate, dtype=torch.float32, device=device) if self._on_gpu else learning_rate
        )
        self._slots: dict[str, list[Tensor]] = {}

    @abstractmethod
    def _update(self, gradients: list[Tensor]) -> None:
        """Move the parameters, and their slots, along gradients."""

    def set_learning_rate(self, rate: float) -> None:
        """Change the step size, in place where a captured graph reads it."""
        if isinstance(self._rate, Tensor):
            self._rate.fill_(rate)
        else:
            self._rate = rate

    def step(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Take a step along the gradients that `evaluate` leaves with the parameters; return the loss before it."""
        for parameter in self._parameters:
            parameter.grad = None  # the backward pass starts from nothing
        loss = evaluate()
        with torch.no_grad():
            self._update([parameter.grad for parameter in self._parameters if parameter.grad is not None])
        return loss

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on beside parameters and gradients, not copied."""
        return {f"{number}.{name}": slot for name, slots in self._slots.items() for number, slot in enumerate(slots)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state."""
        for name, slot in self.state().items():
            slot.copy_(state[name])

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(parameter) for parameter in self._parameters]


class Adam(Optimiser):
    """Adam with the settings of the paper's code, one fused kernel for each group of parameters."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float) -> None:
        super().__init__(parameters, learning_rate)
        steps = [torch.zeros((), dtype=torch.float32, device=parameter.device) for parameter in self._parameters]
        self._slots = {"step": steps, "exp_avg": self._zeros(), "exp_avg_sq": self._zeros()}

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
    """Stochastic gradient descent with momentum: v <- momentum v + g, and a step along v."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float, *, momentum: float = 0.9) -> None:
        super().__init__(parameters, learning_rate)
        self._momentum = momentum
        self._slots = {"velocity": self._zeros()}

    def _update(self, gradients: list[Tensor]) -> None:
        # Torch's function reads a step size that is a tensor on the host, which no graph can capture.
        rate = torch.as_tensor(self._rate, dtype=torch.float32)
        for parameter, velocity, gradient in zip(self._parameters, self._slots["velocity"], gradients, strict=True):
            velocity.mul_(self._momentum).add_(gradient)
            parameter.addcmul_(velocity, rate, value=-1.0)


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
        self._sampling_generator = make_generator(settings.seed, "walk")
        source.prepare(runtime.device, half=runtime.half, generator=self._sampling_generator, ranks=runtime.ranks)
        self._divisions = find_divisions(network)
        self._spread = runtime.spread(network)
        self.network, self.objective = network.to(runtime.device), objective.to(runtime.device)
        self._generator = runtime.make_generator(settings.seed, "dropout")
        use_generator(network, self._generator)
        self._optimiser = new_optimiser(network.parameters(), settings.learning_rate)
        self._average = ExponentialAverage(network.parameters(), settings.averaging) if settings.averaging else None
        compared_on = None if validation is None else validation.sample(seed=settings.seed)
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
        with nullcontext() if self._average is None else self._average.swap_out():
            for _ in range(self.source.n_steps):
                self._step()
        loss = self.runtime.agree_on(self._loss_sum.item() / self.source.n_steps)
        return Epoch(loss, rate, self.objective.notes(self.network))

    def validation_error(self) -> float | None:
        """Return the root mean squared error on validation entries, in the scale's units.

        Without any it is None, or NaN where the weights no longer predict anything.
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
        """Return the weights (their average, where there is one) and statistics of the network, not copied.

        Of divided tables they are the lines of this rank.
        """
        return dict(self.network.state_dict())

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        """Go back to weights learned earlier."""
        self.network.load_state_dict(learned)

    def gather_learned(self) -> dict[str, Tensor]:
        """Return the same with the lines of all ranks."""
        return self.get_learned() if self._spread is None else self._spread.gather_whole(self.get_learned())

    def find_divided(self) -> dict[str, Division]:
        """Return of which tensors of `get_learned` and `state` each of several ranks holds some lines."""
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
        self.set_learned(learned if self._spread is None else self._spread.take_share(learned))
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
        self._optimiser.restore(select_prefix(state, "optimiser"))
        if self._average is not None:
            self._average.restore(select_prefix(state, "average"))
        self._generator.set_state(state["generator.dropout"])
        self._sampling_generator.set_state(state["generator.sampling"])

    def _train_step(self) -> None:
        for number, evaluate in enumerate(self.objective.passes(self.network, self.source.next_block())):
            loss = self._optimiser.step(lambda evaluate=evaluate: self._differentiate(evaluate))  # type: ignore[misc]
            if self._average is not None:
                self._average.update()
            if number == 0:
                self._loss_sum += loss

    def _differentiate(self, evaluate: Evaluate) -> Tensor:
        """Return a loss, and leave its gradients with the parameters."""
        with self.runtime.autocast():
            loss = evaluate()
        loss.backward()  # type: ignore[no-untyped-call]
        if self._spread is not None:
            self._spread.sum_gradients()
        return loss.detach()
