"""Every example runs and is short, and its figures are better than those of the means."""

import ast
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deepmf import load

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
COMPARED = re.compile(
    r"(.*): means ([\d.]+), (?:OrdinalDMF|DMF|DMF-D|ALS|DMFImputer) ([\d.]+)$", re.MULTILINE
)


@pytest.mark.parametrize("name", ["film_features", "genotypes", "sensors", "text_features"])
@pytest.mark.slow
def test_example_runs_and_beats_the_means(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    compared = COMPARED.findall(capsys.readouterr().out)
    assert compared, "an example prints the means' figure and the model's"
    for what, means, model in compared:
        ratio = float(model) / float(means)
        assert ratio > 1.08 if what.startswith(("share", "accuracy")) else ratio < 0.93, (
            f"{what}: means {means}, model {model}"
        )
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_what_it_shows(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 80


@pytest.mark.slow
def test_settings_that_were_searched_are_no_worse(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "tuning.py"), run_name="__main__")
    default, tuned = re.findall(r"test RMSE, \w+: ([\d.]+)", capsys.readouterr().out)
    assert float(tuned) <= float(default)


@pytest.mark.slow
def test_onnx_predicts_as_deepmf_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "onnx_export.py"))["main"](tmp_path)
    assert float(capsys.readouterr().out.split(":")[1]) < 1e-4


class LocalHub:
    """Stands in for `huggingface_hub.HfApi`: repositories are folders."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create_repo(self, repository: str, *, private: bool, exist_ok: bool) -> None:
        assert private
        (self.root / repository).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(self, *, repo_id: str, folder_path: str) -> None:
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)

    def hf_hub_download(self, repository: str, file: str) -> str:
        return str(self.root / repository / file)


def test_a_model_comes_back_from_the_hub(tmp_path: Path) -> None:
    example = runpy.run_path(str(FOLDER / "model_hub.py"))
    example["main"]("ann/films", LocalHub(tmp_path))
    card = (tmp_path / "ann" / "films" / "README.md").read_text(encoding="utf-8")
    assert "200 rows x 80 columns" in card and "ALS of deepmf" in card
    assert load(tmp_path / "ann" / "films" / "model.safetensors").entries_.train.shape == (200, 80)


class LocalMLflow(SimpleNamespace):
    """Stands in for MLflow: keeps what was logged, and gives it back as the `pyfunc` gets it."""

    def log_model(self, *, artifacts: dict[str, str], **_: Any) -> SimpleNamespace:
        copied = shutil.copy(artifacts["model"], self.folder / "artifact")
        return SimpleNamespace(artifacts={"model": copied})


def test_mlflow_predicts_as_deepmf_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyfunc, registered = LocalMLflow(PythonModel=object, folder=tmp_path), list[Any]()
    mlflow = SimpleNamespace(pyfunc=pyfunc, models=SimpleNamespace(set_model=registered.append))
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", pyfunc)  # type: ignore[arg-type]
    example = runpy.run_path(str(FOLDER / "mlflow_model.py"))
    model = example["ALS"](seed=0, epochs=2).fit(example["generate"](40, 20, seed=0).matrix)
    (predictor,) = registered
    predictor.load_context(example["log_model"](model))
    rows, columns, _ = (labels[:5] for labels in model.entries_.train.entries())
    pairs = {"row": np.append(rows, "nobody"), "column": np.append(columns, columns[0])}
    predictions = predictor.predict(None, pairs)
    np.testing.assert_array_equal(predictions[:5], model.predict(rows, columns))
    assert np.isfinite(predictions[5])
