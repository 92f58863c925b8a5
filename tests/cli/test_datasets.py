"""`deepmf datasets`: what the catalogue and the folder hold; nothing is downloaded here."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

from deepmf.data import datasets

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
    shown = run.json("datasets", "list")
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
    shown = run.json("datasets", "fetch", "ml-1m")
    assert (shown["file"], shown["was_here"]) == (str(file), True)


def test_a_data_set_that_is_not_here_and_no_network(run: Any, home: Path) -> None:
    err = run.fails("datasets", "fetch", "ml-1m")
    assert "Network is unreachable" in err
    assert f"put it at {home / 'ml-1m.zip'}" in err


def test_alone_it_shows_help(run: Any) -> None:
    code, out, err = run("datasets")
    assert (code, err) == (0, "")
    assert "deepmf datasets fetch ml-1m" in out
    assert all(name in out for name in ("list", "fetch"))
