"""Factors: latents of all rows and columns, whose products are scores, and the encoder they come
from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.arrays import Array, IndexArray, IndexPair, LatentArray
from deepmf.matrix.axis_entries import NOTHING, OTHER_AXIS, Axis, AxisEntries, group
from deepmf.matrix.entries import EntryStore
from deepmf.scoring.arrivals import (
    Arrived,
    TrainedRows,
    Unsettled,
    declare_arrived,
    find_met,
    find_unsettled,
)
from deepmf.scoring.encoders import Encoder, Scores, SolvingEncoder
from deepmf.scoring.latents import Latents, check_finite, pair_products
from deepmf.storage.model_file import Packed, Tensors, has_values_to_check
from deepmf.storage.parts import Form, Part, positions_of, rising

Positions = slice | IndexArray  # a slice is a range of positions, from its start to its stop


def list_positions(columns: Positions) -> IndexArray:
    """Return a range of positions as an array."""
    return np.arange(columns.start, columns.stop) if isinstance(columns, slice) else columns


@dataclass(frozen=True)
class Factors:
    """The latents of all rows and of all columns, and the encoder they come from.

    n_beside: how many of a latent's last numbers are means, effects, constants or parameters of the
    readout instead of factors. arrived: the factors of new rows and columns, where the encoder
    reads these.
    """

    rows: Latents
    columns: Latents
    encoder: Encoder
    n_beside: int = 0
    arrived: Arrived | None = None

    def score_pairs(self, rows: IndexArray, columns: IndexArray) -> Scores:
        """Return the scores of pairs of positions."""
        encoder, products = self.encoder, pair_products(self.rows, self.columns, rows, columns)
        sides = self.rows.take(rows, encoder.sides), self.columns.take(columns, encoder.sides)
        location = encoder.read_location(products, sides[0])
        return Scores(location, encoder.read_fields(*sides), encoder.read_deviation(*sides))

    def score_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the locations (rows, columns); a range of columns is not copied."""
        row_latents = self.rows.take(rows)
        if not isinstance(columns, slice) and columns.size == len(self.columns):
            is_whole = np.array_equal(columns, np.arange(columns.size))
            columns = slice(0, columns.size) if is_whole else columns
        if isinstance(columns, slice):
            products = self.columns.products(row_latents, columns)
        else:
            products = row_latents @ self.columns.take(columns).T
        return self.encoder.read_location(products, row_latents[:, self.encoder.sides])

    def read_rows(self, rows: IndexArray) -> LatentArray:
        """Return the fields (rows, fields) that a readout reads beside the locations of rows."""
        return self.encoder.read_fields(self.rows.take(rows, self.encoder.sides))

    def stack_rows(self, rows: IndexArray) -> LatentArray:
        """Return latents of rows whose products with those of columns are locations."""
        latents = self.rows.take(rows)
        return self.encoder.read_location(latents, latents[:, self.encoder.sides])

    def products_are_finite(self) -> bool:
        """Whether no product of latents leaves the range of their type."""
        return self.rows.products_are_finite(self.columns)

    def extend(
        self,
        entries: EntryStore,
        rows: IndexArray,
        columns: IndexArray,
        crossed: IndexPair = (NOTHING, NOTHING),
    ) -> Self:
        """Return factors of which the rows and columns at some positions are encoded from their
        entries again.

        They are encoded by trained rows and columns alone. Rows and columns with the same entries
        as in training get their trained latents back. An encoder that solves then reads the entries
        of new rows in new columns, see `_settle`. crossed: as in `ChangedStore`.
        """
        encoder = self.encoder
        if not isinstance(encoder, SolvingEncoder):
            return self._encode_by_trained("column", entries, columns)._encode_by_trained(
                "row", entries, rows
            )
        unsettled = find_unsettled(entries, rows, columns, crossed)
        settled = np.setdiff1d(columns, unsettled.columns)
        changed = self._encode_by_trained("column", entries, settled)._encode_by_trained(
            "row", entries, rows
        )
        return changed._settle(encoder, unsettled, entries, rows)

    def _encode_by_trained(self, axis: Axis, entries: EntryStore, positions: IndexArray) -> Self:
        is_old = entries.are_as_trained(axis, positions)
        changed = self.forget(axis, positions[is_old])
        positions = positions[~is_old]
        if positions.size == 0:
            return changed
        axis_entries = entries.read_trained(axis, positions)
        other_latents = self._get_latents(OTHER_AXIS[axis])
        if not isinstance(self.encoder, SolvingEncoder):
            return changed._replace_latents(
                axis, positions, self.encoder.encode(axis, axis_entries, other_latents)
            )
        factors = self.encoder.solve(axis, axis_entries, Latents(other_latents.base))
        return changed._put_solved(axis, positions, factors)

    def _get_latents(self, axis: Axis) -> Latents:
        return self.rows if axis == "row" else self.columns

    def _set_latents(self, axis: Axis, latents: Latents) -> Self:
        return replace(self, rows=latents) if axis == "row" else replace(self, columns=latents)

    def _replace_latents(self, axis: Axis, positions: IndexArray, latents: LatentArray) -> Self:
        return self._set_latents(axis, self._get_latents(axis).replace(positions, latents))

    def _settle(
        self,
        encoder: SolvingEncoder,
        unsettled: Unsettled,
        entries: EntryStore,
        encoded: IndexArray,
    ) -> Self:
        """Solve again for what has entries of new rows in new columns: the columns now, rows when
        they are read.

        A new column in which new rows have entries is solved for by all its entries, given trained
        rows as they were trained and new rows by their entries in trained columns. A row with an
        entry in such a column is solved for by all its entries, or moves by its new ones, given
        trained columns as they were trained and new columns as above. This is one pass of
        alternating least squares over what has new entries; it depends on the entries alone, not on
        their order.
        """
        settled, columns = self, unsettled.columns
        if columns.size:
            factors = encoder.solve(
                "column", entries.all_entries("column", columns), self.solve_by("row")
            )
            settled = self._put_solved("column", columns, factors)
        solved_columns = settled.solve_by("column")
        settled = settled._encode_by_trained(
            "row", entries, np.setdiff1d(unsettled.rows_left, encoded)
        )
        if not unsettled.are_any:
            return settled
        solve = partial(_solve_again, encoder, entries, base=self.rows.base, columns=solved_columns)
        return replace(settled, rows=settled.rows.defer(unsettled.rows, solve))

    def _put_solved(self, axis: Axis, at: IndexArray, factors: LatentArray) -> Self:
        """Take the latents of rows (or columns) at some positions from factors; keep the factors of
        new ones."""
        encoder, base = self.encoder, self._get_latents(axis).base
        assert isinstance(encoder, SolvingEncoder)
        latents = encoder.finish(axis, factors)
        new_factors = factors[at >= len(base), : encoder.count_factors(base.shape[1])].astype(
            encoder.factor_type
        )
        arrived = (self.arrived or Arrived()).put(
            axis, at[at >= len(base)] - len(base), new_factors
        )
        return replace(self, arrived=arrived)._replace_latents(axis, at, latents)

    def solve_by(self, axis: Axis) -> Latents:
        """Return what the encoder solves the other axis by: factors of trained rows (or columns),
        and of new ones."""
        if not isinstance(self.encoder, SolvingEncoder):
            return self._get_latents(axis)
        base, arrived = self._get_latents(axis).base, self.arrived or Arrived()
        solved_factors = arrived.rows if axis == "row" else arrived.columns
        return (
            Latents(base)
            if solved_factors is None
            else Latents(base, len(base) + np.arange(len(solved_factors)), solved_factors)
        )

    def forget(self, axis: Axis, positions: IndexArray) -> Self:
        """Return factors without the latents computed since training for some rows (or
        columns)."""
        if positions.size == 0:
            return self
        latents = self._get_latents(axis)
        new_positions = positions[positions >= len(latents.base)]
        changed = self._set_latents(axis, latents.without(positions))
        if new_positions.size == 0:
            return changed
        arrived = self.arrived and self.arrived.without(axis, new_positions - len(latents.base))
        return replace(changed, arrived=arrived)

    def read_entries(self, axis: Axis, entries: EntryStore, positions: IndexArray) -> AxisEntries:
        """Return the entries that the latents of some stored rows (or columns) are made from."""
        is_row = axis == "row"
        if not isinstance(self.encoder, SolvingEncoder):
            return entries.read_trained(axis, positions)
        axis_entries = entries.all_entries(axis, positions)
        which, is_met = axis_entries.group_of, find_met(entries)
        counts_all = (
            np.isin(np.arange(positions.size), which[is_met[axis_entries.others]])
            if is_row
            else is_met[positions]
        )
        return axis_entries.select(
            counts_all[which] | (axis_entries.others < entries.train.shape[is_row])
        )

    def select_inputs(self, axis: Axis, entries: AxisEntries) -> AxisEntries:
        """Return the entries of rows (or columns) that the encoder reads: all, or those in trained
        columns (rows)."""
        if isinstance(self.encoder, SolvingEncoder):
            return entries
        return entries.below(len(self._get_latents(OTHER_AXIS[axis]).base))

    def fold_in(self, axis: Axis, entries: AxisEntries) -> Self:
        """Return factors whose only rows (or columns) have these entries."""
        other_latents = self.solve_by(OTHER_AXIS[axis])
        latents = self.encoder.encode(axis, entries, other_latents)
        return self._set_latents(axis, Latents(check_finite(latents)))

    def take_rows(self, rows: IndexArray) -> Self:
        """Return factors of some rows alone."""
        return replace(self, rows=Latents(self.rows.take(rows)))

    def drop_beside(self, latents: Latents) -> LatentArray:
        """Return latents without the numbers beside them, read-only."""
        all_latents = latents.whole()
        if all_latents.shape[1] == self.n_beside:
            raise BadSetting(
                "this model has no latents, so neither rows nor columns can be compared"
            )
        proper: LatentArray = all_latents[:, : all_latents.shape[1] - self.n_beside]
        proper.flags.writeable = False
        return proper

    def pack(self) -> Packed:
        """Return the latents and the encoder as JSON content and tensors."""
        packed = self.encoder.pack()
        tensors = dict(packed.tensors)
        for axis, latents in (("rows", self.rows), ("columns", self.columns)):
            tensors |= (
                _declare_latents("float32 float64").pack(latents, prefix=f"latents.{axis}").tensors
            )
        tensors |= (
            {}
            if self.arrived is None
            else declare_arrived("float32 float64 float16").pack(self.arrived).tensors
        )
        return Packed(packed.content, tensors)

    def with_arrived(self, tensors: Tensors, entries: EntryStore) -> Self:
        """Return factors with those stored for new rows and columns; impossible ones raise
        `BadModelFile`."""
        encoder = self.encoder
        if not isinstance(encoder, SolvingEncoder):
            return self
        n_rows, n_columns = entries.train.shape
        n_new = len(entries.rows) - n_rows, len(entries.columns) - n_columns
        width = encoder.count_factors(self.rows.base.shape[1])
        form = declare_arrived(encoder.factor_type)
        stored = form.read({}, tensors, new_rows=n_new[0], new_columns=n_new[1], factors=width)
        arrived = Arrived(**stored)
        if any(
            (table is None) != (count == 0) for table, count in zip(arrived, n_new, strict=True)
        ):
            raise BadModelFile("some stored factors of new rows or columns are missing")
        return replace(self, arrived=arrived) if any(n_new) else self


