"""The autoencoder against a plain float64 re-statement of its layers."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import torch

from deepmf.layers.dropout import use_generator
from deepmf.layers.vectors import SparseBatch
from deepmf.models.autoencoders.autoencoder_network import Autoencoder

Array = npt.NDArray[np.float64]

N_INPUTS = 9
SIZES = {"one": (5,), "three": (5, 6, 4), "five": (7, 6, 8, 5, 3)}
every_depth = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())


def sigmoid(sums: Array) -> Array:
    return 1 / (1 + np.exp(-sums))


def selu(sums: Array) -> Array:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * np.where(sums > 0, sums, alpha * (np.exp(np.minimum(sums, 0)) - 1))


def new(
    sizes: tuple[int, ...], *, activation: str = "sigmoid", output: str = "identity", dropout: float = 0.0
) -> Autoencoder:
    generator = torch.Generator().manual_seed(0)
    network = Autoencoder(
        N_INPUTS, sizes, activation=activation, output_activation=output, dropout=dropout, generator=generator
    ).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "bias" in name:
                parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()))
    return network


def vectors(count: int = 4) -> Array:
    """Some vectors with holes; the last one is empty."""
    generator = np.random.default_rng(1)
    table = np.where(generator.random((count, N_INPUTS)) < 0.5, generator.normal(size=(count, N_INPUTS)), 0.0)
    table[-1] = 0.0
    return table


def sparse(table: Array) -> SparseBatch:
    rows, columns = np.nonzero(table)
    starts = np.searchsorted(rows, np.arange(len(table) + 1))
    return SparseBatch(torch.tensor(columns), torch.tensor(starts), torch.tensor(table[rows, columns]))


def restated(network: Autoencoder, table: Array, activation: str, output: str) -> tuple[Array, Array]:
    """Return hidden activations and outputs."""
    functions = {"sigmoid": sigmoid, "selu": selu, "identity": lambda sums: sums}
    weights = {name: parameter.detach().numpy() for name, parameter in network.named_parameters()}
    hidden = functions[activation](table @ weights["first.weight"] + weights["first_bias"])
    for number in range(len(network.others)):
        hidden = functions[activation](hidden @ weights[f"others.{number}.weight"].T + weights[f"others.{number}.bias"])
    return hidden, functions[output](hidden @ weights["last.weight"].T + weights["last.bias"])


@every_depth
@pytest.mark.parametrize("activation, output", [("sigmoid", "identity"), ("selu", "selu")])
def test_layers(sizes: tuple[int, ...], activation: str, output: str) -> None:
    network, table = new(sizes, activation=activation, output=output), vectors()
    hidden, outputs = restated(network, table, activation, output)
    with torch.no_grad():
        for batch in (torch.tensor(table), sparse(table)):
            np.testing.assert_allclose(network.hidden(batch), hidden, atol=1e-13)
        np.testing.assert_allclose(network(torch.tensor(table)), outputs, atol=1e-13)
        np.testing.assert_allclose(network(sparse(table)), outputs[np.nonzero(table)], atol=1e-13)


@every_depth
def test_gradients_of_sparse_and_dense_vectors_agree(sizes: tuple[int, ...]) -> None:
    network, table = new(sizes, activation="selu", output="selu"), vectors()
    upstream = torch.arange(1.0, np.count_nonzero(table) + 1, dtype=torch.float64)
    picked = network(torch.tensor(table))[np.nonzero(table)]
    parameters = list(network.parameters())
    dense = torch.autograd.grad(picked, parameters, upstream)
    for one, other in zip(torch.autograd.grad(network(sparse(table)), parameters, upstream), dense, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@every_depth
def test_dropout_follows_the_middle_layer_alone(sizes: tuple[int, ...]) -> None:
    network = new(sizes, dropout=0.5)
    use_generator(network, torch.Generator().manual_seed(2))
    seen: list[tuple[int, ...]] = []
    network.dropout.register_forward_hook(lambda _, inputs, __: seen.append(tuple(inputs[0].shape)))
    network.hidden(torch.tensor(vectors()))
    assert seen == [(4, sizes[len(sizes) // 2])]
    batch = torch.tensor(vectors())
    assert not torch.equal(network(batch), network(batch))
    network.eval()
    assert torch.equal(network(batch), network(batch))


def test_squared_weights_leave_the_biases_out() -> None:
    network = new((5, 6, 4))
    weights = [parameter for name, parameter in network.named_parameters() if "bias" not in name]
    assert len(weights) == 4
    expected = sum(float(weight.detach().square().sum()) for weight in weights)
    assert network.squared_weights().item() == pytest.approx(expected, rel=1e-12)


def test_half_precision_answers_in_single() -> None:
    network = new((5, 6, 4)).float()
    table = torch.tensor(vectors(), dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, some = network(table), network(sparse(vectors())._replace(weights=table[table != 0]))
    assert outputs.dtype == some.dtype == torch.float32
    torch.testing.assert_close(outputs, network(table), rtol=0, atol=0.02)


def test_starts_with_xavier_weights_of_its_own_generator() -> None:
    before = torch.get_rng_state()
    sizes = (50, 60, 40)
    networks = [
        Autoencoder(30, sizes, activation="selu", generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    ]
    for (n_inputs, n_outputs), layer in zip(pairwise(sizes), networks[0].others, strict=True):
        bound = (6 / (n_inputs + n_outputs)) ** 0.5
        weight = layer.get_parameter("weight")
        assert 0.95 * bound < weight.abs().max().item() <= bound and not layer.get_parameter("bias").any()
    small = Autoencoder(30, sizes, activation="selu", initial=0.25, generator=torch.Generator().manual_seed(3))
    for weight, smaller in zip(networks[0].weights(), small.weights(), strict=True):
        assert torch.equal(0.25 * weight, smaller)
    one, same, other = (torch.cat([p.flatten() for p in network.parameters()]) for network in networks)
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)
