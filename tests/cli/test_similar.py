"""`deepmf similar`: the library's most similar columns and rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepmf.data.splits import AreaSplit
from deepmf.matrix.table_form import TableForm
from deepmf.models.factorization.als import ALS
from deepmf.models.load import load


@pytest.fixture(scope="module")
def model(split: AreaSplit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("similar") / "als.safetensors"
    ALS(latent_size=2, epochs=1).fit(split.train).save(path)
    return path


@pytest.mark.parametrize("axis", ["row", "column"])
def test_the_most_similar(run: Any, model: Path, axis: str) -> None:
    fitted = load(model)
    labels = fitted.row_labels_ if axis == "row" else fitted.column_labels_
    label = labels[0]
    found = fitted.similar_rows(label, 3) if axis == "row" else fitted.similar_columns(label, 3)
    arguments = ["similar", model, f"--{axis}", label, "-n", 3]
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown[axis] == label
    assert [line[axis] for line in shown["similar"]] == found.labels.tolist()
    assert [line["cosine"] for line in shown["similar"]] == pytest.approx(found.values.tolist())
    text = run(*arguments).out
    assert all(other in text for other in found.labels)
    assert len(json.loads(run("similar", model, f"--{axis}", label, "--json").out)["similar"]) == 10


def test_a_row_of_an_extension(run: Any, model: Path, folder: Path, split: AreaSplit) -> None:
    new = next(row for row in split.extension.entries().rows if row not in split.train.rows)
    code, out, err = run("similar", model, "--row", new, "--extend", folder / "new.csv", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["row"] == new


def test_bad_input_is_one_line(run: Any, model: Path, folder: Path) -> None:
    known = load(model).row_labels_[0]
    for arguments, said in (
        ([model, "--column", "No film"], "column 'No film' is not known"),
        ([model, "--row", "Nobody"], "row 'Nobody' is not known"),
        ([model, "--row", known, "-n", 0], "n must be a whole number of at least 1; got 0"),
        ([folder / "means.safetensors", "--row", known], "this model has no latents"),
    ):
        code, out, err = run("similar", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err


def test_the_table_has_the_names_of_the_file(run: Any, split: AreaSplit, tmp_path: Path) -> None:
    for form, headings in (
        (TableForm("user", "film", "stars"), ("user", "film")),
        (TableForm("cosine"), ("row", "column")),
    ):
        ALS(latent_size=2, epochs=1).fit(split.train.in_form(form)).save(tmp_path / "m")
        for axis, heading in zip(("row", "column"), headings, strict=True):
            labels = split.train.row_labels if axis == "row" else split.train.column_labels
            top = run("similar", tmp_path / "m", f"--{axis}", labels[0], "-n", 3).out.splitlines()[1]
            assert top.split()[1::2] == [heading, "cosine"]
