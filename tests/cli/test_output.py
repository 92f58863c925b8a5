"""Tables, JSON, and files that are whole or not there."""

import json
from pathlib import Path

import polars
import pytest

from deepmf.cli.output import check_frame_target, check_writable, show_json, show_table, write_frame
from deepmf.errors import BadSetting, CannotSave


def test_json_has_only_what_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"a": float("nan"), "b": [1.5, float("inf")], "c": (1, "é"), 3: None})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, None], "c": [1, "é"], "3": None}


def test_tables_show_what_they_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["name", "[n]", "x"], [["[red]Alien[/red]", 12345, 0.5], ["Big", None, 1.0]], title="[bold] two")
    out = capsys.readouterr().out
    assert out.startswith("[bold] two\n")
    for shown in ("[n]", "[red]Alien[/red]", "12,345", "0.5000"):
        assert shown in out


def test_a_trial_leaves_nothing_and_keeps_what_is_there(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").write_text("old")
    check_writable(tmp_path / "old")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "old")]
    with pytest.raises(CannotSave, match="no folder"):
        check_writable(tmp_path / "nowhere" / "new")


def test_endings(tmp_path: Path) -> None:
    check_frame_target("-")
    check_frame_target(str(tmp_path / "p.jsonl"))
    for name in ("p", "p.txt", "p.csv.gz"):
        with pytest.raises(BadSetting, match="must end in .csv, .tsv, .parquet, .jsonl"):
            check_frame_target(str(tmp_path / name))


def test_standard_output_is_utf_8(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_frame(polars.DataFrame({"row": ["é"]}), "-")
    assert capfdbinary.readouterr().out == "row\né\n".encode()
