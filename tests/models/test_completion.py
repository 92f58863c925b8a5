"""Completing: array, frame and stream agree."""

import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from deepmf.errors import BadSetting, CannotSave, NotEnoughMemory
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models import completion
from deepmf.models.means import Means
from deepmf.recommend import ranking
from deepmf.testing import additive


def test_frame_and_file_hold_every_missing_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", 60)  # several batches
    matrix = additive()
    model = Means().fit(matrix)
    frame = model.complete_frame()
    assert frame.columns == ["row", "column", "value"]
    assert frame.height == matrix.shape[0] * matrix.shape[1] - matrix.n_entries
    np.testing.assert_allclose(
        frame["value"].to_numpy(), model.predict(frame["row"], frame["column"])
    )
    path = tmp_path / "completed.parquet"
    assert model.complete_to(path) == frame.height
    assert pl.read_parquet(path).equals(frame)
    assert list(tmp_path.iterdir()) == [path]
    assert model.complete_to(path.with_suffix(".csv")) == frame.height
    assert pl.read_csv(path.with_suffix(".csv"), schema=frame.schema).equals(frame)


@pytest.mark.parametrize("labels", [["a", "b", "c"], [3, 5, 7]])
def test_rows_with_nothing_missing(tmp_path: Path, labels: list[object]) -> None:
    one, two, three = labels
    matrix = ObservedMatrix.from_entries(
        [one, one, two, two, three], [one, two, one, two, one], [1, 2, 3, 4, 5]
    )
    model = Means().fit(matrix)
    path = tmp_path / "completed.parquet"
    assert model.complete_to(path) == 1
    assert pl.read_parquet(path)["row"].to_list() == [three]
    whole = Means().fit(ObservedMatrix.from_array([[1, 2], [3, 4]], row_labels=[one, two]))
    assert whole.complete_to(path) == 0
    assert whole.complete_frame().schema == model.complete_frame().schema | {"column": pl.Int64}


@pytest.mark.slow
def test_streaming_is_bounded(tmp_path: Path) -> None:
    rows, columns = np.arange(4000), np.arange(4000) % 3000
    matrix = ObservedMatrix.from_entries(rows, columns, rows % 5, column_labels=range(3000))
    model = Means().fit(matrix)
    tracemalloc.start()
    count = model.complete_to(tmp_path / "completed.parquet")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4000 * 3000 - 4000
    assert peak < 4000 * 3000 * 24 / 2  # the whole frame would take twice that and more


def test_refusals(tmp_path: Path) -> None:
    model = Means().fit(additive())
    with pytest.raises(BadSetting, match=r"\.txt"):
        model.complete_to(tmp_path / "completed.txt")
    with pytest.raises(CannotSave, match="folder"):
        model.complete_to(tmp_path / "nowhere" / "completed.parquet")


@pytest.mark.slow
def test_what_is_too_large_is_refused_with_its_size_before_it_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = scipy.sparse.csr_array(
        ([1.0, 5.0], ([0, 30_000], [0, 20_000])), shape=(40_000, 30_000)
    )
    model = Means().fit(ObservedMatrix.from_sparse(entries))
    monkeypatch.setattr(completion, "complete_rows", lambda *_: pytest.fail("it began"))
    with pytest.raises(NotEnoughMemory) as caught:
        model.complete()
    assert "40,000 rows x 30,000 columns" in str(caught.value)
    assert "complete_to" in str(caught.value)
    monkeypatch.setattr(completion, "count_free_main_bytes", lambda: 3 << 30)
    with pytest.raises(NotEnoughMemory, match="26.8"):
        model.complete_frame()
