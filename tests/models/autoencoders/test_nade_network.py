"""The network of CF-NADE and its ordinal cost, against plain restatements in double precision."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

from deepmf.layers.dropout import use_generator
from deepmf.layers.vectors import SparseBatch
from deepmf.models.autoencoders.nade_network import (
    Nade,
    Subset,
    entries_where,
    expected_values,
    ordinal_costs,
    thermometers,
)

N_PLACES, N_LEVELS, N_HIDDEN = 6, 4, 3

# Levels by number at places; some vectors have nothing.
VECTORS: list[dict[int, int]] = [{}, {0: 1, 2: 4, 5: 3}, {3: 2}, {}, {0: 4, 1: 1, 2: 2, 3: 3, 4: 1, 5: 4}]


def sparse(vectors: list[dict[int, int]]) -> SparseBatch:
    starts = torch.tensor([0, *(len(vector) for vector in vectors)]).cumsum(0)
    indices = torch.tensor([place for vector in vectors for place in vector], dtype=torch.int32)
    numbers = [number for vector in vectors for number in vector.values()]
    return SparseBatch(indices, starts, torch.tensor(numbers, dtype=torch.float64))


def dense(vectors: list[dict[int, int]]) -> Tensor:
    table = torch.zeros(len(vectors), N_PLACES, dtype=torch.float64)
    for row, vector in enumerate(vectors):
        for place, number in vector.items():
            table[row, place] = number
    return table


def network(normalise: str = "none", *, seed: int = 0) -> Nade:
    """A network with random weights, biases too."""
    generator = torch.Generator().manual_seed(seed)
    frequencies = torch.full((N_LEVELS,), 1 / N_LEVELS)
    nade = Nade(N_PLACES, N_HIDDEN, frequencies=frequencies, normalise=normalise, generator=generator).double()
    with torch.no_grad():
        for parameter in nade.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return nade


def hidden_by_hand(nade: Nade, vector: dict[int, int], power: float) -> np.ndarray:
    weights = nade.first.weight.detach().numpy().reshape(N_LEVELS, N_PLACES, N_HIDDEN)
    total = np.zeros(N_HIDDEN)
    for place, number in vector.items():
        for level in range(number):
            total += weights[level, place]
    return np.tanh(nade.first_bias.detach().numpy() + total * (100 / max(len(vector), 1)) ** power)


def level_scores_by_hand(nade: Nade, hidden: np.ndarray, place: int) -> np.ndarray:
    weights = nade.last.weight.detach().numpy().reshape(N_LEVELS, N_PLACES, N_HIDDEN)
    biases = nade.last.bias.detach().numpy().reshape(N_LEVELS, N_PLACES)
    scores, total = [], 0.0
    for level in range(N_LEVELS):
        total += biases[level, place] + weights[level, place] @ hidden
        scores.append(total)
    return np.array(scores)


@pytest.mark.parametrize("normalise, power", [("none", 0.0), ("root", 0.5), ("count", 1.0)])
def test_hidden_activations(normalise: str, power: float) -> None:
    nade = network(normalise)
    expected = np.array([hidden_by_hand(nade, vector, power) for vector in VECTORS])
    np.testing.assert_allclose(nade.hidden(sparse(VECTORS)).detach(), expected, atol=1e-12)
    np.testing.assert_allclose(nade.hidden(dense(VECTORS)).detach(), expected, atol=1e-12)
    np.testing.assert_allclose(nade.hidden(sparse([{}, {}])).detach(), expected[[0, 0]], atol=1e-12)


def test_level_scores() -> None:
    nade = network()
    hidden = torch.randn(2, N_HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = np.array(
        [[level_scores_by_hand(nade, vector, place) for place in range(N_PLACES)] for vector in hidden.numpy()]
    )
    np.testing.assert_allclose(nade.level_scores(hidden).detach(), expected.transpose(0, 2, 1), atol=1e-12)
    some = nade.level_scores(hidden, torch.tensor([4, 0, 4])).detach()
    np.testing.assert_allclose(some, expected[:, [4, 0, 4]].transpose(0, 2, 1), atol=1e-12)
    at = nade.level_scores_at(hidden, torch.tensor([5, 1, 3]), torch.tensor([0, 1, 3])).detach()
    np.testing.assert_allclose(at, expected[[0, 1, 1], [5, 1, 3]], atol=1e-12)
    assert nade.level_scores_at(hidden, torch.tensor([], dtype=torch.int64), torch.tensor([0, 0, 0])).shape == (0, 4)


def test_it_starts_from_the_frequencies_of_the_levels() -> None:
    frequencies = torch.tensor([0.1, 0.2, 0.3, 0.4])
    generator = torch.Generator().manual_seed(0)
    nade = Nade(N_PLACES, N_HIDDEN, frequencies=frequencies, normalise="count", generator=generator)
    empty = nade.level_scores(nade.hidden(torch.zeros(1, N_PLACES)))
    np.testing.assert_allclose(empty.softmax(1)[0].T.detach(), frequencies.expand(N_PLACES, -1), rtol=1e-5)
    bound = math.sqrt(6 / (N_PLACES * N_LEVELS + N_HIDDEN))
    for weight in (nade.first.weight, nade.last.weight):
        assert 0.8 * bound < weight.abs().max() <= bound


def test_squared_weights_leave_out_the_biases() -> None:
    nade = network()
    expected = (nade.first.weight**2).sum() + (nade.last.weight**2).sum()
    assert nade.squared_weights().item() == pytest.approx(expected.item(), rel=1e-12)


def test_thermometers() -> None:
    switched = thermometers(sparse([{1: 2}, {}, {0: 1, 2: 4}]), N_PLACES)
    assert switched.indices.tolist() == [1, 1 + 6, 0, 2, 2 + 6, 2 + 12, 2 + 18]
    assert switched.starts.tolist() == [0, 2, 2, 7]
    assert switched.weights.tolist() == [1.0] * 7


def test_some_entries_alone() -> None:
    kept = entries_where(sparse(VECTORS), torch.tensor([True, False, True, False, *[False] * 5, True]))
    assert kept.indices.tolist() == [0, 5, 5]
    assert kept.starts.tolist() == [0, 0, 2, 2, 2, 3]
    assert kept.weights.tolist() == [1, 3, 4]


def cost_by_hand(scores: np.ndarray, number: int) -> float:
    """The product of both chains of choices."""
    chances = np.exp(scores)
    product = 1.0
    for j in range(number, 0, -1):
        product *= chances[j - 1] / chances[:j].sum()
    for j in range(number, scores.size + 1):
        product *= chances[j - 1] / chances[j - 1 :].sum()
    return -math.log(product)


@pytest.mark.parametrize("n_levels", [2, 3, 5, 10])
def test_ordinal_costs(n_levels: int) -> None:
    generator = np.random.default_rng(n_levels)
    scores = generator.normal(size=(8, n_levels, 3), scale=2)
    numbers = generator.integers(1, n_levels + 1, size=(8, 3))
    expected = [[cost_by_hand(scores[b, :, p], numbers[b, p]) for p in range(3)] for b in range(8)]
    np.testing.assert_allclose(ordinal_costs(torch.tensor(scores), torch.tensor(numbers)), expected, rtol=1e-12)
    flat = ordinal_costs(torch.tensor(scores[:, :, 0]), torch.tensor(numbers[:, 0], dtype=torch.float32))
    np.testing.assert_allclose(flat, np.array(expected)[:, 0], rtol=1e-12)


def test_costs_of_two_levels_are_those_of_a_coin() -> None:
    scores = torch.tensor([[0.3, 1.2]])
    coin = -math.log(1 / (1 + math.exp(0.3 - 1.2)))
    assert ordinal_costs(scores, torch.tensor([2])).item() == pytest.approx(coin, rel=1e-6)


def test_costs_of_far_scores_are_finite() -> None:
    scores = torch.tensor([[-300.0, 0.0, 300.0], [300.0, 0.0, -300.0]], requires_grad=True)
    costs = ordinal_costs(scores, torch.tensor([3, 3]))
    np.testing.assert_allclose(costs.detach(), [0, 300 + 600], atol=1e-4)
    costs.sum().backward()
    assert scores.grad is not None and scores.grad.isfinite().all()


def test_the_slope_of_costs() -> None:
    scores = torch.randn(5, N_LEVELS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    numbers = torch.randint(1, N_LEVELS + 1, (5, 2), generator=torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda some: ordinal_costs(some, numbers), scores.requires_grad_())


def test_expected_values() -> None:
    values = torch.tensor([-3.0, 0.0, 1.0, 20.0], dtype=torch.float64)
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).log()
    assert expected_values(scores, values).tolist() == pytest.approx([-0.3 + 0.3 + 8])
    assert expected_values(scores[:, :, None].expand(1, 4, 5), values).shape == (1, 5)


def chances_of_three() -> dict[frozenset[int], float]:
    """How likely each choice out of three entries is: a number of 0, 1 or 2, then any of the choices of so many."""
    return {
        frozenset(chosen): 1 / 3 / math.comb(3, size) for size in range(3) for chosen in combinations(range(3), size)
    }


@pytest.mark.parametrize("kind", ["entries", "table"])
def test_every_choice_is_as_likely_as_it_should_be(kind: str) -> None:
    n_draws = 20_000
    subset = Subset()
    subset.generator = torch.Generator().manual_seed(0)
    if kind == "entries":
        shown = subset.of_entries(torch.arange(0, 3 * n_draws + 1, 3)).view(n_draws, 3)
    else:
        observed = torch.tensor([False, True, False, True, True]).expand(n_draws, 5)
        shown = subset.of_table(observed)
        assert not shown[:, [0, 2]].any()
        shown = shown[:, [1, 3, 4]]
    drawn = Counter(frozenset(np.flatnonzero(line).tolist()) for line in shown.numpy())
    expected = chances_of_three()
    assert drawn.keys() == expected.keys()
    for chosen, chance in expected.items():
        assert abs(drawn[chosen] / n_draws - chance) < 5 * math.sqrt(chance / n_draws)


def test_one_entry_is_never_shown_and_no_entry_does_no_harm() -> None:
    subset = Subset()
    subset.generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        assert not subset.of_entries(torch.tensor([0, 0, 1, 2, 2])).any()
        assert not subset.of_table(torch.eye(4, dtype=torch.bool)[:, :3]).any()


def test_draws_come_from_the_generator_that_is_handed_over() -> None:
    nade = network()
    starts, observed = torch.tensor([0, 40, 90]), torch.ones(2, 50, dtype=torch.bool)
    before = torch.get_rng_state()

    def draws(seed: int) -> list[Tensor]:
        use_generator(nade, torch.Generator().manual_seed(seed))
        return [nade.subset.of_entries(starts), nade.subset.of_table(observed)]

    one, again, other = draws(3), draws(3), draws(4)
    assert all(torch.equal(*pair) for pair in zip(one, again, strict=True))
    assert not any(torch.equal(*pair) for pair in zip(one, other, strict=True))
    assert torch.equal(torch.get_rng_state(), before)
