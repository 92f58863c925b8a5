"""Small models that cover new rows and columns, and what an export should make of them."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.data import split_areas
from deepmf.data.synthetic import STARS
from deepmf.datasets import generate
from deepmf.errors import NotBetterThanMeans
from deepmf.models.base import Model
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD
from deepmf.models.ordinal import encoder as encoder_training
from deepmf.models.ordinal.model import OrdinalDMF

SMALL: dict[str, Any] = {
    "hidden_sizes": (16,),
    "latent_size": 4,
    "dropout": 0.2,
    "epochs": 20,
    "seed": 0,
    "device": "cpu",
    "presence": "full",
}
OWN: dict[str, Any] = {
    "views": 3,
    "landmarks": 8,
    "row_penalty": 3.0,
    "column_penalty": 20.0,
    "linear_size": 0,
}
PLAIN = OWN | {"row_penalty": None, "column_penalty": None}  # chosen: that there is no refinement


# Every way a branch reads and a head answers, on levels and on an interval.
ON_LEVELS: dict[str, Callable[[], Model]] = {
    "dmf": lambda: DMF(**SMALL),
    "dmf-d": lambda: DMFD(**SMALL | {"hidden_sizes": (8, 8)}),
    "dmf-o": lambda: OrdinalDMF(**SMALL, **PLAIN),
    "dmf-o, refined": lambda: OrdinalDMF(**SMALL, **OWN),
    "dmf-o, three networks": lambda: OrdinalDMF(**SMALL, **OWN, networks=3),
    "dmf-o, rows refined": lambda: OrdinalDMF(**SMALL, **OWN | {"column_penalty": None}),
    "dmf-o, sampled": lambda: OrdinalDMF(
        **SMALL, **OWN | {"linear_size": 4, "linear_iterations": 3}
    ),
    "dmf-o, projected": lambda: OrdinalDMF(
        **SMALL, **OWN | {"linear_size": 20, "linear_iterations": 24, "linear_samples": 16}
    ),
}
ON_INTERVAL: dict[str, Callable[[], Model]] = {
    "dmf, interval": lambda: DMF(**SMALL, inputs="raw"),
    "dmf-o, interval": lambda: OrdinalDMF(**SMALL, **PLAIN, bins=6),
    "dmf-o, sampled, interval": lambda: OrdinalDMF(
        **SMALL, **PLAIN | {"linear_size": 4, "linear_iterations": 3}
    ),
}


class Models(dict[str, Any]):
    """Models by name, each fitted and extended when it is first asked for."""

    def __missing__(self, name: str) -> Any:
        scale, build = (STARS, ON_LEVELS[name]) if name in ON_LEVELS else (None, ON_INTERVAL[name])
        split = split_areas(generate(40, 30, density=0.4, levels=scale, seed=0).matrix, seed=0)
        with pytest.MonkeyPatch.context() as changed, warnings.catch_warnings():
            warnings.simplefilter("ignore", NotBetterThanMeans)  # trainings are short
            changed.setattr(encoder_training, "choose_penalty", lambda *_, **__: math.inf)
            changed.setattr(encoder_training, "choose_few_count", lambda *_: 5.0)
            self[name] = build().fit(split.train, split.validation).extend(split.extension)
        return self[name]


@pytest.fixture(scope="session")
def models() -> Models:
    """Small models of every kind."""
    return Models()


def values_of(model: Any) -> npt.NDArray[np.float32]:
    """Return the values that describe every row: NaN where nothing is observed."""
    count, seen = len(model.entries_.rows), model.entries_
    entries = seen.row_entries(np.arange(count))
    table = np.full((count, seen.train.shape[1]), np.nan, dtype=np.float32)
    table[np.repeat(np.arange(count), np.diff(entries.starts)), entries.others] = entries.values
    return table


def ordinal_support(model: Any) -> dict[str, npt.NDArray[Any]]:
    """Return what the head should answer for all pairs (rows, columns, ...), by the names of its
    outputs."""
    n_rows, n_columns = len(model.row_labels_), len(model.column_labels_)
    pairs = np.repeat(model.row_labels_, n_columns), np.tile(model.column_labels_, n_rows)
    answers = {"predictions": model.predict(*pairs)}
    if isinstance(model, DMFD):
        answers["scores"] = model.scores(*pairs)
    if isinstance(model, OrdinalDMF):
        answers["probabilities"] = model.predict_distribution(*pairs)
    return {
        name: answer.reshape(n_rows, n_columns, *answer.shape[1:])
        for name, answer in answers.items()
    }
