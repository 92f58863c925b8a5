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

from deepmf.errors import BadModelFile, FileAbsent, UnreadableFile
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


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (3, 2)])
def test_every_type_and_shape(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    tensors: dict[str, npt.NDArray[Any]] = {"a": np.ones(shape, dtype=dtype)}
    write_file(tmp_path / "file", kind="model", content={}, tensors=tensors)
    assert_same(read_file(tmp_path / "file", kind="model"), "model", {}, tensors)


def test_memory_in_any_order_is_stored_in_order(tmp_path: Path) -> None:
    square = np.arange(16.0).reshape(4, 4)
    square.flags.writeable = False
    views = {
        "turned": square.T,
        "stepped": square[::2, ::-1],
        "big": square.astype(">f8"),
        "one": square[1:2, 3],
    }
    write_file(tmp_path / "file", kind="model", content={}, tensors=views)
    for name, array in read_file(tmp_path / "file", kind="model").tensors.items():
        np.testing.assert_array_equal(array, views[name])
        assert array.dtype == np.float64


def test_same_arguments_same_bytes(path: Path) -> None:
    first = path.read_bytes()
    write_file(path, kind="model", content=CONTENT, tensors=dict(reversed(TENSORS.items())))
    assert path.read_bytes() == first


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    content = {
        "loss": [float("nan"), 1.0, (float("inf"), -float("inf"))],
        "best": {"epoch": np.float64("nan")},
    }
    write_file(tmp_path / "file", kind="checkpoint", content=content, tensors={})
    assert read_file(tmp_path / "file", kind="checkpoint").content == {
        "loss": [None, 1.0, [None, None]],
        "best": {"epoch": None},
    }


@pytest.mark.parametrize(
    "content", [{1: "a"}, {"a": [{None: 1}]}, {"a": {1, 2}}, {"a": np.zeros(2)}]
)
def test_content_that_would_not_come_back_is_a_bug(path: Path, content: dict[str, Any]) -> None:
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_file(path, kind="model", content=content, tensors={})
    assert path.read_bytes() == before


def test_files_are_those_of_safetensors_with_every_number_aligned(path: Path) -> None:
    found = load_file(path)
    assert found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(found[name], array)
    mapped = map_file(path)
    assert (mapped.kind, mapped.values) == ("model", json.loads(header_of(path))["values"])
    assert mapped.version == version("deepmf")
    for name, array in TENSORS.items():
        assert (mapped.tensors[name].dtype, mapped.tensors[name].shape) == (
            array.dtype,
            array.shape,
        )
        np.testing.assert_array_equal(mapped.tensors[name], array)
        assert mapped.tensors[name].flags.aligned
    mapped.tensors["weights"][:] = 0  # changes no file
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
    path.write_bytes(bytes(content))
    map_file(path)  # whose values are not read
    assert compute_digest(path) == digest
    with pytest.raises(BadModelFile, match="checksum"):
        verify_file(path, kind="model")
    path.write_bytes(bytes(content[:-1]))
    for read in (map_file, verify_file):
        with pytest.raises(BadModelFile, match="truncated"):
            read(path, kind="model")  # type: ignore[operator]
    write_file(path, kind="model", content={}, tensors=TENSORS)
    assert compute_digest(path) != digest


def test_own_files_are_told_from_others(path: Path, tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "foreign")
    os.mkfifo(tmp_path / "pipe")
    others = [
        tmp_path / "foreign",
        tmp_path / "pipe",
        tmp_path / "none",
        tmp_path,
        "null\0character",
    ]
    assert is_own_file(path) and not any(map(is_own_file, others))


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileAbsent, match="none$"):
        read_file(tmp_path / "none", kind="model")
    with pytest.raises(BadModelFile, match="directory"):
        read_file(tmp_path, kind="model")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadModelFile, match="ordinary"):
        read_file(tmp_path / "pipe", kind="model")
    (tmp_path / "file").touch()
    with pytest.raises(BadModelFile, match="empty"):
        read_file(tmp_path / "file", kind="model")
    with pytest.raises(BadModelFile, match="directory"):
        read_file(tmp_path / "file" / "inside", kind="model")
    with pytest.raises(BadModelFile, match="null"):
        read_file("null\0character", kind="model")
    assert issubclass(BadModelFile, UnreadableFile)


def test_file_without_permission(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError("Permission denied (os error 13)")

    monkeypatch.setattr(model_file, "safe_open", denied)  # root may read anything
    with pytest.raises(BadModelFile, match="Permission"):
        read_file(path, kind="model")


A_TENSOR = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "content",
    [
        b"short",
        b"PK\x03\x04 some other kind of file, long enough",
        raw(b"{}", length=2**64 - 1),
        raw(b"{}", length=1),
        raw(b"", b"abcd"),
        raw(b"[" * 100_000),
        raw(b'{"__metadata__":' + b'{"deepmf":' * 10_000),
        raw(json.dumps({"a": A_TENSOR | {"data_offsets": [-4, 0]}}).encode(), b"abcd"),
        raw(json.dumps({"a": A_TENSOR | {"data_offsets": [0, 400]}}).encode(), b"abcd"),
        raw(json.dumps({"a": A_TENSOR, "b": A_TENSOR}).encode(), b"abcd"),
        raw(json.dumps({"a": A_TENSOR | {"shape": [2**40, 2**40]}}).encode(), b"abcd"),
        raw(json.dumps({"a": A_TENSOR}).encode(), b"abcdefgh"),
    ],
)
def test_garbage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BadModelFile, match="truncated"):
        read_file(tmp_path / "file", kind="model")


