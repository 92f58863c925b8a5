"""L-BFGS: full-batch steps along directions that the last few steps bend towards the minimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

# The share of the decrease promised by the slope that a step must reach, and how often a step's length is tried.
_DECREASE = 1e-4
_TRIES = 20
# How much farther to go while the loss falls ever more steeply.
_GROWTH = 3.0


class _Point(NamedTuple):
    """A place on the line of a search: how far along, the loss there, its slope and its gradient (parameters,)."""

    size: float
    loss: float
    slope: float
    gradient: Tensor


class LBFGS:
    """Limited-memory BFGS (Nocedal 1980) with a line search for the strong Wolfe conditions; one step an iteration.

    `history` is how many steps it remembers; `curvature` is the share of the slope that a step may leave. For a loss
    that is the same function in every step: the gradient at the end of a step begins the next one.

    The direction is computed by inner products alone (Chen, Wang, Zhou 2014): the recursion runs on coefficients of
    the remembered vectors, which are read twice in a step instead of ten times.
    """

    replayable = False

    def __init__(self, parameters: Iterable[Tensor], *, history: int = 10, curvature: float = 0.9) -> None:
        self._parameters = list(parameters)
        self._history, self._curvature = history, curvature
        first = self._parameters[0]
        n_numbers = sum(parameter.numel() for parameter in self._parameters)
        # The last steps, the changes of the gradient along them in the same order, and the present gradient.
        self._vectors = torch.zeros(2 * history + 1, n_numbers, dtype=first.dtype, device=first.device)
        self._loss = torch.full((), math.nan, dtype=torch.float64)  # at the present place; NaN before the first step
        self._n_steps = torch.zeros((), dtype=torch.int64)  # remembered since the last time all were forgotten

    def set_learning_rate(self, rate: float) -> None:
        """Change nothing: the line search finds the length of a step."""

    def step(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Move to a place of smaller loss; return the loss before it. Where there is none, stay and forget."""
        gradient = self._vectors[-1]
        if math.isnan(self._loss.item()):
            loss, found = self._evaluate(evaluate)
            self._loss.fill_(loss)
            gradient.copy_(found)
        loss = self._loss.item()
        direction = self._direction()
        slope = float(direction @ gradient)
        if slope < 0.0 and math.isfinite(loss):
            start = _Point(0.0, loss, slope, gradient)
            end = self._search(evaluate, start, direction)
            self._remember(start, end, direction)
        return torch.tensor(loss)

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on beside the parameters, not copied."""
        return {"vectors": self._vectors, "loss": self._loss, "n_steps": self._n_steps}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state."""
        for name, slot in self.state().items():
            slot.copy_(state[name])

    def _direction(self) -> Tensor:
        """Return minus the inverse Hessian, as the remembered steps tell it, times the gradient."""
        products = (self._vectors @ self._vectors.T).double().cpu()
        n_steps, history = int(self._n_steps), self._history
        steps = [number % history for number in range(max(0, n_steps - history), n_steps)]  # oldest first
        changes = [history + step for step in steps]
        along = torch.zeros(2 * history + 1, dtype=torch.float64)  # coefficients of the vectors
        along[-1] = -1.0
        shares = {}
        for step, change in zip(reversed(steps), reversed(changes), strict=True):
            shares[step] = products[step] @ along / products[step, change]
            along[change] -= shares[step]
        if steps:
            along *= products[steps[-1], changes[-1]] / products[changes[-1], changes[-1]]
        else:
            along /= products[-1, -1].sqrt().clamp(min=torch.finfo(torch.float64).tiny)  # of length 1
        for step, change in zip(steps, changes, strict=True):
            along[step] += shares[step] - products[change] @ along / products[step, change]
        return along.to(self._vectors) @ self._vectors

    def _search(self, evaluate: Callable[[], Tensor], start: _Point, direction: Tensor) -> _Point:
        """Return a place along a direction that meets the strong Wolfe conditions, or the best that was found."""
        origin = torch.cat([parameter.detach().flatten() for parameter in self._parameters])
        low: _Point = start  # the best so far
        high: _Point | None = None  # with `low` it encloses such a place, on either side; None: none in sight yet
        size = 1.0
        for _ in range(_TRIES):
            self._move(origin, direction, size)
            loss, gradient = self._evaluate(evaluate)
            here = _Point(size, loss, float(direction @ gradient), gradient)
            if not (loss <= start.loss + _DECREASE * size * start.slope and loss < low.loss):
                high = here
            elif abs(here.slope) <= -self._curvature * start.slope:
                return here
            else:
                outward = 1.0 if high is None else high.size - low.size
                low, high = here, (low if here.slope * outward >= 0.0 else high)
            if high is not None and high.size == low.size:
                break  # as near as numbers go
            size = _GROWTH * size if high is None else _between(low, high)
        self._move(origin, direction, low.size)
        return low

    def _remember(self, start: _Point, end: _Point, direction: Tensor) -> None:
        """Take up the end of a search as the present place; a search that led nowhere is a reason to forget."""
        if end.size == 0.0:
            self._n_steps.zero_()
            return
        if end.slope > start.slope:  # otherwise the loss is not convex there, and tells nothing of a minimum
            place = int(self._n_steps) % self._history
            self._vectors[place] = end.size * direction
            self._vectors[self._history + place] = end.gradient - start.gradient
            self._n_steps += 1
        self._vectors[-1] = end.gradient
        self._loss.fill_(end.loss)

    def _evaluate(self, evaluate: Callable[[], Tensor]) -> tuple[float, Tensor]:
        """Return the loss and the gradient (parameters,) at the present place."""
        for parameter in self._parameters:
            parameter.grad = None  # the backward pass starts from nothing
        loss = evaluate().item()
        gradients = (parameter.grad for parameter in self._parameters)
        return loss, torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])

    @torch.no_grad()
    def _move(self, origin: Tensor, direction: Tensor, size: float) -> None:
        """Set the parameters to a place along a direction."""
        place = torch.add(origin, direction, alpha=size)
        parts = torch.split(place, [parameter.numel() for parameter in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))


def _between(one: _Point, other: _Point) -> float:
    """Return the minimum of the cubic through two places, but no nearer to either than a tenth of their distance."""
    distance = other.size - one.size
    bend = one.slope + other.slope - 3.0 * (other.loss - one.loss) / distance
    root = math.sqrt(max(bend * bend - one.slope * other.slope, 0.0))
    if distance < 0.0:
        root = -root
    below = other.slope - one.slope + 2.0 * root
    share = 1.0 - (other.slope + root - bend) / below if below else 0.5
    return one.size + distance * (min(max(share, 0.1), 0.9) if math.isfinite(share) else 0.5)
