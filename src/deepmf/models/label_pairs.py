"""LabelPairs of positions that a model is asked for, and what becomes of those with an unknown row or column."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.labels import Labels, label_array, n_distinct

# What becomes of a pair with an unknown row or column: all pairs are refused, or it is NaN, or means of what is known.
Unknown = Literal["error", "nan", "fallback"]

Answer = Callable[[IndexArray, IndexArray], npt.NDArray[Any]]


@dataclass(frozen=True)
class LabelPairs:
    """Positions of rows and columns, of one length; -1 for what is not known."""

    rows: IndexArray
    columns: IndexArray
    unknown: Unknown

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which pairs have a known row and a known column."""
        known: npt.NDArray[np.bool_] = (self.rows >= 0) & (self.columns >= 0)
        return known

    def answered(self, answer: Answer, fallback: Answer) -> FloatArray:
        """Return what `answer` says of known pairs; of the others NaN or, where it is wanted, what `fallback` says.

        Both take positions and answer with arrays whose first axis is that of the pairs.
        """
        known = self.known
        if np.all(known):
            return answer(self.rows, self.columns)
        some = answer(self.rows[known], self.columns[known])
        answers = np.full((known.size, *some.shape[1:]), np.nan)
        answers[known] = some
        if self.unknown == "fallback":
            answers[~known] = fallback(self.rows[~known], self.columns[~known])
        return answers


def find_pairs(
    row_labels: Labels, column_labels: Labels, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown
) -> LabelPairs:
    """Return where pairs of labels stand; with `unknown="error"` all of them must be known."""
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
            labels.check_kind(array)  # of another kind none could be known: a mistake, not cold_row_rate
    return pairs


def check_unknown(unknown: str) -> None:
    """Refuse what says nothing about unknown labels."""
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
