"""`deepmf inspect`: what a file holds is what was put into it."""

import io
import json
import math
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import deepmf
from deepmf.cli.settings import parse_assignment
from deepmf.data import AreaSplit, datasets, read_matrix
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.dmfd import DMFD
from deepmf.models.loading import load
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.storage.model_file import FORMAT
from deepmf.training.history import describe_stages


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, split: AreaSplit) -> Path:
    """DMF-D with an extension."""
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    settings: dict[str, Any] = {
        "hidden_sizes": (8,),
        "latent_size": 4,
        "dropout": 0.25,
        "validate_every": 1,
    }
    fitted = DMFD(**settings, epochs=3, device="cpu").fit(split.train, split.validation)
    fitted.extend(split.extension).save(path)
    return path


def test_as_json(run: Any, model: Path, split: AreaSplit) -> None:
    shown, fitted = run.json("inspect", model), load(model)
    assert isinstance(fitted, DMFD)
    history = fitted.history_
    n_rows, n_columns = split.train.shape
    assert shown == {
        "file": str(model),
        "bytes": model.stat().st_size,
        "format": FORMAT,
        "version": deepmf.__version__,
        "verified": True,
        "model": "DMFD",
        "predicts": ["I", "II", "III", "IV"],
        "settings": json.loads(json.dumps(fitted.settings.to_dict())),
        "chosen": fitted.chosen_,
        "chosen_on_entries": {},
        "scale": {"low": 1, "high": 5, "levels": [1, 2, 3, 4, 5]},
        "rows": n_rows,
        "columns": n_columns,
        "entries": split.train.n_entries,
        "dropped": 0,
        "features": {},
        "names": {"rows": 0, "columns": 0},
        "training": {
            "epochs": 3,
            "best_epoch": (history.best_epoch or 0) + 1,
            "validation_rmse": history.best_error,
            "means_rmse": history.means_error,
            "stages": {},
            "last_loss": history.records[-1].loss,
            "stopped": "epochs",
        },
        "boundaries": fitted.boundaries_.tolist(),
        "extension": {
            "new_rows": split.extension.shape[0] - n_rows,
            "new_columns": split.extension.shape[1] - n_columns,
            "entries": split.extension.n_entries,
        },
    }


def test_in_words(run: Any, model: Path) -> None:
    out = run("inspect", model).out
    lines = {line[:12].strip(): line[12:] for line in out.splitlines() if line[:12].strip()}
    assert lines.keys() >= {"model", "settings", "matrix", "boundaries", "extended by"}
    assert lines["file"].startswith(f"{model}, ")
    assert lines["scale"] == "levels 1 2 3 4 5"
    assert "best epoch" in lines["training"]
    error, means_error = load(model).history_.best_error, load(model).history_.means_error
    assert f"validation RMSE {error:.4f} (the means: {means_error:.4f})" in " ".join(out.split())
    sections = [
        each[12:] for each in re.split(r"\n(?=\S)", out) if each.startswith(("settings", "chosen"))
    ]
    words = " ".join(sections).split()
    # as --set takes them
    assert DMFD(**dict(map(parse_assignment, words))).settings == load(model).settings


@pytest.mark.slow
def test_what_was_chosen_and_the_stages(run: Any, tmp_path: Path, split: AreaSplit) -> None:
    path = tmp_path / "m.safetensors"
    given: dict[str, Any] = {
        "effort": "quick",
        "epochs": 2,
        "linear_iterations": 4,
        "device": "cpu",
    }
    fitted = OrdinalDMF(**given).fit(split.train, split.validation)
    fitted.save(path)
    shown = run.json("inspect", path)
    assert (
        shown["chosen"] == json.loads(json.dumps(fitted.chosen_))
        and shown["chosen"]["networks"] == 0
    )
    assert "epochs" not in shown["chosen"] and shown["settings"]["epochs"] == 2
    assert shown["training"]["stages"] == fitted.history_.stages
    out = run("inspect", path).out
    chosen = out.partition("\nchosen")[2].partition("\non entries")[0].split()
    parts, members = fitted.chosen_["parts"], fitted.chosen_["members"]
    assert members["sampler"] == 1.0 and "members sampler=1.0" in " ".join(out.split())
    told = {"parts": parts, "members": members}
    assert dict(map(parse_assignment, chosen)) | told == fitted.chosen_
    assert f"network {parts['network']}" in " ".join(out.split())
    on_entries = out.partition("\non entries")[2].partition("\nmembers")[0].split()
    assert [word.partition("=")[0] for word in on_entries] == list(fitted.chosen_on_entries_)
    finite = {
        name: value for name, value in fitted.chosen_on_entries_.items() if math.isfinite(value)
    }
    assert finite.items() <= shown["chosen_on_entries"].items()
    assert " effort=quick " in " ".join(out.partition("\nchosen")[0].split())
    assert f"stages validation RMSE {describe_stages(fitted.history_.stages)}" in " ".join(
        out.split()
    )


