"""What comes next: sums over the beginnings of rows, and rankings that follow the order of
entries."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tests.rank_processes import run_together

from deepmf import ALS, ObservedMatrix, load, split_entries, split_last
from deepmf.errors import BadSetting
from deepmf.evaluation import evaluate_ranking
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.recommend.column_ridge import Ridge
from deepmf.recommend.next_gram import count_next
from deepmf.recommend.next_ridge import NextPart, NextRidge, list_decays
from deepmf.recommend.ranker import Rankers
from deepmf.recommend.request import Request
from deepmf.recommend.sequences import Decay, Histories, Sequences

N = 40
DECAYS = Decay(1.7, 3, 2, 1.3), Decay(0.5, 5, 1, 1.0)


def walk(rng: np.random.Generator, n_rows: int = 300) -> dict[str, list[str]]:
    """Return rows that go round a circle of columns one by one, and now and then jump."""
    rows = {}
    for row in range(n_rows):
        steps = np.where(rng.random(rng.integers(4, 9)) < 0.1, rng.integers(2, N - 1), 1)
        rows[f"row {row}"] = [
            f"column {at:02d}"
            for at in dict.fromkeys(((rng.integers(N) + np.cumsum(steps)) % N).tolist())
        ]
    return rows


@pytest.fixture(scope="module")
def model() -> Model:
    return ALS(seed=0).fit(ObservedMatrix.from_sequences(walk(np.random.default_rng(0))))


def name(*places: int) -> list[str]:
    return [f"column {at:02d}" for at in places]


@pytest.mark.parametrize("kind", ["full", "nearest"])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_solve_the_regression_of_what_follows_on_every_beginning(
    kind: str, weighted: bool
) -> None:
    rng, decay = np.random.default_rng(0), Decay(1.7, 3, 2, 1.3)
    rows = [rng.permutation(6)[: rng.integers(1, 7)] for _ in range(30)]
    weights = [rng.uniform(0.5, 2, len(row)) if weighted else np.ones(len(row)) for row in rows]
    inputs, targets = [], []
    for row, own in zip(rows, weights, strict=True):
        for end in range(1, len(row)):
            before, after = np.zeros(6), np.zeros(6)
            for at in range(max(end - 3, 0), end):
                before[row[at]] = np.exp(-(end - 1 - at) / 1.7) * own[at] ** 0.5
            for at in range(end, min(end + 2, len(row))):
                after[row[at]] = np.exp(-(at - end) / 1.3) * own[at] ** 0.5
            inputs.append(before)
            targets.append(after)
    s, t = np.array(inputs), np.array(targets)
    starts = np.cumsum([0, *map(len, rows)])
    roots = np.sqrt(np.concatenate(weights)).astype(np.float32) if weighted else None
    gram = count_next(Sequences(starts, np.concatenate(rows), roots), decay, 6, kind)
    ridge = Ridge(2.0, 0.5)
    (model,) = gram.fit([ridge])
    equations, expected = s.T @ s, np.zeros((6, 6))
    equations += np.diag(ridge.penalty + ridge.noise * np.diag(equations))
    for column, sums in enumerate((s.T @ t).T):
        used = np.flatnonzero((sums > 0) | (kind == "full"))  # the columns that precede it
        expected[used, column] = np.linalg.solve(equations[np.ix_(used, used)], sums[used])
    found = model.weights if isinstance(model.weights, np.ndarray) else model.weights.toarray()
    np.testing.assert_allclose(found, expected, atol=1e-3)


def fit_directed(decay: Decay) -> torch.Tensor:
    """Return the weights on nearest columns."""
    rows = Sequences.of(ObservedMatrix.from_sequences(walk(np.random.default_rng(0))))
    (model,) = count_next(rows, decay, N, "nearest").fit([Ridge(2.0, 0.5)])
    return torch.from_numpy(model.weights.toarray())


def fit_on_ranks(folder: Path) -> None:
    """Leave the weights of another decay behind on each rank."""
    torch.save(fit_directed(DECAYS[dist.get_rank()]), folder / f"weights-{dist.get_rank()}.pt")


@pytest.mark.slow
def test_ranks_fit_decays_in_any_order(tmp_path: Path) -> None:
    """Threads of a rank fit several at a time, so no two ranks fit them in the same order."""
    run_together(2, "tests.recommend.test_next_ridge:fit_on_ranks", tmp_path)
    for rank, decay in enumerate(DECAYS):
        assert torch.equal(torch.load(tmp_path / f"weights-{rank}.pt"), fit_directed(decay))


def test_order_is_learned_and_becomes_the_default(model: Model) -> None:
    assert model.chosen_["rank_by"] == "next" == model.rankers_.rank_by
    rows = walk(np.random.default_rng(1), 100)
    guests = model.fold_in_many([(row[:-1], []) for row in rows.values()], ordered=True)
    best = guests.recommend(1).labels[:, 0]
    is_next = best == [row[-1] for row in rows.values()]
    assert np.mean(is_next) > 0.7
    # the probabilities mean what they say
    assert guests.recommend(1).values.mean() == pytest.approx(np.mean(is_next), abs=0.12)
    ranking = guests.recommend(N)
    assert not np.any(np.diff(ranking.values) > 0)  # the probabilities that columns come next
    assert np.all(np.nansum(ranking.values, axis=1) <= 1 + 1e-6)


def test_a_history_backwards_has_another_list(model: Model) -> None:
    forth, back = (model.fold_in(each, ordered=True) for each in (name(3, 20), name(20, 3)))
    assert forth.recommend(1).labels.tolist() == name(21)
    assert back.recommend(1).labels.tolist() == name(4)
    dated = model.fold_in(name(20, 3), times=["2024-05-02", "2024-05-01"])
    assert dated.recommend(5).labels.tolist() == forth.recommend(5).labels.tolist()


def test_rows_without_an_order_are_ranked_by_relevance(model: Model) -> None:
    guest = model.fold_in(name(3, 20))
    assert (
        guest.recommend(5).labels.tolist()
        == guest.recommend(5, rank_by="relevance").labels.tolist()
    )
    with pytest.raises(BadSetting, match="order"):
        guest.recommend(rank_by="next")
    plain = ALS(seed=0).fit(ObservedMatrix.from_interactions(*np.array(list(pairs())).T))
    with pytest.raises(BadSetting, match="order"):
        plain.recommend("row 0", rank_by="next")


def pairs() -> list[tuple[str, str]]:
    return [
        (row, column)
        for row, columns in walk(np.random.default_rng(0), 30).items()
        for column in columns
    ]


def test_extended_forgotten_and_saved_rows_follow_their_last_entry(
    model: Model, tmp_path: Path
) -> None:
    first = model.extend(ObservedMatrix.from_sequences({"new": name(3, 4)}))
    more = first.extend(ObservedMatrix.from_sequences({"new": name(20)}))
    assert first.recommend("new", 1).labels.tolist() == name(5)
    assert more.recommend("new", 1).labels.tolist() == name(21)
    guest = model.fold_in(name(3, 4, 20), ordered=True)
    np.testing.assert_allclose(
        more.recommend("new", 5).values, guest.recommend(5).values, rtol=1e-5
    )
    back = more.forget(entries=(["new"], name(20)))
    np.testing.assert_array_equal(back.recommend("new", 5).values, first.recommend("new", 5).values)
    more.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(
        again.recommend(["new", "row 0"]).values, more.recommend(["new", "row 0"]).values
    )
    again_later = again.extend(ObservedMatrix.from_sequences({"new": name(10)}))
    assert again_later.recommend("new", 1).labels.tolist() == name(11)


def test_the_latest_entry_explains_what_comes_next(model: Model) -> None:
    found = model.fold_in(name(30, 3, 20), ordered=True).explain(name(21)[0])
    assert found.labels[0] == name(20)[0] == found.presence[0].label
    assert found.prediction == pytest.approx(
        model.fold_in(name(30, 3, 20), ordered=True).recommend(1).values[0]
    )


def test_observed_columns_can_come_again(model: Model) -> None:
    guest = model.fold_in(name(5, 30, 31, 4), ordered=True)
    assert guest.recommend(1, include_observed=True).labels.tolist() == name(5)
    assert name(5)[0] not in guest.recommend(N).labels[~np.isnan(guest.recommend(N).values)]


def test_rows_that_take_columns_again_are_recommended_known_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    favourites = {f"row {row}": rng.choice(N, 3, replace=False) for row in range(200)}
    plays = {row: name(*rng.choice(own, 9), *rng.choice(own, 1)) for row, own in favourites.items()}
    model = ALS(seed=0).fit(
        ObservedMatrix.from_sequences({row: own[:-1] for row, own in plays.items()})
    )
    best = model.recommend(list(plays), 3).labels
    assert (
        np.mean(
            [set(line) == set(own[:-1]) for line, own in zip(best, plays.values(), strict=True)]
        )
        > 0.7
    )
    assert not set(model.recommend("row 0", 3, include_observed=False).labels) & set(plays["row 0"])
    last = ObservedMatrix.from_sequences({row: own[-1:] for row, own in plays.items()})
    found = evaluate_ranking(model, last, n=3)
    assert found.n_rows == len(plays) and found.model.hit_rate > 0.9
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").recommend(list(plays), 3).labels, best)
    assert model.fold_in(name(3, 3, 4), ordered=True).explain(name(3)[0]).labels[0] == name(3)[0]


@pytest.mark.parametrize("is_random", [False, True])
def test_validation_entries_decide_the_default(is_random: bool) -> None:
    rng = np.random.default_rng(0)
    rows = walk(rng)
    held_out = {
        row: (rng.choice(columns) if is_random else columns[-1]) for row, columns in rows.items()
    }
    train = {
        row: [each for each in columns if each != held_out[row]] for row, columns in rows.items()
    }
    validation = ObservedMatrix.from_sequences({row: [column] for row, column in held_out.items()})
    model = ALS(seed=0).fit(ObservedMatrix.from_sequences(train), validation)
    assert model.chosen_["rank_by"] == ("relevance" if is_random else "next")
    found = evaluate_ranking(model, validation)
    assert found.rank_by == model.chosen_["rank_by"]


def date_entries(rows: dict[str, list[str]]) -> ObservedMatrix:
    """Return the same entries a day apart."""
    parts = [
        (row, column, 86400 * at) for row, own in rows.items() for at, column in enumerate(own)
    ]
    row_of, column_of, times = zip(*parts, strict=True)
    return ObservedMatrix.from_interactions(row_of, column_of, times=times)


@pytest.mark.parametrize("is_random", [False, True])
def test_entries_between_others_are_ranked_by_relevance_without_validation_entries(
    is_random: bool,
) -> None:
    matrix = date_entries(walk(np.random.default_rng(0)))
    parts = (
        split_entries(matrix, train=0.8, validation=0.0, test=0.2, seed=0)
        if is_random
        else split_last(matrix, n=1, validation=0)
    )
    model = ALS(seed=0).fit(parts.train)
    found = evaluate_ranking(model, parts.test)
    expected = evaluate_ranking(model, parts.test, rank_by="relevance" if is_random else "next")
    assert model.chosen_["rank_by"] == "next" and found.rank_by == expected.rank_by
    assert found.model.ndcg == expected.model.ndcg


def test_leave_one_out_strictly_and_fitted_again() -> None:
    matrix = ObservedMatrix.from_sequences(walk(np.random.default_rng(0)))
    parts, joined = (
        split_last(matrix, n=1, validation=1),
        split_last(matrix, n=1, validation=0).train,
    )
    chosen = ALS(seed=0).fit(parts.train, parts.validation)
    apart, strict, again = (
        evaluate_ranking(each, parts.test).model.ndcg
        for each in (chosen, chosen.extend(parts.validation), ALS(seed=0).fit(joined))
    )
    # without the second last entry, a row is one step behind
    assert min(strict, again) > 0.75 > apart


def test_liking_moves_the_order_and_not_the_probability_that_a_column_comes_next() -> None:
    dated = date_entries(walk(np.random.default_rng(0)))
    rows, columns, _ = dated.entries()
    values = np.random.default_rng(0).integers(1, 6, rows.size)
    model = ALS(seed=0).fit(
        ObservedMatrix.from_entries(
            rows, columns, values, Scale([1, 2, 3, 4, 5]), times=np.asarray(dated.times)
        )
    )
    rankers, places = model.rankers_, np.tile(np.arange(N), (3, 1))
    assert rankers.following is not None
    ranked = []
    for weight in (0.0, 2.0):
        following = replace(rankers.following, liking_weight=weight)
        changed = Rankers(model.entries_, rankers.presence, "next", following=following)
        ranker = changed.make(model.predictor_, model.entries_.seen_columns, Request())
        keys = ranker.rank_block(np.arange(3), slice(0, N))
        ranked.append((keys, ranker.read(np.arange(3), places, keys).presence))
    (plain, chances), (liking, same) = ranked
    assert not np.allclose(plain, liking)
    np.testing.assert_allclose(same, chances, rtol=1e-4)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-4)


def test_decays_are_no_longer_than_rows() -> None:
    short, long = list_decays(np.array([3, 3, 4])), list_decays(np.full(50, 200))
    assert max(max(decay.window, decay.ahead) for decay in short) == 3
    assert len(short) == 3 < len(long) and long[-1].window == 100
    assert len(list_decays(np.array([1]))) == 1
    # the decay of 30 entries suits the longest tenth of rows
    assert len(list_decays(np.repeat([3, 40], [85, 15]))) == len(long)
    assert len(list_decays(np.repeat([3, 40], [95, 5]))) == 3


def test_a_single_entry_explains_the_whole_chance_of_what_follows() -> None:
    matrix = ObservedMatrix.from_sequences(walk(np.random.default_rng(0)))
    rows, decay = Histories(EntryStore.of(matrix)), Decay(1.5, 3)
    (model,) = count_next(rows.trained_sequences, decay, N, "full").fit([Ridge(2.0, 0.5)])
    following = NextRidge((NextPart(decay, model, 2.0),), rows, 0.0, 0.0, sharpness=1.5)
    entries = AxisEntries(np.array([0, 1]), np.array([3]), np.ones(1), extras=Extras())
    entries = entries._replace(extras=Extras(places=np.zeros(1, dtype=np.int32)))
    scores = model.weights[3].astype(np.float64)
    keys = 1.5 * 2.0 * scores / scores.std()
    odds = np.exp(keys[4]) / np.delete(np.exp(keys), 4).sum(), 1 / np.delete(np.exp(keys), 4).sum()
    effects, chance = following.explain(entries, model, np.full(N, 0.1, dtype=np.float32), 4)
    assert chance == pytest.approx(odds[0] / (1 + odds[0]), rel=1e-4)
    # without the entry, the score is 0
    assert effects[0] == pytest.approx(chance - odds[1] / (1 + odds[1]), rel=1e-3)
