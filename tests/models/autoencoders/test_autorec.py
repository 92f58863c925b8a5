"""AutoRec: the contract for both, its objective restated, and exact continuation."""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.models.contract import ModelContract, additive
from torch import Tensor, nn

from deepmf.data.splits import split_entries
from deepmf.data.synthetic.generator import checkerboard
from deepmf.errors import BadSetting
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.autoencoders.autorec import AutoRec, IAutoRec, UAutoRec
from deepmf.training.loop import Loop, TrainingState
from deepmf.training.trainer import Trainer
from deepmf.training.validation import ValidationEntries
from deepmf.training.vector_blocks import VectorBlocks

Array = npt.NDArray[np.float64]

QUICK: dict[str, Any] = {"hidden_size": 12, "gamma": 0.3, "epochs": 120, "learning_rate": 0.05, "device": "cpu"}


class TestIAutoRec(ModelContract):
    model = IAutoRec
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.27


class TestUAutoRec(ModelContract):
    model = UAutoRec
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.05


every_model = pytest.mark.parametrize("model", [IAutoRec, UAutoRec])


def thinned(matrix: ObservedMatrix, *, dense: bool) -> ObservedMatrix:
    """Return a matrix whose vectors are dense, or sparse, by the rule."""
    return matrix if dense else matrix.take_entries(np.arange(matrix.n_entries) % 8 == 0)


def trainer_of(model: AutoRec, matrix: ObservedMatrix) -> Trainer:
    """Return a trainer in double precision, with biases that are not 0."""
    trainer = model._task(EntryStore.of(matrix), None)
    trainer.network.double()
    assert isinstance(trainer.source, VectorBlocks)
    vectors = trainer.source.vectors
    for part in ("table", "weights"):
        if hasattr(vectors, part):
            setattr(vectors, part, getattr(vectors, part).double())
    with torch.no_grad():
        for name, parameter in trainer.network.named_parameters():
            if "bias" in name:
                parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()))
    return trainer


def every_vector(model: AutoRec, matrix: ObservedMatrix) -> Tensor:
    """Return the positions of all vectors that have entries."""
    return torch.from_numpy(np.flatnonzero(matrix.row_counts if model.axis == "row" else matrix.column_counts))


def loss_of(trainer: Any, ids: Tensor) -> Tensor:
    loss: Tensor = trainer.objective.loss(trainer.network, trainer.source.block(ids))
    return loss


def restated(model: AutoRec, network: nn.Module, matrix: ObservedMatrix, ids: list[int] | None) -> float:
    """Return the sum of squared errors on the observed entries plus lambda / 2 (||V||^2 + ||W||^2).

    Of some vectors, their errors are scaled up to all that have entries.
    """
    weights = {name: parameter.detach().numpy() for name, parameter in network.named_parameters()}
    array = matrix.to_array() if model.axis == "row" else matrix.to_array().T
    shift = {"raw": 0.0, "centred": np.nanmean(array), "scaled": 3.0}[model.settings.inputs]
    units = (array - shift) / (2.0 if model.settings.inputs == "scaled" else 1.0)
    n_vectors = int((~np.isnan(units)).any(axis=1).sum())
    some = units if ids is None else units[ids]
    hidden = 1 / (1 + np.exp(-(np.nan_to_num(some) @ weights["first.weight"] + weights["first_bias"])))
    outputs = hidden @ weights["last.weight"].T + weights["last.bias"]
    errors = np.nansum((outputs - some) ** 2) * (1 if ids is None else n_vectors / len(ids))
    squared_weights = np.sum(weights["first.weight"] ** 2) + np.sum(weights["last.weight"] ** 2)
    return float(errors + model.settings.gamma / 2 * squared_weights)


@every_model
@pytest.mark.parametrize("inputs", ["raw", "centred", "scaled"])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_the_objective(model: type[AutoRec], inputs: str, dense: bool) -> None:
    matrix = thinned(additive(), dense=dense)
    some = model(hidden_size=4, gamma=7.0, inputs=inputs, batch_size=5, device="cpu")
    trainer, every = trainer_of(some, matrix), every_vector(some, matrix)
    assert trainer.source.dense is dense
    whole = loss_of(trainer, every).item() * matrix.n_entries
    assert whole == pytest.approx(restated(some, trainer.network, matrix, None), rel=1e-6)
    ids = every[[3, 0, 7, 1, 2]]
    part = loss_of(trainer, ids).item() * matrix.n_entries
    assert part == pytest.approx(restated(some, trainer.network, matrix, ids.tolist()), rel=1e-6)


