"""Features as they were given: the same values, kinds and labels come back, and so the same encoding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.matrix.features import Features
from deepmf.storage.model_file import read_file, write_file
from deepmf.storage.raw_feature_tensors import pack_raw_features, unpack_raw_features

COLUMNS: dict[str, list[Any]] = {
    "age": [1.5, None, 3.0, 4.0],
    "job": ["cook", None, "nürse", "cook"],
    "langs": [["en", "fr"], [], None, ["fr"]],
    "since": ["2001-12-31", None, "1999-01-01", "2000-05-05"],
    "code": [1, 1, 2, 2],
}


@pytest.mark.parametrize("labels", [list("abcd"), [4, 3, 2, 1]])
def test_the_same_features_come_back(labels: list[Any], tmp_path: Path) -> None:
    given = Features(labels, COLUMNS, kinds={"code": "category"})
    packed = pack_raw_features(given, "row_features")
    write_file(tmp_path / "job", kind="comparison", content={"f": packed.content}, tensors=packed.tensors)
    file = read_file(tmp_path / "job")
    found = unpack_raw_features("row_features", file.content["f"], file.tensors)
    assert found.labels.tolist() == labels
    assert found.kinds == given.kinds
    for name in given.names:
        np.testing.assert_array_equal(found.values(name), given.values(name))
    assert found.encoding() == given.encoding()


def test_nothing_but_gaps() -> None:
    given = Features(["a"], {"x": [None], "y": [[]]})
    found = unpack_raw_features("f", *pack_raw_features(given, "f"))
    assert found.values("x").tolist() == [None] and found.values("y").tolist() == [()]
