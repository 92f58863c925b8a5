"""Columns of text and categories as numbers: a column for each category, or one where categories have an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.scale import MOST_LEVELS
from deepmf.sklearn.mixed_table import MixedTable, ObjectArray


@dataclass(frozen=True, eq=False)
class ColumnCodes:
    """How the columns of a table become columns of numbers.

    A category without an order has a column of its own, 1 where a row has it and 0 where not; what is predicted is the
    category whose number is largest. Categories in an order are numbered, and the nearest is predicted.

    >>> table = MixedTable.of(np.array([["red", 1.5], ["blue", 2.5], [None, 3.5]], dtype=object), missing=np.nan)
    >>> codes = ColumnCodes.of(table, ["colour", "size"])
    >>> codes.names(["colour", "size"]), codes.encoded(table)[:2]
    (['colour=blue', 'colour=red', 'size'], array([[0. , 1. , 1.5],
           [1. , 0. , 2.5]]))
    """

    n_columns: int
    categories: dict[int, tuple[Any, ...]]  # by the position of a column
    ordered: frozenset[int]

    @classmethod
    def of(cls, table: MixedTable, names: Any) -> ColumnCodes:
        """Learn the categories of a table."""
        found = {}
        for at, cells in table.texts.items():
            seen = {cell for cell in cells if cell is not None}
            found[at] = table.orders[at] if at in table.orders else tuple(sorted(seen, key=lambda each: str(each)))
            if len(found[at]) > MOST_LEVELS:
                raise BadEntries(
                    f"column {names[at]!r} holds {len(found[at])} different texts; at most {MOST_LEVELS} are taken as "
                    "categories: leave the column out, or join rare ones"
                )
        return cls(table.numbers.shape[1], found, frozenset(table.orders))

    @property
    def sources(self) -> IndexArray:
        """Of each column of numbers, the column that it comes from."""
        widths = [len(self.categories[at]) if self._is_spread(at) else 1 for at in range(self.n_columns)]
        return np.repeat(np.arange(self.n_columns), widths)

    @property
    def are_shares(self) -> npt.NDArray[np.bool_]:
        """Of each column of numbers, whether it says of a category how much there is of it."""
        return np.array([self._is_spread(int(at)) for at in self.sources], dtype=bool)

    def names(self, names: Any) -> list[Any]:
        """Return the names of the columns of numbers."""
        return [
            name
            for at in range(self.n_columns)
            for name in (
                [f"{names[at]}={category}" for category in self.categories[at]] if self._is_spread(at) else [names[at]]
            )
        ]

    def encoded(self, table: MixedTable) -> FloatArray:
        """Return a table as numbers; a category that is not known is missing."""
        parts = []
        for at in range(self.n_columns):
            if at not in self.categories:
                parts.append(table.numbers[:, [at]])
                continue
            places = {category: place for place, category in enumerate(self.categories[at])}
            codes = np.array([places.get(cell, np.nan) for cell in table.texts[at]], dtype=np.float64)
            if self._is_spread(at):
                spread = (codes[:, None] == np.arange(len(places))).astype(np.float64)
                spread[np.isnan(codes)] = np.nan
                parts.append(spread)
            else:
                parts.append(codes[:, None])
        return np.hstack(parts)

    def decoded(self, numbers: FloatArray, table: MixedTable, random: np.random.Generator | None) -> list[Any]:
        """Return the columns of a completed table: arrays of numbers, lists of categories; observed cells as they were.

        With `random`, categories are drawn by their numbers as probabilities.
        """
        sources, columns = self.sources, list[Any]()
        for at in range(self.n_columns):
            own = numbers[:, sources == at]
            if at not in self.categories:
                columns.append(own[:, 0])
            else:
                columns.append(self._filled(at, own, table.texts[at], random))
        return columns

    def _filled(self, at: int, own: FloatArray, cells: ObjectArray, random: np.random.Generator | None) -> list[Any]:
        known = self.categories[at]
        if not self._is_spread(at):
            places = np.clip(np.rint(own[:, 0]), 0, len(known) - 1)
        elif random is None:
            places = own.argmax(axis=1)
        else:
            chances = np.clip(own, 1e-9, None)
            cumulative = np.cumsum(chances, axis=1) / chances.sum(axis=1, keepdims=True)
            places = (cumulative[:, :-1] < random.random((len(own), 1))).sum(axis=1)
        return [known[int(place)] if cell is None else cell for cell, place in zip(cells, places, strict=True)]

    def _is_spread(self, at: int) -> bool:
        return at in self.categories and at not in self.ordered