@every_model
def test_the_blocks_of_an_epoch_stand_for_everything(model: type[AutoRec]) -> None:
    some = model(hidden_size=4, gamma=7.0, device="cpu")
    trainer, every = trainer_of(some, additive()), every_vector(some, additive())
    mean = np.mean([loss_of(trainer, ids).item() for ids in torch.split(every, 5)])
    assert mean == pytest.approx(loss_of(trainer, every).item(), rel=1e-9)


@every_model
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_gradients_against_differences(model: type[AutoRec], dense: bool) -> None:
    matrix = thinned(additive(), dense=dense)
    some = model(hidden_size=3, gamma=2.0, device="cpu")
    trainer, ids = trainer_of(some, matrix), every_vector(some, matrix)[:6]
    loss_of(trainer, ids).backward()
    generator = np.random.default_rng(0)
    for parameter in trainer.network.parameters():
        gradient, numbers = parameter.grad, parameter.data.view(-1)
        assert gradient is not None
        for place in generator.choice(numbers.numel(), 3, replace=False):
            there = numbers[place].item()
            losses = []
            for way in (1e-5, -1e-5):
                numbers[place] = there + way
                losses.append(loss_of(trainer, ids).item())
            numbers[place] = there
            assert gradient.view(-1)[place].item() == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-5, abs=1e-9)


@every_model
def test_sparse_and_dense_training_agree(model: type[AutoRec], monkeypatch: pytest.MonkeyPatch) -> None:
    completed = []
    for dense in (True, False):
        monkeypatch.setattr("deepmf.training.vector_blocks.prefer_dense", lambda *_, dense=dense, **__: dense)
        completed.append(model(**QUICK | {"epochs": 6}).fit(additive()).complete())
    np.testing.assert_allclose(*completed, atol=1e-3)


@every_model
def test_it_learns(model: type[AutoRec]) -> None:
    split = split_entries(additive(), train=0.8, validation=0.1, test=0.1, seed=0)
    fitted = model(**QUICK).fit(split.train, split.validation)
    rows, columns, values = split.test.entries()
    assert rmse_error(fitted.predict(rows, columns), values) < 0.6
    losses = [record.loss for record in fitted.history_.records]
    assert losses[-1] < 0.2 * losses[0]


@every_model
def test_batches_learn_too(model: type[AutoRec]) -> None:
    board = checkerboard(24, 20, observed=0.6, seed=0)
    fitted = model(**QUICK | {"batch_size": 6, "learning_rate": 0.02}).fit(board.matrix)
    rows, columns = np.divmod(np.arange(24 * 20), 20)
    np.testing.assert_array_equal(fitted.predict_levels(rows, columns), board.truth.expected(rows, columns))


@every_model
def test_gamma_holds_the_weights_down(model: type[AutoRec]) -> None:
    sizes = [
        float(model(**QUICK | {"gamma": gamma}).fit(additive()).network_.squared_weights().detach())
        for gamma in (0.0, 30.0)
    ]
    assert sizes[1] < 0.5 * sizes[0]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@every_model
@pytest.mark.parametrize("changes", [{}, {"batch_size": 7}], ids=str)
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_seven_and_five_epochs_are_twelve_to_the_bit(
    model: type[AutoRec], changes: dict[str, Any], dense: bool
) -> None:
    split = split_entries(thinned(additive(), dense=dense), train=0.8, validation=0.2, test=0, seed=0)
    settings = QUICK | {"epochs": 12, "validate_every": 3} | changes

    def new_loop() -> Loop:
        some = model(**settings)
        return Loop(
            some._task(EntryStore.of(split.train), ValidationEntries.of(split.train, split.validation)), some.settings
        )

    states: list[TrainingState] = []
    whole = new_loop()
    whole.run(keep=states.append)
    rest = new_loop()
    with torch.no_grad():  # all that counts must come from the state
        for tensor in rest.task.learned().values():
            tensor.zero_()
    rest.restore(states[6])
    later: list[TrainingState] = []
    rest.run(keep=later.append)
    assert len(later) == 5
    assert all(same(one.tensors, other.tensors) for one, other in zip(later, states[7:], strict=True))
    assert same(rest.task.learned(), whole.task.learned())
    assert not torch.equal(states[6].tensors["learned.last.weight"], states[11].tensors["learned.last.weight"])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 0}, "hidden_size must be a whole number of at least 1; got 0"),
        ({"gamma": -1}, "gamma must be a number at least 0; got -1"),
    ],
)
@every_model
def test_bad_settings(model: type[AutoRec], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        model(**changes)


def test_what_each_cannot_do() -> None:
    assert (IAutoRec.predicts, UAutoRec.predicts) == (("I", "III"), ("I", "II"))
    assert "one output for each row" in IAutoRec.cannot and "one output for each column" in UAutoRec.cannot
