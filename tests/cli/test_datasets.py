"""`deepmf datasets`: what the catalogue and the folder hold; nothing is downloaded here."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from deepmf.data import datasets, read_matrix

LINES = "1::10::5::978300760\n1::20::3::978300761\n2::10::1::978300762\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty folder of data sets; no network."""
    monkeypatch.setenv("DEEPMF_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("urllib.request.OpenerDirector.open", _no_network)
    return tmp_path / "data"


def _no_network(*_: object, **__: object) -> None:
    raise OSError(101, "Network is unreachable")


def test_list_shows_all_and_where_they_are(run: Any, home: Path) -> None:
    (home / "ml-1m").mkdir(parents=True)
    (home / "ml-1m" / "ratings.dat").write_text(LINES)
    code, out, err = run("datasets", "list", "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["folder"] == str(home)
    assert [each["name"] for each in shown["datasets"]] == datasets.names()
    here = {each["name"]: each["file"] for each in shown["datasets"] if each["file"]}
    assert here == {"ml-1m": str(home / "ml-1m" / "ratings.dat")}
    assert shown["datasets"][1]["entries"] == 1_000_209
    out = run("datasets", "list").out
    assert all(name in out for name in datasets.names())
    assert f"stored in {home}" in out


def test_fetch_finds_an_archive_of_the_user(run: Any, home: Path) -> None:
    home.mkdir()
    with zipfile.ZipFile(home / "ml-1m.zip", "w") as opened:
        opened.writestr("ml-1m/ratings.dat", LINES)
    code, out, err = run("datasets", "fetch", "ml-1m")
    file = home / "ml-1m" / "ratings.dat"
    assert (code, err, file.read_text()) == (0, "", LINES)
    assert f"stored in {file}\n" in out and "Research use only" in out
    assert out.endswith(f"next: deepmf fit {file} -o model.safetensors\n")
    shown = json.loads(run("datasets", "fetch", "ml-1m", "--json").out)
    assert (shown["file"], shown["was_here"]) == (str(file), True)


def test_a_data_set_that_is_not_here_and_no_network(run: Any, home: Path) -> None:
    err = run.fails("datasets", "fetch", "ml-1m")
    assert "Network is unreachable" in err
    assert f"put it at {home / 'ml-1m.zip'}" in err


def test_describe(run: Any, folder: Path) -> None:
    matrix = read_matrix(folder / "train.csv")
    assert run("datasets", "describe", folder / "train.csv") == (0, f"{matrix.describe()}\n", "")
    shown = json.loads(run("datasets", "describe", folder / "train.csv", "--json").out)
    assert shown == json.loads(json.dumps(matrix.describe().to_dict()))
    shown = json.loads(
        run("datasets", "describe", folder / "train.csv", "--json", "--scale", "0:10").out
    )
    assert shown["scale"] == {"low": 0, "high": 10, "levels": None}


def test_describe_knows_the_data_sets(run: Any, home: Path) -> None:
    told = "deepmf: the data set ml-1m is not stored yet; download it with deepmf datasets fetch ml-1m\n"
    assert run("datasets", "describe", "ml-1m") == (2, "", told)
    (home / "ml-1m").mkdir(parents=True)
    (home / "ml-1m" / "ratings.dat").write_text(LINES)
    matrix = datasets.load("ml-1m")
    assert run("datasets", "describe", "ml-1m") == (0, f"{matrix.describe()}\n", "")


def test_describe_tells_that_a_name_is_neither_a_file_nor_a_data_set(run: Any, home: Path) -> None:
    told = (
        "deepmf: there is no file ml-99, and no data set of that name (see deepmf datasets list)\n"
    )
    assert run("datasets", "describe", "ml-99") == (2, "", told)


def test_alone_it_shows_help(run: Any) -> None:
    code, out, err = run("datasets")
    assert (code, err) == (0, "")
    assert "deepmf datasets fetch ml-1m" in out
    assert all(name in out for name in ("list", "fetch", "describe"))
