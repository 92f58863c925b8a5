"""Interactions: files of rows and columns without values, in every format, through stores and
splits."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from deepmf.data import read_matrix, split_areas, split_entries
from deepmf.data.packing import pack
from deepmf.errors import BadEntries, BadSetting, ConstantValues, OffScale, UnreadableFile
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.frame_file import ENDINGS
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.fitting import digest

CLICKS = ObservedMatrix.from_interactions(
    ["ann", "ann", "bob", "ann"], ["home", "news", "news", "home"]
)
TEXT = "user,item\nann,home\nann,news\nbob,news\nann,home\n"


def write(folder: Path, text: str, name: str = "clicks.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_repeated_interactions_are_counted() -> None:
    assert not CLICKS.has_values
    assert CLICKS.values.tolist() == [2, 1, 1]
    counted = ["ann", "ann", "bob"], ["home", "news", "news"], [2, 1, 1]
    assert ObservedMatrix.from_interactions(*counted) == CLICKS
    assert ObservedMatrix.from_entries(*counted) != CLICKS
    assert "interactions" in repr(CLICKS) and "interactions" in str(CLICKS.describe())
    assert CLICKS.describe().histogram[1.0] == 2
    labelled = ObservedMatrix.from_interactions(["ann"], ["home"], row_labels=["bob", "ann"])
    assert labelled.shape == (2, 1)


@pytest.mark.parametrize("count", [0, -1, np.nan, np.inf])
def test_a_count_is_a_positive_number(count: float) -> None:
    with pytest.raises(BadEntries, match="'ann'"):
        ObservedMatrix.from_interactions(["ann"], ["home"], [count])


def test_a_sparse_matrix_of_counts() -> None:
    scale = Scale.interactions()
    counts = scipy.sparse.csr_array(np.array([[2, 1], [0, 1]]))
    assert ObservedMatrix.from_sparse(counts, scale).values.tolist() == [2, 1, 1]
    with pytest.raises(OffScale, match="interactions"):
        ObservedMatrix.from_sparse(scipy.sparse.coo_array(([0.0], ([0], [0]))), scale)


@pytest.mark.parametrize(
    "name, text",
    [
        ("c.csv", TEXT),
        ("c.csv", "visitor;page\nann;home\nann;news\nbob;news\nann;home\n"),
        ("c.tsv", "who\twhat\nann\thome\nann\tnews\nbob\tnews\nann\thome\n"),
        ("c.txt", "ann home\nann news\nbob news\nann home\n"),  # without a header: ids repeat
        ("c.csv", "user,item,interactions\nann,home,2\nann,news,1\nbob,news,1\n"),
        ("c.jsonl", '{"user": "ann", "item": "home", "interactions": 2}\n{"user": "ann", "item": "news", '
         '"interactions": 1}\n{"user": "bob", "item": "news", "interactions": 1}\n'),
    ],
)  # fmt: skip
def test_files_of_two_columns_are_interactions(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path, text, name)
    assert read_matrix(path) == CLICKS
    assert pack(path, tmp_path / "c.store") == CLICKS


def test_numbers_as_ids_keep_their_type_and_a_header_is_recognised(tmp_path: Path) -> None:
    assert read_matrix(write(tmp_path, "1,10\n2,20\n1,10\n")).row_labels.tolist() == [1, 2]
    assert read_matrix(write(tmp_path, "u,i\n1,10\n2,20\n")).n_entries == 2
    assert read_matrix(write(tmp_path, "von,nach\n1,10\n2,20\n")).n_entries == 2
    titles = read_matrix(write(tmp_path, "1,The Big Sleep\n2,Das Boot Film\n1,A Third One\n"))
    assert titles.column_labels.tolist() == ["A Third One", "Das Boot Film", "The Big Sleep"]


def test_values_are_left_out_on_request(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "user,item,rating,timestamp\n1,10,5,881250949\n1,20,3,881250950\n1,10,1,881250951\n",
    )
    assert read_matrix(path, value=None).values.tolist() == [2, 1]
    counted = read_matrix(path, count="rating")
    assert counted.values.tolist() == [6, 3]
    assert not counted.has_values
    assert counted.form.value == "rating"
    assert pack(path, tmp_path / "c.store", count="rating") == counted
    assert read_matrix(path, count=2, value=None) == counted


def test_frames() -> None:
    pairs = pl.DataFrame({"user": ["ann", "ann", "bob"], "item": ["home", "news", "news"]})
    frame = pairs.with_columns(plays=pl.Series([2, 1, 1]))
    counted = ObservedMatrix.from_frame(frame, count="plays")
    plain = ObservedMatrix.from_frame(frame, value=None)
    assert counted == CLICKS and counted.to_frame().equals(frame)
    assert plain.values.tolist() == [1, 1, 1] and plain.to_frame().equals(pairs)
    assert ObservedMatrix.from_frame(pairs) == plain
    assert CLICKS.to_frame().columns == ["row", "column", "interactions"]
    assert CLICKS.to_frame()["interactions"].to_list() == [2, 1, 1]


@pytest.mark.parametrize("ending", [*ENDINGS, ".store"])
@pytest.mark.parametrize("matrix", [CLICKS, CLICKS.take_entries(np.array([1, 2]))])
def test_interactions_are_read_back(tmp_path: Path, ending: str, matrix: ObservedMatrix) -> None:
    matrix = matrix.take(np.flatnonzero(matrix.row_counts), np.flatnonzero(matrix.column_counts))
    matrix.write(tmp_path / f"c{ending}")
    assert read_matrix(tmp_path / f"c{ending}") == matrix


def test_splits_keep_interactions() -> None:
    rows, columns = np.divmod(np.arange(400), 20)
    clicks = ObservedMatrix.from_interactions(rows, columns, 1 + np.arange(400) % 7)
    split, areas = split_entries(clicks, seed=0), split_areas(clicks, seed=0)
    parts = split.train, split.validation, split.test
    assert sum(part.values.sum() for part in parts) == clicks.values.sum()
    parts += areas.train, areas.extension, *areas.test.values()
    assert not any(part.has_values for part in parts)
    values = split.train.with_scale(Scale(low=0, high=1, bounded=False))
    assert digest(split.train) != digest(values)


def test_new_interactions_of_a_known_pair_add_up() -> None:
    given = ["ann", "cat"], ["home", "news"], [3, 1]
    more = ObservedMatrix.from_interactions(*given)
    home, ann = CLICKS.columns.positions(["home"]), CLICKS.rows.positions(["ann"])
    store = EntryStore.of(CLICKS)
    for conflicts, count in (("error", 5), ("replace", 3)):
        added = store.extend(more, conflicts=conflicts).entries  # type: ignore[arg-type]
        assert added.values_at(ann, home).tolist() == [count]
    with pytest.raises(OffScale, match="interactions"):
        store.extend(ObservedMatrix.from_entries(*given))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"value": None, "duplicates": "mean"}, "counted"),
        ({"value": None, "wide": True}, "wide"),
        ({"value": 1, "count": 2}, "count=2"),
        ({"value": None, "scale": Scale(levels=[1, 2])}, "scale"),
        ({"value": "item", "scale": Scale.interactions()}, "scale"),
    ],
)
def test_contradicting_options_are_refused(
    tmp_path: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(BadSetting, match=words):
        read_matrix(write(tmp_path, TEXT), **options)  # type: ignore[arg-type]


def test_what_has_values_and_what_has_none_are_not_mixed(tmp_path: Path) -> None:
    clicks = write(tmp_path, TEXT)
    ratings = write(tmp_path, "user,item,rating\nann,home,5\nbob,news,3\n", "ratings.csv")
    with pytest.raises(UnreadableFile, match="clicks.csv"):
        pack([clicks, ratings], tmp_path / "c.store")
    assert not (tmp_path / "c.store").exists()
    assert pack([clicks, ratings], tmp_path / "c.store", value=None).values.sum() == 6
    with pytest.raises(UnreadableFile, match="interactions"):
        read_matrix(tmp_path / "c.store", scale=Scale(levels=[1, 2]))
    with pytest.raises(UnreadableFile, match="two.csv|three|value"):
        read_matrix(clicks, scale=Scale(levels=[1, 2]))


def test_equal_values_are_told_with_the_way_out(tmp_path: Path) -> None:
    path = write(tmp_path, "user,item,rating\n1,10,1\n2,20,1\n")
    with pytest.warns(ConstantValues, match="--no-values"):
        read_matrix(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_matrix(path, value=None).n_entries == 2


def test_a_line_without_an_id_is_refused_with_its_number(tmp_path: Path) -> None:
    path = write(tmp_path, "user,item\nann,home\nbob,\n")
    with pytest.raises(BadEntries, match="line 3"):
        read_matrix(path)
    assert read_matrix(path, missing="drop").n_entries == 1
