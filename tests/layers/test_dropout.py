"""Dropout: how much it drops, what it scales, and whose dice it rolls."""

import pytest
import torch
from torch import nn

from deepmf.layers.dropout import Dropout, RandomModule, use_generator


def training(fraction: float, seed: int = 0) -> Dropout:
    dropout = Dropout(fraction).train()
    use_generator(dropout, torch.Generator().manual_seed(seed))
    return dropout


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.8, 0.9])
def test_drops_the_fraction_and_scales_the_rest(fraction: float) -> None:
    inputs = torch.full((400, 250), 3.0)
    outputs = training(fraction)(inputs)
    kept = outputs != 0
    spread = (fraction * (1 - fraction) / inputs.numel()) ** 0.5
    assert 1 - kept.float().mean().item() == pytest.approx(fraction, abs=5 * spread)
    torch.testing.assert_close(outputs[kept], torch.full_like(outputs[kept], 3.0 / (1 - fraction)))
    # The expected input of the next layer stays what it was.
    assert outputs.mean().item() == pytest.approx(3.0, abs=5 * 3 * spread / (1 - fraction))
    # Every row and every column has some of both: units are dropped one by one.
    assert all(0 < count < n for axis, n in ((0, 400), (1, 250)) for count in kept.sum(axis).tolist())


def test_the_gradient_passes_where_the_input_did() -> None:
    inputs = torch.ones(50, 20, requires_grad=True)
    outputs = training(0.75)(inputs)
    outputs.sum().backward()
    assert torch.equal(inputs.grad, outputs.detach())
    assert set(outputs.detach().flatten().tolist()) == {0.0, 4.0}


def test_off_in_evaluation() -> None:
    dropout, inputs = training(0.9).eval(), torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    assert dropout.generator is not None
    before = dropout.generator.get_state()
    assert torch.equal(dropout(inputs), inputs)
    assert torch.equal(dropout.generator.get_state(), before)
    assert not torch.equal(dropout.train()(inputs), inputs)


def test_a_fraction_of_nothing_changes_nothing_and_rolls_no_dice() -> None:
    dropout, inputs = training(0.0), torch.ones(5, 5)
    assert dropout.generator is not None
    before = dropout.generator.get_state()
    assert torch.equal(dropout(inputs), inputs)
    assert torch.equal(dropout.generator.get_state(), before)


def test_draws_from_its_own_generator_alone() -> None:
    inputs, before = torch.ones(30, 30), torch.get_rng_state()
    dropout = training(0.5, seed=7)
    first, second = dropout(inputs), dropout(inputs)
    assert not torch.equal(first, second)
    again = training(0.5, seed=7)
    assert torch.equal(again(inputs), first) and torch.equal(again(inputs), second)
    assert not torch.equal(training(0.5, seed=8)(inputs), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_dropout_of_a_network_gets_the_generator() -> None:
    network = nn.Sequential(Dropout(0.1), nn.Sequential(nn.ReLU(), Dropout(0.2)))
    generator = torch.Generator()
    use_generator(network, generator)
    found = [module.generator for module in network.modules() if isinstance(module, Dropout)]
    assert len(found) == 2 and all(each is generator for each in found)


def test_everything_that_draws_gets_the_generator_and_nothing_else() -> None:
    class Coin(RandomModule):
        """Another module that draws."""

    network = nn.ModuleDict({"coin": Coin(), "layers": nn.Sequential(nn.Linear(2, 2), Dropout(0.2))})
    assert all(module.generator is None for module in network.modules() if isinstance(module, RandomModule))
    generator = torch.Generator()
    use_generator(network, generator)
    drawing = {type(module).__name__ for module in network.modules() if hasattr(module, "generator")}
    assert drawing == {"Coin", "Dropout"}
    assert all(module.generator is generator for module in network.modules() if isinstance(module, RandomModule))
    another = torch.Generator()
    use_generator(network, another)
    assert all(module.generator is another for module in network.modules() if isinstance(module, RandomModule))
    assert not network.state_dict().keys() & {"coin.generator", "layers.1.generator"}
