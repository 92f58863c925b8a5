"""The Hub: what is uploaded, without a network; and loading it back."""

import inspect
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import ALS, hub
from deepmf.datasets import generate
from deepmf.errors import FileAbsent


class LocalHub:
    """Stands in for `huggingface_hub.HfApi`: repositories are folders."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create_repo(
        self, repo_id: str, *, private: bool | None = None, exist_ok: bool = False
    ) -> str:
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        return repo_id

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return f"https://example.org/{repo_id}"


@pytest.fixture(scope="module")
def model() -> ALS:
    return ALS(latent_size=3, epochs=3, seed=0).fit(generate(40, 20, density=0.4, seed=0).matrix)


def test_a_model_comes_back_from_the_hub(model: ALS, tmp_path: Path) -> None:
    assert hub.push_to_hub(model, "ann/films", api=LocalHub(tmp_path)).endswith("ann/films")
    assert {path.name for path in (tmp_path / "ann" / "films").iterdir()} == {
        "README.md",
        "model.safetensors",
    }
    again = hub.from_pretrained(tmp_path / "ann" / "films")
    np.testing.assert_array_equal(again.complete(), model.complete())
    with pytest.raises(FileAbsent, match="model.safetensors"):
        hub.from_pretrained(tmp_path)


def test_the_card_tells_what_the_model_is(model: ALS) -> None:
    card = hub.make_card(model, "ann/films")
    assert card.startswith("---\nlibrary_name: deepmf\n")
    for fact in (
        "# films",
        "40 rows x 20 columns",
        "`ALS`",
        "latent_size=3",
        "training entries and all ids",
    ):
        assert fact in card


def test_the_calls_fit_the_library(
    monkeypatch: pytest.MonkeyPatch, model: ALS, tmp_path: Path
) -> None:
    library: Any = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
    calls: dict[str, Any] = {"repo_id": "ann/films", "private": None, "exist_ok": True}
    inspect.signature(library.HfApi.create_repo).bind(None, **calls)
    inspect.signature(library.HfApi.upload_folder).bind(
        None, repo_id="r", folder_path="f", commit_message="m"
    )
    inspect.signature(library.hf_hub_download).bind(
        "ann/films", hub.MODEL_FILE, revision=None, token=None
    )
    model.save(tmp_path / hub.MODEL_FILE)
    monkeypatch.setattr(library, "hf_hub_download", lambda repository, file, **_: tmp_path / file)
    np.testing.assert_array_equal(hub.from_pretrained("ann/films").complete(), model.complete())
