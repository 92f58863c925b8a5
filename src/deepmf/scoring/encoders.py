"""Encoders: latents of rows and columns from their entries, without training."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from deepmf.errors import CannotExtend
from deepmf.matrix.arrays import Array, IndexArray, LatentArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.scoring.arrivals import TrainedRows
from deepmf.scoring.latents import Latents
from deepmf.storage.model_file import Packed


class Scores(NamedTuple):
    """The scores of pairs.

    location: (pairs,), larger is better.
    fields: (pairs, fields), what a readout reads beside the location: cutpoints, or spreads.
    deviation: (pairs,), the standard deviation of the location by a posterior; None without one.
    """

    location: Array
    fields: LatentArray
    deviation: LatentArray | None = None

    @classmethod
    def of_values(cls, location: Array) -> Scores:
        """Return the scores of a member that says values alone."""
        return cls(location, np.empty((location.shape[0], 0), dtype=np.float32))


class Encoder(ABC):
    """Maps the entries of some rows, or of some columns, to latents, without training.

    sides: the numbers of a latent that are read beside the product of latents.
    """

    sides: slice = slice(0, 0)
    widens: ClassVar[bool] = False  # distributions by deviations, which the usual ones lack

    def read_location(self, products: Array, row_sides: LatentArray) -> Array:
        """Return the locations (rows, ...) of products, for the sides (rows, sides) of rows."""
        return products

    def read_fields(
        self, row_sides: LatentArray, column_sides: LatentArray | None = None
    ) -> LatentArray:
        """Return the fields (pairs, fields) of pairs with some sides; without columns, of rows."""
        return row_sides

    def read_deviation(
        self, row_sides: LatentArray, column_sides: LatentArray
    ) -> LatentArray | None:
        """Return the standard deviations (pairs,) by a posterior; None without one."""
        return None

    @abstractmethod
    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the latents of rows (or columns) with these entries over the trained columns (or
        rows)."""

    def pack(self) -> Packed:
        """Return the learned tensors by name."""
        return Packed({}, {})


class SolvingEncoder(Encoder):
    """Solves for the factors of a row given those of all columns that it has entries in, also of
    new ones.

    Factors are what others are solved by; a latent is made of them. The factors of new rows and
    columns are the `extra` of a table; those of trained ones are its `base`, unless the encoder has
    them itself.

    factor_type: the type in which factors are kept.
    moves_rows: whether trained rows move by their entries in new columns alone; otherwise all their
    entries are solved.
    """

    factor_type: ClassVar[str] = "float32"
    moves_rows: ClassVar[bool] = False

    @abstractmethod
    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the factors of rows (or columns) with these entries."""

    def move_rows(self, trained: TrainedRows, new: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of trained rows that also have some entries in new columns.

        They move from where training left them. The trained entries hold them there as far as their
        number says.
        """
        raise NotImplementedError

    def count_factors(self, n_latents: int) -> int:
        """Return how many of the first numbers of factors are kept, from those of a latent."""
        return n_latents

    def finish(self, axis: Axis, factors: LatentArray) -> LatentArray:
        """Return the latents of rows (or columns) with these factors."""
        return factors

    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        return self.finish(axis, self.solve(axis, entries, others))


class NoEncoder(Encoder):
    """For factors that belong to the rows and columns they were learned with."""

    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        raise CannotExtend(
            f"this model has one latent for each {axis} it was trained on, and cannot compute others"
        )


# Entries that are encoded at a time: some encoders take a gigabyte for them.
_ENTRIES_AT_A_TIME = 1 << 22


def split_by_entries(
    counts: IndexArray, *, most_entries: int = _ENTRIES_AT_A_TIME, most_vectors: int = sys.maxsize
) -> list[IndexArray]:
    """Return the positions of vectors with these entry counts, in order, in parts that fit into
    memory.

    A part has about `most_entries` entries, and at most `most_vectors` vectors.

    >>> [part.size for part in split_by_entries(np.full(10, 1 << 20))]
    [3, 4, 3]
    """
    places = np.arange(counts.size)
    part_of = np.cumsum(counts, dtype=np.int64) // most_entries + places // most_vectors
    return np.split(places, np.flatnonzero(np.diff(part_of)) + 1)
