"""AutoRec: the contract for both, its objective restated, and exact continuation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from deepmf.data import split_entries
from deepmf.datasets import checkerboard
from deepmf.errors import BadSetting, CannotExtend
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.network_model import NetworkModel
from deepmf.models.paper.autorec import (
    Autoencoder,
    AutoencoderSettings,
    AutoRec,
    DeepAutoRecSettings,
    DeepUAutoRec,
    IAutoRec,
    UAutoRec,
    UAutoRecSettings,
    ValueEncoding,
    VectorSettings,
    count_outputs,
    encode_hidden,
)
from deepmf.models.paper.cfnade import ICFNADE, NORMALISATIONS, UCFNADE, CFNADESettings
from deepmf.nn.branch import use_generator
from deepmf.nn.inputs import SparseBatch
from deepmf.testing import CoreContract, additive
from deepmf.training.blocks import AxisName, VectorBlocks
from deepmf.training.loop import Loop, TrainingState, ValidationEntries
from deepmf.training.settings import list_settings
from deepmf.training.trainer import SGD, Evaluate, Trainer

Array = npt.NDArray[np.float64]


QUICK: dict[str, Any] = {"hidden_size": 12, "gamma": 0.3, "epochs": 120, "learning_rate": 0.05, "device": "cpu"}


@pytest.mark.slow
class TestIAutoRec(CoreContract):
    model = IAutoRec
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.27


@pytest.mark.slow  # it is IAutoRec of the transposed matrix
class TestUAutoRec(CoreContract):
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
    trainer = model._make_task(EntryStore.of(matrix), None)
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
        monkeypatch.setattr("deepmf.training.blocks.prefer_dense", lambda *_, dense=dense, **__: dense)
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


@pytest.mark.slow
@every_model
def test_batches_learn_too(model: type[AutoRec]) -> None:
    board = checkerboard(24, 20, observed=0.6, seed=0)
    fitted = model(**QUICK | {"batch_size": 6, "learning_rate": 0.02}).fit(board.matrix)
    rows, columns = np.divmod(np.arange(24 * 20), 20)
    np.testing.assert_array_equal(fitted.predict_levels(rows, columns), board.truth.mean(rows, columns))


@pytest.mark.slow
@every_model
def test_gamma_holds_the_weights_down(model: type[AutoRec]) -> None:
    sizes = [
        float(model(**QUICK | {"gamma": gamma}).fit(additive()).network_.sum_squared_weights().detach())
        for gamma in (0.0, 30.0)
    ]
    assert sizes[1] < 0.5 * sizes[0]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.slow
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
            some._make_task(EntryStore.of(split.train), ValidationEntries.of(split.train, split.validation)),
            some.settings,
        )

    states: list[TrainingState] = []
    whole = new_loop()
    whole.run(keep=states.append)
    rest = new_loop()
    with torch.no_grad():  # all that counts must come from the state
        for tensor in rest.task.get_learned().values():
            tensor.zero_()
    rest.restore(states[6])
    later: list[TrainingState] = []
    rest.run(keep=later.append)
    assert len(later) == 5
    assert all(same(one.tensors, other.tensors) for one, other in zip(later, states[7:], strict=True))
    assert same(rest.task.get_learned(), whole.task.get_learned())
    assert not torch.equal(states[6].tensors["learned.last.weight"], states[11].tensors["learned.last.weight"])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 0}, "^hidden_size"),
        ({"gamma": -1}, "^gamma"),
    ],
)
@every_model
def test_bad_settings(model: type[AutoRec], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        model(**changes)


def test_what_each_cannot_do() -> None:
    assert (IAutoRec.predicts, UAutoRec.predicts) == (("I", "III"), ("I", "II"))
    assert "one output for each row" in IAutoRec.cannot and "one output for each column" in UAutoRec.cannot


N_INPUTS = 9

SIZES = {"one": (5,), "three": (5, 6, 4), "five": (7, 6, 8, 5, 3)}

every_depth = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())


def sigmoid(sums: Array) -> Array:
    return 1 / (1 + np.exp(-sums))


def selu(sums: Array) -> Array:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * np.where(sums > 0, sums, alpha * (np.exp(np.minimum(sums, 0)) - 1))


def new(
    sizes: tuple[int, ...], *, activation: str = "sigmoid", output: str = "identity", dropout: float = 0.0
) -> Autoencoder:
    generator = torch.Generator().manual_seed(0)
    network = Autoencoder(
        N_INPUTS, sizes, activation=activation, output_activation=output, dropout=dropout, generator=generator
    ).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "bias" in name:
                parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()))
    return network


def vectors(count: int = 4) -> Array:
    """Some vectors with holes; the last one is empty."""
    generator = np.random.default_rng(1)
    table = np.where(generator.random((count, N_INPUTS)) < 0.5, generator.normal(size=(count, N_INPUTS)), 0.0)
    table[-1] = 0.0
    return table


def sparse(table: Array) -> SparseBatch:
    rows, columns = np.nonzero(table)
    starts = np.searchsorted(rows, np.arange(len(table) + 1))
    return SparseBatch(torch.tensor(columns), torch.tensor(starts), torch.tensor(table[rows, columns]))


def restate_layers(network: Autoencoder, table: Array, activation: str, output: str) -> tuple[Array, Array]:
    """Return hidden activations and outputs."""
    functions = {"sigmoid": sigmoid, "selu": selu, "identity": lambda sums: sums}
    weights = {name: parameter.detach().numpy() for name, parameter in network.named_parameters()}
    hidden = functions[activation](table @ weights["first.weight"] + weights["first_bias"])
    for number in range(len(network.others)):
        hidden = functions[activation](hidden @ weights[f"others.{number}.weight"].T + weights[f"others.{number}.bias"])
    return hidden, functions[output](hidden @ weights["last.weight"].T + weights["last.bias"])


@every_depth
@pytest.mark.parametrize("activation, output", [("sigmoid", "identity"), ("selu", "selu")])
def test_layers(sizes: tuple[int, ...], activation: str, output: str) -> None:
    network, table = new(sizes, activation=activation, output=output), vectors()
    hidden, outputs = restate_layers(network, table, activation, output)
    with torch.no_grad():
        for batch in (torch.tensor(table), sparse(table)):
            np.testing.assert_allclose(network.hidden(batch), hidden, atol=1e-13)
        np.testing.assert_allclose(network(torch.tensor(table)), outputs, atol=1e-13)
        np.testing.assert_allclose(network(sparse(table)), outputs[np.nonzero(table)], atol=1e-13)


@pytest.mark.slow
@every_depth
def test_gradients_of_sparse_and_dense_vectors_agree(sizes: tuple[int, ...]) -> None:
    network, table = new(sizes, activation="selu", output="selu"), vectors()
    upstream = torch.arange(1.0, np.count_nonzero(table) + 1, dtype=torch.float64)
    picked = network(torch.tensor(table))[np.nonzero(table)]
    parameters = list(network.parameters())
    dense = torch.autograd.grad(picked, parameters, upstream)
    for one, other in zip(torch.autograd.grad(network(sparse(table)), parameters, upstream), dense, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@every_depth
def test_dropout_follows_the_middle_layer_alone(sizes: tuple[int, ...]) -> None:
    network = new(sizes, dropout=0.5)
    use_generator(network, torch.Generator().manual_seed(2))
    seen: list[tuple[int, ...]] = []
    network.dropout.register_forward_hook(lambda _, inputs, __: seen.append(tuple(inputs[0].shape)))
    network.hidden(torch.tensor(vectors()))
    assert seen == [(4, sizes[len(sizes) // 2])]
    batch = torch.tensor(vectors())
    assert not torch.equal(network(batch), network(batch))
    network.eval()
    assert torch.equal(network(batch), network(batch))


def test_squared_weights_leave_the_biases_out() -> None:
    network = new((5, 6, 4))
    weights = [parameter for name, parameter in network.named_parameters() if "bias" not in name]
    assert len(weights) == 4
    expected = sum(float(weight.detach().square().sum()) for weight in weights)
    assert network.sum_squared_weights().item() == pytest.approx(expected, rel=1e-12)


def test_half_precision_answers_in_single() -> None:
    network = new((5, 6, 4)).float()
    table = torch.tensor(vectors(), dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, some = network(table), network(sparse(vectors())._replace(weights=table[table != 0]))
    assert outputs.dtype == some.dtype == torch.float32
    torch.testing.assert_close(outputs, network(table), rtol=0, atol=0.02)


def test_starts_with_xavier_weights_of_its_own_generator() -> None:
    before = torch.get_rng_state()
    sizes = (50, 60, 40)
    networks = [
        Autoencoder(30, sizes, activation="selu", generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    ]
    for (n_inputs, width), layer in zip(pairwise(sizes), networks[0].others, strict=True):
        bound = (6 / (n_inputs + width)) ** 0.5
        weight = layer.get_parameter("weight")
        assert 0.95 * bound < weight.abs().max().item() <= bound and not layer.get_parameter("bias").any()
    small = Autoencoder(30, sizes, activation="selu", initial=0.25, generator=torch.Generator().manual_seed(3))
    for weight, smaller in zip(networks[0].weights(), small.weights(), strict=True):
        assert torch.equal(0.25 * weight, smaller)
    one, same, other = (torch.cat([p.flatten() for p in network.parameters()]) for network in networks)
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


SMALL: dict[str, Any] = {"hidden_size": 3, "epochs": 2, "device": "cpu"}

MODELS: dict[str, tuple[NetworkModel, AxisName]] = {
    "i-autorec": (IAutoRec(**SMALL), "column"),
    "u-autorec": (UAutoRec(**SMALL), "row"),
    "deep-u-autorec": (DeepUAutoRec(hidden_sizes=(3,), epochs=2, device="cpu"), "row"),
    "i-cf-nade": (ICFNADE(**SMALL), "column"),
    "u-cf-nade": (UCFNADE(**SMALL), "row"),
}


@pytest.mark.parametrize("model, axis", MODELS.values(), ids=MODELS.keys())
def test_latents_of_what_is_read_and_of_what_is_not(model: NetworkModel, axis: AxisName) -> None:
    fitted = type(model)(**model.settings.to_dict()).fit(additive())
    predictor, entries = fitted.predictor_, fitted.entries_
    encoder, rows, columns = (
        predictor.encoder,
        entries.row_entries(np.arange(30)),
        entries.column_entries(np.arange(25)),
    )
    assert fitted.predicts == (("I", "II") if axis == "row" else ("I", "III"))
    if axis == "row":
        latents, read = encoder.rows(rows, predictor.columns), predictor.rows
    else:
        latents, read = encoder.columns(columns, predictor.rows), predictor.columns
    assert latents.shape[1] == 4 and np.all(latents[:, -1] == 1.0)
    np.testing.assert_allclose(latents, read.whole(), atol=1e-5)
    with pytest.raises(CannotExtend, match="output"):
        encoder.columns(columns, predictor.rows) if axis == "row" else encoder.rows(rows, predictor.columns)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_vectors_pass_some_at_a_time(size: int) -> None:
    trainer: Any = UAutoRec(**SMALL)._make_task(EntryStore.of(additive()), None)
    expected = encode_hidden(trainer.network, trainer.source.vectors).detach()
    found = encode_hidden(trainer.network, trainer.source.vectors, at_a_time=size).detach()
    assert found.shape == (30, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_there_is_an_output_for_each_position_on_the_other_axis() -> None:
    assert (count_outputs(additive(), "row"), count_outputs(additive(), "column")) == (25, 30)


def test_batch_sizes() -> None:
    assert VectorSettings().batch_size is None and VectorSettings(batch_size=1).batch_size == 1
    for bad in (0, 2.0, True):
        with pytest.raises(BadSetting, match="batch_size"):
            VectorSettings(batch_size=bad)  # type: ignore[arg-type]


SHORT_FITS: dict[str, Any] = {
    "i": IAutoRec(hidden_size=5, epochs=4, gamma=1.0, learning_rate=0.1, inputs="raw", device="cpu"),
    "u": UAutoRec(hidden_size=5, epochs=4, gamma=1.0, learning_rate=0.1, inputs="centred", device="cpu"),
    "deep": DeepUAutoRec(hidden_sizes=(6, 4), epochs=4, batch_size=10, inputs="scaled", device="cpu"),
}

every_short_fit = pytest.mark.parametrize("name", SHORT_FITS)


def fitted(name: str, train: ObservedMatrix | None = None, validation: ObservedMatrix | None = None) -> NetworkModel:
    model = SHORT_FITS[name]
    return type(model)(**model.settings.to_dict()).fit(additive() if train is None else train, validation)


def axis_of(model: Any) -> str:
    """Return what a fitted model reads."""
    axis: str = model.predictor_.encoder.axis
    return axis


def encoding_of(model: Any) -> ValueEncoding:
    return ValueEncoding.of(model.settings.inputs, model.entries_.train)


def read_vectors(model: NetworkModel, array: Any) -> Any:
    """Return what a model reads of a matrix with holes, as a dense table: 0 where nothing is observed."""
    table = np.nan_to_num(encoding_of(model).encode(array))
    return torch.tensor(table if axis_of(model) == "row" else table.T, dtype=torch.float32)


def outputs(model: NetworkModel, table: Any) -> Any:
    """Return the whole matrix (rows, columns) that the network answers, in the scale's units, clipped."""
    with torch.no_grad():
        answers = model.network_(table).double().numpy()
    array = encoding_of(model).decode(answers if axis_of(model) == "row" else answers.T)
    return np.clip(array, 1, 5)


