"""The latents of all rows, or of all columns: those from training, and those computed since."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deepmf.errors import TrainingDiverged
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries

Solve = Callable[[IndexArray], LatentArray]  # from positions to their latents


class Latents:
    """A table of latents (positions, latent) that can be changed and lengthened without copying the
    old one.

    Some latents are computed when they are first read, see `defer`.

    base: the trained latents, shared by all tables made from this one.
    positions: the positions whose latents were computed since, in increasing order, including all
        beyond the base.
    extra: their latents, (positions, latent).
    """

    def __init__(
        self,
        base: LatentArray,
        positions: IndexArray | None = None,
        extra: LatentArray | None = None,
    ) -> None:
        self.base = base
        self.positions = np.empty(0, dtype=np.int64) if positions is None else positions
        self._extra = np.empty((0, base.shape[1]), dtype=base.dtype) if extra is None else extra
        self._whole: LatentArray | None = base if self._extra.shape[0] == 0 else None
        self._is_due = np.zeros(self.positions.size, dtype=bool)
        self._solve: Solve | None = None

    @property
    def extra(self) -> LatentArray:
        """The latents at `positions`, (positions, latent)."""
        self._compute(np.flatnonzero(self._is_due))
        return self._extra

    def _compute(self, places: IndexArray) -> None:
        """Compute the latents that are due at some places of `positions`; twice in two threads does
        no harm."""
        if places.size and self._solve is not None:
            self._extra[places] = check_finite(self._solve(self.positions[places]))
            self._is_due[places] = False

    def __len__(self) -> int:
        last = int(self.positions[-1]) + 1 if self.positions.size else 0
        return max(int(self.base.shape[0]), last)

    def largest(self) -> FloatArray:
        """Return the largest absolute value of each latent (latent,), in double precision."""
        largest = np.zeros(self.base.shape[1])
        for part in (self.base, self.extra):
            if len(part):
                largest = np.maximum(largest, np.maximum(part.max(axis=0), -part.min(axis=0)))
        return largest

    def products_are_finite(self, others: Latents) -> bool:
        """Whether no inner product with the latents of the other axis can leave the range of their
        type."""
        with np.errstate(over="ignore"):
            return bool(
                (self.largest() * others.largest()).sum() <= float(np.finfo(self.base.dtype).max)
            )

    def take(self, positions: Array, fields: slice = slice(None)) -> LatentArray:
        """Return the latents at some positions, or some fields of them."""
        if self.positions.size == 0:  # as they came from training
            unchanged: LatentArray = self.base[:, fields][positions]
            return unchanged
        places = np.minimum(np.searchsorted(self.positions, positions), self.positions.size - 1)
        newer = self.positions[places] == positions
        if self._is_due.any():
            self._compute(np.unique(places[newer & self._is_due[places]]))
        in_base = np.where(newer, 0, positions)
        if len(self.base):
            rows: LatentArray = self.base[:, fields][in_base]
        else:
            rows = np.empty_like(
                self._extra[:, fields], shape=(positions.size, self._extra[:, fields].shape[1])
            )
        rows[newer] = self._extra[:, fields][places[newer]]
        return rows

    def products(self, vectors: LatentArray, columns: slice) -> LatentArray:
        """Return the products (vectors, positions) of vectors with the latents of a range of
        positions.

        The trained table is read in place; only latents that were computed since are copied.
        """
        if self.positions.size == 0:
            return vectors @ self.base[columns].T
        n_trained = max(min(columns.stop, len(self.base)) - columns.start, 0)
        products = np.empty(
            (len(vectors), columns.stop - columns.start), dtype=np.result_type(vectors, self.base)
        )
        products[:, :n_trained] = vectors @ self.base[columns.start : columns.start + n_trained].T
        newer = slice(*np.searchsorted(self.positions, [columns.start, columns.stop]))
        products[:, self.positions[newer] - columns.start] = vectors @ self.extra[newer].T
        return products

    def whole(self) -> LatentArray:
        """Return the latents of all positions; if some have changed, a copy that is made once."""
        if self._whole is None:
            self._whole = self.take(np.arange(len(self)))
        return self._whole

    def replace(self, positions: IndexArray, latents: LatentArray) -> Latents:
        """Return a table in which some positions, in increasing order, have other latents; these
        must be finite."""
        if self.positions.size == 0:
            return Latents(
                self.base, positions, check_finite(latents.astype(self.base.dtype, copy=False))
            )
        is_kept = ~np.isin(self.positions, positions, assume_unique=True)
        together = np.concatenate([self.positions[is_kept], positions])
        order = np.argsort(together, kind="stable")
        extra = np.concatenate([self._extra[is_kept], check_finite(latents)])[order]
        is_due = np.concatenate([self._is_due[is_kept], np.zeros(positions.size, dtype=bool)])[
            order
        ]
        return Latents(self.base, together[order], extra)._with_due(is_due, self._solve)

    def defer(self, positions: IndexArray, solve: Solve) -> Latents:
        """Return a table in which the latents of some positions are computed when they are first
        read.

        Latents that are due already are computed by the same function.
        """
        placed = self.replace(
            positions, np.zeros((positions.size, self.base.shape[1]), dtype=self.base.dtype)
        )
        return placed._with_due(placed._is_due | np.isin(placed.positions, positions), solve)

    def _with_due(self, is_due: BoolArray, solve: Solve | None) -> Latents:
        self._is_due, self._solve = is_due, solve
        return self

    def without(self, positions: IndexArray) -> Latents:
        """Return a table without the latents computed since training for some positions, in
        increasing order.

        Trained positions get their trained latents back; later positions are removed, and those
        behind move up.
        """
        is_kept = ~np.isin(self.positions, positions, assume_unique=True)
        if is_kept.all():
            return self
        behind = positions[positions >= len(self.base)]
        remaining = self.positions[is_kept]
        moved = Latents(
            self.base, remaining - np.searchsorted(behind, remaining), self._extra[is_kept]
        )
        return moved._with_due(self._is_due[is_kept], self._solve)


def check_finite(latents: LatentArray) -> LatentArray:
    """Return latents of new entries; refuse numbers that are not finite."""
    if not np.isfinite(latents).all():
        raise TrainingDiverged(
            "what was learned is too large: latents of new entries are not finite numbers"
        )
    return latents


def pair_products(
    row_latents: Latents, column_latents: Latents, rows: Array, columns: Array
) -> LatentArray:
    """Return the inner product of the latents of each pair of positions.

    Gathering latents is limited by memory bandwidth, so pairs are sorted by row, and a row's
    latents stay in the cache.
    """
    from deepmf.linalg.products import multiply_pairs

    order = np.argsort(rows, kind="stable")
    products = np.empty(rows.size, dtype=row_latents.base.dtype)
    places = rows[order], columns[order]
    products[order] = multiply_pairs(
        row_latents.take, column_latents.take, *places, like=row_latents.base
    )
    return products


def multiply_each(rows: Array, columns: Array, entries: AxisEntries) -> Array:
    """Return the product of latents of each entry; it is at a place of `columns`."""
    products: Array = np.einsum("ek,ek->e", rows[entries.group_of], columns[entries.others])
    return products
