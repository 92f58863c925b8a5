"""Lines, tables, JSON and frames; a trial before the work."""

from __future__ import annotations

import json
import sys

import polars
import pytest

from deepmf.cli.output import escape_controls, say, show_json, show_share, show_table, write_frames


def test_json_has_only_what_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"a": float("nan"), "b": [1.5, float("inf")], "c": (1, "é"), 3: None})
    assert json.loads(capsys.readouterr().out) == {
        "a": None,
        "b": [1.5, None],
        "c": [1, "é"],
        "3": None,
    }


def test_tables_show_what_they_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(
        ["name", "[n]", "x"],
        [["[red]Alien[/red]", 12345, 0.5], ["Big", None, 1.0]],
        title="[bold] two",
    )
    out = capsys.readouterr().out
    assert out.startswith("[bold] two\n")
    for shown in ("[n]", "[red]Alien[/red]", "12,345", "0.5000"):
        assert shown in out


STEERING = [
    "\x1b[2J",
    "\x07",
    "\r",
    "\x9b1m",
    "\x7f",
    "\u202e",
    "\u2066",
    "\u200f",
    "\u2028",
    "\ud800",
    "\ufeff",
]


def test_what_steers_a_terminal_is_written_out() -> None:
    for steering in STEERING:
        assert escape_controls(f"a{steering}b").isprintable(), ascii(steering)
    assert escape_controls("a\x1b[31m") == "a\\x1b[31m"
    for harmless in ("Käse", "日本", "الف", "👩\u200d🚀", "a b"):
        assert escape_controls(harmless) == harmless


def test_tables_text_and_json_steer_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "".join(STEERING)
    show_table([name], [[name]], title=name)
    say(f"one\ntwo {name}")
    show_json({name: name})
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.split("\n"))
    assert "one\ntwo " in out
    assert json.loads(out.splitlines()[-1]) == {name: name}


def test_nothing_where_standard_error_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_share("completing") as show:
        show(1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_what_share_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with show_share("completing") as show:
        show(1, None)
        show(3, 4)
    out, err = capsys.readouterr()
    assert out == ""
    assert "completing" in err
    assert " 75%" in err


SCHEMA = {"row": polars.String, "prediction": polars.Float64}

FIRST = polars.DataFrame({"row": ["é", "b,c"], "prediction": [1.5, 2.0]}, schema=SCHEMA)

SECOND = polars.DataFrame({"row": ['"d"'], "prediction": [0.1]}, schema=SCHEMA)


@pytest.mark.parametrize(
    ("as_json", "text"),
    [
        (False, 'row,prediction\né,1.5\n"b,c",2.0\n"""d""",0.1\n'),
        (
            True,
            '{"row":"é","prediction":1.5}\n{"row":"b,c","prediction":2.0}\n{"row":"\\"d\\"","prediction":0.1}\n',
        ),
    ],
)
def test_standard_output_is_utf_8(
    capfdbinary: pytest.CaptureFixture[bytes], as_json: bool, text: str
) -> None:
    write_frames([FIRST, SECOND], SCHEMA, "-", as_json=as_json)
    assert capfdbinary.readouterr().out == text.encode()


def test_ids_steer_no_terminal(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = polars.DataFrame({"row": ["a\x1b[2J"], "prediction": [1.0]}, schema=SCHEMA)
    write_frames([frame], SCHEMA, "-")
    # a pipe gets the ids as they are
    assert capfdbinary.readouterr().out == b"row,prediction\na\x1b[2J,1.0\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    write_frames([frame], SCHEMA, "-")
    assert capfdbinary.readouterr().out == b"row,prediction\na\\x1b[2J,1.0\n"
