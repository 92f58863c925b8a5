"""The entries a model knows: those it was trained on, and those added since."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadModelFile, OffScale
from deepmf.matrix.areas import AREAS, area_codes
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale


class AxisEntries(NamedTuple):
    """Entries grouped by some rows (or columns): those of the k-th are `starts[k]:starts[k + 1]`."""

    starts: IndexArray  # (rows + 1,)
    others: IndexArray  # (entries,) positions on the other axis
    values: FloatArray  # (entries,)

    def take(self, groups: IndexArray) -> AxisEntries:
        """Return the entries of some groups."""
        return _grouped(groups.size, _gathered(groups, self.starts, self.others, self.values))

    def below(self, position: int) -> AxisEntries:
        """Return the entries whose position on the other axis is below a number."""
        kept = self.others < position
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return AxisEntries(starts, self.others[kept], self.values[kept])


class AddedEntries:
    """Entries that came after training, in row order; rows and columns that have none cost nothing.

    rows, columns: positions, (entries,).
    """

    def __init__(self, rows: IndexArray, columns: IndexArray, values: FloatArray) -> None:
        order = np.lexsort((columns, rows))
        self.rows, self.columns, self.values = rows[order], columns[order], values[order]

    def followed_by(self, rows: IndexArray, columns: IndexArray, values: FloatArray) -> AddedEntries:
        """Return these entries and others."""
        return AddedEntries(
            np.concatenate([self.rows, rows]),
            np.concatenate([self.columns, columns]),
            np.concatenate([self.values, values]),
        )

    def of_rows(self, positions: IndexArray, *, below: int | None = None) -> _Entries:
        """Return the entries of some rows, those alone whose column is below a number."""
        return _looked_up(positions, *self._by_row, below=below)

    def of_columns(self, positions: IndexArray, *, below: int) -> _Entries:
        """Return the entries of some columns whose row is below a number."""
        return _looked_up(positions, *self._by_column, below=below)

    @cached_property
    def _by_row(self) -> tuple[IndexArray, AxisEntries]:
        return _by_first(self.rows, self.columns, self.values)

    @cached_property
    def _by_column(self) -> tuple[IndexArray, AxisEntries]:
        order = np.argsort(self.columns, kind="stable")
        return _by_first(self.columns[order], self.rows[order], self.values[order])


@dataclass(frozen=True)
class EntryStore:
    """The entries a model knows: the training matrix, and what was added since.

    On both axes trained rows and columns come first. A row is described by its entries over the trained columns, a
    column by its entries over the trained rows: entries of area IV are remembered (they need no recommending) but
    describe nothing. A store is a value; adding to it costs what is added, and what was added before.
    """

    train: ObservedMatrix
    rows: Labels
    columns: Labels
    added: AddedEntries | None = None

    @classmethod
    def of(cls, train: ObservedMatrix) -> EntryStore:
        """Return what a model has seen right after training."""
        return cls(train, train.rows, train.columns)

    @classmethod
    def stored(cls, train: ObservedMatrix, extension: ObservedMatrix | None) -> EntryStore:
        """Return what a stored model has seen; matrices that do not belong together raise `BadModelFile`."""
        if train.n_entries == 0:
            raise BadModelFile("the stored training matrix has no entries")
        if extension is None:
            return cls.of(train)
        for known, labels in ((train.rows, extension.rows), (train.columns, extension.columns)):
            if len(labels) < len(known) or labels.take(np.arange(len(known))) != known:
                raise BadModelFile(f"the {known.axis}s of the stored extension do not begin with the trained ones")
        if extension.scale != train.scale:
            raise BadModelFile(
                f"the stored extension has the scale {extension.scale}; that of training is {train.scale}"
            )
        trained, later = (
            matrix.entry_rows.astype(np.int64) * len(extension.columns) + matrix.by_row.columns
            for matrix in (train, extension)
        )
        if np.isin(later, trained, assume_unique=True).any():
            raise BadModelFile("the stored extension has entries that the training matrix has too")
        added = AddedEntries(
            extension.entry_rows.astype(np.int64),
            extension.by_row.columns.astype(np.int64),
            extension.values.astype(np.float64),
        )
        return cls(train, extension.rows, extension.columns, added)

    @property
    def scale(self) -> Scale:
        """The scale of all entries."""
        return self.train.scale

    @cached_property
    def extension(self) -> ObservedMatrix | None:
        """What was added since training, as a matrix with all rows and columns; None where nothing was."""
        if self.added is None:
            return None
        rows, columns = Labelled(self.rows, self.added.rows), Labelled(self.columns, self.added.columns)
        return ObservedMatrix.from_positions(rows, columns, self.added.values, scale=self.scale)

    def extended(self, new: ObservedMatrix) -> Extended:
        """Return a store with new entries too, and which rows and columns are to be encoded anew."""
        _check_scale(self.scale, new)
        rows, columns = self.rows.join(new.rows), self.columns.join(new.columns)
        row_of = rows.positions(new.row_labels)[new.entry_rows]
        column_of = columns.positions(new.column_labels)[new.by_row.columns]
        fresh = ~self._already_seen(row_of, column_of, new)
        if rows is self.rows and columns is self.columns and not np.any(fresh):
            raise BadEntries("nothing new to extend by: all rows, columns and entries are known already")
        found = row_of[fresh], column_of[fresh], new.values[fresh].astype(np.float64)
        added = AddedEntries(*found) if self.added is None else self.added.followed_by(*found)
        n_rows, n_columns = self.train.shape
        usable_rows = row_of[fresh & (column_of < n_columns)]
        usable_columns = column_of[fresh & (row_of < n_rows)]
        return Extended(
            EntryStore(self.train, rows, columns, added),
            np.union1d(usable_rows, np.arange(len(self.rows), len(rows))),
            np.union1d(usable_columns, np.arange(len(self.columns), len(columns))),
        )

    def row_entries(self, positions: IndexArray) -> AxisEntries:
        """Return what describes some rows: their entries over the trained columns."""
        starts, columns = self.train.by_row
        known = _gathered(positions, starts, columns, self.train.values)
        if self.added is None:
            return _grouped(positions.size, known)
        return _grouped(positions.size, known, self.added.of_rows(positions, below=self.train.shape[1]))

    def column_entries(self, positions: IndexArray) -> AxisEntries:
        """Return what describes some columns: their entries over the trained rows."""
        starts, rows, entries = self.train.by_column
        known = _gathered(positions, starts, rows, self.train.values, order=entries)
        if self.added is None:
            return _grouped(positions.size, known)
        return _grouped(positions.size, known, self.added.of_columns(positions, below=self.train.shape[0]))

    def seen_columns(self, positions: IndexArray) -> AxisEntries:
        """Return all entries of some rows, those of area IV too."""
        starts, columns = self.train.by_row
        known = _gathered(positions, starts, columns, self.train.values)
        if self.added is None:
            return _grouped(positions.size, known)
        return _grouped(positions.size, known, self.added.of_rows(positions))

    def areas(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[np.str_]:
        """Return the area of each pair of positions."""
        codes = area_codes(rows >= self.train.shape[0], columns >= self.train.shape[1])
        return np.array(AREAS)[codes]

    def _already_seen(self, row_of: IndexArray, column_of: IndexArray, new: ObservedMatrix) -> npt.NDArray[np.bool_]:
        """Say which entries are known already with the same value; another value is an error."""
        touched = np.unique(row_of[(row_of < len(self.rows)) & (column_of < len(self.columns))])
        known = self.seen_columns(touched)
        keys = np.repeat(touched, np.diff(known.starts)).astype(np.int64) * len(self.columns) + known.others
        order = np.argsort(keys)
        keys = keys[order]
        wanted = np.where(column_of < len(self.columns), row_of.astype(np.int64) * len(self.columns) + column_of, -1)
        if keys.size == 0:
            return np.zeros(row_of.size, dtype=bool)
        places = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        found: npt.NDArray[np.bool_] = keys[places] == wanted
        old_values = known.values[order][places]
        contradicted = np.flatnonzero(found & (old_values != new.values))
        if contradicted.size:
            first = contradicted[0]
            rows, columns, values = new.entries()
            raise BadEntries(
                f"row {rows.tolist()[first]!r}, column {columns.tolist()[first]!r} is known with the value "
                f"{old_values[first]:g}; extending by another one, {values[first]:g}, contradicts it"
            )
        return found


class Extended(NamedTuple):
    """A store after an extension, and the positions whose entries changed."""

    entries: EntryStore
    rows: IndexArray
    columns: IndexArray


class _Entries(NamedTuple):
    rows: IndexArray
    columns: IndexArray
    values: FloatArray


def _check_scale(scale: Scale, new: ObservedMatrix) -> None:
    if not np.all(scale.holds(new.values)):
        raise OffScale(f"the new entries have the scale {new.scale}; the model's is {scale}")


def _gathered(
    positions: IndexArray,
    starts: IndexArray,
    others: IndexArray,
    values: npt.NDArray[Any],
    *,
    order: IndexArray | None = None,
    below: int | None = None,
) -> _Entries:
    """Collect the entries of some rows (or columns) as (which of them, other axis, value)."""
    inside = np.flatnonzero(positions < starts.size - 1)
    first = starts[positions[inside]].astype(np.int64)
    counts = starts[positions[inside] + 1] - first
    ends = np.cumsum(counts)
    places = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if ends.size else 0)
    which = np.repeat(inside, counts)
    if below is not None:
        kept = others[places] < below
        places, which = places[kept], which[kept]
    taken = values[places if order is None else order[places]].astype(np.float64)
    return _Entries(which, others[places], taken)


def _by_first(firsts: IndexArray, others: IndexArray, values: FloatArray) -> tuple[IndexArray, AxisEntries]:
    """Group entries that are in order of their first position: the positions that occur, and the entries of each."""
    occurring, starts = np.unique(firsts, return_index=True)
    return occurring, AxisEntries(np.append(starts, firsts.size), others, values)


def _looked_up(positions: IndexArray, occurring: IndexArray, entries: AxisEntries, *, below: int | None) -> _Entries:
    """Collect the entries of those positions that occur, as (which of them, other axis, value)."""
    places = np.minimum(np.searchsorted(occurring, positions), max(occurring.size - 1, 0))
    which = np.flatnonzero(occurring[places] == positions) if occurring.size else np.empty(0, dtype=np.int64)
    found = _gathered(places[which], *entries, below=below)
    return _Entries(which[found.rows], found.columns, found.values)


def _grouped(count: int, *parts: _Entries) -> AxisEntries:
    which = np.concatenate([part.rows for part in parts])
    order = np.argsort(which, kind="stable") if len(parts) > 1 else slice(None)
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(which, minlength=count), out=starts[1:])
    return AxisEntries(
        starts,
        np.concatenate([part.columns for part in parts])[order],
        np.concatenate([part.values for part in parts])[order],
    )
