"""What all autoencoders share: units, latents whose products are outputs, extension, validation."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.models.contract import additive
from torch.utils._python_dispatch import TorchDispatchMode

from deepmf.data.splits import split_entries
from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.autoencoders.autoencoder_model import ValueEncoding
from deepmf.models.autoencoders.autoencoder_network import Autoencoder
from deepmf.models.autoencoders.autorec import IAutoRec, UAutoRec
from deepmf.models.autoencoders.deep_autorec import DeepUAutoRec
from deepmf.models.network_model import NetworkModel

MODELS: dict[str, Any] = {
    "i": IAutoRec(hidden_size=5, epochs=4, gamma=1.0, learning_rate=0.1, inputs="raw", device="cpu"),
    "u": UAutoRec(hidden_size=5, epochs=4, gamma=1.0, learning_rate=0.1, inputs="centred", device="cpu"),
    "deep": DeepUAutoRec(hidden_sizes=(6, 4), epochs=4, batch_size=10, inputs="scaled", device="cpu"),
}
every_model = pytest.mark.parametrize("name", MODELS)


def fitted(name: str, train: ObservedMatrix | None = None, validation: ObservedMatrix | None = None) -> NetworkModel:
    model = MODELS[name]
    return type(model)(**model.settings.to_dict()).fit(additive() if train is None else train, validation)


def sparse_matrix() -> ObservedMatrix:
    """A matrix so empty that its vectors are sparse."""
    matrix = additive()
    return matrix.take_entries(np.arange(matrix.n_entries) % 8 == 0)


def axis_of(model: Any) -> str:
    """Return what a fitted model reads."""
    axis: str = model.predictor_.encoder.axis
    return axis


def encoding_of(model: Any) -> ValueEncoding:
    return ValueEncoding.of(model.settings.inputs, model.entries_.train)


def vectors(model: NetworkModel, array: Any) -> Any:
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


@every_model
@pytest.mark.parametrize("matrix", [additive(), sparse_matrix()], ids=["dense", "sparse"])
def test_predictions_are_outputs_of_the_network(name: str, matrix: ObservedMatrix) -> None:
    model = fitted(name, matrix)
    expected = outputs(model, vectors(model, matrix.to_array()))
    missing = np.isnan(matrix.to_array())
    np.testing.assert_allclose(model.complete()[missing], expected[missing], atol=1e-5)
    rows, columns, _ = matrix.entries()
    np.testing.assert_allclose(model.predict(rows, columns), expected[~missing], atol=1e-5)


@every_model
def test_the_validation_error_is_that_of_the_predictions(name: str) -> None:
    for matrix in (additive(), sparse_matrix()):
        split = split_entries(matrix, train=0.7, validation=0.3, test=0, seed=0)
        model = fitted(name, split.train, split.validation)
        rows, columns, values = split.validation.entries()
        assert rmse_error(model.predict(rows, columns), values) == pytest.approx(model.history_.best_error, rel=1e-5)


@every_model
def test_validation_entries_may_have_labels_of_their_own_order(name: str) -> None:
    split = split_entries(additive(), train=0.7, validation=0.3, test=0, seed=0)
    rows, columns, values = (array[::-1] for array in split.validation.entries())
    other = ObservedMatrix.from_entries(
        rows, columns, values, split.train.scale, row_labels=dict.fromkeys(rows), column_labels=dict.fromkeys(columns)
    )
    errors = [fitted(name, split.train, validation).history_.best_error for validation in (split.validation, other)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


@every_model
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
    changed = outputs(model, vectors(model, array))
    whole = model.complete(), more.complete()[: matrix.shape[0], : matrix.shape[1]]
    axis = 0 if axis_of(model) == "row" else 1
    position = (row, column)[axis]
    np.testing.assert_array_equal(*(np.delete(array, position, axis) for array in whole))
    missing = np.isnan(array).take(position, axis)
    expected = changed.take(position, axis)[missing]
    np.testing.assert_allclose(whole[1].take(position, axis)[missing], expected, atol=1e-5)


@every_model
def test_likeness_goes_by_what_is_learned_without_constants(name: str) -> None:
    model = fitted(name)
    for latents, ranking in (
        (model.predictor_.rows.whole(), model.similar_rows("row 0", n=29)),
        (model.predictor_.columns.whole(), model.similar_columns("column 0", n=24)),
    ):
        plain = latents[:, :-1].astype(np.float64)
        cosines = plain @ plain[0] / np.linalg.norm(plain, axis=1) / np.linalg.norm(plain[0])
        np.testing.assert_allclose(ranking.values, np.sort(cosines[1:])[::-1], atol=1e-6)


@every_model
def test_one_vector_and_one_output_are_enough(name: str) -> None:
    for array in ([[1, 2, 3]], [[1], [2]], [[4]]):
        model = fitted(name, ObservedMatrix.from_array(array, Scale([1, 2, 3, 4, 5])))
        assert np.all(np.isfinite(model.predictor_.score_block(np.array([0]), np.array([0]))))


@every_model
def test_an_interval_is_a_scale_too(name: str) -> None:
    matrix = ObservedMatrix.from_array(np.random.default_rng(0).uniform(-0.5, 0.5, (12, 10)))
    predicted = fitted(name, matrix).predict([0, 5], [3, 9])
    assert np.all(np.abs(predicted) <= 0.5)


@every_model
def test_the_seed_decides_everything_and_global_generators_nothing(name: str) -> None:
    model = MODELS[name]
    before = torch.get_rng_state()
    one, same, other = (
        type(model)(**model.settings.to_dict() | {"seed": seed}).fit(additive()).complete() for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


@every_model
def test_half_precision_is_near(name: str) -> None:
    model = MODELS[name]
    half = type(model)(**model.settings.to_dict() | {"precision": "half"}).fit(additive())
    assert rmse_error(half.complete().ravel(), fitted(name).complete().ravel()) < 0.1


@every_model
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
        ({"inputs": "scale"}, "inputs must be 'raw' or 'centred' or 'scaled'; got 'scale'"),
    ],
)
def test_bad_settings(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        type(MODELS[name])(**changes)


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
    model = type(MODELS[name])(hidden_size=2, epochs=1, device="cpu")
    with Sizes() as sizes_made:
        model.fit(matrix, validation=matrix)
    # A table of all vectors or of their outputs would have 2,000 million numbers; the network has 5 million.
    assert sizes_made.largest <= 5_000_002
    assert model.predict(rows[:5], columns[:5]).shape == (5,)
