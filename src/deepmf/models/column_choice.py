"""The choice of columns for a ranking: all or some of them, without others, and what each row leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.labels import Labels

Observed = Callable[[IndexArray], AxisEntries]  # from positions of rows to the entries of these

# Where more than this share of all columns is chosen, all are scored, and the others left out: scoring a column in its
# place costs much less than gathering its latents.
_LARGE_SHARE = 0.25


@dataclass(frozen=True)
class ColumnChoice:
    """The columns to choose from: all, or those at some positions in their order, without those barred.

    A column's place is its position, or where it stands in `among`.
    """

    n_columns: int
    among: IndexArray | None = None  # distinct positions; None: all
    barred: IndexArray = field(default_factory=lambda: NOTHING)  # rising places

    @property
    def n_places(self) -> int:
        """How many columns are scored."""
        return self.n_columns if self.among is None else int(self.among.size)

    @property
    def size(self) -> int:
        """How many columns there are to choose from."""
        return self.n_places - int(self.barred.size)

    @property
    def positions(self) -> IndexArray:
        """The positions of the columns to choose from."""
        every = np.arange(self.n_columns) if self.among is None else self.among
        return np.delete(every, self.barred)

    def columns(self, places: IndexArray) -> IndexArray:
        """Return the positions of the columns at some places."""
        return places if self.among is None else self.among[places]

    def block(self, start: int, stop: int) -> slice | IndexArray:
        """Return the positions of the columns from one place to another."""
        return slice(start, stop) if self.among is None else self.among[start:stop]

    def left_out(self, rows: IndexArray, observed: Observed | None) -> Omitted:
        """Return what is to be left out of the rankings of some rows: what is barred, and what each has observed."""
        if observed is None:
            return Omitted(NOTHING, NOTHING, self.barred)
        entries = observed(rows)
        lines, places = np.repeat(np.arange(rows.size), np.diff(entries.starts)), self._places_of(entries.others)
        inside = np.flatnonzero(places >= 0)
        order = inside[np.argsort(places[inside], kind="stable")]
        return Omitted(lines[order], places[order], self.barred)

    def _places_of(self, columns: IndexArray) -> IndexArray:
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
        """The places in the order of their columns, and these columns."""
        assert self.among is not None
        order = np.argsort(self.among)
        return order, self.among[order]


class Omitted(NamedTuple):
    """What is left out of the rankings of some rows: lines and places one by one, and places in all lines."""

    lines: IndexArray
    places: IndexArray  # rising
    everywhere: IndexArray  # rising

    def mark(self, keys: npt.NDArray[Any], start: int) -> None:
        """Put what is left out at the end of a block of keys (rows, places), whose first place is `start`."""
        ends = [start, start + keys.shape[1]]
        one_by_one, in_all = (slice(*np.searchsorted(places, ends)) for places in (self.places, self.everywhere))
        keys[self.lines[one_by_one], self.places[one_by_one] - start] = -np.inf
        keys[:, self.everywhere[in_all] - start] = -np.inf


def check_min_entries(min_entries: Any) -> None:
    """Refuse what is no number of entries."""
    if isinstance(min_entries, bool) or not isinstance(min_entries, int | np.integer) or min_entries < 0:
        raise BadSetting(f"min_entries must be a whole number of at least 0; got {min_entries!r}")


def choice_of(
    entries: EntryStore, among: Iterable[Any] | None, exclude: Iterable[Any] | None, min_entries: int
) -> ColumnChoice:
    """Return the columns to choose from: all or some, without others and those of few entries.

    `among` and `exclude` are labels, or a mask over all columns.
    """
    check_min_entries(min_entries)
    labels = entries.columns
    excluded = NOTHING if exclude is None else np.sort(_positions(labels, exclude, "exclude"))
    if among is None:
        if min_entries:
            barred = entries.column_counts < min_entries
            barred[excluded] = True
            excluded = np.flatnonzero(barred)
        return _without(len(labels), excluded)
    chosen = _positions(labels, among, "among")
    chosen = chosen[~np.isin(chosen, excluded)] if excluded.size else chosen
    chosen = chosen[entries.column_counts[chosen] >= min_entries] if min_entries else chosen
    if chosen.size > _LARGE_SHARE * len(labels) and np.all(chosen[1:] > chosen[:-1]):
        return _without(len(labels), np.delete(np.arange(len(labels)), chosen))
    return ColumnChoice(len(labels), chosen)


def _without(n_columns: int, barred: IndexArray) -> ColumnChoice:
    """Return all columns but some, as few as they may be."""
    if n_columns - barred.size > _LARGE_SHARE * n_columns:
        return ColumnChoice(n_columns, barred=barred)
    return ColumnChoice(n_columns, np.delete(np.arange(n_columns), barred))


def _positions(labels: Labels, given: Iterable[Any], name: str) -> IndexArray:
    is_mask = isinstance(given, np.ndarray) and given.dtype == bool
    if not is_mask or isinstance(labels[:1].tolist()[0], bool):  # labels may be booleans themselves
        return labels.distinct_positions(given)
    mask = np.asarray(given)
    if mask.shape != (len(labels),):
        raise BadSetting(f"{name} is a mask of shape {mask.shape}; one over all columns has the shape ({len(labels)},)")
    return np.flatnonzero(mask)
