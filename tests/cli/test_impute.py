"""`deepmf impute`: mixed tables from files, types that stay, ids that are left alone, and the
report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest


@pytest.fixture
def plants(tmp_path: Path) -> Path:
    """A table with an id, whole numbers, numbers with one decimal, categories, and texts that are
    all different."""
    random = np.random.default_rng(0)
    size = random.normal(size=120)
    frame = pl.DataFrame(
        {
            "id": np.arange(7, 127),
            "leaves": np.round(50 + 10 * size).astype(int),
            "height": np.round(170 + 9 * size + random.normal(size=120), 1),
            "light": np.where(size > 0, "sun", "shade"),
            "name": [f"plant {number}" for number in range(120)],
        }
    )
    gaps = pl.Series(np.arange(120) % 5)
    frame = frame.with_columns(
        pl.when(gaps != place).then(pl.col(name)).alias(name)
        for place, name in enumerate(("leaves", "height", "light"))
    )
    path = tmp_path / "plants.csv"
    frame.write_csv(path)
    return path


@pytest.mark.slow
def test_gaps_are_filled_and_all_else_stays(run: Any, plants: Path, tmp_path: Path) -> None:
    output = tmp_path / "completed.csv"
    outcome = run("impute", plants, "-o", output, "--model", "gaussian")
    assert outcome.code == 0, outcome.err
    assert "'id'" in outcome.err and "'name'" in outcome.err
    assert "72 imputed values" in outcome.out
    before, after = pl.read_csv(plants), pl.read_csv(output)
    assert after.schema == before.schema  # whole numbers are still whole
    assert after.null_count().sum_horizontal().item() == 0
    for name in before.columns:
        known = before[name].is_not_null()
        assert after[name].filter(known).equals(before[name].filter(known))
    filled = after.filter(before["leaves"].is_null())
    assert np.corrcoef(filled["leaves"], filled["height"])[0, 1] > 0.9
    assert (after["height"].round(1) == after["height"]).all()
    light = after.filter(before["light"].is_null())
    assert ((light["leaves"] > 50) == (light["light"] == "sun")).mean() > 0.8


def test_the_report_says_how_sure_each_column_is(run: Any, plants: Path, tmp_path: Path) -> None:
    output = tmp_path / "completed.parquet"
    asked = ["impute", plants, "-o", output, "--json", "--exclude-columns"]
    assert "'x'" in run.fails(*asked, "light, x")
    found = json.loads(run(*asked, "light").out)
    n_imputed = [column["imputed"] for column in found["columns"].values()]
    assert n_imputed == [0, 24, 24, 0, 0]
    assert pl.read_parquet(output)["light"].equals(pl.read_csv(plants)["light"])
    height = found["columns"]["height"]
    assert 0.8 < height["score"] <= 1.0 and 0.0 < height["error"] < 5.0
    assert sum(found["weights"].values()) == pytest.approx(1.0)


def test_many_tables_come_in_one_file(run: Any, plants: Path, tmp_path: Path) -> None:
    output = tmp_path / "many.csv"
    page = tmp_path / "page.html"
    assert (
        run("impute", plants, "-o", output, "--m", 3, "--model", "gaussian", "--page", page).code
        == 0
    )
    for word in ("Gaps", "Imputed values", "Convergence", "leaves"):
        assert word in page.read_text(encoding="utf-8")
    tables = pl.read_csv(output)
    assert tables[".imp"].to_list() == np.repeat([1, 2, 3], 120).tolist()
    drawn = tables.filter(pl.col("id") == 7)["leaves"]  # a gap
    assert drawn.n_unique() > 1
    assert tables.filter(pl.col("id") == 8)["leaves"].n_unique() == 1


def test_types_stay_and_gaps_of_dates_too(run: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    size = random.normal(size=80)
    frame = pl.DataFrame({"size": size, "tall": size > 0, "leaves": np.round(9 * size).astype(int)})
    gaps = pl.Series(np.arange(80) % 4 == 0)
    known = [pl.when(~gaps).then(pl.col(name)).alias(name) for name in ("tall", "leaves", "day")]
    frame = frame.with_columns(day=pl.date(2024, 5, 1)).with_columns(known)
    frame.write_parquet(tmp_path / "table.parquet")
    for more in ([], ["--many", "2"]):
        output = tmp_path / "out.parquet"
        outcome = run(
            "impute", tmp_path / "table.parquet", "-o", output, "--model", "gaussian", *more
        )
        assert outcome.code == 0 and "'day'" in outcome.err
        after = pl.read_parquet(output).select(frame.columns)
        assert after.schema == frame.schema
        assert [after[name].null_count() for name in after.columns] == [
            0,
            0,
            0,
            20 * (len(more) or 1),
        ]


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [
        (
            "".join(["name,x\n,1\n", *(f"n{number},{number}\n" for number in range(70))]),
            [],
            "--exclude-columns name",
        ),
        ("x,y\n1,2\n,3\n", ["--many", "1"], "--many"),
        (".imp,y\n1,2\n,3\n", ["--m", "2"], "rename"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Any, tmp_path: Path, text: str, options: list[str], word: str
) -> None:
    (tmp_path / "table.csv").write_text(text)
    outcome = run("impute", tmp_path / "table.csv", "-o", tmp_path / "out.csv", *options)
    assert outcome.code == 2 and word in outcome.err
    assert not (tmp_path / "out.csv").exists()


def test_a_wide_table_with_text_names_the_way_out(run: Any, plants: Path, tmp_path: Path) -> None:
    error = run("fit", plants, "--wide", "-o", tmp_path / "model").err
    assert "--exclude-columns light" in error and "deepmf impute" in error


@pytest.mark.slow
def test_the_page_names_columns_that_follow_from_nothing(
    run: Any, plants: Path, tmp_path: Path
) -> None:
    frame = pl.read_csv(plants)
    noise = pl.Series("noise", np.random.default_rng(1).normal(size=frame.height))
    frame.with_columns(noise=pl.when(pl.int_range(pl.len()) % 4 > 0).then(noise)).write_csv(
        tmp_path / "noisy.csv"
    )
    page = tmp_path / "page.html"
    assert (
        run("impute", tmp_path / "noisy.csv", "-o", tmp_path / "out.csv", "--page", page).code == 0
    )
    text = page.read_text(encoding="utf-8")
    assert "noise does not follow" in text and "height does not follow" not in text


@pytest.mark.slow
def test_a_table_whose_rows_rate_what_they_like_is_said_to_be_filled_in_too_high(
    run: Any, tmp_path: Path
) -> None:
    random, path = np.random.default_rng(0), tmp_path / "stars.csv"
    taste = random.normal(size=(120, 3)) @ random.normal(size=(3, 30)) + random.normal(
        size=(120, 30)
    )
    stars = np.clip(np.round(2.5 + taste), 1, 5)
    for strength, told in ((2.0, True), (0.0, False)):
        is_chosen = random.random(stars.shape) < 1 / (
            1 + np.exp(-strength * (stars - 4.2 * (strength > 0)) + 0.5)
        )
        frame = pl.DataFrame(
            np.where(is_chosen, stars, np.nan), schema=[f"film{number}" for number in range(30)]
        )
        frame.fill_nan(None).write_csv(path)
        outcome = run("impute", path, "-o", tmp_path / "completed.csv", "--model", "gaussian")
        assert outcome.code == 0 and ("too high" in outcome.err) == told
