"""The entries that a model knows: those of training, entries added since, and entries dropped
since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.errors import (
    BadEntries,
    BadFeatures,
    BadModelFile,
    DuplicateEntries,
    Hint,
    OffScale,
    check_choice,
)
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, IndexPair
from deepmf.matrix.axis_entries import (
    NO_ENTRIES,
    NOTHING,
    Axis,
    AxisEntries,
    PlacedEntries,
    are_among,
    find_spans,
    gather,
    group,
    locate,
    take_features,
)
from deepmf.matrix.extras import NO_TIME, Extras
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.limits import Limits
from deepmf.matrix.matrix import AREAS, ObservedMatrix, compute_area_codes
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import name_entry

if TYPE_CHECKING:
    from deepmf.matrix.names import GivenNames, Names

# An entry that is known with another value: an error, or the new value.
Conflicts = Literal["error", "replace"]


def take_entries_within(matrix: ObservedMatrix, axis: Axis, others: slice) -> AxisEntries:
    """Return the entries of every row (or column) in a range of the other axis."""
    starts, columns = matrix.by_row
    entries = scipy.sparse.csr_array((matrix.values, columns, starts), shape=matrix.shape)
    part = entries[:, others] if axis == "row" else entries[others].tocsc()
    return AxisEntries(part.indptr, part.indices + others.start, part.data)


@dataclass(frozen=True)
class EntryStore:
    """The entries that a model knows: the training matrix without dropped entries, and entries
    added since.

    Trained rows and columns come first on both axes. A row is encoded from its entries in trained
    columns and a column from its entries in trained rows; some models read all entries then. A
    store is immutable; the cost of an addition grows with the added entries, not with the training
    matrix.

    Parameters
    ----------
    train : the training matrix.
    rows, columns : labels of all rows and columns.
    added : entries added since training, in row order.
    dropped : increasing places in row order of training entries that were replaced or forgotten. A
        replaced entry is dropped, and added with its new value.
    row_features, column_features : features of both axes.
    row_names, column_names : names that are shown beside labels.
    """

    train: ObservedMatrix
    rows: Labels
    columns: Labels
    added: PlacedEntries = NO_ENTRIES  # in row order
    dropped: IndexArray = field(default_factory=lambda: NOTHING)
    row_features: AxisFeatures | None = None
    column_features: AxisFeatures | None = None
    row_names: Names | None = None
    column_names: Names | None = None

    @classmethod
    def of(
        cls,
        train: ObservedMatrix,
        row_features: AxisFeatures | None = None,
        column_features: AxisFeatures | None = None,
    ) -> EntryStore:
        """Return the store of a model right after training."""
        return cls(
            train,
            train.rows,
            train.columns,
            row_features=row_features,
            column_features=column_features,
        )

    @classmethod
    def from_parts(
        cls,
        train: ObservedMatrix,
        extension: ObservedMatrix | None,
        dropped: Array = NOTHING,
        *,
        are_trusted: bool = False,
    ) -> EntryStore:
        """Return the store of a loaded model; inconsistent parts raise `BadModelFile`, unless they
        are trusted."""
        if train.n_entries == 0:
            raise BadModelFile("the stored training matrix has no entries")
        if dropped.size and not (
            dropped[0] >= 0 and dropped[-1] < train.n_entries and np.all(np.diff(dropped) > 0)
        ):
            raise BadModelFile(
                "the stored places of dropped entries are not rising places of training entries"
            )
        if extension is None:
            return cls(train, train.rows, train.columns, dropped=dropped)
        if not are_trusted:
            _check_extension(train, extension, dropped)
        rows = train.rows.extend_to(extension.rows)
        columns = train.columns.extend_to(extension.columns)
        positions = extension.entry_rows.astype(np.int64), extension.by_row.columns.astype(np.int64)
        placed = PlacedEntries(*positions, extension.values.astype(np.float64), extension.extras)
        return cls(train, rows, columns, placed, dropped)

    @cached_property
    def scale(self) -> Scale:
        """The scale of all entries; if it is unbounded, the training values limit predictions."""
        scale = self.train.scale
        if scale.is_bounded or scale.is_interactions:
            return scale
        return scale.limit(self.limits.low, self.limits.high)

    @property
    def limits(self) -> Limits:
        """The limits within which models read values and weights."""
        return self.train.limits

    @cached_property
    def as_read(self) -> EntryStore:
        """The entries as models read them: added values and weights within the limits."""
        if not self.added.rows.size:
            return self
        limited = self.limits.bound(self.added)
        return self if limited is self.added else replace(self, added=limited)

    @property
    def n_entries(self) -> int:
        """Number of entries, without dropped ones."""
        return self.train.n_entries - int(self.dropped.size) + int(self.added.rows.size)

    @cached_property
    def extension(self) -> ObservedMatrix | None:
        """The added entries as a matrix with all rows and columns; None if nothing was added."""
        later = self.added
        if not later.rows.size and (len(self.rows), len(self.columns)) == self.train.shape:
            return None
        rows = Labelled(self.rows, later.rows)
        columns = Labelled(self.columns, later.columns)
        return ObservedMatrix.from_positions(
            rows, columns, later.values, scale=self.scale, extras=later.extras
        )

    def extend(
        self,
        new: ObservedMatrix | None,
        *,
        conflicts: Conflicts = "error",
        row_features: Features | None = None,
        column_features: Features | None = None,
    ) -> ChangedStore:
        """Return a store with new entries and features, and the rows and columns that must be
        encoded again.

        With `conflicts="replace"`, new values replace known ones; otherwise a different value of a
        known entry is an error, and counts of interactions add up. New features always replace
        known ones. Rows and columns may have features only.
        """
        rows = (
            self.rows
            if row_features is None
            else self.rows.join(Labels(row_features.labels, axis="row"))
        )
        columns = self.columns
        if column_features is not None:
            columns = columns.join(Labels(column_features.labels, axis="column"))
        if new is None:
            grown = ChangedStore(
                replace(self, rows=rows, columns=columns),
                np.arange(len(self.rows), len(rows)),
                np.arange(len(self.columns), len(columns)),
            )
        else:
            has_features = row_features is not None or column_features is not None
            rows = rows.join(new.rows)
            columns = columns.join(new.columns)
            grown = self._with_entries(new, rows, columns, conflicts, has_features=has_features)
        of_rows, rows_again = _set_features(self.row_features, row_features, rows)
        of_columns, columns_again = _set_features(self.column_features, column_features, columns)
        return grown._replace(
            entries=replace(grown.entries, row_features=of_rows, column_features=of_columns),
            rows=np.union1d(grown.rows, rows_again),
            columns=np.union1d(grown.columns, columns_again),
        )

    def _with_entries(
        self,
        new: ObservedMatrix,
        rows: Labels,
        columns: Labels,
        conflicts: Conflicts,
        *,
        has_features: bool,
    ) -> ChangedStore:
        if self.scale.is_interactions != new.scale.is_interactions or not np.all(
            self.scale.holds(new.values)
        ):
            raise OffScale(
                f"the new entries have the scale {new.scale}; the scale of the model is {self.scale}"
            )
        row_of = rows.positions(new.row_labels)[new.entry_rows].astype(np.int64)
        column_of = columns.positions(new.column_labels)[new.by_row.columns].astype(np.int64)
        known_values = self.values_at(row_of, column_of)
        values = new.values.astype(np.float64)
        extras = new.extras
        held_extras = self.take_extras(row_of, column_of)
        if self.scale.is_interactions and conflicts == "error":
            # more interactions of a known pair are no contradiction
            extras = _add_counts(held_extras, known_values, new)
            values += np.nan_to_num(known_values)
        extras = self._place_last(extras, new.extras, new.n_entries)
        contradicted = (
            ~np.isnan(known_values) & (known_values != values) & (not self.scale.is_interactions)
        )
        if conflicts == "error" and np.any(contradicted):
            at = int(np.flatnonzero(contradicted)[0])
            pair = name_entry(Labelled(rows, row_of), Labelled(columns, column_of), at)
            raise DuplicateEntries(
                f"{pair} has the value {known_values[at]:g}; the new value {values[at]:g} contradicts it"
            )
        fresh = known_values != values  # also for unknown entries, which are NaN
        fresh |= _are_changed(held_extras, extras)
        if not has_features and rows is self.rows and columns is self.columns and not np.any(fresh):
            raise BadEntries(
                "there is nothing to add: all rows, columns and entries are known already"
            )
        row_of = row_of[fresh]
        column_of = column_of[fresh]
        store = self._put(
            rows, columns, PlacedEntries(row_of, column_of, values[fresh], extras.take(fresh))
        )
        n_rows, n_columns = self.train.shape
        return ChangedStore(
            store,
            np.union1d(row_of[column_of < n_columns], np.arange(len(self.rows), len(rows))),
            np.union1d(column_of[row_of < n_rows], np.arange(len(self.columns), len(columns))),
            (np.unique(row_of[column_of >= n_columns]), np.unique(column_of[row_of >= n_rows])),
        )

    def with_names(self, rows: GivenNames | None, columns: GivenNames | None) -> EntryStore:
        """Return a store with more names of rows and columns."""
        from deepmf.matrix.names import join_names

        return replace(
            self,
            row_names=join_names(self.row_names, rows, self.rows),
            column_names=join_names(self.column_names, columns, self.columns),
        )

    def _put(self, rows: Labels, columns: Labels, new: PlacedEntries) -> EntryStore:
        places = self.train_places(new.rows, new.columns)
        trained = places >= 0
        as_trained = np.zeros(places.size, dtype=bool)
        as_trained[trained] = self.train.values[places[trained]] == new.values[trained]
        mine = self.train.extras.take(places[trained])
        theirs = new.extras.take(trained)
        as_trained[trained] &= ~(_are_changed(mine, theirs) | _are_changed(theirs, mine))
        dropped = np.setdiff1d(
            np.union1d(self.dropped, places[trained]), places[as_trained], assume_unique=True
        )
        known_keys, put = (part.rows * len(columns) + part.columns for part in (self.added, new))
        later = self.added.take(~np.isin(known_keys, put)).insert(new.take(~as_trained))
        return replace(self, rows=rows, columns=columns, added=later, dropped=dropped)

    def _place_last(self, extras: Extras, new: Extras, n_entries: int) -> Extras:
        """Return the extras of new entries with places after those of all known entries: of equal
        times, the entry that was added last is the last."""
        if not (new.are_ordered or self.train.extras.are_ordered or self.added.extras.are_ordered):
            return extras
        later = NOTHING if self.added.extras.places is None else self.added.extras.places
        # places in training are below this number
        first = max(self.train.shape[1], int(later.max(initial=-1)) + 1)
        new_places = np.zeros(1, np.int32) if new.places is None else new.places
        places = np.broadcast_to(new_places + np.int32(first), n_entries).copy()
        return extras._replace(places=places)

    def values_at(self, row_of: IndexArray, column_of: IndexArray) -> FloatArray:
        """Return the value of each pair of positions, NaN if it is not observed."""
        missing = np.full(row_of.size, np.nan)
        return self._look_up(row_of, column_of, missing, self.train.values, self.added.values)

    def take_extras(self, row_of: IndexArray, column_of: IndexArray) -> Extras:
        """Return the time and weight of each pair of positions, `NO_TIME` and 1 if it is not
        observed."""
        later = self.added.extras
        times = np.full(row_of.size, NO_TIME)
        weights = np.ones(row_of.size)
        return Extras(
            self._look_up(row_of, column_of, times, self.train.extras.times, later.times),
            self._look_up(row_of, column_of, weights, self.train.extras.weights, later.weights),
        )

    def _look_up(
        self,
        row_of: IndexArray,
        column_of: IndexArray,
        found: Array,
        of_training: Array | None,
        of_added: Array | None,
    ) -> Array:
        """Fill in a field of the entries at some pairs of positions; pairs that are not observed
        stay as they are."""
        if of_training is not None:
            places = self.train_places(row_of, column_of)
            is_present = (places >= 0) & ~are_among(places, self.dropped)
            found[is_present] = of_training[places[is_present]]
        if of_added is not None:
            # increasing: they are in row order
            keys = self.added.rows * len(self.columns) + self.added.columns
            at, inside = locate(keys, row_of * len(self.columns) + column_of)
            inside &= column_of < len(self.columns)
            found[inside] = of_added[at[inside]]
        return found

    def train_places(self, row_of: IndexArray, column_of: IndexArray) -> IndexArray:
        """Return the place of each pair of positions among all training entries, -1 if it is not
        one of them."""
        places = np.full(row_of.size, -1, dtype=np.int64)
        n_rows, n_columns = self.train.shape
        possible = np.flatnonzero(
            (row_of < n_rows) & (column_of < n_columns) & (row_of >= 0) & (column_of >= 0)
        )
        touched = np.unique(row_of[possible])
        starts, columns = self.train.by_row
        entry, which = find_spans(touched, starts)
        keys = touched[which] * n_columns + columns[entry]
        at, is_trained = locate(keys, row_of[possible] * n_columns + column_of[possible])
        places[possible[is_trained]] = entry[at[is_trained]]
        return places

    def are_as_trained(self, axis: Axis, positions: IndexArray) -> BoolArray:
        """Return whether rows (or columns) have the entries in trained columns (or rows), and
        features, of training."""
        n_rows, n_columns = self.train.shape
        if axis == "row":
            n_trained = n_rows
            features = self.row_features
            dropped = self.train.find_rows(self.dropped)
            later = self.added.of_rows(positions, below=n_columns)
        else:
            n_trained = n_columns
            features = self.column_features
            dropped = self.train.by_row.columns[self.dropped]
            later = self.added.of_columns(positions, below=n_rows)
        changed = np.isin(positions, dropped)
        changed[later.rows] = True
        return (
            (positions < n_trained)
            & ~changed
            & (features is None or features.are_as_trained(positions))
        )

    def get_labels(self, axis: Axis) -> Labels:
        """Return the labels of rows (or columns)."""
        return {"row": self.rows, "column": self.columns}[axis]

    def get_features(self, axis: Axis) -> AxisFeatures | None:
        """Return the features of rows (or columns)."""
        return {"row": self.row_features, "column": self.column_features}[axis]

    def get_counts(self, axis: Axis) -> IndexArray:
        """Return the number of entries of each row (or column)."""
        return self.row_counts if axis == "row" else self.column_counts

    def read_trained(self, axis: Axis, positions: IndexArray) -> AxisEntries:
        """Return the entries of some rows (or columns) in trained ones of the other axis, and their
        features."""
        n_trained = self.train.shape[axis == "row"]
        return self._gather(axis, positions, self.get_features(axis), below=n_trained)

    def row_entries(self, positions: IndexArray) -> AxisEntries:
        """Return the entries of some rows in trained columns, and their features."""
        return self.read_trained("row", positions)

    def column_entries(self, positions: IndexArray) -> AxisEntries:
        """Return the entries of some columns in trained rows, and their features."""
        return self.read_trained("column", positions)

    def seen_columns(self, positions: IndexArray) -> AxisEntries:
        """Return all entries of some rows, including those in new columns."""
        return self._gather("row", positions)

    def seen_rows(self, positions: IndexArray) -> AxisEntries:
        """Return all entries of some columns, including those in new rows."""
        return self._gather("column", positions)

    def all_entries(self, axis: Axis, positions: IndexArray) -> AxisEntries:
        """Return all entries of some rows (or columns), and their features."""
        return self._gather(axis, positions, self.get_features(axis))

    def _gather(
        self,
        axis: Axis,
        positions: IndexArray,
        features: AxisFeatures | None = None,
        *,
        below: float = np.inf,
    ) -> AxisEntries:
        """Return the entries of some rows (or columns); added ones only `below` a position of the
        other axis."""
        train = self.train
        later = self.added
        starts, other_positions, order = (*train.by_row, None) if axis == "row" else train.by_column
        trained = gather(
            positions,
            starts,
            other_positions,
            train.values,
            order=order,
            dropped=self.dropped,
            extras=train.extras,
        )
        parts = [trained]
        if later.rows.size:
            of = later.of_rows if axis == "row" else later.of_columns
            parts.append(of(positions, below=below))
        return group(positions.size, *parts)._replace(features=take_features(features, positions))

    @cached_property
    def row_counts(self) -> IndexArray:
        """Number of entries of each row, including those in new columns."""
        counts = np.pad(self.train.row_counts, (0, len(self.rows) - self.train.shape[0]))
        counts -= np.bincount(self.train.find_rows(self.dropped), minlength=counts.size)
        return counts + np.bincount(self.added.rows, minlength=counts.size)

    @cached_property
    def column_counts(self) -> IndexArray:
        """Number of entries of each column, including those in new rows."""
        counts = np.pad(self.train.column_counts, (0, len(self.columns) - self.train.shape[1]))
        counts -= np.bincount(self.train.by_row.columns[self.dropped], minlength=counts.size)
        return counts + np.bincount(self.added.columns, minlength=counts.size)

    @property
    def column_totals(self) -> Array:
        """The total weight of each column: its number of entries where no entry has a weight."""
        if self.train.weights is None and self.added.extras.weights is None:
            return self.column_counts
        trained = np.delete(np.arange(self.train.n_entries), self.dropped)
        later = self.added
        n_known = np.bincount(
            self.train.by_row.columns[trained],
            self.train.extras.take(trained).fill_weights(trained.size),
            minlength=len(self.columns),
        )
        return n_known + np.bincount(
            later.columns, later.extras.fill_weights(later.rows.size), minlength=n_known.size
        )

    def areas(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[np.str_]:
        """Return the area of each pair of positions."""
        codes = compute_area_codes(rows >= self.train.shape[0], columns >= self.train.shape[1])
        return np.array(AREAS)[codes]


class ChangedStore(NamedTuple):
    """A store after an extension or after forgetting, and the rows and columns whose encoding
    changes.

    crossed: the rows with changed entries in new columns, and the columns with changed entries in
        new rows.
    gone_rows, gone_columns: positions in the old store of rows and columns that are removed.
    """

    entries: EntryStore
    rows: IndexArray
    columns: IndexArray
    crossed: IndexPair = (NOTHING, NOTHING)
    gone_rows: IndexArray = NOTHING
    gone_columns: IndexArray = NOTHING


def _check_extension(train: ObservedMatrix, extension: ObservedMatrix, dropped: Array) -> None:
    for trained_labels, labels in (
        (train.rows, extension.rows),
        (train.columns, extension.columns),
    ):
        if (
            len(labels) < len(trained_labels)
            or labels.take(np.arange(len(trained_labels))) != trained_labels
        ):
            raise BadModelFile(
                f"the {trained_labels.axis}s of the stored extension do not begin with the trained ones"
            )
    if extension.scale != train.scale:
        raise BadModelFile(
            f"the stored extension has the scale {extension.scale}; that of training is {train.scale}"
        )
    trained, later = (
        matrix.entry_rows.astype(np.int64) * len(extension.columns) + matrix.by_row.columns
        for matrix in (train, extension)
    )
    if np.isin(later, np.delete(trained, dropped), assume_unique=True).any():
        raise BadModelFile("the stored extension has entries that the training matrix has too")


def _set_features(
    known: AxisFeatures | None, new: Features | None, labels: Labels
) -> tuple[AxisFeatures | None, IndexArray]:
    """Return features with new ones, and the sorted positions of these."""
    if new is None:
        return known, NOTHING
    if known is None:
        raise BadFeatures(
            f"the model was fitted without {labels.axis} features",
            hint=Hint(
                f"fit it with {labels.axis}_features", f"fit it with --{labels.axis}-features"
            ),
        )
    positions = labels.positions(new.labels).astype(np.int64)
    return known.replace(positions, new.encode(known.encoding)), np.sort(positions)


def _are_changed(known: Extras, new: Extras) -> BoolArray:
    """Return whether each entry has a new date, or another weight where weights are given."""
    changed: BoolArray = np.zeros(1, dtype=bool)
    if new.times is not None:
        changed = changed | ((new.times != NO_TIME) & (new.times != known.times))
    if new.weights is not None:
        changed = changed | (new.weights != known.fill_weights(new.weights.size))
    return changed


def _add_counts(held: Extras, known: FloatArray, new: ObservedMatrix) -> Extras:
    """Return the latest time and the mean weight of interactions that are counted together."""
    assert held.times is not None and held.weights is not None
    before = np.nan_to_num(known)
    after = new.values.astype(np.float64)
    times = held.times if new.times is None else np.maximum(held.times, new.times)
    weights = before * held.weights + after * new.extras.fill_weights(after.size)
    weights /= before + after
    return Extras(times, weights).simplify()


Pairs = ObservedMatrix | tuple[Iterable[Any], Iterable[Any]]  # entries, by their rows and columns


class ForgetPlan(NamedTuple):
    """Distinct positions to forget: rows, columns, pairs, and rows and columns that only lose their
    features."""

    rows: IndexArray
    columns: IndexArray
    pairs: IndexPair
    without_features: IndexPair = (NOTHING, NOTHING)


def plan_forget(
    store: EntryStore,
    rows: Iterable[Any] | None,
    columns: Iterable[Any] | None,
    entries: Pairs | None,
    row_features: Iterable[Any] | None = None,
    column_features: Iterable[Any] | None = None,
    *,
    missing: str,
) -> ForgetPlan:
    """Find the positions to forget; `missing` is "error" or "ignore" and says how to treat unknown
    ones."""
    check_choice("missing", missing, ("error", "ignore"))
    if all(part is None for part in (rows, columns, entries, row_features, column_features)):
        raise BadEntries(
            "there is nothing to forget: give rows, columns, entries, row_features or column_features"
        )
    return ForgetPlan(
        _find_labels(store, "row", rows, missing),
        _find_labels(store, "column", columns, missing),
        _find_pairs(store, entries, missing),
        (
            _find_described(store.rows, row_features, store.row_features, missing),
            _find_described(store.columns, column_features, store.column_features, missing),
        ),
    )


def forget(store: EntryStore, plan: ForgetPlan) -> ChangedStore:
    """Return a store without some rows, columns and entries; trained rows and columns stay, without
    entries."""
    n_rows, n_columns = store.train.shape
    places = _train_places(store, plan)
    later = store.added
    width = len(store.columns)
    leaving = np.isin(later.rows, plan.rows) | np.isin(later.columns, plan.columns)
    leaving |= np.isin(later.rows * width + later.columns, plan.pairs[0] * width + plan.pairs[1])
    rows = [
        store.train.find_rows(places),
        later.rows[leaving & (later.columns < n_columns)],
        plan.rows,
    ]
    columns = [
        store.train.by_row.columns[places],
        later.columns[leaving & (later.rows < n_rows)],
        plan.columns,
    ]
    gone_rows = plan.rows[plan.rows >= n_rows]
    gone_columns = plan.columns[plan.columns >= n_columns]
    crossed = (
        _find_left(later.rows[leaving & (later.columns >= n_columns)], gone_rows),
        _find_left(later.columns[leaving & (later.rows >= n_rows)], gone_columns),
    )
    remaining = later.take(~leaving)
    of_rows, of_columns = plan.without_features
    left_over = replace(
        store,
        rows=_drop_labels(store.rows, store.train.rows, gone_rows),
        columns=_drop_labels(store.columns, store.train.columns, gone_columns),
        added=remaining._replace(
            rows=_move_up(remaining.rows, gone_rows),
            columns=_move_up(remaining.columns, gone_columns),
        ),
        dropped=np.union1d(store.dropped, places),
        row_features=_drop_features(store.row_features, of_rows, plan.rows),
        column_features=_drop_features(store.column_features, of_columns, plan.columns),
        row_names=_drop_names(store.row_names, store.rows, plan.rows),
        column_names=_drop_names(store.column_names, store.columns, plan.columns),
    )
    return ChangedStore(
        left_over,
        _find_left(np.concatenate([*rows, of_rows]), gone_rows),
        _find_left(np.concatenate([*columns, of_columns]), gone_columns),
        crossed,
        gone_rows,
        gone_columns,
    )


def _find_left(positions: IndexArray, gone: IndexArray) -> IndexArray:
    """Return the distinct positions that stay, after others are removed."""
    return _move_up(np.setdiff1d(positions, gone), gone)


def _train_places(store: EntryStore, plan: ForgetPlan) -> IndexArray:
    """Return the places of the training entries to forget, without those that are dropped
    already."""
    n_rows, n_columns = store.train.shape
    of_rows, _ = find_spans(plan.rows[plan.rows < n_rows], store.train.by_row.starts)
    of_columns, _ = find_spans(plan.columns[plan.columns < n_columns], store.train.by_column.starts)
    of_pairs = store.train_places(*plan.pairs)
    places = np.concatenate(
        [of_rows, store.train.by_column.entries[of_columns], of_pairs[of_pairs >= 0]]
    )
    return np.setdiff1d(places.astype(np.int64), store.dropped)


def _find_given(labels: Labels, given: Iterable[Any] | None, missing: str) -> IndexArray:
    """Return the distinct positions of labels; unknown ones are an error, or left out."""
    if given is None:
        return NOTHING
    positions = np.unique(labels.positions(given) if missing == "error" else labels.find(given))
    return positions[positions >= 0].astype(np.int64)


def _find_labels(
    store: EntryStore, axis: Axis, given: Iterable[Any] | None, missing: str
) -> IndexArray:
    labels, n_trained = (
        (store.rows, store.train.shape[0])
        if axis == "row"
        else (store.columns, store.train.shape[1])
    )
    positions = _find_given(labels, given, missing)
    trained = positions[positions < n_trained]
    empty = trained[store.all_entries(axis, trained).are_empty]
    if empty.size and missing == "error":
        raise BadEntries(
            f"{labels.axis} {labels[empty[:1]].tolist()[0]!r} has no entries to forget"
        )
    return positions


def _find_described(
    labels: Labels, given: Iterable[Any] | None, features: AxisFeatures | None, missing: str
) -> IndexArray:
    positions = _find_given(labels, given, missing)
    vectors = take_features(features, positions)
    is_known = np.zeros(positions.size, dtype=bool) if vectors is None else vectors.are_known
    if missing == "error" and not is_known.all():
        raise BadFeatures(
            f"{labels.axis} {labels[positions[~is_known][:1]].tolist()[0]!r} has no features to forget"
        )
    return positions[is_known]


def _drop_features(
    features: AxisFeatures | None, cleared: IndexArray, gone: IndexArray
) -> AxisFeatures | None:
    return None if features is None else features.clear(cleared).without(gone)


def _drop_names(names: Names | None, labels: Labels, gone: IndexArray) -> Names | None:
    return None if names is None else names.without(labels[gone].tolist())


def _find_pairs(store: EntryStore, entries: Pairs | None, missing: str) -> IndexPair:
    if entries is None:
        return NOTHING, NOTHING
    pairs = entries.entries()[:2] if isinstance(entries, ObservedMatrix) else entries
    if not isinstance(pairs, tuple) or len(pairs) != 2:
        raise BadEntries(
            f"entries must be an ObservedMatrix or a tuple (rows, columns) of lists; got {type(entries).__name__}"
        )
    row_of, column_of = (
        labels.positions(items) if missing == "error" else labels.find(items)
        for labels, items in zip((store.rows, store.columns), pairs, strict=True)
    )
    if row_of.size != column_of.size:
        raise BadEntries(
            f"rows and columns must have the same length; got {row_of.size} and {column_of.size}"
        )
    is_known = (row_of >= 0) & (column_of >= 0)
    row_of = row_of[is_known].astype(np.int64)
    column_of = column_of[is_known].astype(np.int64)
    is_observed = ~np.isnan(store.values_at(row_of, column_of))
    if missing == "error" and not is_observed.all():
        at = int(np.flatnonzero(~is_observed)[0])
        pair = name_entry(Labelled(store.rows, row_of), Labelled(store.columns, column_of), at)
        raise BadEntries(f"there is no entry to forget in {pair}")
    return row_of[is_observed], column_of[is_observed]


def _drop_labels(labels: Labels, trained: Labels, gone: IndexArray) -> Labels:
    """Return labels without some that are not trained."""
    if gone.size == 0:
        return labels
    remaining = np.setdiff1d(np.arange(len(trained), len(labels)), gone)
    return trained.join(labels.take(remaining))


def _move_up(positions: IndexArray, gone: IndexArray) -> IndexArray:
    """Return positions after others are removed."""
    return positions - np.searchsorted(gone, positions)
