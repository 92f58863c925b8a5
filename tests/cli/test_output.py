"""Tables, JSON, models on standard output, and a trial before the work."""

import json
import sys
from pathlib import Path

import pytest

from deepmf.cli.output import check_model_target, check_writable, say, show_json, show_table, visible
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
    check_writable(tmp_path / "new", inputs=())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").write_text("old")
    check_writable(tmp_path / "old", inputs=())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "old")]
    with pytest.raises(CannotSave, match="no folder"):
        check_writable(tmp_path / "nowhere" / "new", inputs=())


def test_a_terminal_gets_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    check_model_target(Path("-"), inputs=())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(BadSetting, match="a model file is not for a terminal"):
        check_model_target(Path("-"), inputs=())
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(BadSetting, match="a model file is not for a terminal"):
        check_model_target(Path("-"), inputs=())


STEERING = ["\x1b[2J", "\x07", "\r", "\x9b1m", "\x7f", "\u202e", "\u2066", "\u200f", "\u2028", "\ud800", "\ufeff"]


def test_what_steers_a_terminal_is_written_out() -> None:
    for steering in STEERING:
        assert visible(f"a{steering}b").isprintable(), ascii(steering)
    assert visible("a\x1b[31m") == "a\\x1b[31m"
    for harmless in ("Käse", "日本", "الف", "👩\u200d🚀", "a b"):
        assert visible(harmless) == harmless


def test_tables_text_and_json_steer_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "".join(STEERING)
    show_table([name], [[name]], title=name)
    say(f"one\ntwo {name}")
    show_json({name: name})
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.split("\n"))
    assert "one\ntwo " in out
    assert json.loads(out.splitlines()[-1]) == {name: name}
