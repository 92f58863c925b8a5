"""Features as tensors and JSON: the same come back to the bit, and what could be none is
refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.errors import BadModelFile
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.stored import pack_features, unpack_features
from deepmf.storage.model_file import read_file, write_file

MATRIX = ObservedMatrix.from_array(
    [[1.0, 2.0, np.nan], [3.0, np.nan, 5.0], [np.nan, 4.0, 1.0], [2.0, 2.0, 3.0]],
    row_labels=list("abcd"),
)

ROWS = Features.from_columns(
    ["d", "b", "a", "x"],
    {
        "age": [20.0, None, 40.0, 31.0],
        "langs": ["en|fr", "fr", None, "en"],
        "since": ["2001-12-31", "1999-05-01", None, "2000-01-01"],
        "job": ["nürse", "nürse", "\ud800", "\ud800"],  # half a surrogate is kept as given
        "plot": [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0), None],
    },
)


def stored() -> EntryStore:
    """A store whose row features came partly later."""
    store = EntryStore.of(MATRIX, row_features=AxisFeatures.of(MATRIX.rows, ROWS))
    later = Features.from_columns(
        ["e", "a"], {"age": [70.0, 71.0], "langs": ["en|fr|xx", None], "plot": [(0.25, 0.75), None]}
    )
    return store.extend(None, conflicts="error", row_features=later).entries


STORE = stored()

assert STORE.row_features is not None

PACKED = pack_features(STORE.row_features, "row_features")

CONTENT = {"row_features": PACKED.content}

BARE = EntryStore.from_parts(MATRIX, STORE.extension)


def unpacked(content: Any, tensors: dict[str, npt.NDArray[Any]]) -> AxisFeatures:
    found = unpack_features(BARE, {"row_features": content}, tensors)
    assert found.column_features is None and found.row_features is not None
    return found.row_features


def test_the_same_features_come_back(tmp_path: Path) -> None:
    write_file(tmp_path / "file", kind="model", content=CONTENT, tensors=PACKED.tensors)
    file = read_file(tmp_path / "file", kind="model")
    found, given = unpacked(file.content["row_features"], file.tensors), STORE.row_features
    assert given is not None and len(given.extra) == 2
    assert found.encoding == given.encoding
    assert found.positions.tolist() == given.positions.tolist() == [0, 4]
    for one, other in ((found.base, given.base), (found.extra, given.extra)):
        assert one.inputs.dtype == other.inputs.dtype and one.weights.dtype == other.weights.dtype
        assert (
            one.inputs.tobytes() == other.inputs.tobytes()
            and one.weights.tobytes() == other.weights.tobytes()
        )


def test_without_features_nothing_is_added() -> None:
    found = unpack_features(BARE, {}, {})
    assert (found.row_features, found.column_features) == (None, None)


def test_nothing_came_later() -> None:
    plain = EntryStore.of(MATRIX, row_features=AxisFeatures.of(MATRIX.rows, ROWS)).row_features
    assert plain is not None
    packed = pack_features(plain, "row_features")
    assert len(unpacked(packed.content, packed.tensors).extra) == 0


def column(at: int, **changes: Any) -> Any:
    content = copy.deepcopy(PACKED.content)
    content["columns"][at] |= changes
    return content


@pytest.mark.parametrize(
    "content",
    [
        {"columns": [*PACKED.content["columns"], PACKED.content["columns"][0]]},
        column(0, kind="colour"),
        column(0, spread=0),
        column(0, knots=[1]),
        column(1, categories=["a", "a"]),
        column(2, mean=None),
        column(4, spread=0.0),
        column(4, means=[0.0]),
    ],
)
def test_content_that_is_no_encoding(content: Any) -> None:
    with pytest.raises(BadModelFile, match="features"):
        unpacked(content, PACKED.tensors)
