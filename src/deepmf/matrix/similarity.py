"""Similarities as a user gives them: a square array, frame or sparse matrix, or that of new labels
to known ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from deepmf.errors import BadEntries, BadFeatures, warn
from deepmf.matrix.arrays import Array
from deepmf.matrix.feature_values import Similarities
from deepmf.matrix.labels import Labels

# Similarities that differ by less than this share of the largest are equal up to rounding.
_ROUNDING = 1e-6


def read_similarities(labels: Labels, similarity: Any, to: Labels | None) -> list[Similarities]:
    """Return the similarities of each label to others: to all labels, or to some known ones."""
    others = labels if to is None else to
    if hasattr(similarity, "columns"):
        similarity = _read_frame(similarity, labels, others)
    table = _make_sparse(similarity, (len(labels), len(others)))
    wrong = np.flatnonzero(~np.isfinite(table.data))
    if wrong.size:
        row = np.searchsorted(table.indptr, wrong[0], side="right") - 1
        pair = f"{labels[row]!r} and {others[table.indices[wrong[0]]]!r}"
        raise BadFeatures(
            f"similarities are finite numbers; that of {pair} is {table.data[wrong[0]]}"
        )
    if to is None:
        table = _average_sides(table)
    texts = tuple(map(str, others.array.tolist()))
    similarities = []
    for at, place in enumerate(others.find(labels.array).tolist()):
        span = slice(table.indptr[at], table.indptr[at + 1])
        places, weights = table.indices[span], table.data[span]
        is_other = places != place
        itself = float(weights[~is_other].sum()) if place >= 0 else np.nan
        similarities.append(Similarities(texts, places[is_other], weights[is_other], itself))
    return similarities


def _make_sparse(similarity: Any, shape: tuple[int, int]) -> scipy.sparse.csr_array:
    try:
        given = similarity if scipy.sparse.issparse(similarity) else np.asarray(similarity)
        table = scipy.sparse.csr_array(given.astype(np.float64))
    except (TypeError, ValueError) as error:
        raise BadFeatures(f"a similarity is a table of numbers: {error}") from error
    if table.shape != shape:
        raise BadFeatures(
            f"the similarity must have a line and a column for each label, {shape}; got {table.shape}"
        )
    return table


def _average_sides(table: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return the mean of a table and its transpose; say how far they differ."""
    difference = abs(table - table.T).max() if table.nnz else 0.0
    if difference > _ROUNDING * abs(table).max():
        warn(
            f"the similarity is not symmetric: both sides differ by up to {difference:.3g}; their "
            "mean is used"
        )
    return scipy.sparse.csr_array((table + table.T) / 2.0)


def _read_frame(frame: Any, labels: Labels, others: Labels) -> Array:
    """Return the cells of a frame in the order of labels; without an index, its lines are in this
    order, or have their labels in the first column."""
    from deepmf.matrix.frames import read_wide_frame

    row = frame.columns[0] if len(frame.columns) == len(others) + 1 else None
    try:
        array, lines, columns = read_wide_frame(frame, row=row)
    except BadEntries as error:
        raise BadFeatures(f"the frame of similarities is wrong: {error}") from error
    are_counted = lines == list(range(len(labels)))  # an index that nobody set
    if lines is None or (are_counted and labels.array.dtype.kind != "i"):
        lines = labels.array.tolist()
    places = [_find_places(labels, lines, "line"), _find_places(others, columns, "column")]
    return array[np.ix_(*places)]


def _find_places(labels: Labels, names: Any, what: str) -> list[int]:
    place_of = {str(name): place for place, name in enumerate(names)}
    for label in labels.array.tolist():
        if str(label) not in place_of:
            raise BadFeatures(f"the frame of similarities has no {what} for {label!r}")
    return [place_of[str(label)] for label in labels.array.tolist()]
