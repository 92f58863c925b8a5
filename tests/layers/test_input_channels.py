"""The channels of vectors against a plain float64 restatement, dense and sparse alike."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from deepmf.layers.branch import Branch
from deepmf.layers.input_channels import N_SUMMARY_FEATURES, apply_mask, channels
from deepmf.layers.sparse_linear import SparseLinear
from deepmf.layers.vectors import Batch, SparseBatch

Array = npt.NDArray[np.float64]

N_INPUTS = 9
every_kind = pytest.mark.parametrize("kind", ["dense", "sparse"])


def vectors() -> Tensor:
    """Some vectors with NaN where nothing is observed: by chance, full, empty, and with entries of value 0 alone."""
    generator = torch.Generator().manual_seed(0)
    table = torch.rand(6, N_INPUTS, generator=generator) * 2 - 1
    table[torch.rand(6, N_INPUTS, generator=generator) < 0.6] = float("nan")
    table[1] = torch.linspace(-1, 1, N_INPUTS)
    table[2] = float("nan")
    table[3] = float("nan")
    table[3, 4:7] = 0.0
    return table


def sparse(table: Tensor) -> SparseBatch:
    observed = ~table.isnan()
    rows, columns = observed.nonzero(as_tuple=True)
    counts = torch.nn.functional.pad(observed.sum(1).cumsum(0), (1, 0))
    return SparseBatch(columns.int(), counts, table[rows, columns])


def batch_of(table: Tensor, kind: str) -> Batch:
    return table if kind == "dense" else sparse(table)


def table_of(batch: Batch, width: int, *, missing: float = 0.0) -> Tensor:
    """A batch as a table, entry by entry."""
    if isinstance(batch, Tensor):
        return batch
    table = torch.full((batch.starts.numel() - 1, width), missing)
    for row, (start, end) in enumerate(zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)):
        for index, weight in zip(batch.indices[start:end].tolist(), batch.weights[start:end].tolist(), strict=True):
            table[row, index] = weight
    return table


def restated(table: Tensor) -> tuple[Array, Array]:
    """Values and indicators over the root of the count; twice the shrunk mean, a quarter of the log count less 1."""
    places, summary_features = [], []
    for vector in table.double().numpy():
        observed = ~np.isnan(vector)
        count = observed.sum()
        root = np.sqrt(max(count, 1))
        places.append(np.concatenate([np.where(observed, vector, 0.0), observed]) / root)
        summary_features.append([2 * np.nansum(vector) / (count + 2), np.log(count + 1) / 4 - 1])
    return np.array(places), np.array(summary_features)


@every_kind
def test_channels_are_the_formulas(kind: str) -> None:
    table = vectors()
    found = channels(batch_of(table, kind), N_INPUTS)
    places, summary_features = restated(table)
    assert found.summary_features.shape == (6, N_SUMMARY_FEATURES)
    np.testing.assert_allclose(table_of(found.places, 2 * N_INPUTS), places, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.summary_features, summary_features, rtol=0, atol=1e-6)


def test_parts_of_vectors_are_scaled_by_the_counts_of_all_entries() -> None:
    table, nothing = vectors(), torch.full((6, N_INPUTS), float("nan"))
    halves = [
        torch.where(torch.arange(N_INPUTS) < 4, table, nothing),
        torch.where(torch.arange(N_INPUTS) < 4, nothing, table),
    ]
    sums: list[Tensor] = []
    for half in halves:
        channels(sparse(half), N_INPUTS, total=lambda part: sums.append(part) or part)  # type: ignore[func-returns-value]
    places, summary_features = restated(table)
    parts = [channels(sparse(half), N_INPUTS, total=lambda _: sums[0] + sums[1]) for half in halves]
    together = sum(table_of(part.places, 2 * N_INPUTS) for part in parts)
    np.testing.assert_allclose(together, places, rtol=0, atol=1e-6)
    for part in parts:
        np.testing.assert_allclose(part.summary_features, summary_features, rtol=0, atol=1e-6)


@every_kind
def test_an_empty_vector_is_nothing_and_an_entry_of_value_0_is_something(kind: str) -> None:
    found = channels(batch_of(vectors(), kind), N_INPUTS)
    places = table_of(found.places, 2 * N_INPUTS)
    assert torch.equal(places[2], torch.zeros(2 * N_INPUTS)) and found.summary_features[2].tolist() == [0.0, -1.0]
    assert torch.equal(places[3, :N_INPUTS], torch.zeros(N_INPUTS))
    expected = torch.zeros(N_INPUTS)
    expected[4:7] = 3**-0.5
    torch.testing.assert_close(places[3, N_INPUTS:], expected)


@every_kind
def test_nothing_but_empty_vectors(kind: str) -> None:
    found = channels(batch_of(torch.full((3, N_INPUTS), float("nan")), kind), N_INPUTS)
    assert torch.equal(table_of(found.places, 2 * N_INPUTS), torch.zeros(3, 2 * N_INPUTS))
    assert found.summary_features.tolist() == [[0.0, -1.0]] * 3


def test_a_batch_is_read_not_written() -> None:
    table, batch = vectors(), sparse(vectors())
    before = [part.clone() for part in batch]
    channels(table, N_INPUTS)
    channels(batch, N_INPUTS)
    torch.testing.assert_close(table, vectors(), equal_nan=True, rtol=0, atol=0)
    assert all(torch.equal(part, old) for part, old in zip(batch, before, strict=True))


def test_the_sum_over_random_entries_keeps_its_size() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = SparseLinear(2 * 4000, 200, generator=generator)
    sizes = []
    for count in (4, 40, 400, 4000):
        vector = torch.full((1, 4000), float("nan"))
        vector[0, :count] = torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1.0
        sizes.append(layer(channels(vector, 4000).places).square().mean().item())
    assert max(sizes) < 1.5 * min(sizes)


def test_dense_and_sparse_vectors_make_the_same_product_and_gradient() -> None:
    products, gradients = [], []
    for kind in ("dense", "sparse"):
        layer = SparseLinear(2 * N_INPUTS, 5, generator=torch.Generator().manual_seed(1))
        product = layer(channels(batch_of(vectors(), kind), N_INPUTS).places)
        (product * torch.arange(1.0, 31.0).reshape(6, 5)).sum().backward()
        assert layer.weight.grad is not None
        products.append(product.detach())
        gradients.append(layer.weight.grad)
    torch.testing.assert_close(*products, rtol=0, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    places, _ = restated(vectors())
    expected = places @ layer.weight.detach().double().numpy()
    np.testing.assert_allclose(products[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_branch_answers_the_same_for_both(mode: str) -> None:
    answers = []
    for kind in ("dense", "sparse"):
        generator = torch.Generator().manual_seed(1)
        branch = Branch(2 * N_INPUTS, (7, 4), dropout=0.0, generator=generator, n_summary_features=N_SUMMARY_FEATURES)
        answers.append(branch.train(mode == "train")(channels(batch_of(vectors(), kind), N_INPUTS)).detach())
    torch.testing.assert_close(*answers, rtol=0, atol=2e-5)
    assert answers[0].std() > 0.1


def test_half_precision_is_for_dense_places_never_for_summary_features() -> None:
    table = vectors()
    found = channels(table.bfloat16(), N_INPUTS)
    assert isinstance(found.places, Tensor) and found.places.dtype == torch.bfloat16
    assert found.summary_features.dtype == torch.float32
    places, summary_features = restated(table.bfloat16().float())
    np.testing.assert_allclose(found.places.float(), places, rtol=0, atol=1e-2)
    np.testing.assert_allclose(
        found.summary_features, summary_features, rtol=0, atol=1e-6
    )  # summed in single precision


@every_kind
def test_what_is_hidden_is_as_if_it_were_not_there(kind: str) -> None:
    table = vectors()
    visible = torch.rand(table.shape, generator=torch.Generator().manual_seed(5)) < 0.5
    visible[1] = False  # a full vector of which nothing is left
    observed = ~table.isnan()
    asked = visible if kind == "dense" else visible[observed.nonzero(as_tuple=True)]
    left = table.where(visible, float("nan"))
    assert 0 < int((~left.isnan()).sum()) < int(observed.sum())
    shown = apply_mask(batch_of(table, kind), asked)
    torch.testing.assert_close(table_of(shown, N_INPUTS, missing=float("nan")), left, equal_nan=True, rtol=0, atol=0)
    found, expected = channels(shown, N_INPUTS), channels(batch_of(left, kind), N_INPUTS)
    assert torch.equal(found.summary_features, expected.summary_features)
    assert torch.equal(table_of(found.places, 2 * N_INPUTS), table_of(expected.places, 2 * N_INPUTS))


@every_kind
def test_showing_everything_changes_nothing(kind: str) -> None:
    table = vectors()
    batch = batch_of(table, kind)
    everything = torch.ones(table.shape if isinstance(batch, Tensor) else batch.indices.shape, dtype=torch.bool)
    shown = apply_mask(batch, everything)
    parts = zip((shown,), (batch,), strict=True) if isinstance(batch, Tensor) else zip(shown, batch, strict=True)
    for part, before in parts:
        torch.testing.assert_close(part, before, equal_nan=True, rtol=0, atol=0)
