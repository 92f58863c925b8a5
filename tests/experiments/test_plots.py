"""Plots of results: every one is drawn from results, and the same for the same results."""

from pathlib import Path
from xml.dom import minidom

import numpy as np
import pytest

from deepmf.experiments.plots import PICTURES, _pool, draw, plot_areas
from deepmf.experiments.recipe import read_table
from deepmf.experiments.run import Record, list_trials, run_trial


@pytest.fixture
def records(recipes: Path) -> list[Record]:
    trials = [trial for recipe in read_table("small") for trial in list_trials(recipe, n_splits=1)]
    return [record for trial in trials for record in run_trial(trial)]


@pytest.mark.slow
def test_every_picture_is_drawn(records: list[Record], tmp_path: Path) -> None:
    paths = draw("small", records, tmp_path / "out")
    assert {path.name for path in paths} == {f"{name}.svg" for name in PICTURES}
    text = {path.stem: path.read_text() for path in paths}
    for name, words in {
        "areas": ["area I", "area IV", "RMSE", "shrunk means", "published"],
        "quantizer": ["DMF-D", "score", "learned", "uniform", "scores of the test entries"],
        "cold-start": ["observed entries of the new row", "RMSE in area II"],
    }.items():
        assert all(word in text[name] for word in words), name
    for path in paths:
        assert minidom.parse(str(path)).documentElement is not None


@pytest.mark.slow
def test_what_the_records_do_not_hold_is_not_drawn(records: list[Record], tmp_path: Path) -> None:
    means = [record for record in records if record["recipe"] == "small/means"]
    assert {path.stem for path in draw("small", means, tmp_path)} == {"areas", "cold-start"}
    assert draw("small", [], tmp_path / "nothing") == []


def test_areas_name_the_spread_where_there_is_one() -> None:
    record = {"recipe": "shares/means", "new_share": 0.2, "area": "I", "seed": 0, "rmse": 0.7}
    one, two = (
        plot_areas("shares", [record]),
        plot_areas("shares", [record, record | {"seed": 1, "rmse": 0.9}]),
    )
    assert one is not None
    assert two is not None
    assert one[0].get_legend_handles_labels()[1] == ["ours"]
    assert two[0].get_legend_handles_labels()[1] == ["ours, mean and spread over splits"]
    (drawn,) = two[0].containers
    assert drawn[0].get_xdata() == pytest.approx([0.8])
    assert drawn[2][0].get_segments()[0][:, 0] == pytest.approx(
        [0.8 - 0.1414, 0.8 + 0.1414], abs=1e-4
    )


def test_tables_of_rankings_have_no_cold_start(tmp_path: Path) -> None:
    record = {"recipe": "next/next", "new_share": None, "area": "I", "seed": 0, "next_ndcg": 0.2}
    assert [path.stem for path in draw("next", [record], tmp_path)] == ["areas"]


def test_cold_start_curves_pool_the_splits() -> None:
    groups = [
        [0, 0, 50, 9.0],
        [1, 1, 30, 1.0],
        [1, 1, 10, 2.0],
        [2, 4, 3, 1.0],
        [500, None, 40, 0.5],
    ]
    places, errors, margins = _pool(groups)
    # rows without entries, and groups with few test entries, are left out
    assert places == [1, 500]
    assert errors == pytest.approx([np.sqrt((30 * 1 + 10 * 4) / 40), 0.5])
    assert margins == pytest.approx([errors[0] / np.sqrt(80), 0.5 / np.sqrt(80)])
