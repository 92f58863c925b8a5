"""Charts of results: every one is drawn from results, readable, and the same for the same results."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pytest

from deepmf.charts.styles import numbered
from deepmf.experiments.recipe import read_table
from deepmf.experiments.result_charts import PICTURES, _pooled, areas, cold_start_curve, draw, new_shares
from deepmf.experiments.trial import Record, run_trial, trials_of


@pytest.fixture
def records(recipes: Path) -> list[Record]:
    trials = [trial for recipe in read_table("small") for trial in trials_of(recipe, n_splits=1)]
    return [record for trial in trials for record in run_trial(trial)]


def test_every_picture_is_drawn(records: list[Record], tmp_path: Path) -> None:
    paths = draw("small", records, tmp_path / "out")
    drawn = PICTURES.keys() - {"new-shares"}  # of one share there is no curve
    assert {path.name for path in paths} == {f"{name}.svg" for name in drawn}
    text = {path.stem: path.read_text() for path in paths}
    for name, words in {
        "areas": ["area I", "area IV", "RMSE", "shrunk means", "published"],
        "learning-curves": ["RMSE on validation entries", "DMF-D"],
        "quantizer": ["DMF-D", "score", "learned", "uniform", "learned: level 1", "scores of the test entries"],
        "confusion": ["true level", "predicted level"],
        "cold-start": ["observed entries of the new row", "RMSE in area II"],
        "cold-start-curve": ["known entries of each new row", "RMSE in area II", ">20<", ">all<"],
    }.items():
        assert all(word in text[name] for word in words), name
    for path in paths:
        assert minidom.parse(str(path)).documentElement is not None


def test_the_same_results_give_the_same_files(records: list[Record], tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in draw("small", records, tmp_path / "a")}
    again = {path.name: path.read_bytes() for path in draw("small", records, tmp_path / "b")}
    assert first == again


def test_what_the_records_do_not_hold_is_not_drawn(records: list[Record], tmp_path: Path) -> None:
    means = [record for record in records if record["recipe"] == "small/means"]
    assert {path.stem for path in draw("small", means, tmp_path)} == {
        "areas",
        "confusion",
        "cold-start",
        "cold-start-curve",
    }
    assert draw("small", [], tmp_path / "nothing") == []


def test_new_shares_are_in_order_and_need_three() -> None:
    def records(shares: Sequence[float]) -> list[Record]:
        return [
            {"recipe": "shares/means", "new_share": share, "area": area, "seed": 0, "rmse": 1 + share}
            for share in shares
            for area in ("I", "II", "III", "IV")
        ]

    chart = new_shares("shares", records([0.2, 0.05, 0.4]))
    assert chart is not None
    assert re.findall('class="middle heading">(.*?)<', chart.drawn) == ["area I", "area II", "area III", "area IV"]
    tips = re.findall("<title>(.*?)</title>", chart.drawn)
    assert tips == ["5, Means: 1.05", "20, Means: 1.2", "40, Means: 1.4"] * 4
    assert len({line for line in re.findall('points="(.*?)"', chart.drawn) if line.count(" ") == 2}) == 1
    assert new_shares("shares", records([0.2, 0.05])) is None


def test_the_curve_of_shares_begins_with_nothing_new() -> None:
    records = [
        {"recipe": "few-new/dmf", "new_share": share, "area": area, "seed": 0, "rmse": 1 + share}
        for share in (0.2, 0.1, 0.05, 0.0)
        for area in ("I", "II", "III", "IV")[: 4 if share else 1]
    ]
    chart = new_shares("few-new", records)
    assert chart is not None
    tips = [tip.split(",")[0] for tip in re.findall("<title>(.*?)</title>", chart.drawn)]
    assert tips == ["0", "5", "10", "20", *["5", "10", "20"] * 3]


def test_new_shares_show_their_spread() -> None:
    records = [
        {"recipe": "shares/means", "new_share": share, "area": "II", "seed": seed, "rmse": 1 + share + seed / 10}
        for share in (0.05, 0.2, 0.4)
        for seed in (0, 1)
    ]
    chart = new_shares("shares", records)
    assert chart is not None
    assert chart.drawn.count('class="spread c1"') == 3
    assert "20, Means: 1.25 ± 0.07071" in chart.drawn


def test_areas_say_what_the_bars_are_where_there_are_any() -> None:
    record = {"recipe": "shares/means", "new_share": 0.2, "area": "I", "seed": 0, "rmse": 0.7}
    one, two = areas("shares", [record]), areas("shares", [record, record | {"seed": 1, "rmse": 0.9}])
    assert one is not None
    assert two is not None
    assert ">ours<" in one.drawn
    assert "spread" not in one.drawn.replace("spread over splits", "")
    assert ">ours, mean and spread over splits<" in two.drawn
    assert "Means, ours: 0.8000 ± 0.1414" in two.drawn


def test_let_in_ends_with_all_that_is_known() -> None:
    record = {"recipe": "shares/means", "new_share": 0.2, "area": "II", "seed": 0, "rmse": 0.7}
    first = record | {"cold_start_curve": [[1, 0.9], [5, 0.8]]}
    chart = cold_start_curve("shares", [first])
    assert chart is not None
    assert re.findall("<title>(.*?)</title>", chart.drawn) == ["1, Means: 0.9", "5, Means: 0.8", "all, Means: 0.7"]
    assert all(f">{tick}</text>" in chart.drawn for tick in ("1", "5", "all"))
    assert "spread" not in chart.drawn
    second = first | {"seed": 1, "rmse": 0.9}
    chart = cold_start_curve("shares", [first, second])
    assert chart is not None
    assert "all, Means: 0.8 ± 0.14142" in chart.drawn
    assert cold_start_curve("shares", [record]) is None


def test_cold_start_curves_pool_the_splits() -> None:
    groups = [[0, 0, 50, 9.0], [1, 1, 30, 1.0], [1, 1, 10, 2.0], [2, 4, 3, 1.0], [500, None, 40, 0.5]]
    curve = _pooled("means", groups, numbered(0))
    assert curve.places == [1, 500]  # rows without entries, and groups with few test entries, are left out
    assert curve.numbers == pytest.approx([np.sqrt((30 * 1 + 10 * 4) / 40), 0.5])
    assert curve.margins == pytest.approx([curve.numbers[0] / np.sqrt(80), 0.5 / np.sqrt(80)])
