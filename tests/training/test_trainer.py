"""The trainer, on a tiny real problem: what it learns, keeps, reports, and how exactly it
continues."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import ENCODINGS
from deepmf.models.dmf import DMF, DMFSettings
from deepmf.models.dmf_network import DMFNetwork, DMFObjective
from deepmf.models.dmfd import DMFD
from deepmf.models.network_model import NetworkModel
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.paper.autorec import DeepUAutoRec, IAutoRec
from deepmf.models.paper.cfnade import UCFNADE
from deepmf.nn.branch import use_generator
from deepmf.training.blocks import Block, BlockSource, MatrixBlocks
from deepmf.training.history import Callback, EpochRecord, History
from deepmf.training.holdout import HeldOut
from deepmf.training.loop import Loop, TrainingState, select_prefix
from deepmf.training.trainer import SGD, Adam, ExponentialAverage, Optimiser, Trainer

# Three steps an epoch on the matrices below.
SETTINGS = DMFSettings(
    hidden_sizes=(12,),
    latent_size=6,
    dropout=0.4,
    epochs=5,
    block_rows=10,
    block_columns=5,
    validate_every=1,
    device="cpu",
)

SMALL = {
    "hidden_sizes": (6,),
    "latent_size": 4,
    "block_rows": 10,
    "block_columns": 5,
    "device": "cpu",
}

SPLIT = split_entries(
    generate(30, 20, n_entries=300, seed=0).matrix, train=0.8, validation=0.1, test=0.1, seed=0
)

SPARSE_SPLIT = split_entries(
    generate(30, 20, n_entries=75, seed=1).matrix, train=0.8, validation=0.1, test=0.1
)


Weights = dict[str, Tensor]


class Objective(DMFObjective):
    """DMF's objective, which notes what the trainer does, and may be told to go bad.

    not_finite_at: the epoch in which the loss is NaN.
    poisoned_at: the epoch whose last step has a finite loss with a gradient of NaN.
    """

    def __init__(
        self, train: ObservedMatrix, *, not_finite_at: int | None, poisoned_at: int | None
    ) -> None:
        super().__init__(train, SETTINGS)
        self.not_finite_at, self.poisoned_at = not_finite_at, poisoned_at
        self.epochs: list[int] = []
        self.losses: list[list[float]] = []  # of the steps of each epoch
        self.starts: list[Weights] = []  # the weights that every step starts from
        self.modes: set[tuple[str, bool]] = set()

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.losses.append([])

    def loss(self, network: DMFNetwork, block: Block) -> Tensor:
        loss = super().loss(network, block)
        if not torch.is_grad_enabled():
            return loss
        self.modes.add(("loss", network.training))
        self.starts.append(clones(network.state_dict()))
        self.losses[-1].append(loss.item())
        if self.epochs[-1] == self.not_finite_at:
            return loss * math.nan
        if self.epochs[-1] == self.poisoned_at and len(self.losses[-1]) == 3:
            # a root's slope at 0
            return loss + (0.0 * network.rows.first.weight.square().sum()).sqrt()
        return loss

    def take_notes(self, network: DMFNetwork) -> dict[str, Any]:
        return {"steps": len(self.losses[-1])}

    def predictions(
        self, network: DMFNetwork, source: MatrixBlocks, rows: Tensor, columns: Tensor
    ) -> Tensor:
        self.modes.add(("validation", network.training))
        return super().predictions(network, source, rows, columns)


class Watched(Trainer):
    """A trainer of DMF, whose objective notes what it does, and which may be told what to answer.

    seed: that of the trainer, where it is not that of the first weights.
    errors: the validation errors of the looks, one after another, instead of the true ones.
    """

    network: DMFNetwork
    objective: Objective
    source: MatrixBlocks

    def __init__(
        self,
        settings: DMFSettings = SETTINGS,
        train: ObservedMatrix = SPLIT.train,
        validation: ObservedMatrix | HeldOut | None = None,
        *,
        seed: int | None = None,
        errors: Sequence[float] = (),
        not_finite_at: int | None = None,
        poisoned_at: int | None = None,
    ) -> None:
        sizes = {"block_rows": settings.block_rows, "block_columns": settings.block_columns}
        super().__init__(
            DMF(**settings.to_dict())._new_network(EntryStore.of(train)),
            Objective(train, not_finite_at=not_finite_at, poisoned_at=poisoned_at),
            MatrixBlocks(train, ENCODINGS["scaled"], **sizes),
            settings if seed is None else replace(settings, seed=seed),
            validation=validation
            if isinstance(validation, HeldOut)
            else HeldOut.of(train, validation),
        )
        self.errors = list(errors)
        self.looks: list[Weights] = []  # the weights at each look at the validation error

    def validation_error(self) -> float | None:
        self.looks.append(clones(self.get_learned()))
        error = super().validation_error()
        return self.errors.pop(0) if self.errors else error


def clones(tensors: Mapping[str, Tensor]) -> Weights:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(one: Weights, other: Weights) -> bool:
    """Say whether two sets of tensors are equal to the bit."""
    return one.keys() == other.keys() and all(
        np.array_equal(numbers, other[name]) for name, numbers in one.items()
    )


def new_loop(trainer: Watched, *, callbacks: Sequence[Callback] = ()) -> Loop:
    return Loop(trainer, trainer.settings, callbacks=callbacks)


def plain(history: History) -> dict[str, Any]:
    """A history without its times."""
    content = history.to_dict()
    return content | {"records": [record | {"seconds": None} for record in content["records"]]}


def is_usable(trainer: Watched) -> bool:
    trainer.network.eval()
    rows, columns = trainer.source.rows, trainer.source.columns
    cosines = trainer.network(
        rows.take(torch.arange(len(rows))), columns.take(torch.arange(len(columns)))
    )
    return bool(cosines.isfinite().all())


def test_an_epoch_is_one_pass_and_its_loss_the_mean_of_its_steps() -> None:
    trainer = Watched(validation=SPLIT.validation)
    history = new_loop(trainer).run()
    assert [len(losses) for losses in trainer.objective.losses] == [3] * 5
    for record, losses in zip(history.records, trainer.objective.losses, strict=True):
        assert record.loss == pytest.approx(np.mean(losses), rel=1e-6)
    assert trainer.objective.epochs == [0, 1, 2, 3, 4]
    assert trainer.objective.modes == {("loss", True), ("validation", False)}


def test_the_true_validation_error_is_the_root_mean_squared_one() -> None:
    trainer = Watched(validation=SPLIT.validation)
    history = new_loop(trainer).run()
    assert history.best_error == min(
        record.validation_error or math.inf for record in history.records
    )
    # The network is left with the weights of that epoch: they give its error again.
    assert trainer.validation_error() == history.best_error
    with torch.no_grad():
        rows = trainer.network.rows(trainer.source.rows.take(torch.arange(30))).double().numpy()
        columns = (
            trainer.network.columns(trainer.source.columns.take(torch.arange(20))).double().numpy()
        )
    cosines = (rows @ columns.T) / np.outer(
        np.linalg.norm(rows, axis=1), np.linalg.norm(columns, axis=1)
    )
    truth = SPLIT.validation.to_array()
    assert history.best_error == pytest.approx(
        np.sqrt(np.nanmean((3 + 2 * cosines - truth) ** 2)), rel=1e-5
    )


def test_patience() -> None:
    settings = replace(SETTINGS, epochs=20, patience=3)
    trainer = Watched(settings, errors=[5, 4, 3, 3.5, 2.5, 2.6, 2.5, 2.7, 1, 1])
    history = new_loop(trainer).run()
    assert (history.stopped, history.best_epoch, len(history)) == ("patience", 4, 8)
    assert same(trainer.get_learned(), trainer.looks[4])


def test_without_validation_the_error_is_none_and_nan_where_nothing_is_predicted() -> None:
    trainer = Watched()
    trainer.source.begin_epoch()
    assert trainer.validation_error() is None
    with torch.no_grad():
        trainer.network.rows.first.weight.fill_(math.nan)
    error = trainer.validation_error()
    assert error is not None and math.isnan(error)
    assert trainer.objective.modes == set()  # none of these is a step, or predicts pairs


def test_the_learning_rate_is_the_one_that_is_used() -> None:
    settings = replace(SETTINGS, epochs=2, learning_rate=0.1, decay=1e-6, decay_every=1)
    trainer = Watched(settings)
    start = clones(trainer.get_learned())["rows.first.weight"]
    new_loop(trainer).run()
    first, second = (look["rows.first.weight"] for look in trainer.looks)
    # Three steps of Adam, each about as long as the learning rate.
    assert 0.05 < (first - start).abs().max().item() < 0.5
    assert 0 < (second - first).abs().max().item() < 5e-7


def test_callbacks_are_called_in_turn_after_every_epoch() -> None:
    calls: list[tuple[str, int, int]] = []

    def callback(name: str) -> Callback:
        def call(record: EpochRecord, history: History) -> None:
            assert history.records[-1] is record
            calls.append((name, record.epoch, len(history)))

        return call

    new_loop(Watched(), callbacks=[callback("a"), callback("b")]).run()
    assert calls == [(name, epoch, epoch + 1) for epoch in range(5) for name in ("a", "b")]


def test_an_interrupt_in_the_middle_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Watched(errors=[3, 1, 2])
    objective, usual = trainer.objective, trainer.objective.loss

    def loss(network: DMFNetwork, block: Block) -> Tensor:
        if objective.epochs[-1] == 2 and len(objective.losses[-1]) == 1:
            raise KeyboardInterrupt
        return usual(network, block)

    monkeypatch.setattr(objective, "loss", loss)
    history = new_loop(trainer).run()
    assert (history.stopped, len(history)) == ("interrupted", 2)
    assert same(trainer.get_learned(), trainer.looks[1])


@pytest.mark.parametrize(
    "validation", [None, SPLIT.validation], ids=["no validation", "validation"]
)
@pytest.mark.parametrize("n_epochs", [3, 5])
def test_weights_that_went_bad_in_the_last_step_are_not_kept(
    validation: ObservedMatrix | None, n_epochs: int
) -> None:
    settings = replace(SETTINGS, epochs=n_epochs)
    trainer = Watched(settings, validation=validation, poisoned_at=2)
    history = new_loop(trainer).run()
    assert (history.stopped, len(history)) == ("diverged", 2)
    assert history.best_epoch is not None and same(
        trainer.get_learned(), trainer.looks[history.best_epoch]
    )
    assert is_usable(trainer)


def keep_all(loop: Loop, *, keep_every: int = 1) -> list[TrainingState]:
    states: list[TrainingState] = []
    loop.run(keep=states.append, keep_every=keep_every)
    return states


AVERAGED = replace(SETTINGS, averaging=0.8)

MATRICES = {
    "dense, validated": (SPLIT.train, SPLIT.validation),
    "dense": (SPLIT.train, None),
    "sparse, validated": (SPARSE_SPLIT.train, SPARSE_SPLIT.validation),
    "sparse": (SPARSE_SPLIT.train, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("train, validation", MATRICES.values(), ids=MATRICES.keys())
@pytest.mark.parametrize("start, validate_every", [(SETTINGS, 1), (SETTINGS, 4), (AVERAGED, 2)])
def test_two_and_three_epochs_are_five_to_the_bit(
    train: ObservedMatrix,
    validation: ObservedMatrix | None,
    start: DMFSettings,
    validate_every: int,
) -> None:
    settings = replace(start, validate_every=validate_every, decay_every=2)
    whole_trainer = Watched(settings, train, validation)
    whole = new_loop(whole_trainer)
    whole_states = keep_all(whole)
    after_two = whole_states[1]
    trainer = Watched(settings, train, validation)
    assert trainer.source.dense == (train is SPLIT.train)
    with torch.no_grad():  # all that counts must come from the state
        for tensor in trainer.network.state_dict().values():
            tensor.zero_()
    rest = new_loop(trainer)
    rest.restore(after_two)
    assert same(rest.state().tensors, after_two.tensors)
    states = keep_all(rest)
    assert len(states) == 3 and trainer.objective.epochs == [2, 3, 4]
    for state, expected in zip(states, whole_states[2:], strict=True):
        assert same(state.tensors, expected.tensors)
    assert same(trainer.get_learned(), whole_trainer.get_learned())
    assert plain(rest.history) == plain(whole.history)
    # The third epoch did change every parameter, so equality says something (the last state may be
    # the best again).
    learned = [name for name, _ in trainer.network.named_parameters()]
    assert all(
        not np.array_equal(
            states[0].tensors[f"learned.{name}"], after_two.tensors[f"learned.{name}"]
        )
        for name in learned
    )


def test_patience_goes_on_where_it_was() -> None:
    settings = replace(SETTINGS, epochs=20, patience=3)
    errors = [5.0, 1.0, 2.0, 3.0, 4.0, 0.5]
    states: list[TrainingState] = []
    whole = new_loop(Watched(settings, errors=errors)).run(keep=states.append)
    assert (whole.stopped, len(whole)) == ("patience", 5)
    trainer = Watched(settings, errors=errors[3:])
    rest = new_loop(trainer)
    rest.restore(states[2])
    assert plain(rest.run()) == plain(whole)
    assert same(trainer.get_learned(), select_prefix(states[1].tensors, "learned"))


def test_sampling_and_dropout_follow_the_trainers_seed_each_in_its_own_way() -> None:
    settings = replace(SETTINGS, dropout=0.0)
    states, starts, results = [], [], []
    for seed in (0, 1):
        trainer = Watched(settings, seed=seed)
        starts.append(clones(trainer.get_learned()))
        loop = new_loop(trainer)
        states += [
            loop.state().tensors[f"state.generator.{purpose}"]
            for purpose in ("sampling", "dropout")
        ]
        loop.run()
        results.append(trainer.get_learned())
    assert all(not np.array_equal(one, other) for one, other in combinations(states, 2))
    assert same(*starts) and not same(*results)  # by the order of blocks alone


OBJECTIVES = {
    "dmf": DMF(**SMALL),
    "dmf-d": DMFD(**SMALL),
    "ordinal-dmf": OrdinalDMF(**SMALL),
    "i-autorec": IAutoRec(hidden_size=4, device="cpu"),
    "deep-u-autorec": DeepUAutoRec(hidden_sizes=(4,), device="cpu"),
    "u-cf-nade": UCFNADE(hidden_size=4, device="cpu"),
}


@pytest.mark.parametrize("model", OBJECTIVES.values(), ids=OBJECTIVES.keys())
def test_an_objective_holds_no_matrix(model: NetworkModel) -> None:
    array = SPLIT.train.to_array()
    shuffled = np.random.default_rng(0).permutation(array.ravel()).reshape(array.shape[::-1])
    one, other = (
        model._make_task(EntryStore.of(ObservedMatrix.from_array(values, SPLIT.train.scale)), None)
        for values in (array, shuffled)
    )
    # The entries have the same number and mean, all that an objective may know of them: it serves
    # the other matrix too.
    for trainer in (one, other):
        trainer.source.begin_epoch()
        block, losses = trainer.source.next_block(), []
        for objective in (one.objective, other.objective):
            use_generator(trainer.network, torch.Generator().manual_seed(0))
            losses.append(objective.loss(trainer.network, block).item())
        assert losses[0] == losses[1] and math.isfinite(losses[0])
    held = [*vars(one.objective).values(), *one.objective.modules()]
    assert not any(isinstance(each, ObservedMatrix | BlockSource | torch.device) for each in held)
    assert one.network not in held and not list(one.objective.parameters())


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
    with average.swap_out():
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
    with average.swap_out():
        with torch.no_grad():
            parameter.fill_(3.0)
        average.update()  # keeps min(0.5, 2 / 11)
    np.testing.assert_allclose(parameter.detach(), 1 * 2 / 11 + 3 * 9 / 11, rtol=1e-6)
    assert parameter.data_ptr() == place and parameter.requires_grad
    with pytest.raises(KeyboardInterrupt), average.swap_out():
        assert parameter.tolist() == [3, 3, 3]
        raise KeyboardInterrupt
    np.testing.assert_allclose(parameter.detach(), 1 * 2 / 11 + 3 * 9 / 11, rtol=1e-6)
    assert average.state()["steps"] == 1 and average.state()["0.stepped"].tolist() == [3, 3, 3]


def test_steps_are_those_of_a_run_without_it_to_the_bit() -> None:
    without, averaged = Watched(), Watched(AVERAGED)
    last = keep_all(new_loop(without))[-1]
    last_averaged = keep_all(new_loop(averaged))[-1]
    assert len(without.objective.starts) == 15
    assert (
        all(map(same, without.objective.starts, averaged.objective.starts))
        and len(averaged.objective.starts) == 15
    )
    assert without.objective.losses == averaged.objective.losses
    assert not any(name.startswith("state.average") for name in last.tensors)
    for number, (name, _) in enumerate(without.network.named_parameters()):
        stepped = last_averaged.tensors[f"state.average.{number}.stepped"]
        assert np.array_equal(stepped, last.tensors[f"learned.{name}"])
        assert not np.array_equal(stepped, last_averaged.tensors[f"learned.{name}"])
    assert last_averaged.tensors["state.average.steps"] == 15


def test_validation_and_the_trained_network_use_the_average() -> None:
    trainer = Watched(AVERAGED, errors=[5, 4, 1, 2, 3])
    states = keep_all(new_loop(trainer))
    for number, (name, _) in enumerate(trainer.network.named_parameters()):
        start = trainer.objective.starts[0][name].numpy()
        # Where a step leads to is where the next one starts.
        steps = [weights[name].numpy() for weights in trainer.objective.starts[1:]]
        steps.append(states[-1].tensors[f"state.average.{number}.stepped"])
        for epoch, look in enumerate(trainer.looks):
            expected = averages(steps[: 3 * (epoch + 1)], start, 0.8)
            np.testing.assert_allclose(look[name], expected, rtol=1e-4, atol=1e-6)
    assert same(trainer.get_learned(), trainer.looks[2])


BOTH = pytest.mark.parametrize("optimiser_class", [Adam, SGD])


def leaving(weight: Tensor, gradient: Tensor) -> Callable[[], Tensor]:
    """Return a loss whose evaluation adds this gradient to what the weight has."""

    def evaluate() -> Tensor:
        weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return torch.tensor(7.0)

    return evaluate


@pytest.mark.slow
def test_steps_of_adam_are_torchs_own_to_the_bit() -> None:
    ours, theirs = (torch.linspace(-1, 1, 7, requires_grad=True) for _ in range(2))
    optimiser, reference = Adam([ours], 0.01), torch.optim.Adam([theirs], lr=0.01, fused=True)
    for step in range(5):
        optimiser.step(leaving(ours, torch.arange(7.0) - step))
        theirs.grad = torch.arange(7.0) - step
        reference.step()
    assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_steps_of_sgd_are_torchs_own() -> None:
    ours, theirs = (torch.linspace(-1, 1, 7, requires_grad=True) for _ in range(2))
    optimiser, reference = (
        SGD([ours], 0.01, momentum=0.9),
        torch.optim.SGD([theirs], lr=0.01, momentum=0.9),
    )
    for step in range(6):
        rate = 0.01 / (1 + step)
        optimiser.set_learning_rate(rate)
        reference.param_groups[0]["lr"] = rate
        optimiser.step(leaving(ours, torch.arange(7.0) - step))
        theirs.grad = torch.arange(7.0) - step
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@BOTH
def test_old_gradients_are_forgotten_and_the_loss_is_returned(
    optimiser_class: type[Optimiser],
) -> None:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.full((2,), 100.0)
    assert optimiser_class([weight], 0.1).step(leaving(weight, torch.ones(2))).item() == 7.0
    torch.testing.assert_close(weight.detach(), torch.full((2,), 0.9))
