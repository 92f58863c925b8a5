"""Progress of long work: silent where nobody looks."""

import sys

import pytest

from deepmf.cli.progress import show_share


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
