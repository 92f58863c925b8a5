"""Opening a store: what is not whole, not a store, newer or changed is refused in one sentence."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.data.read import read_matrix
from deepmf.errors import OffScale, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.store_manifest import MANIFEST
from deepmf.matrix.store_reader import verify_store

MATRIX = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    MATRIX.write(tmp_path / "r.store")
    return tmp_path / "r.store"


def change(store: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((store / MANIFEST).read_text())
    edit(content)
    (store / MANIFEST).write_text(json.dumps(content))


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer": (
        lambda c: c.update(format=2),
        "is a store of format 2; this version of deepmf reads format 1, and a newer",
    ),
    "older": (lambda c: c.update(format=0), "is a store of format 0; this version of deepmf reads format 1"),
    "format": (lambda c: c.update(format="one"), "has 'one' as 'format'"),
    "foreign": (lambda c: c.update(kind="other"), "is not a store: its manifest.json does not say so"),
    "count": (lambda c: c.update(n_rows=-1), "has -1 as 'n_rows'"),
    "rows": (
        lambda c: c.update(n_rows=7),
        "its part row_starts has 3 elements of int32; 8 of int32 or int64 are needed",
    ),
    "part": (lambda c: c["parts"].pop("columns"), "its part columns is missing"),
    "outside": (lambda c: c["parts"].update({"../x": c["parts"]["rows"]}), "'../x' cannot be the name of a part"),
    "type": (lambda c: c["parts"]["columns"].update(type="float32", length=3), "3 elements of float32; 3 of int32 or"),
    "scale": (lambda c: c.update(scale={"levels": [3, 1]}), "as 'scale'"),
    "no scale": (lambda c: c.update(scale={"low": 1}), "as 'scale'"),
    "form": (lambda c: c.update(form={}), "has {} as 'form'"),
    "labels": (lambda c: c.update(labels=[]), r"has \[\] as 'labels'"),
    "kind": (lambda c: c["labels"]["row"].update(kind="pickle"), "has row labels of the unknown kind 'pickle'"),
    "table": (lambda c: c.update(table=[5, 1]), "its codes have no table of rising values"),
    "mean": (lambda c: c.update(mean="high"), "has 'high' as 'mean'"),
    "parts": (lambda c: c.update(parts={"rows": {}}), "as 'parts'"),
    "type of a part": (lambda c: c["parts"]["rows"].update(type=[]), "as 'parts'"),
    "name of a part": (lambda c: c["parts"].update({"a\0b": c["parts"]["rows"]}), "is missing"),
    "huge mean": (lambda c: c.update(mean=10**400), "as 'mean'"),
    "no mean": (lambda c: c.update(mean=float("nan")), "as 'mean'"),
    "huge table": (lambda c: c.update(table=[1, 3, 10**400]), "as 'table'"),
    "huge level": (lambda c: c.update(scale={"levels": [1, 10**400]}), "as 'scale'"),
    "huge end": (lambda c: c.update(scale={"low": 1, "high": 10**400}), "as 'scale'"),
    "types of ids": (lambda c: c["form"].update(row_type=[]), "as 'form'"),
    "other scale": (lambda c: c.update(scale={"levels": [1, 3]}), "not on its scale"),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_that_lies(store: Path, case: str) -> None:
    edit, message = MANIFESTS[case]
    change(store, edit)
    with pytest.raises(UnreadableFile, match=message) as caught:
        read_matrix(store)
    assert str(store) in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda store: (store / "columns").unlink(), "is not a whole store: its part columns is missing"),
        (lambda store: (store / "columns").write_bytes(b"123"), "its part columns has 3 bytes instead of 12"),
        (lambda store: (store / MANIFEST).write_text("{"), "is not a whole store: its manifest.json is damaged"),
        (lambda store: (store / MANIFEST).write_bytes(b"\xff"), "is not a whole store: its manifest.json is damaged"),
        (lambda store: (store / MANIFEST).write_text("[" * 100_000), "its manifest.json is damaged"),
        (lambda store: (store / MANIFEST).write_text("[]" + " " * (1 << 21)), "its manifest.json is damaged"),
        (lambda store: (store / MANIFEST).write_text("[]"), "is not a store"),
        (lambda store: (store / MANIFEST).unlink(), "a file, or a store that deepmf pack wrote, is needed"),
        (
            lambda store: (store / "row_starts").write_bytes(np.array([0, 4, 3], dtype="<i4").tobytes()),
            "is damaged: its part row_starts does not rise from 0 to 3",
        ),
    ],
)
def test_what_is_not_whole_is_refused(store: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(store)
    with pytest.raises(UnreadableFile, match=message):
        read_matrix(store)


def test_a_store_without_entries_is_refused(tmp_path: Path) -> None:
    MATRIX.take_entries(np.zeros(3, dtype=bool)).write(tmp_path / "r.store")
    with pytest.raises(UnreadableFile, match="r.store holds no entries"):
        read_matrix(tmp_path / "r.store")


def test_a_change_while_it_is_open_is_noticed(store: Path) -> None:
    matrix = read_matrix(store)
    matrix.describe()
    (store / "rows").write_bytes((store / "rows").read_bytes() + b"more")
    with pytest.raises(UnreadableFile, match=r"r.store was changed while it was open \(rows\); read it again"):
        matrix.describe()


def test_checksums_tell_other_content(store: Path) -> None:
    verify_store(store)
    content = bytearray((store / "values").read_bytes())
    content[0] ^= 2
    (store / "values").write_bytes(bytes(content))
    read_matrix(store)  # it could be the values of a store
    with pytest.raises(UnreadableFile, match="the content of its part values does not match its checksum"):
        verify_store(store)


def test_a_scale_that_is_asked_for_must_hold_the_values(store: Path) -> None:
    wider = Scale(levels=[1, 2, 3, 4, 5])
    read = read_matrix(store, scale=wider)
    assert read.scale == wider
    assert read.entries().values.tolist() == [5, 3, 1]
    assert read.take_entries(np.array([True, False, True])).scale == wider
    with pytest.raises(OffScale, match="row 'ann', column 'Big' has value 3; the scale is one of 1, 5"):
        read_matrix(store, scale=Scale(levels=[1, 5]))


@pytest.mark.parametrize(
    ("part", "number"), [("columns", 2), ("columns", -1), ("rows", 9), ("entries", 3), ("values", 200)]
)
def test_an_entry_outside_is_refused_although_its_checksum_is_right(store: Path, part: str, number: int) -> None:
    described = json.loads((store / MANIFEST).read_text())["parts"][part]
    array = np.fromfile(store / part, dtype=described["type"])
    array[1] = number
    array.tofile(store / part)
    change(store, lambda c: c["parts"][part].update(checksum=zlib.crc32(array.tobytes())))
    for opened in (read_matrix, verify_store):
        with pytest.raises(UnreadableFile, match=f"its part {part} has"):
            opened(store)


def test_a_text_that_is_no_label_is_refused_when_it_is_read(store: Path) -> None:
    (store / "row_text").write_bytes(b"\xff" * 6)
    with pytest.raises(UnreadableFile, match="label"):
        _ = read_matrix(store).row_labels
