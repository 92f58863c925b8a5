"""Forgetting: what a store of entries is once some rows, columns or entries are taken out of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadFeatures, BadSetting
from deepmf.matrix.added_entries import AddedEntries
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries, spans
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix

Pairs = ObservedMatrix | tuple[Iterable[Any], Iterable[Any]]  # entries, by their rows and columns


class Forgotten(NamedTuple):
    """A store after forgetting.

    rows, columns: the positions, in the new store, whose description changed.
    gone_rows, gone_columns: the positions, in the old one, of those that are no longer known.
    """

    store: EntryStore
    rows: IndexArray
    columns: IndexArray
    gone_rows: IndexArray
    gone_columns: IndexArray


class Asked(NamedTuple):
    """Positions to forget, each once: rows, columns, pairs of both, and rows and columns without their features."""

    rows: IndexArray
    columns: IndexArray
    pairs: tuple[IndexArray, IndexArray]
    undescribed: tuple[IndexArray, IndexArray] = (NOTHING, NOTHING)


def asked_to_forget(
    store: EntryStore,
    rows: Iterable[Any] | None,
    columns: Iterable[Any] | None,
    entries: Pairs | None,
    row_features: Iterable[Any] | None = None,
    column_features: Iterable[Any] | None = None,
    *,
    missing: str,
) -> Asked:
    """Return the positions of what is to be forgotten; what is not there is an error, or by "ignore" left out."""
    if missing not in ("error", "ignore"):
        raise BadSetting(f"missing must be 'error' or 'ignore'; got {missing!r}")
    if all(each is None for each in (rows, columns, entries, row_features, column_features)):
        raise BadEntries(
            "there is nothing to forget: give rows, columns or entries, or labels whose features are forgotten"
        )
    return Asked(
        _asked_labels(store.rows, rows, store.seen_columns, store.row_features, len(store.train.rows), missing),
        _asked_labels(
            store.columns, columns, store.seen_rows, store.column_features, len(store.train.columns), missing
        ),
        _asked_pairs(store, entries, missing),
        (
            _asked_described(store.rows, row_features, store.row_features, missing),
            _asked_described(store.columns, column_features, store.column_features, missing),
        ),
    )


def without(store: EntryStore, asked: Asked) -> Forgotten:
    """Return a store without some rows, columns and entries, at the cost of these and of what was added before.

    Rows and columns that were added disappear; trained ones stay, without entries.
    """
    n_rows, n_columns = store.train.shape
    places = _train_places(store, asked)
    added = store.added or AddedEntries(NOTHING, NOTHING, np.empty(0))
    leaving = _leaving(added, asked, len(store.columns))
    rows = np.concatenate(
        [
            np.searchsorted(store.train.by_row.starts, places, side="right") - 1,
            added.rows[leaving & (added.columns < n_columns)],
        ]
    )
    columns = np.concatenate(
        [store.train.by_row.columns[places], added.columns[leaving & (added.rows < n_rows)]],
    )
    gone_rows, gone_columns = asked.rows[asked.rows >= n_rows], asked.columns[asked.columns >= n_columns]
    left = added.kept(~leaving)
    row_labels = _labels_without(store.rows, store.train.rows, gone_rows)
    column_labels = _labels_without(store.columns, store.train.columns, gone_columns)
    moved = left.moved(_moved_up(left.rows, gone_rows), _moved_up(left.columns, gone_columns))
    dropped = np.union1d(store.dropped, places) if places.size else store.dropped
    of_rows, of_columns = asked.undescribed
    left_over = replace(
        store,
        row_features=_features_left(store.row_features, of_rows, asked.rows),
        column_features=_features_left(store.column_features, of_columns, asked.columns),
    )
    rows, columns = (
        np.unique(np.concatenate(parts))
        for parts in ((rows, asked.rows, of_rows), (columns, asked.columns, of_columns))
    )
    return Forgotten(
        left_over.changed(row_labels, column_labels, moved, dropped),
        _moved_up(np.setdiff1d(rows, gone_rows), gone_rows),
        _moved_up(np.setdiff1d(columns, gone_columns), gone_columns),
        gone_rows,
        gone_columns,
    )


def _train_places(store: EntryStore, asked: Asked) -> IndexArray:
    """Return the places of all training entries to forget that are not dropped already."""
    n_rows, n_columns = store.train.shape
    of_rows, _ = spans(asked.rows[asked.rows < n_rows], store.train.by_row.starts)
    of_columns, _ = spans(asked.columns[asked.columns < n_columns], store.train.by_column.starts)
    of_pairs = store.train_places(*asked.pairs)
    places = np.concatenate([of_rows, store.train.by_column.entries[of_columns], of_pairs[of_pairs >= 0]])
    return np.setdiff1d(places.astype(np.int64), store.dropped)


def _leaving(added: AddedEntries, asked: Asked, n_columns: int) -> npt.NDArray[np.bool_]:
    """Say which of the added entries are to be forgotten."""
    leaving = np.isin(added.rows, asked.rows) | np.isin(added.columns, asked.columns)
    if asked.pairs[0].size:
        leaving |= np.isin(added.rows * n_columns + added.columns, asked.pairs[0] * n_columns + asked.pairs[1])
    return leaving


def _asked_labels(
    labels: Labels,
    given: Iterable[Any] | None,
    seen: Any,
    features: AxisFeatures | None,
    n_trained: int,
    missing: str,
) -> IndexArray:
    if given is None:
        return NOTHING
    positions = np.unique(labels.positions(given) if missing == "error" else labels.find(given))
    positions = positions[positions >= 0]
    trained = positions[positions < n_trained]
    entries: AxisEntries = seen(trained)
    nothing = np.diff(entries.starts) == 0
    if features is not None:
        nothing &= ~features.take(trained).are_known
    empty = trained[nothing]
    if empty.size and missing == "error":
        raise BadEntries(f"{labels.axis} {labels[empty[:1]].tolist()[0]!r} has no entries to forget")
    return positions


def _asked_described(
    labels: Labels, given: Iterable[Any] | None, features: AxisFeatures | None, missing: str
) -> IndexArray:
    if given is None:
        return NOTHING
    positions = np.unique(labels.positions(given) if missing == "error" else labels.find(given)).astype(np.int64)
    positions = positions[positions >= 0]
    known = np.zeros(positions.size, dtype=bool) if features is None else features.take(positions).are_known
    if missing == "error" and not known.all():
        raise BadFeatures(f"{labels.axis} {labels[positions[~known][:1]].tolist()[0]!r} has no features to forget")
    return positions[known]


def _features_left(features: AxisFeatures | None, undescribed: IndexArray, gone: IndexArray) -> AxisFeatures | None:
    return None if features is None else features.cleared(undescribed).without(gone)


def _asked_pairs(store: EntryStore, entries: Pairs | None, missing: str) -> tuple[IndexArray, IndexArray]:
    if entries is None:
        return NOTHING, NOTHING
    given = entries.entries()[:2] if isinstance(entries, ObservedMatrix) else entries
    if not isinstance(given, tuple) or len(given) != 2:
        raise BadEntries(
            f"entries must be an ObservedMatrix, or a pair (rows, columns) of lists; got {type(entries).__name__}"
        )
    row_of, column_of = (
        labels.positions(items) if missing == "error" else labels.find(items)
        for labels, items in zip((store.rows, store.columns), given, strict=True)
    )
    if row_of.size != column_of.size:
        raise BadEntries(f"rows and columns are pairs, so of one length; got {row_of.size} and {column_of.size}")
    known = (row_of >= 0) & (column_of >= 0)
    row_of, column_of = row_of[known].astype(np.int64), column_of[known].astype(np.int64)
    there = ~np.isnan(store.values_at(row_of, column_of))
    if missing == "error" and not there.all():
        at = int(np.flatnonzero(~there)[0])
        row, column = store.rows[row_of[[at]]].tolist()[0], store.columns[column_of[[at]]].tolist()[0]
        raise BadEntries(f"row {row!r} has no entry in column {column!r} to forget")
    return row_of[there], column_of[there]


def _labels_without(labels: Labels, trained: Labels, gone: IndexArray) -> Labels:
    """Return labels of which some behind the trained ones are gone, at the cost of those behind."""
    if gone.size == 0:
        return labels
    left = np.setdiff1d(np.arange(len(trained), len(labels)), gone)
    return trained.join(labels.take(left)) if left.size else trained


def _moved_up(positions: IndexArray, gone: IndexArray) -> IndexArray:
    """Return positions as they are once some others are gone."""
    moved: IndexArray = positions - np.searchsorted(gone, positions)
    return moved
