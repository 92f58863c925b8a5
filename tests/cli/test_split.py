"""`deepmf split`: exact shares in files that every other command takes, in the words of the file
that was split."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import polars
import pytest
from tests.cli.conftest import Run

from deepmf.data import read_matrix, split_areas, split_entries, split_rows
from deepmf.datasets import generate
from deepmf.models.loading import load

MATRIX = generate(40, 30, density=0.3, seed=0).matrix

ENTRIES = set(zip(*(part.tolist() for part in MATRIX.entries()), strict=True))


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    path = tmp_path / "ratings.csv"
    MATRIX.to_frame().rename({"row": "user", "column": "film", "value": "stars"}).write_csv(path)
    return path


def entries_of(path: Path) -> set[tuple[Any, ...]]:
    frame = polars.read_parquet(path) if path.suffix == ".parquet" else polars.read_csv(path)
    assert frame.columns == ["user", "film", "stars"]
    return set(frame.rows())


def test_three_files_that_are_together_the_whole(run: Any, tmp_path: Path, ratings: Path) -> None:
    code, out, err = run(
        "split", ratings, "-o", tmp_path / "parts", "--seed", 3, "--test-share", 0.25, "--json"
    )
    assert (code, err) == (0, "")
    parts = {
        name: entries_of(tmp_path / "parts" / f"{name}.csv")
        for name in ("train", "validation", "test")
    }
    assert set.union(*parts.values()) == ENTRIES
    assert sum(map(len, parts.values())) == len(ENTRIES)
    wanted = split_entries(read_matrix(ratings), train=0.7, validation=0.05, test=0.25, seed=3)
    assert parts["test"] == set(wanted.test.to_frame().rows())
    shown = json.loads(out)["files"]
    assert {name: each["entries"] for name, each in shown.items()} == {
        name: len(each) for name, each in parts.items()
    }
    # again, over what is there
    assert run("split", ratings, "-o", tmp_path / "parts", "--format", "parquet").code == 0
    names = {file.name for file in (tmp_path / "parts").iterdir()}
    assert names == {"train.parquet", "validation.parquet", "test.parquet"}


def test_areas(run: Any, tmp_path: Path, ratings: Path) -> None:
    code, out, err = run(
        *f"split {ratings} -o {tmp_path}/areas --areas --new-rows 0.1 --format parquet".split()
    )
    assert (code, err) == (0, "")
    wanted = split_areas(read_matrix(ratings), new_rows=0.1, seed=0)
    assert entries_of(tmp_path / "areas" / "extension.parquet") == set(
        wanted.extension.to_frame().rows()
    )
    by_area = [set(wanted.test[area].to_frame().rows()) for area in ("I", "II", "III", "IV")]
    assert entries_of(tmp_path / "areas" / "test.parquet") == set.union(*by_area)
    assert (
        f"deepmf evaluate model.safetensors {tmp_path / 'areas' / 'test.parquet'} --extend" in out
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "table, options, areas",
    [
        ("wide", ["--wide"], []),
        ("wide", ["--wide"], ["--areas"]),
        ("item,user,stars", ["--row", "item", "--column", "user", "--value", "stars"], ["--areas"]),
    ],
)
def test_the_commands_that_are_printed_run_as_printed(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    options: list[str],
    areas: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if table == "wide":
        MATRIX.to_table().write_csv("all ratings.csv")
    else:
        names = dict(zip(("row", "column", "value"), table.split(","), strict=True))
        MATRIX.to_frame().rename(names).write_csv("all ratings.csv")
    out = run("split", "all ratings.csv", "-o", "my parts", *options, *areas).out
    commands = [line.split(": deepmf ", 1)[1] for line in out.splitlines() if ": deepmf " in line]
    assert [command.split()[0] for command in commands] == ["fit", "evaluate"]
    fit, evaluate = map(shlex.split, commands)
    done = run(*fit, "--model", "means")
    assert done.code == 0, done.err
    assert run(*evaluate).code == 0
    assert set(load("model.safetensors").row_labels_) <= set(MATRIX.row_labels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "{folder}/p", "--format", "xlsx"], "got 'xlsx'"),
        (["-o", "{folder}/p", "--test-share", "2"], "shares between 0 and 1"),
        (["-o", "{folder}/ratings.csv"], "ratings.csv cannot be a folder"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    run: Any, tmp_path: Path, ratings: Path, arguments: list[str], message: str
) -> None:
    assert message in run.fails(
        "split", ratings, *(argument.format(folder=tmp_path) for argument in arguments)
    )
    assert list(tmp_path.iterdir()) == [ratings]


def test_it_does_not_write_over_what_it_reads(run: Any, tmp_path: Path, ratings: Path) -> None:
    train = ratings.rename(tmp_path / "train.csv")
    before = train.read_bytes()
    assert "would overwrite" in run("split", train, "-o", tmp_path).err
    assert train.read_bytes() == before


@pytest.fixture
def store(run: Run, folder: Path, tmp_path: Path) -> Path:
    assert run("pack", folder / "train.csv", "-o", tmp_path / "train.store").code == 0
    return tmp_path / "train.store"


def test_files_become_a_store(run: Run, folder: Path, tmp_path: Path) -> None:
    frame = polars.read_csv(folder / "train.csv")
    frame.head(100).write_parquet(tmp_path / "1.parquet")
    frame.slice(100).write_csv(tmp_path / "2.csv")
    files = tmp_path / "1.parquet", tmp_path / "2.csv"
    done = run(
        "pack", *files, *f"-o {tmp_path}/r.store --row user --column film --value stars".split()
    )
    assert (done.code, done.err) == (0, "")
    assert f"{frame.height:,} entries in" in done.out
    assert f"next: deepmf fit {tmp_path / 'r.store'} -o model.safetensors" in done.out
    assert read_matrix(tmp_path / "r.store") == read_matrix(folder / "train.csv")


def test_a_split_of_a_store_is_stores(run: Run, folder: Path, store: Path, tmp_path: Path) -> None:
    assert run("split", store, "-o", tmp_path / "s").code == 0
    assert run("split", folder / "train.csv", "-o", tmp_path / "c").code == 0
    for part in ("train", "validation", "test"):
        ours, theirs = (
            read_matrix(tmp_path / "s" / f"{part}.store"),
            read_matrix(tmp_path / "c" / f"{part}.csv"),
        )
        assert [each.tolist() for each in ours.entries()] == [
            each.tolist() for each in theirs.entries()
        ]
    again = run("split", store, "-o", tmp_path / "s")
    assert (again.code, len(again.err.splitlines())) == (2, 1)
    assert "could not be written" in again.err
    to_csv = run("split", store, "-o", tmp_path / "t", "--format", "csv")
    assert (to_csv.code, (tmp_path / "t" / "test.csv").read_text()) == (
        0,
        (tmp_path / "c" / "test.csv").read_text(),
    )


def test_whole_rows_are_held_out_and_ranked(run: Any, tmp_path: Path, ratings: Path) -> None:
    parts = tmp_path / "parts"
    code, out, err = run(
        "split", ratings, "-o", parts, "--by", "rows", "--given-share", 0.7, "--seed", 1
    )
    assert (code, err) == (0, "")
    wanted = split_rows(read_matrix(ratings), new_rows=0.2, given=0.7, validation=0.05, seed=1)
    for name in ("train", "validation", "given", "test"):
        assert entries_of(parts / f"{name}.csv") == set(getattr(wanted, name).to_frame().rows())
    model = tmp_path / "model.safetensors"
    for line in out.splitlines():
        if line.startswith(("next:", "then:")):
            words = shlex.split(
                line.partition(": deepmf ")[2].replace("model.safetensors", str(model))
            )
            words += (
                ["--model", "als", "--set", "epochs=2"] if line.startswith("next") else ["--json"]
            )
            code, out, err = run(*words)
            assert code == 0
    ranked = json.loads(out)["ranking"]
    assert list(ranked["areas"]) == ["II"]
    assert run("split", ratings, "-o", parts, "--by", "rows", "--areas").code == 2
    assert run("split", ratings, "-o", parts, "--by", "luck").code == 2
    assert run("split", ratings, "-o", parts, "--by", "rows", "--given-share", 1).code == 2
