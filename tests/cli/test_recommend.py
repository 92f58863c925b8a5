"""`deepmf recommend`: the library's ranking, for known and for new rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepmf.data.splits import AreaSplit
from deepmf.models.load import load


def test_the_best_columns(run: Any, folder: Path, split: AreaSplit) -> None:
    model = folder / "means.safetensors"
    new = next(row for row in split.extension.entries().rows if row not in split.train.rows)
    arguments = ["recommend", model, "--row", new, "-n", 4, "--extend", folder / "new.csv"]
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    best = load(model).extend(split.extension).recommend(new, n=4)
    shown = json.loads(out)
    assert shown["row"] == new
    assert [line["column"] for line in shown["best"]] == best.labels.tolist()
    assert [line["prediction"] for line in shown["best"]] == pytest.approx(best.values.tolist())
    assert all(column in run(*arguments).out for column in best.labels)


def test_observed_columns_only_if_asked_for(run: Any, folder: Path, split: AreaSplit) -> None:
    rows, columns, _ = split.train.entries()
    arguments = ["recommend", folder / "means.safetensors", "--row", rows[0], "-n", 1000, "--json"]
    shown = {line["column"] for line in json.loads(run(*arguments).out)["best"]}
    assert shown == set(split.train.column_labels) - set(columns[rows == rows[0]])
    everything = json.loads(run(*arguments, "--include-observed").out)["best"]
    assert {line["column"] for line in everything} == set(split.train.column_labels)


def test_bad_input_is_one_line(run: Any, folder: Path, tmp_path: Path) -> None:
    code, out, err = run("recommend", folder / "means.safetensors", "--row", "Nobody")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "row 'Nobody' is not known" in err
    assert "--extend" in err
    known = load(folder / "means.safetensors").row_labels_[0]
    code, _, err = run("recommend", folder / "means.safetensors", "--row", known, "-n", 0)
    assert (code, err) == (2, "deepmf: n must be a whole number of at least 1; got 0\n")
    (tmp_path / "r.csv").write_text("1,10,1\n1,20,2\n2,10,3\n")
    assert run("fit", tmp_path / "r.csv", "-o", tmp_path / "m", "--model", "means", "--validation-share", 0).code == 0
    assert run("recommend", tmp_path / "m", "--row", "2", "--json").code == 0
    code, _, err = run("recommend", tmp_path / "m", "--row", "ann")
    assert code == 2
    assert "row 'ann' is not known; the model's rows are ints" in err