@pytest.mark.parametrize("inputs, ends", [("raw", (1, 5)), ("centred", (-1, 3)), ("scaled", (-1, 1))])
def test_units(inputs: str, ends: tuple[float, float]) -> None:
    matrix = ObservedMatrix.from_array([[1, 1, 1, 5], [1, 3, np.nan, np.nan]], Scale([1, 2, 3, 4, 5]))
    units = ValueEncoding.of(inputs, matrix)
    np.testing.assert_allclose(units.encode(np.array([1.0, 5.0])), ends)
    np.testing.assert_allclose(units.decode(units.encode(np.array([1.0, 2.5, 7.0]))), [1.0, 2.5, 7.0])


def test_units_of_a_scale_of_one_value() -> None:
    matrix = ObservedMatrix.from_array([[4, 4], [np.nan, 4]], Scale([4]))
    for inputs, expected in (("raw", 4.0), ("centred", 0.0), ("scaled", 0.0)):
        assert ValueEncoding.of(inputs, matrix).encode(np.array([4.0])) == expected


@every_short_fit
@pytest.mark.parametrize("matrix", [additive(), thinned(additive(), dense=False)], ids=["dense", "sparse"])
def test_predictions_are_outputs_of_the_network(name: str, matrix: ObservedMatrix) -> None:
    model = fitted(name, matrix)
    expected = outputs(model, read_vectors(model, matrix.to_array()))
    missing = np.isnan(matrix.to_array())
    np.testing.assert_allclose(model.complete()[missing], expected[missing], atol=1e-5)
    rows, columns, _ = matrix.entries()
    np.testing.assert_allclose(model.predict(rows, columns), expected[~missing], atol=1e-5)


