"""The columns that a ranking may contain: chosen by label, features or number of entries, without those of the row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting, Hint, check_count
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.recommend.relevance import Observed
from deepmf.recommend.request import DEFAULT_REQUEST, Request

# Above this share of all columns, all columns are scored and the others left out: scoring a column in its place costs
# much less than gathering its latents.
_LARGE_SHARE = 0.25


def choose_columns(entries: EntryStore, request: Request = DEFAULT_REQUEST) -> ColumnChoice:
    """Return the columns that a request allows."""
    among, exclude, min_entries = request.among, request.exclude, request.min_entries
    include_observed = bool(request.include_observed)
    labels = entries.columns
    excluded = NOTHING if exclude is None else np.sort(_find_positions(labels, exclude, "exclude"))
    if request.where:
        barred = ~_match_features(entries, request.where)
        barred[excluded] = True
        excluded = np.flatnonzero(barred)
    if among is None:
        if min_entries:
            barred = entries.column_counts < min_entries
            barred[excluded] = True
            excluded = np.flatnonzero(barred)
        return _choose_all_but(len(labels), excluded, include_observed)
    chosen = _find_positions(labels, among, "among")
    chosen = chosen[~np.isin(chosen, excluded)] if excluded.size else chosen
    chosen = chosen[entries.column_counts[chosen] >= min_entries] if min_entries else chosen
    if chosen.size > _LARGE_SHARE * len(labels) and np.all(chosen[1:] > chosen[:-1]):
        return _choose_all_but(len(labels), np.delete(np.arange(len(labels)), chosen), include_observed)
    return ColumnChoice(len(labels), chosen, include_observed=include_observed)


def find_rare_columns(entries: EntryStore, min_entries: int | None) -> IndexArray:
    """Return the columns with too few entries to be compared; None: fewer than five, or than half the median."""
    if min_entries is not None:
        check_count("min_entries", min_entries, least=0)
    counts = entries.column_counts
    return np.flatnonzero(counts < (min(5, np.median(counts) / 2) if min_entries is None else min_entries))


@dataclass(frozen=True)
class ColumnChoice:
    """The columns to rank: all of them, or some in a given order, without the barred ones.

    The place of a column is its position, or its index in `among`.
    """

    n_columns: int
    among: IndexArray | None = None  # distinct positions; None: all
    barred: IndexArray = field(default_factory=lambda: NOTHING)  # increasing places
    include_observed: bool = False  # whether columns for which a row has an entry are ranked, too

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
        every = np.arange(self.n_columns) if self.among is None else self.among
        return np.delete(every, self.barred)

    def columns(self, places: IndexArray) -> IndexArray:
        """Return the positions of the columns at some places."""
        return places if self.among is None else self.among[places]

    def block(self, start: int, stop: int) -> slice | IndexArray:
        """Return the positions of the columns from one place to another."""
        return slice(start, stop) if self.among is None else self.among[start:stop]

    def omit(self, rows: IndexArray, observed: Observed) -> Omitted:
        """Return the columns to leave out for some rows: the barred ones, and those that each row has observed."""
        if self.include_observed:
            return Omitted(NOTHING, NOTHING, self.barred)
        entries = observed(rows)
        lines, places = np.repeat(np.arange(rows.size), np.diff(entries.starts)), self._find_places(entries.others)
        if self.among is not None:
            inside = np.flatnonzero(places >= 0)
            lines, places = lines[inside], places[inside]
        return Omitted(lines, places, self.barred)

    def _find_places(self, columns: IndexArray) -> IndexArray:
        """Return the places of some columns, -1 for those that have none."""
        if self.among is None:
            return columns
        if self.among.size == 0:
            return np.full(columns.size, -1)
        order, rising = self._order
        near = np.minimum(np.searchsorted(rising, columns), rising.size - 1)
        return np.where(rising[near] == columns, order[near], -1)

    @cached_property
    def _order(self) -> tuple[IndexArray, IndexArray]:
        assert self.among is not None
        order = np.argsort(self.among)
        return order, self.among[order]


class Omitted(NamedTuple):
    """Columns left out of the rankings of some rows: pairs of a line and a place, and places in all lines."""

    lines: IndexArray
    places: IndexArray
    everywhere: IndexArray  # increasing

    def sort(self) -> Omitted:
        """Return the same with increasing places."""
        order = np.argsort(self.places, kind="stable")
        return self._replace(lines=self.lines[order], places=self.places[order])

    def mark(self, keys: npt.NDArray[Any], start: int) -> None:
        """Give the omitted columns of a block of keys (rows, places) the key -inf; its first place is `start`.

        Places must increase.
        """
        ends = [start, start + keys.shape[1]]
        one_by_one, in_all = (slice(*np.searchsorted(places, ends)) for places in (self.places, self.everywhere))
        keys[self.lines[one_by_one], self.places[one_by_one] - start] = -np.inf
        keys[:, self.everywhere[in_all] - start] = -np.inf


def _match_features(entries: EntryStore, where: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Return which columns have features that meet the conditions."""
    if entries.column_features is None:
        raise BadSetting(
            f"the model was fitted without column features, and cannot filter by {', '.join(where)}",
            hint=Hint("among= filters by ids", "--among FILE filters by ids")
            if not entries.train.has_values
            else Hint("fit it with column_features", "fit it with --column-features"),
        )
    return entries.column_features.match(where, len(entries.columns))


def _choose_all_but(n_columns: int, barred: IndexArray, include_observed: bool) -> ColumnChoice:
    if n_columns - barred.size > _LARGE_SHARE * n_columns:
        return ColumnChoice(n_columns, barred=barred, include_observed=include_observed)
    return ColumnChoice(n_columns, np.delete(np.arange(n_columns), barred), include_observed=include_observed)


def _find_positions(labels: Labels, given: Iterable[Any], name: str) -> IndexArray:
    """Return the positions of labels, or those that a mask over all columns marks."""
    is_mask = isinstance(given, np.ndarray) and given.dtype == bool
    if not is_mask or isinstance(labels[:1].tolist()[0], bool):  # labels may be booleans themselves
        return labels.find_distinct(given)
    mask = np.asarray(given)
    if mask.shape != (len(labels),):
        raise BadSetting(f"{name} is a mask of shape {mask.shape}; one over all columns has the shape ({len(labels)},)")
    return np.flatnonzero(mask)
