"""Declared files: what a form packs it reads again, and anything else is refused by the name of the
part."""

from typing import Any

import numpy as np
import pytest
import torch

from deepmf.errors import BadModelFile
from deepmf.storage.model_file import MappedTensors
from deepmf.storage.parts import (
    Form,
    Part,
    at_most,
    between,
    check_ends,
    distinct,
    not_falling,
    one_of,
    positions_of,
    rising,
)

STEP = Form(Part("loss", "number"), Part("slots", "float16", ("slots",)))
FORM = Form(
    Part("kind", "text", (), one_of("a", "b")),
    Part("size", "whole", (), at_most("known")),
    Part("sorted", "flag"),
    Part("names", "text", ("names",), distinct),
    Part("knots", "number", (2,), rising, between(0, 9)),
    Part("steps", STEP, ("steps",)),
    Part("starts", "int64", ("names + 1",), check_ends("entries"), not_falling),
    Part("columns", "int32 int64", ("entries",), positions_of("columns")),
    Part("table", "float32", ("steps * names", "width")),
    Part("spare", "float32", ("width",), optional=True),
    Part("note", "text", optional=True),
    prefix="x",
)
VALUES: dict[str, Any] = {
    "kind": "a",
    "size": 3,
    "sorted": True,
    "names": ["one", "two"],
    "knots": np.array([0.5, 2.0]),
    "steps": [{"loss": 1.0, "slots": np.ones(3)}, {"loss": 2.0, "slots": np.ones(1)}],
    "starts": np.array([0, 1, 3]),
    "columns": np.array([1, 0, 4], dtype=np.int32),
    "table": np.zeros((4, 5), dtype=np.float32),
    "spare": None,
    "note": None,
}
CONTENT, TENSORS = FORM.pack(VALUES)
SIZES = {"known": 3, "entries": 3, "columns": 5}


def test_what_is_packed_is_read_again() -> None:
    found = FORM.read(CONTENT, TENSORS, **SIZES)
    assert found.keys() == VALUES.keys() and [step["loss"] for step in found["steps"]] == [1.0, 2.0]
    for name in ("kind", "size", "sorted", "names", "spare"):
        assert found[name] == VALUES[name]
    np.testing.assert_array_equal(found["table"], VALUES["table"])
    assert TENSORS["x.steps.1.slots"].dtype == np.float16 and "x.spare" not in TENSORS


@pytest.mark.parametrize(
    "name, value",
    [
        ("kind", "c"),
        ("kind", None),
        ("size", 4),
        ("size", True),
        ("size", 10**30),
        ("sorted", 1),
        ("names", ["one", "one"]),
        ("names", "one"),
        ("names", ["one", 2]),
        ("knots", [1.0, 2.0, 3.0]),
        ("knots", [2.0, 1.0]),
        ("knots", [1.0, 10**400]),
        ("knots", [1.0, 10.0]),
        ("steps", [{"loss": 1.0}, 2]),
        ("steps.0.slots", np.ones((3, 1), dtype=np.float16)),
        ("steps.1.slots", np.array([np.nan], dtype=np.float16)),
        ("starts", np.array([0, 3])),
        ("starts", np.array([0, 4, 3])),
        ("starts", np.array([0, 1, 4])),
        ("columns", np.array([1, 0, 5])),
        ("columns", np.array([1, 0, -1])),
        ("columns", np.array([1.0, 0.0, 4.0])),
        ("table", np.zeros((3, 5), dtype=np.float32)),
        ("spare", np.zeros(4, dtype=np.float32)),
        ("note", 7),
    ],
)
def test_anything_else_is_refused_by_its_name(name: str, value: Any) -> None:
    is_tensor = isinstance(value, np.ndarray)
    content, tensors = (
        (CONTENT, TENSORS | {f"x.{name}": value})
        if is_tensor
        else (CONTENT | {name: value}, TENSORS)
    )
    with pytest.raises(BadModelFile, match=rf"x\.{name}"):
        FORM.read(content, tensors, **SIZES)


def test_of_mapped_tensors_all_but_finite_numbers_is_checked() -> None:
    table = np.full((4, 5), np.nan, dtype=np.float32)
    assert np.isnan(
        FORM.read(CONTENT, MappedTensors(TENSORS | {"x.table": table}), **SIZES)["table"]
    ).all()
    with pytest.raises(BadModelFile, match="columns"):
        FORM.read(CONTENT, MappedTensors(TENSORS | {"x.columns": np.array([1, 0, 5])}), **SIZES)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("more", np.zeros(1)),
        ("count", np.array(-1)),
        ("running_var", np.array([-1.0])),
        ("mask", None),
    ],
)
def test_tensors_like_those_of_a_network_and_no_others(name: str, change: Any) -> None:
    own = {"running_var": torch.ones(1).double(), "count": torch.tensor(2)}
    own |= {"mask": torch.tensor([True])}
    form = Form.like(own, "n")
    stored = {f"n.{part}": tensor.numpy() for part, tensor in own.items()}
    assert form.read({}, stored | {"other": np.zeros(1)}).keys() == own.keys()
    changed = {part: tensor for part, tensor in stored.items() if part != f"n.{name}"}
    if change is not None:
        changed[f"n.{name}"] = change
    with pytest.raises(BadModelFile, match=f"n.{name}"):
        form.read({}, changed)
