"""The first layer: sparse vectors give what the dense table gives, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from deepmf.nn.inputs import SparseBatch
from deepmf.nn.sparse_linear import (
    SampledLinear,
    SparseLinear,
    _SampledProduct,
    cut_into_pieces,
    group_by_input,
    sum_bags,
)

N_INPUTS, N_OUTPUTS = 7, 4


# A few vectors as {input: value}, some without entries, at the ends too; no vector has an entry at
# input 6.
VECTORS = [
    {},
    {0: 1.5, 3: -0.25, 5: 2.0},
    {3: 1.0},
    {},
    {0: -1.0, 1: 0.0, 2: 0.5, 3: 0.75, 4: -2.0, 5: 3.0},
    {},
]

SOME_VECTORS = {
    "several": VECTORS,
    "one": VECTORS[1:2],
    "one without entries": VECTORS[:1],
    "all without entries": [{}, {}, {}],
    "one input only": [{2: 1.0}, {2: -3.0}, {2: 0.5}],
    "none": [],
}

every_kind = pytest.mark.parametrize("vectors", SOME_VECTORS.values(), ids=SOME_VECTORS.keys())


def sparse(vectors: list[dict[int, float]], index_type: torch.dtype = torch.int64) -> SparseBatch:
    starts = torch.tensor([0, *(len(vector) for vector in vectors)]).cumsum(0)
    indices = torch.tensor([i for vector in vectors for i in vector], dtype=index_type)
    return SparseBatch(
        indices, starts, torch.tensor([v for w in vectors for v in w.values()], dtype=torch.float64)
    )


def dense(vectors: list[dict[int, float]]) -> Tensor:
    table = torch.zeros(len(vectors), N_INPUTS, dtype=torch.float64)
    for row, vector in enumerate(vectors):
        for index, value in vector.items():
            table[row, index] = value
    return table


def layer(seed: int = 0) -> SparseLinear:
    return SparseLinear(N_INPUTS, N_OUTPUTS, generator=torch.Generator().manual_seed(seed)).double()


def gradient(loss_of: Callable[[Tensor], Tensor], network: SparseLinear, outputs: Tensor) -> Tensor:
    network.zero_grad()
    loss_of(outputs).backward()
    assert network.weight.grad is not None
    return network.weight.grad.clone()


@every_kind
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_sparse_is_dense(vectors: list[dict[int, float]], index_type: torch.dtype) -> None:
    network = layer()
    expected = dense(vectors) @ network.weight.detach()
    outputs, dense_outputs = network(sparse(vectors, index_type)), network(dense(vectors))
    torch.testing.assert_close(dense_outputs.detach(), expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(outputs.detach(), expected, rtol=0, atol=1e-14)
    # A different gradient at every output, so that no two can be mixed up.
    upstream = torch.arange(1.0, expected.numel() + 1, dtype=torch.float64).reshape(expected.shape)

    def loss(answers: Tensor) -> Tensor:
        return (answers * upstream).sum()

    expected_gradient = dense(vectors).T @ upstream
    for answers in (outputs, dense_outputs):
        torch.testing.assert_close(
            gradient(loss, network, answers), expected_gradient, rtol=0, atol=1e-13
        )


@every_kind
def test_gradcheck(vectors: list[dict[int, float]]) -> None:
    network, batch = layer(), sparse(vectors)

    def product(weight: Tensor) -> Tensor:
        answers: Tensor = functional_call(network, {"weight": weight}, (batch,))
        return answers

    if vectors:
        assert torch.autograd.gradcheck(product, (network.weight,))
    else:
        assert product(network.weight).shape == (0, N_OUTPUTS)


def test_larger_vectors_in_single_precision() -> None:
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(60, 300, generator=generator) * (
        torch.rand(60, 300, generator=generator) < 0.05
    )
    rows, columns = table.nonzero(as_tuple=True)
    starts = torch.cat(
        [torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=60).cumsum(0)]
    )
    network = SparseLinear(300, 50, generator=generator)
    exact = table.double() @ network.weight.detach().double()
    outputs = network(SparseBatch(columns.int(), starts, table[rows, columns]))
    torch.testing.assert_close(outputs.detach().double(), exact, rtol=0, atol=1e-6)
    upstream = torch.randn(60, 50, generator=generator)
    sparse_gradient = gradient(lambda answers: (answers * upstream).sum(), network, outputs)
    torch.testing.assert_close(
        sparse_gradient.double(), table.double().T @ upstream.double(), rtol=0, atol=1e-5
    )


def test_a_gradient_that_does_not_lie_in_order() -> None:
    network = layer()
    upstream = torch.arange(24.0, dtype=torch.float64).reshape(4, 6).T
    outputs = network(sparse(VECTORS))
    assert not upstream.is_contiguous()
    (found,) = torch.autograd.grad(outputs, network.weight, upstream)
    torch.testing.assert_close(found, dense(VECTORS).T @ upstream)


def test_entries_in_any_order_and_at_one_input_twice() -> None:
    network = layer()
    indices, weights = (
        torch.tensor([5, 0, 5, 3]),
        torch.tensor([1.0, 2.0, 0.5, -1.0], dtype=torch.float64),
    )
    outputs = network(SparseBatch(indices, torch.tensor([0, 3, 4]), weights))
    same = dense([{0: 2.0, 5: 1.5}, {3: -1.0}])
    torch.testing.assert_close(outputs.detach(), same @ network.weight.detach())
    (found,) = torch.autograd.grad(outputs.sum(), network.weight)
    torch.testing.assert_close(found, same.T @ torch.ones(2, N_OUTPUTS, dtype=torch.float64))


def test_repeated_calls_agree_to_the_bit_and_their_gradients_add_up() -> None:
    network, batch = layer(), sparse(VECTORS)
    before = [tensor.clone() for tensor in batch]
    first, second = network(batch), network(batch)
    assert torch.equal(first, second)
    once = gradient(lambda outputs: outputs.square().sum(), network, first)
    network(batch).square().sum().backward()
    assert torch.equal(network.weight.grad, 2 * once)
    assert all(torch.equal(tensor, old) for tensor, old in zip(batch, before, strict=True))


def test_half_precision_tables_are_read_in_that_of_the_weights() -> None:
    network = SparseLinear(N_INPUTS, N_OUTPUTS, generator=torch.Generator().manual_seed(0))
    table = dense(VECTORS)
    outputs = network(table.bfloat16())  # these values are exact in bfloat16
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs, table.float() @ network.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network(table.bfloat16()).dtype == torch.bfloat16


def test_starts_with_xavier_weights_of_its_own_generator() -> None:
    before = torch.get_rng_state()
    network = SparseLinear(200, 100, generator=torch.Generator().manual_seed(3))
    bound = (6 / (200 + 100)) ** 0.5
    assert network.weight.shape == (200, 100)
    assert 0.99 * bound < network.weight.abs().max().item() <= bound
    assert network.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    again = SparseLinear(200, 100, generator=torch.Generator().manual_seed(3))
    assert torch.equal(network.weight, again.weight)
    assert torch.equal(torch.get_rng_state(), before)


@every_kind
@pytest.mark.parametrize("most", [1, 2, 100])
def test_vectors_in_pieces_add_up(vectors: list[dict[int, float]], most: int) -> None:
    batch, table = sparse(vectors), layer().weight.detach()
    piece_starts, first_pieces = cut_into_pieces(batch.starts, most)
    lengths = piece_starts.diff()
    assert (
        first_pieces.numel() == len(vectors) + 1
        and bool((lengths <= most).all())
        and bool((lengths >= 0).all())
    )
    sums = sum_bags(table, batch.indices, piece_starts, batch.weights)
    together = [sums[slice(*ends)].sum(0) for ends in pairwise(first_pieces.tolist())]
    expected = sum_bags(table, batch.indices, batch.starts, batch.weights)
    torch.testing.assert_close(
        torch.stack(together) if vectors else expected, expected, rtol=0, atol=1e-14
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_long_vectors_are_the_sum_of_their_pieces() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([0, 5000, 3, 1024, 1025, 0])
    starts, n_entries = (
        torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]),
        int(counts.sum()),
    )
    indices = torch.randint(0, 50, (n_entries,), generator=generator)
    weights, table = (
        torch.rand(n_entries, generator=generator),
        torch.rand(50, 8, generator=generator),
    )
    found = sum_bags(*(tensor.cuda() for tensor in (table, indices, starts, weights)))
    torch.testing.assert_close(
        found.cpu(), sum_bags(table, indices, starts, weights), rtol=1e-4, atol=1e-3
    )


@every_kind
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_entries_by_input_are_the_transposed_vectors(
    vectors: list[dict[int, float]], index_type: torch.dtype
) -> None:
    indices, starts, weights = group_by_input(sparse(vectors, index_type), N_INPUTS)
    assert indices.dtype == index_type
    found = [
        dict(zip(indices[start:end].tolist(), weights[start:end].tolist(), strict=True))
        for start, end in pairwise(starts.tolist())
    ]
    assert found == [
        {row: vector[i] for row, vector in enumerate(vectors) if i in vector}
        for i in range(N_INPUTS)
    ]


N_HIDDEN, N_PLACES = 4, 7


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

every_choice = pytest.mark.parametrize("places", PLACES.values(), ids=PLACES.keys())


def entries(
    places: list[list[int]], index_type: torch.dtype = torch.int64
) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices, starts and the vector of each entry."""
    starts = torch.tensor([0, *map(len, places)]).cumsum(0)
    indices = torch.tensor([place for some in places for place in some], dtype=index_type)
    vectors = torch.tensor(
        [vector for vector, some in enumerate(places) for _ in some], dtype=torch.int64
    )
    return indices, starts, vectors


