"""Recommendations for many rows, streamed as frames to a file in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from deepmf.files import import_polars
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.recommend.ranker import Ranker
from deepmf.recommend.ranking import FRAME_FIELDS, RankedRows, Search, join_ranked, label_ranked, rank_batches
from deepmf.recommend.request import Request

_MOST_THREADS = 16  # that rank rows for a file; with more, they would wait for Python's lock

# Lines of a frame: a few megabytes, so that writing costs little beside ranking.
_LINES_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class Recommendations:
    """The n best columns of each of some rows, by position; `frames` ranks them some rows at a time."""

    search: Search
    rows: IndexArray

    @classmethod
    def of(cls, entries: EntryStore, ranker: Ranker, rows: Iterable[Any] | None, request: Request) -> Self:
        """Return the recommendations for some row labels, each once, or for all rows (None)."""
        positions = np.arange(len(entries.rows)) if rows is None else entries.rows.find_distinct(rows)
        return cls(Search.of(entries, ranker, entries.seen_columns, request), positions)

    @property
    def entries(self) -> EntryStore:
        """The entries of the model."""
        return self.search.entries

    @property
    def most_lines(self) -> int:
        """The largest number of lines of all frames together; rows with few columns left have fewer."""
        return int(self.rows.size) * self.search.n

    @property
    def schema(self) -> dict[str, Any]:
        """The column types of the frames, from the types of all labels."""
        from deepmf.data.frame_file import find_label_type

        polars, entries = import_polars(), self.entries
        form = entries.train.form
        row, column = form.name_ids_beside(FRAME_FIELDS)
        types = {row: find_label_type(entries.rows[:1]), "rank": polars.Int64}
        types |= {column: find_label_type(entries.columns[:1]), "prediction": polars.Float64}
        known = self.search.ranker.known_chances
        types |= {name: polars.Float64 for name in ("presence", "liked") if known[name]}
        types |= {"distribution": polars.List(polars.Float64)} if known["distribution"] else {}
        named = {row: entries.row_names, column: entries.column_names}
        return types | {f"{field}_name": polars.String for field, names in named.items() if names is not None}

    def frames(self) -> Iterator[Any]:
        """Yield polars frames with a line for each row and rank (from 1), the column, and what is known of it.

        That is the prediction, and where the model has them, the probabilities of `Ranking`.
        """
        waiting: list[RankedRows] = []
        n_lines = 0
        for part in rank_batches(self.search, self.rows, threads=min(torch.get_num_threads(), _MOST_THREADS)):
            waiting.append(part)
            n_lines += part.columns.size
            if n_lines >= _LINES_AT_A_TIME:
                yield self._build_frame(waiting)
                waiting, n_lines = [], 0
        if waiting:
            yield self._build_frame(waiting)

    def _build_frame(self, parts: list[RankedRows]) -> Any:
        best, schema = join_ranked(parts), self.schema
        frame = label_ranked(self.entries, best, self.entries.rows[best.rows]).to_frame()
        return frame.select(list(schema)).cast(schema)

    def write(self, path: str | Path) -> int:
        """Write the frames to a file, completely or not at all; return the number of lines."""
        from deepmf.data.frame_file import write_frame_file

        count = 0

        def count_lines() -> Iterator[Any]:
            nonlocal count
            for frame in self.frames():
                count += frame.height
                yield frame

        write_frame_file(count_lines(), self.schema, path)
        return count
