"""Progress of training: silent where nobody looks."""

import re
import sys

import pytest

from deepmf.cli.progress import describe_epoch, is_watched, show_epochs, show_share
from deepmf.training.history import EpochRecord, History


def test_nothing_where_standard_error_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_epochs("fitting", 3) as callbacks:
        assert list(callbacks) == []
    with show_share("completing") as show:
        show(1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_how_training_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    assert is_watched()
    history = History(best_epoch=1, best_error=0.9)
    with show_epochs("fitting DMF", 10) as (show,):
        show(EpochRecord(1, 0.5, 0.9, 0.01, 1.0), history)
        show(EpochRecord(2, 0.4, None, 0.01, 1.0), history)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fitting DMF" in err
    assert "3/10" in err
    assert "loss 0.4000, validation 0.9000, best 0.9000 in epoch 2" in err


def test_a_narrow_terminal_sees_epoch_and_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with show_epochs("fitting OrdinalDMF", 1000) as (show,):
        show(EpochRecord(98, 0.5, 0.9, 0.01, 1.0), History(best_epoch=97, best_error=0.9))
    err = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"fitting OrdinalDMF +99/1000 [\d:-]+ loss 0.5000, validation 0.9000, best", err)


def test_without_validation() -> None:
    assert describe_epoch(EpochRecord(0, 0.5, None, 0.01, 1.0), None, History()) == "loss 0.5000"


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


def test_standard_error_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not is_watched()
