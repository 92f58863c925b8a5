"""A matrix in both orders: it comes back equal, is opened without a look at its values, and verified with one."""

from typing import Any

import numpy as np
import pytest

from deepmf.errors import BadModelFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.text_labels import TextLabels
from deepmf.storage.matrix_tensors import pack_matrix
from deepmf.storage.ordered_matrix import pack_ordered, unpack_either
from deepmf.storage.packed import MappedTensors

MATRIX = ObservedMatrix.from_entries(["bob", "ann", "bob"], ["é", "b", "b"], [1, 2, 5])


@pytest.mark.parametrize(
    "matrix",
    [
        MATRIX,
        ObservedMatrix.from_entries(["b", "a"], [3, 1], [1.5, 2], row_labels=["b", "a"]),
        ObservedMatrix.from_entries([0.5, 1.5], [3, 1], [1.5, 2]),
        ObservedMatrix.from_array(np.array([[1, np.nan], [np.nan, 2]])),
    ],
)
def test_it_comes_back(matrix: ObservedMatrix) -> None:
    content, tensors = pack_ordered(matrix, "m")
    for stored in (tensors, MappedTensors(tensors)):
        again = unpack_either("m", content, stored)
        assert again == matrix and again.mean == matrix.mean and again.form == matrix.form
        assert all(np.array_equal(*parts) for parts in zip(again.by_column, matrix.by_column, strict=True))
        assert again.rows.positions(matrix.row_labels).tolist() == [0, 1]
        assert not again.values.flags.writeable
    in_a_file = pack_matrix(matrix, "m")
    assert unpack_either("m", *in_a_file) == matrix


def test_text_is_decoded_when_it_is_asked_for() -> None:
    content, tensors = pack_ordered(MATRIX, "m")
    opened = unpack_either("m", content, MappedTensors(tensors))
    assert isinstance(opened.columns, TextLabels)
    assert opened.columns[1] == "é" and "array" not in vars(opened.columns)


def damaged(**changes: Any) -> tuple[Any, dict[str, Any]]:
    content, tensors = pack_ordered(MATRIX, "m")
    return content, tensors | {f"m.{name.replace('__', '.')}": value for name, value in changes.items()}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"by_column__rows": np.array([1, 0, 1], dtype=np.int32)}, "not the same by row and by column"),
        ({"entries__values": np.array([1, 9, 2], dtype=np.float32)}, "the scale is"),
        ({"rows__text": np.frombuffer(b"annann", dtype=np.uint8)}, "repeats"),
        ({"rows__text": np.frombuffer(b"zzzann", dtype=np.uint8)}, "said to be sorted"),
        ({"rows__text": np.frombuffer(b"an\xffbob", dtype=np.uint8)}, "m.rows.text holds no labels of type str"),
        ({"rows__starts": np.array([0, 9, 6])}, "must rise from 0 to 6"),
    ],
)
def test_false_values_are_refused_by_verifying_alone(changes: dict[str, Any], message: str) -> None:
    content, tensors = damaged(**changes)
    unpack_either("m", content, MappedTensors(tensors))
    with pytest.raises(BadModelFile, match=message):
        unpack_either("m", content, tensors)


@pytest.mark.parametrize(
    "changes",
    [
        {"entries__starts": np.array([0, 1], dtype=np.int32)},
        {"entries__starts": np.array([0, 1, 4], dtype=np.int32)},
        {"by_column__starts": np.array([1, 1, 3], dtype=np.int32)},
        {"by_column__entries": np.array([0], dtype=np.int32)},
        {"by_column__rows": np.zeros(3)},
        {"rows__starts": np.array([0, 3, 5])},
        {"rows__text": np.zeros(3, dtype=np.int8)},
    ],
)
def test_lengths_and_types_are_always_checked(changes: dict[str, Any]) -> None:
    content, tensors = damaged(**changes)
    with pytest.raises(BadModelFile):
        unpack_either("m", content, MappedTensors(tensors))


@pytest.mark.parametrize("change", [{"mean": "high"}, {"scale": 1}, {"rows": {"kind": "str"}}, {"rows": {"kind": []}}])
def test_false_content(change: dict[str, Any]) -> None:
    content, tensors = pack_ordered(MATRIX, "m")
    with pytest.raises(BadModelFile):
        unpack_either("m", content | change, MappedTensors(tensors))
    with pytest.raises(BadModelFile, match="has the mean"):
        unpack_either("m", content | {"mean": 4.0}, tensors)


@pytest.mark.parametrize(
    "changes",
    [
        {"entries__columns": np.array([0, 7, 1], dtype=np.int32)},
        {"entries__starts": np.array([0, 9, 3], dtype=np.int32)},
        {"by_column__rows": np.array([-1, 0, 1], dtype=np.int32)},
        {"by_column__entries": np.array([0, 1, 3], dtype=np.int32)},
        {"by_column__starts": np.array([0, -4, 3], dtype=np.int32)},
    ],
)
def test_positions_outside_are_refused_in_what_is_mapped_too(changes: dict[str, Any]) -> None:
    content, tensors = damaged(**changes)
    with pytest.raises(BadModelFile, match="outside|must rise"):
        unpack_either("m", content, MappedTensors(tensors))
