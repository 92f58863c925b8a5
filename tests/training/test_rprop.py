"""Rprop: the rule of signs by hand, and its state."""

import pytest
import torch
from tests.training.test_adam import leaving

from deepmf.training.rprop import Rprop


def test_the_rule_of_signs() -> None:
    weight = torch.zeros(4, requires_grad=True)
    optimiser = Rprop([weight], 0.01, growth=2.0, shrinkage=0.5)
    # Weights whose gradient keeps its sign, turns it, is 0 at first, and is 0 the second time.
    places = []
    for gradient in ([3.0, -9.0, 0.0, 1.0], [0.1, 4.0, -2.0, 0.0], [5.0, 4.0, -2.0, 1.0]):
        optimiser.step(leaving(weight, torch.tensor(gradient)))
        places.append(weight.detach().tolist())
    assert places[0] == pytest.approx([-0.01, 0.01, 0.0, -0.01])  # only the sign counts
    # The first grows; the second turned: half the size, and it rests; the third starts; the fourth has nothing to do.
    assert places[1] == pytest.approx([-0.03, 0.01, 0.01, -0.01])
    # The second goes on in its new direction with its half size; the third grows.
    assert places[2] == pytest.approx([-0.07, 0.005, 0.03, -0.02])


def test_steps_stay_within_their_limits() -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimiser = Rprop([weight], 0.01, limits=(0.004, 0.015))
    gone = []
    for gradient in (1.0, 1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0):
        before = weight.item()
        optimiser.step(leaving(weight, torch.tensor([gradient])))
        gone.append(round(before - weight.item(), 6))
    assert gone == [0.01, 0.012, 0.0144, 0.015, 0.0, -0.0075, 0.0, 0.004, 0.0, -0.004]


def test_steps_are_torchs_own() -> None:
    ours, theirs = (torch.linspace(-1, 1, 9, requires_grad=True) for _ in range(2))
    optimiser = Rprop([ours], 0.02, limits=(1e-6, 50.0))
    reference = torch.optim.Rprop([theirs], lr=0.02, step_sizes=(1e-6, 50.0))
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        gradient = torch.randn(9, generator=generator)
        optimiser.step(leaving(ours, gradient.clone()))
        theirs.grad = gradient.clone()
        reference.step()
    torch.testing.assert_close(ours, theirs)


def test_a_restored_state_goes_on_the_same() -> None:
    one, other = (torch.ones(3, requires_grad=True) for _ in range(2))
    first, second = Rprop([one], 0.1), Rprop([other], 0.1)
    for gradient in ([1.0, 2.0, 3.0], [1.0, -1.0, 0.0]):
        first.step(leaving(one, torch.tensor(gradient)))
    with torch.no_grad():
        other.copy_(one)
    second.restore({name: slot.clone() for name, slot in first.state().items()})
    for optimiser, weight in ((first, one), (second, other)):
        optimiser.step(leaving(weight, torch.tensor([-1.0, 0.5, 1.0])))
    assert torch.equal(one, other) and not torch.equal(one, torch.ones(3))


def test_old_gradients_are_forgotten_and_the_loss_is_returned() -> None:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.full((2,), -100.0)
    assert Rprop([weight], 0.01).step(leaving(weight, torch.ones(2))).item() == 7.0
    torch.testing.assert_close(weight.detach(), torch.full((2,), 0.99))
