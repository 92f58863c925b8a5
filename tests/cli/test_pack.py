"""`deepmf pack`, and stores wherever a command takes a file of entries."""

import json
from collections.abc import Callable
from pathlib import Path

import polars
import pytest
from tests.cli.conftest import Run

from deepmf.data.read import read_matrix


@pytest.fixture
def store(run: Run, folder: Path, tmp_path: Path) -> Path:
    assert run("pack", folder / "train.csv", "-o", tmp_path / "train.store").code == 0
    return tmp_path / "train.store"


def test_files_become_a_store(run: Run, folder: Path, tmp_path: Path) -> None:
    frame = polars.read_csv(folder / "train.csv")
    frame.head(100).write_parquet(tmp_path / "1.parquet")
    frame.slice(100).write_csv(tmp_path / "2.csv")
    files = tmp_path / "1.parquet", tmp_path / "2.csv"
    done = run("pack", *files, "-o", tmp_path / "r.store", "--row", "user", "--column", "film", "--value", "stars")
    assert (done.code, done.err) == (0, "")
    assert f"{frame.height:,} entries in" in done.out
    assert f"next: deepmf fit {tmp_path / 'r.store'} -o model.safetensors" in done.out
    assert read_matrix(tmp_path / "r.store") == read_matrix(folder / "train.csv")


def test_json_and_what_was_guessed_and_left_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("a,x,1\na,y,\nb,y,2\n")
    done = run("pack", tmp_path / "r.csv", "-o", tmp_path / "r.store", "--missing", "drop", "--json")
    shown = json.loads(done.out)
    assert shown["bytes"] == sum(part.stat().st_size for part in (tmp_path / "r.store").iterdir())
    assert {name: shown[name] for name in ("entries", "rows", "columns", "dropped")} == {
        "entries": 2,
        "rows": 2,
        "columns": 2,
        "dropped": 1,
    }
    assert "r.csv: field 0 is taken as the row" in done.err
    assert "r.csv: 1 line without a value is left out" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["r.csv", "-o", "-"], "a store is a folder and cannot be written to standard output"),
        (["r.csv", "-o", "r.csv"], "r.csv could not be written (it is there already"),
        (["r.csv", "r.csv", "-o", "r.store"], "was given before; --duplicates first, last or mean would merge them"),
        (["r.csv", "-o", "r.store", "--scale", "1,2"], "r.csv, line 2: row 'a', column 'x' has value 5"),
        (["none.csv", "-o", "r.store"], "there is no file none.csv"),
        (["gap.csv", "-o", "r.store"], "gap.csv, line 2: the value is missing; --missing drop leaves them out"),
        ([".", "-o", "r.store"], "a file, or a store that deepmf pack wrote, is needed"),
    ],
)
def test_bad_input_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,5\nb,x,3\n")
    (tmp_path / "gap.csv").write_text("user,item,rating\na,x,\nb,x,3\n")
    done = run("pack", *arguments)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert message in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gap.csv", "r.csv"]


def test_every_command_takes_a_store(run: Run, folder: Path, store: Path, tmp_path: Path) -> None:
    for name in ("new", "test"):
        assert run("pack", folder / f"{name}.csv", "-o", tmp_path / f"{name}.store").code == 0
    model = tmp_path / "m.safetensors"
    assert run("fit", store, "-o", model, "--model", "means", "--validation-share", "0").code == 0
    by_store = run("evaluate", model, tmp_path / "test.store", "--extend", tmp_path / "new.store", "--json")
    by_file = run("evaluate", model, folder / "test.csv", "--extend", folder / "new.csv", "--json")
    assert by_store.code == 0
    assert json.loads(by_store.out)["areas"] == json.loads(by_file.out)["areas"]
    described = run("datasets", "describe", store)
    assert described == run("datasets", "describe", folder / "train.csv")
    compared = run("compare", store, "--models", "means", "--folds", "2", "--json")
    assert compared.code == 0


def test_a_split_of_a_store_is_stores(run: Run, folder: Path, store: Path, tmp_path: Path) -> None:
    assert run("split", store, "-o", tmp_path / "s").code == 0
    assert run("split", folder / "train.csv", "-o", tmp_path / "c").code == 0
    for part in ("train", "validation", "test"):
        ours, theirs = read_matrix(tmp_path / "s" / f"{part}.store"), read_matrix(tmp_path / "c" / f"{part}.csv")
        assert [each.tolist() for each in ours.entries()] == [each.tolist() for each in theirs.entries()]
    again = run("split", store, "-o", tmp_path / "s")
    assert (again.code, len(again.err.splitlines())) == (2, 1)
    assert "could not be written" in again.err
    to_csv = run("split", store, "-o", tmp_path / "t", "--format", "csv")
    assert (to_csv.code, (tmp_path / "t" / "test.csv").read_text()) == (0, (tmp_path / "c" / "test.csv").read_text())


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "newer": (
        lambda store: _edit(store, {"format": 2}),
        "is a store of format 2; this version of deepmf reads format 1, and a newer one wrote it",
    ),
    "truncated": (
        lambda store: (store / "columns").write_bytes((store / "columns").read_bytes()[:-4]),
        "is not a whole store: its part columns has ",
    ),
    "missing": (lambda store: (store / "values").unlink(), "is not a whole store: its part values is missing"),
    "manifest": (lambda store: (store / "manifest.json").unlink(), "is a directory without a manifest.json"),
}


def _edit(store: Path, changes: dict[str, object]) -> None:
    content = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps(content | changes))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_that_is_not_whole_is_told_in_a_line(run: Run, store: Path, tmp_path: Path, damage: str) -> None:
    damaged, message = DAMAGES[damage]
    damaged(store)
    out = tmp_path / "out"
    out.mkdir()
    for words in (["fit", store, "-o", out / "m", "--model", "means"], ["pack", store, "-o", out / "s.store"]):
        code, said, err = run(*words)
        assert (code, said, err.count("\n")) == (2, "", 1)
        assert f"{store} {message}" in err
    assert list(out.iterdir()) == []
