"""Two branches: the cosine of every pair."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepmf.layers.branch import Branch
from deepmf.layers.cosine import directions, inner_products
from deepmf.layers.vectors import SparseBatch
from deepmf.models.dmf.dmf_network import DMFNetwork


def network(*, n_rows: int = 9, n_columns: int = 7) -> DMFNetwork:
    generator = torch.Generator().manual_seed(0)
    rows = Branch(n_columns, (6, 5, 4), dropout=0.0, generator=generator)
    columns = Branch(n_rows, (8, 4), dropout=0.0, generator=generator)
    return DMFNetwork(rows, columns)


def table(n: int, width: int, seed: int) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_every_pair_has_its_cosine(mode: str) -> None:
    two = network().train(mode == "train")
    rows, columns = table(3, 7, 1), table(5, 9, 2)
    found = two(rows, columns).detach()
    assert found.shape == (3, 5) and found.dtype == torch.float32
    # A second pass in training mode moves the running statistics, not the answer.
    row_latents = two.rows(rows).detach().double().numpy()
    column_latents = two.columns(columns).detach().double().numpy()
    for i, row in enumerate(row_latents):
        for j, column in enumerate(column_latents):
            expected = row @ column / (np.linalg.norm(row) * np.linalg.norm(column))
            assert found[i, j].item() == pytest.approx(expected, abs=1e-6)
    assert found.std() > 0.1


def test_sparse_rows_with_dense_columns() -> None:
    two, rows, columns = network().eval(), table(3, 7, 1), table(5, 9, 2)
    every = SparseBatch(torch.arange(7).repeat(3), torch.tensor([0, 7, 14, 21]), rows.flatten())
    torch.testing.assert_close(two(every, columns), two(rows, columns))


def test_a_pair_does_not_depend_on_the_others_of_its_batch() -> None:
    two, rows, columns = network().eval(), table(6, 7, 1), table(5, 9, 2)
    whole = two(rows, columns)
    torch.testing.assert_close(two(rows[[4, 1]], columns[[0, 3, 2]]), whole[[4, 1]][:, [0, 3, 2]])


@given(st.integers(1, 6), st.floats(-3, 3), st.integers(0, 9))
def test_cosines_are_bounded_and_ignore_lengths(n_latents: int, power: float, seed: int) -> None:
    rows, columns = table(4, n_latents, seed), table(3, n_latents, seed + 100)
    found = inner_products(directions(rows), directions(columns))
    assert found.abs().max().item() <= 1 + 1e-6
    torch.testing.assert_close(
        inner_products(directions(rows * 10**power), directions(columns)), found, rtol=0, atol=1e-5
    )


def test_parallel_opposite_and_orthogonal() -> None:
    rows = torch.tensor([[3.0, 4.0], [-0.3, -0.4], [4.0, -3.0]])
    found = inner_products(directions(rows), directions(torch.tensor([[6.0, 8.0]])))
    torch.testing.assert_close(found, torch.tensor([[1.0], [-1.0], [0.0]]), rtol=0, atol=1e-6)


def test_directions_have_length_one_and_nothing_points_nowhere() -> None:
    found = directions(torch.tensor([[3.0, 4.0], [0.0, 0.0], [-1e-3, 0.0]], dtype=torch.bfloat16))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]]))


def test_cosines_stay_in_single_precision_under_autocast() -> None:
    two, rows, columns = network().eval(), table(3, 7, 1), table(5, 9, 2)
    rough = two(rows, columns)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        latents = two.rows(rows), two.columns(columns)
        found = two(rows, columns)
    assert found.dtype == torch.float32
    assert torch.equal(found, directions(latents[0]) @ directions(latents[1]).T)
    torch.testing.assert_close(found, rough, rtol=0, atol=0.05)


def test_squared_weights_are_those_of_all_layers_of_both_branches() -> None:
    two = network()
    matrices = [p for p in two.parameters() if p.ndim == 2]
    assert len(matrices) == 3 + 2
    expected = sum(float((matrix.detach().double() ** 2).sum()) for matrix in matrices)
    squared = two.squared_weights()
    assert squared.item() == pytest.approx(expected, rel=1e-6)
    squared.backward()
    for matrix in matrices:
        torch.testing.assert_close(matrix.grad, 2 * matrix.detach())
    # Scales and shifts of batch norm are not held down.
    assert all(p.grad is None for p in two.parameters() if p.ndim != 2)
