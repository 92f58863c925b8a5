"""Optimisers: Adam and SGD over torch's functions, with a step size that a captured graph reads.

They call torch's functions: the first use of the classes in `torch.optim` imports torch's compiler, which takes longer
(2 to 6 s) than a short training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam


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
