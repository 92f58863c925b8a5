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


def lines_of(out: str) -> dict[str, str]:
    """Return the lines of facts by their name, each whole."""
    lines = re.split(r"\n(?=\S)", out.rstrip())
    return {line[:20].strip(): " ".join(line[20:].split()) for line in lines}


def test_in_words(run: Any, model: Path) -> None:
    lines, fitted = lines_of(run("inspect", model).out), load(model)
    assert (lines["file"], lines["model"]) == (str(model), "DMFD")
    assert lines.keys() >= {"rows", "entries", "boundaries", "extension"}
    assert f"validation_rmse={fitted.history_.best_error}" in lines["training"]
    words = f"{lines['settings']} {lines.get('chosen', '')}".split()
    # as --set takes them
    assert DMFD(**dict(map(parse_assignment, words))).settings == fitted.settings


@pytest.mark.slow
def test_what_was_chosen_and_the_stages(run: Any, tmp_path: Path, split: AreaSplit) -> None:
    path = tmp_path / "m.safetensors"
    given: dict[str, Any] = {"effort": "quick", "epochs": 2, "linear_iterations": 4}
    fitted = OrdinalDMF(**given, device="cpu").fit(split.train, split.validation)
    fitted.save(path)
    shown = run.json("inspect", path)
    assert shown["chosen"] == json.loads(json.dumps(fitted.chosen_))
    assert "epochs" not in shown["chosen"] and shown["settings"]["epochs"] == 2
    assert shown["training"]["stages"] == fitted.history_.stages
    lines = lines_of(run("inspect", path).out)
    chosen = dict(map(parse_assignment, lines["chosen"].split()))
    parts, members = fitted.chosen_["parts"], fitted.chosen_["members"]
    assert chosen | {"parts": parts, "members": members} == fitted.chosen_
    assert "sampler=1.0" in lines["chosen members"] and parts["network"] in lines["chosen parts"]
    names = [word.partition("=")[0] for word in lines["chosen on entries"].split()]
    assert names == list(fitted.chosen_on_entries_)
    finite = {
        name: value for name, value in fitted.chosen_on_entries_.items() if math.isfinite(value)
    }
    assert finite.items() <= shown["chosen_on_entries"].items()
    assert "effort=quick" in lines["settings"] and "training stages" in lines


def test_standard_input(run: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(model.read_bytes())))
    shown = lines_of(run("inspect", "-").out)
    assert (shown["file"], shown["bytes"]) == ("-", f"{model.stat().st_size:,}")


def test_a_memory_mapped_model_is_verified_where_that_is_asked_for(
    run: Any, model: Path, tmp_path: Path
) -> None:
    mapped = tmp_path / "ratings.model"
    load(model).save(mapped)
    code, out, _ = run("inspect", mapped)
    assert code == 0 and "--verify" in out
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
    lines = lines_of(run("inspect", store, "--verify").out)
    assert (lines["file"], lines["mean"], lines["verified"]) == (str(store), "3.0", "True")
    assert "--verify" in run("inspect", store).out


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
