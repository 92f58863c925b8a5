"""What came after training: the factors of new rows and columns, and which of them new entries
unsettle."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from deepmf.matrix.arrays import Array, BoolArray, IndexArray, IndexPair
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.entries import EntryStore
from deepmf.storage.parts import Form, Part


class Arrived(NamedTuple):
    """The factors of new rows, from their entries in trained columns alone, and of new columns,
    from all entries.

    They are in the order of positions, after the trained ones; None where nothing has arrived.
    """

    rows: Array | None = None
    columns: Array | None = None

    def put(self, axis: Literal["row", "column"], at: IndexArray, factors: Array) -> Arrived:
        """Return other factors of some rows (or columns), counted from the first new one."""
        if at.size == 0:
            return self
        known_factors = self.rows if axis == "row" else self.columns
        table_before = factors[:0] if known_factors is None else known_factors
        table = np.zeros(
            (max(len(table_before), int(at[-1]) + 1), factors.shape[1]), table_before.dtype
        )
        table[: len(table_before)] = table_before
        table[at] = factors
        return Arrived(table, self.columns) if axis == "row" else Arrived(self.rows, table)

    def without(self, axis: Literal["row", "column"], gone: IndexArray) -> Arrived | None:
        """Return the factors without some rows (or columns), counted from the first new one."""
        table = self.rows if axis == "row" else self.columns
        remaining = (
            None if table is None or len(table) == gone.size else np.delete(table, gone, axis=0)
        )
        rows, columns = (remaining, self.columns) if axis == "row" else (self.rows, remaining)
        return None if rows is None and columns is None else Arrived(rows, columns)


class TrainedRows(NamedTuple):
    """Trained rows whose entries in trained columns are those of training."""

    latents: Array  # (rows, latent)
    totals: Array  # (rows,) total weights of their trained entries
    column_counts: IndexArray  # (columns,) entries of the trained columns


def declare_arrived(kind: str) -> Form:
    """Return the form of stored factors of some type."""
    parts = (
        Part(axis, kind, (f"new_{axis}", "factors"), optional=True) for axis in ("rows", "columns")
    )
    return Form(*parts, prefix="arrived")


class Unsettled(NamedTuple):
    """What must be solved for again after a change of entries; positions.

    columns: new columns that new rows have, or had, entries in.
    rows: rows with entries in new columns that new rows have entries in.
    rows_left: rows that are encoded by trained columns alone; some may have been solved for before.
    are_any: whether new rows have entries in new columns.
    """

    columns: IndexArray
    rows: IndexArray
    rows_left: IndexArray
    are_any: bool


def find_met(entries: EntryStore) -> BoolArray:
    """Return whether each column is new, and new rows have entries in it, (columns,)."""
    is_met = np.zeros(len(entries.columns), dtype=bool)
    n_rows, n_columns = entries.train.shape
    is_met[entries.added.columns[entries.added.rows >= n_rows]] = True
    is_met[:n_columns] = False
    return is_met


def find_changed(
    entries: EntryStore, rows: IndexArray, columns: IndexArray, crossed: IndexPair
) -> IndexArray:
    """Return the columns that changes of rows and columns concern: also new columns of changed new
    rows."""
    n_rows, n_columns = entries.train.shape
    is_changed = np.zeros(len(entries.columns), dtype=bool)
    is_changed[columns] = True
    is_changed[crossed[1][crossed[1] >= n_columns]] = True
    if len(entries.columns) > n_columns:
        row_columns = entries.added.of_rows(rows[rows >= n_rows]).columns
        is_changed[row_columns[row_columns >= n_columns]] = True
    return np.flatnonzero(is_changed)


def find_unsettled(
    entries: EntryStore, rows: IndexArray, columns: IndexArray, crossed: IndexPair
) -> Unsettled:
    """Return what new entries of some rows and columns, and changes across new ones, unsettle."""
    n_columns, entries_added = entries.train.shape[1], entries.added
    if not entries_added.rows.size:
        return Unsettled(NOTHING, NOTHING, np.union1d(rows, crossed[0]), False)
    in_new = entries_added.columns >= n_columns
    row_of, column_of = entries_added.rows[in_new], entries_added.columns[in_new]
    is_met, is_crossed, is_changed = (
        find_met(entries),
        *np.zeros((2, len(entries.columns)), dtype=bool),
    )
    is_crossed[crossed[1][crossed[1] >= n_columns]] = True
    is_changed[find_changed(entries, rows, columns, crossed)] = True
    touched = np.unique(np.concatenate([rows, crossed[0], row_of[is_changed[column_of]]]))
    is_solved = np.isin(touched, row_of[is_met[column_of]])
    unsettled_columns = np.flatnonzero(is_changed & is_met | is_crossed)
    return Unsettled(unsettled_columns, touched[is_solved], touched[~is_solved], bool(is_met.any()))
