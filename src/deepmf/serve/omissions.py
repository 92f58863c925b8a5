"""Columns that recommendations leave out: hidden or expired columns, and columns that a row has
dismissed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import NOTHING, Axis
from deepmf.matrix.labels import Labels

# What is stored beside entries: features of a row or a column, the state of a column, and the
# columns that a row dismissed; with the axis of its labels.
Topic = Literal["row", "column", "state", "skips"]
AXIS_OF: dict[Topic, Axis] = {"row": "row", "column": "column", "state": "column", "skips": "row"}
OMISSIONS: tuple[Topic, ...] = ("state", "skips")


class ColumnState(NamedTuple):
    """Whether a column may be recommended, and from and until when, in seconds since 1970."""

    visible: bool = True
    start: int | None = None
    stop: int | None = None

    def is_shown(self, now: float) -> bool:
        """Whether the column may be recommended at a time."""
        return (
            self.visible
            and (self.start is None or self.start <= now)
            and (self.stop is None or now < self.stop)
        )


# By topic and label: features by name, as they were given, a `ColumnState`, or all columns that a
# row dismissed; None forgets them.
ContentChanges = Mapping[tuple[Topic, Any], Any]
NO_CHANGES: ContentChanges = MappingProxyType({})


class Omissions:
    """The states of columns and the dismissals of rows; immutable, as a part of a snapshot.

    >>> from deepmf.matrix.labels import Labels
    >>> omissions = Omissions({("state", "Alien"): ColumnState(visible=False), ("state", "Big"): ColumnState(stop=5)})
    >>> omissions.find_hidden(Labels(["Alien", "Big", "Cube"], axis="column"), now=9.0).tolist()
    [0, 1]
    """

    def __init__(self, contents: ContentChanges = NO_CHANGES) -> None:
        self.contents = {
            key: content for key, content in contents.items() if key[0] in OMISSIONS and content
        }
        topics = self.contents.items()
        self.states: dict[Any, ColumnState] = {
            label: content for (topic, label), content in topics if topic == "state"
        }
        self.dismissals: dict[Any, frozenset[Any]] = {
            label: content for (topic, label), content in topics if topic == "skips"
        }
        self._found: tuple[Labels, IndexArray] | None = None

    def change(self, contents: ContentChanges) -> Omissions:
        """Return the omissions with changes; the same object if there are none."""
        if any(key[0] in OMISSIONS for key in contents):
            return Omissions({**self.contents, **contents})
        return self

    def find_hidden(self, columns: Labels, now: float | None = None) -> IndexArray:
        """Return the positions of the columns that are hidden at a time; now by default."""
        if not self.states:
            return NOTHING
        if self._found is None or self._found[0] is not columns:  # found once for the same labels
            self._found = columns, columns.find(list(self.states))
        positions, at = self._found[1], time.time() if now is None else now
        starts, stops = self._times
        hidden: IndexArray = positions[(positions >= 0) & ~((starts <= at) & (at < stops))]
        return hidden

    def find_dismissed(self, row: Any, columns: Labels) -> IndexArray:
        """Return the positions of the columns that a row has dismissed."""
        positions = columns.find(list(self.dismissals.get(row, ())))
        known: IndexArray = positions[positions >= 0]
        return known

    @cached_property
    def _times(self) -> tuple[FloatArray, FloatArray]:
        """From and until when each column with a state is visible; a hidden column never is."""
        states = self.states.values()
        starts = np.array([state.start for state in states], dtype=np.float64)
        stops = np.array([state.stop for state in states], dtype=np.float64)
        starts[np.isnan(starts)], stops[np.isnan(stops)] = -np.inf, np.inf  # where none is given
        starts[[not state.visible for state in states]] = np.inf
        return starts, stops
