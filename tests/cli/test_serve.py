"""`deepmf serve`, `export-entries` and `api-key`: what they refuse, and what they write."""

from pathlib import Path

import polars
import pytest
from tests.cli.conftest import Run

from deepmf.data.splits import AreaSplit
from deepmf.models.load import load
from deepmf.serve.database import open_database
from deepmf.serve.entry_database import EntryDatabase
from deepmf.serve.keys import read_keys


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give a model file, such as deepmf fit writes, or --demo"),
        (["{model}", "--demo"], "means.safetensors; give one of them, not both"),
        (["nowhere.safetensors"], "nowhere.safetensors"),
        (["{model}", "--host", "0.0.0.0"], "--keys"),
        (["{model}", "--workers", "0"], "--workers"),
        (["{model}", "--keys", "nowhere.txt"], "no file of keys"),
        (["{model}", "--database", "mysql://x/y"], "neither SQLite nor PostgreSQL"),
        (["{model}", "--port", "99999"], "99999"),
        (["{model}", "--log-level", "loud"], "--log-level"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_line(run: Run, folder: Path, options: list[str], said: str) -> None:
    given = [option.replace("{model}", str(folder / "means.safetensors")) for option in options]
    outcome = run("serve", "--port", 0, *given) if "--port" not in given else run("serve", *given)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_exported_entries_are_those_of_training_and_those_learned(
    run: Run, folder: Path, tmp_path: Path, split: AreaSplit
) -> None:
    model, url, target = folder / "means.safetensors", tmp_path / "e.sqlite", tmp_path / "all.parquet"
    rows, columns, values = (part.tolist() for part in split.train.entries())
    database = EntryDatabase(open_database(str(url)))
    with database.writing() as transaction:
        changes = {(rows[0], columns[0]): 6 - values[0], (rows[1], columns[1]): None, ("Wilma", columns[0]): 4.0}
        transaction.change(changes, {(rows[0], columns[0]), (rows[1], columns[1])}, {("row", "Wilma")})
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


def test_a_database_that_is_not_there_is_told(run: Run, folder: Path, tmp_path: Path) -> None:
    outcome = run(
        "export-entries", folder / "means.safetensors", "-o", tmp_path / "a.csv", "--database", tmp_path / "no"
    )
    assert outcome.code == 2
    assert "there is no database" in outcome.err
    assert not (tmp_path / "no").exists()


def test_a_key_is_shown_once(run: Run, tmp_path: Path) -> None:
    outcome = run("api-key", tmp_path / "keys.txt", "--name", "phone", "--role", "write")
    key = read_keys(tmp_path / "keys.txt").find(outcome.out.splitlines()[0])
    assert key is not None
    assert (key.name, key.role) == ("phone", "write")
    assert run("api-key", tmp_path / "keys.txt", "--name", "phone").code == 2
