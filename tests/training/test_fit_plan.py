"""The plan of a fit: its words at once, its time once an epoch was measured, one line however the fit ends."""

import io

import pytest
from tests.models.contract import additive

from deepmf.data.synthetic.generator import generate
from deepmf.matrix.entry_store import EntryStore
from deepmf.models.dmf.dmf import DMF
from deepmf.models.factorization.als import ALS
from deepmf.models.means import Means
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.training import fit_plan
from deepmf.training.fit_plan import FitPlan, plan_line
from deepmf.training.history import EpochRecord, History


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times that are read, one after another."""
    times = [100.0, 103.0]
    monkeypatch.setattr(fit_plan.time, "monotonic", lambda: times[0] if len(times) == 1 else times.pop(0))
    return times


def epoch(number: int, seconds: float) -> EpochRecord:
    return EpochRecord(number, 0.5, None, None, seconds)


def test_text_at_once_and_time_after_an_epoch() -> None:
    stream = io.StringIO()
    with plan_line(FitPlan("fitting", 11, share_after=0.5), stream) as line:
        assert stream.getvalue() == "fitting" and not line.told
        line(epoch(0, 2.0), History())  # 3 s so far, 10 epochs of 2 s, half of 11 more
        assert stream.getvalue() == "fitting; about 35 s\n" and line.told
        line(epoch(1, 2.0), History())
    assert stream.getvalue() == "fitting; about 35 s\n"


def test_slow_epochs_do_not_count_unless_there_are_no_others() -> None:
    stream = io.StringIO()
    with plan_line(FitPlan("fitting", 11, n_slow=1), stream) as line:
        line(epoch(0, 1000.0), History())
        assert stream.getvalue() == "fitting"
        line(epoch(1, 2.0), History())
    assert stream.getvalue() == "fitting; about 20 s\n"
    stream = io.StringIO()
    with plan_line(FitPlan("fitting", 1, n_slow=1), stream) as line:
        line(epoch(0, 3.0), History())
    assert stream.getvalue() == "fitting; about a second\n"


def test_a_fit_that_goes_on_has_less_left() -> None:
    stream = io.StringIO()
    with plan_line(FitPlan("fitting", 100), stream) as line:
        line(epoch(97, 10.0), History())
    assert stream.getvalue() == "fitting; about 25 s\n"


def test_the_line_ends_where_a_fit_fails() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyError), plan_line(FitPlan("fitting", 100), stream):
        raise KeyError
    assert stream.getvalue() == "fitting\n"


def test_the_plans_of_models() -> None:
    matrix = generate(300, 200, density=0.3, seed=0).matrix
    assert Means().plan(matrix) is None
    assert ALS().plan(matrix) == FitPlan("fitting ALS to 18,000 entries: 15 epochs", 15)
    model = OrdinalDMF(effort="quick", device="cpu", epochs=7)
    plan = model.plan(matrix)
    assert plan is not None and plan.share_after > 0
    assert plan.text == (
        "fitting OrdinalDMF (effort quick) to 18,000 entries: 1 hidden layer of 128, 7 epochs of 3 steps on the CPU"
    )
    assert model.chosen_ == {} and model.settings == OrdinalDMF(effort="quick", device="cpu", epochs=7).settings
    several = OrdinalDMF(effort="quick", device="cpu", epochs=7, networks=3).plan(matrix)
    assert several is not None and ": 3 networks with 1 hidden layer of 128, 7 epochs" in several.text
    deep = DMF(hidden_sizes=(8, 4), device="cpu").plan(matrix)
    assert deep is not None and "2 hidden layers of 8, 4, 1000 epochs of 1 step on the CPU" in deep.text


def test_a_warm_fit_has_half_the_epochs() -> None:
    matrix = additive(12, 10)
    first = ALS(latent_size=2, epochs=5).fit(matrix)
    plan = ALS(latent_size=2, epochs=5).plan(matrix, start_from=first)
    assert plan is not None and plan.epochs == 3


@pytest.mark.parametrize("model", [OrdinalDMF, DMF])
def test_steps_are_those_of_training(model: type[OrdinalDMF] | type[DMF]) -> None:
    given = {"hidden_sizes": (4,), "latent_size": 2, "block_rows": 10, "block_columns": 20, "device": "cpu"}
    new, matrix = model(**given), additive(30, 25)
    assert new._steps_of(matrix) == new._task(EntryStore.of(matrix), None).source.n_steps
