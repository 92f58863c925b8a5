"""One branch against a plain float64 re-statement of its layers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from deepmf.nn.branch import Branch, Dropout, RandomModule, use_generator
from deepmf.nn.inputs import Channels, SparseBatch

Array = npt.NDArray[np.float64]


N_INPUTS = 11

DEPTHS = {"no hidden layer": (5,), "one": (8, 5), "three": (9, 4, 7, 3)}

every_depth = pytest.mark.parametrize("sizes", DEPTHS.values(), ids=DEPTHS.keys())


def new_branch(
    sizes: tuple[int, ...], *, dropout: float = 0.0, seed: int = 0, n_inputs: int = N_INPUTS
) -> Branch:
    return Branch(n_inputs, sizes, dropout=dropout, generator=torch.Generator().manual_seed(seed))


def learned_branch(sizes: tuple[int, ...], *, dropout: float = 0.0) -> Branch:
    """A float64 branch whose batch norms have scales, shifts and running statistics as if
    learned."""
    branch = new_branch(sizes, dropout=dropout).double()
    generator = torch.Generator().manual_seed(1)
    for norm in branch.norms:
        assert isinstance(norm, nn.BatchNorm1d)
        for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
            assert tensor is not None
            tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.25)
    return branch


def vectors(n: int = 6, n_inputs: int = N_INPUTS) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    table = torch.randn(n, n_inputs, generator=generator, dtype=torch.float64)
    return table * (torch.rand(n, n_inputs, generator=generator) < 0.4)


def sparse(table: Tensor) -> SparseBatch:
    rows, columns = table.nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=len(table))
    return SparseBatch(
        columns,
        torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]),
        table[rows, columns],
    )


def arrays(branch: Branch) -> dict[str, Array]:
    return {name: tensor.double().numpy().copy() for name, tensor in branch.state_dict().items()}


def weights_of(state: dict[str, Array]) -> list[Array]:
    """The weights of all layers as (inputs, outputs)."""
    return [
        state["first.weight"],
        *(state[name].T for name in sorted(state) if name.startswith("others.")),
    ]


def restated(
    table: Array, state: dict[str, Array], *, masks: list[Array] | None = None, own: bool = False
) -> Array:
    """Batch norm of every layer's product; ReLU, and dropout by the masks, before every layer but
    the first.

    With `own`, batch norm takes the statistics of the batch itself, otherwise those of the state.
    """
    latents = table
    for number, weight in enumerate(weights_of(state)):
        if number:
            latents = np.maximum(latents, 0.0)
            latents = latents * masks[number - 1] if masks else latents
        products = latents @ weight
        mean = products.mean(0) if own else state[f"norms.{number}.running_mean"]
        variance = products.var(0) if own else state[f"norms.{number}.running_var"]
        centred = (products - mean) / np.sqrt(variance + 1e-5)
        latents = centred * state[f"norms.{number}.weight"] + state[f"norms.{number}.bias"]
    return latents


@every_depth
def test_evaluation_is_the_formula_with_running_statistics(sizes: tuple[int, ...]) -> None:
    branch, table = learned_branch(sizes, dropout=0.5).eval(), vectors()
    expected = restated(table.numpy(), arrays(branch))
    assert expected.shape == (6, sizes[-1])
    np.testing.assert_allclose(branch(table).detach(), expected, rtol=0, atol=1e-12)
    assert expected.min() < 0  # no ReLU at the end


@every_depth
def test_training_is_the_formula_with_the_batchs_own_statistics(sizes: tuple[int, ...]) -> None:
    branch, table = learned_branch(sizes).train(), vectors()
    before = arrays(branch)
    expected = restated(table.numpy(), before, own=True)
    np.testing.assert_allclose(branch(table).detach(), expected, rtol=0, atol=1e-11)
    # The running statistics have moved a tenth of the way to those of the batch, with the unbiased
    # variance.
    first, after = table.numpy() @ before["first.weight"], arrays(branch)
    for name, statistic in (("running_mean", first.mean(0)), ("running_var", first.var(0, ddof=1))):
        moved = 0.9 * before[f"norms.0.{name}"] + 0.1 * statistic
        np.testing.assert_allclose(after[f"norms.0.{name}"], moved, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(5,), (8, 5), (9, 4, 7, 3)], ids=str)
def test_groups_are_branches_of_their_own(sizes: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    branch = Branch(N_INPUTS, sizes, dropout=0.5, generator=generator, groups=3).double().eval()
    state, table = branch.state_dict(), vectors()
    outputs = branch(table).detach().unflatten(1, (3, sizes[-1]))
    for group in range(3):
        one = new_branch(sizes, dropout=0.5).double().eval()
        own = {
            name: tensor[group] if name.startswith("others.") else tensor.chunk(3, dim=-1)[group]
            for name, tensor in state.items()
            if tensor.ndim
        }
        one.load_state_dict(
            own | {name: tensor for name, tensor in state.items() if not tensor.ndim}
        )
        torch.testing.assert_close(outputs[:, group], one(table).detach())
    assert branch.n_outputs == 3 * sizes[-1]


@every_depth
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_sparse_and_dense_vectors_agree(sizes: tuple[int, ...], mode: str) -> None:
    table = vectors()
    table[2] = 0.0  # a vector without entries
    answers, gradients = [], []
    for batch in (table, sparse(table)):
        branch = learned_branch(sizes).train(mode == "train")
        latents = branch(batch)
        (latents * torch.arange(1.0, latents.numel() + 1).reshape(latents.shape)).sum().backward()
        answers.append(latents.detach())
        gradients.append([parameter.grad for parameter in branch.parameters()])
    torch.testing.assert_close(answers[0], answers[1], rtol=0, atol=1e-12)
    for dense_gradient, sparse_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(dense_gradient, sparse_gradient, rtol=1e-9, atol=1e-9)


@every_depth
def test_what_is_learned(sizes: tuple[int, ...]) -> None:
    branch = new_branch(sizes)
    shapes = [(N_INPUTS, sizes[0]), *((outputs, inputs) for inputs, outputs in pairwise(sizes))]
    assert [tuple(weight.shape) for weight in branch.list_weights()] == shapes
    # No bias: the shift of batch norm, one scale and one shift for each output, takes its place.
    count = sum(inputs * outputs for inputs, outputs in pairwise((N_INPUTS, *sizes))) + 2 * sum(
        sizes
    )
    assert sum(parameter.numel() for parameter in branch.parameters()) == count


def test_xavier_bounds() -> None:
    branch = new_branch((120, 80, 60), n_inputs=200)
    for weight, inputs, outputs in zip(
        branch.list_weights(), (200, 120, 80), (120, 80, 60), strict=True
    ):
        bound = (6 / (inputs + outputs)) ** 0.5
        assert 0.99 * bound < weight.abs().max().item() <= bound
        assert weight.mean().item() == pytest.approx(0.0, abs=0.02 * bound)
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_the_generator_alone_decides_the_weights() -> None:
    before = torch.get_rng_state()
    states = []
    for seed in (4, 4, 5):
        generator = torch.Generator().manual_seed(seed)
        branch = Branch(30, (8, 6, 4), dropout=0.5, generator=generator)
        states.append(branch.state_dict())
    assert torch.equal(torch.get_rng_state(), before)  # the global generator is not touched
    one, same, other = states
    assert all(torch.equal(one[name], same[name]) for name in one)
    for name in ("first.weight", "others.0.weight", "others.1.weight"):
        assert not torch.equal(one[name], other[name])
    assert not any(tensor.isnan().any() for tensor in one.values())


@every_depth
def test_summary_features_join_the_first_layer_before_its_batch_norm(
    sizes: tuple[int, ...],
) -> None:
    branch = (
        Branch(
            N_INPUTS,
            sizes,
            dropout=0.0,
            generator=torch.Generator().manual_seed(0),
            n_summary_features=3,
        )
        .double()
        .train()
    )
    table, summary_features = vectors(), vectors(n_inputs=3)
    state = arrays(branch)
    assert state["summary_features.weight"].shape == (sizes[0], 3)
    # They are three more inputs of the first layer.
    joined = np.concatenate([table.numpy(), summary_features.numpy()], axis=1)
    wider = state | {
        "first.weight": np.concatenate([state["first.weight"], state["summary_features.weight"].T])
    }
    expected = restated(joined, wider, own=True)
    for places in (table, sparse(table)):
        np.testing.assert_allclose(
            branch(Channels(places, summary_features)).detach(), expected, rtol=0, atol=1e-11
        )
    # Weights that the penalty of equation 1 holds down are those of layers.
    shapes = [(N_INPUTS, sizes[0]), *((outputs, inputs) for inputs, outputs in pairwise(sizes))]
    assert [tuple(weight.shape) for weight in branch.list_weights()] == shapes


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
    assert all(
        0 < count < n for axis, n in ((0, 400), (1, 250)) for count in kept.sum(axis).tolist()
    )


def test_the_gradient_passes_where_the_input_did() -> None:
    inputs = torch.ones(50, 20, requires_grad=True)
    outputs = training(0.75)(inputs)
    outputs.sum().backward()
    assert torch.equal(inputs.grad, outputs.detach())
    assert set(outputs.detach().flatten().tolist()) == {0.0, 4.0}


def test_off_in_evaluation() -> None:
    dropout, inputs = (
        training(0.9).eval(),
        torch.randn(9, 4, generator=torch.Generator().manual_seed(0)),
    )
    assert dropout.generator is not None
    before = dropout.generator.get_state()
    assert torch.equal(dropout(inputs), inputs)
    assert torch.equal(dropout.generator.get_state(), before)
    assert not torch.equal(dropout.train()(inputs), inputs)


def test_draws_from_its_own_generator_alone() -> None:
    inputs, before = torch.ones(30, 30), torch.get_rng_state()
    dropout = training(0.5, seed=7)
    first, second = dropout(inputs), dropout(inputs)
    assert not torch.equal(first, second)
    again = training(0.5, seed=7)
    assert torch.equal(again(inputs), first) and torch.equal(again(inputs), second)
    assert not torch.equal(training(0.5, seed=8)(inputs), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_everything_that_draws_gets_the_generator_and_nothing_else() -> None:
    class Coin(RandomModule):
        """Another module that draws."""

    network = nn.ModuleDict(
        {"coin": Coin(), "layers": nn.Sequential(nn.Linear(2, 2), Dropout(0.2))}
    )
    assert all(
        module.generator is None for module in network.modules() if isinstance(module, RandomModule)
    )
    generator = torch.Generator()
    use_generator(network, generator)
    drawing = {
        type(module).__name__ for module in network.modules() if hasattr(module, "generator")
    }
    assert drawing == {"Coin", "Dropout"}
    assert all(
        module.generator is generator
        for module in network.modules()
        if isinstance(module, RandomModule)
    )
    another = torch.Generator()
    use_generator(network, another)
    assert all(
        module.generator is another
        for module in network.modules()
        if isinstance(module, RandomModule)
    )
    assert not network.state_dict().keys() & {"coin.generator", "layers.1.generator"}
