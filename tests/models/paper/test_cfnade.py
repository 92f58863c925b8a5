"""The network of CF-NADE and its ordinal cost, against plain restatements in double precision."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import combinations, permutations
from math import comb
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from deepmf.datasets import checkerboard
from deepmf.errors import BadSetting, TrainingInterrupted
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.paper.cfnade import (
    CFNADE,
    ICFNADE,
    UCFNADE,
    CFNADEObjective,
    Nade,
    Subset,
    compute_ordinal_costs,
    number_levels,
)
from deepmf.nn.inputs import SparseBatch
from deepmf.testing import ModelContract, additive
from deepmf.training.blocks import VectorBlocks
from deepmf.training.history import EpochRecord, History
from deepmf.training.runtime import make_generator

N_PLACES, N_LEVELS, N_HIDDEN = 6, 4, 3


def network(normalise: str = "none", *, seed: int = 0) -> Nade:
    """A network with random weights, biases too."""
    generator = torch.Generator().manual_seed(seed)
    frequencies = torch.full((N_LEVELS,), 1 / N_LEVELS)
    nade = Nade(
        N_PLACES, N_HIDDEN, frequencies=frequencies, normalise=normalise, generator=generator
    ).double()
    with torch.no_grad():
        for parameter in nade.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return nade


def level_scores_by_hand(nade: Nade, hidden: np.ndarray, place: int) -> np.ndarray:
    weights = nade.last.weight.detach().numpy().reshape(N_LEVELS, N_PLACES, N_HIDDEN)
    biases = nade.last.bias.detach().numpy().reshape(N_LEVELS, N_PLACES)
    scores, total = [], 0.0
    for level in range(N_LEVELS):
        total += biases[level, place] + weights[level, place] @ hidden
        scores.append(total)
    return np.array(scores)


def test_level_scores() -> None:
    nade = network()
    hidden = torch.randn(
        2, N_HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    expected = np.array(
        [
            [level_scores_by_hand(nade, vector, place) for place in range(N_PLACES)]
            for vector in hidden.numpy()
        ]
    )
    np.testing.assert_allclose(
        nade.score_levels(hidden).detach(), expected.transpose(0, 2, 1), atol=1e-12
    )
    some = nade.score_levels(hidden, torch.tensor([4, 0, 4])).detach()
    np.testing.assert_allclose(some, expected[:, [4, 0, 4]].transpose(0, 2, 1), atol=1e-12)
    at = nade.outputs_at(hidden, torch.tensor([5, 1, 3]), torch.tensor([0, 1, 3])).detach()
    np.testing.assert_allclose(at, expected[[0, 1, 1], [5, 1, 3]], atol=1e-12)
    assert nade.outputs_at(
        hidden, torch.tensor([], dtype=torch.int64), torch.tensor([0, 0, 0])
    ).shape == (0, 4)


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
    np.testing.assert_allclose(
        compute_ordinal_costs(torch.tensor(scores), torch.tensor(numbers)), expected, rtol=1e-12
    )
    flat = compute_ordinal_costs(
        torch.tensor(scores[:, :, 0]), torch.tensor(numbers[:, 0], dtype=torch.float32)
    )
    np.testing.assert_allclose(flat, np.array(expected)[:, 0], rtol=1e-12)


def test_costs_of_far_scores_are_finite() -> None:
    scores = torch.tensor([[-300.0, 0.0, 300.0], [300.0, 0.0, -300.0]], requires_grad=True)
    costs = compute_ordinal_costs(scores, torch.tensor([3, 3]))
    np.testing.assert_allclose(costs.detach(), [0, 300 + 600], atol=1e-4)
    costs.sum().backward()
    assert scores.grad is not None and scores.grad.isfinite().all()


def chances_of_three() -> dict[frozenset[int], float]:
    """How likely each choice out of three entries is: a number of 0, 1 or 2, then any of the
    choices of so many."""
    return {
        frozenset(chosen): 1 / 3 / math.comb(3, size)
        for size in range(3)
        for chosen in combinations(range(3), size)
    }


def test_every_choice_is_as_likely_as_it_should_be() -> None:
    n_draws = 20_000
    subset = Subset()
    subset.generator = torch.Generator().manual_seed(0)
    shown = subset.of_entries(torch.arange(0, 3 * n_draws + 1, 3)).view(n_draws, 3)
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


QUICK: dict[str, Any] = {
    "hidden_size": 16,
    "batch_size": 30,
    "epochs": 40,
    "validate_every": 20,
    "learning_rate": 0.05,
    "averaging": 0.9,
    "gamma": 0.02,
    "device": "cpu",
}

both = pytest.mark.parametrize("model_class", [ICFNADE, UCFNADE])


@pytest.mark.slow
class TestICFNADE(ModelContract):
    model = ICFNADE
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.3


@pytest.mark.slow
class TestUCFNADE(ModelContract):
    model = UCFNADE
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.12


def odd_matrix() -> ObservedMatrix:
    """The additive matrix with levels that lie far apart."""
    values = np.array([np.nan, -3, 0, 1, 7, 20])[np.nan_to_num(additive().to_array()).astype(int)]
    return ObservedMatrix.from_array(values, Scale([-3, 0, 1, 7, 20]))


def tables(model: CFNADE, matrix: ObservedMatrix) -> np.ndarray:
    """The numbers of the levels by what is read, (vectors, places), 0 where nothing is observed."""
    values = matrix.to_array() if model.axis == "row" else matrix.to_array().T
    numbers = np.zeros(values.shape, dtype=int)
    known = ~np.isnan(values)
    numbers[known] = matrix.scale.level_positions(values[known]) + 1
    return numbers


def score_levels(model: CFNADE, numbers: np.ndarray, network: Nade | None = None) -> np.ndarray:
    """The scores of all levels of all outputs for the vector `numbers` (places,), in double
    precision.

    They are those of the model's own network, or of another one of its settings.
    """
    network = model.network_ if network is None else network
    weights = {name: weight.double().numpy() for name, weight in network.state_dict().items()}
    n_places, n_levels = numbers.size, network.n_levels
    inputs = weights["first.weight"].reshape(n_levels, n_places, -1)
    count = max((numbers > 0).sum(), 1)
    sums = sum(
        (inputs[level][numbers > level].sum(axis=0) for level in range(n_levels)),
        np.zeros(inputs.shape[2]),
    )
    power = {"none": 0.0, "root": 0.5, "count": 1.0}[model.settings.normalise]
    hidden = np.tanh(weights["first_bias"] + sums * (100 / count) ** power)
    steps = weights["last.bias"] + weights["last.weight"] @ hidden
    return np.cumsum(steps.reshape(n_levels, n_places), axis=0).T


def distributions(model: CFNADE, matrix: ObservedMatrix) -> np.ndarray:
    """The chances (rows, columns, levels) of all levels, by hand."""
    scores = np.array([score_levels(model, vector) for vector in tables(model, matrix)])
    chances = np.exp(scores - scores.max(axis=2, keepdims=True))
    chances /= chances.sum(axis=2, keepdims=True)
    return chances if model.axis == "row" else chances.transpose(1, 0, 2)


@both
@pytest.mark.parametrize("normalise", ["none", "root", "count"])
def test_predictions_are_means_of_the_distribution_given_all_entries(
    model_class: type[CFNADE], normalise: str
) -> None:
    matrix = odd_matrix()
    model = model_class(**QUICK | {"normalise": normalise, "epochs": 10}).fit(matrix)
    expected = distributions(model, matrix)
    rows, columns = (array.ravel() for array in np.indices(matrix.shape))
    chances = model.predict_distribution(rows, columns)
    assert chances.shape == (rows.size, 5)
    np.testing.assert_allclose(chances, expected[rows, columns], atol=1e-5)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    means = chances @ [-3, 0, 1, 7, 20]
    np.testing.assert_allclose(model.predict(rows, columns), means, atol=1e-9)
    np.testing.assert_array_equal(
        model.predict_levels(rows, columns), matrix.scale.nearest_level(means)
    )


class Parts(NamedTuple):
    """What a trainer of CF-NADE is made of."""

    network: Nade
    objective: CFNADEObjective
    source: VectorBlocks

    def inputs(self, ids: Tensor) -> SparseBatch:
        batch = self.source.block(ids).inputs
        assert isinstance(batch, SparseBatch)
        return batch

    def loss(self, ids: Tensor) -> Tensor:
        return self.objective.loss(self.network, self.source.block(ids))

    def compute_cost(self, batch: SparseBatch, shown: Tensor) -> Tensor:
        return self.objective.compute_cost(self.network, batch, shown)


def new_parts(model: CFNADE, train: ObservedMatrix) -> Parts:
    """The parts of a model's trainer; the network has random biases too and draws from a generator
    of its own."""
    network = model._new_network(EntryStore.of(train))
    with torch.no_grad():
        for bias in (network.first_bias, network.last.bias):
            bias.add_(torch.randn(bias.shape, generator=make_generator(0, "biases")))
    network.subset.generator = make_generator(0, "draws")
    objective = CFNADEObjective(train, model.settings)
    numbers = number_levels(train.scale, train.values)
    source = VectorBlocks(
        train, numbers, axis=model.axis, batch_size=model.settings.batch_size, force_dense=False
    )
    source.prepare(torch.device("cpu"), half=False, generator=make_generator(0, "sampling"))
    return Parts(network, objective, source)


def test_the_cost_of_a_draw_stands_for_that_of_all_orders() -> None:
    """D / (D - d) of the costs of what is not shown is in the mean what predicting entry after
    entry costs."""
    numbers = np.array([2, 0, 5, 1, 0])
    matrix = ObservedMatrix.from_array(
        [[2, np.nan, 5, 1, np.nan], [1, 2, 3, 4, 5]], Scale([1, 2, 3, 4, 5])
    )
    model = UCFNADE(**QUICK)
    parts = new_parts(model, matrix)
    places = [0, 2, 3]

    def costs_given(shown: tuple[int, ...]) -> dict[int, float]:
        inputs = np.where(np.isin(np.arange(5), shown), numbers, 0)
        scores = score_levels(model, inputs, parts.network)
        return {
            place: cost_by_hand(scores[place], numbers[place])
            for place in places
            if place not in shown
        }

    in_order = [
        sum(costs_given(order[:known])[order[known]] for known in range(3))
        for order in permutations(places)
    ]
    batch = parts.inputs(torch.tensor([0]))
    mean = 0.0
    for size in range(3):
        for shown in combinations(range(3), size):
            cost = parts.compute_cost(
                batch, torch.tensor([entry in shown for entry in range(3)])
            ).item()
            by_hand = (
                sum(costs_given(tuple(places[entry] for entry in shown)).values()) * 3 / (3 - size)
            )
            assert cost == pytest.approx(by_hand, rel=1e-5)
            mean += cost / 3 / comb(3, size)
    assert mean == pytest.approx(np.mean(in_order), rel=1e-5)


@pytest.mark.slow
@both
def test_a_killed_fit_continues_to_the_same(model_class: type[CFNADE], tmp_path: Path) -> None:
    settings = QUICK | {"epochs": 8, "batch_size": 10, "validate_every": 3}
    path = tmp_path / "run.checkpoint"
    with pytest.warns(TrainingInterrupted):
        model_class(**settings).fit(
            additive(), checkpoint=path, checkpoint_every=1, callbacks=[_interrupting_at(4)]
        )
    again = model_class(**settings).fit(additive(), checkpoint=path)
    whole = model_class(**settings).fit(additive())
    assert [record.loss for record in again.history_.records] == [
        record.loss for record in whole.history_.records
    ]
    for name, weight in whole.network_.state_dict().items():
        assert torch.equal(weight, again.network_.state_dict()[name])
    np.testing.assert_array_equal(again.complete(), whole.complete())


@both
def test_a_checkerboard_of_two_levels(model_class: type[CFNADE]) -> None:
    board = checkerboard(24, 20, observed=0.6, seed=0)
    ones_and_fives = ObservedMatrix.from_array(board.matrix.to_array(), Scale([1, 5]))
    model = model_class(**QUICK).fit(ones_and_fives)
    rows, columns = np.divmod(np.arange(24 * 20), 20)
    np.testing.assert_array_equal(
        model.predict_levels(rows, columns), board.truth.mean(rows, columns)
    )
    assert model.predict_distribution([0], [0]).shape == (1, 2)
    # Odd rows are alike, and so are odd columns: on the side that is read, and on the other.
    for similar in (model.similar_rows, model.similar_columns):
        labels, values = similar(5, n=6)
        assert all(label % 2 == 1 for label in labels) and np.all(values > 0.5)


@pytest.mark.slow
def test_a_new_row_is_read_and_an_empty_one_is_answered_for() -> None:
    matrix = additive()
    model = UCFNADE(**QUICK).fit(matrix)
    labels = [f"column {k}" for k in range(0, 20, 2)]
    high, low = (
        model.extend(
            ObservedMatrix.from_entries(["n"] * 10, labels, [value] * 10, matrix.scale)
        ).predict(["n"] * 25, matrix.column_labels)
        for value in (5, 1)
    )
    assert np.mean(high - low) > 1
    with pytest.warns(match="entry"):
        more = model.extend(
            ObservedMatrix.from_entries([], [], [], matrix.scale, row_labels=["empty"])
        )
    chances = more.predict_distribution(["empty"], ["column 1"])
    scores = score_levels(model, np.zeros(25, dtype=int))[1]
    np.testing.assert_allclose(chances[0], np.exp(scores) / np.exp(scores).sum(), atol=1e-5)


@pytest.mark.parametrize("scale", [Scale(low=0, high=1), Scale([1])])
def test_needs_levels(scale: Scale) -> None:
    matrix = ObservedMatrix.from_array(np.ones((4, 4)), scale)
    with pytest.raises(BadSetting, match="CF-NADE"):
        ICFNADE(**QUICK).fit(matrix)


def _interrupting_at(epoch: int) -> Callable[[EpochRecord, History], None]:
    def callback(record: EpochRecord, _: History) -> None:
        if record.epoch == epoch:
            raise KeyboardInterrupt

    return callback
