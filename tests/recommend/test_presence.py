"""Presence: weights between columns against a plain restatement, new columns, and model files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.distributed as dist
from tests.rank_processes import run_together

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.errors import BadModelFile
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.recommend import column_gram
from deepmf.recommend.column_gram import Gram, Near, count_near
from deepmf.recommend.column_ridge import ColumnRidge, Ridge, scale_rows_by_length
from deepmf.recommend.presence import Presence
from deepmf.recommend.presence_fit import fit_again
from deepmf.recommend.request import Request

N_ROWS, N_COLUMNS = 60, 12


def choosy(n_rows: int = N_ROWS, n_columns: int = N_COLUMNS, *, seed: int = 0) -> ObservedMatrix:
    """Even rows take even columns, odd rows odd ones, with few exceptions; every column is liked as
    much."""
    generator = np.random.default_rng(seed)
    alike = (np.arange(n_rows)[:, None] - np.arange(n_columns)) % 2 == 0
    taken = generator.random(alike.shape) < np.where(alike, 0.5, 0.03)
    values = generator.integers(1, 6, alike.shape)
    return ObservedMatrix.from_array(np.where(taken, values, np.nan))


def mark(matrix: ObservedMatrix) -> np.ndarray:
    return (~np.isnan(matrix.to_array())).astype(np.float64)


def weigh(x: np.ndarray) -> np.ndarray:
    """Return the weights of rows: the mean number of entries by that of the row, to the power of
    0.3."""
    counts = np.maximum(x.sum(axis=1), 1)
    return np.diag((counts.mean() / counts) ** 0.3)


def fit(
    matrix: ObservedMatrix, ridge: Ridge, kind: str = "full", count_weight: float = 0.0
) -> ColumnRidge:
    return Gram.of(matrix, kind, count_weight).fit([ridge])[0]


@pytest.mark.parametrize("kind", ["full", "nearest"])
def test_each_column_is_regressed_on_others(kind: str) -> None:
    matrix, ridge = choosy(), Ridge(7.0, 0.4)
    x = mark(matrix)
    gram = x.T @ weigh(x) @ x
    model = fit(matrix, ridge, kind)
    scores = model.score(EntryStore.of(matrix).row_entries(np.arange(5)))
    for column in range(N_COLUMNS):
        others = np.delete(np.arange(N_COLUMNS), column)
        # all that have a row in common
        others = others[gram[others, column] > 0] if kind == "nearest" else others
        equations = gram[np.ix_(others, others)] + np.diag(7.0 + 0.4 * gram[others, others])
        weights = np.linalg.solve(equations, gram[others, column])
        np.testing.assert_allclose(scores[:, column], x[:5, others] @ weights, atol=2e-3)
    dense = model.weights if kind == "full" else model.weights.toarray()
    np.testing.assert_array_equal(np.diag(dense), 0.0)


def test_a_filter_that_passes_leading_directions_has_a_share_in_the_weights() -> None:
    matrix = choosy()
    x = mark(matrix)
    gram = x.T @ np.diag(x.sum(axis=1).mean() / np.maximum(x.sum(axis=1), 1)) @ x
    roots = np.sqrt(np.diag(gram))
    leading = np.linalg.eigh(gram / roots / roots[:, None])[1][:, -2:]
    usual = np.sum(roots**4) / np.sum(roots**2)
    passed = (leading @ leading.T) / roots[:, None] * roots * (usual / roots**2) ** 0.2
    np.fill_diagonal(passed, 0.0)
    ridge = fit(matrix, Ridge(7.0, 0.4))
    blend = fit_again(replace(ridge, ridge=Ridge(7.0, 0.4, low_pass=0.25)), matrix, None)
    np.testing.assert_allclose(blend.weights, 0.75 * ridge.weights + 0.25 * passed, atol=2e-3)
    assert np.abs(passed - ridge.weights).max() > 0.1
    assert blend.ridge.low_pass == 0.25


@pytest.mark.parametrize(
    ("n_rows", "density", "most_dense"), [(400, 0.05, 0), (150, 0.1, 0), (400, 0.05, 300)]
)
def test_columns_are_regressed_on_the_nearest_alone(
    n_rows: int, density: float, most_dense: int
) -> None:
    """Wide catalogues: the nearest columns by the cosine, each problem on its own; many entries in
    a column or few."""
    matrix = generate(n_rows, 300, density=density, named=False, seed=0).matrix
    x = mark(matrix)
    gram, ridge = x.T @ weigh(x) @ x, Ridge(5.0, 1.0)
    sizes = np.diag(gram)
    model = Gram.of(matrix, "nearest", most_near=80, most_dense=most_dense).fit([ridge])[0]
    weights = model.weights.toarray()
    assert np.count_nonzero(weights, axis=0).max() == 80
    for column in np.flatnonzero(x.sum(axis=0) >= 20)[[0, 7, -1]]:
        cosines = gram[:, column] / np.sqrt(np.maximum(sizes, 1e-12))
        cosines[column] = -1
        near = np.argsort(-cosines, kind="stable")[:80]
        near = near[cosines[near] > 0]
        equations = gram[np.ix_(near, near)] + np.diag(5.0 + sizes[near])
        np.testing.assert_allclose(
            weights[near, column], np.linalg.solve(equations, gram[near, column]), atol=1e-3
        )


def test_columns_with_few_entries_are_regressed_on_few_others() -> None:
    assert count_near(np.array([0, 1, 20, 100]), 200).tolist() == [50, 50, 80, 200]
    assert count_near(np.array([0, 100]), 30).tolist() == [30, 30]
    matrix = generate(150, 300, density=0.05, named=False, seed=0).matrix
    weights = Gram.of(matrix, "nearest", most_near=200).fit([Ridge(5.0, 1.0)])[0].weights
    n_others = np.count_nonzero(weights.toarray(), axis=0)
    assert np.all(n_others <= np.maximum(4 * matrix.column_counts, 50)) and n_others.max() > 50


def test_some_targets_have_the_weights_they_have_among_all() -> None:
    matrix = generate(200, 100, density=0.1, named=False, seed=0).matrix
    gram, targets = Gram.of(matrix, "nearest", most_near=30), np.array([3, 50, 99])
    (whole,), (some,) = gram.fit([Ridge(9.0, 1.0)]), gram.fit([Ridge(9.0, 1.0)], targets)
    np.testing.assert_array_equal(
        some.weights[:, targets].toarray(), whole.weights[:, targets].toarray()
    )
    assert some.weights.nnz < whole.weights.nnz / 10


def test_a_cell_that_is_kept_on_one_side_alone_is_read_from_there() -> None:
    matrix = generate(150, 40, density=0.2, named=False, seed=0).matrix
    x = mark(matrix)
    cells = (x.T @ x).astype(np.float32)
    places = np.array([np.delete(np.arange(40), column) for column in range(40)], dtype=np.int32)
    near = Near(places, np.take_along_axis(cells.T, places, axis=1))
    whole, upper, lower = (
        Gram(scipy.sparse.csr_array(kept), np.diag(cells).copy(), near)
        .fit([Ridge(5.0, 0.5)])[0]
        .weights.toarray()
        for kept in (cells, np.triu(cells), np.tril(cells))  # each cell off the diagonal once
    )
    np.testing.assert_array_equal(upper, whole)
    np.testing.assert_array_equal(lower, whole)
    equations = np.delete(np.delete(cells, 7, 0), 7, 1)
    equations += np.diag(5.0 + 0.5 * np.diag(equations))
    np.testing.assert_allclose(
        whole[places[7], 7], np.linalg.solve(equations, near.cells[7]), atol=2e-3
    )


def test_columns_are_regressed_one_by_one_where_pruned_cells_contradict_each_other() -> None:
    """Columns 1 and 2 are alike, 0 and 1 too, but 0 and 2 were pruned: no rows have such cells."""
    cells = np.array([[9, 8, 0, 1], [8, 9, 8, 4], [0, 8, 9, 2], [1, 4, 2, 9]], dtype=np.float32)
    near = Near(np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]], dtype=np.int32), np.empty(0))
    near = near._replace(cells=np.take_along_axis(cells.T, near.places, axis=1))
    gram = Gram(scipy.sparse.csr_array(cells), np.diag(cells).copy(), near)
    weights = gram.fit([Ridge(1.0, 0.1)])[0].weights.toarray()
    # of column 3 on the other three: each cell by its own size
    np.testing.assert_allclose(weights[:3, 3], cells[:3, 3] / (9 * 1.1 + 1.0), atol=1e-3)
    equations = cells[np.ix_([1, 2, 3], [1, 2, 3])] + np.diag([1.9] * 3)
    expected = np.linalg.solve(equations, cells[[1, 2, 3], 0])
    np.testing.assert_allclose(weights[1:, 0], expected, atol=2e-3)


def fit_on_ranks(folder: Path) -> None:
    """Leave the weights of each rank behind: of more columns than are multiplied at a time."""
    found = Gram.of(choosy(100, 1200), "nearest", most_near=30, most_dense=0).fit(
        [Ridge(7.0, 0.4), Ridge(2.0, 0.4)]
    )
    torch.save(
        [torch.from_numpy(model.weights.toarray()) for model in found],
        folder / f"weights-{dist.get_rank()}.pt",
    )


@pytest.mark.slow
def test_ranks_divide_the_columns_and_have_the_same_weights(tmp_path: Path) -> None:
    found = Gram.of(choosy(100, 1200), "nearest", most_near=30, most_dense=0).fit(
        [Ridge(7.0, 0.4), Ridge(2.0, 0.4)]
    )
    run_together(2, "tests.recommend.test_presence:fit_on_ranks", tmp_path)
    for rank in range(2):
        for model, weights in zip(found, torch.load(tmp_path / f"weights-{rank}.pt"), strict=True):
            np.testing.assert_array_equal(model.weights.toarray(), weights.numpy())


@pytest.mark.parametrize("kind", ["full", "nearest"])
def test_a_new_column_is_regressed_on_the_trained_ones(kind: str) -> None:
    matrix = choosy()
    x = mark(matrix)
    gram, d = x.T @ weigh(x) @ x, weigh(x)
    fans = np.arange(0, 40, 2)
    new = ObservedMatrix.from_entries(fans, [99] * fans.size, [4] * fans.size, matrix.scale)
    model = Means(rank_by="relevance", presence=kind).fit(matrix)
    more = model.extend(new)
    presence = more.make_ranker(Request(rank_by="relevance")).relevance
    assert (
        presence is not None
        and model.make_ranker(Request(rank_by="relevance")).relevance is not None
    )
    ridge_model = presence.presence.model
    target = np.zeros(N_ROWS)
    target[fans] = 1.0
    together = x.T @ d @ target
    near = np.flatnonzero(together)
    own, ridge = gram[np.ix_(near, near)], ridge_model.ridge
    weights = np.linalg.solve(
        own + np.diag(ridge.penalty + ridge.noise * np.diag(own)), together[near]
    )
    scores = ridge_model.score(more.entries_.row_entries(np.arange(6)))[:, 12]
    np.testing.assert_allclose(scores, x[:6, near] @ weights, atol=2e-3)
    assert scores[::2].mean() > scores[1::2].mean()
    left = more.forget(columns=[99])
    assert left.recommend(0, n=50).labels.tolist() == model.recommend(0, n=50).labels.tolist()


@pytest.mark.parametrize("kind", ["full", "nearest"])
@pytest.mark.parametrize("in_turn", [False, True])
def test_what_new_rows_take_counts_for_new_columns_and_these_for_trained_ones(
    kind: str, in_turn: bool
) -> None:
    """New rows take even columns and a new one, which no trained row takes: it goes with even
    columns, both ways."""
    matrix, fans = choosy(), np.repeat(np.arange(100, 120), 4)
    taken, values = np.tile([0, 2, 4, 99], 20), np.full(80, 4)
    parts = [taken == 99, taken != 99] if in_turn else [np.ones(80, dtype=bool)]
    model = Means(rank_by="relevance", presence=kind).fit(matrix)
    more = model
    for part in parts:
        more = more.extend(
            ObservedMatrix.from_entries(fans[part], taken[part], values[part], matrix.scale)
        )
    presence = more.make_ranker(Request(rank_by="relevance")).relevance.presence.model  # type: ignore[union-attr]
    of_new = presence.score(more.entries_.row_entries(np.arange(N_ROWS)))[:, 12]
    assert of_new[::2].mean() > of_new[1::2].mean() + 0.01
    # how much likelier an even column is than an odd one, whatever all columns add up to
    odds = []
    for taken_columns in ([1, 99], [1]):
        history = [4] * len(taken_columns)
        best = more.fold_in(taken_columns, history).recommend(12, exclude=[99])
        even, odd = (best.presence[list(best.labels).index(column)] for column in (2, 5))
        odds.append(even / odd)
    assert odds[0] > odds[1]
    assert list(more.forget(columns=[99]).recommend(0, n=50).labels) == list(
        model.extend(
            ObservedMatrix.from_entries(
                fans[taken != 99], taken[taken != 99], values[taken != 99], matrix.scale
            )
        )
        .recommend(0, n=50)
        .labels
    )


def test_a_forgotten_new_column_leaves_the_other_as_if_it_had_never_come() -> None:
    matrix = choosy()
    model = Means(rank_by="relevance", presence="full").fit(matrix)
    rows, columns = np.arange(8), np.array([98, 99] * 4)
    more = model.extend(ObservedMatrix.from_entries(rows, columns, [4] * 8, matrix.scale))
    for kept in (98, 99):
        is_kept = columns == kept
        alone = model.extend(
            ObservedMatrix.from_entries(rows[is_kept], columns[is_kept], [4] * 4, matrix.scale)
        )
        left = more.forget(columns=[98 + 99 - kept])
        best, expected = (each.recommend(20, n=50) for each in (left, alone))
        assert best.labels.tolist() == expected.labels.tolist()
        np.testing.assert_allclose(best.presence, expected.presence, rtol=1e-5)


def test_a_new_column_is_regressed_on_the_hundred_nearest_by_the_cosine() -> None:
    matrix = generate(80, 150, density=0.4, named=False, seed=0).matrix
    x, takers = mark(matrix), np.arange(40)
    sums = np.diag(weigh(x))[takers] @ x[takers]
    cosines = sums / np.sqrt(np.diag(x.T @ weigh(x) @ x))
    arrivals = ObservedMatrix.from_entries(takers, [999] * 40, [3] * 40, matrix.scale)
    entries = Means(presence="full").fit(matrix).extend(arrivals).entries_
    added = fit(matrix, Ridge(5.0, 0.5)).extend(entries, np.array([150])).complete_model.added
    assert sorted(added.indices) == sorted(np.argsort(-cosines)[:100])


def test_dense_weights_of_some_columns_are_in_the_order_of_rows() -> None:
    # Products with entries read the weights of an entry's column: in the order of columns they take
    # fifty times as long.
    model = fit(choosy(), Ridge(7.0, 0.4))
    weights = model.take_weights(np.array([2, 5, 7]))
    assert isinstance(weights, np.ndarray) and weights.flags.c_contiguous
    np.testing.assert_array_equal(weights, np.asarray(model.weights)[:, [2, 5, 7]])


def test_rows_are_as_long_as_their_weights_are_alike() -> None:
    weights = np.array([1, 1, 1, 1, 4, 1, 1], dtype=np.float32)
    scales = []
    for unit in (1.0, 7.0, 1e-6):
        train = ObservedMatrix.from_entries(
            [0, 0, 0, 0, 1, 1, 2], [0, 1, 2, 3, 0, 1, 0], np.arange(1, 8), weights=unit * weights
        )
        scales.append(scale_rows_by_length(train, 0.3))
    lengths = np.array([4, 5**2 / 17, 1])  # (sum of w)^2 / sum of w^2
    for scale in scales:  # whatever the unit of weights
        np.testing.assert_allclose(scale, (lengths.mean() / lengths) ** 0.3, rtol=1e-5)


def test_counts_weigh_entries() -> None:
    counts = np.array([[8.0, 1, 0, 0], [4, 2, 1, 0], [0, 1, 3, 9], [1, 0, 7, 2], [5, 1, 0, 0]])
    rows, columns = np.nonzero(counts)
    matrix = ObservedMatrix.from_interactions(rows, columns, counts[rows, columns].astype(int))
    weights = np.where(counts > 0, 1 + 2.0 * np.log(np.maximum(counts, 1)), 0.0)
    d = weigh(counts > 0)
    entries = EntryStore.of(matrix).row_entries(np.arange(5))
    for kind in ("full", "nearest"):
        model = fit(matrix, Ridge(1.5, 0.0), kind, count_weight=2.0)
        scores = model.score(entries)
        others = weights[:, 1:]
        solved = np.linalg.solve(
            others.T @ d @ others + 1.5 * np.eye(3), others.T @ d @ weights[:, 0]
        )
        np.testing.assert_allclose(scores[:, 0], others @ solved, atol=5e-3)
        effects = model.find_effects(entries.take(np.array([1])), 3)
        np.testing.assert_allclose(effects.sum(), scores[1, 3], atol=1e-4)


def test_a_new_column_is_described_by_the_counts_of_trained_and_new_rows() -> None:
    rng, ridge = np.random.default_rng(0), Ridge(1.5, 0.3)
    counts = rng.integers(1, 9, (30, 6)) * (rng.random((30, 6)) < 0.5)
    counts[:, 0] = 1  # no row is empty
    trained = ObservedMatrix.from_interactions(*np.nonzero(counts), counts[counts > 0])
    later = rng.integers(1, 9, (12, 7)) * (rng.random((12, 7)) < 0.6)
    later[:, 0], later[:, 6] = 2, np.arange(1, 13)  # all have the new column
    rows, columns = np.nonzero(later)
    arrivals = ObservedMatrix.from_interactions(
        [*(rows + 30), 3, 4, 5], [*columns, 6, 6, 6], [*later[later > 0], 5, 1, 2]
    )
    entries = Means(presence="full").fit(trained).extend(arrivals).entries_
    model = fit(trained, ridge, count_weight=2.0).extend(entries, np.array([6])).complete_model

    together = np.vstack([np.pad(counts, ((0, 0), (0, 1))), later])
    together[3:6, 6] = 5, 1, 2
    numbers = np.where(together > 0, 1 + 2 * np.log(np.maximum(together, 1)), 0.0)
    lengths = np.count_nonzero(together[:, :6], axis=1)
    scales = (lengths[:30].mean() / lengths) ** 0.3
    gram = numbers[:30, :6].T @ (scales[:30, None] * numbers[:30, :6])
    sums, size = numbers.T @ (scales * numbers[:, 6]), scales @ numbers[:, 6] ** 2
    weights = np.linalg.solve(gram + np.diag(1.5 + 0.3 * np.diag(gram)), sums[:6])
    np.testing.assert_allclose(model.added.toarray()[:, 0], weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.added_sizes, size, rtol=1e-5)

    # of two new columns, the first changes again
    both = ObservedMatrix.from_interactions([3, 4, 5, 6], [6, 7, 7, 7])
    entries_of_both = Means(presence="full").fit(trained).extend(both).entries_
    settled = fit(trained, ridge).extend(entries_of_both, np.array([6, 7])).complete_model
    again = settled.extend(entries_of_both, np.array([6])).complete_model
    np.testing.assert_array_equal(again.added_sizes, settled.added_sizes)
    np.testing.assert_array_equal(again.added.toarray(), settled.added.toarray())
    assert settled.added_sizes[0] < settled.added_sizes[1]

    # an entry in it is read as what its regression adds to the trained columns
    said = model.translate(entries.seen_columns(np.array([4])))
    read = np.zeros(6)
    roots = np.sqrt(said.extras.fill_weights(said.others.size))
    np.add.at(read, said.others[said.values == 1], roots[said.values == 1])
    penalised = 1.5 + 1.3 * np.diag(gram)
    implied = np.maximum(weights * penalised / (1.5 + 1.3 * size), 0.0)
    observed = (counts[4] == 1) * 1.0
    np.testing.assert_allclose(read, implied + observed, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["full", "nearest"])
def test_effects_of_entries_add_up_to_the_score(kind: str) -> None:
    matrix = choosy()
    new = ObservedMatrix.from_entries([0, 2, 4, 6], [99] * 4, [4] * 4, matrix.scale)
    model = Means(presence=kind).fit(matrix).extend(new)
    presence = model.make_ranker(Request(rank_by="relevance")).relevance
    assert presence is not None and presence.presence.model.kind == kind
    entries = model.entries_.row_entries(np.array([5]))
    ease = presence.presence.model
    scores = ease.score(entries)[0, [3, 12]]
    for column, score in zip((3, 12), scores, strict=True):
        np.testing.assert_allclose(ease.find_effects(entries, column).sum(), score, atol=1e-4)


@pytest.mark.parametrize("score_power", [0.4, 1.0, 2.5])
def test_scores_of_probabilities_are_their_inverse(score_power: float) -> None:
    presence = Presence(fit(choosy(), Ridge(7.0, 0.0)), intercept=-1.5, score_power=score_power)
    scores = np.array([-0.3, -0.01, -0.004, 0.0, 0.002, 0.01, 0.5, 3.0])
    np.testing.assert_allclose(
        presence.score_of(presence.log_probabilities(scores, 0.7), 0.7),
        scores,
        rtol=1e-5,
        atol=1e-9,
    )


@pytest.mark.slow
def test_probabilities_are_calibrated_on_a_sample_of_rows() -> None:
    # more cells than are sampled
    is_taken = np.random.default_rng(0).random((2000, 300)) < 0.05
    model = Means(presence="full").fit(ObservedMatrix.from_interactions(*np.argwhere(is_taken).T))
    relevance = model.make_ranker().relevance
    assert relevance is not None
    found = relevance.read_presence(np.arange(200), np.tile(np.arange(300), (200, 1)))
    lengths = is_taken.sum(axis=1)
    further = [(lengths[lengths >= length] - length).mean() for length in lengths[:200]]
    found[is_taken[:200]] = 0.0
    assert found.sum(axis=1).mean() == pytest.approx(np.mean(further), rel=0.15)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_too_few_entries_to_choose_on_mean_popularity(share: float) -> None:
    matrix = generate(12, 10, density=share, seed=0).matrix
    split = split_entries(matrix, train=0.8, validation=0.0, test=0.2, seed=0)
    found = evaluate_ranking(
        Means(presence="full").fit(split.train), split.test, rank_by="relevance", relevant=1, n=3
    )
    assert (found.model.ndcg, found.model.novelty) == (
        found.popularity.ndcg,
        found.popularity.novelty,
    )


def rank_in_turn(
    kind: str, n_rows: int, n_columns: int, popularity: float, seed: int
) -> tuple[float, float, float]:
    """Return the NDCG of rankings by relevance, by popularity and by presence alone."""
    matrix = generate(
        n_rows, n_columns, n_entries=9000, popularity=popularity, named=False, seed=seed
    ).matrix
    split = split_entries(matrix, train=0.8, validation=0.0, test=0.2, seed=seed)
    rows, columns, values = split.test.entries()
    liked = ObservedMatrix.from_interactions(rows[values >= 4], columns[values >= 4])
    labels = {"row_labels": matrix.row_labels, "column_labels": matrix.column_labels}
    taken = ObservedMatrix.from_interactions(*split.train.entries()[:2], **labels)
    found = evaluate_ranking(
        Means(presence=kind).fit(split.train), split.test, relevant=4, rank_by="relevance"
    )
    presence = evaluate_ranking(Means(presence=kind).fit(taken), liked)
    return found.model.ndcg, found.popularity.ndcg, presence.model.ndcg


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "nearest"])
@pytest.mark.parametrize(("n_rows", "n_columns", "popularity"), [(400, 150, 0.5), (300, 900, 1.2)])
def test_relevance_is_never_below_popularity_or_presence(
    kind: str, n_rows: int, n_columns: int, popularity: float
) -> None:
    by_relevance, by_popularity, by_presence = np.mean(
        [rank_in_turn(kind, n_rows, n_columns, popularity, seed) for seed in range(3)], axis=0
    )
    assert by_relevance > 0.97 * max(by_popularity, by_presence)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "nearest"])
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
    tensors = model.rankers_.presence.model.pack()  # type: ignore[union-attr]
    lies = {
        "presence.sizes": np.zeros(3, dtype=np.float32),
        "presence.weights": np.zeros((3, 3), dtype=np.float16),
    }
    if kind == "nearest":
        lies |= {
            "presence.starts": tensors["presence.starts"][::-1].copy(),
            "presence.columns": -tensors["presence.columns"] - 1,
        }
    for name, lie in lies.items():
        with pytest.raises(BadModelFile, match=name):
            ColumnRidge.unpack(tensors | {name: lie}, matrix.shape[1], Ridge(1.0, 0.0))


def test_tensors_give_no_column_a_weight_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = Gram.of(choosy(), "full")
    expected = gram.fit([Ridge(7.0, 0.4)])[0].weights
    monkeypatch.setattr(column_gram, "_is_on_gpu", torch.is_tensor)
    # the inverse of a tensor is stored by columns
    on_device = gram._replace(cells=torch.from_numpy(gram.cells))
    weights = on_device.fit([Ridge(7.0, 0.4)])[0].weights
    np.testing.assert_allclose(weights, expected, atol=1e-3)
    assert not np.diagonal(weights).any()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_fits_the_same_models() -> None:
    matrix = generate(300, 200, density=0.1, named=False, seed=0).matrix
    entries = EntryStore.of(matrix).row_entries(np.arange(300))
    for kind in ("full", "nearest"):
        models = [
            Gram.of(matrix, kind, gpu=None if name == "cpu" else torch.device(name)).fit(
                [Ridge(40.0, 1.0)]
            )[0]
            for name in ("cpu", "cuda")
        ]
        scores = [model.score(entries) for model in models]
        np.testing.assert_allclose(*scores, atol=2e-3)
        on_gpu = models[1].send(np.arange(200), torch.device("cuda"))(entries).cpu().numpy()
        np.testing.assert_allclose(on_gpu, scores[1], atol=1e-4)


@pytest.mark.parametrize("has_values", [True, False])
def test_popularity_is_scaled_in_the_order_alone(has_values: bool) -> None:
    matrix = generate(200, 60, density=0.15, popularity=1.0, named=False, seed=0).matrix
    if not has_values:
        matrix = ObservedMatrix.from_interactions(*matrix.entries()[:2])
    model = Means(rank_by="relevance").fit(matrix)
    rows, columns = np.arange(200), slice(0, 60)
    relevance = {
        amount: model.make_ranker(Request(popularity=amount)).relevance
        for amount in (0.0, 0.5, 1.0)
    }
    share = (np.bincount(matrix.by_row.columns, minlength=60) + 0.5) / 201
    presence = model.rankers_.presence
    assert presence is not None
    raw = relevance[1.0].encode_rows(rows).presence  # type: ignore[union-attr]
    for amount, found in relevance.items():
        blended = raw + amount * presence.popularity_share * share
        expected = blended * (share / 0.01) ** (amount * presence.popularity_power + amount - 1)
        np.testing.assert_allclose(found.score_block(rows, columns), expected, rtol=2e-4, atol=1e-6)  # type: ignore[union-attr]
    labels = matrix.row_labels
    lists = [model.recommend(labels, 10, popularity=amount) for amount in (0, 0.5, 1, 2)]
    means = [share[model.entries_.columns.positions(best.labels.ravel())].mean() for best in lists]
    assert means == sorted(means) and means[0] < 0.7 * means[2]
    every = model.recommend(labels[0], 60)
    learned = dict(zip(every.labels.tolist(), every.presence.tolist(), strict=True))  # type: ignore[union-attr]
    for best in (
        model.recommend(labels[0], 5, popularity=0),
        model.recommend(labels[0], 5, popularity=0, device="cpu"),
    ):
        assert best.labels.tolist() == lists[0].labels[0, :5].tolist()
        np.testing.assert_allclose(
            best.presence, [learned[label] for label in best.labels.tolist()], rtol=1e-5
        )  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # some columns have no training entry
def test_all_columns_of_a_wide_catalogue_are_scored_if_validation_entries_choose() -> None:
    rng = np.random.default_rng(0)
    train, validation = np.split(np.argsort(rng.random((300, 2200)), axis=1)[:, :100], [30], axis=1)
    parts = (
        ObservedMatrix.from_interactions(np.repeat(np.arange(300), own.shape[1]), own.ravel())
        for own in (train, validation)
    )
    model = Means(presence="nearest").fit(*parts)
    presence = model.rankers_.presence
    assert presence is not None and isinstance(presence.model.weights, scipy.sparse.csr_array)
    has_weights = (
        np.bincount(presence.model.weights.indices, minlength=presence.model.n_trained) > 0
    )
    assert has_weights.mean() > 0.95
