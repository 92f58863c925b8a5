"""Weights of entries: weight 2 is the entry twice, weight 0 is absent, and what ignores weights
refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deepmf import ALS, DMF, BayesianMF, Means, ObservedMatrix, OrdinalDMF, Scale, UAutoRec
from deepmf.datasets import generate
from deepmf.errors import BadSetting
from deepmf.linalg.ridge import AxisSolver
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.scale import ENCODINGS
from deepmf.models.als import ALSSettings, LeastSquares
from deepmf.models.ordinal.network import OrdinalHead
from deepmf.models.ordinal.refinement import NewtonStep, PaddedEntries
from deepmf.models.registry import MODELS, model_class
from deepmf.nn.ranks import Ranks
from deepmf.recommend.column_gram import Gram
from deepmf.recommend.column_ridge import Ridge
from deepmf.scoring.pairs import Fallback
from deepmf.training.blocks import MatrixBlocks

SCALE = Scale(levels=[1, 2, 3, 4, 5])
RNG = np.random.default_rng(0)
CELLS = RNG.permutation(30 * 20)[:240]
ROWS, COLUMNS = np.divmod(CELLS, 20)
VALUES = RNG.integers(1, 6, CELLS.size).astype(float)
WEIGHTS = np.where(RNG.random(CELLS.size) < 0.3, 2.0, 1.0)


def build(weights: Any = None, **options: Any) -> ObservedMatrix:
    return ObservedMatrix.from_entries(ROWS, COLUMNS, VALUES, SCALE, weights=weights, **options)


def repeat(entries: AxisEntries) -> AxisEntries:
    """Return each entry as often as its weight says, without weights."""
    assert entries.extras.weights is not None
    times = entries.extras.weights.astype(int)
    which = np.repeat(np.repeat(np.arange(entries.starts.size - 1), np.diff(entries.starts)), times)
    starts = np.searchsorted(which, np.arange(entries.starts.size))
    return AxisEntries(starts, np.repeat(entries.others, times), np.repeat(entries.values, times))


def by_row(matrix: ObservedMatrix) -> AxisEntries:
    return EntryStore.of(matrix).row_entries(np.arange(matrix.shape[0]))


def test_a_weight_of_two_is_the_entry_twice_for_means() -> None:
    weighted = Means(shrinkage=3.0).fit(build(WEIGHTS))
    twice = WEIGHTS == 2
    values = np.concatenate([VALUES, VALUES[twice]])
    columns = np.concatenate([COLUMNS, COLUMNS[twice]])
    rows = np.concatenate([ROWS, ROWS[twice]])
    assert weighted.mean_ == pytest.approx(values.mean())
    sums = np.bincount(columns, values - values.mean(), minlength=20)
    effects = sums / (np.bincount(columns, minlength=20) + 3.0)
    assert np.allclose(weighted.column_effects_, effects)
    left = np.bincount(rows, values - values.mean() - effects[columns], minlength=30)
    assert np.allclose(weighted.row_effects_, left / (np.bincount(rows, minlength=30) + 3.0))


def test_a_weight_of_two_is_the_entry_twice_in_least_squares() -> None:
    matrix = build(WEIGHTS)
    others = np.random.default_rng(1).standard_normal((20, 4)).astype(np.float32)
    start = np.zeros((30, 4), dtype=np.float32)

    def solve(entries: AxisEntries) -> list[Any]:
        sides = LeastSquares(entries, n_others=20, train=matrix, settings=ALSSettings())
        return [*sides.solve(others), *sides.improve(others, start)]

    for one, other in zip(solve(by_row(matrix)), solve(repeat(by_row(matrix))), strict=True):
        assert np.allclose(one, other, rtol=1e-3, atol=1e-4)


def test_a_weight_of_two_is_the_entry_twice_in_a_gibbs_step() -> None:
    matrix = build(WEIGHTS)
    others = np.random.default_rng(1).standard_normal((20, 4)).astype(np.float32)
    prior, precision = np.zeros((30, 4)), 2.0 * np.eye(4)

    def draw(entries: AxisEntries) -> tuple[Any, ...]:
        solver = AxisSolver(entries, entries.values - 3.0, n_others=20)
        found = solver.draw(others, prior, precision, 1.5)
        return found.means, *found.fit

    for one, other in zip(draw(by_row(matrix)), draw(repeat(by_row(matrix))), strict=True):
        assert np.allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_features", [2, 9], ids=["in features", "in entries"])
def test_a_weight_of_two_is_the_entry_twice_in_a_refinement_step(n_features: int) -> None:
    generator = torch.Generator().manual_seed(0)
    head = OrdinalHead([1, 2, 3], [-0.5, 0.5], [0.6, 0.3])
    scores, units = torch.randn(2, 4, generator=generator), torch.rand(2, 4, generator=generator)
    features = torch.randn(2, 4, n_features, generator=generator)
    response = torch.tensor([-0.4, 0.7, 0.1]).expand(2, 4, 3)
    roots = torch.tensor([[1, 2**0.5, 1, 1], [1, 1, 1, 2**0.5]])
    doubled = torch.tensor([[0, 1, 2, 3, 1], [0, 1, 2, 3, 3]])

    def take(some: torch.Tensor) -> torch.Tensor:
        at = doubled[..., None].expand(-1, -1, some.shape[2]) if some.ndim == 3 else doubled
        return some.gather(1, at)

    real = torch.ones(2, 4, dtype=torch.bool)
    once = PaddedEntries(torch.arange(4).expand(2, 4), units, real, roots)
    twice = PaddedEntries(doubled, take(units), take(real))
    weighted = NewtonStep.from_scores(head, scores, response, once, features)
    repeated = NewtonStep.from_scores(head, take(scores), take(response), twice, take(features))
    assert torch.allclose(weighted.take(0.7), repeated.take(0.7), atol=1e-5)


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_blocks_have_the_weights_of_their_entries(dense: bool) -> None:
    matrix = build(WEIGHTS)
    blocks = MatrixBlocks(
        matrix, ENCODINGS["scaled"], block_rows=8, block_columns=7, force_dense=dense
    )
    blocks.prepare(torch.device("cpu"), half=False, generator=torch.Generator().manual_seed(0))
    blocks.begin_epoch()
    block = blocks.next_block()
    expected = np.zeros(matrix.shape)
    expected[ROWS, COLUMNS] = WEIGHTS
    at = np.ix_(block.row_ids.numpy(), block.column_ids.numpy())
    assert block.weight_table is not None
    assert np.array_equal(block.weight_table.numpy(), expected[at])
    assert np.array_equal(block.targets.isnan().numpy(), expected[at] == 0)


TINY: dict[str, tuple[Any, dict[str, Any]]] = {
    "means": (Means, {}),
    "als": (ALS, {"latent_size": 3, "epochs": 4}),
    "bayesian": (BayesianMF, {"latent_size": 3, "epochs": 12}),
    "dmf": (DMF, {"hidden_sizes": (8,), "latent_size": 4, "epochs": 30, "device": "cpu"}),
    "dmf-o": (
        OrdinalDMF,
        {
            "hidden_sizes": (8,),
            "latent_size": 4,
            "epochs": 4,
            "views": 2,
            "linear_iterations": 4,
            "device": "cpu",
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_weights_change_a_model_and_absent_entries_do_not(name: str) -> None:
    kind, settings = TINY[name]
    heavy = np.where(VALUES >= 4, 20.0, 1.0)
    weighted = kind(**settings, seed=0).fit(build(heavy))
    plain = kind(**settings, seed=0).fit(build())
    assert weighted.predict(ROWS, COLUMNS).mean() > plain.predict(ROWS, COLUMNS).mean()
    some = np.arange(CELLS.size) % 3 > 0
    absent = build(some.astype(float), row_labels=range(30), column_labels=range(20))
    left = ObservedMatrix.from_entries(
        ROWS[some],
        COLUMNS[some],
        VALUES[some],
        SCALE,
        row_labels=range(30),
        column_labels=range(20),
    )
    assert absent == left


@pytest.mark.parametrize("name", [name for name in MODELS if not model_class(name).takes_weights])
def test_a_model_that_ignores_weights_refuses_them(name: str) -> None:
    with pytest.raises(BadSetting, match="weights"):
        model_class(name)().fit(build(WEIGHTS))


def test_a_model_that_ignores_weights_refuses_them_in_an_extension() -> None:
    model = UAutoRec(hidden_size=4, epochs=1, device="cpu").fit(build())
    more = ObservedMatrix.from_entries([99, 99], [1, 2], [5, 1], SCALE, weights=[9, 1])
    with pytest.raises(BadSetting, match="weights"):
        model.extend(more)


def test_the_fallback_counts_by_weight() -> None:
    matrix = build(np.where(VALUES == 5, 50.0, 1.0))
    fallback = Fallback(EntryStore.of(matrix))
    assert fallback.means(np.array([-1]), np.array([-1]))[0] == pytest.approx(matrix.mean)
    assert matrix.mean > 4.5


def test_an_extension_uses_weights() -> None:
    model = ALS(latent_size=3, epochs=4).fit(build())
    high = ObservedMatrix.from_entries([99, 99], [1, 2], [5, 1], SCALE, weights=[1, 0.1])
    low = ObservedMatrix.from_entries([99, 99], [1, 2], [5, 1], SCALE, weights=[0.1, 1])
    assert model.extend(high).predict([99], [3])[0] > model.extend(low).predict([99], [3])[0]


def test_an_entry_beside_new_rows_moves_a_row_by_the_weights_of_its_trained_entries() -> None:
    others = generate(40, 25, density=0.4, levels=None, named=False, seed=0).matrix
    rows, columns, values = others.entries()
    twins, shared = np.repeat([40, 41], 8), np.tile(np.arange(0, 16, 2), 2)
    weights = np.repeat([1.0, 1.0, 0.05], [rows.size, 8, 8])  # of all others, and of each twin
    train = ObservedMatrix.from_entries(
        np.append(rows, twins),
        np.append(columns, shared),
        np.append(values, np.tile(np.linspace(-1.5, 1.5, 8), 2)),
        weights=weights,
    )
    model = ALS(latent_size=3, epochs=8, presence=None, seed=0).fit(train)
    new = [99, 99, 99, 99, 40, 41], [0, 2, 5, 77, 77, 77], [1.5, -1.0, 1.0, 2.0, 2.0, 2.0]
    more = model.extend(ObservedMatrix.from_entries(*new, model.scale_, weights=np.ones(6)))
    heavy, light = (
        np.abs(more.predict([row] * 25, range(25)) - model.predict([row] * 25, range(25))).mean()
        for row in (40, 41)
    )
    assert light > 2 * heavy > 0


@pytest.mark.parametrize("kind", ["full", "nearest"])
def test_presence_counts_weights(kind: str) -> None:
    whole = np.where(ROWS < 5, 2.0, 1.0)  # all entries of some rows
    entries = by_row(build())

    def score(matrix: ObservedMatrix, penalty: float = 2.0) -> Any:
        model = Gram.of(matrix, kind).fit([Ridge(penalty, 0.5)])[0]
        return model.score(entries)

    plain, ones, weighted = (score(build(each)) for each in (None, np.ones(CELLS.size), whole))
    assert np.array_equal(plain, ones)
    # Only whole rows can be repeated; their number is part of nothing but the mean length of rows.
    rows, columns = (np.concatenate([part, part[ROWS < 5]]) for part in (ROWS, COLUMNS))
    rows[CELLS.size :] += 100
    twice = ObservedMatrix.from_entries(rows, columns, np.ones(rows.size), Scale(levels=[1, 2]))
    ratio = twice.row_counts.mean() / build().row_counts.mean()
    assert np.allclose(score(twice, 2.0 * ratio**0.3), weighted, atol=1e-3)
    assert not np.allclose(plain, weighted, atol=1e-2)


def test_new_columns_of_a_presence_count_weights() -> None:
    model, store = Gram.of(build(), "full").fit([Ridge(2.0, 0.5)])[0], EntryStore.of(build())
    scores = []
    for weight in (1.0, 9.0):
        new = ObservedMatrix.from_entries([0, 1], [99, 99], [5, 5], SCALE, weights=[1.0, weight])
        grown, _, columns, *_ = store.extend(new)
        more = model.extend(grown, columns)
        scores.append(more.score(by_row(build()))[:, 20:])
    assert not np.allclose(*scores, atol=1e-4)


def test_popularity_counts_weights() -> None:
    heavy = np.where(COLUMNS == 7, 50.0, 1.0)
    model = Means(presence="full").fit(build(heavy))
    assert model.rankers_.popularity.argmax() == 7
    counted = np.bincount(COLUMNS, heavy, minlength=20)
    assert np.allclose(EntryStore.of(build(heavy)).column_totals, counted)
    more = ObservedMatrix.from_entries([99], [3], [5], SCALE, weights=[4.0])
    counted[3] += 4
    assert np.allclose(model.extend(more).entries_.column_totals, counted)
    assert np.array_equal(EntryStore.of(build()).column_totals, np.bincount(COLUMNS, minlength=20))


def test_several_processes_refuse_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepmf.nn.group.find_ranks", lambda: Ranks(0, 2))
    with pytest.raises(BadSetting, match="weight"):
        DMF().fit(build(WEIGHTS))
