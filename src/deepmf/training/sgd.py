"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor


class SGD:
    """Steps along a running sum of gradients, v <- momentum v + g; the step size lives where a recorded graph reads it.

    The class of torch would do, but its first use imports torch's compiler.
    """

    replayable = True

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float, *, momentum: float = 0.9) -> None:
        self._parameters = list(parameters)
        self._momentum = momentum
        self._rate = torch.tensor(learning_rate, device=self._parameters[0].device)
        self._velocities = [torch.zeros_like(parameter) for parameter in self._parameters]

    def set_learning_rate(self, rate: float) -> None:
        """Change the step size, in place."""
        self._rate.fill_(rate)

    def step(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Take a step along the gradients that `evaluate` leaves with the parameters; return the loss before it."""
        for parameter in self._parameters:
            parameter.grad = None  # the backward pass starts from nothing
        loss = evaluate()
        with torch.no_grad():
            for parameter, velocity in zip(self._parameters, self._velocities, strict=True):
                assert parameter.grad is not None
                velocity.mul_(self._momentum).add_(parameter.grad)
                parameter.addcmul_(velocity, self._rate, value=-1.0)
        return loss

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on beside parameters and gradients, not copied."""
        return {f"{number}.velocity": velocity for number, velocity in enumerate(self._velocities)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state."""
        for name, slot in self.state().items():
            slot.copy_(state[name])
