"""Conjugate gradients: what they leave, that they only improve, when they end, and where, against float64."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.models.factorization import conjugate_gradients
from deepmf.models.factorization.conjugate_gradients import Improved, improved

N_ROWS, N_ENTRIES, N_UNKNOWNS = 6, 20, 5
DICE = np.random.default_rng(0)
INPUTS = DICE.normal(size=(N_ROWS, N_ENTRIES, N_UNKNOWNS)).astype(np.float32)
INPUTS[2, 12:], INPUTS[4] = 0.0, 0.0  # fewer entries, and none
TARGETS = (DICE.normal(size=(N_ROWS, N_ENTRIES)) * INPUTS.any(axis=2)).astype(np.float32)
RIDGES = DICE.uniform(0.5, 3.0, size=(N_ROWS, N_UNKNOWNS)).astype(np.float32)
SIZES = np.square(INPUTS).sum(axis=1) + RIDGES
START = DICE.normal(size=(N_ROWS, N_UNKNOWNS)).astype(np.float32)


def left_by(factors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    left: npt.NDArray[Any] = TARGETS - np.einsum("rek,rk->re", INPUTS, factors)
    return left


def found(start: npt.NDArray[Any] = START, ridges: npt.NDArray[Any] = RIDGES, n_pieces: int = 1) -> Improved:
    inputs, left = (each.reshape(N_ROWS, n_pieces, -1, *each.shape[2:]) for each in (INPUTS, left_by(start)))
    return improved(inputs, left, ridges=ridges, sizes=SIZES, start=start)


def objectives(factors: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    factors = factors.astype(np.float64)
    return (left_by(factors) ** 2).sum(axis=1) + (RIDGES * factors**2).sum(axis=1)


def solution() -> npt.NDArray[np.float64]:
    inputs = INPUTS.astype(np.float64)
    systems = np.einsum("rek,rel->rkl", inputs, inputs) + RIDGES[:, :, None] * np.eye(N_UNKNOWNS)
    return np.linalg.solve(systems, np.einsum("rek,re->rk", inputs, TARGETS)[..., None])[..., 0]


def test_every_row_improves_and_what_is_left_is_told() -> None:
    before = START.copy()
    factors, left = found()
    assert np.all(objectives(factors) < objectives(START))
    np.testing.assert_allclose(left[:, 0], left_by(factors), atol=1e-5)
    np.testing.assert_array_equal(START, before)


def test_as_many_steps_as_unknowns_are_the_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjugate_gradients, "_STEPS", N_UNKNOWNS)
    monkeypatch.setattr(conjugate_gradients, "_LEAST_GAIN", 0.0)
    np.testing.assert_allclose(found().factors, solution(), atol=1e-4)


def test_the_solution_stays() -> None:
    exact = solution().astype(np.float32)
    np.testing.assert_allclose(found(exact).factors, exact, atol=1e-6)


@pytest.mark.parametrize("apart, n_steps", [(0.001, 1), (1.0, 3)])
def test_near_the_solution_one_step_is_enough(monkeypatch: pytest.MonkeyPatch, apart: float, n_steps: int) -> None:
    start = (solution() + apart * START).astype(np.float32)
    limited = {}
    for most in (1, 2, 3):
        monkeypatch.setattr(conjugate_gradients, "_STEPS", most)
        limited[most] = found(start).factors
    np.testing.assert_array_equal(limited[3], limited[n_steps])
    assert n_steps == 1 or not np.array_equal(limited[3], limited[2])


def test_rows_in_pieces_are_rows_as_a_whole() -> None:
    (factors, left), (whole, left_whole) = found(n_pieces=4), found()
    np.testing.assert_allclose(factors, whole, atol=1e-5)
    np.testing.assert_allclose(left.reshape(N_ROWS, -1), left_whole[:, 0], atol=1e-5)


def test_nothing_to_learn_from_stays_as_it_is() -> None:
    factors, left = found(np.zeros_like(START), np.zeros_like(RIDGES))
    assert not factors[4].any() and not left[4].any()
    assert np.all(np.isfinite(factors))
