"""An index of columns by the text of their ids, for searches as somebody types."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deepmf.matrix.entry_store import EntryStore


class FoundPage(NamedTuple):
    """The positions of one page of what was found, and how many there are on all pages."""

    positions: list[int]
    total: int


class ColumnIndex:
    """The ids of all columns as text without case, those with most entries first."""

    def __init__(self, entries: EntryStore) -> None:
        self.columns = entries.columns
        self.order: list[int] = np.argsort(-entries.column_counts, kind="stable").tolist()
        labels = entries.columns.array.tolist()
        self._texts = [str(labels[at]).casefold() for at in self.order]

    def search(self, text: str, *, offset: int, limit: int) -> FoundPage:
        """Return a page of the columns that begin with a text, then of those that contain it elsewhere."""
        wanted = text.casefold()
        if not wanted:
            return FoundPage(self.order[offset : offset + limit], len(self.order))
        first: list[int] = []
        later: list[int] = []
        for at, known in zip(self.order, self._texts, strict=True):
            if wanted in known:
                (first if known.startswith(wanted) else later).append(at)
        found = first + later
        return FoundPage(found[offset : offset + limit], len(found))
