"""Adam and SGD: their formulas, their state, and what they do not import."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from deepmf.training.optimisers import SGD, Adam, Optimiser

BOTH = pytest.mark.parametrize("optimiser_class", [Adam, SGD])


def leaving(weight: Tensor, gradient: Tensor) -> Callable[[], Tensor]:
    """Return a loss whose evaluation adds this gradient to what the weight has."""

    def evaluate() -> Tensor:
        weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return torch.tensor(7.0)

    return evaluate


def test_adam_follows_the_formula() -> None:
    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    optimiser = Adam([weight], 0.1)
    first_moment = second_moment = np.zeros(2)
    expected = np.array([1.0, -2.0])
    for step in range(1, 4):
        optimiser.set_learning_rate(0.1 / step)
        optimiser.step(leaving(weight, torch.tensor([0.5, -3.0]) * step))
        gradient = np.array([0.5, -3.0]) * step
        first_moment = 0.9 * first_moment + 0.1 * gradient
        second_moment = 0.999 * second_moment + 0.001 * gradient**2
        correction = np.sqrt(second_moment / (1 - 0.999**step)) + 1e-8
        expected = expected - 0.1 / step * first_moment / (1 - 0.9**step) / correction
    np.testing.assert_allclose(weight.detach(), expected, rtol=1e-5)


def test_sgd_follows_the_formula() -> None:
    weight = torch.tensor([1.0], requires_grad=True)
    optimiser = SGD([weight], 0.5, momentum=0.8)
    for gradient in (2.0, -1.0):
        optimiser.step(leaving(weight, torch.tensor([gradient])))
    assert weight.item() == pytest.approx(1.0 - 0.5 * 2.0 - 0.5 * (0.8 * 2.0 - 1.0))


@pytest.mark.slow
def test_steps_of_adam_are_torchs_own_to_the_bit() -> None:
    ours, theirs = (torch.linspace(-1, 1, 7, requires_grad=True) for _ in range(2))
    optimiser, reference = Adam([ours], 0.01), torch.optim.Adam([theirs], lr=0.01, fused=True)
    for step in range(5):
        optimiser.step(leaving(ours, torch.arange(7.0) - step))
        theirs.grad = torch.arange(7.0) - step
        reference.step()
    assert torch.equal(ours, theirs)


def test_steps_of_sgd_are_torchs_own() -> None:
    ours, theirs = (torch.linspace(-1, 1, 7, requires_grad=True) for _ in range(2))
    optimiser, reference = SGD([ours], 0.01, momentum=0.9), torch.optim.SGD([theirs], lr=0.01, momentum=0.9)
    for step in range(6):
        rate = 0.01 / (1 + step)
        optimiser.set_learning_rate(rate)
        reference.param_groups[0]["lr"] = rate
        optimiser.step(leaving(ours, torch.arange(7.0) - step))
        theirs.grad = torch.arange(7.0) - step
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@BOTH
def test_a_restored_state_goes_on_the_same(optimiser_class: type[Optimiser]) -> None:
    one, other = (torch.ones(3, requires_grad=True) for _ in range(2))
    first, second = optimiser_class([one], 0.1), optimiser_class([other], 0.1)
    first.step(leaving(one, torch.tensor([1.0, 2.0, 3.0])))
    with torch.no_grad():
        other.copy_(one)
    second.restore({name: slot.clone() for name, slot in first.state().items()})
    for optimiser, weight in ((first, one), (second, other)):
        optimiser.step(leaving(weight, torch.tensor([-1.0, 0.5, 0.0])))
    assert torch.equal(one, other)


@BOTH
def test_old_gradients_are_forgotten_and_the_loss_is_returned(optimiser_class: type[Optimiser]) -> None:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.full((2,), 100.0)
    assert optimiser_class([weight], 0.1).step(leaving(weight, torch.ones(2))).item() == 7.0
    torch.testing.assert_close(weight.detach(), torch.full((2,), 0.9))


@pytest.mark.slow
def test_no_optimiser_imports_torchs_compiler() -> None:
    code = (
        "import sys, torch; from deepmf.training.optimisers import SGD, Adam; w = torch.ones(2, requires_grad=True);"
        "[o.step(lambda: (w.square().sum().backward(), w.sum())[1].detach()) for o in (SGD([w], .1), Adam([w], .1))];"
        "print('torch._dynamo' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"