def _solve_again(
    encoder: SolvingEncoder,
    entries: EntryStore,
    rows: IndexArray,
    base: LatentArray,
    columns: Latents,
) -> LatentArray:
    """Return the latents of rows with entries in new columns that new rows have entries in."""
    moved = entries.are_as_trained("row", rows) & encoder.moves_rows
    latents = np.empty((rows.size, base.shape[1]), dtype=base.dtype)
    if not moved.all():
        latents[~moved] = encoder.encode("row", entries.all_entries("row", rows[~moved]), columns)
    if moved.any():
        train, at = entries.train, rows[moved]
        totals = train.row_counts[at] if train.weights is None else entries.row_entries(at).totals
        trained = TrainedRows(base[at], totals, train.column_counts)
        added_entries = group(at.size, entries.added.of_rows(at))
        latents[moved] = encoder.move_rows(trained, added_entries, columns)
    return latents


def unpack_latents(
    tensors: Tensors, entries: EntryStore, *, width: int, kind: str = "float32"
) -> tuple[Latents, Latents]:
    """Return the stored latents of rows and of columns; impossible ones raise `BadModelFile`."""
    form, found = _declare_latents(kind), []
    for axis, n_trained, n_known in zip(
        ("rows", "columns"),
        entries.train.shape,
        (len(entries.rows), len(entries.columns)),
        strict=True,
    ):
        sizes = {"known": n_known, "trained": n_trained, "width": width}
        latents = Latents(**form.read({}, tensors, prefix=f"latents.{axis}", **sizes))
        if np.count_nonzero(latents.positions >= n_trained) != n_known - n_trained:
            raise BadModelFile(f"some stored latents of {axis} are missing")
        found.append(latents)
    rows, columns = found
    if has_values_to_check(tensors) and not rows.products_are_finite(columns):
        raise BadModelFile("the stored latents are so large that their products are not finite")
    return rows, columns


def _declare_latents(kind: str) -> Form:
    return Form(
        Part("base", kind, ("trained", "width")),
        Part("positions", "int64", ("changed",), rising, positions_of("known")),
        Part("extra", kind, ("changed", "width")),
    )
