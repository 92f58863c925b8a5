"""`deepmf export-entries`: the entries of training and of the service."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import numpy as np
import polars
import pytest
from tests.cli.conftest import Run

from deepmf import read_matrix
from deepmf.data import AreaSplit, read_features
from deepmf.datasets import checkerboard
from deepmf.matrix.extras import NO_TIME
from deepmf.matrix.features import Features
from deepmf.models.loading import load
from deepmf.models.means import Means
from deepmf.serve.changes import Entry
from deepmf.serve.database import open_database


def test_exported_entries_are_those_of_training_and_those_learned(
    run: Run, folder: Path, tmp_path: Path, split: AreaSplit
) -> None:
    model, url, target = (
        folder / "means.safetensors",
        tmp_path / "e.sqlite",
        tmp_path / "all.parquet",
    )
    rows, columns, values = (part.tolist() for part in split.train.entries())
    database = open_database(str(url))
    with database.begin_write() as transaction:
        changes = {
            (rows[0], columns[0]): Entry(6 - values[0]),
            (rows[1], columns[1]): None,
            ("Wilma", columns[0]): Entry(4.0),
        }
        transaction.write_changes(changes, {(rows[0], columns[0]), (rows[1], columns[1])})
    database.close()
    assert run("export-entries", model, "-o", target, "--database", url).code == 0
    assert polars.read_parquet(target).columns == list(load(model).entries_.train.form.names)
    found = {(row, column): value for row, column, value in polars.read_parquet(target).iter_rows()}
    wanted = dict(zip(zip(rows, columns, strict=True), values, strict=True)) | {
        (rows[0], columns[0]): 6 - values[0],
        ("Wilma", columns[0]): 4.0,
    }
    del wanted[rows[1], columns[1]]
    assert found == wanted


def test_times_and_weights_are_exported_and_read_again(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    model, url, target = folder / "means.safetensors", tmp_path / "e.sqlite", tmp_path / "all.csv"
    database = open_database(str(url))
    with database.begin_write() as transaction:
        column = load(model).column_labels_[0]
        changes = {("Wilma", column): Entry(4.0, 1_700_000_000, 2.5), ("Betty", column): Entry(3.0)}
        transaction.write_changes(changes)
    database.close()
    assert run("export-entries", model, "-o", target, "--database", url).code == 0
    again = read_matrix(target, time="time", weight="weight")
    assert again.times is not None and again.weights is not None
    places = np.isin(again.entries()[0], ["Wilma", "Betty"])
    assert again.times[places].tolist() == [NO_TIME, 1_700_000_000]
    assert again.weights[places].tolist() == [1.0, 2.5]


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """A model with features of rows, and the database of its service, to which features came."""
    board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    names = board.row_labels
    features = Features.from_columns(
        names,
        {
            "age": [20 + k for k in range(20)],
            "likes": ["a|b" if k % 2 else "b" for k in range(20)],
            "born": [date(1990 + k % 9, 1, 2) for k in range(20)],
        },
    )
    model = tmp_path / "m.safetensors"
    Means().fit(board, row_features=features).save(model)
    database = open_database(str(tmp_path / "m.entries.sqlite"))
    with database.begin_write() as transaction:
        came = {
            ("row", 100): {"age": 31, "likes": ["b"], "born": "1999-05-01", "mood": "good"},
            ("row", 101): {"age": None, "likes": ["a", "b"]},
            ("row", 3): None,
        }
        transaction.write_changes({}, contents=came)
    database.close()
    return model


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_features_that_came_are_written_as_they_were_given(
    run: Run, described: Path, tmp_path: Path, ending: str
) -> None:
    files = [
        "--new-row-features",
        tmp_path / f"people.{ending}",
        "--new-column-features",
        tmp_path / f"no.{ending}",
    ]
    code, out, _ = run("export-entries", described, "-o", tmp_path / "all.csv", *files)
    assert code == 0
    assert f"features of 2 rows in {tmp_path / f'people.{ending}'}" in out
    assert re.search(f"no column features .*{tmp_path / f'no.{ending}'}", out)
    assert not (tmp_path / f"no.{ending}").exists()
    found = read_features(
        tmp_path / f"people.{ending}", label="row", kinds={"likes": "list", "mood": "category"}
    )
    assert found.labels.tolist() == [100, 101]
    assert found.kinds == {"age": "number", "likes": "list", "born": "date", "mood": "category"}
    assert (
        found.values("age").tolist()[0] == 31
        and found.values("age").tolist()[1] != found.values("age").tolist()[1]
    )
    assert found.values("likes").tolist() == [("b",), ("a", "b")]
    assert found.values("born").tolist() == [date(1999, 5, 1), None]
    assert found.values("mood").tolist() == ["good", None]


def test_features_as_json_and_what_is_refused(run: Run, described: Path, tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    words = ["export-entries", described, "-o", tmp_path / "all.csv", "--new-row-features"]
    assert run.json(*words, people)["row_features"] == 2
    for target, said in (
        (tmp_path / "people.txt", "people.txt"),
        (tmp_path / "all.csv", "all.csv"),
        (described, "must end in"),
    ):
        code, out, err = run(*words, target)
        assert (code, out, err.count("\n")) == (2, "", 1) and said in err
