"""The last check of new entries: an extension after which a model could not predict is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from deepmf.errors import BadEntries, TrainingDiverged
from deepmf.matrix.arrays import Array, IndexArray
from deepmf.matrix.entries import ChangedStore
from deepmf.scoring.predictor import Predictor

# The squares of a hundred such factors add up to a finite number in single precision.
LARGEST_FACTOR = 1e18

_REASON = "the new entries cannot be added: predictions from them would not be finite numbers"


@contextmanager
def refuse_divergence() -> Iterator[None]:
    """Raise `BadEntries` where latents of new entries are not finite."""
    try:
        yield
    except TrainingDiverged as error:
        raise BadEntries(_REASON) from error


def check_arrived(predictor: Predictor, change: ChangedStore) -> None:
    """Refuse a change after which new rows or columns have factors that nothing can be solved
    by."""
    arrived = predictor.arrived
    if arrived is None:
        return
    n_rows, n_columns = change.entries.train.shape
    rows = np.union1d(change.rows, change.crossed[0])
    columns = np.union1d(change.columns, change.crossed[1])
    _check_factors(arrived.rows, rows - n_rows)
    _check_factors(arrived.columns, columns - n_columns)


def _check_factors(factors: Array | None, places: IndexArray) -> None:
    """Refuse factors at some places that are too large; places below 0 are those of trained
    ones."""
    if factors is None:
        return
    largest = np.abs(factors[places[places >= 0]]).max(initial=0.0)
    limit = LARGEST_FACTOR if factors.dtype == np.float32 else np.finfo(factors.dtype).max
    if not largest <= limit:
        raise BadEntries(_REASON)
