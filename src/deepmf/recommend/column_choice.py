"""The columns that a ranking may contain: chosen by label, features or number of entries, without
those of the row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadSetting, Hint, check_count
from deepmf.matrix.arrays import Array, BoolArray, IndexArray
from deepmf.matrix.axis_entries import NOTHING, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.recommend.ranker import Observed
from deepmf.recommend.request import DEFAULT_REQUEST, Request

# Above this share of all columns, all columns are scored and the others left out: scoring a column
# in its place costs much less than gathering its latents.
_LARGE_SHARE = 0.25


def choose_columns(entries: EntryStore, request: Request = DEFAULT_REQUEST) -> ColumnChoice:
    """Return the columns that a request allows."""
    labels, include_observed = entries.columns, bool(request.include_observed)
    if (
        request.among is None
        and request.exclude is None
        and not request.where
        and not request.min_entries
    ):
        return ColumnChoice(len(labels), include_observed=include_observed)
    is_allowed = np.full(len(labels), request.among is None)
    if request.among is not None:
        is_allowed[_find_positions(labels, request.among, "among")] = True
    if request.exclude is not None:
        is_allowed[_find_positions(labels, request.exclude, "exclude")] = False
    if request.where:
        is_allowed &= _match_features(entries, request.where)
    if request.min_entries:
        is_allowed &= entries.column_counts >= request.min_entries
    return choose_marked(is_allowed, include_observed=include_observed)


def choose_marked(is_allowed: BoolArray, *, include_observed: bool) -> ColumnChoice:
    """Return the columns that are marked (columns,)."""
    positions = np.flatnonzero(is_allowed)
    if positions.size > _LARGE_SHARE * is_allowed.size:
        return ColumnChoice(is_allowed.size, None, np.flatnonzero(~is_allowed), include_observed)
    return ColumnChoice(is_allowed.size, positions, include_observed=include_observed)


def find_rare_columns(entries: EntryStore, min_entries: int | None) -> IndexArray:
    """Return the columns with too few entries to be compared; None: fewer than five, or than half
    the median."""
    if min_entries is not None:
        check_count("min_entries", min_entries, least=0)
    counts = entries.column_counts
    return np.flatnonzero(
        counts < (min(5, np.median(counts) / 2) if min_entries is None else min_entries)
    )


@dataclass(frozen=True)
class ColumnChoice:
    """The columns to rank: some, or all of them without the barred ones; the place of a column is
    its index in these.

    among, barred: increasing positions; among is None for all columns.
    include_observed: whether columns for which a row has an entry are ranked, too.
    """

    n_columns: int
    among: IndexArray | None = None
    barred: IndexArray = field(default_factory=lambda: NOTHING)
    include_observed: bool = False

    @property
    def n_places(self) -> int:
        """The number of columns that are scored."""
        return self.n_columns if self.among is None else int(self.among.size)

    @property
    def size(self) -> int:
        """The number of columns that can be ranked."""
        return self.n_places - int(self.barred.size)

    @property
    def positions(self) -> IndexArray:
        """The positions of the columns that can be ranked."""
        return np.delete(self.columns(np.arange(self.n_places)), self.barred)

    def columns(self, places: IndexArray) -> IndexArray:
        """Return the positions of the columns at some places."""
        return places if self.among is None else self.among[places]

    def block(self, start: int, stop: int) -> slice | IndexArray:
        """Return the positions of the columns from one place to another."""
        return slice(start, stop) if self.among is None else self.among[start:stop]

    def omit(self, rows: IndexArray, observed: Observed) -> Omitted:
        """Return the columns to leave out for some rows: the barred ones, and those that each row
        has observed."""
        if self.include_observed:
            return Omitted(NOTHING, NOTHING, self.barred)
        entries = observed(rows)
        lines, places = entries.group_of, entries.others
        if self.among is not None:
            places, inside = locate(self.among, places)
            lines, places = lines[inside], places[inside]
        return Omitted(lines, places, self.barred)


class Omitted(NamedTuple):
    """Columns left out of the rankings of some rows: pairs of a line and a place, and places in all
    lines."""

    lines: IndexArray
    places: IndexArray
    everywhere: IndexArray

    def mark(self, keys: Array, start: int) -> None:
        """Give the omitted columns of a block of keys (rows, places) the key -inf; its first place
        is `start`."""
        inside = (self.places >= start) & (self.places < start + keys.shape[1])
        keys[self.lines[inside], self.places[inside] - start] = -np.inf
        everywhere = self.everywhere[
            (self.everywhere >= start) & (self.everywhere < start + keys.shape[1])
        ]
        keys[:, everywhere - start] = -np.inf


def _match_features(entries: EntryStore, where: Mapping[str, Any]) -> BoolArray:
    """Return which columns have features that meet the conditions."""
    if entries.column_features is None:
        raise BadSetting(
            f"the model was fitted without column features, and cannot filter by {', '.join(where)}",
            hint=Hint("among= filters by ids", "--among FILE filters by ids")
            if not entries.train.has_values
            else Hint("fit it with column_features", "fit it with --column-features"),
        )
    return entries.column_features.match(where, len(entries.columns))


def _find_positions(labels: Labels, given: Iterable[Any], name: str) -> IndexArray:
    """Return the positions of labels, or those that a mask over all columns marks."""
    if not isinstance(given, np.ndarray) or given.dtype != bool:
        return labels.find_distinct(given)
    if given.shape != (len(labels),):
        raise BadSetting(
            f"{name} is a mask of shape {given.shape}; one over all columns has the shape ({len(labels)},)"
        )
    return np.flatnonzero(given)


class BestColumns(NamedTuple):
    """The n best columns of some rows (rows, n), best first: their keys and places, and parts of
    the keys, if known."""

    keys: Array
    places: IndexArray
    products: Array | None = None  # of latents
    scores: Array | None = None  # of presence

    def pick(self, picked: IndexArray) -> BestColumns:
        """Return some of the columns (rows, n) of each row."""
        fields = (
            None if field is None else np.take_along_axis(field, picked, axis=1) for field in self
        )
        return BestColumns(*fields)  # type: ignore[arg-type]

    def fill(self, missing: BoolArray) -> BestColumns:
        """Return the same with zeros where columns are missing."""
        fields = (
            None if field is None else np.where(missing, field.dtype.type(0), field)
            for field in self
        )
        return BestColumns(*fields)  # type: ignore[arg-type]
