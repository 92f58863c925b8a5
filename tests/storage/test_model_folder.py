"""The model folder: everything comes back mapped into memory, and what is not whole is refused in one sentence."""

import errno
import json
import os
import shutil
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.errors import BadModelFile, CannotSave, FileAbsent
from deepmf.storage import model_file
from deepmf.storage.model_file import MappedTensors
from deepmf.storage.model_folder import (
    compute_model_digest,
    count_model_bytes,
    goes_to_folder,
    read_folder,
    read_model_version,
    verify_folder,
    write_folder,
)

CONTENT: dict[str, Any] = {"class": "Means", "history": [1.5, None]}
TENSORS: dict[str, npt.NDArray[Any]] = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.arange(12, 24, dtype=np.float32).reshape(3, 4),
    "c": np.arange(5),
    "large": np.ones(40),
    "empty": np.zeros((0, 3), dtype=np.int8),
}


write_small_shards = partial(write_folder, shard_bytes=50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "ratings.model"
    write_small_shards(path, kind="model", content=CONTENT, tensors=TENSORS)
    return path


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_everything_comes_back(folder: Path) -> None:
    assert files_of(folder) == [f"0000{number}.safetensors" for number in (1, 2, 3, 4)] + ["model.json"]
    found = read_folder(folder, kind="model")
    assert found.content == CONTENT and isinstance(found.tensors, MappedTensors)
    assert found.tensors.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(found.tensors[name], array)
        assert found.tensors[name].dtype == array.dtype
    verify_folder(folder, kind="model")
    assert read_model_version(folder) == version("deepmf")
    assert count_model_bytes(folder) == sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def test_a_tensor_is_never_cut_and_small_ones_share_a_shard(folder: Path) -> None:
    shards = [sorted(model_file.map_file(path).tensors) for path in sorted(folder.glob("*.safetensors"))]
    assert shards == [["a"], ["b"], ["c", "empty"], ["large"]]


def test_when_a_model_goes_to_a_folder(folder: Path, tmp_path: Path) -> None:
    assert goes_to_folder("x.model", 0)
    assert not goes_to_folder(tmp_path / "x.safetensors", 2 << 30)
    assert goes_to_folder(tmp_path / "x.safetensors", (2 << 30) + 1)
    assert not goes_to_folder(tmp_path / "x.safetensors", 1 << 40, largest_file=1 << 41)
    folder.rename(tmp_path / "x.safetensors")
    assert goes_to_folder(tmp_path / "x.safetensors", 0)


def test_a_new_folder_takes_the_place_of_an_old_one_and_of_a_file(folder: Path) -> None:
    before, mapped = compute_model_digest(folder), read_folder(folder, kind="model")
    write_folder(folder, kind="model", content=CONTENT, tensors={"a": np.zeros(2)})
    assert files_of(folder) == ["00001.safetensors", "model.json"]
    assert compute_model_digest(folder) != before
    np.testing.assert_array_equal(mapped.tensors["b"], TENSORS["b"])  # whoever has the old one open keeps it
    file = folder.with_name("file.model")
    file.write_text("anything")
    write_folder(file, kind="model", content=CONTENT, tensors={})
    assert read_folder(file, kind="model").tensors == {}
    assert {path.name for path in folder.parent.iterdir()} == {"ratings.model", "file.model"}


def test_output_that_is_there_and_no_model(tmp_path: Path) -> None:
    (tmp_path / "photos.model").mkdir()
    (tmp_path / "photos.model" / "cat.png").touch()
    with pytest.raises(CannotSave, match="exists"):
        write_folder(tmp_path / "photos.model", kind="model", content=CONTENT, tensors=TENSORS)
    assert files_of(tmp_path / "photos.model") == ["cat.png"] and files_of(tmp_path) == ["photos.model"]


@pytest.mark.parametrize("at", ["flush", "manifest", "exchange"])
def test_full_disk_leaves_the_old_folder_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(CannotSave, match="space"):
        if at == "flush":
            patch.setattr(os, "fsync", full)
        elif at == "manifest":
            patch.setattr(Path, "write_text", full)
        else:
            patch.setattr("deepmf.files.exchange", full)
        write_folder(folder, kind="model", content={"new": 1}, tensors=TENSORS)
    assert read_folder(folder, kind="model").content == CONTENT
    verify_folder(folder, kind="model")
    assert files_of(folder.parent) == ["ratings.model"]


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="model.json"):
        read_folder(tmp_path, kind="model")
    with pytest.raises(FileAbsent, match="folder"):
        read_folder(tmp_path / "none", kind="model")


def test_a_missing_shard(folder: Path) -> None:
    (folder / "00002.safetensors").unlink()
    with pytest.raises(BadModelFile, match="00002"):
        read_folder(folder, kind="model")


def test_a_truncated_shard(folder: Path) -> None:
    shard = folder / "00002.safetensors"
    n_bytes = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-1])
    said = f"{n_bytes - 1} bytes"
    with pytest.raises(BadModelFile, match=said):
        read_folder(folder, kind="model")


def test_swapped_shards(folder: Path) -> None:
    one, two, aside = (folder / name for name in ("00001.safetensors", "00002.safetensors", "aside"))
    assert one.stat().st_size == two.stat().st_size
    one.rename(aside), two.rename(one), aside.rename(two)
    said = "00001.safetensors"
    for read in (lambda: read_folder(folder, kind="model"), lambda: verify_folder(folder, kind="model")):
        with pytest.raises(BadModelFile, match=said):
            read()


def test_a_shard_of_another_model(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.model"
    write_small_shards(other, kind="model", content=CONTENT, tensors=TENSORS | {"a": TENSORS["a"] + 1})
    shutil.copy(other / "00001.safetensors", folder)
    with pytest.raises(BadModelFile, match="00001"):
        read_folder(folder, kind="model")


def test_damaged_values_are_found_by_verifying(folder: Path) -> None:
    shard = folder / "00002.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(bytes(content))
    read_folder(folder, kind="model")
    with pytest.raises(BadModelFile, match="checksum"):
        verify_folder(folder, kind="model")


def test_a_shard_alone_is_no_model(folder: Path) -> None:
    with pytest.raises(BadModelFile, match="shard"):
        model_file.read_file(folder / "00001.safetensors", kind="model")
    write_folder(folder, kind="checkpoint", content=CONTENT, tensors=TENSORS)
    (folder / "checkpoint.json").rename(folder / "model.json")
    with pytest.raises(BadModelFile, match="checkpoint"):
        read_folder(folder, kind="model")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda text: text[:-2], "JSON"),
        (lambda text: text.replace("Means", "Moans"), "checksum"),
        (lambda text: text.replace("1.5", "NaN"), "checksum"),
        (lambda text: text.replace('"format":', '"format":9'), "newer"),
        (lambda text: "\udcff", "UTF-8"),
        (lambda text: sealed({"content": CONTENT}), "shards"),
        (lambda text: sealed({"content": CONTENT, "shards": [1]}), "shards"),
        (
            lambda text: sealed({"content": {}, "shards": [{"file": "../x", "bytes": 1, "sha256": ""}]}),
            "'../x'",
        ),
    ],
)
def test_a_manifest_that_is_none(folder: Path, change: Any, message: str) -> None:
    manifest = folder / "model.json"
    manifest.write_bytes(change(manifest.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(BadModelFile, match=message):
        read_folder(folder, kind="model")


def sealed(content: dict[str, Any]) -> str:
    header = model_file.make_header("model", content)
    return json.dumps(header | {"sha256": model_file.compute_checksum(header, {})})
