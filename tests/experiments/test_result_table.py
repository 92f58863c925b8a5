"""Tables: means and spreads beside the published figures."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from deepmf.experiments.result_table import as_csv, cells, lines, markdown, notes, remarks


def record(recipe: str, seed: int, area: str, rmse: float, share: float | None = 0.2) -> dict[str, Any]:
    return {"recipe": f"small/{recipe}", "seed": seed, "new_share": share, "area": area, "rmse": rmse}


RECORDS = [
    record("means", 0, "I", 0.91),
    record("means", 1, "I", 0.93),
    record("means", 0, "II", 0.95),
    record("means", 0, "I", 0.89, share=0.1),
    record("dmf-d", 0, "I", 0.8, share=None),
]


def test_a_cell_is_a_mean_a_spread_and_a_published_figure(recipes: Path) -> None:
    first = cells("small", RECORDS)[0]
    assert (first.mean, first.n_splits, first.published) == (pytest.approx(0.92), 2, 0.9)
    assert first.spread == pytest.approx(0.02 / 2**0.5)
    assert first.difference == pytest.approx(0.02)
    assert str(first) == "0.9200 ± 0.0141 (0.900, +0.020)"


def test_lines_of_a_table(recipes: Path) -> None:
    assert lines("small", RECORDS) == [
        ["method", "new", "area I", "area II", "area IV"],
        ["shrunk means", "20%", "0.9200 ± 0.0141 (0.900, +0.020)", "0.9500", "(1.000)"],
        ["shrunk means", "10%", "0.8900 (0.900, -0.010)", "-", "(1.000)"],
        ["DMF-D", "none", "0.8000", "-", "-"],
    ]


def test_markdown(recipes: Path) -> None:
    assert markdown("small", RECORDS).splitlines()[:3] == [
        "| method | new | area I | area II | area IV |",
        "| --- | --- | --- | --- | --- |",
        "| shrunk means | 20% | 0.9200 ± 0.0141 (0.900, +0.020) | 0.9500 | (1.000) |",
    ]


def test_csv_holds_every_figure(recipes: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv("small", RECORDS))))
    assert rows[0] == {
        "recipe": "small/means",
        "method": "shrunk means",
        "new_share": "0.2",
        "area": "I",
        "metric": "rmse",
        "mean": "0.92",
        "spread": "0.014142",
        "splits": "2",
        "published": "0.9",
        "difference": "0.02",
    }
    assert [row["area"] for row in rows if row["recipe"] == "small/dmf-d"] == ["I"]


def test_remarks_tell_sources_and_assumptions(recipes: Path) -> None:
    path = recipes / "small" / "2-dmf-d.toml"
    path.write_text('assumptions = ["inputs are raw"]\n' + path.read_text())
    assert remarks("small", RECORDS) == ["remark", "Published in a paper.", "Assumed for DMF-D: inputs are raw."]
    assert remarks("small", RECORDS[:1]) == ["remark", "Published in a paper."]


def test_rows_of_different_sources_are_told_apart(recipes: Path) -> None:
    one, other = {"commit": "abc", "digest": "1" * 64}, {"commit": "abc", "digest": "2" * 64}
    means, dmfd = RECORDS[0], RECORDS[-1]
    assert notes("small", [means | one, dmfd | one]) == []
    assert (
        notes("small", [means | one, dmfd | other])
        == remarks("small", [means | one, dmfd | other])[1:2]
        == [
            "Rows come from different states of the source: commit abc, digest 111111111111 (shrunk means); "
            "commit abc, digest 222222222222 (DMF-D)."
        ]
    )
    assert notes("small", [means | one, dmfd | {"commit": "abc"}]) == [
        "Rows come from different states of the source: commit abc, digest 111111111111 (shrunk means); "
        "commit abc, no digest kept (DMF-D)."
    ]


def test_without_new_rows_no_column_tells_of_them(recipes: Path) -> None:
    assert lines("small", RECORDS[-1:]) == [["method", "RMSE"], ["DMF-D", "0.8000"]]


def test_with_a_share_of_nothing_other_areas_are_not_expected(recipes: Path) -> None:
    path = recipes / "small" / "1-means.toml"
    path.write_text(path.read_text().replace("[0.2, 0.1]", "[0.2, 0.0]"))
    nothing_new = record("means", 0, "I", 0.9, share=0.0)
    assert lines("small", [*RECORDS[:3], nothing_new])[1:] == [
        ["shrunk means", "20%", "0.9200 ± 0.0141 (0.900, +0.020)", "0.9500", "(1.000)"],
        ["shrunk means", "none", "0.9000 (0.900, +0.000)", "-", "-"],
    ]
    assert lines("small", [nothing_new]) == [["method", "RMSE"], ["shrunk means", "0.9000 (0.900, +0.000)"]]


def test_rows_that_were_not_run_are_not_shown(recipes: Path) -> None:
    assert len(lines("small", RECORDS[-1:])) == 2
    assert lines("small", [])[1:] == []


def test_a_metric_that_only_some_records_have(recipes: Path) -> None:
    layout = 'title = "A small table"\nmetrics = ["rmse", "coverage"]\n'
    (recipes / "small" / "table.toml").write_text(layout)
    calibrated = [record("means", seed, "I", 0.9) | {"coverage": 0.88 + 0.02 * seed} for seed in (0, 1)]
    records = [*calibrated, record("means", 2, "I", 0.9), RECORDS[-1]]  # one split without it, and one method
    names = [f"area {area} {name}" for area in ("I", "IV") for name in ("RMSE", "share inside the 90 % interval")]
    assert lines("small", records) == [
        ["method", "new", *names],
        ["shrunk means", "20%", "0.9000 ± 0.0000 (0.900, +0.000)", "0.8900 ± 0.0141", "(1.000)", "-"],
        ["DMF-D", "none", "0.8000", "-", "-", "-"],
    ]
    found = {(cell.recipe.row, cell.metric): cell.n_splits for cell in cells("small", records) if cell.area == "I"}
    assert found == {("means", "rmse"): 3, ("means", "coverage"): 2, ("dmf-d", "rmse"): 1, ("dmf-d", "coverage"): 0}
    rows = list(csv.DictReader(io.StringIO(as_csv("small", records))))
    assert [(row["recipe"], row["metric"]) for row in rows if row["area"] == "I"] == [
        ("small/means", "rmse"),
        ("small/means", "coverage"),
        ("small/dmf-d", "rmse"),
    ]
