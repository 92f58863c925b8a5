"""AutoRec: the contract for both, its objective restated, and exact continuation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.errors import CannotExtend
from deepmf.matrix.axis_entries import Axis
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import UnitMap
from deepmf.models.network_model import NetworkModel
from deepmf.models.paper.autorec import (
    Autoencoder,
    AutoRec,
    DeepUAutoRec,
    IAutoRec,
    Shift,
    UAutoRec,
    find_unit_map,
)
from deepmf.models.paper.cfnade import ICFNADE, UCFNADE
from deepmf.nn.branch import use_generator
from deepmf.nn.inputs import SparseBatch
from deepmf.testing import ModelContract, additive
from deepmf.training.blocks import VectorBlocks
from deepmf.training.trainer import SGD, Evaluate, Trainer

Array = npt.NDArray[np.float64]


QUICK: dict[str, Any] = {
    "hidden_size": 12,
    "gamma": 0.3,
    "epochs": 120,
    "learning_rate": 0.05,
    "device": "cpu",
}


@pytest.mark.slow
class TestIAutoRec(ModelContract):
    model = IAutoRec
    settings: ClassVar[dict[str, Any]] = QUICK
    recovery_error = 0.5
    permutation_error = 0.27


@pytest.mark.slow  # it is IAutoRec of the transposed matrix
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
    return torch.from_numpy(
        np.flatnonzero(matrix.row_counts if model.axis == "row" else matrix.column_counts)
    )


def loss_of(trainer: Any, ids: Tensor) -> Tensor:
    loss: Tensor = trainer.objective.loss(trainer.network, trainer.source.block(ids))
    return loss


def restated(
    model: AutoRec, network: nn.Module, matrix: ObservedMatrix, ids: list[int] | None
) -> float:
    """Return the sum of squared errors on the observed entries plus lambda / 2 (||V||^2 + ||W||^2).

    Of some vectors, their errors are scaled up to all that have entries.
    """
    weights = {name: parameter.detach().numpy() for name, parameter in network.named_parameters()}
    array = matrix.to_array() if model.axis == "row" else matrix.to_array().T
    shift = {"raw": 0.0, "centred": np.nanmean(array), "scaled": 3.0}[model.settings.inputs]
    units = (array - shift) / (2.0 if model.settings.inputs == "scaled" else 1.0)
    n_vectors = int((~np.isnan(units)).any(axis=1).sum())
    some = units if ids is None else units[ids]
    hidden = 1 / (
        1 + np.exp(-(np.nan_to_num(some) @ weights["first.weight"] + weights["first_bias"]))
    )
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
def test_sparse_and_dense_training_agree(
    model: type[AutoRec], monkeypatch: pytest.MonkeyPatch
) -> None:
    completed = []
    for dense in (True, False):
        monkeypatch.setattr(
            "deepmf.training.blocks.prefer_dense", lambda *_, dense=dense, **__: dense
        )
        completed.append(model(**QUICK | {"epochs": 6}).fit(additive()).complete())
    np.testing.assert_allclose(*completed, atol=1e-3)


N_INPUTS = 9

SIZES = {"one": (5,), "three": (5, 6, 4), "five": (7, 6, 8, 5, 3)}

every_depth = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())


def sigmoid(sums: Array) -> Array:
    return 1 / (1 + np.exp(-sums))


def new(sizes: tuple[int, ...], *, dropout: float = 0.0) -> Autoencoder:
    generator = torch.Generator().manual_seed(0)
    network = Autoencoder(
        N_INPUTS, sizes, activation=torch.sigmoid, dropout=dropout, generator=generator
    ).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "bias" in name:
                parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()))
    return network


def vectors(count: int = 4) -> Array:
    """Some vectors with holes; the last one is empty."""
    generator = np.random.default_rng(1)
    table = np.where(
        generator.random((count, N_INPUTS)) < 0.5, generator.normal(size=(count, N_INPUTS)), 0.0
    )
    table[-1] = 0.0
    return table


def sparse(table: Array) -> SparseBatch:
    rows, columns = np.nonzero(table)
    starts = np.searchsorted(rows, np.arange(len(table) + 1))
    return SparseBatch(
        torch.tensor(columns), torch.tensor(starts), torch.tensor(table[rows, columns])
    )


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


SMALL: dict[str, Any] = {"hidden_size": 3, "epochs": 2, "device": "cpu"}

MODELS: dict[str, tuple[NetworkModel, Axis]] = {
    "i-autorec": (IAutoRec(**SMALL), "column"),
    "u-autorec": (UAutoRec(**SMALL), "row"),
    "deep-u-autorec": (DeepUAutoRec(hidden_sizes=(3,), epochs=2, device="cpu"), "row"),
    "i-cf-nade": (ICFNADE(**SMALL), "column"),
    "u-cf-nade": (UCFNADE(**SMALL), "row"),
}


@pytest.mark.parametrize("model, axis", MODELS.values(), ids=MODELS.keys())
def test_latents_of_what_is_read_and_of_what_is_not(model: NetworkModel, axis: Axis) -> None:
    fitted = type(model)(**model.settings.to_dict()).fit(additive())
    predictor, entries = fitted.predictor_, fitted.entries_
    encoder, rows, columns = (
        predictor.encoder,
        entries.row_entries(np.arange(30)),
        entries.column_entries(np.arange(25)),
    )
    assert fitted.predicts == (("I", "II") if axis == "row" else ("I", "III"))
    known, unknown = ("row", rows, predictor.columns), ("column", columns, predictor.rows)
    if axis == "column":
        known, unknown = unknown, known
    latents, read = encoder.encode(*known), predictor.rows if axis == "row" else predictor.columns
    assert latents.shape[1] == 4 and np.all(latents[:, -1] == 1.0)
    np.testing.assert_allclose(latents, read.whole(), atol=1e-5)
    with pytest.raises(CannotExtend, match="output"):
        encoder.encode(*unknown)


SHORT_FITS: dict[str, Any] = {
    "i": IAutoRec(
        hidden_size=5, epochs=4, gamma=1.0, learning_rate=0.1, inputs="raw", device="cpu"
    ),
    "u": UAutoRec(
        hidden_size=5, epochs=4, gamma=1.0, learning_rate=0.1, inputs="centred", device="cpu"
    ),
    "deep": DeepUAutoRec(
        hidden_sizes=(6, 4), epochs=4, batch_size=10, inputs="scaled", device="cpu"
    ),
}

every_short_fit = pytest.mark.parametrize("name", SHORT_FITS)


def fitted(
    name: str, train: ObservedMatrix | None = None, validation: ObservedMatrix | None = None
) -> NetworkModel:
    model = SHORT_FITS[name]
    return type(model)(**model.settings.to_dict()).fit(
        additive() if train is None else train, validation
    )


def axis_of(model: Any) -> str:
    """Return what a fitted model reads."""
    axis: str = model.predictor_.encoder.axis
    return axis


def unit_map_of(model: Any) -> Shift | UnitMap:
    return find_unit_map(model.settings.inputs, model.entries_.train)


def read_vectors(model: NetworkModel, array: Any) -> Any:
    """Return what a model reads of a matrix with holes, as a dense table: 0 where nothing is
    observed."""
    table = np.nan_to_num(unit_map_of(model).to_unit(array))
    return torch.tensor(table if axis_of(model) == "row" else table.T, dtype=torch.float32)


def outputs(model: NetworkModel, table: Any) -> Any:
    """Return the whole matrix (rows, columns) that the network answers, in the scale's units,
    clipped."""
    with torch.no_grad():
        answers = model.network_(table).double().numpy()
    array = unit_map_of(model).from_unit(answers if axis_of(model) == "row" else answers.T)
    return np.clip(array, 1, 5)


@every_short_fit
@pytest.mark.parametrize(
    "matrix", [additive(), thinned(additive(), dense=False)], ids=["dense", "sparse"]
)
def test_predictions_are_outputs_of_the_network(name: str, matrix: ObservedMatrix) -> None:
    model = fitted(name, matrix)
    expected = outputs(model, read_vectors(model, matrix.to_array()))
    missing = np.isnan(matrix.to_array())
    np.testing.assert_allclose(model.complete()[missing], expected[missing], atol=1e-5)
    rows, columns, _ = matrix.entries()
    np.testing.assert_allclose(model.predict(rows, columns), expected[~missing], atol=1e-5)


@every_short_fit
def test_only_vectors_that_changed_pass_through_the_network(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        more = model.extend(
            ObservedMatrix.from_entries(*zip(known, new, strict=True), [5, 4], matrix.scale)
        )
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


QUICK_DEEP: dict[str, Any] = {
    "hidden_sizes": (16, 12),
    "dropout": 0.1,
    "epochs": 60,
    "learning_rate": 0.02,
    "batch_size": 10,
    "device": "cpu",
}


@pytest.mark.slow
class TestDeepUAutoRec(ModelContract):
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
    passes: Sequence[Evaluate] = trainer.objective.list_passes(
        trainer.network, trainer.source.block(ids)
    )
    return passes


def inputs_of(ids: Tensor, *, dense: bool = True) -> tuple[Tensor, Tensor]:
    """Return rows with 0 where nothing is observed, and with NaN there."""
    array = torch.tensor(
        thinned(additive(), dense=dense).to_array()[ids.numpy()], dtype=torch.float32
    )
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


@pytest.mark.slow
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