def test_standard_input(run: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(model.read_bytes())))
    assert run("inspect", "-").out.startswith(f"file        -, {model.stat().st_size:,} bytes, ")


def test_a_memory_mapped_model_is_verified_where_that_is_asked_for(
    run: Any, model: Path, tmp_path: Path
) -> None:
    mapped = tmp_path / "ratings.model"
    load(model).save(mapped)
    code, out, _ = run("inspect", mapped)
    assert code == 0 and "only types and shapes" in out
    assert run.json("inspect", mapped)["verified"] is False
    code, out, _ = run("inspect", mapped, "--verify", "--json")
    assert code == 0
    described, of_file = json.loads(out), run.json("inspect", model)
    assert {name: described[name] for name in of_file if name not in ("file", "bytes")} == {
        name: value for name, value in of_file.items() if name not in ("file", "bytes")
    }
    content = bytearray(mapped.read_bytes())
    content[-1] ^= 1
    mapped.write_bytes(bytes(content))
    assert run("inspect", mapped).code == 0
    assert "checksum" in run.fails("inspect", mapped, "--verify")
    (tmp_path / "m.safetensors").write_bytes(model.read_bytes()[5:])
    assert "damaged" in run.fails("inspect", tmp_path / "m.safetensors")  # it is no table


@pytest.fixture
def store(tmp_path: Path) -> Path:
    stars = Scale([1, 2, 3, 4, 5])
    ObservedMatrix.from_entries(["ann", "ann", "bob"], [10, 20, 20], [5, 3, 1], stars).write(
        tmp_path / "r.store"
    )
    return tmp_path / "r.store"


def test_a_store(run: Any, store: Path) -> None:
    code, out, err = run("inspect", store, "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown == {
        "file": str(store),
        "bytes": store.stat().st_size,
        "format": FORMAT,
        "version": version("deepmf"),
        "verified": False,
        "rows": 2,
        "columns": 2,
        "entries": 3,
        "scale": {"low": 1, "high": 5, "levels": [1, 2, 3, 4, 5]},
        "mean": 3,
        "values": "float32",
        "labels": {"rows": "str", "columns": "int"},
    }
    lines = run("inspect", store, "--verify").out.splitlines()
    assert lines[0].startswith(f"store       {store}, {store.stat().st_size:,} bytes")
    assert "values      float32, mean 3.0000" in lines
    assert "values are not checked" in run("inspect", store).out
    assert "the checksums match" in run("inspect", store, "--verify").out


def test_entries_are_described_as_they_are_read(run: Any, folder: Path) -> None:
    matrix = read_matrix(folder / "train.csv")
    code, out, err = run("inspect", folder / "train.csv")
    assert (code, err) == (0, "") and out.startswith(f"{matrix.describe()}\n")
    first = [", ".join(map(str, entry)) for entry in matrix.to_frame().rows()[:3]]
    assert out.splitlines()[-3:] == first
    shown = run.json("inspect", folder / "train.csv")
    assert len(shown.pop("first")) == len(shown.pop("fields")) == 3
    assert shown == json.loads(json.dumps(matrix.describe().to_dict()))
    shown = json.loads(run("inspect", folder / "train.csv", "--json", "--scale", "0:10").out)
    assert shown["scale"] == {"low": 0, "high": 10, "levels": None}


def test_data_sets_are_described_by_name_and_never_downloaded(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPMF_DATA", str(tmp_path))
    assert "datasets fetch ml-1m" in run.fails("inspect", "ml-1m")
    (tmp_path / "ml-1m").mkdir()
    (tmp_path / "ml-1m" / "ratings.dat").write_text("1::10::5::978300760\n2::10::1::978300762\n")
    assert run("inspect", "ml-1m").out.startswith(str(datasets.load("ml-1m").describe()))
    assert "no data set" in run.fails("inspect", "ml-99")
