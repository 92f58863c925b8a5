"""Resilient propagation: every weight has a step size of its own, and only the signs of gradients count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor


class Rprop:
    """The rule of Riedmiller and Braun (1993): a weight's step grows while its gradient keeps its sign.

    Where the sign has turned, the step shrinks and the weight rests for once (the variant iRprop-). For losses over
    all training entries: signs that turn from batch to batch would shrink all steps.
    """

    replayable = True

    def __init__(
        self,
        parameters: Iterable[Tensor],
        first_step: float,
        *,
        growth: float = 1.2,
        shrinkage: float = 0.5,
        limits: tuple[float, float] = (1e-7, 0.05),
    ) -> None:
        self._parameters = list(parameters)
        self._growth, self._shrinkage, self._limits = growth, shrinkage, limits
        self._sizes = [torch.full_like(parameter, first_step) for parameter in self._parameters]
        self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters]

    def set_learning_rate(self, rate: float) -> None:
        """Change nothing: after the first step every weight finds its own."""

    def step(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Take a step by the gradients that `evaluate` leaves with the parameters; return the loss before it."""
        for parameter in self._parameters:
            parameter.grad = None  # the backward pass starts from nothing
        loss = evaluate()
        with torch.no_grad():
            for slots in zip(self._parameters, self._sizes, self._gradients, strict=True):
                self._update(*slots)
        return loss

    def _update(self, parameter: Tensor, sizes: Tensor, previous: Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        agreement = gradient * previous
        sizes.mul_(torch.where(agreement > 0, self._growth, torch.where(agreement < 0, self._shrinkage, 1.0)))
        sizes.clamp_(*self._limits)
        previous.copy_(gradient.masked_fill(agreement < 0, 0.0))
        parameter.addcmul_(previous.sign(), sizes, value=-1.0)

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on beside parameters and gradients, not copied."""
        slots = zip(self._sizes, self._gradients, strict=True)
        return {
            f"{number}.{name}": slot
            for number, two in enumerate(slots)
            for name, slot in zip(("size", "gradient"), two, strict=True)
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state."""
        for name, slot in self.state().items():
            slot.copy_(state[name])
