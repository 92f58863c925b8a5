"""Presence: item-item weights against a plain restatement, new columns, and model files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.errors import BadModelFile
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.recommend.ease import Ease
from deepmf.recommend.presence import Presence
from deepmf.recommend.weighted_als import WeightedALS

N_ROWS, N_COLUMNS = 60, 12


def choosy(n_rows: int = N_ROWS, n_columns: int = N_COLUMNS, *, seed: int = 0) -> ObservedMatrix:
    """Even rows take even columns, odd rows odd ones, with few exceptions; every column is liked as much."""
    generator = np.random.default_rng(seed)
    alike = (np.arange(n_rows)[:, None] - np.arange(n_columns)) % 2 == 0
    taken = generator.random(alike.shape) < np.where(alike, 0.5, 0.03)
    values = generator.integers(1, 6, alike.shape)
    return ObservedMatrix.from_array(np.where(taken, values, np.nan))


def mark(matrix: ObservedMatrix) -> np.ndarray:
    return (~np.isnan(matrix.to_array())).astype(np.float64)


def weigh(x: np.ndarray) -> np.ndarray:
    """Return the weights of rows: the mean number of entries by that of the row, to the power of a half."""
    counts = np.maximum(x.sum(axis=1), 1)
    return np.diag(np.sqrt(counts.mean() / counts))


def test_each_column_is_regressed_on_all_others() -> None:
    matrix = choosy()
    x = mark(matrix)
    d = weigh(x)
    ease = Ease.fit(matrix, penalty=7.0)
    scores = ease.score_block(ease.encode_rows(Means().fit(matrix).entries_.row_entries(np.arange(5))), slice(0, 12))
    for column in range(N_COLUMNS):
        others = np.delete(x, column, axis=1)
        weights = np.linalg.solve(others.T @ d @ others + 7.0 * np.eye(N_COLUMNS - 1), others.T @ d @ x[:, column])
        np.testing.assert_allclose(scores[:, column], others[:5] @ weights, atol=2e-3)
    np.testing.assert_array_equal(np.diag(ease.weights), 0.0)


def test_a_new_column_is_regressed_on_the_trained_ones() -> None:
    matrix = choosy()
    x = mark(matrix)
    d = weigh(x)
    fans = np.arange(0, 40, 2)
    new = ObservedMatrix.from_entries(fans, [99] * fans.size, [4] * fans.size, matrix.scale)
    model = Means(rank_by="relevance").fit(matrix)
    more = model.extend(new)
    presence = more.make_ranker("relevance").relevance
    assert presence is not None and model.make_ranker("relevance").relevance is not None
    ease = presence.presence.model
    target = np.zeros(N_ROWS)
    target[fans] = 1.0
    weights = np.linalg.solve(x.T @ d @ x + ease.penalty * np.eye(N_COLUMNS), x.T @ d @ target)
    scores = ease.score_block(ease.encode_rows(more.entries_.row_entries(np.arange(6))), slice(12, 13))
    np.testing.assert_allclose(scores[:, 0], x[:6] @ weights, atol=2e-3)
    assert scores[::2].mean() > scores[1::2].mean()
    left = more.forget(columns=[99])
    assert left.recommend(0, n=50).labels.tolist() == model.recommend(0, n=50).labels.tolist()


def test_weighted_als_solves_each_row_and_column() -> None:
    matrix = choosy(40, 10)
    x = mark(matrix)
    model = WeightedALS.fit(matrix, penalty=0.02)
    entries = EntryStore.of(matrix)
    latents = model.encode_rows(entries.row_entries(np.arange(40)))
    v = model.columns.astype(np.float64)
    for row in (0, 7):
        own = v[x[row] > 0]
        ridge = 0.02 * (len(own) + 0.3 * 10) * np.eye(v.shape[1])
        solved = np.linalg.solve(own.T @ own + 0.3 * v.T @ v + ridge, own.sum(axis=0))
        np.testing.assert_allclose(latents[row], solved, rtol=1e-3, atol=1e-4)
        effects = model.find_effects(entries.row_entries(np.array([row])), 5)
        np.testing.assert_allclose(effects.sum(), solved @ v[5], atol=1e-4)
    scores = model.score_block(latents, slice(0, 10))
    assert scores[x > 0].mean() > 2 * scores[x == 0].mean()
    # A column with the rows of a trained one gets about its latents.
    fans = np.flatnonzero(x[:, 4])
    new = ObservedMatrix.from_entries(fans, [99] * fans.size, [3] * fans.size, matrix.scale)
    more = model.extend(entries.extend(new).entries, np.array([10]))
    np.testing.assert_allclose(more.columns[10], model.columns[4], atol=0.05)
    assert more.without_columns(np.array([10])).columns.shape == model.columns.shape


def test_rows_with_few_entries_solve_the_same_equations() -> None:
    counts = np.random.default_rng(0).poisson(0.15, (60, 50))
    rows, columns = np.nonzero(counts)
    matrix = ObservedMatrix.from_interactions(rows, columns, counts[rows, columns], column_labels=range(50))
    model = WeightedALS.fit(matrix, 0.05, 2.0)
    entries = EntryStore.of(matrix).row_entries(np.arange(matrix.shape[0]))
    latents, v = model.encode_rows(entries), model.columns.astype(np.float64)
    short = np.flatnonzero(np.diff(entries.starts) <= v.shape[1] / 4)
    assert short.size > 40 and np.bincount(np.diff(entries.starts)).max() > 16
    for row in short:
        own = entries.take(np.array([row]))
        weighted = v[own.others] * (1 + 2.0 * np.log(own.values))[:, None]
        ridge = 0.05 * (own.others.size + 0.3 * 50) * np.eye(v.shape[1])
        solved = np.linalg.solve(weighted.T @ v[own.others] + 0.3 * v.T @ v + ridge, weighted.sum(axis=0))
        np.testing.assert_allclose(latents[row], solved, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_fit_is_that_of_sweeps_in_double_precision(is_weighted: bool) -> None:
    """Short and long rows, rows and columns without entries, and weights of entries."""
    generator = np.random.default_rng(3)
    lengths = np.concatenate([[0, 1, 2], generator.integers(1, 90, 97)])
    rows = np.repeat(np.arange(100), lengths)
    columns = np.concatenate([generator.choice(99, n, replace=False) for n in lengths])
    weights = generator.uniform(0.5, 2.0, rows.size) if is_weighted else None
    matrix = ObservedMatrix.from_interactions(
        rows, columns, row_labels=range(100), column_labels=range(100), weights=weights
    )
    model = WeightedALS.fit(matrix, 0.05)
    w = np.zeros((100, 100))
    w[rows, columns] = 1.0 if weights is None else weights
    size = model.columns.shape[1]
    u, v = np.empty((100, size)), np.random.default_rng(0).standard_normal((100, size), dtype=np.float32) * 0.1
    v = (v / np.sqrt(size)).astype(np.float64)

    def solve(weights: np.ndarray, others: np.ndarray) -> np.ndarray:
        ridge = 0.05 * (weights.sum() + 0.3 * 100) * np.eye(size)
        return np.linalg.solve(
            others.T @ (weights[:, None] * others) + 0.3 * others.T @ others + ridge, others.T @ weights
        )

    for _ in range(8):
        u = np.stack([solve(each, v) for each in w])
        v = np.stack([solve(each, u) for each in w.T])
    np.testing.assert_allclose(model.columns @ model.columns.T, v @ v.T, atol=2e-3)
    assert np.all(model.columns[99] == 0)


def test_counts_weigh_entries() -> None:
    counts = np.array([[8.0, 1, 0, 0], [4, 2, 1, 0], [0, 1, 3, 9], [1, 0, 7, 2], [5, 1, 0, 0]])
    rows, columns = np.nonzero(counts)
    matrix = ObservedMatrix.from_interactions(rows, columns, counts[rows, columns].astype(int))
    weights = np.where(counts > 0, 1 + 2.0 * np.log(np.maximum(counts, 1)), 0.0)
    d = weigh(counts > 0)
    entries = EntryStore.of(matrix).row_entries(np.arange(5))
    ease = Ease.fit(matrix, 1.5, 2.0)
    scores = ease.score_block(ease.encode_rows(entries), slice(0, 4))
    others = weights[:, 1:]
    solved = np.linalg.solve(others.T @ d @ others + 1.5 * np.eye(3), others.T @ d @ weights[:, 0])
    np.testing.assert_allclose(scores[:, 0], others @ solved, atol=5e-3)
    als = WeightedALS.fit(matrix, 0.1, 2.0)
    v = als.columns.astype(np.float64)
    ridge = 0.1 * (2 + 0.3 * 4) * np.eye(v.shape[1])  # of the first row, which has two entries in four columns
    equations = v.T @ np.diag(weights[0]) @ v + 0.3 * v.T @ v + ridge
    np.testing.assert_allclose(als.encode_rows(entries)[0], np.linalg.solve(equations, v.T @ weights[0]), rtol=1e-3)
    for model in (ease, als):
        effects = model.find_effects(entries.take(np.array([1])), 3)
        score = model.score_block(model.encode_rows(entries), slice(0, 4))[1, 3]
        np.testing.assert_allclose(effects.sum(), score, atol=1e-4)


@pytest.mark.parametrize("kind", ["ease", "weighted-als"])
def test_effects_of_entries_add_up_to_the_score(kind: str) -> None:
    matrix = choosy()
    new = ObservedMatrix.from_entries([0, 2, 4, 6], [99] * 4, [4] * 4, matrix.scale)
    model = Means(presence=kind).fit(matrix).extend(new)
    presence = model.make_ranker("relevance").relevance
    assert presence is not None and presence.presence.kind == kind
    entries = model.entries_.row_entries(np.array([5]))
    ease = presence.presence.model
    scores = ease.score_block(ease.encode_rows(entries), np.array([3, 12]))[0]
    for column, score in zip((3, 12), scores, strict=True):
        np.testing.assert_allclose(ease.find_effects(entries, column).sum(), score, atol=1e-4)


@pytest.mark.parametrize("score_power", [0.4, 1.0, 2.5])
def test_scores_of_probabilities_are_their_inverse(score_power: float) -> None:
    presence = Presence(Ease.fit(choosy(), penalty=7.0), intercept=-1.5, score_power=score_power)
    scores = np.array([-0.3, -0.01, -0.004, 0.0, 0.002, 0.01, 0.5, 3.0])
    np.testing.assert_allclose(presence.score_of(presence.log_probabilities(scores)), scores, rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_probabilities_are_calibrated_on_a_sample_of_rows() -> None:
    taken = np.argwhere(np.random.default_rng(0).random((2000, 300)) < 0.05)  # more cells than are sampled
    model = Means(presence="ease").fit(ObservedMatrix.from_interactions(*taken.T))
    relevance = model.make_ranker().relevance
    assert relevance is not None
    found = relevance.read_presence(np.arange(200), np.tile(np.arange(300), (200, 1)))
    assert found.mean() == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_too_few_entries_to_choose_on_mean_popularity(share: float) -> None:
    matrix = generate(12, 10, density=share, seed=0).matrix
    split = split_entries(matrix, train=0.8, validation=0.0, test=0.2, seed=0)
    found = evaluate_ranking(Means(presence="ease").fit(split.train), split.test, rank_by="relevance", relevant=1, n=3)
    assert (found.model.ndcg, found.model.novelty) == (found.popularity.ndcg, found.popularity.novelty)


@pytest.mark.parametrize("kind", ["ease", "weighted-als"])
def test_a_file_keeps_every_bit_and_lies_are_refused(kind: str, tmp_path: Path) -> None:
    matrix = choosy()
    new = ObservedMatrix.from_entries([0, 2, 4], [99] * 3, [4] * 3, matrix.scale)
    model = Means(rank_by="relevance", presence=kind).fit(matrix).extend(new)
    for name in ("model.safetensors", "folder.model"):
        model.save(tmp_path / name)
        again = load(tmp_path / name)
        rows, columns = np.arange(N_ROWS), np.arange(N_COLUMNS + 1)
        keys = [each.make_ranker().rank_block(rows, columns) for each in (model, again)]
        np.testing.assert_array_equal(*keys)
    weights = {"presence.weights": np.zeros((3, 3), dtype=np.float16), "presence.diagonal": np.zeros(3)}
    with pytest.raises(BadModelFile, match="presence.weights"):
        Ease.unpack(weights, model.entries_, 1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_fits_the_same_models() -> None:
    matrix = generate(300, 200, density=0.1, named=False, seed=0).matrix
    entries = EntryStore.of(matrix).row_entries(np.arange(300))
    for model_class, penalty in ((Ease, 40.0), (WeightedALS, 0.01)):
        models = [model_class.fit(matrix, penalty, device=torch.device(name)) for name in ("cpu", "cuda")]
        scores = [model.score_block(model.encode_rows(entries), slice(0, 200)) for model in models]
        np.testing.assert_allclose(*scores, atol=2e-3)
        on_gpu = models[1].score_all(entries, np.arange(200), torch.device("cuda")).cpu().numpy()
        np.testing.assert_allclose(on_gpu, scores[1], atol=1e-4)
