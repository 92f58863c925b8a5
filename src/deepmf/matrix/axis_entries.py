"""Entries grouped by row or by column, and the searches that gather them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.feature_encoding import FeatureVectors

NOTHING: IndexArray = np.empty(0, dtype=np.int64)  # positions of no entry

NOTHING.flags.writeable = False


class AxisEntries(NamedTuple):
    """Entries grouped by some rows (or columns): those of the k-th are `starts[k]:starts[k + 1]`."""

    starts: IndexArray  # (rows + 1,)
    others: IndexArray  # (entries,) positions on the other axis
    values: FloatArray  # (entries,)
    features: FeatureVectors | None = None  # of each row (or column), where the model knows of features

    @property
    def are_empty(self) -> npt.NDArray[np.bool_]:
        """Which groups have neither entries nor features."""
        empty: npt.NDArray[np.bool_] = np.diff(self.starts) == 0
        return empty if self.features is None else empty & ~self.features.are_known

    def take(self, groups: IndexArray) -> AxisEntries:
        """Return the entries of some groups."""
        taken = group(groups.size, gather(groups, self.starts, self.others, self.values))
        return taken if self.features is None else taken._replace(features=self.features.take(groups))

    def below(self, position: int) -> AxisEntries:
        """Return the entries whose position on the other axis is below a number."""
        kept = self.others < position
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return AxisEntries(starts, self.others[kept], self.values[kept], self.features)

    def without_each(self, left_out: IndexArray) -> AxisEntries:
        """Return a group for each of some entries of a single group: all the others."""
        kept = np.arange(self.values.size)[None] != left_out[:, None]
        starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
        places = np.nonzero(kept)[1]
        features = None if self.features is None else self.features.take(np.zeros(left_out.size, dtype=np.int64))
        return AxisEntries(starts, self.others[places], self.values[places], features)

    def with_features_of(self, features: FeatureVectors) -> AxisEntries:
        """Return a group for each of some features: the entries of a single group, described by these."""
        repeated = self.take(np.zeros(len(features), dtype=np.int64))
        return repeated._replace(features=features)


class PlacedEntries(NamedTuple):
    """Entries by the places of their rows and columns."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray


def find_spans(positions: IndexArray, starts: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the places of all entries of some rows (or columns), and of which of them each is."""
    first = starts[positions].astype(np.int64)
    counts = starts[positions + 1] - first
    ends = np.cumsum(counts)
    places = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if ends.size else 0)
    return places, np.repeat(np.arange(positions.size), counts)


def locate(keys: IndexArray, wanted: IndexArray) -> tuple[IndexArray, npt.NDArray[np.bool_]]:
    """Return where wanted keys stand among rising ones, and which of them are there."""
    if keys.size == 0:
        return np.zeros(wanted.size, dtype=np.int64), np.zeros(wanted.size, dtype=bool)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    found: npt.NDArray[np.bool_] = keys[at] == wanted
    return at, found


def are_among(places: IndexArray, some: IndexArray) -> npt.NDArray[np.bool_]:
    """Say which places are among some that rise, at a cost of those asked for."""
    return locate(some, places)[1]


def gather(
    positions: IndexArray,
    starts: IndexArray,
    others: IndexArray,
    values: npt.NDArray[Any],
    *,
    order: IndexArray | None = None,
    dropped: IndexArray = NOTHING,
) -> PlacedEntries:
    """Collect the entries of some rows (or columns) as (which of them, other axis, value)."""
    inside = np.flatnonzero(positions < starts.size - 1)
    places, which = find_spans(positions[inside], starts)
    which = inside[which]
    entries = places if order is None else order[places]
    if dropped.size:
        kept = ~are_among(entries, dropped)
        places, which, entries = places[kept], which[kept], entries[kept]
    return PlacedEntries(which, others[places], values[entries].astype(np.float64))


def look_up(positions: IndexArray, entries: PlacedEntries, *, below: int | None) -> PlacedEntries:
    """Collect the entries of some positions, from entries in the order of theirs, as (which, other axis, value)."""
    first, last = (np.searchsorted(entries.rows, positions, side=side) for side in ("left", "right"))
    ends = np.cumsum(last - first)
    places = np.repeat(first - (ends - (last - first)), last - first) + np.arange(ends[-1] if ends.size else 0)
    which = np.repeat(np.arange(positions.size), last - first)
    if below is not None:
        kept = entries.columns[places] < below
        places, which = places[kept], which[kept]
    return PlacedEntries(which, entries.columns[places], entries.values[places])


def group(count: int, *parts: PlacedEntries) -> AxisEntries:
    which = np.concatenate([part.rows for part in parts])
    order = np.argsort(which, kind="stable") if len(parts) > 1 else slice(None)
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(which, minlength=count), out=starts[1:])
    return AxisEntries(
        starts,
        np.concatenate([part.columns for part in parts])[order],
        np.concatenate([part.values for part in parts])[order],
    )
