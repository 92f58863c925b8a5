"""The average of weights: its formula, and a trainer that answers with it and steps without it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training.test_trainer import (
    MATRICES,
    SETTINGS,
    SPLIT,
    Watched,
    interrupting_at,
    keep_all,
    new_loop,
    plain,
    same,
)

from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf.dmf_settings import DMFSettings
from deepmf.training.ema import ExponentialAverage
from deepmf.training.loop import part
from deepmf.training.settings import TrainingSettings

AVERAGED = replace(SETTINGS, averaging=0.8)


def averages(steps: list[np.ndarray], start: np.ndarray, decay: float) -> np.ndarray:
    """The formula in double precision."""
    average = start.astype(np.float64)
    for t, values in enumerate(steps, start=1):
        kept = min(decay, (t + 1) / (t + 10))
        average = kept * average + (1 - kept) * values
    return average


@pytest.mark.parametrize("decay", [0.3, 0.9, 0.995, 1.0])
def test_the_formula(decay: float) -> None:
    generator = np.random.default_rng(0)
    start = [generator.normal(size=shape) for shape in ((3, 4), (5,))]
    parameters = [torch.tensor(values) for values in start]
    average = ExponentialAverage(parameters, decay)
    steps: list[list[np.ndarray]] = []
    with average.swapped_out():
        for _ in range(200):
            steps.append([generator.normal(size=values.shape) for values in start])
            for parameter, values in zip(parameters, steps[-1], strict=True):
                parameter.copy_(torch.from_numpy(values))
            average.update()
        np.testing.assert_array_equal(parameters[0], steps[-1][0])
    for number, parameter in enumerate(parameters):
        expected = averages([step[number] for step in steps], start[number], decay)
        np.testing.assert_allclose(parameter, expected, rtol=1e-5, atol=1e-6)


def test_the_average_takes_the_place_of_the_weights_without_moving_them() -> None:
    parameter = torch.ones(3, requires_grad=True)
    average = ExponentialAverage([parameter], 0.5)
    place = parameter.data_ptr()
    with average.swapped_out():
        with torch.no_grad():
            parameter.fill_(3.0)
        average.update()  # keeps min(0.5, 2 / 11)
    np.testing.assert_allclose(parameter.detach(), 1 * 2 / 11 + 3 * 9 / 11, rtol=1e-6)
    assert parameter.data_ptr() == place and parameter.requires_grad
    with pytest.raises(KeyboardInterrupt), average.swapped_out():
        assert parameter.tolist() == [3, 3, 3]
        raise KeyboardInterrupt
    np.testing.assert_allclose(parameter.detach(), 1 * 2 / 11 + 3 * 9 / 11, rtol=1e-6)
    again = ExponentialAverage([torch.zeros(3)], 0.5)
    again.restore(average.state())
    assert again.state()["steps"] == 1 and again.state()["0.stepped"].tolist() == [3, 3, 3]


def test_steps_are_those_of_a_run_without_it_to_the_bit() -> None:
    without, averaged = Watched(), Watched(AVERAGED)
    last = keep_all(new_loop(without))[-1]
    last_averaged = keep_all(new_loop(averaged))[-1]
    assert len(without.objective.starts) == 15
    assert all(map(same, without.objective.starts, averaged.objective.starts)) and len(averaged.objective.starts) == 15
    assert without.objective.losses == averaged.objective.losses
    assert not any(name.startswith("state.average") for name in last.tensors)
    for number, (name, _) in enumerate(without.network.named_parameters()):
        stepped = last_averaged.tensors[f"state.average.{number}.stepped"]
        assert torch.equal(stepped, last.tensors[f"learned.{name}"])
        assert not torch.equal(stepped, last_averaged.tensors[f"learned.{name}"])
    assert last_averaged.tensors["state.average.steps"] == 15


def test_validation_and_the_trained_network_use_the_average() -> None:
    trainer = Watched(AVERAGED, errors=[5, 4, 1, 2, 3])
    states = keep_all(new_loop(trainer))
    for number, (name, _) in enumerate(trainer.network.named_parameters()):
        start = trainer.objective.starts[0][name].numpy()
        # Where a step leads to is where the next one starts.
        steps = [weights[name].numpy() for weights in trainer.objective.starts[1:]]
        steps.append(states[-1].tensors[f"state.average.{number}.stepped"].numpy())
        for epoch, look in enumerate(trainer.looks):
            expected = averages(steps[: 3 * (epoch + 1)], start, 0.8)
            np.testing.assert_allclose(look[name], expected, rtol=1e-4, atol=1e-6)
    assert same(trainer.learned(), trainer.looks[2])


def test_an_interrupt_leaves_the_average_too() -> None:
    settings = replace(AVERAGED, validate_every=5)
    trainer = Watched(settings)
    new_loop(trainer, callbacks=[interrupting_at(1)]).run()
    second = keep_all(new_loop(Watched(settings)))[1]
    assert same(trainer.learned(), part(second.tensors, "learned"))


@pytest.mark.parametrize("train, validation", MATRICES.values(), ids=MATRICES.keys())
def test_two_and_three_epochs_are_five_to_the_bit(train: ObservedMatrix, validation: ObservedMatrix | None) -> None:
    settings = replace(AVERAGED, validate_every=2)
    whole_trainer, trainer = Watched(settings, train, validation), Watched(settings, train, validation)
    whole = new_loop(whole_trainer)
    states = keep_all(whole)
    with torch.no_grad():  # all that counts must come from the state
        for tensor in trainer.network.state_dict().values():
            tensor.zero_()
    rest = new_loop(trainer)
    rest.restore(states[1])
    assert same(rest.state().tensors, states[1].tensors)
    for state, expected in zip(keep_all(rest), states[2:], strict=True):
        assert same(state.tensors, expected.tensors)
    assert same(trainer.learned(), whole_trainer.learned())
    assert plain(rest.history) == plain(whole.history)


def test_it_diverges_as_without_it() -> None:
    trainer = Watched(AVERAGED, validation=SPLIT.validation, poisoned_at=2)
    history = new_loop(trainer).run()
    assert (history.stopped, len(history)) == ("diverged", 2)
    assert history.best_epoch is not None and same(trainer.learned(), trainer.looks[history.best_epoch])


def test_the_setting() -> None:
    assert DMFSettings().averaging == 0.0
    assert TrainingSettings(averaging=1.0).averaging == 1.0
    for bad in (-0.1, 1.1, "0.9", None, True):
        with pytest.raises(BadSetting, match="^averaging must be a number at least 0 and at most 1; got"):
            TrainingSettings(averaging=bad)  # type: ignore[arg-type]


def test_it_starts_anew_from_the_parameters_as_they_are() -> None:
    parameter = torch.zeros(1)
    average = ExponentialAverage([parameter], 0.9)
    with average.swapped_out():
        parameter += 1
        average.update()
    parameter.fill_(5.0)
    average.restart()
    assert [float(slot) for slot in average.state().values()] == [0.0, 5.0]
