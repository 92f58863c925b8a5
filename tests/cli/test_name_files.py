"""`--column-names` and `--row-names`: names beside ids, in tables, JSON and model files."""

from pathlib import Path
from typing import Any

import pytest

from deepmf.data import AreaSplit
from deepmf.matrix import TableForm
from deepmf.models.als import ALS
from deepmf.models.loading import load


@pytest.fixture
def films(folder: Path) -> Path:
    columns = load(folder / "means.safetensors").column_labels_.tolist()
    path = folder / "films.csv"
    lines = [f"{column},{1960 + at},The {column}" for at, column in enumerate(columns)]
    path.write_text("\n".join(["film,year,title", *lines]) + "\n")
    return path


def test_names_are_shown_beside_ids(
    run: Any, split: AreaSplit, films: Path, tmp_path: Path
) -> None:
    model, row = tmp_path / "als.safetensors", split.train.row_labels[0]
    ALS(latent_size=3, epochs=3, seed=0).fit(
        split.train.with_form(TableForm("user", "film", "stars"))
    ).save(model)
    code, out, err = run("recommend", model, "--row", row, "-n", 3, "--column-names", films)
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split()[1:4:2] == ["film", "name"]
    best = run.json("recommend", model, "--row", row, "--column-names", films)["best"]
    assert all(line["column_name"] == f"The {line['column']}" for line in best)
    column = best[0]["column"]
    similar = run.json("similar", model, "--column", column, "--column-names", films)
    assert similar["column_name"] == f"The {column}"
    assert all(line["column_name"] == f"The {line['column']}" for line in similar["similar"])
    explained = run("explain", model, "--row", row, "--column", column, "--column-names", films)
    assert f"of The {column}" in explained.out
    assert "name" not in run("similar", model, "--column", column).out


def test_names_are_kept_in_the_model_and_features_are_shown(
    run: Any, folder: Path, films: Path, tmp_path: Path
) -> None:
    model = tmp_path / "named.safetensors"
    arguments = ["--column-names", films, "--column-features", films, "--model", "means"]
    code, _, err = run("fit", folder / "train.csv", "-o", model, *arguments)
    assert (code, err) == (0, "")
    fitted = load(model)
    assert fitted.entries_.column_features is not None
    assert fitted.entries_.column_features.encoding.names == ("year",)
    row = fitted.row_labels_[0]
    best = run.json("recommend", model, "--row", row)["best"]
    assert best[0]["column_name"] == f"The {best[0]['column']}"
    assert 1960 <= best[0]["features"]["year"] < 2100
    assert "year" in run("recommend", model, "--row", row).out.splitlines()[1]


def test_wrong_files_of_names(run: Any, folder: Path, tmp_path: Path) -> None:
    model = folder / "means.safetensors"
    wrong = tmp_path / "wrong.csv"
    for text, word in (("film,title\nnobody,x\n", "nobody"), ("film,a,b\nx,1,2\n", "title")):
        wrong.write_text(text)
        err = run.fails("recommend", model, "--row", "x", "--column-names", wrong)
        assert word in err and "wrong.csv" in err