@every_short_fit
def test_the_validation_error_is_that_of_the_predictions(name: str) -> None:
    for matrix in (additive(), thinned(additive(), dense=False)):
        split = split_entries(matrix, train=0.7, validation=0.3, test=0, seed=0)
        model = fitted(name, split.train, split.validation)
        rows, columns, values = split.validation.entries()
        assert rmse_error(model.predict(rows, columns), values) == pytest.approx(model.history_.best_error, rel=1e-5)


@every_short_fit
def test_validation_entries_may_have_labels_of_their_own_order(name: str) -> None:
    split = split_entries(additive(), train=0.7, validation=0.3, test=0, seed=0)
    rows, columns, values = (array[::-1] for array in split.validation.entries())
    other = ObservedMatrix.from_entries(
        rows, columns, values, split.train.scale, row_labels=dict.fromkeys(rows), column_labels=dict.fromkeys(columns)
    )
    errors = [fitted(name, split.train, validation).history_.best_error for validation in (split.validation, other)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


@every_short_fit
def test_only_vectors_that_changed_pass_through_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = additive()
    model = fitted(name, matrix)
    read: list[int] = []
    usual = Autoencoder.hidden

    def counted(network: Autoencoder, batch: Any) -> Any:
        read.append(batch.starts.numel() - 1)
        return usual(network, batch)

    row, column = np.argwhere(np.isnan(matrix.to_array()))[0]
    known = matrix.row_labels[row], matrix.column_labels[column]
    new = ("newcomer", known[1]) if axis_of(model) == "row" else (known[0], "newcomer")
    with monkeypatch.context() as patch:
        patch.setattr(Autoencoder, "hidden", counted)
        more = model.extend(ObservedMatrix.from_entries(*zip(known, new, strict=True), [5, 4], matrix.scale))
    assert read == [2]  # the known one with a new entry, and the new one
    latents, others = more.predictor_.rows, more.predictor_.columns
    if axis_of(model) == "column":
        latents, others = others, latents
    assert latents.extra.shape[0] == 2 and others.extra.shape[0] == 0
    array = matrix.to_array()
    array[row, column] = 5
    changed = outputs(model, read_vectors(model, array))
    whole = model.complete(), more.complete()[: matrix.shape[0], : matrix.shape[1]]
    axis = 0 if axis_of(model) == "row" else 1
    position = (row, column)[axis]
    np.testing.assert_array_equal(*(np.delete(array, position, axis) for array in whole))
    missing = np.isnan(array).take(position, axis)
    expected = changed.take(position, axis)[missing]
    np.testing.assert_allclose(whole[1].take(position, axis)[missing], expected, atol=1e-5)


@every_short_fit
def test_likeness_goes_by_what_is_learned_without_constants(name: str) -> None:
    model = fitted(name)
    for latents, ranking in (
        (model.predictor_.rows.whole(), model.similar_rows("row 0", n=29)),
        (model.predictor_.columns.whole(), model.similar_columns("column 0", n=24)),
    ):
        plain = latents[:, :-1].astype(np.float64)
        cosines = plain @ plain[0] / np.linalg.norm(plain, axis=1) / np.linalg.norm(plain[0])
        np.testing.assert_allclose(ranking.values, np.sort(cosines[1:])[::-1], atol=1e-6)


@every_short_fit
def test_one_vector_and_one_output_are_enough(name: str) -> None:
    for array in ([[1, 2, 3]], [[1], [2]], [[4]]):
        model = fitted(name, ObservedMatrix.from_array(array, Scale([1, 2, 3, 4, 5])))
        assert np.all(np.isfinite(model.predictor_.score_block(np.array([0]), np.array([0]))))


@every_short_fit
def test_an_interval_is_a_scale_too(name: str) -> None:
    matrix = ObservedMatrix.from_array(np.random.default_rng(0).uniform(-0.5, 0.5, (12, 10)))
    predicted = fitted(name, matrix).predict([0, 5], [3, 9])
    assert np.all(np.abs(predicted) <= 0.5)


@every_short_fit
def test_half_precision_is_near(name: str) -> None:
    model = SHORT_FITS[name]
    half = type(model)(**model.settings.to_dict() | {"precision": "half"}).fit(additive())
    assert rmse_error(half.complete().ravel(), fitted(name).complete().ravel()) < 0.1


@every_short_fit
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"batch_size": 0}, "^batch_size"),
        ({"inputs": "scale"}, "^inputs"),
    ],
)
def test_bad_settings_of_every_autoencoder(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        type(SHORT_FITS[name])(**changes)


class Sizes(TorchDispatchMode):
    """Notes how many numbers the largest tensor has that torch makes."""

    largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        self.largest = max(self.largest, made.numel() if isinstance(made, torch.Tensor) else 0)
        return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["i", "u"])
