"""Neighbours: places of rows that are alike, and their votes for what comes next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deepmf import ALS, load
from deepmf.matrix.entries import EntryStore, forget, plan_forget
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.recommend.next_neighbours import Memory
from deepmf.recommend.sequences import Decay, Histories

N = 12  # columns
MEMORY = Memory(Decay(2.0, 14, 2, 0.5), 3.0)


def draw_rows(seed: int, n_rows: int = 25) -> dict[str, list[str]]:
    """Return random rows of one to seven columns."""
    rng = np.random.default_rng(seed)
    return {
        f"row {row}": [f"c{column:02d}" for column in rng.permutation(N)[: rng.integers(1, 8)]]
        for row in range(n_rows)
    }


def make_store(rows: dict[str, list[str]]) -> EntryStore:
    columns = [f"c{column:02d}" for column in range(N)]
    return EntryStore.of(ObservedMatrix.from_sequences({"every": columns, **rows}))


def vote(store: EntryStore, row: str, memory: Memory = MEMORY) -> np.ndarray:
    """Return the votes for what a row takes next, by column label."""
    entries = store.seen_columns(store.rows.positions([row]))
    votes = memory.score(entries, Histories(store))[0]
    return votes[np.argsort(store.columns[np.arange(len(store.columns))])]


def compute_votes(rows: dict[str, list[str]], row: str) -> np.ndarray:
    """Return the same by comparing every beginning of all other rows."""

    def weigh(columns: list[str]) -> np.ndarray:
        numbers = np.zeros(N)
        for age, column in enumerate(reversed(columns)):
            numbers[int(column[1:])] = np.exp(-age / 2.0)
        return numbers / np.linalg.norm(numbers)

    votes, wanted = np.zeros(N), weigh(rows[row])
    for other, columns in rows.items():
        for end in range(1, len(columns)) if other != row else ():
            similarity = wanted @ weigh(columns[:end])
            for step, column in enumerate(columns[end : end + 2]):
                votes[int(column[1:])] += similarity**3 * np.exp(-step / 0.5)
    return votes


def test_votes_are_those_of_all_beginnings_by_their_cosine() -> None:
    rows = draw_rows(0)
    store = make_store(rows)
    every = {"every": [f"c{column:02d}" for column in range(N)], **rows}
    for row in rows:
        expected = compute_votes(every, row)
        np.testing.assert_allclose(vote(store, row), expected, rtol=1e-4, atol=1e-6)


def test_the_three_hundred_most_alike_vote() -> None:
    rows = {f"row {row}": ["c00", "c01"] for row in range(400)}
    rows |= {f"far {row}": ["c02", "c00", "c03"] for row in range(50)} | {"new": ["c00"]}
    store = EntryStore.of(ObservedMatrix.from_sequences(rows))
    np.testing.assert_allclose(vote(store, "new"), [0.0, 300.0, 0.0, 0.0])


def test_an_entry_of_double_weight_has_two_votes() -> None:
    rows, columns = ["a", "a", "b", "b", "new"], ["c0", "c1", "c0", "c2", "c0"]
    matrix = ObservedMatrix.from_interactions(
        rows, columns, times=[1, 2, 1, 2, 1], weights=[1, 1, 1, 2, 1]
    )
    np.testing.assert_allclose(vote(EntryStore.of(matrix), "new"), [0.0, 1.0, 2.0])


def test_what_is_written_counts_and_what_is_forgotten_is_gone_at_once() -> None:
    rows, more = draw_rows(0), draw_rows(1, 30)
    later = {row: [c for c in own if c not in rows.get(row, ())] for row, own in more.items()}
    later = {row: own for row, own in later.items() if own} | {"row 99": ["new", "c03", "newer"]}
    first = Histories(make_store(rows))
    assert first.trained_sequences is first.trained_sequences
    extended = first.entries.extend(ObservedMatrix.from_sequences(later)).entries
    gone = plan_forget(extended, ["row 3", "row 27"], ["c05"], None, missing="error")
    for store in (extended, forget(extended, gone).entries):
        histories = first.update(store)
        assert histories.trained_sequences is first.trained_sequences
        entries = store.seen_columns(np.arange(len(store.rows)))
        order = entries.extras.sort_within(entries.group_of)
        labels = store.columns[entries.others[order]].tolist()
        spans = zip(entries.starts[:-1], entries.starts[1:], strict=True)
        fresh = {str(at): labels[start:stop] for at, (start, stop) in enumerate(spans)}
        again = EntryStore.of(
            ObservedMatrix.from_sequences({row: own for row, own in fresh.items() if own})
        )
        votes, expected = (
            MEMORY.score(entries, histories),
            np.zeros((len(fresh), len(store.columns))),
        )
        at = store.columns.positions(again.columns[np.arange(len(again.columns))])
        rows_of = [int(row) for row in again.rows[np.arange(len(again.rows))]]
        entries = again.seen_columns(np.arange(len(again.rows)))
        expected[np.ix_(rows_of, at)] = MEMORY.score(entries, Histories(again))
        np.testing.assert_allclose(votes, expected, rtol=1e-5, atol=1e-7)


def test_the_effect_of_an_entry_is_what_its_votes_are_less_without_it() -> None:
    histories = Histories(make_store(draw_rows(0)))
    guest = make_store({"guest": ["c01", "c07", "c00"]}).seen_columns(np.array([1]))
    votes, effects = MEMORY.score(guest, histories)[0], MEMORY.find_effects(guest, histories, 1)
    latest = guest.select(guest.extras.sort_within(guest.group_of)[-1] == np.arange(3))
    (alone,) = MEMORY.find_effects(latest, histories, 1)
    assert alone == pytest.approx(MEMORY.score(latest, histories)[0, 1]) and alone > 0
    first = guest.extras.sort_within(guest.group_of)[0]
    without = MEMORY.score(guest.select(first != np.arange(3)), histories)[0]
    assert effects[first] == pytest.approx(votes[1] - without[1])


def test_held_out_entries_choose_neighbours_where_pairs_of_columns_decide(tmp_path: Path) -> None:
    """What follows depends on two columns together, which no sum over columns can tell."""
    rng = np.random.default_rng(0)

    def draw_row() -> list[str]:
        columns = []
        for place in rng.permutation(4)[: rng.integers(1, 5)]:
            first, second = rng.integers(2, size=2)
            steps = f"first {first}", f"second {second}", f"end {first ^ second}"
            columns += [f"{step} of {place}" for step in steps]
        return columns

    rows = {f"row {row}": draw_row() for row in range(400)}
    model = ALS(seed=0).fit(ObservedMatrix.from_sequences(rows))
    following = model.rankers_.following
    assert following is not None and following.memories
    guests = [draw_row() for _ in range(50)]
    histories = [(row[:-1], []) for row in guests]
    best = model.fold_in_many(histories, ordered=True).recommend(1).labels[:, 0]
    assert np.mean(best == [row[-1] for row in guests]) > 0.9
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").fold_in_many(histories, ordered=True).recommend(1)
    assert again.labels[:, 0].tolist() == best.tolist()
