"""The part of what comes next: decays, scores of rows and files, by values that are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from deepmf import ALS
from deepmf.errors import BadModelFile
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.interactions import InteractionPredictor
from deepmf.recommend.column_ridge import Ridge
from deepmf.recommend.next_fit import score_targets
from deepmf.recommend.next_gram import count_next
from deepmf.recommend.next_ridge import NextPart, NextRidge, list_decays, scale_rows
from deepmf.recommend.sequences import Decay, Histories, Sequences

HALVING = 1 / math.log(2)  # at this length, the weight of an input halves with each entry
ROWS = {f"row {k}": [f"c{(k + step) % 6}" for step in range(4)] for k in range(12)}
MATRIX = ObservedMatrix.from_sequences(ROWS)
STORE = EntryStore.of(MATRIX)


def read_row(label: str) -> AxisEntries:
    return STORE.row_entries(MATRIX.rows.positions([label]))


@pytest.fixture(scope="module")
def part() -> NextRidge:
    """Columns that follow each other round a circle of six."""
    decay = Decay(HALVING, 3)
    (model,) = count_next(Sequences.of(MATRIX), decay, 6, "full").fit([Ridge(0.1, 0.0)])
    return NextRidge((NextPart(decay, model, 1.0),), Histories(STORE), 0.0, 0.0, sharpness=1.0)


def test_inputs_halve_with_each_entry_and_end_with_the_window() -> None:
    latest = Decay(HALVING, 3).weigh(read_row("row 0"))
    assert latest.others.tolist() == MATRIX.columns.positions(["c1", "c2", "c3"]).tolist()
    # the roots of weights count as inputs
    np.testing.assert_allclose(np.sqrt(latest.extras.weights), [0.25, 0.5, 1.0])


def test_targets_fall_to_a_third_at_the_reach() -> None:
    np.testing.assert_allclose(Decay(1.0, 2, 3, 1.0).targets, [1.0, 1 / math.e, 1 / math.e**2])
    assert Decay(1.0, 2).targets.tolist() == [1.0]  # the next entry alone


@pytest.mark.parametrize("length", [1, 2, 5, 30, 400])
def test_decays_fit_into_the_rows(length: int) -> None:
    decays = list_decays(np.full(50, length))
    assert decays and max(decay.window for decay in decays) <= max(length - 1, 1)
    assert max(decay.ahead for decay in decays) <= max(length - 1, 1)
    assert len(decays) == 1 or max(decay.length for decay in decays) <= length
    assert len(decays) == len(set(decays))


def test_long_decays_need_long_rows() -> None:
    lengths = np.array([3] * 95 + [300] * 5)
    assert max(decay.length for decay in list_decays(lengths)) <= 3
    assert max(decay.length for decay in list_decays(np.full(100, 300))) > 8


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_scaled_rows_have_a_deviation_of_one_unless_they_are_constant(make: type) -> None:
    scores = make([[0.0, 2.0, 4.0], [7.0, 7.0, 7.0]])
    scaled = np.asarray(scale_rows(scores))
    assert scaled[0].std() == pytest.approx(1.0)
    np.testing.assert_allclose(scaled[0], np.array([0.0, 2.0, 4.0]) / math.sqrt(8 / 3))
    assert scaled[1].tolist() == [7.0] * 3


def test_the_next_column_of_the_circle_has_the_highest_score(part: NextRidge) -> None:
    every_row = STORE.row_entries(np.arange(12))
    scores = part.score(every_row, np.zeros((12, 6)), np.zeros(6))
    expected = MATRIX.columns.positions([f"c{(k + 4) % 6}" for k in range(12)])
    rows = MATRIX.rows.positions(list(ROWS))
    assert scores[rows].argmax(axis=1).tolist() == expected.tolist()


def test_parts_of_a_score_add_up_by_their_weights(part: NextRidge) -> None:
    entries, undirected = read_row("row 3"), np.array([[0.0, 1.0, 5.0, 2.0, 2.0, 8.0]])
    popularity = np.array([[3.0, 1.0, 1.0, 2.0, 1.0, 1.0]])
    directed = part.score(entries, undirected, popularity)
    blend = replace(part, undirected=2.0, popularity=0.5, repeats=3.0)
    expected = directed + 2.0 * scale_rows(undirected) + 0.5 * scale_rows(popularity)
    expected[0, entries.others] += 3.0 * math.log(2)  # each was taken once
    np.testing.assert_allclose(blend.score(entries, undirected, popularity), expected, rtol=1e-6)


def test_a_packed_part_scores_the_same_and_a_damaged_one_is_refused(part: NextRidge) -> None:
    predictor = InteractionPredictor.of_entries(STORE)
    content, tensors = replace(part, liking_weight=0.5, ndcg=0.25, is_default=True).pack()
    again = NextRidge.unpack(content, tensors, STORE, predictor)
    assert (again.liking_weight, again.ndcg, again.is_default) == (0.5, 0.25, True)
    assert again.describe_choice()["next_ndcg"] == 0.25
    arguments = read_row("row 1"), np.zeros((1, 6)), np.zeros(6)
    np.testing.assert_allclose(again.score(*arguments), part.score(*arguments), rtol=2e-3)
    for damage in ({"sharpness": -1.0}, {"decays": [content["decays"][0] | {"window": 0}]}):
        with pytest.raises(BadModelFile):
            NextRidge.unpack(content | damage, tensors, STORE, predictor)
    with pytest.raises(BadModelFile):
        NextRidge.unpack(content, dict(list(tensors.items())[1:]), STORE, predictor)


def test_the_nearest_columns_precede_a_column_more_often_than_their_size_explains() -> None:
    """A column that is everywhere precedes others often, and says little of them."""
    rows = [["always", "target"]] * 10 + [["everywhere", "target"]] * 12
    rows += [["everywhere", "another"]] * 400 + [["once", "target"]]
    matrix = ObservedMatrix.from_sequences({f"row {at}": row for at, row in enumerate(rows)})
    gram = count_next(Sequences.of(matrix), Decay(1.0, 1), matrix.shape[1], "nearest")
    target = matrix.columns.positions(["target"])[0]
    nearest = gram.sums.places[target]  # type: ignore[union-attr]
    names = matrix.column_labels[nearest[nearest < matrix.shape[1]]]
    assert names.tolist() == ["always", "once", "everywhere"]


def test_a_target_counts_by_its_place_among_the_first_ten_and_loses_ties() -> None:
    keys = np.arange(12.0)[None]
    for column, expected in ((11, 1.0), (10, 1 / math.log2(3)), (2, 1 / math.log2(11)), (1, 0.0)):
        assert score_targets(keys, np.array([column])) == pytest.approx(expected)
    assert score_targets(np.zeros((1, 3)), np.array([0])) == pytest.approx(1 / math.log2(4))


def test_rare_pairs_take_a_small_ridge() -> None:
    """Each rare column is followed by another one; frequent columns say nothing of what follows."""
    dice, rows = np.random.default_rng(0), {}
    for row in range(240):
        columns = [f"frequent {at}" for at in dice.permutation(12)[:4]]
        place = 4 * (row % 2) or 2
        columns[place:place] = [f"rare {row // 6}", f"follower {row // 6}"]
        rows[f"row {row}"] = columns
    model = ALS(seed=0).fit(ObservedMatrix.from_sequences(rows))
    following = model.rankers_.following
    assert following is not None
    assert following.parts[0].model.ridge.penalty <= 20.0


def walk_by_chance(dice: np.random.Generator) -> list[str]:
    """Return columns of a circle of 40: the next one, or the seventh, with the same chance."""
    places = np.cumsum([dice.integers(40), *dice.choice([1, 7], size=6)]) % 40
    return [f"column {at:02d}" for at in dict.fromkeys(places.tolist())]


def test_columns_that_come_next_half_of_the_time_have_half_of_the_probability() -> None:
    dice = np.random.default_rng(0)
    rows = {f"row {row}": walk_by_chance(dice) for row in range(300)}
    model = ALS(seed=0).fit(ObservedMatrix.from_sequences(rows))
    guests = model.fold_in_many([(walk_by_chance(dice), []) for _ in range(60)], ordered=True)
    assert 0.4 < guests.recommend(1).values.mean() < 0.7