def test_very_wide_vectors_cost_their_entries_alone(name: str) -> None:
    generator = np.random.default_rng(0)
    vector_of, place_of = np.arange(10_000) % 2_000, generator.choice(1_000_000, 10_000, replace=False)
    rows, columns = (vector_of, place_of) if name == "u" else (place_of, vector_of)
    sizes = (2_000, 1_000_000) if name == "u" else (1_000_000, 2_000)
    labels = {"row_labels": range(sizes[0]), "column_labels": range(sizes[1])}
    matrix = ObservedMatrix.from_entries(rows, columns, 1.0 + np.arange(10_000) % 5, **labels)
    model = type(SHORT_FITS[name])(hidden_size=2, epochs=1, device="cpu")
    with Sizes() as sizes_made:
        model.fit(matrix, validation=matrix)
    # A table of all vectors or of their outputs would have 2,000 million numbers; the network has 5 million.
    assert sizes_made.largest <= 5_000_002
    assert model.predict(rows[:5], columns[:5]).shape == (5,)


QUICK_DEEP: dict[str, Any] = {
    "hidden_sizes": (16, 12),
    "dropout": 0.1,
    "epochs": 60,
    "learning_rate": 0.02,
    "batch_size": 10,
    "device": "cpu",
}


@pytest.mark.slow
class TestDeepUAutoRec(CoreContract):
    model = DeepUAutoRec
    settings: ClassVar[dict[str, Any]] = QUICK_DEEP
    recovery_error = 0.7
    permutation_error = 0.3


