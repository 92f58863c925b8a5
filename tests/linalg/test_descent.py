"""Conjugate gradients: steps towards the solution, and where they end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.linalg.ridge import Descent, descend, take_steps

N_ROWS, N_ENTRIES, N_UNKNOWNS = 6, 20, 5

DICE = np.random.default_rng(0)

INPUTS = DICE.normal(size=(N_ROWS, N_ENTRIES, N_UNKNOWNS)).astype(np.float32)

INPUTS[2, 12:], INPUTS[4] = 0.0, 0.0  # fewer entries, and none

TARGETS = (DICE.normal(size=(N_ROWS, N_ENTRIES)) * INPUTS.any(axis=2)).astype(np.float32)

RIDGES = DICE.uniform(0.5, 3.0, size=(N_ROWS, N_UNKNOWNS)).astype(np.float32)

SIZES = np.square(INPUTS).sum(axis=1) + RIDGES

START = DICE.normal(size=(N_ROWS, N_UNKNOWNS)).astype(np.float32)


def compute_residuals(factors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    residuals: npt.NDArray[Any] = TARGETS - np.einsum("rek,rk->re", INPUTS, factors)
    return residuals


def run_descent(
    start: npt.NDArray[Any] = START,
    ridges: npt.NDArray[Any] = RIDGES,
    *,
    n_pieces: int = 1,
    most_steps: int = 3,
    least_gain: float = 3e-4,
) -> Descent:
    inputs, residuals = (
        each.reshape(N_ROWS, n_pieces, -1, *each.shape[2:])
        for each in (INPUTS, compute_residuals(start))
    )
    return descend(
        inputs,
        residuals,
        ridges=ridges,
        sizes=SIZES,
        start=start,
        most_steps=most_steps,
        least_gain=least_gain,
    )


def objectives(factors: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    factors = factors.astype(np.float64)
    return (compute_residuals(factors) ** 2).sum(axis=1) + (RIDGES * factors**2).sum(axis=1)


def solution() -> npt.NDArray[np.float64]:
    inputs = INPUTS.astype(np.float64)
    systems = np.einsum("rek,rel->rkl", inputs, inputs) + RIDGES[:, :, None] * np.eye(N_UNKNOWNS)
    return np.linalg.solve(systems, np.einsum("rek,re->rk", inputs, TARGETS)[..., None])[..., 0]


def test_every_row_improves_and_residuals_are_those_of_the_factors() -> None:
    before = START.copy()
    factors, residuals = run_descent()
    assert np.all(objectives(factors) < objectives(START))
    np.testing.assert_allclose(residuals[:, 0], compute_residuals(factors), atol=1e-5)
    np.testing.assert_array_equal(START, before)


def test_as_many_steps_as_unknowns_are_the_solution() -> None:
    np.testing.assert_allclose(
        run_descent(most_steps=N_UNKNOWNS, least_gain=0.0).factors, solution(), atol=1e-4
    )


def test_the_solution_stays() -> None:
    exact = solution().astype(np.float32)
    np.testing.assert_allclose(run_descent(exact).factors, exact, atol=1e-6)


@pytest.mark.parametrize("apart, n_steps", [(0.001, 1), (1.0, 3)])
def test_near_the_solution_one_step_is_enough(apart: float, n_steps: int) -> None:
    start = (solution() + apart * START).astype(np.float32)
    limited = {most: run_descent(start, most_steps=most).factors for most in (1, 2, 3)}
    np.testing.assert_array_equal(limited[3], limited[n_steps])
    assert n_steps == 1 or not np.array_equal(limited[3], limited[2])


def test_rows_in_pieces_are_rows_as_a_whole() -> None:
    (factors, residuals), (whole, residuals_whole) = run_descent(n_pieces=4), run_descent()
    np.testing.assert_allclose(factors, whole, atol=1e-5)
    np.testing.assert_allclose(residuals.reshape(N_ROWS, -1), residuals_whole[:, 0], atol=1e-5)


def test_nothing_to_learn_from_stays_as_it_is() -> None:
    factors, residuals = run_descent(np.zeros_like(START), np.zeros_like(RIDGES))
    assert not factors[4].any() and not residuals[4].any()
    assert np.all(np.isfinite(factors))


def count_steps(
    scales: npt.NDArray[np.float64], tolerance: float, most_steps: int
) -> tuple[int, npt.NDArray[np.float64]]:
    """Solve scales * x = 1 of several systems from x = 0; return the steps, and what is left."""
    n_products = 0

    def multiply(direction: Any) -> tuple[Any, Any]:
        nonlocal n_products
        n_products += 1
        product = scales * direction
        return product, dot(direction, product)

    def dot(some: Any, others: Any) -> Any:
        return (some * others).sum(axis=1, keepdims=True)

    found = take_steps(
        np.zeros_like(scales),
        np.ones_like(scales),
        multiply=multiply,
        apply=lambda product, direction: product,
        precondition=lambda gradient: gradient,
        dot=dot,
        most_steps=most_steps,
        tolerance=tolerance,
    )
    left = np.linalg.norm(1 - scales * found, axis=1) / np.sqrt(scales.shape[1])
    return n_products, left


def test_steps_end_once_the_gradients_of_all_systems_are_small() -> None:
    easy, hard = np.full(40, 3.0), np.geomspace(1.0, 1000.0, 40)
    for tolerance in (1e-2, 1e-4):
        alone, _ = count_steps(easy[None], tolerance, 200)
        together, left = count_steps(np.stack([easy, hard]), tolerance, 200)
        assert alone == 2  # solved by the first step, which is seen before the third
        assert alone < together < 200 and np.all(left <= tolerance)
    assert count_steps(hard[None], 1e-2, 200)[0] < count_steps(hard[None], 1e-4, 200)[0]


def test_without_a_tolerance_all_steps_are_taken() -> None:
    assert count_steps(np.full((1, 3), 2.0), 0.0, 7)[0] == 7
    assert count_steps(np.full((1, 3), 2.0), 1e-9, 1)[0] == 1


def test_as_many_steps_as_different_scales_solve_each_system() -> None:
    _, left = count_steps(np.array([[1.0, 4.0, 9.0], [2.0, 2.0, 5.0]]), 0.0, 3)
    np.testing.assert_allclose(left, 0.0, atol=1e-12)
