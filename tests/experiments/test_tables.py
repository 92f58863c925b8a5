"""Tables: figures beside the published ones, and the notes that every table needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepmf.experiments.tables import (
    ALIKE,
    MEDIANS,
    USES,
    compute_cells,
    format_markdown,
    list_lines,
    list_notes,
    list_remarks,
)


def record(
    recipe: str, seed: int, area: str, rmse: float, share: float | None = 0.2
) -> dict[str, Any]:
    return {
        "recipe": f"small/{recipe}",
        "seed": seed,
        "new_share": share,
        "area": area,
        "rmse": rmse,
    }


RECORDS = [record("means", 0, "I", 0.9), record("dmf-d", 0, "I", 0.9, share=None)]


def test_remarks_tell_sources_and_assumptions(recipes: Path) -> None:
    path = recipes / "small" / "2-dmf-d.toml"
    path.write_text('assumptions = ["inputs are raw"]\n' + path.read_text())
    said = ["Published in a paper.", "Assumed for DMF-D: inputs are raw."]
    assert list_remarks("small", RECORDS) == ["remark", *list_notes("small", RECORDS), *said]
    assert list_remarks("small", RECORDS[:1]) == [
        "remark",
        *list_notes("small", RECORDS[:1]),
        "Published in a paper.",
    ]


def test_rows_of_different_sources_are_told_apart(recipes: Path) -> None:
    one, other = {"commit": "abc", "digest": "1" * 64}, {"commit": "abc", "digest": "2" * 64}
    means, dmfd = RECORDS
    start = "Rows come from different states of the source. Commit abc, digest 111111111111: shrunk means. Commit abc, "
    assert list_notes("small", [means | one, dmfd | one])[1:] == [
        "Measured with commit abc, digest 111111111111."
    ]
    assert list_notes("small", [means | one, dmfd | other])[1:] == [
        f"{start}digest 222222222222: DMF-D."
    ]
    assert list_notes("small", [means | one, dmfd | {"commit": "abc"}])[1:] == [
        f"{start}no digest kept: DMF-D."
    ]


@pytest.mark.parametrize(
    "change, said",
    [
        ({"joined": False}, [ALIKE["choose"]]),
        ({"joined": True}, [ALIKE["choose, then inputs"]]),
        ({"joined": False, "refit": True}, [ALIKE["choose, then training"]]),
    ],
)
def test_it_is_told_what_rows_may_do_with_validation_entries(
    recipes: Path, change: dict[str, bool], said: list[str]
) -> None:
    assert list_notes("small", [each | change for each in RECORDS])[:-1] == said
    assert list_notes("small", [RECORDS[0], RECORDS[1] | {"joined": True}])[:-1] == [USES]
    assert list_notes("small", []) == []


def test_median_levels_are_told_apart(recipes: Path) -> None:
    (recipes / "small" / "table.toml").write_text(
        'title = "A small table"\nmetrics = ["level_mae"]\n'
    )
    dmfd = RECORDS[1] | {"level_mae": 0.6}
    assert MEDIANS in list_notes("small", [dmfd | {"median_mae": 0.5}])
    assert MEDIANS not in list_notes("small", [dmfd])


SPLITS = [
    record("means", 0, "I", 0.91),
    record("means", 1, "I", 0.93),
    record("means", 0, "II", 0.95),
    record("means", 0, "I", 0.89, share=0.1),
    record("dmf-d", 0, "I", 0.8, share=None),
]


def test_a_cell_is_a_mean_a_spread_and_a_published_figure(recipes: Path) -> None:
    first = compute_cells("small", SPLITS)[0]
    assert (first.mean, first.n_splits, first.published) == (pytest.approx(0.92), 2, 0.9)
    assert first.spread == pytest.approx(0.02 / 2**0.5)
    assert first.difference == pytest.approx(0.02)
    assert str(first) == "0.9200 ± 0.0141 (0.900, +0.020)"


def test_lines_of_a_table(recipes: Path) -> None:
    assert list_lines("small", SPLITS) == [
        ["method", "new", "validation entries", "area I", "area II", "area IV"],
        ["shrunk means", "20%", "choose", "0.9200 ± 0.0141 (0.900, +0.020)", "0.9500", "(1.000)"],
        ["shrunk means", "10%", "choose", "0.8900 (0.900, -0.010)", "-", "(1.000)"],
        ["DMF-D", "none", "choose, then inputs", "0.8000", "-", "-"],
    ]


def test_markdown(recipes: Path) -> None:
    assert format_markdown("small", SPLITS).splitlines()[:3] == [
        "| method | new | validation entries | area I | area II | area IV |",
        "| --- | --- | --- | --- | --- | --- |",
        "| shrunk means | 20% | choose | 0.9200 ± 0.0141 (0.900, +0.020) | 0.9500 | (1.000) |",
    ]


def test_median_levels_have_a_row_of_their_own(recipes: Path) -> None:
    layout = 'title = "A small table"\nmetrics = ["rmse", "level_rmse", "level_mae"]\n'
    (recipes / "small" / "table.toml").write_text(layout)
    both = {"level_rmse": 0.9, "level_mae": 0.6}
    medians = {"median_rmse": 0.92, "median_mae": 0.58}
    plain, whole = (SPLITS[-1] | {"joined": False} | errors for errors in (both, both | medians))
    header = ["method", "RMSE", "RMSE of levels", "MAE of levels"]
    own = ["DMF-D", "0.8000", "0.9000", "0.6000"]
    assert list_lines("small", [plain]) == [header, own]
    assert list_lines("small", [whole]) == [
        header,
        own,
        ["DMF-D, median levels", "-", "0.9200", "0.5800"],
    ]
    # Where only one of the two was measured, the other is not borrowed from another set of levels.
    assert list_lines("small", [plain | {"median_mae": 0.58}])[2] == [
        "DMF-D, median levels",
        "-",
        "-",
        "0.5800",
    ]


def test_without_new_rows_no_column_tells_of_them(recipes: Path) -> None:
    assert list_lines("small", SPLITS[-1:]) == [["method", "RMSE"], ["DMF-D", "0.8000"]]


def test_with_a_share_of_nothing_other_areas_are_not_expected(recipes: Path) -> None:
    path = recipes / "small" / "1-means.toml"
    path.write_text(path.read_text().replace("[0.2, 0.1]", "[0.2, 0.0]"))
    nothing_new = record("means", 0, "I", 0.9, share=0.0)
    assert list_lines("small", [*SPLITS[:3], nothing_new])[1:] == [
        ["shrunk means", "20%", "0.9200 ± 0.0141 (0.900, +0.020)", "0.9500", "(1.000)"],
        ["shrunk means", "none", "0.9000 (0.900, +0.000)", "-", "-"],
    ]
    assert list_lines("small", [nothing_new]) == [
        ["method", "RMSE"],
        ["shrunk means", "0.9000 (0.900, +0.000)"],
    ]
