"""`deepmf export`: the folder of the library; the tests of `deepmf.export` say what is in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepmf.export import onnx_folder


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Path]]:
    """What the library was asked to export; it writes one file, in no time."""
    asked: list[tuple[Any, Path]] = []

    def export_onnx(model: Any, folder: Path) -> list[Path]:
        asked.append((model, folder))
        folder.mkdir()
        (folder / "rows.onnx").write_bytes(b"123")
        return [folder / "rows.onnx"]

    monkeypatch.setattr(onnx_folder, "export_onnx", export_onnx)
    return asked


def test_the_model_its_extension_and_the_folder(
    run: Any, folder: Path, tmp_path: Path, exported: list[tuple[Any, Path]]
) -> None:
    model = folder / "means.safetensors"
    code, out, err = run("export", model, "-o", tmp_path / "out", "--extend", folder / "new.csv", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"model": "Means", "files": [str(tmp_path / "out" / "rows.onnx")]}
    ((fitted, place),) = exported
    assert place == tmp_path / "out"
    assert len(fitted.row_labels_) > fitted.entries_.train.shape[0]


def test_in_words(run: Any, folder: Path, tmp_path: Path, exported: list[tuple[Any, Path]]) -> None:
    code, out, _ = run("export", folder / "means.safetensors", "-o", tmp_path / "out")
    assert (code, len(exported)) == (0, 1)
    assert "rows.onnx" in out


def test_what_cannot_be_exported(run: Any, folder: Path, tmp_path: Path) -> None:
    code, out, err = run("export", folder / "means.safetensors", "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert err == "deepmf: 'means' cannot be exported; what can is dmf, dmf-d, dmf-o\n"
    assert list(tmp_path.iterdir()) == []
