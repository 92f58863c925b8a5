"""Remarks: what a table is never shown without."""

from pathlib import Path
from typing import Any

import pytest

from deepmf.experiments.remarks import ALIKE, MEDIANS, USES, notes, remarks


def record(recipe: str, share: float | None) -> dict[str, Any]:
    return {"recipe": f"small/{recipe}", "seed": 0, "new_share": share, "area": "I", "rmse": 0.9}


RECORDS = [record("means", 0.2), record("dmf-d", None)]


def test_remarks_tell_sources_and_assumptions(recipes: Path) -> None:
    path = recipes / "small" / "2-dmf-d.toml"
    path.write_text('assumptions = ["inputs are raw"]\n' + path.read_text())
    said = ["Published in a paper.", "Assumed for DMF-D: inputs are raw."]
    assert remarks("small", RECORDS) == ["remark", *notes("small", RECORDS), *said]
    assert remarks("small", RECORDS[:1]) == ["remark", *notes("small", RECORDS[:1]), "Published in a paper."]


def test_rows_of_different_sources_are_told_apart(recipes: Path) -> None:
    one, other = {"commit": "abc", "digest": "1" * 64}, {"commit": "abc", "digest": "2" * 64}
    means, dmfd = RECORDS
    start = "Rows come from different states of the source. Commit abc, digest 111111111111: shrunk means. Commit abc, "
    assert notes("small", [means | one, dmfd | one])[1:] == ["Measured with commit abc, digest 111111111111."]
    assert notes("small", [means | one, dmfd | other])[1:] == [f"{start}digest 222222222222: DMF-D."]
    assert notes("small", [means | one, dmfd | {"commit": "abc"}])[1:] == [f"{start}no digest kept: DMF-D."]


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
    assert notes("small", [each | change for each in RECORDS])[:-1] == said
    assert notes("small", [RECORDS[0], RECORDS[1] | {"joined": True}])[:-1] == [USES]
    assert notes("small", []) == []


def test_median_levels_are_told_apart(recipes: Path) -> None:
    (recipes / "small" / "table.toml").write_text('title = "A small table"\nmetrics = ["level_mae"]\n')
    dmfd = RECORDS[1] | {"level_mae": 0.6}
    assert MEDIANS in notes("small", [dmfd | {"median_mae": 0.5}])
    assert MEDIANS not in notes("small", [dmfd])
