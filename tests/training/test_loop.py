"""The loop on a task that is a single number: what is kept, restored and reported."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from deepmf.errors import BadEntries, UnknownLabel
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.nn.ranks import Ranks
from deepmf.training.holdout import HeldOut
from deepmf.training.loop import Epoch, Loop, TrainingState
from deepmf.training.settings import LoopSettings


class Counting:
    """A task that counts epochs, with validation errors and losses as told."""

    def __init__(
        self, errors: list[float | None], *, losses: Mapping[int, float] | None = None
    ) -> None:
        self.errors, self.losses = list(errors), losses or {}
        self.number = torch.zeros(())
        self.total = torch.zeros(())  # not learned, but the next epoch depends on it

    def run_epoch(self, epoch: int) -> Epoch:
        self.total += 1
        self.number += self.total
        return Epoch(self.losses.get(epoch, 1.0), None, {"total": self.total.item()})

    def validation_error(self) -> float | None:
        return self.errors.pop(0)

    def get_learned(self) -> dict[str, Tensor]:
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
    assert [record.loss for record in history.records] == [
        record.loss for record in expected.records
    ]


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
    "errors, losses",
    [([3.0, 1.0, float("nan")], {}), ([3.0, 1.0], {2: float("inf")})],
    ids=["error", "loss"],
)
def test_what_is_no_number_ends_it_with_the_best(
    errors: list[float | None], losses: dict[int, float]
) -> None:
    task = Counting(errors, losses=losses)
    history = Loop(task, LoopSettings(epochs=9)).run()
    assert (history.stopped, len(history), task.number.item()) == ("diverged", 2, 3)


def test_an_interrupt_ends_ranks_and_is_a_result_of_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    loop = Loop(Counting([1.0]), LoopSettings(epochs=2), callbacks=[interrupt])
    assert loop.run().stopped == "interrupted"
    unvalidated = Loop(
        Counting([0.5]), LoopSettings(epochs=9, validate_every=9), callbacks=[interrupt]
    ).run()
    assert (unvalidated.best_epoch, unvalidated.best_error) == (0, 0.5)
    monkeypatch.setattr("deepmf.nn.group.find_ranks", lambda: Ranks(0, 2))
    with pytest.raises(KeyboardInterrupt):
        Loop(Counting([1.0]), LoopSettings(epochs=2), callbacks=[interrupt]).run()


STARS = Scale([1, 2, 3, 4, 5])

TRAIN = ObservedMatrix.from_entries(["a", "b", "c"], ["x", "y", "z"], [1, 2, 3], STARS)


def entries(
    rows: list[str], columns: list[str], values: list[float], scale: Scale = STARS
) -> ObservedMatrix:
    return ObservedMatrix.from_entries(rows, columns, values, scale)


def found(validation: ObservedMatrix | None) -> HeldOut:
    aligned = HeldOut.of(TRAIN, validation)
    assert aligned is not None
    return aligned


def test_positions_are_those_of_the_training_matrix() -> None:
    aligned = found(entries(["c", "a"], ["y", "z"], [5, 4]))  # its own positions would be 0 and 1
    cells = set(
        zip(aligned.rows.tolist(), aligned.columns.tolist(), aligned.values.tolist(), strict=True)
    )
    assert cells == {(2, 1, 5.0), (0, 2, 4.0)}


def test_without_entries_there_is_none() -> None:
    assert HeldOut.of(TRAIN, None) is None
    assert HeldOut.of(TRAIN, entries([], [], [])) is None


@pytest.mark.parametrize("rows, columns, unknown", [(["d"], ["x"], "'d'"), (["a"], ["w"], "'w'")])
def test_what_training_does_not_know_is_refused(
    rows: list[str], columns: list[str], unknown: str
) -> None:
    with pytest.raises(UnknownLabel, match=unknown):
        HeldOut.of(TRAIN, entries(rows, columns, [3]))


def test_values_outside_the_scale_are_refused() -> None:
    with pytest.raises(BadEntries, match="validation"):
        HeldOut.of(TRAIN, entries(["a"], ["x"], [7], Scale([1, 7, 10])))
    # Another scale does no harm where the values are of the training matrix's.
    assert found(entries(["a"], ["x"], [4], Scale([1, 4, 10]))).values.tolist() == [4.0]


def test_the_digest_tells_entries_apart() -> None:
    digest = found(entries(["a", "b"], ["x", "y"], [1, 2])).digest()
    assert digest == found(entries(["a", "b"], ["x", "y"], [1, 2])).digest() and len(digest) == 16
    others = [
        (["a", "c"], ["x", "y"], [1, 2]),
        (["a", "b"], ["x", "z"], [1, 2]),
        (["a", "b"], ["x", "y"], [1, 3]),
    ]
    assert len({digest} | {found(entries(*other)).digest() for other in others}) == 4


def test_values_beyond_an_interval_are_taken() -> None:
    train = ObservedMatrix.from_entries(
        ["a", "b"], ["x", "x"], [0.5, 1.5], Scale(low=0.5, high=1.5)
    )
    aligned = HeldOut.of(train, entries(["a"], ["x"], [1.75], Scale(low=0, high=2)))
    assert aligned is not None and aligned.values.tolist() == [1.75]


def test_as_many_as_are_enough_are_compared_on() -> None:
    many = HeldOut(np.arange(50), np.arange(50) + 100, np.arange(50) / 10)
    assert many.sample(seed=0).digest() == many.digest()
    first, again, other = (many.sample(seed=seed, most=20) for seed in (0, 0, 1))
    assert np.unique(first.rows).size == 20
    np.testing.assert_array_equal(first.columns, first.rows + 100)  # the entries themselves
    np.testing.assert_array_equal(first.values, first.rows / 10)
    np.testing.assert_array_equal(first.rows, again.rows)
    assert not np.array_equal(first.rows, other.rows)