def deep_trainer_of(*, dense: bool = True, **changes: Any) -> Any:
    trainer = DeepUAutoRec(**QUICK_DEEP | {"dropout": 0.0} | changes)._make_task(
        EntryStore.of(thinned(additive(), dense=dense)), None
    )
    assert trainer.source.dense is dense
    return trainer


def rows_with_entries(*, dense: bool = True) -> Tensor:
    return torch.from_numpy(np.flatnonzero(thinned(additive(), dense=dense).row_counts))


def passes_of(trainer: Any, ids: Tensor) -> Sequence[Evaluate]:
    passes: Sequence[Evaluate] = trainer.objective.passes(trainer.network, trainer.source.block(ids))
    return passes


def inputs_of(ids: Tensor, *, dense: bool = True) -> tuple[Tensor, Tensor]:
    """Return rows with 0 where nothing is observed, and with NaN there."""
    array = torch.tensor(thinned(additive(), dense=dense).to_array()[ids.numpy()], dtype=torch.float32)
    return array.nan_to_num(0.0), array


def masked_error(network: Autoencoder, ids: Tensor, *, dense: bool = True) -> Tensor:
    inputs, targets = inputs_of(ids, dense=dense)
    observed = ~targets.isnan()
    return (network(inputs)[observed] - targets[observed]).square().mean()


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_the_loss_is_the_mean_squared_error_on_observed_entries(dense: bool) -> None:
    trainer, ids = deep_trainer_of(dense=dense), rows_with_entries(dense=dense)[[4, 0, 2]]
    expected = masked_error(trainer.network, ids, dense=dense).item()
    assert loss_of(trainer, ids).item() == pytest.approx(expected, rel=1e-5)
    assert passes_of(trainer, ids)[0]().item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
