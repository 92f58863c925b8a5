"""What commands read, and what they say of it: guesses, gaps, repeats and wide tables in the words
of the options."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import polars
import pytest

from deepmf.cli.inputs import InputOptions, read_pairs
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.models.means import Means

MEANS = ["--model", "means", "--validation-share", 0]


def fit(run: Any, path: Path, *options: object) -> Any:
    return run("fit", path, "-o", path.with_name("m"), *MEANS, *options)


def write(folder: Path, content: str, name: str = "r.csv") -> Path:
    (folder / name).write_text(content)
    return folder / name


def test_a_guess_is_told_and_how_to_say_otherwise(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "who,what,points,when\nann,x,1,2020\nbob,y,3,2021\nbob,x,2,2021\n")
    (line,) = fit(run, path).err.splitlines()
    assert (
        f"{path}: 'who' is taken as the row, 'what' as the column and 'points' as the value" in line
    )
    assert all(
        option in line for option in ("--row", "--column", "--value", "--count", "--no-values")
    )
    assert fit(run, path, "--row", "who", "--column", "what", "--value", "points").err == ""
    assert re.search(
        "field 0 .*row, field 1 as", fit(run, write(tmp_path, "1,7,3\n2,7,1\n2,8,2\n")).err
    )
    two = write(tmp_path, "user,item,rating,score\n1,7,3,1\n2,7,1,1\n")
    assert "'rating' as the value" in fit(run, two).err  # two names for one role
    assert fit(run, write(tmp_path, "user,item,rating\n1,7,3\n2,7,1\n")).err == ""


def test_the_names_of_training_are_no_guess(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "who,what,points\nann,x,1\nbob,y,3\nbob,x,2\n")
    assert fit(run, path).code == 0
    test = write(tmp_path, "who,what,points\nann,y,1\n", "t.csv")
    assert run("evaluate", tmp_path / "m", test).err == ""
    assert run("predict", tmp_path / "m", test).err == ""
    other = write(tmp_path, "person,{thing}\nann,y\n", "p.csv")
    told = run("predict", tmp_path / "m", other).err
    assert re.match(
        f"deepmf: {other}: 'person' .*row and '{{thing}}' .*column .*--row and --column ", told
    )


def test_names_separator_duplicates_and_scale(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "points;who;what\n2;a;x\n4;a;y\n4;b;x\n3;b;y\n4;b;y\n")
    names = "--row who --column 2 --value points --separator ; --duplicates last".split()
    assert fit(run, path, *names, "--scale", "1,2,3,4,5").code == 0
    model = load(tmp_path / "m")
    assert model.entries_.n_entries == 4 and model.row_labels_.tolist() == ["a", "b"]
    assert model.scale_ == Scale(levels=[1, 2, 3, 4, 5])


def test_gaps(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "user,item,rating\n1,7,3\n1,8,NA\n2,7,\n2,8,1\n")
    assert re.match(f"deepmf: {path}, line 3: .*2 of 4 lines; --missing drop", fit(run, path).err)
    outcome = fit(run, path, "--missing", "drop")
    assert outcome.code == 0 and re.match(f"deepmf: {path}: dropped 2 ", outcome.err)


SURVEY = "id," + ",".join(f"A{k}" for k in range(1, 29)) + "\n"

SURVEY += "".join(
    f"p{k}," + ",".join("" if (k + q) % 7 == 0 else str((k * q) % 5 + 1) for q in range(28)) + "\n"
    for k in range(9)
)


def test_a_wide_table_comes_back_with_its_gaps_filled_in(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, SURVEY, "survey.csv")
    assert "--wide" in (said := fit(run, path).err) and "wide=True" not in said
    outcome = fit(run, path, "--wide")
    assert outcome.code == 0
    assert re.match(f"deepmf: {path}: 'id' .*28 columns .*--row", outcome.err)
    given, n_gaps = (
        polars.read_csv(path),
        sum(line.count(",,") + line.endswith(",") for line in SURVEY.splitlines()),
    )
    code, out, err = run("complete", tmp_path / "m", "-o", tmp_path / "c.csv", "--json")
    assert (code, err, json.loads(out)["predictions"]) == (0, "", n_gaps)
    table = polars.read_csv(tmp_path / "c.csv")
    assert table.columns == given.columns and table["id"].to_list() == given["id"].to_list()
    for name in given.columns[1:]:
        was, now = given[name].to_list(), table[name].to_list()
        assert all(
            new is not None and old in (None, new) for old, new in zip(was, now, strict=True)
        )
    assert run("complete", tmp_path / "m", "-o", tmp_path / "l.csv", "--long").code == 0
    assert polars.read_csv(tmp_path / "l.csv").columns == ["id", "column", "prediction", "area"]
    assert run("complete", tmp_path / "m", "-o", tmp_path / "c.parquet", "--wide").code == 0
    assert polars.read_parquet(tmp_path / "c.parquet").shape == given.shape


def test_files_beside_a_wide_table_are_wide(run: Any, tmp_path: Path) -> None:
    path, parts = write(tmp_path, SURVEY, "survey.csv"), tmp_path / "parts"
    assert run("split", path, "-o", parts, "--wide", "--row", "id").code == 0
    assert polars.read_csv(parts / "test.csv").columns == polars.read_csv(path).columns
    fitted = run(
        "fit",
        parts / "train.csv",
        "--wide",
        "--validation",
        parts / "validation.csv",
        "-o",
        tmp_path / "m",
        *MEANS[:2],
    )
    assert fitted.code == 0
    found = run.json("evaluate", tmp_path / "m", parts / "test.csv")
    assert [part["area"] for part in found["areas"]] == ["I", "all"]
    new = write(tmp_path, SURVEY.splitlines()[0] + "\nnew" + ",3" * 27 + ",\n", "new.csv")
    code, out, _ = run("complete", tmp_path / "m", "--extend", new, "-o", "-")
    assert code == 0 and out.splitlines()[-1].startswith("new,3.0,")


@pytest.fixture(scope="module")
def named() -> Model:
    return Means().fit(
        ObservedMatrix.from_entries(["ann", "ann", "7"], ["Big, the", "Alien", "Alien"], [1, 2, 3])
    )


@pytest.fixture(scope="module")
def numbered() -> Model:
    return Means().fit(ObservedMatrix.from_entries([1, 1, 2], [10, 20, 20], [1, 2, 3]))


def pairs_of(path: Path | str, model: Model, **names: str) -> list[tuple[object, object]]:
    rows, columns = read_pairs(Path(path), model, InputOptions(**names)).labels
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def test_parquet_ids_become_of_the_kind_that_the_model_has(
    tmp_path: Path, named: Model, numbered: Model
) -> None:
    path = tmp_path / "pairs.parquet"
    polars.DataFrame({"user": ["1", "2"], "item": [10, 20]}).write_parquet(path)
    assert pairs_of(path, numbered) == [(1, 10), (2, 20)]
    polars.DataFrame({"item": ["Alien"], "user": [7]}).write_parquet(path)
    assert pairs_of(path, named) == [("7", "Alien")]


def test_columns_of_a_wide_table_are_left_out_on_request(run: Any, tmp_path: Path) -> None:
    lines = [
        f"{k},{1 + k % 6},{1 + k % 5},{1 + k % 4},{1 + k % 6},{20 + k},word" for k in range(30)
    ]
    path = write(tmp_path, "id,q1,q2,q3,q4,age,town\n" + "\n".join(lines) + "\n")
    refused = run("inspect", path, "--wide", "--exclude-columns", "town")
    assert refused.code == 2
    assert "'age'" in refused.err and "--exclude-columns age" in refused.err
    found = run("inspect", path, "--wide", "--exclude-columns", "age,town", "--json")
    assert found.code == 0
    assert json.loads(found.out)["n_columns"] == 4
    assert "--wide" in run.fails("inspect", path, "--exclude-columns", "age")


def test_a_pipe_is_read_as_a_file(run: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(
        target=lambda: (tmp_path / "pipe").write_text("user,item,rating\n1,7,3\n2,7,1\n")
    )
    writer.start()
    found = run("inspect", tmp_path / "pipe", "--json")
    writer.join()
    assert found.code == 0, found.err
    assert json.loads(found.out)["n_entries"] == 2


def test_an_encoding_applies_to_all_text_files_of_a_command(run: Any, tmp_path: Path) -> None:
    path, names = tmp_path / "r.csv", tmp_path / "films.csv"
    path.write_bytes("user,film,stars\nann,Łódź,5\nbob,Big,3\n".encode("cp1250"))
    names.write_bytes("film,title\nŁódź,Źródło\n".encode("cp1250"))
    assert fit(run, path, "--encoding", "cp1250", "--column-names", names).code == 0
    assert load(tmp_path / "m").column_names_ == {"Łódź": "Źródło"}
    predicted = run("predict", tmp_path / "m", path, "--encoding", "cp1250")
    assert "ann,Łódź" in predicted.out
    assert "klingon" in fit(run, path, "--encoding", "klingon").err
