"""`deepmf explain`: the library's explanation, for known rows and for new ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepmf.data import AreaSplit
from deepmf.models.explanation import Explanation
from deepmf.models.loading import load


def assert_shown(out: str, row: Any, column: Any, other: str, found: Explanation) -> None:
    shown = json.loads(out)
    assert (shown["row"], shown["column"]) == (row, column)
    assert shown["prediction"] == pytest.approx(found.prediction)
    assert [line[other] for line in shown["entries"]] == found.labels.tolist()
    assert [line["value"] for line in shown["entries"]] == found.values.tolist()
    assert [line["effect"] for line in shown["entries"]] == pytest.approx(found.effects.tolist())


@pytest.mark.parametrize(("axis", "other"), [("row", "column"), ("column", "row")])
def test_a_known_row(run: Any, folder: Path, split: AreaSplit, axis: Any, other: str) -> None:
    model = folder / "means.safetensors"
    row, column = split.train.row_labels[0], split.train.column_labels[1]
    arguments = ["explain", model, "--row", row, "--column", column, "-n", 3, "--axis", axis]
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    found = load(model).explain(row, column, 3, axis=axis)
    assert len(found.labels) == 3
    assert_shown(out, row, column, other, found)
    text = run(*arguments).out
    assert text.startswith(f"prediction {found.prediction:.4f}; entries of the {axis}")
    places = [text.index(label) for label in found.labels]
    assert places == sorted(places)
    assert f"{found.effects[0]:.4f}" in text
    assert f" {found.values[0]:.0f} " in text  # stars are whole


def test_a_history(run: Any, folder: Path, split: AreaSplit, tmp_path: Path) -> None:
    model = folder / "means.safetensors"
    films = split.train.column_labels[:3].tolist()
    (tmp_path / "me.csv").write_text(f"film,stars\n{films[0]},5\n{films[1]},1\n")
    code, out, err = run(
        "explain", model, "--history", tmp_path / "me.csv", "--column", films[2], "--json"
    )
    assert (code, err) == (0, "")
    assert_shown(
        out, None, films[2], "column", load(model).fold_in(films[:2], [5, 1]).explain(films[2])
    )
