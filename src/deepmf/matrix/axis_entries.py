"""Entries grouped by row or by column, and the searches that gather them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray
from deepmf.matrix.extras import PLAIN_EXTRAS, Extras
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.features import AxisFeatures

NOTHING: IndexArray = np.empty(0, dtype=np.int64)  # no positions
NOTHING.flags.writeable = False

Axis = Literal["row", "column"]
OTHER_AXIS: dict[Axis, Axis] = {"row": "column", "column": "row"}


class AxisEntries(NamedTuple):
    """Entries grouped by row (or column): those of group k are `starts[k]:starts[k + 1]`."""

    starts: IndexArray  # (rows + 1,)
    others: IndexArray  # (entries,) positions on the other axis
    values: FloatArray  # (entries,)
    features: FeatureVectors | None = None  # of each row (or column), if the model uses features
    extras: Extras = PLAIN_EXTRAS  # of each entry

    @property
    def totals(self) -> Array:
        """The total weight of each group: its number of entries where no entry has a weight."""
        return np.bincount(self.group_of, self.extras.weights, minlength=self.starts.size - 1)

    @property
    def weights(self) -> FloatArray:
        """The weight of each entry, (entries,): 1 where entries have none."""
        return self.extras.fill_weights(self.values.size).astype(np.float64)

    @property
    def group_of(self) -> IndexArray:
        """The group of each entry, (entries,)."""
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))

    @property
    def are_empty(self) -> BoolArray:
        """Whether each group has neither entries nor features."""
        empty: BoolArray = np.diff(self.starts) == 0
        return empty if self.features is None else empty & ~self.features.are_known

    def groups(self) -> Iterator[tuple[IndexArray, FloatArray]]:
        """Yield the positions on the other axis, and the values, of each row (or column)."""
        for start, stop in pairwise(self.starts):
            yield self.others[start:stop], self.values[start:stop]

    def take(self, groups: IndexArray) -> AxisEntries:
        """Return the entries of some groups."""
        if groups.size == self.starts.size - 1 and np.array_equal(groups, np.arange(groups.size)):
            return self
        part = gather(groups, self.starts, self.others, self.values, extras=self.extras)
        return group(groups.size, part)._replace(features=take_features(self.features, groups))

    def move_first(self, some: BoolArray) -> AxisEntries:
        """Return the entries, some of which are counted once less and come before all others."""
        times, places = (
            None if keys is None else np.where(some, keys.min(), keys) for keys in self.extras[::2]
        )
        places = None if places is None else places - some
        return self._replace(
            values=self.values - some, extras=self.extras._replace(times=times, places=places)
        )

    def below(self, position: int) -> AxisEntries:
        """Return the entries whose position on the other axis is below a limit."""
        return self.select(self.others < position)

    def select(self, kept: BoolArray) -> AxisEntries:
        """Return some of the entries."""
        if kept.all():
            return self
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return AxisEntries(
            starts, self.others[kept], self.values[kept], self.features, self.extras.take(kept)
        )

    def draw(self, most: Array, numbers: np.random.Generator) -> AxisEntries:
        """Return some random entries of each group, at most (groups,)."""
        group_of = self.group_of
        # numbers below 1 sort within groups; one key takes a quarter of the time of two
        order = np.argsort(group_of + numbers.random(group_of.size))
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size) - self.starts[group_of]
        return self.select(rank < most[group_of])

    def renumber_others(self) -> tuple[IndexArray, AxisEntries]:
        """Return the positions on the other axis that occur, increasing, and the entries by places
        among these."""
        used, places = np.unique(self.others, return_inverse=True)
        return used, self._replace(others=places)

    def without_each(self, left_out: IndexArray) -> AxisEntries:
        """Return a group for each of some entries of a single group, without that entry."""
        is_other = np.arange(self.values.size)[None] != left_out[:, None]
        starts = np.concatenate([[0], np.cumsum(is_other.sum(axis=1))]).astype(np.int64)
        places = np.nonzero(is_other)[1]
        features = take_features(self.features, np.zeros(left_out.size, dtype=np.int64))
        return AxisEntries(
            starts, self.others[places], self.values[places], features, self.extras.take(places)
        )


def take_features(
    features: FeatureVectors | AxisFeatures | None, positions: IndexArray
) -> FeatureVectors | None:
    """Return the features at some positions, None where there are no features."""
    return None if features is None else features.take(positions)


class PlacedEntries(NamedTuple):
    """Entries by the positions of their rows and columns."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    extras: Extras = PLAIN_EXTRAS

    @classmethod
    def join(cls, *parts: PlacedEntries) -> PlacedEntries:
        """Return the entries of several parts, one after another."""
        rows, columns, values = (
            np.concatenate(fields) for fields in zip(*(part[:3] for part in parts), strict=True)
        )
        return cls(
            rows, columns, values, Extras.join([(part.rows.size, part.extras) for part in parts])
        )

    def take(self, which: Any) -> PlacedEntries:
        """Return some of the entries, by places or a mask."""
        return PlacedEntries(
            self.rows[which], self.columns[which], self.values[which], self.extras.take(which)
        )

    def insert(self, others: PlacedEntries) -> PlacedEntries:
        """Return these entries, which are in row order, and others, which alone are sorted."""
        later = others.take(np.lexsort((others.columns, others.rows)))
        width = 1 + max(int(part.columns.max(initial=0)) for part in (self, later))
        at = np.searchsorted(self.rows * width + self.columns, later.rows * width + later.columns)
        order = np.insert(
            np.arange(self.rows.size), at, self.rows.size + np.arange(later.rows.size)
        )
        return PlacedEntries.join(self, later).take(order)

    def of_rows(self, positions: IndexArray, *, below: float = np.inf) -> PlacedEntries:
        """Return the entries of some rows as `gather` does, those with a column below a limit."""
        first, last = (
            np.searchsorted(self.rows, positions, side=side) for side in ("left", "right")
        )
        places, which = _list_spans(first, last - first)
        is_below = self.columns[places] < below
        return self.take(places[is_below])._replace(rows=which[is_below])

    def of_columns(self, positions: IndexArray, *, below: float = np.inf) -> PlacedEntries:
        """Return the entries of some columns, by the other axis, those with a row below a limit."""
        places = np.flatnonzero(np.isin(self.columns, positions))
        places = places[np.argsort(self.columns[places], kind="stable")]
        turned = PlacedEntries(self.columns, self.rows, self.values, self.extras)
        return turned.take(places).of_rows(positions, below=below)


