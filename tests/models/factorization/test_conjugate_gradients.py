"""Conjugate gradients: what they leave, that they only improve, and their end against the solution in float64."""

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


def found(start: npt.NDArray[Any] = START, ridges: npt.NDArray[Any] = RIDGES) -> Improved:
    return improved(INPUTS, TARGETS, ridges=ridges, sizes=SIZES, start=start)


def objectives(factors: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    left = TARGETS.astype(np.float64) - np.einsum("rek,rk->re", INPUTS, factors)
    return (left**2).sum(axis=1) + (RIDGES * factors.astype(np.float64) ** 2).sum(axis=1)


def solution() -> npt.NDArray[np.float64]:
    inputs = INPUTS.astype(np.float64)
    systems = np.einsum("rek,rel->rkl", inputs, inputs) + RIDGES[:, :, None] * np.eye(N_UNKNOWNS)
    return np.linalg.solve(systems, np.einsum("rek,re->rk", inputs, TARGETS)[..., None])[..., 0]


def test_every_row_improves_and_what_is_left_is_told() -> None:
    before = START.copy()
    factors, left = found()
    assert np.all(objectives(factors) < objectives(START))
    np.testing.assert_allclose(left, TARGETS - np.einsum("rek,rk->re", INPUTS, factors), atol=1e-5)
    np.testing.assert_array_equal(START, before)


def test_as_many_steps_as_unknowns_are_the_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjugate_gradients, "_STEPS", N_UNKNOWNS)
    np.testing.assert_allclose(found().factors, solution(), atol=1e-4)


def test_the_solution_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = solution().astype(np.float32)
    np.testing.assert_allclose(found(exact).factors, exact, atol=1e-6)


def test_some_entries_at_a_time_are_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found()
    monkeypatch.setattr(conjugate_gradients, "_ENTRIES_AT_A_TIME", 7)
    for part, reference in zip(found(), whole, strict=True):
        np.testing.assert_allclose(part, reference, atol=1e-5)


def test_nothing_to_learn_from_stays_as_it_is() -> None:
    factors, left = found(np.zeros_like(START), np.zeros_like(RIDGES))
    assert not factors[4].any() and not left[4].any()
    assert np.all(np.isfinite(factors))
