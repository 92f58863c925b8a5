"""Pictures: every one is drawn from results, readable, and the same for the same results."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from deepmf.errors import MissingDependency
from deepmf.experiments.pictures import PICTURES, _pooled, cold_start_curve, draw, new_shares
from deepmf.experiments.recipe import read_table
from deepmf.experiments.trial import Record, run_trial, trials_of


@pytest.fixture
def records(recipes: Path) -> list[Record]:
    trials = [trial for recipe in read_table("small") for trial in trials_of(recipe, n_splits=1)]
    return [record for trial in trials for record in run_trial(trial)]


@pytest.mark.slow
def test_every_picture_is_drawn(records: list[Record], tmp_path: Path) -> None:
    paths = draw("small", records, tmp_path / "out")
    drawn = PICTURES.keys() - {"new-shares"}  # of one share there is no curve
    assert {path.name for path in paths} == {f"{name}.{ending}" for name in drawn for ending in ("svg", "png")}
    text = {path.stem: path.read_text() for path in paths if path.suffix == ".svg"}
    for name, words in {
        "areas": ["area I", "area IV", "RMSE", "shrunk means", "published"],
        "learning-curves": ["RMSE on validation entries", "DMF-D"],
        "quantizer": ["predicted level", "score", "learned", "uniform"],
        "confusion": ["true level", "predicted level"],
        "cold-start": ["observed entries of the new row", "RMSE in area II"],
        "cold-start-curve": ["known entries of each new row", "RMSE in area II", ">20<", ">all<"],
    }.items():
        assert all(word in text[name] for word in words), name
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths if path.suffix == ".png")


@pytest.mark.slow
def test_the_same_results_give_the_same_files(records: list[Record], tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in draw("small", records, tmp_path / "a")}
    again = {path.name: path.read_bytes() for path in draw("small", records, tmp_path / "b")}
    assert first == again


@pytest.mark.slow
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

    figure = new_shares("shares", records([0.2, 0.05, 0.4]))
    assert [axis.get_title() for axis in figure.axes] == ["area I", "area II", "area III", "area IV"]
    for axis in figure.axes:
        (curve,) = axis.get_lines()
        np.testing.assert_allclose(curve.get_xydata(), [[5, 1.05], [20, 1.2], [40, 1.4]])
    assert new_shares("shares", records([0.2, 0.05])) is None


def test_the_curve_of_shares_begins_with_nothing_new() -> None:
    records = [
        {"recipe": "few-new/dmf", "new_share": share, "area": area, "seed": 0, "rmse": 1 + share}
        for share in (0.2, 0.1, 0.05, 0.0)
        for area in ("I", "II", "III", "IV")[: 4 if share else 1]
    ]
    figure = new_shares("few-new", records)
    starts = [axis.get_lines()[0].get_xdata()[0] for axis in figure.axes]
    assert starts == [0, 5, 5, 5]


def test_let_in_ends_with_all_that_is_known() -> None:
    record = {"recipe": "shares/means", "new_share": 0.2, "area": "II", "seed": 0, "rmse": 0.7}
    figure = cold_start_curve("shares", [record | {"cold_start_curve": [[1, 0.9], [5, 0.8]]}])
    (curve,) = figure.axes[0].get_lines()
    np.testing.assert_allclose(curve.get_ydata(), [0.9, 0.8, 0.7])
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["1", "5", "all"]
    assert cold_start_curve("shares", [record]) is None


def test_without_matplotlib(records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingDependency, match=r"pictures need matplotlib: pip install 'deepmf\[plots\]'"):
        draw("small", records, tmp_path)


def test_cold_start_curves_pool_the_splits() -> None:
    groups = [[0, 0, 50, 9.0], [1, 1, 30, 1.0], [1, 1, 10, 2.0], [2, 4, 3, 1.0], [500, None, 40, 0.5]]
    middles, errors = _pooled(groups)
    assert middles == [1, 500]  # rows without entries, and groups with few test entries, are left out
    assert errors == pytest.approx([np.sqrt((30 * 1 + 10 * 4) / 40), 0.5])
