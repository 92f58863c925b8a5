"""Features as a frame: what goes in comes out, through a frame and through delimited text."""

from datetime import date
from pathlib import Path

import numpy as np
import polars

from deepmf.data.feature_file import read_features
from deepmf.matrix.features import Features
from deepmf.storage.feature_frame import feature_frame, lists_as_text

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
    frame = feature_frame(FEATURES, "who")
    assert frame.schema == {
        "who": polars.String,
        "age": polars.Float64,
        "town": polars.String,
        "likes": polars.List(polars.String),
        "born": polars.Date,
    }
    assert frame.null_count().row(0) == (0, 1, 1, 1, 1)
    assert_same(Features.from_frame(frame, "who"))


def test_text_reads_back(tmp_path: Path) -> None:
    lists_as_text(feature_frame(FEATURES, "who")).write_csv(tmp_path / "f.csv")
    assert_same(read_features(tmp_path / "f.csv", label="who"))
