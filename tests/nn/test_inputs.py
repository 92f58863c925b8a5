"""The channels of vectors against a plain float64 restatement, dense and sparse alike."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from deepmf.nn.inputs import (
    Batch,
    FeatureBatch,
    SparseBatch,
    SparseVectors,
    apply_mask,
    locate_entries,
    make_channels,
)
from deepmf.nn.sparse_linear import SparseLinear
from deepmf.nn.summaries import N_SUMMARY_FEATURES

Array = npt.NDArray[np.float64]


N_INPUTS = 9

every_kind = pytest.mark.parametrize("kind", ["dense", "sparse"])


def vectors() -> Tensor:
    """Some vectors with NaN where nothing is observed: by chance, full, empty, and with entries of
    value 0 alone."""
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
    for row, (start, end) in enumerate(
        zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)
    ):
        for index, weight in zip(
            batch.indices[start:end].tolist(), batch.weights[start:end].tolist(), strict=True
        ):
            table[row, index] = weight
    return table


def restated(table: Tensor) -> tuple[Array, Array]:
    """Values and indicators over the root of the count; twice the shrunk mean, a quarter of the log
    count less 1."""
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
    found = make_channels(batch_of(table, kind), N_INPUTS)
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
        make_channels(sparse(half), N_INPUTS, sum_over_ranks=lambda part: sums.append(part) or part)  # type: ignore[func-returns-value]
    places, summary_features = restated(table)
    parts = [
        make_channels(sparse(half), N_INPUTS, sum_over_ranks=lambda _: sums[0] + sums[1])
        for half in halves
    ]
    together = sum(table_of(part.places, 2 * N_INPUTS) for part in parts)
    np.testing.assert_allclose(together, places, rtol=0, atol=1e-6)
    for part in parts:
        np.testing.assert_allclose(part.summary_features, summary_features, rtol=0, atol=1e-6)


@every_kind
def test_an_empty_vector_is_nothing_and_an_entry_of_value_0_is_something(kind: str) -> None:
    found = make_channels(batch_of(vectors(), kind), N_INPUTS)
    places = table_of(found.places, 2 * N_INPUTS)
    assert torch.equal(places[2], torch.zeros(2 * N_INPUTS)) and found.summary_features[
        2
    ].tolist() == [0.0, -1.0]
    assert torch.equal(places[3, :N_INPUTS], torch.zeros(N_INPUTS))
    expected = torch.zeros(N_INPUTS)
    expected[4:7] = 3**-0.5
    torch.testing.assert_close(places[3, N_INPUTS:], expected)


def test_the_sum_over_random_entries_keeps_its_size() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = SparseLinear(2 * 4000, 200, generator=generator)
    sizes = []
    for count in (4, 40, 400, 4000):
        vector = torch.full((1, 4000), float("nan"))
        vector[0, :count] = torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1.0
        sizes.append(layer(make_channels(vector, 4000).places).square().mean().item())
    assert max(sizes) < 1.5 * min(sizes)


def test_dense_and_sparse_vectors_make_the_same_product_and_gradient() -> None:
    products, gradients = [], []
    for kind in ("dense", "sparse"):
        layer = SparseLinear(2 * N_INPUTS, 5, generator=torch.Generator().manual_seed(1))
        product = layer(make_channels(batch_of(vectors(), kind), N_INPUTS).places)
        (product * torch.arange(1.0, 31.0).reshape(6, 5)).sum().backward()
        assert layer.weight.grad is not None
        products.append(product.detach())
        gradients.append(layer.weight.grad)
    torch.testing.assert_close(*products, rtol=0, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    places, _ = restated(vectors())
    expected = places @ layer.weight.detach().double().numpy()
    np.testing.assert_allclose(products[0], expected, rtol=0, atol=1e-6)


def test_half_precision_is_for_dense_places_never_for_summary_features() -> None:
    table = vectors()
    found = make_channels(table.bfloat16(), N_INPUTS)
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
    torch.testing.assert_close(
        table_of(shown, N_INPUTS, missing=float("nan")), left, equal_nan=True, rtol=0, atol=0
    )
    found, expected = make_channels(shown, N_INPUTS), make_channels(batch_of(left, kind), N_INPUTS)
    assert torch.equal(found.summary_features, expected.summary_features)
    assert torch.equal(
        table_of(found.places, 2 * N_INPUTS), table_of(expected.places, 2 * N_INPUTS)
    )


# A table of which some cells are observed; None is not, and an observed 0 is an entry.
Table = list[list[float | None]]

tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.lists(
            st.none() | st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=width, max_size=width
        ),
        max_size=6,
    )
)


def sparse_of(table: Table, index_type: torch.dtype = torch.int32) -> SparseVectors:
    counts = [sum(cell is not None for cell in row) for row in table]
    entries = [(place, cell) for row in table for place, cell in enumerate(row) if cell is not None]
    starts = torch.tensor([0, *counts]).cumsum(0).to(index_type)
    indices = torch.tensor([place for place, _ in entries], dtype=index_type)
    return SparseVectors(starts, indices, torch.tensor([cell for _, cell in entries]))


def table_of_vectors(batch: SparseBatch, width: int) -> Tensor:
    """Write a batch's entries into a table, one by one."""
    table = torch.zeros(batch.starts.numel() - 1, width)
    for row, (start, end) in enumerate(
        zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True)
    ):
        for entry in range(start, end):
            table[row, int(batch.indices[entry])] += batch.weights[entry]
    return table


@given(tables, st.data())
def test_any_rows_of_any_table(table: Table, data: st.DataObject) -> None:
    vectors = sparse_of(table)
    assert len(vectors) == len(table)
    ids = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=8)) if table else []
    batch = vectors.take(torch.tensor(ids, dtype=torch.int64))
    expected = [[cell or 0.0 for cell in table[i]] for i in ids]
    assert table_of_vectors(batch, len(table[0]) if table else 1).tolist() == expected
    # Observed zeros are entries too: none is lost on the way.
    assert batch.indices.numel() == sum(cell is not None for i in ids for cell in table[i])


def test_entry_places_point_into_the_arrays() -> None:
    places, starts = locate_entries(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0, 1, 2]))
    assert places.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert starts.tolist() == [0, 3, 5, 5, 8]


def test_a_part_of_vectors_knows_how_many_entries_there_are() -> None:
    part = SparseVectors(
        torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([0.5]), all_counts=torch.tensor([7])
    )
    assert part.counts.tolist() == part.to(torch.device("cpu")).counts.tolist() == [7]
    assert part.take(torch.tensor([0])).starts.tolist() == [0, 1]


def test_vectors_take_all_that_they_hold_to_a_device() -> None:
    features = FeatureBatch(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3))
    held = SparseVectors(
        torch.tensor([0, 1, 2]), torch.tensor([4, 0]), torch.ones(2), features=features
    )
    held.roots = torch.ones(2)
    moved = held.to(torch.device("meta"))
    assert moved.features is not None and moved.roots is not None and moved.all_counts is None
    assert {
        part.device.type for part in (moved.starts, moved.weights, *moved.features, moved.roots)
    } == {"meta"}
