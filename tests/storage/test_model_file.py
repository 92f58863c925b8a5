"""The model file: everything comes back to the bit, and nothing else is ever taken for it."""

import json
import os
import struct
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save, save_file

from deepmf.errors import BadModelFile, FileAbsent
from deepmf.storage import model_file
from deepmf.storage.model_file import (
    FORMAT,
    StoredFile,
    TensorFacts,
    compute_digest,
    encode_beginning,
    is_own_file,
    map_file,
    read_file,
    verify_file,
    write_file,
)

TYPES = "bool float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()

some_tensors = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.sampled_from(TYPES).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
        )
    ),
    max_size=4,
)
some_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
some_content = st.dictionaries(st.text(max_size=5), some_json, max_size=4)

CONTENT = {
    "settings": {"hidden_sizes": [200, 100], "name": "é"},
    "history": [1.5, 0.1, None],
    "fitted": True,
}
TENSORS: dict[str, npt.NDArray[Any]] = {
    "weights": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "half": np.array([0.5, np.nan, -np.inf], dtype=np.float16),
    "scalar": np.array(7, dtype=np.int64),
    "empty": np.zeros((0, 3), dtype=np.int8),
    "mask": np.array([True, False]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    write_file(path, kind="model", content=CONTENT, tensors=TENSORS)
    return path


def assert_same(
    found: StoredFile, kind: str, content: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]
) -> None:
    # As text: 1, 1.0 and True are equal, and so are 0.0 and -0.0.
    assert (found.kind, json.dumps(found.content)) == (kind, json.dumps(content))
    assert found.tensors.keys() == tensors.keys()
    for name, array in tensors.items():
        assert (found.tensors[name].dtype, found.tensors[name].shape) == (array.dtype, array.shape)
        assert found.tensors[name].tobytes() == array.tobytes()


def craft(path: Path, header: str, **tensors: npt.NDArray[Any]) -> None:
    save_file(tensors, path, {"deepmf": header})


def raw(header: bytes, data: bytes = b"", *, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


@given(content=some_content, tensors=some_tensors, kind=st.sampled_from(["model", "checkpoint"]))
@pytest.mark.slow
def test_everything_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    content: dict[str, Any],
    tensors: dict[str, npt.NDArray[Any]],
    kind: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip"
    write_file(path, kind=kind, content=content, tensors=tensors)
    assert_same(read_file(str(path), kind=kind), kind, content, tensors)


def test_memory_in_any_order_is_stored_in_order(path: Path) -> None:
    square = np.arange(16.0).reshape(4, 4)
    square.flags.writeable = False
    views = {"turned": square.T, "stepped": square[::2, ::-1], "one": square[1:2, 3]}
    views["big"] = square.astype(">f8")
    write_file(path, kind="model", content={}, tensors=views)
    for name, array in read_file(path, kind="model").tensors.items():
        np.testing.assert_array_equal(array, views[name])
        assert array.dtype == np.float64


def test_the_file_is_plain_safetensors_and_depends_on_content_alone(path: Path) -> None:
    first = path.read_bytes()
    write_file(path, kind="model", content=CONTENT, tensors=dict(reversed(TENSORS.items())))
    assert path.read_bytes() == first == save(load_file(path), {"deepmf": header_of(path)})
    assert json.loads(header_of(path))["content"] == CONTENT


def test_numbers_that_json_lacks_become_null(path: Path) -> None:
    infinite = float("inf"), -float("inf")
    content = {"loss": [float("nan"), 1.0, infinite], "best": {"epoch": np.float64("nan")}}
    write_file(path, kind="checkpoint", content=content, tensors={})
    plain = {"loss": [None, 1.0, [None, None]], "best": {"epoch": None}}
    assert read_file(path, kind="checkpoint").content == plain


@pytest.mark.parametrize(
    "content", [{1: "a"}, {"a": [{None: 1}]}, {"a": {1, 2}}, {"a": np.zeros(2)}]
)
def test_content_that_would_not_come_back_is_a_bug(path: Path, content: dict[str, Any]) -> None:
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_file(path, kind="model", content=content, tensors={})
    assert path.read_bytes() == before


def test_mapped_tensors_are_aligned_and_changes_of_them_are_private(path: Path) -> None:
    mapped = map_file(path)
    assert_same(mapped, "model", CONTENT, TENSORS)
    assert mapped.values == json.loads(header_of(path))["values"]
    assert mapped.version == version("deepmf")
    assert all(array.flags.aligned for array in mapped.tensors.values())
    mapped.tensors["weights"][:] = 0
    np.testing.assert_array_equal(load_file(path)["weights"], TENSORS["weights"])


@pytest.mark.skipif(
    sys.platform != "linux", reason="files with holes, and how much memory there is"
)
def test_a_file_larger_than_memory_is_mapped(path: Path) -> None:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    # twice the memory, in 8 bytes each
    n_numbers = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    whole = json.loads(header["__metadata__"]["deepmf"])
    del whole["sha256"]
    start = encode_beginning(whole, {"large": TensorFacts("float64", [n_numbers])})
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + 8 * n_numbers)  # a hole takes no room on the disk
    assert map_file(path).tensors["large"][[0, n_numbers // 2, -1]].tolist() == [0, 0, 0]


def test_verify_reads_everything(path: Path) -> None:
    assert verify_file(path, kind="model").content == CONTENT
    content, digest = bytearray(path.read_bytes()), compute_digest(path)
    content[-1] ^= 1
    path.write_bytes(content)
    map_file(path)  # whose values are not read
    assert compute_digest(path) == digest
    with pytest.raises(BadModelFile, match="checksum"):
        verify_file(path, kind="model")
    path.write_bytes(content[:-1])
    for read in (map_file, verify_file):
        with pytest.raises(BadModelFile, match="truncated"):
            read(path, kind="model")  # type: ignore[operator]
    write_file(path, kind="model", content={}, tensors=TENSORS)
    assert compute_digest(path) != digest


def test_own_files_are_told_from_others(path: Path, tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "foreign")
    os.mkfifo(tmp_path / "pipe")
    others = [tmp_path, *(tmp_path / name for name in ("foreign", "pipe", "none", "null\0"))]
    assert is_own_file(path) and not any(map(is_own_file, others))


def test_what_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for other, word in {
        tmp_path: "directory",
        tmp_path / "pipe": "ordinary",
        tmp_path / "file": "empty",
        tmp_path / "file" / "inside": "directory",
        "null\0character": "null",
    }.items():
        with pytest.raises(BadModelFile, match=word):
            read_file(other, kind="model")
    with pytest.raises(FileAbsent, match="none$"):
        read_file(tmp_path / "none", kind="model")


def test_another_kind_and_a_file_without_permission(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError("Permission denied (os error 13)")

    with pytest.raises(BadModelFile, match="checkpoint"):
        read_file(path, kind="checkpoint")
    monkeypatch.setattr(model_file, "safe_open", denied)  # root may read anything
    with pytest.raises(BadModelFile, match="Permission"):
        read_file(path, kind="model")


A_TENSOR = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HEADER = {"format": FORMAT, "version": "0", "kind": "model"}
HEADER |= {"content": {}, "values": "", "sha256": "0" * 64}
UNSIGNED = json.dumps({name: part for name, part in HEADER.items() if name != "sha256"})


def claim(**tensors: Any) -> bytes:
    """Return a file with the header of deepmf that claims to have some tensors."""
    table = {"__metadata__": {"deepmf": json.dumps(HEADER)}} | tensors
    return raw(json.dumps(table).encode(), b"abcd")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"short", "truncated"),
        (b"PK\x03\x04 some other kind of file, long enough", "truncated"),
        (raw(b"{}", length=2**64 - 1), "truncated"),
        (raw(b"{}", length=1), "truncated"),
        (raw(b"", b"abcd"), "truncated"),
        (raw(b"[" * 100_000), "truncated"),
        (raw(b'{"__metadata__":' + b'{"deepmf":' * 10_000), "truncated"),
        (claim(a=A_TENSOR | {"data_offsets": [-4, 0]}), "truncated"),
        (claim(a=A_TENSOR | {"data_offsets": [0, 400]}), "truncated"),
        (claim(a=A_TENSOR, b=A_TENSOR), "truncated"),
        (claim(a=A_TENSOR | {"shape": [2**40, 2**40]}), "truncated"),
        (claim(a=A_TENSOR) + b"efgh", "truncated"),
        # tensors that numpy cannot hold
        (claim(a=A_TENSOR | {"dtype": "BF16", "shape": [2]}), "damaged"),
        (claim(a=A_TENSOR | {"dtype": "F8_E4M3", "shape": [4]}), "damaged"),
        (claim(a=A_TENSOR | {"shape": [1] * 70}), "damaged"),
        (claim(a={"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}), "damaged"),
        # files of others
        (save(TENSORS, None), "not one of deepmf"),
        (save(TENSORS, {"format": "pt"}), "not one of deepmf"),
        *((save({"a": np.zeros(3)}, {"deepmf": header}), word) for header, word in [
            ("", "JSON"),
            ("{", "JSON"),
            ("[" * 100_000 + "]" * 100_000, "JSON"),
            ("[]", "'format'"),
            ("{}", "'format'"),
            (json.dumps(HEADER | {"format": 0}), "format 0"),
            (json.dumps(HEADER | {"format": True}), "'format'"),
            (json.dumps(HEADER | {"kind": None}), "'kind'"),
            (json.dumps(HEADER | {"content": []}), "'content'"),
            (json.dumps(HEADER | {"sha256": 12}), "'sha256'"),
            (json.dumps(HEADER | {"values": None}), "'values'"),
            (UNSIGNED, "'sha256'"),
            (json.dumps(HEADER), "checksum"),
            (json.dumps(HEADER | {"content": {"a": float("nan")}}), "checksum"),
            (json.dumps(HEADER).replace("{}", '{"a":1e999}'), "checksum"),
            (json.dumps(HEADER | {"format": FORMAT + 1, "content": "other"}), "newer"),
        ]),
    ],
    ids=range(34),
)  # fmt: skip
def test_what_is_no_model_file(tmp_path: Path, content: bytes, word: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BadModelFile, match=word):
        read_file(tmp_path / "file", kind="model")


def test_nesting_at_the_very_limit_is_refused(tmp_path: Path) -> None:
    for depth in range(900, 1010):
        nested = '{"a":' + "[" * depth + "]" * depth + "}"
        craft(tmp_path / "file", json.dumps(HEADER).replace("{}", nested))
        with pytest.raises(BadModelFile):
            read_file(tmp_path / "file", kind="model")


def header_of(path: Path) -> str:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header: str = json.loads(content[8 : 8 + length])["__metadata__"]["deepmf"]
    return header


WEIGHTS = TENSORS["weights"]


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"weights": WEIGHTS + np.float32(1e-6)}, ""),
        ({"weights": WEIGHTS.reshape(4, 3)}, ""),
        ({"weights": WEIGHTS.view(np.int32)}, ""),
        ({"more": np.zeros(0)}, ""),
        ({"masks": TENSORS["mask"]}, "mask"),
        ({}, "empty"),
        (("200", "300"), ""),
        (("null", "0"), ""),
        (('"model"', '"models"'), ""),
        # keys that are repeated: the last wins, or their order has changed
        (("}", ',"content":{"fitted":false}}'), ""),
        (("{", '{"content":{"fitted":false},'), ""),
    ],
)
def test_what_was_changed_is_noticed(path: Path, change: Any, lost: str) -> None:
    header = header_of(path)
    tensors = load_file(path)
    craft(path, header, **tensors)
    assert_same(read_file(path, kind="model"), "model", CONTENT, TENSORS)
    tensors.pop(lost, None)
    if isinstance(change, dict):
        tensors |= change
    elif change[0] == "}":
        header = header[:-1] + change[1]
    else:
        assert change[0] in header
        header = header.replace(*change, 1)
    craft(path, header, **tensors)
    with pytest.raises(BadModelFile, match="checksum"):
        read_file(path, kind="model")


@pytest.mark.slow
def test_every_single_flipped_byte_is_noticed_or_harmless(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x01]) + whole[at + 1 :])
        try:
            found = read_file(path, kind="model")
        except BadModelFile:
            continue
        assert_same(found, "model", CONTENT, TENSORS)
