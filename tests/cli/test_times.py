"""Times and weights on the command line: reading, splitting by time, and asking for a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DAY = 86400


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """A file of 300 entries within a year, whose values rise."""
    rng = np.random.default_rng(0)
    rows, columns = np.divmod(rng.permutation(20 * 30)[:300], 30)
    days = rng.integers(0, 365, 300)
    values = np.clip(np.round(1 + 4 * days / 365 + rng.normal(0, 0.3, 300)), 1, 5).astype(int)
    lines = [
        f"u{row},{column},{value},{10**9 + DAY * day},{1 + row % 2}"
        for row, column, value, day in zip(rows, columns, values, days, strict=True)
    ]
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(["user,film,stars,timestamp,w", *lines]) + "\n")
    return path


def test_a_split_by_time_is_fitted_and_evaluated(run: Any, ratings: Path, tmp_path: Path) -> None:
    parts, model = tmp_path / "parts", tmp_path / "model.safetensors"
    code, _, errors = run("split", ratings, "-o", parts, "--by", "time", "--value", "stars")
    assert code == 0
    assert "'timestamp' is taken as the time" in errors
    train, test = ((parts / f"{name}.csv").read_text().splitlines() for name in ("train", "test"))
    at = train[0].split(",").index("timestamp")
    assert max(int(line.split(",")[at]) for line in train[1:]) < min(
        int(line.split(",")[at]) for line in test[1:]
    )
    options = ["--value", "stars", "--time", "timestamp"]
    settings = ["--model", "means", "--set", "times=auto", "--scale", "1,2,3,4,5"]
    assert run("fit", parts / "train.csv", "-o", model, *settings, *options)[0] == 0
    code, _, errors = run("evaluate", model, parts / "test.csv", "--json", *options)
    assert (code, errors) == (0, "")
    (tmp_path / "pairs.csv").write_text("user,film\nu1,1\n")
    early, late = (
        run("predict", model, tmp_path / "pairs.csv", "--at", time)[1].splitlines()[1].split(",")[2]
        for time in ("2001-09-10", "2002-06-01")
    )
    assert float(late) > float(early)
    code, out, _ = run("recommend", model, "--row", "u1", "--at", "2002-06-01", "--json")
    assert code == 0
    assert json.loads(out)


def test_the_last_entries_of_rows(run: Any, ratings: Path, tmp_path: Path) -> None:
    code, out, _ = run(
        *f"split {ratings} -o {tmp_path}/last --by last -n 2 --value stars --json".split()
    )
    assert code == 0
    assert json.loads(out)["files"]["test"]["entries"] == 40


def test_weights_are_used_or_refused(run: Any, ratings: Path, tmp_path: Path) -> None:
    options = ["--value", "stars", "--weight", "w", "-o", tmp_path / "m.safetensors"]
    assert run("fit", ratings, "--model", "means", *options)[0] == 0
    assert "weights" in run("fit", ratings, "--model", "rankk", *options).err
    words = ["split", ratings, "-o", tmp_path / "parts", "--value", "stars", "--weight", "w"]
    assert run(*words).out.count("--weight w") == 2  # in the commands that follow


@pytest.mark.parametrize(
    "options, word",
    [
        (["--train-before", "2002-01-01"], "--by time"),
        (["--by", "time", "--train-before", "soon"], "no date"),
        (["--by", "time", "--train-before", "1990-01-01"], "no train"),
    ],
)
def test_wrong_splits_are_told_in_a_line(
    run: Any, ratings: Path, tmp_path: Path, options: list[str], word: str
) -> None:
    code, _, errors = run("split", ratings, "-o", tmp_path / "x", "--value", "stars", *options)
    assert code == 2
    assert word in errors
