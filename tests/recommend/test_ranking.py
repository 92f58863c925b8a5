"""Rankings: the n largest, largest first, ties by place."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import polars
import pytest
from hypothesis import given, strategies as st

from deepmf.datasets import generate
from deepmf.errors import BadSetting, CannotSave, UnknownLabel
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.means import Means
from deepmf.recommend import ranking
from deepmf.recommend.column_choice import ColumnChoice, choose_columns
from deepmf.recommend.ranking import (
    BestSoFar,
    Ranking,
    Search,
    join_ranked,
    most_similar,
    rank_batches,
)
from deepmf.recommend.request import RankBy, Request
from deepmf.testing import additive


def test_most_similar() -> None:
    angles = np.array([0.0, 0.1, 3.0, -0.3])
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    labels = Labels(["a", "b", "c", "d"], axis="row")
    found = most_similar(directions, labels, "a", 2)
    assert found.labels.tolist() == ["b", "d"]
    np.testing.assert_allclose(found.values, np.cos([0.1, 0.3]), rtol=1e-5)
    assert most_similar(directions, labels, "a", 99).labels.tolist() == ["b", "d", "c"]
    with pytest.raises(UnknownLabel):
        most_similar(directions, labels, "z", 2)
    for n in (0, None, "5"):
        with pytest.raises(BadSetting, match="^n "):
            most_similar(directions, labels, "a", n)  # type: ignore[arg-type]


ENTRIES = EntryStore.of(
    ObservedMatrix.from_entries(
        ["ann", "bob", "bob", "bob", "cy"], ["a", "a", "b", "c", "a"], [1, 2, 3, 4, 5]
    )
)


def test_a_ranking_is_read_as_a_pair() -> None:
    ranking = Ranking(np.array(["Alien", "Big"]), np.array([4.5, 3.0]))
    labels, values = ranking
    assert labels is ranking[0] is ranking.labels and values is ranking[1] is ranking.values


def test_few_entries_count_for_known_and_for_new_rows() -> None:
    model = Means().fit(ENTRIES.train)
    assert model.recommend("ann", min_entries=2, include_observed=True).labels.tolist() == ["a"]
    guest = model.fold_in(["b"], [5])
    assert guest.recommend(min_entries=2).labels.tolist() == ["a"]
    more = model.extend(ObservedMatrix.from_entries(["dan"], ["c"], [5], model.scale_))
    assert set(more.recommend("ann", min_entries=2, include_observed=True).labels) == {"a", "c"}


@pytest.mark.slow
@pytest.mark.parametrize("cells", [7, 1 << 20])
@pytest.mark.parametrize("extended", [False, True])
def test_rankings_are_those_of_all_scores_however_they_are_cut(
    monkeypatch: pytest.MonkeyPatch, cells: int, extended: bool
) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", cells)
    model = ALS(latent_size=3, epochs=2, seed=0).fit(additive(30, 25))
    if extended:
        new = ObservedMatrix.from_entries(
            ["row 1", "row 2", "new", "new"],
            ["Big", "column 3", "Big", "column 4"],
            [5, 1, 2, 3],
            model.scale_,
        )
        model = model.extend(new, conflicts="replace")
    entries, n_columns = model.entries_, len(model.column_labels_)
    scores = model.predictor_.score_block(
        np.arange(len(model.row_labels_)), np.arange(n_columns)
    ).astype(float)
    for row, label in enumerate(model.row_labels_):
        scores[row, entries.seen_columns(np.array([row])).others] = -np.inf
        expected = np.argsort(-scores[row], kind="stable")[:4]
        found = model.recommend(label, 4)
        assert (
            found.labels.tolist()
            == model.column_labels_[expected[scores[row, expected] > -np.inf]].tolist()
        )
        left = np.argsort(-np.where(np.arange(n_columns) < 5, -np.inf, scores[row]), kind="stable")[
            :4
        ]
        some = model.recommend(label, 4, exclude=model.column_labels_[:5])
        assert some.labels.tolist() == model.column_labels_[left].tolist()
    many = model.recommend(model.row_labels_, 4)
    assert many.labels[3].tolist() == model.recommend(model.row_labels_[3], 4).labels.tolist()


@given(st.lists(st.integers(0, 4), min_size=24, max_size=24), st.integers(1, 8), st.integers(1, 9))
def test_blocks_agree_with_a_full_stable_sort(numbers: list[int], n: int, width: int) -> None:
    keys = np.array(numbers, dtype=np.float32).reshape(2, 12)
    keys[keys == 0] = -np.inf  # which is left out
    best = BestSoFar(2, n)
    for start in range(0, 12, width):
        best.add(keys[:, start : start + width], start)
    expected = np.argsort(-keys, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(best.keys, np.take_along_axis(keys, expected, axis=1))
    np.testing.assert_array_equal(best.places[best.keys > -np.inf], expected[best.keys > -np.inf])


def test_a_choice_by_labels_by_masks_and_by_numbers_of_entries() -> None:
    def chosen(among: object = None, exclude: object = None, min_entries: int = 0) -> list[int]:
        choice = choose_columns(
            ENTRIES, Request(among=among, exclude=exclude, min_entries=min_entries)
        )  # type: ignore[arg-type]
        assert choice.size == choice.positions.size
        return choice.positions.tolist()

    assert chosen() == [0, 1, 2]
    assert chosen(["c", "a"]) == [0, 2]
    assert chosen(np.array([True, False, True])) == chosen(["a", "c"]) == [0, 2]
    assert chosen(exclude=np.array([True, False, False])) == chosen(exclude=["a"]) == [1, 2]
    assert chosen(min_entries=1) == [0, 1, 2]
    assert chosen(min_entries=2) == chosen(min_entries=3) == [0]
    assert chosen(exclude=["b", "b"], min_entries=1) == [0, 2]
    assert chosen(["b", "a"], np.array([False, False, True]), 1) == [0, 1]
    assert chosen(min_entries=4) == []
    with pytest.raises(BadSetting, match=r"\(3,\)"):
        chosen(np.array([True, False]))
    for wrong in (-1, 2.5, True):
        with pytest.raises(BadSetting, match="^min_entries"):
            chosen(min_entries=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("among", [None, np.array([0, 3, 4])])
def test_what_rows_have_observed_is_left_out_in_every_block(among: IndexArray | None) -> None:
    choice = ColumnChoice(5, among, barred=np.array([1]))
    observed = AxisEntries(np.array([0, 2, 3]), np.array([3, 2, 4]), np.ones(3))
    left_out = choice.omit(np.array([7, 8]), lambda rows: observed)
    keys = np.zeros((2, choice.n_places))
    for start in range(0, choice.n_places, 2):
        left_out.mark(keys[:, start : start + 2], start)
    positions = choice.columns(np.arange(choice.n_places))
    expected = [np.isin(positions, gone) for gone in ([2, 3], [4])]
    for line in expected:
        line[1] = True  # the place that is barred
    np.testing.assert_array_equal(keys == -np.inf, expected)


@pytest.fixture(scope="module")
def model() -> Model:
    return Means().fit(additive())


def of_row(frame: polars.DataFrame, row: object) -> tuple[list[object], list[float]]:
    own = frame.filter(polars.col("row") == row)
    assert own["rank"].to_list() == list(range(1, own.height + 1))
    return own["column"].to_list(), own["prediction"].to_list()


def test_the_file_holds_what_recommend_gives(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", 60)  # several batches
    path = tmp_path / "top.parquet"
    count = model.recommend_to(path, n=4, exclude=model.column_labels_[:3])
    frame = polars.read_parquet(path)
    assert frame.columns == ["row", "rank", "column", "prediction", "presence", "liked"]
    assert count == frame.height == 4 * len(model.row_labels_)
    assert frame["row"].unique(maintain_order=True).to_list() == model.row_labels_.tolist()
    for row in model.row_labels_.tolist():
        best = model.recommend(row, n=4, exclude=model.column_labels_[:3])
        assert of_row(frame, row) == (best.labels.tolist(), pytest.approx(best.values.tolist()))


def test_some_rows_each_once_in_their_order(model: Model, tmp_path: Path) -> None:
    one, two = model.row_labels_[[5, 2]].tolist()
    path = tmp_path / "top.csv"
    assert model.recommend_to(path, [one, two, one], 2) == 4
    lines = [line.split(",")[:2] for line in path.read_text().splitlines()]
    assert lines == [
        ["row", "rank"],
        *([str(row), str(rank)] for row in (one, two) for rank in (1, 2)),
    ]
    assert model.recommend_to(path, one, 2) == 2  # a single row


def test_a_row_with_few_columns_left_has_few_lines(tmp_path: Path) -> None:
    matrix = ObservedMatrix.from_entries(
        ["ann", "ann", "ann", "bob"], ["a", "b", "c", "a"], [1, 2, 3, 3]
    )
    path = tmp_path / "top.jsonl"
    assert Means().fit(matrix).recommend_to(path, n=2) == 2
    assert polars.read_ndjson(path)["row"].to_list() == ["bob", "bob"]
    assert Means().fit(matrix).recommend_to(path, n=2, include_observed=True) == 4


def test_refusals_leave_nothing(model: Model, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="xlsx"):
        model.recommend_to(tmp_path / "top.xlsx")
    with pytest.raises(BadSetting, match="^n "):
        model.recommend_to(tmp_path / "top.csv", n=0)
    with pytest.raises(UnknownLabel, match="'nobody'"):
        model.recommend_to(tmp_path / "top.csv", ["nobody"])
    with pytest.raises(CannotSave, match="folder"):
        model.recommend_to(tmp_path / "none" / "top.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_all_rows_in_bounded_memory(tmp_path: Path) -> None:
    rows, columns = np.arange(6000), np.arange(6000) % 3000
    model = Means().fit(
        ObservedMatrix.from_entries(rows, columns, rows % 5, column_labels=range(3000))
    )
    tracemalloc.start()
    count = model.recommend_to(tmp_path / "top.parquet", n=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 6000 * 5
    assert peak < 6000 * 3000 * 8 / 2  # half of all predictions


@pytest.mark.slow
@pytest.mark.parametrize("rank_by", ["value", "relevance"])
def test_threads_rank_as_one_does(monkeypatch: pytest.MonkeyPatch, rank_by: RankBy) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", 60)  # five batches
    model = ALS(latent_size=4, epochs=2, seed=0).fit(
        generate(300, 40, density=0.2, named=False, seed=0).matrix
    )
    request = Request(n=5, rank_by=rank_by)
    search = Search.of(
        model.entries_, model.make_ranker(request), model.entries_.seen_columns, request
    )
    alone, together = (
        join_ranked(rank_batches(search, np.arange(300), threads=threads)) for threads in (1, 3)
    )
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    assert together.rows.tolist() == list(range(300))
