"""The ridge engine: every layout of rows gives the same Gram matrices, and both ways to solve give
the solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deepmf.linalg.backend import NUMPY, Backend, solve_triangular
from deepmf.linalg.ridge import (
    LIMITS,
    Buffer,
    Held,
    Limits,
    compute_grams,
    invert_root,
    lay_out,
    make_table,
    pad_entries,
    run_batches,
    solve_bordered,
    solve_residuals,
)
from deepmf.matrix.arrays import fetch
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


BACKENDS = pytest.mark.parametrize("backend", [NUMPY, Backend("torch")], ids=["numpy", "torch"])


@BACKENDS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "limits",
    [
        LIMITS[False],
        Limits(least_filled=0.0, rows_at_a_time=1),
        Limits(entries_at_a_time=8, least_width=1, piece=3),
        # rows longer than the buffer
        Limits(entries_at_a_time=16, least_width=1, least_filled=0.0),
    ],
)
def test_every_layout_gives_the_gram_matrices_of_its_rows(
    limits: Limits, weighted: bool, backend: Backend
) -> None:
    entries = AxisEntries(
        STARTS, OTHERS, VALUES, extras=Extras(weights=WEIGHTS if weighted else None)
    )
    table = make_table(backend.send(FACTORS))
    buffer = Buffer(table, limits)
    batches = lay_out(entries, VALUES, n_others=50, backend=backend, limits=limits)
    found: dict[int, Any] = {}
    for batch in batches:
        grams = fetch(compute_grams(batch, table, buffer))
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


@BACKENDS
@pytest.mark.parametrize("n_rows", [1, 30])
def test_a_bordered_matrix_has_the_solution_its_draws_and_the_minimum(
    n_rows: int, backend: Backend
) -> None:
    inputs, noise = DICE.normal(size=(n_rows, 9, 4)), DICE.normal(size=(n_rows, 3))
    matrices = inputs.swapaxes(1, 2) @ inputs
    left, right = matrices[:, :-1, :-1].copy(), matrices[:, :-1, -1].copy()
    found = solve_bordered(backend.send(matrices), backend.send(noise))
    expected = np.linalg.solve(left, right[..., None])[..., 0]
    upper = np.linalg.cholesky(left).swapaxes(1, 2)
    np.testing.assert_allclose(found.solutions, expected)
    np.testing.assert_allclose(
        found.draws, expected + np.linalg.solve(upper, noise[..., None])[..., 0]
    )
    np.testing.assert_allclose((found.reduced**2).sum(1), (right * expected).sum(axis=1))


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
    batches = lay_out(entries, VALUES, n_others=50)
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


def test_groups_have_few_padded_entries_and_batches_few_rows() -> None:
    counts = DICE.integers(0, 60, 500)
    starts = np.concatenate([[0], np.cumsum(counts)])
    others = np.concatenate([DICE.choice(90, count, replace=False) for count in counts])
    entries = AxisEntries(starts, others, np.ones(others.size))
    limits = Limits(entries_at_a_time=400, least_width=8, least_filled=0.5, rows_at_a_time=50)
    batches = lay_out(entries, entries.values, n_others=90, limits=limits)
    positions = np.concatenate([batch.positions for batch in batches])
    assert sorted(positions) == np.flatnonzero(counts).tolist()
    assert np.all(np.diff(counts[positions]) <= 0)  # the longest rows first
    for batch in batches:
        sizes = [len(group.positions) for group in batch.groups]
        assert sum(sizes[:-1]) < limits.rows_at_a_time and len(batch.positions) == sum(sizes)
        for group in batch.groups:
            own, width = counts[group.positions], group.others.shape[1]
            assert own.max() == width and group.others.size <= max(400, width)
            assert own.min() >= np.floor(0.5 * width)
            is_padded = group.others == 90
            assert np.count_nonzero(~is_padded) == own.sum()
            assert not group.values[is_padded].any()


def test_padded_entries_are_marked() -> None:
    places, observed = pad_entries(np.array([0, 2, 2, 5]), np.array([2, 0, 1]), 3)
    assert observed.tolist() == [[True] * 3, [True, True, False], [False] * 3]
    assert places.tolist() == [[2, 3, 4], [0, 1, 0], [0, 0, 0]]


def test_batches_are_answered_in_their_order_and_errors_reach_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_threads = [1]
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    for n_threads[0] in (1, 3):
        assert run_batches(lambda number: number**2, range(7)) == [n**2 for n in range(7)]
        with pytest.raises(ZeroDivisionError):
            run_batches(lambda number: 1 / number, [2, 1, 0])
        assert run_batches(lambda number: number, []) == []


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_targets_that_inputs_explain_exactly_leave_no_error(size: float) -> None:
    """The whole matrix is then singular up to rounding."""
    inputs = DICE.normal(size=(100, 30, 4)).astype(np.float32)
    exact = DICE.normal(size=(100, 4)).astype(np.float32)
    lines = np.concatenate([inputs, size * inputs @ exact[:, :, None]], axis=2)
    found = solve_bordered(lines.swapaxes(1, 2) @ lines)
    np.testing.assert_allclose(found.solutions, size * exact, rtol=2e-3, atol=2e-3 * size)
    np.testing.assert_array_equal(found.draws, found.solutions)


def test_targets_of_zero_have_solutions_of_zero() -> None:
    lines = np.pad(DICE.normal(size=(3, 9, 2)), ((0, 0), (0, 0), (0, 1)))
    found = solve_bordered(lines.swapaxes(1, 2) @ lines)
    assert not found.solutions.any() and not found.reduced.any()


@BACKENDS
def test_noise_gets_a_precision_or_there_is_none(backend: Backend) -> None:
    table = DICE.normal(size=(9, 3))
    root = fetch(invert_root(backend.send(table.T @ table)))
    np.testing.assert_allclose(np.linalg.inv(root.T @ root), table.T @ table)
    indefinite = backend.send(np.array([[1.0, 2.0], [2.0, 1.0]]))
    try:
        assert np.isnan(fetch(invert_root(indefinite))).any()
    except np.linalg.LinAlgError:
        assert backend is NUMPY


@BACKENDS
@pytest.mark.parametrize("n_rows", [2, 40])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems_are_solved(upper: bool, n_rows: int, backend: Backend) -> None:
    factors = np.tril(DICE.normal(size=(n_rows, 5, 5))) + 9.0 * np.eye(5)
    if upper:
        factors = factors.mT
    solutions = DICE.normal(size=(n_rows, 5, 2))
    right = backend.send(factors @ solutions)
    found = fetch(solve_triangular(backend.send(factors), right, upper=upper))
    np.testing.assert_allclose(found, solutions, atol=1e-9)


def test_steps_towards_the_ridge_regressions_of_rows() -> None:
    entries = AxisEntries(STARTS, OTHERS, VALUES, extras=Extras(weights=WEIGHTS))
    batches = lay_out(entries, VALUES, n_others=50)
    ridges = DICE.uniform(0.5, 2.0, (COUNTS.size, 4)).astype(np.float32)
    found = solve_residuals(batches, FACTORS, ridges, n_steps=4)
    for row, moved in enumerate(found):
        own = slice(STARTS[row], STARTS[row + 1])
        inputs, weights = FACTORS[OTHERS[own]].astype(np.float64), WEIGHTS[own, None]
        equations = inputs.T @ (weights * inputs) + np.diag(ridges[row])
        expected = np.linalg.solve(equations, inputs.T @ (WEIGHTS[own] * VALUES[own]))
        np.testing.assert_allclose(moved, expected, atol=1e-4)
    assert not found[COUNTS == 0].any()