@pytest.mark.parametrize("refeeds", [0, 1, 2])
def test_a_step_is_one_on_the_batch_and_one_on_each_answer(dense: bool, refeeds: int) -> None:
    ours, theirs = (deep_trainer_of(dense=dense, refeeds=refeeds) for _ in range(2))
    ids = rows_with_entries(dense=dense)[:5]
    optimiser = SGD(ours.network.parameters(), 0.01, momentum=0.9)
    for evaluate in passes_of(ours, ids):
        optimiser.step(lambda evaluate=evaluate: _differentiated(evaluate()))  # type: ignore[misc]

    network = theirs.network
    reference = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    fed = network(inputs_of(ids, dense=dense)[0]).detach()  # what it answered before its first step
    reference.zero_grad()
    masked_error(network, ids, dense=dense).backward()
    reference.step()
    for _ in range(refeeds):
        reference.zero_grad()
        outputs = network(fed)
        functional.mse_loss(outputs, fed).backward()
        reference.step()
        fed = outputs.detach()
    for one, other in zip(ours.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def _differentiated(loss: Tensor) -> Tensor:
    loss.backward()
    return loss.detach()


def test_answers_are_fed_back_as_they_were_with_dropout() -> None:
    trainer, ids = deep_trainer_of(dropout=0.5), torch.arange(5)
    network = trainer.network
    network.dropout.generator = torch.Generator().manual_seed(0)
    fed: list[Tensor] = []
    network.register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0]))
    first, again = passes_of(trainer, ids)
    first()
    again()
    network.dropout.generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        expected = network(inputs_of(ids)[0])
    torch.testing.assert_close(fed[0], expected)
    assert not fed[0].requires_grad


def test_the_trainer_counts_the_loss_of_the_first_pass() -> None:
    trainer = deep_trainer_of(batch_size=30)
    before = masked_error(trainer.network, rows_with_entries()).item()
    assert trainer.run_epoch(0).loss == pytest.approx(before, rel=1e-5)


