"""Adam, one fused kernel for each group of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam


class Adam:
    """Adam with the paper's code's settings; on a GPU its step size lives there, so that a recorded graph reads it.

    It calls torch's function: the first use of the class `torch.optim.Adam` imports torch's compiler, which takes
    longer (2 to 6 s) than many a training.
    """

    replayable = True

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float) -> None:
        self._parameters = list(parameters)
        device = self._parameters[0].device
        self._on_gpu = device.type == "cuda"
        self._rate: Tensor | float = torch.tensor(learning_rate, device=device) if self._on_gpu else learning_rate
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = [torch.zeros((), device=device) for _ in self._parameters]

    def set_learning_rate(self, rate: float) -> None:
        """Change the step size, in place where a recorded graph reads it."""
        if isinstance(self._rate, Tensor):
            self._rate.fill_(rate)
        else:
            self._rate = rate

    def step(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Take a step along the gradients that `evaluate` leaves with the parameters; return the loss before it."""
        for parameter in self._parameters:
            parameter.grad = None  # the backward pass starts from nothing
        loss = evaluate()
        self._update()
        return loss

    @torch.no_grad()
    def _update(self) -> None:
        adam(
            self._parameters,
            [parameter.grad for parameter in self._parameters if parameter.grad is not None],
            self._means,
            self._squares,
            [],
            self._steps,
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

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on beside parameters and gradients, not copied."""
        slots = zip(self._steps, self._means, self._squares, strict=True)
        return {
            f"{number}.{name}": slot
            for number, three in enumerate(slots)
            for name, slot in zip(("step", "exp_avg", "exp_avg_sq"), three, strict=True)
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state."""
        for name, slot in self.state().items():
            slot.copy_(state[name])
