"""The loop on a task that is a single number: what is kept, restored and reported."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from deepmf.layers.ranks import Ranks
from deepmf.training.loop import Epoch, Loop, TrainingState
from deepmf.training.settings import LoopSettings


class Counting:
    """A task that counts epochs, with validation errors and losses as told."""

    def __init__(self, errors: list[float | None], *, losses: Mapping[int, float] | None = None) -> None:
        self.errors, self.losses = list(errors), losses or {}
        self.number = torch.zeros(())
        self.total = torch.zeros(())  # not learned, but the next epoch depends on it

    def run_epoch(self, epoch: int) -> Epoch:
        self.total += 1
        self.number += self.total
        return Epoch(self.losses.get(epoch, 1.0), None, {"total": self.total.item()})

    def validation_error(self) -> float | None:
        return self.errors.pop(0)

    def learned(self) -> dict[str, Tensor]:
        return {"number": self.number}

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        self.number.copy_(learned["number"])

    def state(self) -> dict[str, Tensor]:
        return {"total": self.total}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.total.copy_(state["total"])


def test_the_best_is_left_and_everything_is_recorded() -> None:
    task = Counting([3.0, 1.0, 2.0, 4.0])
    history = Loop(task, LoopSettings(epochs=4)).run()
    assert task.number.item() == 1 + 2
    assert (history.best_epoch, history.best_error, history.stopped) == (1, 1.0, "epochs")
    assert [record.notes["total"] for record in history.records] == [1, 2, 3, 4]
    assert {record.learning_rate for record in history.records} == {None}


def test_without_validation_the_last_is_left() -> None:
    task = Counting([None] * 4)
    Loop(task, LoopSettings(epochs=4)).run()
    assert task.number.item() == 1 + 2 + 3 + 4


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_restored_state_goes_on_to_the_same(at: int) -> None:
    errors: list[float | None] = [3.0, 1.0, 2.0, 0.5]
    whole = Counting(errors)
    states: list[TrainingState] = []
    expected = Loop(whole, LoopSettings(epochs=4)).run(keep=states.append)
    rest = Counting(errors[at:])
    loop = Loop(rest, LoopSettings(epochs=4))
    loop.restore(states[at - 1])
    history = loop.run()
    assert torch.equal(rest.number, whole.number) and torch.equal(rest.total, whole.total)
    assert (history.best_epoch, history.best_error) == (expected.best_epoch, expected.best_error)
    assert [record.loss for record in history.records] == [record.loss for record in expected.records]


@pytest.mark.parametrize("patience", [None, 1])
def test_from_a_state_of_the_end_nothing_is_run(patience: int | None) -> None:
    settings, states = LoopSettings(epochs=4, patience=patience), list[TrainingState]()
    whole = Counting([1.0, 2.0, 3.0, 4.0])
    expected = Loop(whole, settings).run(keep=states.append, keep_every=2)
    assert len(states) == (1 if patience else 2)  # of the second epoch, and of the end
    again = Counting([])
    loop = Loop(again, settings)
    loop.restore(states[-1])
    assert loop.run(keep=lambda _: pytest.fail("nothing is new")) == expected
    assert torch.equal(again.number, whole.number)


@pytest.mark.parametrize(
    "errors, losses", [([3.0, 1.0, float("nan")], {}), ([3.0, 1.0], {2: float("inf")})], ids=["error", "loss"]
)
def test_what_is_no_number_ends_it_with_the_best(errors: list[float | None], losses: dict[int, float]) -> None:
    task = Counting(errors, losses=losses)
    history = Loop(task, LoopSettings(epochs=9)).run()
    assert (history.stopped, len(history), task.number.item()) == ("diverged", 2, 3)


def test_an_interrupt_ends_ranks_and_is_a_result_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    loop = Loop(Counting([1.0]), LoopSettings(epochs=2), callbacks=[interrupt])
    assert loop.run().stopped == "interrupted"
    monkeypatch.setattr("deepmf.training.loop.ranks_here", lambda: Ranks(0, 2))
    with pytest.raises(KeyboardInterrupt):
        Loop(Counting([1.0]), LoopSettings(epochs=2), callbacks=[interrupt]).run()
