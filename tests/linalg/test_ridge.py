"""The ridge engine: every layout of rows gives the same Gram matrices, and both ways to solve give
the solution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepmf.linalg.ridge import (
    ON_CPU,
    Buffer,
    Held,
    Limits,
    compute_grams,
    lay_out,
    make_table,
    solve_bordered,
)
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.extras import Extras

DICE = np.random.default_rng(0)
COUNTS = np.array([0, 1, 7, 40, 3, 7, 0, 25])
STARTS = np.concatenate([[0], np.cumsum(COUNTS)])
OTHERS = np.concatenate([DICE.choice(50, count, replace=False) for count in COUNTS])
VALUES, WEIGHTS = (
    DICE.normal(size=OTHERS.size),
    DICE.uniform(0.5, 2.0, size=OTHERS.size).astype(np.float32),
)
FACTORS = DICE.normal(size=(50, 4)).astype(np.float32)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "limits",
    [
        ON_CPU,
        Limits(least_filled=0.0, rows_at_a_time=1),
        Limits(entries_at_a_time=8, least_width=1, piece=3),
        # rows longer than the buffer
        Limits(entries_at_a_time=16, least_width=1, least_filled=0.0),
    ],
)
def test_every_layout_gives_the_gram_matrices_of_its_rows(limits: Limits, weighted: bool) -> None:
    entries = AxisEntries(
        STARTS, OTHERS, VALUES, extras=Extras(weights=WEIGHTS if weighted else None)
    )
    table = make_table(torch.from_numpy(FACTORS))
    buffer = Buffer(table, limits)
    batches = lay_out(entries, VALUES, n_others=50, device=torch.device("cpu"), limits=limits)
    found: dict[int, torch.Tensor] = {}
    for batch in batches:
        grams = compute_grams(batch, table, buffer)
        found |= dict(zip(batch.positions.tolist(), grams, strict=True))
    assert set(found) == set(np.flatnonzero(COUNTS))
    for row, gram in found.items():
        own = slice(STARTS[row], STARTS[row + 1])
        columns = FACTORS[OTHERS[own]].astype(np.float64)
        lines = np.column_stack(
            [columns[:, :-1], np.ones(len(columns)), VALUES[own] - columns[:, -1]]
        )
        weights = WEIGHTS[own] if weighted else np.ones(len(columns))
        np.testing.assert_allclose(gram, lines.T @ (weights[:, None] * lines), rtol=1e-4, atol=1e-4)


def test_a_bordered_matrix_has_the_solution_its_draws_and_the_minimum() -> None:
    inputs, noise = DICE.normal(size=(3, 9, 4)), DICE.normal(size=(3, 3))
    matrices = torch.from_numpy(inputs.swapaxes(1, 2) @ inputs)
    left, right = matrices[:, :-1, :-1].numpy().copy(), matrices[:, :-1, -1].numpy().copy()
    found = solve_bordered(matrices, torch.from_numpy(noise))
    expected = np.linalg.solve(left, right[..., None])[..., 0]
    upper = np.linalg.cholesky(left).swapaxes(1, 2)
    np.testing.assert_allclose(found.solutions, expected)
    np.testing.assert_allclose(
        found.draws, expected + np.linalg.solve(upper, noise[..., None])[..., 0]
    )
    np.testing.assert_allclose(found.reduced.square().sum(1), (right * expected).sum(axis=1))


@pytest.mark.parametrize("weighted", [False, True])
def test_new_entries_move_rows_as_far_as_their_trained_ones_allow(weighted: bool) -> None:
    entries = AxisEntries(
        STARTS, OTHERS, VALUES, extras=Extras(weights=WEIGHTS if weighted else None)
    )
    lines, counts = DICE.normal(size=(30, 4)).astype(np.float32), DICE.integers(1, 9, 30)
    precision, totals = (
        np.diag([1.0, 2.0, 3.0, 4.0]),
        np.array([50.0, 400, 300, 200, 100, 90, 80, 1000]),
    )
    batches = lay_out(entries, VALUES, n_others=50, device=torch.device("cpu"))
    moves = Held.of(lines, counts, precision).move_rows(batches, FACTORS, totals[:, None], 2.0)
    moment = np.einsum("c,ck,cl->kl", counts / counts.sum(), lines, lines)
    for row, move in enumerate(moves):
        own = slice(*STARTS[row : row + 2])
        weights = WEIGHTS[own] if weighted else np.ones(COUNTS[row])
        own_inputs = FACTORS[OTHERS[own]].astype(np.float64)
        matrix = (
            totals[row] * moment + 2.0 * precision + own_inputs.T @ (weights[:, None] * own_inputs)
        )
        np.testing.assert_allclose(
            move, np.linalg.solve(matrix, own_inputs.T @ (weights * VALUES[own])), atol=1e-5
        )