@pytest.mark.slow
def test_an_epoch_steps_with_the_momentum_of_the_settings() -> None:
    settings = {"refeeds": 0, "batch_size": None, "momentum": 0.7, "decay_every": ()}
    ours, theirs = deep_trainer_of(**settings), deep_trainer_of(**settings).network
    reference = torch.optim.SGD(theirs.parameters(), lr=QUICK_DEEP["learning_rate"], momentum=0.7)
    for epoch in range(3):
        ours.run_epoch(epoch)
        reference.zero_grad()
        masked_error(theirs, rows_with_entries()).backward()
        reference.step()
    for one, other in zip(ours.network.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_refeeding_makes_answers_stay_as_they_are() -> None:
    moved = []
    for refeeds in (0, 1):
        model = DeepUAutoRec(**QUICK_DEEP | {"refeeds": refeeds, "dropout": 0.0}).fit(additive())
        with torch.no_grad():
            answers = model.network_(inputs_of(torch.arange(30))[0])
            moved.append((model.network_(answers) - answers).square().mean().item())
    assert moved[1] < 0.5 * moved[0]


def test_the_shape_of_the_network_and_the_settings_of_the_paper() -> None:
    model = DeepUAutoRec(device="cpu")
    assert model.settings.layer_sizes == (512, 512, 1024, 512, 512)
    network = model._new_network(EntryStore.of(additive()))
    assert [layer.get_parameter("weight").shape for layer in network.others] == [
        (512, 512),
        (1024, 512),
        (512, 1024),
        (512, 512),
    ]
    assert network.last.weight.shape == (25, 512)
    assert (model.settings.decay, model.settings.decay_every) == (0.5, (24, 36, 48, 66, 72))
    assert DeepUAutoRec(hidden_sizes=8).settings.layer_sizes == (8,)


@pytest.mark.slow
def test_scores_are_activated_products() -> None:
    model = DeepUAutoRec(**QUICK_DEEP).fit(additive())
    rows, columns = model.predictor_.rows.whole(), model.predictor_.columns.whole()
    products = rows.astype(np.float64) @ columns.astype(np.float64).T
    scores = model.predictor_.score_block(np.arange(30), np.arange(25))
    np.testing.assert_allclose(scores, functional.selu(torch.tensor(products)).numpy(), rtol=1e-4)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_four_and_three_epochs_are_seven_to_the_bit(dense: bool) -> None:
    split = split_entries(thinned(additive(), dense=dense), train=0.8, validation=0.2, test=0, seed=0)
    model = DeepUAutoRec(**QUICK_DEEP | {"epochs": 7, "dropout": 0.4, "decay_every": (2, 5)})
    states: list[TrainingState] = []
    validation = ValidationEntries.of(split.train, split.validation)
    whole = Loop(model._make_task(EntryStore.of(split.train), validation), model.settings)
    whole.run(keep=states.append)
    rest = Loop(model._make_task(EntryStore.of(split.train), validation), model.settings)
    rest.restore(states[3])
    later: list[TrainingState] = []
    rest.run(keep=later.append)
    assert len(later) == 3
    assert all(same(one.tensors, other.tensors) for one, other in zip(later, states[4:], strict=True))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_sizes": (0,)}, "^hidden_sizes"),
        ({"hidden_sizes": []}, "^hidden_sizes"),
        ({"dropout": 1.0}, "^dropout"),
        ({"refeeds": -1}, "^refeeds"),
        ({"momentum": 1.0}, "^momentum"),
    ],
)
def test_bad_settings_of_a_deep_one(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        DeepUAutoRec(**changes)


def test_sums_are_normalised_in_the_ways_there_are() -> None:
    choices = {each.name: each.choices for each in list_settings(CFNADESettings)}
    assert choices["normalise"] == tuple(NORMALISATIONS)


@pytest.mark.parametrize("settings", [VectorSettings, AutoencoderSettings, CFNADESettings, DeepAutoRecSettings])
def test_a_batch_may_be_everything(settings: type[VectorSettings]) -> None:
    assert settings(batch_size=None).batch_size is None
    assert settings(batch_size=1).batch_size == 1


def test_defaults_of_rows_are_their_own() -> None:
    settings = UAutoRecSettings()
    assert (settings.epochs, settings.inputs, settings.initial, settings.gamma) == (100, "centred", 0.3, 100.0)
    assert (settings.learning_rate, settings.decay, settings.precision) == (2e-3, 1.0, "single")


def test_the_decoder_mirrors_the_encoder() -> None:
    assert DeepAutoRecSettings(hidden_sizes=(5, 4, 3)).layer_sizes == (5, 4, 3, 4, 5)
    assert DeepAutoRecSettings(hidden_sizes=(5,)).layer_sizes == (5,)
