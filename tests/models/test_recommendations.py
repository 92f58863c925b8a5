"""Recommendations for many rows: the file holds what `recommend` gives row by row, in bounded memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import polars
import pytest
from tests.models.contract import additive

from deepmf.errors import BadSetting, CannotSave, UnknownLabel
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models import ranking
from deepmf.models.means import Means
from deepmf.models.model import Model


@pytest.fixture(scope="module")
def model() -> Model:
    return Means().fit(additive())


def of_row(frame: polars.DataFrame, row: object) -> tuple[list[object], list[float]]:
    own = frame.filter(polars.col("row") == row)
    assert own["rank"].to_list() == list(range(1, own.height + 1))
    return own["column"].to_list(), own["prediction"].to_list()


def test_the_file_holds_what_recommend_gives(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", 60)  # several batches
    path = tmp_path / "top.parquet"
    count = model.recommend_to(path, n=4, exclude=model.column_labels_[:3])
    frame = polars.read_parquet(path)
    assert frame.columns == ["row", "rank", "column", "prediction"]
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
    assert lines == [["row", "rank"], *([str(row), str(rank)] for row in (one, two) for rank in (1, 2))]
    assert model.recommend_to(path, one, 2) == 2  # a single row


def test_a_row_with_few_columns_left_has_few_lines(tmp_path: Path) -> None:
    matrix = ObservedMatrix.from_entries(["ann", "ann", "ann", "bob"], ["a", "b", "c", "a"], [1, 2, 3, 3])
    path = tmp_path / "top.jsonl"
    assert Means().fit(matrix).recommend_to(path, n=2) == 2
    assert polars.read_ndjson(path)["row"].to_list() == ["bob", "bob"]
    assert Means().fit(matrix).recommend_to(path, n=2, include_observed=True) == 4


def test_refusals_leave_nothing(model: Model, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="must end in"):
        model.recommend_to(tmp_path / "top.xlsx")
    with pytest.raises(BadSetting, match="n must be a whole number of at least 1; got 0"):
        model.recommend_to(tmp_path / "top.csv", n=0)
    with pytest.raises(UnknownLabel, match="'nobody' is not known"):
        model.recommend_to(tmp_path / "top.csv", ["nobody"])
    with pytest.raises(CannotSave, match="there is no folder"):
        model.recommend_to(tmp_path / "none" / "top.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_all_rows_in_bounded_memory(tmp_path: Path) -> None:
    rows, columns = np.arange(6000), np.arange(6000) % 3000
    model = Means().fit(ObservedMatrix.from_entries(rows, columns, rows % 5, column_labels=range(3000)))
    tracemalloc.start()
    count = model.recommend_to(tmp_path / "top.parquet", n=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 6000 * 5
    assert peak < 6000 * 3000 * 8 / 2  # half of all predictions
