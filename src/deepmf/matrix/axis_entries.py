"""Entries grouped by row or by column, and the searches that gather them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.extras import PLAIN_EXTRAS, Extras
from deepmf.matrix.feature_encoding import FeatureVectors

NOTHING: IndexArray = np.empty(0, dtype=np.int64)  # no positions
NOTHING.flags.writeable = False


class AxisEntries(NamedTuple):
    """Entries grouped by row (or column): those of group k are `starts[k]:starts[k + 1]`."""

    starts: IndexArray  # (rows + 1,)
    others: IndexArray  # (entries,) positions on the other axis
    values: FloatArray  # (entries,)
    features: FeatureVectors | None = None  # of each row (or column), if the model uses features
    extras: Extras = PLAIN_EXTRAS  # of each entry

    @property
    def totals(self) -> npt.NDArray[Any]:
        """The total weight of each group: its number of entries where no entry has a weight."""
        counts = np.diff(self.starts)
        if self.extras.weights is None:
            return counts
        which = np.repeat(np.arange(counts.size), counts)
        return np.bincount(which, weights=self.extras.weights, minlength=counts.size)

    @property
    def are_empty(self) -> npt.NDArray[np.bool_]:
        """Whether each group has neither entries nor features."""
        empty: npt.NDArray[np.bool_] = np.diff(self.starts) == 0
        return empty if self.features is None else empty & ~self.features.are_known

    def groups(self) -> Iterator[tuple[IndexArray, FloatArray]]:
        """Yield the positions on the other axis, and the values, of each row (or column)."""
        for start, stop in pairwise(self.starts):
            yield self.others[start:stop], self.values[start:stop]

    def take(self, groups: IndexArray) -> AxisEntries:
        """Return the entries of some groups."""
        if groups.size == self.starts.size - 1 and np.array_equal(groups, np.arange(groups.size)):
            return self
        taken = group(groups.size, gather(groups, self.starts, self.others, self.values, extras=self.extras))
        return taken if self.features is None else taken._replace(features=self.features.take(groups))

    def move_first(self, some: npt.NDArray[np.bool_]) -> AxisEntries:
        """Return the entries, some of which are counted once less and come before all others."""
        times, places = (None if each is None else np.where(some, each.min(), each) for each in self.extras[::2])
        places = None if places is None else places - some
        return self._replace(values=self.values - some, extras=self.extras._replace(times=times, places=places))

    def below(self, position: int) -> AxisEntries:
        """Return the entries whose position on the other axis is below a limit."""
        return self.select(self.others < position)

    def select(self, kept: npt.NDArray[np.bool_]) -> AxisEntries:
        """Return some of the entries."""
        if kept.all():
            return self
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return AxisEntries(starts, self.others[kept], self.values[kept], self.features, self.extras.take(kept))

    def renumber_others(self) -> tuple[IndexArray, AxisEntries]:
        """Return the positions on the other axis that occur, increasing, and the entries by places among these."""
        used, places = np.unique(self.others, return_inverse=True)
        return used, self._replace(others=places)

    def without_each(self, left_out: IndexArray) -> AxisEntries:
        """Return a group for each of some entries of a single group, without that entry."""
        kept = np.arange(self.values.size)[None] != left_out[:, None]
        starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
        places = np.nonzero(kept)[1]
        features = None if self.features is None else self.features.take(np.zeros(left_out.size, dtype=np.int64))
        return AxisEntries(starts, self.others[places], self.values[places], features, self.extras.take(places))

    def with_features_of(self, features: FeatureVectors) -> AxisEntries:
        """Return the entries of a single group once for each feature vector."""
        repeated = self.take(np.zeros(len(features), dtype=np.int64))
        return repeated._replace(features=features)


class PlacedEntries(NamedTuple):
    """Entries by the positions of their rows and columns."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    extras: Extras = PLAIN_EXTRAS


def find_spans(positions: IndexArray, starts: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the places of all entries of some rows (or columns), and the index into `positions` of each."""
    first = starts[positions].astype(np.int64)
    counts = starts[positions + 1] - first
    ends = np.cumsum(counts)
    places = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if ends.size else 0)
    return places, np.repeat(np.arange(positions.size), counts)


def locate(keys: IndexArray, wanted: IndexArray) -> tuple[IndexArray, npt.NDArray[np.bool_]]:
    """Return the places of wanted keys among increasing keys, and whether each key is there."""
    if keys.size == 0:
        return np.zeros(wanted.size, dtype=np.int64), np.zeros(wanted.size, dtype=bool)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    found: npt.NDArray[np.bool_] = keys[at] == wanted
    return at, found


def are_among(places: IndexArray, some: IndexArray) -> npt.NDArray[np.bool_]:
    """Return whether each place is among some increasing places."""
    return locate(some, places)[1]


def gather(
    positions: IndexArray,
    starts: IndexArray,
    others: IndexArray,
    values: npt.NDArray[Any],
    *,
    order: IndexArray | None = None,
    dropped: IndexArray = NOTHING,
    extras: Extras = PLAIN_EXTRAS,
) -> PlacedEntries:
    """Collect the entries of some rows (or columns) as (index into `positions`, other axis, value).

    order: place of each entry in `values` and `extras`, if they are in another order. dropped: increasing places to
        leave out.
    """
    inside = np.flatnonzero(positions < starts.size - 1)
    places, which = find_spans(positions[inside], starts)
    which = inside[which]
    entries = places if order is None else order[places]
    if dropped.size:
        kept = ~are_among(entries, dropped)
        places, which, entries = places[kept], which[kept], entries[kept]
    return PlacedEntries(which, others[places], values[entries].astype(np.float64), extras.take(entries))


def look_up(positions: IndexArray, entries: PlacedEntries, *, below: int | None) -> PlacedEntries:
    """Collect entries as `gather` does, from entries that are sorted by row."""
    first, last = (np.searchsorted(entries.rows, positions, side=side) for side in ("left", "right"))
    ends = np.cumsum(last - first)
    places = np.repeat(first - (ends - (last - first)), last - first) + np.arange(ends[-1] if ends.size else 0)
    which = np.repeat(np.arange(positions.size), last - first)
    if below is not None:
        kept = entries.columns[places] < below
        places, which = places[kept], which[kept]
    return PlacedEntries(which, entries.columns[places], entries.values[places], entries.extras.take(places))


def group(count: int, *parts: PlacedEntries) -> AxisEntries:
    """Group entries by their row, which is an index below `count`."""
    which = np.concatenate([part.rows for part in parts])
    order = np.argsort(which, kind="stable") if len(parts) > 1 else slice(None)
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(which, minlength=count), out=starts[1:])
    return AxisEntries(
        starts,
        np.concatenate([part.columns for part in parts])[order],
        np.concatenate([part.values for part in parts])[order],
        extras=Extras.join([(part.rows.size, part.extras) for part in parts]).take(order),
    )
