"""Frozen references: the same seeds give the same losses and predictions as before, for every
model.

python -m tests.models.test_references    writes them anew, where a change of the arithmetic is
wanted
"""

import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.lies import NAMES, small_model

from deepmf.data import split_areas
from deepmf.errors import TrainingDiverged
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.testing import additive, keep_known

FILE = Path(__file__).with_name("references.json")

# Settings that change the arithmetic, by model; each model is also tried as it is.
CHANGES: dict[str, list[dict[str, Any]]] = {
    "dmf": [{"dropout": 0.3, "block_rows": 4}, {"gamma": 0.5, "inputs": "raw"}],
    "dmf-d": [{"dropout": 0.3}, {"sharpness": 2.0, "gamma_boundaries": 5.0}],
    "dmf-o": [{"networks": 0}, {"views": 2, "landmarks": 1}],
    "als": [{"penalty": 3.0}, {"presence": None}],
    "i-autorec": [{"gamma": 1.0, "batch_size": 3}, {"inputs": "centred", "initial": 0.5}],
    "u-autorec": [{"gamma": 1.0, "batch_size": 3, "inputs": "scaled"}],
    "deep-u-autorec": [
        {"dropout": 0.5, "refeeds": 2},
        {"batch_size": 3, "refeeds": 0, "momentum": 0.5},
    ],
    "i-cf-nade": [{"normalise": "none", "batch_size": 3}],
    "u-cf-nade": [{"normalise": "root", "gamma": 0.1}],
    "optspace": [{"latent_size": 1}],
    "rank-k": [{"latent_size": 1, "penalty_growth": 1.5}],
    "rdmc": [{"gamma": 5.0}, {"latent_size": 1, "penalty_growth": 1.5}],
    "odmc": [{"alpha": 0.5, "margin": 0.1}],
    "means": [{"shrinkage": 2.0}],
    "bayesian": [{"epochs": 4, "latent_size": 1}],
}
CASES = [(name, changes) for name in NAMES for changes in [{}, *CHANGES.get(name, [])]]


def name_case(case: tuple[str, dict[str, Any]]) -> str:
    return f"{case[0]} {json.dumps(case[1])}"


def compute(name: str, changes: dict[str, Any]) -> dict[str, list[float]]:
    """Fit a tiny model to stars, and one to values far from zero; return losses, and scores of all
    four areas."""
    split = split_areas(additive(12, 10), seed=0)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = small_model(name, **changes).fit(split.train, split.validation)
        found["losses"] = [record.loss for record in model.history_.records]
        found["errors"] = [float(model.history_.best_error or 0)]
        if model.predicts != ("I",):
            model = model.extend(keep_known(split.extension, split.train, type(model)))
        found["scores"] = (
            model.predictor_.score_block(
                np.arange(model.row_labels_.size)[::4], np.arange(model.column_labels_.size)[::3]
            )
            .ravel()
            .tolist()
        )
        found["levels"] = model.complete()[:3].ravel().tolist()
        rows, columns, values = split.train.entries()
        far = ObservedMatrix.from_entries(
            rows, columns, values * 10 + 70, Scale([80, 90, 100, 110, 120])
        )
        with suppress(TrainingDiverged):  # a network without a unit for values that large
            found["far"] = small_model(name, **changes).fit(far).complete()[3].tolist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=name_case)
def test_every_model_is_as_it_was(case: tuple[str, dict[str, Any]]) -> None:
    expected = json.loads(FILE.read_text())[name_case(case)]
    for key, found in compute(*case).items():
        np.testing.assert_allclose(found, expected[key], rtol=2e-4, atol=2e-5, err_msg=key)


if __name__ == "__main__":
    texts = {
        name_case(case): {
            key: [float(f"{each:.6g}") for each in found] for key, found in compute(*case).items()
        }
        for case in CASES
    }
    FILE.write_text(
        "{\n"
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(text)}" for key, text in texts.items())
        + "\n}\n"
    )