NO_ENTRIES = PlacedEntries(NOTHING, NOTHING, np.empty(0))


def find_spans(positions: IndexArray, starts: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the places of all entries of some rows (or columns), and the index into `positions` of
    each."""
    first = starts[positions].astype(np.int64)
    return _list_spans(first, starts[positions + 1] - first)


def _list_spans(first: IndexArray, counts: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return all places of some spans, and the number of the span of each."""
    which = np.repeat(np.arange(counts.size), counts)
    return (first - (np.cumsum(counts) - counts))[which] + np.arange(which.size), which


def locate(keys: IndexArray, wanted: IndexArray) -> tuple[IndexArray, BoolArray]:
    """Return the places of wanted keys among increasing keys, and whether each key is there."""
    if keys.size == 0:
        return np.zeros(wanted.size, dtype=np.int64), np.zeros(wanted.size, dtype=bool)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    is_there: BoolArray = keys[at] == wanted
    return at, is_there


def are_among(places: IndexArray, some: IndexArray) -> BoolArray:
    """Return whether each place is among some increasing places."""
    return locate(some, places)[1]


def gather(
    positions: IndexArray,
    starts: IndexArray,
    others: IndexArray,
    values: Array,
    *,
    order: IndexArray | None = None,
    dropped: IndexArray = NOTHING,
    extras: Extras = PLAIN_EXTRAS,
) -> PlacedEntries:
    """Collect the entries of some rows (or columns) as (index into `positions`, other axis, value).

    order: place of each entry in `values` and `extras`, if they are in another order. dropped:
        increasing places to leave out.
    """
    inside = np.flatnonzero(positions < starts.size - 1)
    places, which = find_spans(positions[inside], starts)
    which = inside[which]
    entries = places if order is None else order[places]
    if dropped.size:
        is_present = ~are_among(entries, dropped)
        places = places[is_present]
        which = which[is_present]
        entries = entries[is_present]
    return PlacedEntries(
        which, others[places], values[entries].astype(np.float64), extras.take(entries)
    )


def group(count: int, *parts: PlacedEntries) -> AxisEntries:
    """Group entries by their row, which is an index below `count`."""
    together = PlacedEntries.join(NO_ENTRIES, *parts)
    if len(parts) > 1:
        together = together.take(np.argsort(together.rows, kind="stable"))
    starts = np.append(0, np.cumsum(np.bincount(together.rows, minlength=count)))
    return AxisEntries(starts, together.columns, together.values, extras=together.extras)
