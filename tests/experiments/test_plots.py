"""Plots of results: every one is drawn from results, and the same for the same results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pytest

from deepmf.experiments.plots import PICTURES, _pool, draw, plot_areas, plot_cold_start_curve, plot_new_shares
from deepmf.experiments.recipe import read_table
from deepmf.experiments.run import Record, list_trials, run_trial


@pytest.fixture
def records(recipes: Path) -> list[Record]:
    trials = [trial for recipe in read_table("small") for trial in list_trials(recipe, n_splits=1)]
    return [record for trial in trials for record in run_trial(trial)]


@pytest.mark.slow
def test_every_picture_is_drawn(records: list[Record], tmp_path: Path) -> None:
    paths = draw("small", records, tmp_path / "out")
    drawn = PICTURES.keys() - {"new-shares"}  # of one share there is no curve
    assert {path.name for path in paths} == {f"{name}.svg" for name in drawn}
    text = {path.stem: path.read_text() for path in paths}
    for name, words in {
        "areas": ["area I", "area IV", "RMSE", "shrunk means", "published"],
        "quantizer": ["DMF-D", "score", "learned", "uniform", "scores of the test entries"],
        "cold-start": ["observed entries of the new row", "RMSE in area II"],
        "cold-start-curve": ["known entries of each new row", "RMSE in area II", ">20<", ">all<"],
    }.items():
        assert all(word in text[name] for word in words), name
    for path in paths:
        assert minidom.parse(str(path)).documentElement is not None


@pytest.mark.slow
def test_what_the_records_do_not_hold_is_not_drawn(records: list[Record], tmp_path: Path) -> None:
    means = [record for record in records if record["recipe"] == "small/means"]
    assert {path.stem for path in draw("small", means, tmp_path)} == {
        "areas",
        "cold-start",
        "cold-start-curve",
    }
    assert draw("small", [], tmp_path / "nothing") == []


@pytest.mark.slow
def test_new_shares_are_in_order_and_need_three() -> None:
    def records(shares: Sequence[float]) -> list[Record]:
        return [
            {"recipe": "shares/means", "new_share": share, "area": area, "seed": 0, "rmse": 1 + share}
            for share in shares
            for area in ("I", "II", "III", "IV")
        ]

    drawn = plot_new_shares("shares", records([0.2, 0.05, 0.4]))
    assert drawn is not None
    axes = drawn[0].figure.axes
    assert [ax.get_title() for ax in axes] == ["area I", "area II", "area III", "area IV"]
    for ax in axes:
        assert points_of(ax) == [[(5, 1.05), (20, 1.2), (40, 1.4)]]
    assert plot_new_shares("shares", records([0.2, 0.05])) is None


def points_of(ax: Any) -> list[list[tuple[float, float]]]:
    """Return the points of every curve of a plot."""
    return [[(x, pytest.approx(y)) for x, y in drawn[0].get_xydata().tolist()] for drawn in ax.containers]


def spreads_of(ax: Any) -> list[tuple[float, float]]:
    """Return the ends of the error bars of a plot."""
    return [(line[0][1], line[1][1]) for drawn in ax.containers for line in drawn[2][0].get_segments() if len(line)]


def test_areas_name_the_spread_where_there_is_one() -> None:
    record = {"recipe": "shares/means", "new_share": 0.2, "area": "I", "seed": 0, "rmse": 0.7}
    one, two = plot_areas("shares", [record]), plot_areas("shares", [record, record | {"seed": 1, "rmse": 0.9}])
    assert one is not None
    assert two is not None
    assert one[0].get_legend_handles_labels()[1] == ["ours"]
    assert two[0].get_legend_handles_labels()[1] == ["ours, mean and spread over splits"]
    (drawn,) = two[0].containers
    assert drawn[0].get_xdata() == pytest.approx([0.8])
    assert drawn[2][0].get_segments()[0][:, 0] == pytest.approx([0.8 - 0.1414, 0.8 + 0.1414], abs=1e-4)


def test_the_cold_start_curve_ends_with_all_that_is_known() -> None:
    record = {"recipe": "shares/means", "new_share": 0.2, "area": "II", "seed": 0, "rmse": 0.7}
    first = record | {"cold_start_curve": [[1, 0.9], [5, 0.8]]}
    one = plot_cold_start_curve("shares", [first])
    assert one is not None
    assert points_of(one[0]) == [[(0, 0.9), (1, 0.8), (2, 0.7)]]
    assert [label.get_text() for label in one[0].get_xticklabels()] == ["1", "5", "all"]
    two = plot_cold_start_curve("shares", [first, first | {"seed": 1, "rmse": 0.9}])
    assert two is not None
    assert spreads_of(two[0])[-1] == pytest.approx((0.8 - 0.14142, 0.8 + 0.14142), abs=1e-5)
    assert plot_cold_start_curve("shares", [record]) is None


def test_cold_start_curves_pool_the_splits() -> None:
    groups = [[0, 0, 50, 9.0], [1, 1, 30, 1.0], [1, 1, 10, 2.0], [2, 4, 3, 1.0], [500, None, 40, 0.5]]
    places, errors, margins = _pool(groups)
    assert places == [1, 500]  # rows without entries, and groups with few test entries, are left out
    assert errors == pytest.approx([np.sqrt((30 * 1 + 10 * 4) / 40), 0.5])
    assert margins == pytest.approx([errors[0] / np.sqrt(80), 0.5 / np.sqrt(80)])
