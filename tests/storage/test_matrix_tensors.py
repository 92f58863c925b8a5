"""A matrix as tensors: the same matrix comes back, and tensors that are no matrix are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.test_label_tensors import array, some_labels

from deepmf.errors import BadModelFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.table_form import TableForm
from deepmf.storage.matrix_tensors import pack_matrix, pack_scale, unpack_matrix, unpack_scale
from deepmf.storage.model_file import read_file, write_file

some_scales = st.one_of(
    st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=5, unique=True).map(lambda levels: Scale(sorted(levels))),
    st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=2, unique=True).map(
        lambda ends: Scale(low=min(ends), high=max(ends))
    ),
    st.just(Scale(low=0.1, high=7, bounded=False)),
)

MATRIX = ObservedMatrix.from_entries(
    ["zoe", "ann", "ann", "bób"],
    [30, 10, 30, 20],
    [5, 1, 3, 3],
    scale=Scale(levels=[1, 2, 3, 4, 5]),
    row_labels=["zoe", "nobody", "ann", "bób", ""],  # neither sorted nor all with entries
    column_labels=[40, 30, 10, 20],
)
PACKED = pack_matrix(MATRIX, "observed")


@st.composite
def some_matrices(draw: st.DrawFn) -> ObservedMatrix:
    rows, columns, scale = draw(some_labels), draw(some_labels), draw(some_scales)
    pairs = [(row, column) for row in rows for column in columns]
    entries = draw(st.lists(st.sampled_from(pairs), max_size=8, unique=True)) if pairs else []
    one_value = st.floats(scale.low, scale.high) if scale.levels is None else st.sampled_from(scale.levels.tolist())
    return ObservedMatrix.from_entries(
        [row for row, _ in entries],
        [column for _, column in entries],
        [draw(one_value) for _ in entries],
        scale=scale,
        row_labels=rows,
        column_labels=columns,
    )


def assert_identical(found: ObservedMatrix, expected: ObservedMatrix) -> None:
    assert found == expected
    for mine, theirs in ((found.row_labels, expected.row_labels), (found.column_labels, expected.column_labels)):
        assert [(type(item), item) for item in mine.tolist()] == [(type(item), item) for item in theirs.tolist()]
    for name in ("starts", "columns"):
        assert getattr(found.by_row, name).dtype == getattr(expected.by_row, name).dtype
    for one, other in zip(found.by_column, expected.by_column, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.values.tobytes() == expected.values.tobytes()
    assert (found.rows.axis, found.columns.axis) == ("row", "column")


@given(some_matrices())
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_the_same_matrix_comes_back(matrix: ObservedMatrix) -> None:
    assert_identical(unpack_matrix("m", *pack_matrix(matrix, "m")), matrix)


def test_matrices_share_a_file(tmp_path: Path) -> None:
    other = ObservedMatrix.from_array([[0.0, np.nan], [1 / 3, 2.0]])
    packed = pack_matrix(other, "validation")
    write_file(
        tmp_path / "file",
        kind="model",
        content={"observed": PACKED.content, "validation": packed.content},
        tensors=PACKED.tensors | packed.tensors,
    )
    stored = read_file(tmp_path / "file")
    assert_identical(unpack_matrix("observed", stored.content["observed"], stored.tensors), MATRIX)
    assert_identical(unpack_matrix("validation", stored.content["validation"], stored.tensors), other)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 2), (2, 3)])
def test_matrix_without_entries(shape: tuple[int, int]) -> None:
    matrix = ObservedMatrix.from_array(np.full(shape, np.nan), scale=Scale(low=0, high=1))
    assert_identical(unpack_matrix("m", *pack_matrix(matrix, "m")), matrix)


def test_entries_are_stored_compactly() -> None:
    matrix = ObservedMatrix.from_array(np.ones((100, 50)), scale=Scale(levels=[1, 2]))
    tensors = pack_matrix(matrix, "m").tensors
    assert sum(array.nbytes for array in tensors.values()) == 8 * 5000 + 4 * 101 + 8 * 150
    assert tensors["m.entries.values"] is matrix.values


@given(some_scales)
def test_scale_comes_back(scale: Scale) -> None:
    assert unpack_scale(pack_scale(scale)) == scale


def test_an_interval_of_an_older_file_is_bounded() -> None:
    assert unpack_scale({"low": 0, "high": 1}) == Scale(low=0, high=1)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "lacks 'low'"),
        ([1, 2], "lacks 'low'"),
        ({}, "lacks 'low'"),
        ({"low": 1}, "lacks 'high'"),
        ({"low": 2, "high": 1}, "needs low < high"),
        ({"low": "1", "high": 2}, "made of numbers; got '1'"),
        ({"low": False, "high": True}, "made of numbers"),
        ({"low": float("nan"), "high": 1}, "both finite"),
        ({"low": 0, "high": 10**400}, "double precision"),
        ({"low": 0, "high": 1, "bounded": 0}, "bounded"),
        ({"levels": "12"}, "must be a list"),
        ({"levels": {"1": 2}}, "must be a list"),
        ({"levels": None}, "must be a list"),
        ({"levels": []}, "at least one level"),
        ({"levels": [2, 1]}, "must increase"),
        ({"levels": [1, None]}, "made of numbers; got None"),
        ({"levels": [[1], [2, 3]]}, "made of numbers"),
        ({"levels": [1, float("inf")]}, "must be finite"),
    ],
)
def test_bad_scale(content: Any, message: str) -> None:
    with pytest.raises(BadModelFile, match=message):
        unpack_scale(content)


@pytest.mark.parametrize(
    "name, tensor, message",
    [
        ("starts", array(0, 1, 1, 3), "has 4 elements; 6 are needed"),
        ("starts", array(1, 1, 1, 3, 4, 4), "must rise from 0 to 4"),
        ("starts", array(0, 1, 1, 3, 4, 5), "must rise from 0 to 4"),
        ("starts", array(0, 3, 1, 3, 4, 4), "must rise from 0 to 4"),
        ("starts", array(0, -(2**31), 2**31 - 1, 3, 4, 4, dtype="int32"), "must rise from 0 to 4"),
        ("starts", array(0, 1, 1, 3, 4, 4, dtype="float64"), "vector of int32 or int64"),
        ("columns", array(1, 1, 2), "has 3 columns for 4 values"),
        ("columns", array(1, 1, 2, 4), "entries outside its 4 columns"),
        ("columns", array(1, -1, 2, 3), "entries outside its 4 columns"),
        ("columns", array(1, 2, 2, 3), "row 'ann', column 10 was given before"),
        ("columns", array(1, 1, 2, 3, dtype="bool"), "vector of int32 or int64"),
        ("values", array(5, 3, 1, dtype="float32"), "must rise from 0 to 3"),
        ("values", array(5, 3, 1, 3.5, dtype="float32"), "row 'bób', column 20 has value 3.5; the scale is 1 to 5"),
        ("values", array(5, 3, 1, np.nan, dtype="float32"), "values must be finite"),
        ("values", array(np.inf, -np.inf, 1, 3, dtype="float64"), "values must be finite"),
        ("values", array(5, 3, 1, 3, dtype="float16"), "vector of float32 or float64"),
        ("values", array(5, 3, 1, 3), "vector of float32 or float64"),
    ],
)
def test_tensors_that_are_no_matrix(name: str, tensor: npt.NDArray[Any], message: str) -> None:
    with pytest.raises(BadModelFile, match=message):
        unpack_matrix("observed", PACKED.content, PACKED.tensors | {f"observed.entries.{name}": tensor})


@pytest.mark.parametrize("name", PACKED.tensors)
def test_missing_tensor(name: str) -> None:
    rest = {other: tensor for other, tensor in PACKED.tensors.items() if other != name}
    with pytest.raises(BadModelFile, match=f"^the tensor {name} is missing$"):
        unpack_matrix("observed", PACKED.content, rest)


@pytest.mark.parametrize("content", [None, [], "rows", {}, *({**PACKED.content, name: 3} for name in PACKED.content)])
def test_bad_content(content: Any) -> None:
    with pytest.raises(BadModelFile, match="the stored content lacks"):
        unpack_matrix("observed", content, PACKED.tensors)


def changed(tensor: npt.NDArray[Any], dice: np.random.Generator) -> npt.NDArray[Any]:
    match dice.integers(4):
        case 0:
            flipped = tensor.copy()
            flipped.view(np.uint8)[dice.integers(tensor.nbytes)] ^= 1 << dice.integers(8, dtype=np.uint8)
            return flipped
        case 1:
            return tensor[: dice.integers(tensor.size)]
        case 2:
            return np.append(tensor, dice.choice(tensor))
        case _:
            return dice.permutation(tensor)


def test_changed_tensors_give_a_whole_matrix_or_none() -> None:
    dice, names = np.random.default_rng(0), sorted(PACKED.tensors)
    refused = 0
    for _ in range(1500):
        name = names[dice.integers(len(names))]
        try:
            found = unpack_matrix(
                "observed", PACKED.content, PACKED.tensors | {name: changed(PACKED.tensors[name], dice)}
            )
        except BadModelFile:
            refused += 1
            continue
        rows, columns, values = found.entries()
        rebuilt = ObservedMatrix.from_entries(
            rows, columns, values, found.scale, row_labels=found.row_labels, column_labels=found.column_labels
        )
        assert_identical(found, rebuilt)
    assert 700 < refused < 1500


def test_the_form_of_its_table_comes_back() -> None:
    form = TableForm("user", "film", "stars", wide=True)
    packed = pack_matrix(MATRIX.in_form(form), "observed")
    assert unpack_matrix("observed", packed.content, packed.tensors).form == form
    assert "form" not in PACKED.content
    typed = form._replace(column_type="Int32")
    packed = pack_matrix(MATRIX.in_form(typed), "observed")
    assert unpack_matrix("observed", packed.content, packed.tensors).form == typed
    plain = form.to_dict()
    for lie in ([], {"row": "a"}, plain | {"wide": 1}, plain | {"row": 3}, plain | {"column_type": "Int128"}):
        with pytest.raises(BadModelFile, match="the stored form of a table must have three names, a bool, and types"):
            unpack_matrix("observed", packed.content | {"form": lie}, packed.tensors)
