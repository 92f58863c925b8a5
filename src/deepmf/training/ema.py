"""The running average of a network's weights: smoother than the weights after single steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


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
    def swapped_out(self) -> Iterator[None]:
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
