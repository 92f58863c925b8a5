"""A problem: the entries that every peer is given, what it is asked, and the answers that the
driver keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.files import write_atomically
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix

Arrays = dict[str, npt.NDArray[Any]]


class Entries(NamedTuple):
    """Rows, columns and values of some entries, by position among all rows and columns."""

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    values: FloatArray

    @classmethod
    def of(cls, matrix: ObservedMatrix, rows: Labels, columns: Labels) -> Entries:
        """Return the entries of a matrix by their positions among some labels."""
        labelled = matrix.entries()
        return cls(
            rows.positions(labelled.rows).astype(np.int64),
            columns.positions(labelled.columns).astype(np.int64),
            labelled.values.astype(np.float64),
        )

    @classmethod
    def none(cls) -> Entries:
        """Return no entries."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))

    @classmethod
    def join(cls, *parts: Entries) -> Entries:
        """Return the entries of several parts."""
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.columns for part in parts]),
            np.concatenate([part.values for part in parts]),
        )

    def take(self, which: npt.NDArray[np.bool_ | np.int64]) -> Entries:
        """Return some of the entries: those of a mask, or those at some positions."""
        return Entries(self.rows[which], self.columns[which], self.values[which])

    def mirror(self) -> Entries:
        """Return the entries with rows and columns swapped."""
        return Entries(self.columns, self.rows, self.values)


class Asked(NamedTuple):
    """A question: what has become known since training, the entries to predict, and the group that
    each counts in."""

    name: str
    extension: Entries
    test: Entries
    groups: npt.NDArray[np.str_]


class OneHot(NamedTuple):
    """Features that are 0 or 1: where the ones are (line, feature), and how many features each
    group has."""

    lines: npt.NDArray[np.int64]
    features: npt.NDArray[np.int64]
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """What every peer is given, and what it is asked.

    `levels` is empty for real values; `units` are those in which the error of each column counts.
    """

    shape: tuple[int, int]
    levels: FloatArray
    train: Entries
    validation: Entries
    asked: list[Asked]
    units: FloatArray | None = None
    row_features: OneHot | None = None
    column_features: OneHot | None = None
    raw: Arrays = field(default_factory=dict)

    def keep_questions(self, names: Sequence[str] | None) -> Problem:
        """Return the problem with these questions alone."""
        return (
            self
            if names is None
            else replace(self, asked=[asked for asked in self.asked if asked.name in names])
        )

    def write(self, path: Path) -> None:
        """Write what a peer may see: everything but the values to predict."""
        arrays: dict[str, Any] = {
            "shape": np.array(self.shape),
            "levels": self.levels,
            "questions": np.array([asked.name for asked in self.asked]),
            **_name_arrays("train", self.train),
            **_name_arrays("validation", self.validation),
            **self.raw,
        }
        for at, asked in enumerate(self.asked):
            arrays |= _name_arrays(f"question{at}", asked.extension)
            arrays |= {
                f"question{at}_rows": asked.test.rows,
                f"question{at}_columns": asked.test.columns,
            }
        for axis, features in (("row", self.row_features), ("column", self.column_features)):
            if features is not None:
                arrays |= {
                    f"{axis}_feature_lines": features.lines,
                    f"{axis}_feature_columns": features.features,
                }
                arrays[f"{axis}_groups"] = np.array(features.groups)

        def save(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)

        write_atomically(path, save)


def _name_arrays(name: str, entries: Entries) -> Arrays:
    return {f"{name}_entry_{part}": array for part, array in entries._asdict().items()}
