"""SGD with momentum: its formula, its state, and what it does not import."""

import subprocess
import sys

import pytest
import torch
from tests.training.test_adam import leaving

from deepmf.training.sgd import SGD


def test_steps_are_torchs_own() -> None:
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


def test_the_formula_by_hand() -> None:
    weight = torch.tensor([1.0], requires_grad=True)
    optimiser = SGD([weight], 0.5, momentum=0.8)
    for gradient in (2.0, -1.0):
        optimiser.step(leaving(weight, torch.tensor([gradient])))
    assert weight.item() == pytest.approx(1.0 - 0.5 * 2.0 - 0.5 * (0.8 * 2.0 - 1.0))


def test_a_restored_state_goes_on_the_same() -> None:
    one, other = (torch.ones(3, requires_grad=True) for _ in range(2))
    first, second = SGD([one], 0.1), SGD([other], 0.1)
    first.step(leaving(one, torch.tensor([1.0, 2.0, 3.0])))
    with torch.no_grad():
        other.copy_(one)
    second.restore({name: slot.clone() for name, slot in first.state().items()})
    for optimiser, weight in ((first, one), (second, other)):
        optimiser.step(leaving(weight, torch.tensor([-1.0, 0.5, 0.0])))
    assert torch.equal(one, other)


def test_old_gradients_are_forgotten_and_the_loss_is_returned() -> None:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.full((2,), 100.0)
    assert SGD([weight], 0.1).step(leaving(weight, torch.ones(2))).item() == 7.0
    torch.testing.assert_close(weight.detach(), torch.full((2,), 0.9))


def test_no_optimiser_of_ours_imports_torchs_compiler() -> None:
    code = (
        "import sys, torch; from deepmf.training.sgd import SGD; from deepmf.training.rprop import Rprop;"
        "from deepmf.training.lbfgs import LBFGS; w = torch.ones(2, requires_grad=True);"
        "[o.step(lambda: (w.square().sum().backward(), w.sum())[1].detach())"
        " for o in (SGD([w], .1), Rprop([w], .1), LBFGS([w]))]; print('torch._dynamo' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"