HEADER = {
    "format": FORMAT,
    "version": "0",
    "kind": "model",
    "content": {},
    "values": "",
    "sha256": "0" * 64,
}


@pytest.mark.parametrize(
    "entry, data",
    [
        ({"dtype": "BF16", "shape": [2]}, 4),
        ({"dtype": "F8_E4M3", "shape": [4]}, 4),
        ({"dtype": "F32", "shape": [0, 2**62]}, 0),
        ({"dtype": "F32", "shape": [1] * 70}, 4),
    ],
)
def test_tensors_that_numpy_cannot_hold(tmp_path: Path, entry: dict[str, Any], data: int) -> None:
    header = {
        "__metadata__": {"deepmf": json.dumps(HEADER)},
        "a": entry | {"data_offsets": [0, data]},
    }
    (tmp_path / "file").write_bytes(raw(json.dumps(header).encode(), bytes(data)))
    with pytest.raises(BadModelFile, match="damaged"):
        read_file(tmp_path / "file", kind="model")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {}])
def test_foreign_safetensors_file(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file(TENSORS, tmp_path / "file", metadata)
    with pytest.raises(BadModelFile, match="deepmf"):
        read_file(tmp_path / "file", kind="model")


@pytest.mark.parametrize(
    "header, message",
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[" * 100_000 + "]" * 100_000, "JSON"),
        ("[]", "list"),
        ("{}", "'format'"),
        (json.dumps(HEADER | {"format": 0}), "format 0"),
        (json.dumps(HEADER | {"format": True}), "'format'"),
        (json.dumps(HEADER | {"kind": None}), "'kind'"),
        (json.dumps(HEADER | {"content": []}), "'content'"),
        (json.dumps(HEADER | {"sha256": 12}), "'sha256'"),
        (json.dumps(HEADER | {"values": None}), "'values'"),
        (
            json.dumps(
                {"format": FORMAT, "version": "0", "kind": "model", "content": {}, "values": ""}
            ),
            "'sha256'",
        ),
        (json.dumps(HEADER), "checksum"),
        (json.dumps(HEADER | {"content": {"a": float("nan")}}), "checksum"),
        (json.dumps(HEADER).replace("{}", '{"a":1e999}'), "checksum"),
        (json.dumps(HEADER | {"format": FORMAT + 1, "content": "other"}), "newer"),
    ],
)
def test_crafted_header(tmp_path: Path, header: str, message: str) -> None:
    craft(tmp_path / "file", header, weights=np.zeros(3))
    with pytest.raises(BadModelFile, match=message):
        read_file(tmp_path / "file", kind="model")


def test_nesting_at_the_very_limit_is_refused(tmp_path: Path) -> None:
    for depth in range(900, 1010):
        craft(
            tmp_path / "file",
            json.dumps(HEADER).replace("{}", '{"a":' + "[" * depth + "]" * depth + "}"),
        )
        with pytest.raises(BadModelFile):
            read_file(tmp_path / "file", kind="model")


def test_wrong_kind(path: Path) -> None:
    with pytest.raises(BadModelFile, match="checkpoint"):
        read_file(path, kind="checkpoint")


@pytest.mark.parametrize(
    "change",
    [
        {"weights": TENSORS["weights"] + np.float32(1e-6)},
        {"weights": TENSORS["weights"].reshape(4, 3)},
        {"weights": TENSORS["weights"].view(np.int32)},
        {"more": np.zeros(0)},
    ],
)
def test_changed_tensors_are_noticed(path: Path, change: dict[str, npt.NDArray[Any]]) -> None:
    craft(path, header_of(path), **(load_file(path) | change))
    with pytest.raises(BadModelFile, match="checksum"):
        read_file(path, kind="model")


def header_of(path: Path) -> str:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header: str = json.loads(content[8 : 8 + length])["__metadata__"]["deepmf"]
    return header


def test_renamed_and_lost_tensors_are_noticed(path: Path) -> None:
    tensors, header = load_file(path), header_of(path)
    craft(path, header, **tensors)
    assert_same(read_file(path, kind="model"), "model", CONTENT, TENSORS)
    craft(
        path,
        header,
        **{"masks" if name == "mask" else name: array for name, array in tensors.items()},
    )
    with pytest.raises(BadModelFile, match="checksum"):
        read_file(path, kind="model")
    craft(path, header, **{name: array for name, array in tensors.items() if name != "empty"})
    with pytest.raises(BadModelFile, match="checksum"):
        read_file(path, kind="model")


@pytest.mark.parametrize("old, new", [("200", "300"), ("null", "0"), ('"model"', '"models"')])
def test_changed_header_is_noticed(path: Path, old: str, new: str) -> None:
    header = header_of(path)
    assert old in header
    craft(path, header.replace(old, new), **load_file(path))
    with pytest.raises(BadModelFile, match="checksum"):
        read_file(path, kind="model")


def test_repeated_keys_cannot_smuggle_anything_in(path: Path) -> None:
    tensors, header = load_file(path), header_of(path)
    craft(path, header[:-1] + ',"content":{"fitted":false}}', **tensors)
    with pytest.raises(BadModelFile, match="checksum"):
        read_file(path, kind="model")
    craft(path, '{"content":{"fitted":false},' + header[1:], **tensors)
    with pytest.raises(BadModelFile, match="checksum"):  # the order of the keys has changed too
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


def test_the_file_is_plain_safetensors(path: Path) -> None:
    assert save(load_file(path), {"deepmf": header_of(path)}) == path.read_bytes()
    assert json.loads(header_of(path))["content"] == CONTENT
