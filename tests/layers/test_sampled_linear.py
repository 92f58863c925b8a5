"""The last layer: outputs at some places are those of the whole table, forward and backward."""

import pytest
import torch
from torch import Tensor

from deepmf.layers.sampled_linear import SampledLinear, _SampledProduct

N_INPUTS, N_OUTPUTS = 4, 7

# The places wanted of each vector: none of some, at the ends too; output 6 of no vector.
PLACES: dict[str, list[list[int]]] = {
    "several": [[], [0, 3, 5], [3], [], [0, 1, 2, 3, 4, 5], []],
    "one": [[2, 5]],
    "one without any": [[]],
    "all without any": [[], [], []],
    "one output only": [[2], [2], [2]],
    "out of order, and twice": [[5, 0, 5], [3, 1]],
    "no vector": [],
}
every_kind = pytest.mark.parametrize("places", PLACES.values(), ids=PLACES.keys())


def entries(places: list[list[int]], index_type: torch.dtype = torch.int64) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices, starts and the vector of each entry."""
    starts = torch.tensor([0, *map(len, places)]).cumsum(0)
    indices = torch.tensor([place for some in places for place in some], dtype=index_type)
    vectors = torch.tensor([vector for vector, some in enumerate(places) for _ in some], dtype=torch.int64)
    return indices, starts, vectors


def layer() -> SampledLinear:
    network = SampledLinear(N_INPUTS, N_OUTPUTS, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        network.bias.copy_(torch.linspace(-1, 1, N_OUTPUTS))
    return network


def hidden_of(places: list[list[int]]) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(places), N_INPUTS, dtype=torch.float64, generator=generator, requires_grad=True)


@every_kind
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_some_outputs_are_those_of_the_whole_table(places: list[list[int]], index_type: torch.dtype) -> None:
    network, hidden = layer(), hidden_of(places)
    indices, starts, vectors = entries(places, index_type)
    found, table = network.at(hidden, indices, starts), network(hidden)
    torch.testing.assert_close(table, hidden @ network.weight.T + network.bias, rtol=0, atol=1e-14)
    expected = table[vectors, indices.long()]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    # A different gradient at every output, so that no two can be mixed up.
    upstream = torch.arange(1.0, len(vectors) + 1, dtype=torch.float64)
    wanted = (hidden, network.weight, network.bias)
    for one, other in zip(
        torch.autograd.grad(found, wanted, upstream), torch.autograd.grad(expected, wanted, upstream), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


@every_kind
def test_gradcheck(places: list[list[int]]) -> None:
    network, hidden = layer(), hidden_of(places)
    indices, starts, _ = entries(places)
    if not indices.numel():
        assert network.at(hidden, indices, starts).shape == (0,)
        return

    def product(*wanted: Tensor) -> Tensor:
        outputs: Tensor = _SampledProduct.apply(*wanted, indices, starts)
        return outputs

    assert torch.autograd.gradcheck(product, (hidden, network.weight, network.bias))


def test_larger_ones_in_single_precision() -> None:
    generator = torch.Generator().manual_seed(2)
    network = SampledLinear(50, 300, generator=generator)
    hidden = torch.randn(60, 50, generator=generator, requires_grad=True)
    vectors, indices = (torch.rand(60, 300, generator=generator) < 0.05).nonzero(as_tuple=True)
    starts = torch.searchsorted(vectors, torch.arange(61))
    upstream = torch.randn(len(vectors), generator=generator)
    outputs = network.at(hidden, indices.int(), starts)
    table = torch.zeros(60, 300, dtype=torch.float64)
    table[vectors, indices] = upstream.double()
    exact = hidden.detach().double() @ network.weight.detach().double().T + network.bias.detach()
    torch.testing.assert_close(outputs.detach().double(), exact[vectors, indices], rtol=0, atol=1e-5)
    found = torch.autograd.grad(outputs, (hidden, network.weight, network.bias), upstream)
    expected = (
        table @ network.weight.detach().double(),
        table.T @ hidden.detach().double(),
        table.sum(0),
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-5)


def test_half_precision_is_read_in_that_of_the_weights() -> None:
    network = SampledLinear(N_INPUTS, N_OUTPUTS, generator=torch.Generator().manual_seed(0))
    hidden = torch.tensor([[1.0, -2.0, 0.5, 0.25]])  # exact in bfloat16
    indices, starts, _ = entries([[6, 1]])
    outputs = network.at(hidden.bfloat16(), indices, starts)
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs, network(hidden)[0, [6, 1]])


def test_a_few_outputs_of_very_many_cost_no_table() -> None:
    n_vectors, n_outputs = 200_000, 1_000_000  # a table of them would take 800 GB
    network = SampledLinear(2, n_outputs, generator=torch.Generator().manual_seed(0))
    hidden = torch.ones(n_vectors, 2, requires_grad=True)
    indices = torch.arange(n_vectors) * 5
    outputs = network.at(hidden, indices, torch.arange(n_vectors + 1))
    outputs.sum().backward()
    torch.testing.assert_close(outputs, network.weight[indices].sum(1))
    assert hidden.grad is not None and network.bias.grad is not None
    torch.testing.assert_close(hidden.grad, network.weight[indices].detach())
    assert network.bias.grad.sum().item() == n_vectors and network.bias.grad[::5].min().item() == 1


def test_starts_with_xavier_weights_of_its_own_generator_and_no_bias() -> None:
    before = torch.get_rng_state()
    network = SampledLinear(100, 200, generator=torch.Generator().manual_seed(3))
    bound = (6 / (200 + 100)) ** 0.5
    assert network.weight.shape == (200, 100) and not network.bias.any()
    assert 0.99 * bound < network.weight.abs().max().item() <= bound
    assert torch.equal(network.weight, SampledLinear(100, 200, generator=torch.Generator().manual_seed(3)).weight)
    assert torch.equal(torch.get_rng_state(), before)
