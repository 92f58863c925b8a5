"""Columns that recommendations leave out: hidden or expired columns, and columns that a row has dismissed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.labels import Labels

# What a write changes: the entries and features of a row or column, the state of a column, or a row's dismissals.
Topic = Literal["row", "column", "state", "skips"]


class ColumnState(NamedTuple):
    """Whether a column may be recommended, and from and until when, in seconds since 1970."""

    visible: bool = True
    start: float | None = None
    stop: float | None = None

    def is_shown(self, now: float) -> bool:
        """Whether the column may be recommended at a time."""
        return self.visible and (self.start is None or self.start <= now) and (self.stop is None or now < self.stop)


StateChanges = Mapping[Any, ColumnState | None]  # by column; None returns to a column without a state
DismissalChanges = Mapping[Any, frozenset[Any]]  # all dismissed columns, by row


class Omissions:
    """The states of columns and the dismissals of rows; immutable, as a part of a snapshot.

    >>> from deepmf.matrix.labels import Labels
    >>> omissions = Omissions({"Alien": ColumnState(visible=False), "Big": ColumnState(stop=5.0)})
    >>> omissions.find_hidden(Labels(["Alien", "Big", "Cube"], axis="column"), now=9.0).tolist()
    [0, 1]
    """

    def __init__(
        self,
        states: Mapping[Any, ColumnState] | None = None,
        dismissals: Mapping[Any, frozenset[Any]] | None = None,
    ) -> None:
        self.states: Mapping[Any, ColumnState] = states or {}
        self.dismissals: Mapping[Any, frozenset[Any]] = dismissals or {}
        self._found: tuple[Labels, IndexArray] | None = None

    def change(self, states: StateChanges, dismissals: DismissalChanges) -> Omissions:
        """Return the omissions with changes; the same object if there are none."""
        if not states and not dismissals:
            return self
        new_states = {column: state for column, state in {**self.states, **states}.items() if state is not None}
        new_dismissals = {**self.dismissals, **dismissals} if dismissals else self.dismissals
        return Omissions(new_states, {row: columns for row, columns in new_dismissals.items() if columns})

    def find_hidden(self, columns: Labels, now: float | None = None) -> IndexArray:
        """Return the positions of the columns that are hidden at a time; now by default."""
        if not self.states:
            return NOTHING
        starts, stops = self._times
        at = time.time() if now is None else now
        positions = self._find_positions(columns)
        hidden: IndexArray = positions[(positions >= 0) & ~((starts <= at) & (at < stops))]
        return hidden

    def find_dismissed(self, row: Any, columns: Labels) -> IndexArray:
        """Return the positions of the columns that a row has dismissed."""
        dismissed = self.dismissals.get(row)
        if not dismissed:
            return NOTHING
        positions = columns.find(list(dismissed))
        known: IndexArray = positions[positions >= 0]
        return known

    @cached_property
    def _times(self) -> tuple[FloatArray, FloatArray]:
        """From and until when each column with a state is visible; a hidden column never is."""
        starts = [
            np.inf if not one.visible else -np.inf if one.start is None else one.start for one in self.states.values()
        ]
        stops = [np.inf if one.stop is None else one.stop for one in self.states.values()]
        return np.array(starts), np.array(stops)

    def _find_positions(self, columns: Labels) -> IndexArray:
        """Return the positions of the columns with a state, -1 for unknown ones; found once for the same labels."""
        if self._found is None or self._found[0] is not columns:
            self._found = columns, columns.find(list(self.states))
        return self._found[1]
