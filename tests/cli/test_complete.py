"""`deepmf complete`: the library's predictions for exactly the missing entries, in every format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from deepmf.data import AreaSplit
from deepmf.models import ranking
from deepmf.models.loading import load

READERS = {
    "csv": polars.read_csv,
    "tsv": lambda path: polars.read_csv(path, separator="\t"),
    "parquet": polars.read_parquet,
    "jsonl": polars.read_ndjson,
}


@pytest.mark.parametrize("ending", READERS)
def test_every_missing_entry_and_no_other(
    run: Any, folder: Path, tmp_path: Path, split: AreaSplit, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "CELLS_AT_A_TIME", 200)  # a few rows at a time
    output = tmp_path / f"completed.{ending}"
    model = load(folder / "means.safetensors").extend(split.extension)
    code, out, err = run(
        "complete", folder / "means.safetensors", "--extend", folder / "new.csv", "-o", output, "--json"
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
    wanted = {(row, column) for row in model.row_labels_ for column in model.column_labels_} - observed
    assert len(wanted) == frame.height
    assert wanted == set(zip(*pairs, strict=True))
    areas, counts = np.unique(frame["area"].to_numpy(), return_counts=True)
    assert json.loads(out) == {
        "predictions": frame.height,
        "areas": dict(zip(areas.tolist(), counts.tolist(), strict=True)),
        "file": str(output),
    }


def test_in_words(run: Any, folder: Path, tmp_path: Path, split: AreaSplit) -> None:
    output = tmp_path / "c.csv"
    n_missing = split.train.shape[0] * split.train.shape[1] - split.train.n_entries
    assert run("complete", folder / "means.safetensors", "-o", output) == (
        0,
        f"{n_missing:,} predictions ({n_missing:,} in area I) in {output}\n",
        "",
    )


def test_standard_output(run: Any, folder: Path) -> None:
    lines = run("complete", folder / "means.safetensors", "-o", "-").out.splitlines()
    assert lines[0] == "user,film,prediction,area"
    as_json = run("complete", folder / "means.safetensors", "-o", "-", "--json").out.splitlines()
    assert len(as_json) == len(lines) - 1
    assert json.loads(as_json[0]).keys() == {"user", "film", "prediction", "area"}


def test_a_matrix_without_holes(run: Any, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("1,10,1\n1,20,2\n2,10,3\n2,20,1\n")
    fit = ["--model", "means", "--validation-share", 0]
    assert run("fit", tmp_path / "r.csv", "-o", tmp_path / "m", *fit).code == 0
    assert run("complete", tmp_path / "m", "-o", tmp_path / "c.csv").out == f"no predictions in {tmp_path / 'c.csv'}\n"
    assert (tmp_path / "c.csv").read_text() == "row,column,prediction,area\n"
    (tmp_path / "r.csv").write_text("1,10,1\n1,20,2\n2,10,3\n")
    assert run("fit", tmp_path / "r.csv", "-o", tmp_path / "m", *fit).code == 0
    assert run("complete", tmp_path / "m", "-o", tmp_path / "c.parquet").code == 0
    assert polars.read_parquet(tmp_path / "c.parquet").row(0)[:2] == (2, 20)  # numbers stay numbers


@pytest.mark.parametrize("wide", [False, True])
def test_ids_of_a_parquet_file_keep_their_type(run: Any, tmp_path: Path, wide: bool) -> None:
    ids = polars.Series([7, 7, 8], dtype=polars.Int32)
    if wide:
        table = polars.DataFrame({"id": ids.unique(), "a": [1, 2], "b": [3, None]})
    else:
        table = polars.DataFrame({"user": ids, "film": ids + ids.cum_count().cast(polars.Int32), "stars": [1, 2, 3]})
    table.write_parquet(tmp_path / "r.parquet")
    fit = ["--model", "means", *(["--wide"] if wide else [])]
    assert run("fit", tmp_path / "r.parquet", "-o", tmp_path / "m", *fit).code == 0
    assert run("complete", tmp_path / "m", "-o", tmp_path / "c.parquet").code == 0
    found = polars.read_parquet(tmp_path / "c.parquet").schema
    assert [found[name] for name in table.columns if table.schema[name] == polars.Int32] == [polars.Int32] * (2 - wide)
