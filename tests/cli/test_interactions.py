"""Interactions on the command line: files of clicks and plays from reading to recommendations."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Run


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """Two groups of rows that each click on columns of their own."""
    lines = [
        f"u{row},i{column + 10 * (row % 2)}"
        for row in range(24)
        for column in range(10)
        if (row + column) % 3
    ]
    (tmp_path / "clicks.csv").write_text("user,item\n" + "\n".join(lines) + "\n")
    return tmp_path / "clicks.csv"


@pytest.fixture
def plays(tmp_path: Path) -> Path:
    lines = [
        f"88125{row:02}{column:02},{row},{column + 10 * (row % 2)},{1 + column % 3}"
        for row in range(24)
        for column in range(10)
        if (row + column) % 3
    ]
    (tmp_path / "plays.csv").write_text(
        "timestamp,user_id,item_id,plays\n" + "\n".join(lines) + "\n"
    )
    return tmp_path / "plays.csv"


@pytest.mark.parametrize("model", ["als", "dmf-o"])
def test_from_a_split_to_recommendations(run: Run, plays: Path, tmp_path: Path, model: str) -> None:
    printed = run("split", plays, "--count", "plays", "-o", tmp_path / "parts").out
    fit, evaluate = (shlex.split(line)[2:] for line in printed.splitlines()[-2:])
    file = str(tmp_path / "model.safetensors")
    fit, evaluate = (
        [file if word == "model.safetensors" else word for word in words]
        for words in (fit, evaluate)
    )
    fitted = run(*fit, "--model", model, "--json")
    assert fitted.code == 0, fitted.err
    assert json.loads(fitted.out)["scale"] == "interactions"
    evaluated = run(*evaluate, "--json")
    assert evaluated.code == 0, evaluated.err
    assert json.loads(evaluated.out)["ranking"]["model"]["ndcg"] > 0
    assert "NDCG" in run(*evaluate).out
    found = run("recommend", file, "--row", 4, "-n", 3, "--json")
    assert found.code == 0
    best = json.loads(found.out)["best"]
    assert all(each["column"] < 10 and each["prediction"] == each["presence"] for each in best)
    shown = run("recommend", file, "--row", 4, "-n", 3).out
    assert shown.splitlines()[1].split()[1::2] == ["item_id", "presence"]


def test_new_rows_come_from_columns_alone(run: Run, plays: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    assert run("fit", plays, "--count", "plays", "-o", file, "--model", "als").code == 0
    (tmp_path / "history.csv").write_text("item_id\n1\n2\n2\n")
    found = run("recommend", file, "--history", tmp_path / "history.csv", "-n", 3, "--json")
    assert found.code == 0, found.err
    assert all(each["column"] < 10 for each in json.loads(found.out)["best"])
    (tmp_path / "pairs.csv").write_text("user_id,item_id\n1,2\n")
    assert "interactions" in run.fails("predict", file, tmp_path / "pairs.csv")
    assert "interactions" in run.fails("complete", file, "-o", "-")
    more = "user_id,item_id,plays\n99,11,3\n99,12,1\n"
    (tmp_path / "more.csv").write_text(more)
    extended = run(
        "recommend", file, "--extend", tmp_path / "more.csv", "--row", 99, "-n", 3, "--json"
    )
    assert extended.code == 0, extended.err
    assert extended.err == ""
    assert all(each["column"] >= 10 for each in json.loads(extended.out)["best"])
