"""Scores of a peer's answers: the same metrics for all, by the groups of each question."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import log_loss

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.scale import Scale
from deepmf.metrics import calibration_error, mae_error, rmse_error
from peers.problem import Asked, Problem

# A group in which more than this share has no prediction is not scored.
MOST_MISSING = 0.1

Scores = dict[str, dict[str, Any]]


def scores(problem: Problem, answers: dict[str, npt.NDArray[Any]]) -> Scores:
    """Return the scores of each group that the peer has answers for."""
    found: Scores = {}
    for at, asked in enumerate(problem.asked):
        if f"values{at}" not in answers:
            continue
        values, distribution = answers[f"values{at}"], answers.get(f"distribution{at}")
        if values.shape != asked.test.values.shape:
            raise ValueError(
                f"{asked.name!r} has {asked.test.values.size} pairs; got answers of shape {values.shape}"
            )
        for group in dict.fromkeys(asked.groups.tolist()):
            inside = asked.groups == group
            if np.mean(~np.isfinite(values[inside])) <= MOST_MISSING:
                chances = None if distribution is None else distribution[inside]
                found[group] = _group(problem, asked, values[inside], chances, inside)
    return found


def _group(
    problem: Problem,
    asked: Asked,
    values: FloatArray,
    chances: npt.NDArray[np.float32] | None,
    inside: npt.NDArray[np.bool_],
) -> dict[str, Any]:
    test = asked.test.take(inside)
    missing = ~np.isfinite(values)
    predicted = np.where(missing, problem.train.values.mean(), values)
    errors: dict[str, Any] = {"n_entries": int(test.values.size)}
    if missing.any():
        errors["filled"] = int(missing.sum())  # by the mean of the training values
    if problem.units is not None:
        units = problem.units[test.columns]
        return errors | _plain(predicted / units, test.values / units)
    scale = Scale(levels=problem.levels)
    predicted = scale.clip(predicted)
    errors |= _plain(predicted, test.values)
    errors |= _plain(scale.nearest_level(predicted), test.values, prefix="level_")
    if chances is not None and not missing.any():
        whole = chances.astype(np.float64) / chances.sum(axis=1, keepdims=True, dtype=np.float64)
        medians = problem.levels[np.argmax(np.cumsum(whole, axis=1) >= 0.5, axis=1)]
        errors |= _plain(medians, test.values, prefix="median_")
        positions = np.searchsorted(problem.levels, test.values)
        errors["log_loss"] = round(log_loss(positions, whole, labels=range(problem.levels.size)), 5)
        errors["calibration_error"] = round(
            calibration_error(whole, test.values, scale_levels=problem.levels), 5
        )
    return errors


def _plain(predicted: FloatArray, actual: FloatArray, *, prefix: str = "") -> dict[str, float]:
    return {
        f"{prefix}rmse": round(rmse_error(predicted, actual), 5),
        f"{prefix}mae": round(mae_error(predicted, actual), 5),
    }
