"""The runtime: its device and precision, its private dice."""

import gc
import random
from itertools import combinations

import numpy as np
import pytest
import torch

from deepmf.errors import DeviceUnavailable
from deepmf.training.runtime import Runtime, private_generator


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("without_gpu")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(DeviceUnavailable) as caught:
        Runtime("cuda")
    assert str(caught.value) == ("device 'cuda' was requested, but torch sees no GPU here; device='cpu' would work")


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize("device", ["auto", "cpu"])
@pytest.mark.parametrize("precision, half", [("auto", False), ("single", False), ("half", True)])
def test_on_a_cpu(device: str, precision: str, half: bool) -> None:
    runtime = Runtime(device, precision)
    assert runtime.device == torch.device("cpu") and not runtime.is_gpu
    assert runtime.half == half
    with runtime.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if half else torch.float32)
    assert runtime.describe() == f"CPU, {torch.get_num_threads()} threads"


@pytest.mark.parametrize("device, is_gpu", [("auto", True), ("cuda", True), ("cpu", False)])
def test_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch, device: str, is_gpu: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    runtime = Runtime(device)
    assert runtime.is_gpu == is_gpu == (runtime.device.type == "cuda")
    assert runtime.half == is_gpu
    assert not Runtime(device, "single").half


def test_a_step_is_repeated_as_it_is_on_a_cpu() -> None:
    def step() -> None:
        raise AssertionError("a step is not to be run yet")

    for static_shapes in (True, False):
        assert Runtime("cpu").capture(step, [], static_shapes=static_shapes) is step


def test_private_generators_are_the_same_for_a_seed_and_a_purpose_alone() -> None:
    def draws(seed: int, purpose: str) -> torch.Tensor:
        return torch.rand(64, generator=private_generator(seed, purpose))

    assert torch.equal(draws(3, "walk"), draws(3, "walk"))
    kinds = [(seed, purpose) for seed in (0, 1, 2**40) for purpose in ("weights", "walk", "dropout", "w", "")]
    for one, other in combinations(kinds, 2):
        assert not torch.equal(draws(*one), draws(*other)), (one, other)
    assert torch.equal(torch.rand(64, generator=Runtime("cpu").generator(3, "walk")), draws(3, "walk"))


def test_private_generators_do_not_touch_the_global_ones() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    torch.rand(9, generator=private_generator(0, "walk"))
    torch.rand(9, generator=Runtime("cpu").generator(0, "dropout"))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_graph_of_an_earlier_training_does_not_spoil_the_next_recording() -> None:
    runtime, total = Runtime("cuda"), torch.zeros((), device="cuda")

    def step() -> None:
        if torch.cuda.is_current_stream_capturing():
            gc.collect()  # as it may happen at any time
        total.add_(1)

    def record() -> None:
        replayed = runtime.capture(step, [], static_shapes=True)
        for _ in range(5):
            replayed()
        kept: list[object] = [replayed]
        kept.append(kept)  # only the collector finds it

    gc.disable()
    try:
        record()
        record()
    finally:
        gc.enable()
    assert float(total) == 2 * 5
