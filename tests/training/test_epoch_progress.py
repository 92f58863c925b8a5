"""Progress of training: silent where nobody looks, one line where somebody does."""

import re
import sys
from types import SimpleNamespace

import pytest
from tests.models.contract import additive

from deepmf.errors import BadSetting, TrainingInterrupted
from deepmf.layers import ranks
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.training import epoch_progress
from deepmf.training.epoch_progress import EpochDisplay, is_notebook, is_terminal, show_epochs
from deepmf.training.fit_plan import FitPlan
from deepmf.training.history import EpochRecord, History

FIRST, SECOND = EpochRecord(0, 0.5, 0.9, 0.01, 2.0), EpochRecord(1, 0.4, None, 0.01, 4.0)


def be_a_terminal(monkeypatch: pytest.MonkeyPatch, *, width: int = 150) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of a notebook: standard error is no terminal."""
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # type: ignore[arg-type]
    monkeypatch.setenv("COLUMNS", "150")


def show_two_epochs(progress: bool | None = None) -> None:
    history = History(best_epoch=0, best_error=0.9)
    with show_epochs("fitting DMF", 10, progress) as callbacks:
        for record in (FIRST, SECOND):
            history.records.append(record)
            for show in callbacks:
                show(record, history)


def test_nothing_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    show_two_epochs()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_how_training_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch)
    assert is_terminal()
    show_two_epochs()
    out, err = capsys.readouterr()
    assert out == ""
    assert "fitting DMF" in err
    assert "2/10" in err
    assert "loss 0.4000, validation 0.9000, best 0.9000 in epoch 1" in err


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_alone_shows_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    monkeypatch.setattr(ranks, "ranks_here", lambda: ranks.Ranks(rank, 2))
    show_two_epochs(progress=True)
    assert bool(capsys.readouterr().err) == (rank == 0)


def test_a_narrow_terminal_sees_epoch_and_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch, width=80)
    with show_epochs("fitting OrdinalDMF", 1000) as (show,):
        show(EpochRecord(98, 0.5, 0.9, 0.01, 1.0), History(best_epoch=97, best_error=0.9))
    err = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"fitting OrdinalDMF +99/1000 [\d:-]+ loss 0.5000, validation 0.9000, best", err)


def test_a_terminal_without_rich_sees_a_line_of_its_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(epoch_progress, "find_spec", lambda _: None)
    monkeypatch.setattr(epoch_progress, "_REWRITTEN_EVERY", 0.0)
    be_a_terminal(monkeypatch, width=40)
    show_two_epochs()
    first, second = "fitting DMF: epoch 1 of 10, 0:00:18 left", "fitting DMF: epoch 2 of 10, 0:00:24 left"
    assert capsys.readouterr().err == f"\r{first[:39]}\r{second[:39]}\n"


@pytest.mark.usefixtures("notebook")
def test_a_notebook_sees_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert is_notebook() and not is_terminal()
    show_two_epochs()
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    last = "fitting DMF: epoch 2 of 10, 0:00:24 left, loss 0.4000, validation 0.9000, best 0.9000 in epoch 1"
    assert told.rpartition("\r")[2].rstrip() == last


def test_ipython_without_a_kernel_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in (None, SimpleNamespace()):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))  # type: ignore[arg-type]
        assert not is_notebook()


def test_a_file_gets_a_line_now_and_then_and_the_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(epoch_progress, "_WRITTEN_EVERY", 60.0)
    ALS(latent_size=2, epochs=9).fit(additive(12, 10), progress=True)
    plan, first, last = capsys.readouterr().err.splitlines()
    assert plan == "fitting ALS to 67 entries: 9 epochs; about a second"
    assert first.startswith("fitting ALS: epoch 1 of 9, 0:00:00 left, loss ")
    assert last.startswith("fitting ALS: epoch 9 of 9, 0:00:00 left, loss ")


def test_nothing_on_request_and_for_what_has_no_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch)
    ALS(latent_size=2, epochs=2).fit(additive(12, 10), progress=False)
    Means().fit(additive(12, 10), progress=True)
    assert capsys.readouterr() == ("", "")


def test_fit_is_shown_where_somebody_looks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    be_a_terminal(monkeypatch)
    ALS(latent_size=2, epochs=2).fit(additive(12, 10))
    out, err = capsys.readouterr()
    assert out == ""
    assert "fitting ALS" in err and "2/2" in err


def test_ctrl_c_ends_a_fit_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def stop(record: EpochRecord, _: History) -> None:
        if record.epoch == 3:
            raise KeyboardInterrupt

    with pytest.warns(TrainingInterrupted):
        model = ALS(latent_size=2, epochs=9).fit(additive(12, 10), callbacks=[stop], progress=True)
    assert len(model.history_) == 4
    assert capsys.readouterr().err.splitlines()[-1].startswith("fitting ALS: epoch 4 of 9")


@pytest.mark.parametrize("progress", ["yes", 1])
def test_what_is_no_answer(progress: object) -> None:
    with pytest.raises(BadSetting, match="^progress must be True, False or None"):
        ALS().fit(additive(12, 10), progress=progress)  # type: ignore[arg-type]


def test_without_validation(capsys: pytest.CaptureFixture[str]) -> None:
    with show_epochs("fitting", 2, True) as (show,):
        show(EpochRecord(0, 0.5, None, 0.01, 1.0), History([FIRST]))
    assert capsys.readouterr().err == "fitting: epoch 1 of 2, 0:00:02 left, loss 0.5000\n"


def show_a_stage(plan: FitPlan | None = None, *, n_epochs: int = 1) -> None:
    with show_epochs("fitting OrdinalDMF", 10, True, plan) as (display,):
        assert isinstance(display, EpochDisplay)
        for _ in range(n_epochs):
            display(FIRST, History([FIRST], best_epoch=0, best_error=0.9))
        display.tell_stage("refining")
        display.tell_stage("linear part")


def test_a_file_is_told_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    show_a_stage()
    assert capsys.readouterr().err.splitlines()[1:] == [
        "fitting OrdinalDMF: refining, best 0.9000 in epoch 1",
        "fitting OrdinalDMF: linear part, best 0.9000 in epoch 1",
    ]
    show_a_stage(FitPlan("the plan", 10), n_epochs=0)  # one that goes on from the end of its epochs
    assert capsys.readouterr().err.splitlines() == [
        "the plan",
        "fitting OrdinalDMF: refining",
        "fitting OrdinalDMF: linear part",
    ]


def test_a_terminal_sees_the_stage_beside_a_bar_that_is_not_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch)
    show_a_stage()
    err = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"fitting OrdinalDMF .* 1/10 +linear part, best 0.9000 in epoch 1", err)


def test_standard_error_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not is_terminal()
    show_two_epochs(progress=True)
