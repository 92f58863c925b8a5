"""The machine: its device and precision, its private dice, its optimiser."""

import random
from itertools import combinations

import numpy as np
import pytest
import torch

from deepmf.errors import DeviceUnavailable
from deepmf.training.machine import Machine, private_generator, set_learning_rate


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("without_gpu")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(DeviceUnavailable) as caught:
        Machine("cuda")
    assert str(caught.value) == ("device 'cuda' was asked for, but torch sees no GPU here; device='cpu' would work")


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize("device", ["auto", "cpu"])
@pytest.mark.parametrize("precision, half", [("auto", False), ("single", False), ("half", True)])
def test_on_a_cpu(device: str, precision: str, half: bool) -> None:
    machine = Machine(device, precision)
    assert machine.device == torch.device("cpu") and not machine.is_gpu
    assert machine.half == half
    with machine.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if half else torch.float32)
    assert machine.describe() == f"CPU, {torch.get_num_threads()} threads"


@pytest.mark.parametrize("device, is_gpu", [("auto", True), ("cuda", True), ("cpu", False)])
def test_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch, device: str, is_gpu: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    machine = Machine(device)
    assert machine.is_gpu == is_gpu == (machine.device.type == "cuda")
    assert machine.half == is_gpu
    assert not Machine(device, "single").half


def test_a_step_is_repeated_as_it_is_on_a_cpu() -> None:
    def step() -> None:
        raise AssertionError("a step is not to be run yet")

    for fixed_shapes in (True, False):
        assert Machine("cpu").repeated(step, [], fixed_shapes=fixed_shapes) is step


def test_private_generators_are_the_same_for_a_seed_and_a_purpose_alone() -> None:
    def draws(seed: int, purpose: str) -> torch.Tensor:
        return torch.rand(64, generator=private_generator(seed, purpose))

    assert torch.equal(draws(3, "walk"), draws(3, "walk"))
    kinds = [(seed, purpose) for seed in (0, 1, 2**40) for purpose in ("weights", "walk", "dropout", "w", "")]
    for one, other in combinations(kinds, 2):
        assert not torch.equal(draws(*one), draws(*other)), (one, other)
    assert torch.equal(torch.rand(64, generator=Machine("cpu").generator(3, "walk")), draws(3, "walk"))


def test_private_generators_do_not_touch_the_global_ones() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    torch.rand(9, generator=private_generator(0, "walk"))
    torch.rand(9, generator=Machine("cpu").generator(0, "dropout"))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


def test_the_learning_rate_is_set_in_every_group() -> None:
    one, other = torch.zeros(2, requires_grad=True), torch.zeros(3, requires_grad=True)
    optimiser = torch.optim.Adam([{"params": [one]}, {"params": [other], "lr": 0.5}], lr=0.1)
    set_learning_rate(optimiser, 0.25)
    assert [group["lr"] for group in optimiser.param_groups] == [0.25, 0.25]


def test_a_learning_rate_on_the_device_is_changed_in_place() -> None:
    rate = torch.tensor(0.1)
    optimiser = torch.optim.Adam([torch.zeros(2, requires_grad=True)], lr=rate, capturable=True)
    set_learning_rate(optimiser, 0.25)
    assert optimiser.param_groups[0]["lr"] is rate  # where a recorded graph reads it
    assert rate.item() == 0.25


def test_the_optimiser_takes_adams_steps() -> None:
    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    optimiser = Machine("cpu").optimiser([weight], 0.1)
    first_moment = second_moment = np.zeros(2)
    expected = np.array([1.0, -2.0])
    for step in range(1, 4):
        set_learning_rate(optimiser, 0.1 / step)
        weight.grad = torch.tensor([0.5, -3.0]) * step
        optimiser.step()
        gradient = np.array([0.5, -3.0]) * step
        first_moment = 0.9 * first_moment + 0.1 * gradient
        second_moment = 0.999 * second_moment + 0.001 * gradient**2
        correction = np.sqrt(second_moment / (1 - 0.999**step)) + 1e-8
        expected = expected - 0.1 / step * first_moment / (1 - 0.9**step) / correction
    np.testing.assert_allclose(weight.detach(), expected, rtol=1e-5)
