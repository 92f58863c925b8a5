"""Small models that cover new rows and columns, and what an export should make of them."""

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.data import split_areas
from deepmf.data.synthetic import STARS
from deepmf.datasets import generate
from deepmf.errors import NotBetterThanMeans
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD
from deepmf.models.ordinal import encoder as encoder_training
from deepmf.models.ordinal import linear_part
from deepmf.models.ordinal.model import OrdinalDMF

SMALL: dict[str, Any] = {
    "hidden_sizes": (16,),
    "latent_size": 4,
    "dropout": 0.2,
    "epochs": 20,
    "seed": 0,
    "device": "cpu",
    "presence": "ease",
}
OWN: dict[str, Any] = {"views": 3, "landmarks": 8, "row_penalty": 3.0, "column_penalty": 20.0, "linear_size": 0}
PLAIN = OWN | {"row_penalty": None, "column_penalty": None}  # chosen: that there is no refinement


@pytest.fixture(scope="session")
def models() -> dict[str, Any]:
    """Every way a branch reads and a head answers, on levels and on an interval."""
    levels, interval = (
        split_areas(generate(40, 30, density=0.4, levels=scale, seed=0).matrix, seed=0) for scale in (STARS, None)
    )
    made = {
        "dmf": (DMF(**SMALL), levels),
        "dmf, interval": (DMF(**SMALL, inputs="raw"), interval),
        "dmf-d": (DMFD(**SMALL, column_hidden_sizes=(8, 8)), levels),
        "dmf-o": (OrdinalDMF(**SMALL, **PLAIN), levels),
        "dmf-o, interval": (OrdinalDMF(**SMALL, **PLAIN, bins=6), interval),
        "dmf-o, refined": (OrdinalDMF(**SMALL, **OWN), levels),
        "dmf-o, three networks": (OrdinalDMF(**SMALL, **OWN, networks=3), levels),
        "dmf-o, rows refined": (OrdinalDMF(**SMALL, **OWN | {"column_penalty": None}), levels),
        "dmf-o, columns refined": (OrdinalDMF(**SMALL, **OWN | {"row_penalty": None}), levels),
        "dmf-o, linear": (OrdinalDMF(**SMALL, **OWN | {"linear_size": 4}), levels),
        "dmf-o, sampled": (OrdinalDMF(**SMALL, **OWN | {"linear_size": 4, "linear_iterations": 20}), levels),
        "dmf-o, linear, interval": (OrdinalDMF(**SMALL, **PLAIN | {"linear_size": 4}), interval),
    }
    with pytest.MonkeyPatch.context() as changed, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotBetterThanMeans)  # trainings are short
        changed.setattr(encoder_training, "choose_penalty", lambda *_, **__: math.inf)
        changed.setattr(linear_part, "_ALS_UP_TO", 0)  # "sampled" has samples, whatever ALS would do
        changed.setattr(encoder_training, "choose_few_count", lambda *_: 5.0)
        return {
            name: model.fit(split.train, split.validation).extend(split.extension)
            for name, (model, split) in made.items()
        }


def values_of(model: Any, axis: str) -> npt.NDArray[np.float32]:
    """Return the values that describe every row, or every column: NaN where nothing is observed."""
    seen = model.entries_
    count, width = (len(seen.rows), seen.train.shape[1]) if axis == "row" else (len(seen.columns), seen.train.shape[0])
    entries = (seen.row_entries if axis == "row" else seen.column_entries)(np.arange(count))
    table = np.full((count, width), np.nan, dtype=np.float32)
    table[np.repeat(np.arange(count), np.diff(entries.starts)), entries.others] = entries.values
    return table


def ordinal_support(model: Any) -> dict[str, npt.NDArray[Any]]:
    """Return what the head should answer for all pairs (rows, columns, ...), by the names of its outputs."""
    n_rows, n_columns = len(model.row_labels_), len(model.column_labels_)
    pairs = np.repeat(model.row_labels_, n_columns), np.tile(model.column_labels_, n_rows)
    answers = {"predictions": model.predict(*pairs)}
    if isinstance(model, DMFD):
        answers["scores"] = model.scores(*pairs)
    if isinstance(model, OrdinalDMF):
        answers["probabilities"] = model.predict_distribution(*pairs)
    return {name: answer.reshape(n_rows, n_columns, *answer.shape[1:]) for name, answer in answers.items()}
