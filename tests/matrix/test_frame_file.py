"""A file of frames: every format holds what the frames hold, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import polars
import pytest

from deepmf.data import read_features
from deepmf.errors import BadEntries, BadSetting, CannotSave
from deepmf.matrix.features import Features
from deepmf.matrix.frame_file import (
    find_label_type,
    join_lists,
    make_feature_frame,
    write_frame_file,
)

SCHEMA = {"row": polars.Int64, "value": polars.Float64}

PARTS = [polars.DataFrame({"row": [n, n], "value": [n / 2, 1.0]}, schema=SCHEMA) for n in range(3)]

READERS = {
    "csv": polars.read_csv,
    "tsv": lambda path: polars.read_csv(path, separator="\t"),
    "jsonl": lambda path: polars.read_ndjson(path, schema=SCHEMA),
    "parquet": polars.read_parquet,
    "pq": polars.read_parquet,
    "PARQUET": polars.read_parquet,
}


@pytest.mark.parametrize("ending", READERS)
def test_frames_become_one_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"f.{ending}"
    write_frame_file(iter(PARTS), SCHEMA, path)
    assert find_label_type(PARTS[0]["row"].to_numpy()) == SCHEMA["row"]
    assert READERS[ending](path).equals(polars.concat(PARTS))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_fails_leaves_the_old_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"f.{ending}"
    path.write_text("the old one")

    def broken() -> Iterator[polars.DataFrame]:
        yield PARTS[0]
        raise BadSetting("no more")

    with pytest.raises((BadSetting, CannotSave), match="more"):
        write_frame_file(broken(), SCHEMA, path)
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_texts_of_digits_and_tabs_can_be_told_when_they_are_read(tmp_path: Path) -> None:
    frames = [
        polars.DataFrame({"user": ["1", "2"], "stars": [1.5, 2]}),
        polars.DataFrame({"user": ["x"], "stars": [3.0]}),
    ]
    write_frame_file(frames, frames[0].schema, tmp_path / "f.csv")
    assert (tmp_path / "f.csv").read_text() == 'user,stars\n"1",1.5\n"2",2.0\n"x",3.0\n'
    tabs = polars.DataFrame({"user": ["a\tb"], "stars": [1.5]})
    with pytest.raises(BadEntries, match="tab"):
        write_frame_file([tabs], tabs.schema, tmp_path / "f.tsv")
    assert not (tmp_path / "f.tsv").exists()


FEATURES = Features.from_columns(
    ["ann", "bob", "cy"],
    {
        "age": [31.5, None, 40],
        "town": ["Rome", "Oslo", None],
        "likes": [["a", "b"], None, ["b"]],
        "born": [date(1999, 5, 1), None, date(2001, 2, 3)],
    },
)


def assert_same(found: Features) -> None:
    assert (found.labels.tolist(), found.kinds) == (FEATURES.labels.tolist(), FEATURES.kinds)
    np.testing.assert_array_equal(found.values("age"), FEATURES.values("age"))
    for name in ("town", "likes", "born"):
        assert found.values(name).tolist() == FEATURES.values(name).tolist()


def test_a_frame_has_the_type_of_each_kind() -> None:
    frame = make_feature_frame(FEATURES, "who")
    text = polars.String
    types = [text, polars.Float64, text, polars.List(text), polars.Date]
    assert frame.schema == dict(zip(["who", *FEATURES.names], types, strict=True))
    assert frame.null_count().row(0) == (0, 1, 1, 1, 1)
    assert_same(Features.from_frame(frame, "who"))


def test_vectors_come_back() -> None:
    given = Features.from_columns([1, 2], {"picture": [[1.0, 2.5], None]})
    back = Features.from_frame(make_feature_frame(given, "film"), "film")
    assert back.kinds == given.kinds == {"picture": "vector"}
    assert back.values("picture").tolist() == [(1.0, 2.5), None]


def test_text_reads_back(tmp_path: Path) -> None:
    join_lists(make_feature_frame(FEATURES, "who")).write_csv(tmp_path / "f.csv")
    assert_same(read_features(tmp_path / "f.csv", label="who"))
