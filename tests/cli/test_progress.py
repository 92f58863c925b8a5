"""Progress of training: silent where nobody looks."""

import sys

import pytest

from deepmf.cli.progress import describe_epoch, show_epochs
from deepmf.training.history import EpochRecord, History


def test_nothing_where_standard_error_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_epochs("fitting", 3) as callbacks:
        assert list(callbacks) == []
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_how_training_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    history = History(best_epoch=1, best_error=0.9)
    with show_epochs("fitting DMF", 10) as (show,):
        show(EpochRecord(1, 0.5, 0.9, 0.01, 1.0), history)
        show(EpochRecord(2, 0.4, None, 0.01, 1.0), history)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fitting DMF" in err
    assert "3/10" in err
    assert "loss 0.4000, validation 0.9000, best 0.9000 in epoch 2" in err


def test_without_validation() -> None:
    assert describe_epoch(EpochRecord(0, 0.5, None, 0.01, 1.0), None, History()) == "loss 0.5000"
