"""The last checks of an extension and of a file: a model that could not predict is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from deepmf.errors import BadEntries, BadModelFile, TrainingDiverged
from deepmf.matrix.arrays import Array, IndexArray
from deepmf.matrix.entries import ChangedStore, EntryStore
from deepmf.scoring.factors import Factors
from deepmf.scoring.predictor import Predictor

# The squares of a hundred such factors add up to a finite number in single precision.
LARGEST_FACTOR = 1e18

# Rows, and columns, of a file that are predicted before it is opened: together about a millisecond.
_MOST_CHECKED = 32

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
    n_rows, n_columns = change.entries.train.shape
    rows = np.union1d(change.rows, change.crossed[0])
    columns = np.union1d(change.columns, change.crossed[1])
    for member in predictor.members.values():
        if isinstance(member.fitted, Factors) and member.fitted.arrived is not None:
            _check_factors(member.fitted.arrived.rows, rows - n_rows)
            _check_factors(member.fitted.arrived.columns, columns - n_columns)


def _check_factors(factors: Array | None, places: IndexArray) -> None:
    """Refuse factors at some places that are too large; places below 0 are those of trained
    ones."""
    if factors is None:
        return
    largest = np.abs(factors[places[places >= 0]]).max(initial=0.0)
    limit = LARGEST_FACTOR if factors.dtype == np.float32 else np.finfo(factors.dtype).max
    if not largest <= limit:
        raise BadEntries(_REASON)


def check_predictions(entries: EntryStore, predictor: Predictor) -> None:
    """Refuse a stored model if predictions of some rows and columns are not finite."""
    if entries.scale.is_interactions:
        return
    rows, columns = (_spread_positions(len(labels)) for labels in (entries.rows, entries.columns))
    pairs = np.repeat(rows, columns.size), np.tile(columns, rows.size)
    with np.errstate(over="ignore", invalid="ignore"):
        predictions = predictor.predict(*pairs)
    if not np.isfinite(predictions).all():
        raise BadModelFile("the stored model predicts numbers that are not finite")


def _spread_positions(count: int) -> IndexArray:
    """Return the first, the last and evenly spread positions, at most `_MOST_CHECKED`."""
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_CHECKED)).astype(np.int64))
