"""`deepmf predict` and `deepmf complete`: every format, the areas, whole files or none."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from deepmf.data import AreaSplit
from deepmf.models.loading import load
from deepmf.recommend import ranking

READERS = {
    "csv": polars.read_csv,
    "tsv": lambda path: polars.read_csv(path, separator="\t"),
    "parquet": polars.read_parquet,
    "jsonl": polars.read_ndjson,
}


def unknown_ids(folder: Path) -> tuple[int, int]:
    """How many rows and columns test.csv has that train.csv lacks."""
    test, train = (polars.read_csv(folder / name) for name in ("test.csv", "train.csv"))
    return len(set(test["user"]) - set(train["user"])), len(set(test["film"]) - set(train["film"]))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_of_every_area(
    run: Any, folder: Path, tmp_path: Path, split: AreaSplit, ending: str
) -> None:
    output = tmp_path / f"predictions.{ending}"
    model = folder / "means.safetensors"
    code, out, err = run(
        "predict", model, folder / "test.csv", "--extend", folder / "new.csv", "-o", output
    )
    assert (code, err) == (0, "")
    frame = READERS[ending](output)
    assert frame.columns == ["user", "film", "prediction", "area"]
    counts = {area: test.n_entries for area, test in split.test.items()}
    assert {area: (frame["area"] == area).sum() for area in counts} == counts
    assert out.startswith(f"{frame.height} predictions ({counts['I']} in area I, ")
    wanted = (
        load(model)
        .extend(split.extension)
        .predict(frame["user"].to_list(), frame["film"].to_list())
    )
    assert np.allclose(frame["prediction"].to_numpy(), wanted, rtol=1e-12)
    given = polars.read_csv(folder / "test.csv")
    assert frame["user"].to_list() == given["user"].to_list()  # in the order given


def test_unknown_ids_are_predicted_by_the_means_and_told_in_a_line(
    run: Any, folder: Path, tmp_path: Path, split: AreaSplit
) -> None:
    output, n_known = tmp_path / "p.csv", split.test["I"].n_entries
    asked = ["predict", folder / "means.safetensors", folder / "test.csv", "-o", output]
    code, out, err = run(*asked)
    frame = polars.read_csv(output)
    n_new = frame.height - n_known
    assert (code, out) == (
        0,
        f"{frame.height} predictions ({n_known} in area I, {n_new} unknown) in {output}\n",
    )
    n_rows, n_columns = unknown_ids(folder)
    said = run.fails(*asked[:3], "-o", tmp_path / "none.csv", "--unknown", "error")
    assert said.startswith(f"deepmf: {folder / 'test.csv'}: row '")
    assert f"is not known (and {n_rows - 1} more and {n_columns} column(s))" in said
    assert "--extend" in said and "--unknown fallback" in said
    assert not (tmp_path / "none.csv").exists()
    assert err.startswith(f"deepmf: warning: {folder / 'test.csv'}: ") and err.count("\n") == 1
    assert f"{n_rows} rows and {n_columns} columns; {n_new} of {frame.height} pairs" in err
    pairs = frame["user"].to_list(), frame["film"].to_list()
    wanted = load(folder / "means.safetensors").predict(*pairs, unknown="fallback")
    assert np.allclose(frame["prediction"].to_numpy(), wanted, rtol=1e-12)
    assert frame["area"].null_count() == n_new
    shown = json.loads(run(*asked, "--json").out)
    assert shown == {
        "predictions": frame.height,
        "areas": {"I": n_known},
        "unknown": n_new,
        "file": str(output),
    }


def test_unknown_ids_can_be_left_empty(run: Any, folder: Path, split: AreaSplit) -> None:
    model, pairs = folder / "means.safetensors", folder / "test.csv"
    out, err = run("predict", model, pairs, "--unknown", "nan", "--levels", "--json")[1:]
    lines = [json.loads(line) for line in out.splitlines()]
    known = [line for line in lines if line["area"] is not None]
    assert len(known) == split.test["I"].n_entries < len(lines)
    assert {line["prediction"] for line in lines if line["area"] is None} == {None}
    assert err.endswith("pairs have no prediction\n") and err.count("\n") == 1
    assert run("predict", model, folder / "known.csv", "--unknown", "nan").err == ""


def test_an_id_that_is_no_number_is_one_that_nobody_knows(run: Any, tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text("user,item,rating\n1,7,1\n1,8,2\n2,7,3\n2,9,1\n")
    (tmp_path / "test.csv").write_text("user,item,rating\n1,9,1\nx,7,3\nx,8,2\ny,-9,1\n")
    fit = ["--model", "means", "--validation-share", 0, "--set", "shrinkage=0"]
    assert run("fit", tmp_path / "ratings.csv", "-o", tmp_path / "m", *fit).code == 0
    err = run.fails("predict", tmp_path / "m", tmp_path / "test.csv", "--unknown", "error")
    assert re.match(f"deepmf: {tmp_path / 'test.csv'}: row 'x' .*1 more", err)
    code, out, err = run("predict", tmp_path / "m", tmp_path / "test.csv", "--unknown", "fallback")
    assert (code, out) == (
        0,
        "user,item,prediction,area\n1,9,1.0,I\nx,7,2.0,\nx,8,2.0,\ny,-9,1.75,\n",
    )
    assert "2 rows and 1 column; 3 of 4 pairs" in err
    shown = json.loads(run("evaluate", tmp_path / "m", tmp_path / "test.csv", "--json").out)
    assert [part["n_entries"] for part in shown["areas"]] == [1, 3, 4]
    assert shown["areas"][1]["mae"] == pytest.approx((1.0 + 0.0 + 0.75) / 3)


def test_intervals_of_unknown_pairs(run: Any, folder: Path, tmp_path: Path) -> None:
    settings = ["hidden_sizes=8,", "latent_size=4", "views=2", "epochs=1", "linear_size=0"]
    tiny = [word for setting in settings for word in ("--set", setting)]
    fit = ["--model", "dmf-o", "--validation-share", 0, "--device", "cpu", *tiny]
    assert run("fit", folder / "train.csv", "-o", tmp_path / "m", *fit).code == 0
    asked = f"predict {tmp_path}/m {folder}/test.csv --interval 0.8 --json --unknown".split()
    lines = [json.loads(line) for line in run(*asked, "fallback").out.splitlines()]
    assert all(1 <= line["lower"] <= line["upper"] <= 5 for line in lines)
    left = [json.loads(line) for line in run(*asked, "nan").out.splitlines()]
    assert all((line["lower"] is None) == (line["area"] is None) for line in left)
    asked = ["predict", tmp_path / "m", folder / "known.csv", "--distribution", "--json"]
    for line in map(json.loads, run(*asked).out.splitlines()):
        assert sum(line[f"p_{level}"] for level in range(1, 6)) == pytest.approx(1)
    assert "dmf-o" in run.fails(
        "predict", folder / "means.safetensors", folder / "known.csv", "--distribution"
    )


def test_decimal_commas_and_rounded_numbers(run: Any, folder: Path, tmp_path: Path) -> None:
    model, pairs, output = folder / "means.safetensors", folder / "known.csv", tmp_path / "x.csv"
    assert run("predict", model, pairs, "-o", output, "--decimal", ",", "--digits", 2).code == 0
    frame = polars.read_csv(output, separator=";", decimal_comma=True)
    wanted = load(model).predict(frame["user"].to_list(), frame["film"].to_list())
    assert frame["prediction"].to_list() == np.round(wanted, 2).tolist()
    assert run("predict", model, pairs, "--digits", -1).code == 2


@pytest.mark.parametrize("ending", READERS)
def test_every_missing_entry_and_no_other(
    run: Any,
    folder: Path,
    tmp_path: Path,
    split: AreaSplit,
    ending: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", 200)  # a few rows at a time
    output = tmp_path / f"completed.{ending}"
    model = load(folder / "means.safetensors").extend(split.extension)
    code, out, err = run(
        *(
            f"complete {folder}/means.safetensors --extend {folder}/new.csv -o {output} --json"
        ).split()
    )
    assert (code, err) == (0, "")
    frame = READERS[ending](output)
    assert frame.columns == ["user", "film", "prediction", "area"]
    pairs = frame["user"].to_list(), frame["film"].to_list()
    assert frame["prediction"].to_list() == pytest.approx(model.predict(*pairs).tolist())
    assert frame["area"].to_list() == model.areas(*pairs).tolist()
    observed = {
        pair
        for part in (split.train, split.extension)
        for pair in zip(*(a.tolist() for a in part.entries()[:2]), strict=True)
    }
    wanted = {
        (row, column) for row in model.row_labels_ for column in model.column_labels_
    } - observed
    assert len(wanted) == frame.height
    assert wanted == set(zip(*pairs, strict=True))
    areas, counts = np.unique(frame["area"].to_numpy(), return_counts=True)
    assert json.loads(out) == {
        "predictions": frame.height,
        "areas": dict(zip(areas.tolist(), counts.tolist(), strict=True)),
        "file": str(output),
    }


@pytest.mark.parametrize("form", ["--long", "--wide"])
def test_completed_levels_are_legal_and_whole_numbers(
    run: Any, folder: Path, tmp_path: Path, form: str
) -> None:
    output = tmp_path / "levels.csv"
    assert run("complete", folder / "means.safetensors", "-o", output, "--levels", form).code == 0
    found = polars.read_csv(output)
    found = found.select("prediction") if form == "--long" else found.drop("user")
    assert set(found.dtypes) == {polars.Int64}
    assert found.min_horizontal().min() >= 1 and found.max_horizontal().max() <= 5  # type: ignore[operator]
