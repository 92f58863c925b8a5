"""L-BFGS: what it finds in how many steps, the conditions its steps meet, and its state."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from deepmf.training.lbfgs import LBFGS


def quadratic(n_numbers: int, *, seed: int = 0) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return x'Ax / 2 - b'x of a positive definite A, and its minimum."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n_numbers, n_numbers, dtype=torch.float64, generator=generator)
    matrix = root @ root.T + torch.eye(n_numbers, dtype=torch.float64)
    vector = torch.randn(n_numbers, dtype=torch.float64, generator=generator)
    return lambda place: place @ matrix @ place / 2 - vector @ place, torch.linalg.solve(matrix, vector)


def rosenbrock(place: Tensor) -> Tensor:
    return (100 * (place[1:] - place[:-1] ** 2) ** 2 + (1 - place[:-1]) ** 2).sum()


class Problem:
    """A function of some parameters, which counts how often it is evaluated."""

    def __init__(self, function: Callable[[Tensor], Tensor], start: Tensor, **settings: Any) -> None:
        middle = len(start) // 2
        self.parameters = [part.clone().requires_grad_() for part in (start[:middle], start[middle:])]
        self.function, self.n_evaluations = function, 0
        self.optimiser = LBFGS(self.parameters, **settings)

    @property
    def place(self) -> Tensor:
        return torch.cat(self.parameters)

    def evaluate(self) -> Tensor:
        self.n_evaluations += 1
        loss = self.function(self.place)
        loss.backward()
        return loss.detach()

    def run(self, n_steps: int) -> list[float]:
        return [self.optimiser.step(self.evaluate).item() for _ in range(n_steps)]


@pytest.mark.parametrize("n_numbers", [2, 3, 6])
def test_a_quadratic_takes_as_many_steps_as_it_has_dimensions(n_numbers: int) -> None:
    function, minimum = quadratic(n_numbers)
    start = torch.zeros(n_numbers, dtype=torch.float64)
    problem = Problem(function, start, history=n_numbers, curvature=1e-12)  # to the minimum of every line
    problem.run(n_numbers - 1)
    assert (problem.place - minimum).abs().max().item() > 1e-3
    problem.run(1)
    assert (problem.place - minimum).abs().max().item() < 1e-9


@pytest.mark.parametrize("history", [1, 5])
def test_losses_fall_and_most_steps_cost_one_evaluation(history: int) -> None:
    problem = Problem(rosenbrock, torch.full((10,), -1.0, dtype=torch.float64), history=history)
    losses = problem.run(60)
    assert all(later < earlier for earlier, later in pairwise(losses))
    assert losses[0] == rosenbrock(torch.full((10,), -1.0)).item()
    assert problem.n_evaluations < 1.5 * 60


def test_it_gets_through_a_curved_valley() -> None:
    problem = Problem(rosenbrock, torch.tensor([-1.2, 1.0], dtype=torch.float64))
    problem.run(60)
    torch.testing.assert_close(problem.place.detach(), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-6)


def test_steps_meet_the_strong_wolfe_conditions() -> None:
    problem = Problem(rosenbrock, torch.linspace(-2, 2, 6, dtype=torch.float64), curvature=0.3)
    for _ in range(30):
        before = problem.place.detach().clone().requires_grad_()
        problem.run(1)
        after = problem.place.detach().clone().requires_grad_()
        losses = rosenbrock(before), rosenbrock(after)
        (old,), (new,) = torch.autograd.grad(losses[0], before), torch.autograd.grad(losses[1], after)
        step = (after - before).detach()
        assert losses[1] <= losses[0] + 1e-4 * (old @ step)
        assert abs(new @ step) <= 0.3 * abs(old @ step) * (1 + 1e-9)


def test_the_direction_is_that_of_the_recursion() -> None:
    """Against the two loops of Nocedal (1980), on the vectors themselves."""
    problem = Problem(rosenbrock, torch.linspace(-2, 2, 8, dtype=torch.float64), history=4)
    steps, changes = [], []
    for _ in range(7):
        before, old = problem.place.detach().clone(), gradient_at(problem.place)
        problem.run(1)
        steps.append(problem.place.detach() - before)
        changes.append(gradient_at(problem.place) - old)
    steps, changes = steps[-4:], changes[-4:]
    along, shares = -gradient_at(problem.place), []
    for step, change in zip(reversed(steps), reversed(changes), strict=True):
        shares.append(step @ along / (step @ change))
        along = along - shares[-1] * change
    along = along * (steps[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    for step, change, share in zip(steps, changes, reversed(shares), strict=True):
        along = along + (share - change @ along / (step @ change)) * step
    torch.testing.assert_close(problem.optimiser._direction(), along, rtol=1e-6, atol=1e-8)


def gradient_at(place: Tensor) -> Tensor:
    here = place.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(rosenbrock(here), here)
    return gradient


def test_the_first_step_goes_downhill_by_a_length_of_about_one() -> None:
    problem = Problem(lambda place: 1e6 * place.sum(), torch.zeros(4, dtype=torch.float64))
    problem.run(1)  # it falls for ever, ever the same: the search goes on until it has tried enough
    assert problem.place.max().item() < -0.5
    gentle = Problem(lambda place: ((place - 3) ** 2).sum() / 1e6, torch.zeros(4, dtype=torch.float64))
    gentle.run(8)
    torch.testing.assert_close(gentle.place.detach(), torch.full((4,), 3.0, dtype=torch.float64))


def test_at_a_minimum_it_stays() -> None:
    problem = Problem(lambda place: (place**2).sum(), torch.zeros(4))
    assert problem.run(3) == [0.0, 0.0, 0.0]
    assert not problem.place.any()


@pytest.mark.parametrize("tries", [2, 20])  # it gives up far away, and near
def test_where_no_step_helps_it_stays_and_forgets(tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(rosenbrock, torch.full((4,), -1.0, dtype=torch.float64))
    problem.run(3)
    place, loss = problem.place.detach().clone(), problem.optimiser.state()["loss"].item()
    problem.function = lambda place: rosenbrock(place) * 0 + 1e9  # worse wherever it goes
    monkeypatch.setattr("deepmf.training.lbfgs._TRIES", tries)
    assert problem.run(1) == pytest.approx([loss])
    assert torch.equal(problem.place.detach(), place)
    assert problem.optimiser.state()["n_steps"].item() == 0
    problem.function = rosenbrock
    monkeypatch.undo()
    assert problem.run(2)[1] < loss


def test_a_loss_that_is_not_finite_on_the_way_is_avoided() -> None:
    # The root is NaN beyond 1, where the first trial of a step would go.
    problem = Problem(lambda place: -((1 - place).sqrt() * (place + 2)).sum(), torch.zeros(2, dtype=torch.float64))
    losses = problem.run(12)
    assert all(later <= earlier for earlier, later in pairwise(losses))
    torch.testing.assert_close(problem.place.detach(), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_steps", [0, 1, 7, 25])  # fewer than it remembers, and more
def test_a_restored_state_goes_on_the_same_to_the_bit(n_steps: int) -> None:
    whole = Problem(rosenbrock, torch.linspace(-2, 2, 12), history=10)
    whole.run(n_steps)
    rest = Problem(rosenbrock, whole.place.detach(), history=10)
    rest.optimiser.restore({name: slot.clone() for name, slot in whole.optimiser.state().items()})
    n_before = whole.n_evaluations
    assert whole.run(5) == rest.run(5)
    assert torch.equal(whole.place, rest.place)
    assert whole.n_evaluations - n_before == rest.n_evaluations
