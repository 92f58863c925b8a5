"""Pairs of labels as positions, and how pairs with an unknown row or column are treated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.label_arrays import n_distinct
from deepmf.matrix.labels import Labels, label_array

# A pair with an unknown row or column: an error for all pairs, NaN, or the prediction of the fallback.
Unknown = Literal["error", "nan", "fallback"]

PairFunction = Callable[[IndexArray, IndexArray], npt.NDArray[Any]]


@dataclass(frozen=True)
class LabelPairs:
    """Positions of rows and columns, of one length; -1 for an unknown label."""

    rows: IndexArray
    columns: IndexArray
    unknown: Unknown

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which pairs have a known row and a known column."""
        known: npt.NDArray[np.bool_] = (self.rows >= 0) & (self.columns >= 0)
        return known

    def evaluate(self, predict: PairFunction, fallback: PairFunction) -> FloatArray:
        """Return `predict` of the known pairs; for the others NaN or, with `unknown="fallback"`, `fallback` of them.

        Both map positions to arrays whose first axis is that of the pairs.
        """
        known = self.known
        if np.all(known):
            return predict(self.rows, self.columns)
        some = predict(self.rows[known], self.columns[known])
        values = np.full((known.size, *some.shape[1:]), np.nan)
        values[known] = some
        if self.unknown == "fallback":
            values[~known] = fallback(self.rows[~known], self.columns[~known])
        return values


def find_pairs(
    row_labels: Labels, column_labels: Labels, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown
) -> LabelPairs:
    """Return the positions of pairs of labels; with `unknown="error"` all of them must be known."""
    check_unknown(unknown)
    row_array, column_array = label_array(rows, axis="row"), label_array(columns, axis="column")
    if row_array.size != column_array.size:
        raise BadEntries(f"rows and columns are pairs, so of one length; got {row_array.size} and {column_array.size}")
    pairs = LabelPairs(row_labels.find(row_array), column_labels.find(column_array), unknown)
    if unknown == "error" and not np.all(pairs.known):
        check_known((row_labels, row_array), (column_labels, column_array))
    for labels, array, positions in (
        (row_labels, row_array, pairs.rows),
        (column_labels, column_array, pairs.columns),
    ):
        if np.all(positions < 0):
            labels.check_kind(array)  # labels of another type cannot be known: a mistake, not new labels
    return pairs


def check_unknown(unknown: str) -> None:
    """Refuse a value that `unknown` cannot have."""
    choices = get_args(Unknown)
    if unknown not in choices:
        raise BadSetting(f"unknown must be {' or '.join(map(repr, choices))}; got {unknown!r}")


def check_known(*axes: tuple[Labels, npt.NDArray[Any]]) -> None:
    """Name the first label that is not among those of its axis, and say how many others there are on all axes."""
    asked = ((labels, np.extract(labels.find(array) < 0, array)) for labels, array in axes)
    unknown = [(labels, array) for labels, array in asked if array.size]
    if unknown:
        (labels, first), *others = unknown
        raise labels.unknown(first, *(f"{n_distinct(array)} {labels.axis}(s)" for labels, array in others))
