"""`deepmf evaluate`: the library's errors, as a table and as JSON."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from deepmf.data.splits import AreaSplit
from deepmf.evaluation.areas import evaluate
from deepmf.models.load import load


def test_errors_by_area(run: Any, folder: Path, split: AreaSplit) -> None:
    model = folder / "means.safetensors"
    code, out, err = run("evaluate", model, folder / "test.csv", "--extend", folder / "new.csv", "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert [part["area"] for part in shown["areas"]] == ["I", "II", "III", "IV", "all"]
    extended = load(model).extend(split.extension)
    for part in shown["areas"][:4]:
        assert part == pytest.approx(asdict(evaluate(extended, split.test[part["area"]])[0]))


def test_table(run: Any, folder: Path) -> None:
    code, out, _ = run("evaluate", folder / "means.safetensors", folder / "known.csv")
    assert code == 0
    assert "RMSE of levels" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("│")] == ["I", "all"]


def test_training_entries_are_no_test(run: Any, folder: Path, split: AreaSplit) -> None:
    code, _, err = run("evaluate", folder / "means.safetensors", folder / "train.csv")
    n_entries = split.train.n_entries
    assert code == 0
    assert err.startswith(f"deepmf: warning: the model has seen {n_entries} of the {n_entries} test entries")


def test_unknown_ids_hint_at_extend(run: Any, folder: Path) -> None:
    code, out, err = run("evaluate", folder / "means.safetensors", folder / "test.csv")
    assert (code, out) == (2, "")
    assert "is not known" in err
    assert "--extend" in err
    assert err.count("\n") == 1


def test_a_wrong_column_of_values(run: Any, tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "test.csv"
    header, first = (folder / "known.csv").read_text().splitlines()[:2]
    path.write_text(f"{header},time\n{first},978300760\n")
    code, _, err = run("evaluate", folder / "means.safetensors", path, "--value", "time")
    assert code == 2
    assert f"{path}, line 2: " in err
    assert "the scale is 1 to 5 in steps of 1" in err


def test_an_interval_scale_has_no_level_columns(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n" + "".join(f"{n % 10},{n // 10},{n / 7}\n" for n in range(100)))
    fit = ["--model", "means", "--scale", "0:100"]
    assert run("fit", path, "-o", tmp_path / "m", *fit).code == 0
    code, out, _ = run("evaluate", tmp_path / "m", path)
    assert code == 0
    assert "levels" not in out
    path.write_text("user,item,rating\n1,1,200\n")
    code, _, err = run("evaluate", tmp_path / "m", path)
    assert (code, err.count("\n")) == (0, 1)  # beyond the interval, and no warning but that it was seen
