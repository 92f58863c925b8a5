"""What commands read, and what they say of it: guesses, gaps, repeats and wide tables in the words of the options."""

import json
from pathlib import Path
from typing import Any

import polars
import pytest

MEANS = ["--model", "means", "--validation-share", 0]


def fit(run: Any, path: Path, *options: object) -> Any:
    return run("fit", path, "-o", path.with_name("m"), *MEANS, *options)


def write(folder: Path, content: str, name: str = "r.csv") -> Path:
    (folder / name).write_text(content)
    return folder / name


def test_a_guess_is_told_and_how_to_say_otherwise(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "who,what,points,when\nann,x,1,2020\nbob,y,3,2021\nbob,x,2,2021\n")
    assert fit(run, path).err == (
        f"deepmf: {path}: 'who' is taken as the row, 'what' as the column and 'points' as the value "
        "(--row, --column and --value say otherwise)\n"
    )
    assert fit(run, path, "--row", "who", "--column", "what", "--value", "points").err == ""
    assert "field 0 is taken as the row, field 1 as" in fit(run, write(tmp_path, "1,7,3\n2,7,1\n2,8,2\n")).err
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
    assert run("predict", tmp_path / "m", other).err == (
        f"deepmf: {other}: 'person' is taken as the row and '{{thing}}' as the column (--row and --column say "
        "otherwise)\n"
    )


def test_gaps(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "user,item,rating\n1,7,3\n1,8,NA\n2,7,\n2,8,1\n")
    outcome = fit(run, path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"deepmf: {path}, line 3: the value is missing; so it is in 2 of 4 lines: --missing drop leaves them out\n"
    )
    outcome = fit(run, path, "--missing", "drop")
    assert outcome.code == 0 and outcome.err == f"deepmf: {path}: 2 lines without a value are left out\n"


def test_decimal_commas(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "user;item;rating\n1;7;3,5\n2;7;1\n")
    assert fit(run, path).err.endswith("value '3,5' is not a number; --decimal , reads decimal commas\n")
    assert json.loads(fit(run, path, "--decimal", ",", "--json").out)["scale"] == "one of 1, 3.5"


def test_repeats(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "user,item,rating\n1,7,1\n1,7,2\n2,7,4\n2,8,5\n")
    assert fit(run, path).err.endswith("; --duplicates first, last or mean would merge them\n")
    for how, wanted in (("first", 1.0), ("last", 2.0)):
        assert fit(run, path, "--duplicates", how).code == 0
        assert run("evaluate", tmp_path / "m", write(tmp_path, f"user,item,rating\n1,7,{wanted}\n", "t.csv")).code == 0
    err = fit(run, path, "--duplicates", "mean").err
    assert err.startswith("deepmf: warning: of the means of repeated entries, 1 lie between the levels of the scale")


SURVEY = "id," + ",".join(f"A{k}" for k in range(1, 29)) + "\n"
SURVEY += "".join(
    f"p{k}," + ",".join("" if (k + q) % 7 == 0 else str((k * q) % 5 + 1) for q in range(28)) + "\n" for k in range(9)
)


def test_a_wide_table_comes_back_with_its_gaps_filled_in(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, SURVEY, "survey.csv")
    outcome = fit(run, path)
    assert (outcome.code, outcome.out) == (2, "")
    assert "looks like a wide table" in outcome.err and "--wide reads it so" in outcome.err
    assert "wide=True" not in outcome.err
    outcome = fit(run, path, "--wide")
    assert outcome.code == 0
    assert (
        outcome.err == f"deepmf: {path}: 'id' holds the row ids of a wide table of 28 columns (--row says otherwise)\n"
    )
    given, n_gaps = polars.read_csv(path), sum(line.count(",,") + line.endswith(",") for line in SURVEY.splitlines())
    code, out, err = run("complete", tmp_path / "m", "-o", tmp_path / "c.csv", "--json")
    assert (code, err, json.loads(out)["predictions"]) == (0, "", n_gaps)
    table = polars.read_csv(tmp_path / "c.csv")
    assert table.columns == given.columns and table["id"].to_list() == given["id"].to_list()
    for name in given.columns[1:]:
        was, now = given[name].to_list(), table[name].to_list()
        assert all(new is not None and old in (None, new) for old, new in zip(was, now, strict=True))
    assert run("complete", tmp_path / "m", "-o", tmp_path / "l.csv", "--long").code == 0
    assert polars.read_csv(tmp_path / "l.csv").columns == ["id", "column", "prediction", "area"]
    assert run("complete", tmp_path / "m", "-o", tmp_path / "c.parquet", "--wide").code == 0
    assert polars.read_parquet(tmp_path / "c.parquet").shape == given.shape


def test_files_beside_a_wide_table_are_wide(run: Any, tmp_path: Path) -> None:
    path, parts = write(tmp_path, SURVEY, "survey.csv"), tmp_path / "parts"
    assert run("split", path, "-o", parts, "--wide", "--row", "id").code == 0
    assert polars.read_csv(parts / "test.csv").columns == polars.read_csv(path).columns
    fitted = run(
        "fit", parts / "train.csv", "--wide", "--validation", parts / "validation.csv", "-o", tmp_path / "m", *MEANS[:2]
    )
    assert fitted.code == 0
    found = json.loads(run("evaluate", tmp_path / "m", parts / "test.csv", "--json").out)
    assert [part["area"] for part in found["areas"]] == ["I", "all"]
    new = write(tmp_path, SURVEY.splitlines()[0] + "\nnew" + ",3" * 27 + ",\n", "new.csv")
    code, out, _ = run("complete", tmp_path / "m", "--extend", new, "-o", "-")
    assert code == 0 and out.splitlines()[-1].startswith("new,3.0,")


@pytest.mark.parametrize("command", ["fit", "tune", "evaluate", "compare", "split"])
def test_every_command_that_reads_entries_takes_the_options(run: Any, command: str) -> None:
    shown = " ".join(run(command, "--help").out.split())
    assert all(option in shown for option in ("--missing", "--decimal", "--duplicates", "--wide"))
