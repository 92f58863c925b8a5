"""A trial: one recipe on one split, fitted and measured in every area that its method can predict in."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np
import torch

from deepmf.errors import BadSetting
from deepmf.evaluation.area_evaluation import evaluate
from deepmf.evaluation.calibration import calibration
from deepmf.evaluation.cold_start import cold_start, cold_start_curve
from deepmf.evaluation.confusion import confusion
from deepmf.evaluation.peak_memory import peak_memory_mb
from deepmf.evaluation.problem import Problem, extended_for, some_empty
from deepmf.experiments.protocol import PROTOCOLS
from deepmf.experiments.recipe import Recipe
from deepmf.experiments.source_digest import stamp
from deepmf.matrix.labels import Labelled
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.model import Model
from deepmf.models.registry import model_class
from deepmf.training.runtime import Runtime

Record = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A recipe, and the split to run it on."""

    recipe: Recipe
    seed: int
    new_share: float

    @property
    def key(self) -> dict[str, Any]:
        """What tells this trial from all others of a table."""
        return {
            "recipe": self.recipe.name,
            "seed": self.seed,
            "new_share": self.new_share if self.recipe.has_areas else None,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the model is made with."""
        return {"seed": self.seed} | dict(self.recipe.settings)


def trials_of(recipe: Recipe, *, n_splits: int | None = None) -> list[Trial]:
    """Return the trials that a recipe asks for, on the first splits or on all."""
    if n_splits is not None and n_splits < 1:
        raise BadSetting(f"splits must be at least 1; got {n_splits}")
    shares = recipe.new_shares if recipe.has_areas else recipe.new_shares[:1]
    return [Trial(recipe, seed, share) for share in shares for seed in recipe.seeds[:n_splits]]


def run_trial(trial: Trial) -> list[Record]:
    """Fit once, and return one record for each area of the test entries."""
    return _measured(trial, on_validation=False)


def run_choice(trial: Trial) -> list[Record]:
    """Fit once, and return one record for each area of the validation entries, to choose settings by."""
    return _measured(trial, on_validation=True)


def _measured(trial: Trial, *, on_validation: bool) -> list[Record]:
    recipe, source = trial.recipe, stamp()  # before the fit: files may be edited while it runs
    problem = PROTOCOLS[recipe.protocol](recipe.data, seed=trial.seed, new_share=trial.new_share)
    chosen = model_class(recipe.model)(**trial.settings)
    start = time.perf_counter()
    chosen.fit(problem.train, problem.validation, progress=False)
    model = _refitted(chosen, problem, trial.settings) if recipe.refit and not on_validation else chosen
    seconds = time.perf_counter() - start
    extended = _extended(model, problem, joined=recipe.joined and not on_validation)
    wanted = problem.choice if on_validation else problem.test
    common = trial.key | source | _circumstances(trial, chosen, seconds)
    records = [
        common | {"area": area} | _errors(extended, test) for area, test in wanted.items() if area in model.predicts
    ]
    for record in records:
        if record["area"] == "II" and not on_validation:
            record |= _cold_start_curve(model, problem, wanted["II"])
    records[0] |= {"curve": _curve(chosen)} | _quantizer(extended, wanted["I"])  # once for each trial
    return records


def _refitted(chosen: Model, problem: Problem, settings: dict[str, Any]) -> Model:
    """Return a model fitted on training and validation entries, for as many epochs as these found best."""
    best = chosen.history_.best_epoch
    if best is not None:
        settings = settings | {"epochs": best + 1}
    return type(chosen)(**settings).fit(_together(problem.train, problem.validation), progress=False)


def _together(train: ObservedMatrix, validation: ObservedMatrix) -> ObservedMatrix:
    """Return the entries of two parts of a split, which have the same rows and columns, as one matrix."""
    parts = train, validation
    return ObservedMatrix.from_positions(
        Labelled(train.rows, np.concatenate([part.entry_rows for part in parts])),
        Labelled(train.columns, np.concatenate([part.by_row.columns for part in parts])),
        np.concatenate([part.values.astype(np.float64) for part in parts]),
        scale=train.scale,
    )


def _extended(model: Model, problem: Problem, *, joined: bool) -> Model:
    """Return the model with everything that describes new rows and columns, as far as it can take it."""
    model = extended_for(model, problem)
    return model.extend(problem.validation) if joined else model


def _errors(model: Model, test: ObservedMatrix) -> Record:
    overall = asdict(evaluate(model, test)[-1])
    errors: Record = {name: value for name, value in overall.items() if name != "area" and value is not None}
    errors["cold_start"] = [list(astuple(group)) for group in cold_start(model, test)]
    if model.scale_.levels is not None:
        errors["confusion"] = confusion(model, test).tolist()
        if model.gives_distribution:
            found = calibration(model, test, coverage=0.9)
            errors |= {"calibration_error": found.error, "coverage": found.coverage}
    return errors


def _cold_start_curve(model: Model, problem: Problem, test: ObservedMatrix) -> Record:
    """Return the errors for new rows as more and more of their entries become known."""
    assert problem.extension is not None
    extension, train = problem.extension, problem.train
    new_rows = np.flatnonzero(train.rows.find(extension.row_labels) < 0)
    known_columns = np.flatnonzero(train.columns.find(extension.column_labels) >= 0)
    with some_empty():
        curve = cold_start_curve(model, extension.take(new_rows, known_columns), test)
    return {"cold_start_curve": [list(astuple(point)) for point in curve]}


def _quantizer(model: Model, test: ObservedMatrix) -> Record:
    """Return the learned boundaries of a model that has some, and how its scores spread over the scale."""
    boundaries = getattr(model, "boundaries_", None)
    if boundaries is None or model.scale_.levels is None:
        return {}
    counts, edges = np.histogram(
        model.scores(*test.entries()[:2]), bins=80, range=(model.scale_.low, model.scale_.high)
    )
    learned = {"levels": model.scale_.levels.tolist(), "boundaries": boundaries.tolist()}
    return learned | {"scores": {"edges": edges.tolist(), "counts": counts.tolist()}}


def _curve(model: Model) -> list[list[float | None]]:
    """Return epoch, loss and validation error wherever the latter was looked at."""
    records = model.history_.records
    return [[each.epoch, each.loss, each.validation_error] for each in records if each.validation_error is not None]


def _circumstances(trial: Trial, model: Model, seconds: float) -> Record:
    history = model.history_
    device = getattr(model.settings, "device", "cpu")
    return {
        "model": trial.recipe.model,
        "data": trial.recipe.data,
        "protocol": trial.recipe.protocol,
        "joined": trial.recipe.joined,
        "refit": trial.recipe.refit,
        "settings": model.settings.to_dict(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hardware": Runtime(device).describe() if device != "cpu" else f"CPU, {torch.get_num_threads()} threads",
        "runtime": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
        "seconds": round(seconds, 2),
        "peak_memory_mb": peak_memory_mb(),
        "epochs": len(history),
        "best_epoch": history.best_epoch,
        "validation_rmse": history.best_error,
    }
