"""The entries of rows in their order, and how they count by age."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras, PlaceArray
from deepmf.matrix.matrix import ObservedMatrix


class Decay(NamedTuple):
    """How entries count by age, as inputs and as targets.

    length: the age, in entries, at which the weight of an input has fallen to 1 / e. window: the
        number of inputs.
    ahead: the number of targets. reach: the distance at which the weight of a target has fallen to
        1 / e.
    """

    length: float
    window: int
    ahead: int = 1
    reach: float = 1.0

    @property
    def inputs(self) -> FloatArray:
        """The weights of the latest entries, by age."""
        return np.exp(-np.arange(self.window) / self.length)

    @property
    def targets(self) -> FloatArray:
        """The weights of the entries that follow."""
        return np.exp(-np.arange(self.ahead) / self.reach)

    def weigh(self, entries: AxisEntries) -> AxisEntries:
        """Return the latest entries of some rows, with weights that the column ridge reads as those
        of their ages."""
        ages = find_ages(entries)
        latest = entries.select(ages < self.window)
        weights = (
            latest.extras.fill_weights(latest.others.size)
            * self.inputs[ages[ages < self.window]] ** 2
        )
        return AxisEntries(
            latest.starts, latest.others, np.ones(weights.size), extras=Extras(weights=weights)
        )


def find_ages(entries: AxisEntries) -> IndexArray:
    """Return how many entries of its row are later than each entry."""
    rows = entries.group_of
    ages = np.empty(rows.size, dtype=np.int64)
    ages[entries.extras.sort_within(rows)] = entries.starts[rows + 1] - 1 - np.arange(rows.size)
    return ages


@dataclass(frozen=True, eq=False)
class Sequences:
    """The entries of some rows in their order: those of row i are `starts[i]:starts[i + 1]`."""

    starts: IndexArray
    columns: IndexArray
    roots: LatentArray | None = None  # of the weights of entries

    @classmethod
    def of_rows(cls, entries: AxisEntries) -> Sequences:
        """Return the entries of some rows."""
        order, weights = entries.extras.sort_within(entries.group_of), entries.extras.weights
        roots = None if weights is None else np.sqrt(weights[order]).astype(np.float32)
        return cls(entries.starts.astype(np.int64), entries.others[order].astype(np.int64), roots)

    @classmethod
    def of(cls, matrix: ObservedMatrix) -> Sequences:
        """Return the entries of a matrix."""
        counts = np.ones(matrix.n_entries)
        return cls.of_rows(AxisEntries(*matrix.by_row, counts, extras=matrix.extras))

    @cached_property
    def later(self) -> PlaceArray:
        """How many entries of its row follow each entry."""
        ends = np.repeat(self.starts[1:], np.diff(self.starts))
        later: PlaceArray = (ends - 1 - np.arange(ends.size)).astype(np.int32)
        return later

    @cached_property
    def earlier(self) -> PlaceArray:
        """How many entries of its row precede each entry."""
        starts = np.repeat(self.starts[:-1], np.diff(self.starts))
        earlier: PlaceArray = (np.arange(starts.size) - starts).astype(np.int32)
        return earlier

    @cached_property
    def by_column(self) -> tuple[PlaceArray, IndexArray]:
        """The places of all entries by their column, and where those of each column start."""
        starts = np.append(0, np.cumsum(np.bincount(self.columns)))
        return np.argsort(self.columns, kind="stable").astype(np.int32), starts


@dataclass(frozen=True, eq=False)
class Histories:
    """The sequences of all rows that a model knows.

    first: of the same training entries, whose sequences are shared; None: they are read from the
        store. Rows that have changed since training are read beside them.
    """

    entries: EntryStore
    first: Histories | None = None

    def update(self, entries: EntryStore) -> Histories:
        """Return the sequences after a change of the entries."""
        return Histories(entries, self.first or self)

    @cached_property
    def trained_sequences(self) -> Sequences:
        """The sequences of the training entries."""
        if self.first is not None:
            return self.first.trained_sequences
        return Sequences.of(self.entries.train)

    @cached_property
    def parts(self) -> list[tuple[Sequences, BoolArray | None]]:
        """Sequences, and which of their entries are those of rows without a change; None: all."""
        train, entries = self.entries.train, self.entries
        changed = np.union1d(train.find_rows(entries.dropped), entries.added.rows)
        if changed.size == 0:
            return [(self.trained_sequences, None)]
        is_unchanged = ~np.isin(np.arange(train.shape[0]), changed)
        are_current = np.repeat(is_unchanged, np.diff(self.trained_sequences.starts))
        recent = Sequences.of_rows(entries.seen_columns(changed))
        return [(self.trained_sequences, are_current), (recent, None)]
