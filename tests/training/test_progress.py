"""The plan of a fit, and its progress in a line."""

from __future__ import annotations

import io
import itertools
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import wait_until

from deepmf.datasets import generate
from deepmf.errors import BadSetting
from deepmf.models.als import ALS
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.nn import group, ranks
from deepmf.testing import additive
from deepmf.training import progress as progress_module, threads
from deepmf.training.history import EpochRecord, History
from deepmf.training.progress import (
    EpochDisplay,
    ProgressLine,
    is_notebook,
    is_terminal,
    show_epochs,
)
from deepmf.training.settings import EFFORTS


def test_the_line_ends_where_a_fit_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), show_epochs("fitting", 100, True, lambda: "the plan"):
        raise KeyError
    assert capsys.readouterr().err == "the plan\n"


def test_the_plans_of_models() -> None:
    matrix = generate(300, 200, density=0.3, seed=0).matrix
    assert Means().plan(matrix) is None
    assert ALS().plan(matrix) == "fitting ALS to 18,000 entries: 15 epochs"
    model = OrdinalDMF(effort="normal", device="cpu", epochs=7)
    text, seconds = model.plan(matrix).split("; ")  # type: ignore[union-attr]
    assert text == "fitting OrdinalDMF (effort normal) to 18,000 entries: 7 epochs on the CPU"
    assert re.fullmatch("about [0-9]+ (seconds|minutes)", seconds)
    assert (
        model.chosen_ == {}
        and model.settings == OrdinalDMF(effort="normal", device="cpu", epochs=7).settings
    )


def read_seconds(plan: str | None) -> float:
    """Return the seconds that a plan tells."""
    found = re.search("; about ([0-9,]+) (second|minute)s$", plan or "")
    assert found is not None
    return float(found[1].replace(",", "")) * {"second": 1, "minute": 60}[found[2]]


def let_measurements_take(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the measurement of this machine take some seconds."""
    times = itertools.count(0.0, seconds)
    monkeypatch.setattr(
        threads, "time", SimpleNamespace(monotonic=lambda: next(times), sleep=time.sleep)
    )


def test_more_work_is_estimated_to_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    let_measurements_take(0.06, monkeypatch)

    def estimate(n_entries: int, **settings: Any) -> float:
        matrix = generate(500, 400, n_entries=n_entries, named=False, seed=0).matrix
        return read_seconds(OrdinalDMF(device="cpu", **settings).plan(matrix))

    quick, normal, best = (estimate(80_000, effort=effort) for effort in EFFORTS)
    assert quick < normal < best / 2
    few, many = (estimate(20_000, linear_iterations=number) for number in (100, 10_000))
    assert 10 * few < many
    assert estimate(80_000, linear_size=0) < normal
    assert estimate(40_000, linear_iterations=10, presence=None) < estimate(
        40_000, linear_iterations=10
    )


def test_a_fit_is_estimated_to_take_longer_on_a_slow_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, matrix = OrdinalDMF(device="cpu"), generate(300, 200, density=0.3, seed=0).matrix
    let_measurements_take(0.06, monkeypatch)
    usual = read_seconds(model.plan(matrix))
    let_measurements_take(0.6, monkeypatch)
    assert read_seconds(model.plan(matrix)) == pytest.approx(10 * usual, rel=0.2)


def test_a_fit_that_shows_no_progress_estimates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        OrdinalDMF, "_estimate_seconds", lambda self, train: pytest.fail("estimated")
    )
    OrdinalDMF(effort="quick", linear_iterations=1, device="cpu").fit(
        additive(12, 10), progress=False
    )


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
    assert "fitting DMF: epoch 2 of 10" in err
    assert "loss 0.4000, validation 0.9000, best 0.9000 in epoch 1" in err


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_alone_shows_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    monkeypatch.setattr(group, "find_ranks", lambda: ranks.Ranks(rank, 2))
    show_two_epochs(progress=True)
    assert bool(capsys.readouterr().err) == (rank == 0)


def test_a_terminal_sees_a_line_of_its_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    be_a_terminal(monkeypatch, width=40)
    show_two_epochs()
    first, second = (
        "fitting DMF: epoch 1 of 10, 0:00:18 left",
        "fitting DMF: epoch 2 of 10, 0:00:24 left",
    )
    start = "fitting DMF: preparing"
    assert capsys.readouterr().err == f"\r{start}\r{first[:39]}\r{second[:39]}\n"


@pytest.mark.slow
def test_a_terminal_sees_the_seconds_of_a_text_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    be_a_terminal(monkeypatch)
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    line = ProgressLine(stream)
    line.put("sampler")
    now[0] = 7.0
    wait_until(lambda: "7 s" in stream.getvalue())
    line.close()
    assert stream.getvalue().split("\r") == ["", "sampler", "sampler, 7 s", "sampler     \n"]


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
        monkeypatch.setitem(
            sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell)
        )  # type: ignore[arg-type]
        assert not is_notebook()


def test_a_file_gets_a_line_now_and_then_and_the_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    ALS(latent_size=2, epochs=9).fit(additive(12, 10), progress=True)
    plan, first, last = capsys.readouterr().err.splitlines()
    assert plan == "fitting ALS to 67 entries: 9 epochs"
    assert first.startswith("fitting ALS: epoch 1 of 9, 0:00:00 left, loss ")
    assert last.startswith("fitting ALS: epoch 9 of 9, 0:00:00 left, loss ")


def test_nothing_on_request_and_for_what_has_no_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch)
    ALS(latent_size=2, epochs=2).fit(additive(12, 10), progress=False)
    Means().fit(additive(12, 10), progress=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("progress", ["yes", 1])
def test_what_is_no_answer(progress: object) -> None:
    with pytest.raises(BadSetting, match="^progress"):
        ALS().fit(additive(12, 10), progress=progress)  # type: ignore[arg-type]


def test_without_validation(capsys: pytest.CaptureFixture[str]) -> None:
    with show_epochs("fitting", 2, True) as (show,):
        show(EpochRecord(0, 0.5, None, 0.01, 1.0), History([FIRST]))
    assert capsys.readouterr().err == "fitting: epoch 1 of 2, 0:00:02 left, loss 0.5000\n"


def show_a_stage(plan: str | None = None, *, n_epochs: int = 1) -> None:
    with show_epochs("fitting OrdinalDMF", 10, True, lambda: plan) as (display,):
        assert isinstance(display, EpochDisplay)
        for _ in range(n_epochs):
            display(FIRST, History([FIRST], best_epoch=0, best_error=0.9))
        display.show_stage("refining")
        display.show_stage("sampler")


def test_a_file_is_told_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    show_a_stage()
    assert capsys.readouterr().err.splitlines()[1:] == [
        "fitting OrdinalDMF: refining, best 0.9000 in epoch 1",
        "fitting OrdinalDMF: sampler, best 0.9000 in epoch 1",
    ]
    show_a_stage("the plan", n_epochs=0)  # one that goes on from the end of its epochs
    assert capsys.readouterr().err.splitlines() == [
        "the plan",
        "fitting OrdinalDMF: refining",
        "fitting OrdinalDMF: sampler",
    ]


def test_standard_error_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not is_terminal()
    show_two_epochs(progress=True)