def sampled_layer() -> SampledLinear:
    network = SampledLinear(N_HIDDEN, N_PLACES, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        network.bias.copy_(torch.linspace(-1, 1, N_PLACES))
    return network


def hidden_of(places: list[list[int]]) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(
        len(places), N_HIDDEN, dtype=torch.float64, generator=generator, requires_grad=True
    )


@every_choice
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_some_outputs_are_those_of_the_whole_table(
    places: list[list[int]], index_type: torch.dtype
) -> None:
    network, hidden = sampled_layer(), hidden_of(places)
    indices, starts, vectors = entries(places, index_type)
    found, table = network.forward_at(hidden, indices, starts), network(hidden)
    torch.testing.assert_close(table, hidden @ network.weight.T + network.bias, rtol=0, atol=1e-14)
    expected = table[vectors, indices.long()]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    # A different gradient at every output, so that no two can be mixed up.
    upstream = torch.arange(1.0, len(vectors) + 1, dtype=torch.float64)
    wanted = (hidden, network.weight, network.bias)
    for one, other in zip(
        torch.autograd.grad(found, wanted, upstream),
        torch.autograd.grad(expected, wanted, upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


@every_choice
def test_gradcheck_of_some_outputs(places: list[list[int]]) -> None:
    network, hidden = sampled_layer(), hidden_of(places)
    indices, starts, _ = entries(places)
    if not indices.numel():
        assert network.forward_at(hidden, indices, starts).shape == (0,)
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
    outputs = network.forward_at(hidden, indices.int(), starts)
    table = torch.zeros(60, 300, dtype=torch.float64)
    table[vectors, indices] = upstream.double()
    exact = hidden.detach().double() @ network.weight.detach().double().T + network.bias.detach()
    torch.testing.assert_close(
        outputs.detach().double(), exact[vectors, indices], rtol=0, atol=1e-5
    )
    found = torch.autograd.grad(outputs, (hidden, network.weight, network.bias), upstream)
    expected = (
        table @ network.weight.detach().double(),
        table.T @ hidden.detach().double(),
        table.sum(0),
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-5)


def test_half_precision_is_read_in_that_of_the_weights() -> None:
    network = SampledLinear(N_HIDDEN, N_PLACES, generator=torch.Generator().manual_seed(0))
    hidden = torch.tensor([[1.0, -2.0, 0.5, 0.25]])  # exact in bfloat16
    indices, starts, _ = entries([[6, 1]])
    outputs = network.forward_at(hidden.bfloat16(), indices, starts)
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs, network(hidden)[0, [6, 1]])


def test_a_few_outputs_of_very_many_cost_no_table() -> None:
    n_vectors, n_outputs = 200_000, 1_000_000  # a table of them would take 800 GB
    network = SampledLinear(2, n_outputs, generator=torch.Generator().manual_seed(0))
    hidden = torch.ones(n_vectors, 2, requires_grad=True)
    indices = torch.arange(n_vectors) * 5
    outputs = network.forward_at(hidden, indices, torch.arange(n_vectors + 1))
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
    assert torch.equal(
        network.weight, SampledLinear(100, 200, generator=torch.Generator().manual_seed(3)).weight
    )
    assert torch.equal(torch.get_rng_state(), before)
