"""Recommendations for many rows: frames with the best columns of some rows at a time, streamed to a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from deepmf.files.frame_library import import_polars
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.models.column_choice import ColumnChoice, choice_of
from deepmf.models.predictor import Predictor
from deepmf.models.ranking import RankedRows, check_n, ranked_batches
from deepmf.storage.frame_file import label_type, write_frame_file

# Lines of a frame: some megabytes, whose writing costs little beside their ranking.
_LINES_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class Recommendations:
    """The n best of some columns for each of some rows, by position; they are ranked while the frames are read."""

    entries: EntryStore
    predictor: Predictor
    rows: IndexArray
    choice: ColumnChoice
    n: int
    include_observed: bool

    @classmethod
    def of(
        cls,
        entries: EntryStore,
        predictor: Predictor,
        rows: Iterable[Any] | None,
        n: int,
        *,
        among: Iterable[Any] | None,
        exclude: Iterable[Any] | None,
        min_entries: int,
        include_observed: bool,
    ) -> Self:
        """Return the recommendations for rows with some labels, each once, or for all (None)."""
        check_n(n)
        positions = np.arange(len(entries.rows)) if rows is None else entries.rows.distinct_positions(rows)
        return cls(entries, predictor, positions, choice_of(entries, among, exclude, min_entries), n, include_observed)

    @property
    def most_lines(self) -> int:
        """How many lines the frames have together at most: rows with few columns left have fewer."""
        return int(self.rows.size) * min(self.n, self.choice.size)

    @property
    def schema(self) -> dict[str, Any]:
        """The types of the frames: those of the labels, whatever a batch happens to hold."""
        polars = import_polars()
        form = self.entries.train.form
        row, column = form.ids_beside(("rank", "prediction"))
        return {
            row: label_type(self.entries.rows[:1], form.row_type),
            "rank": polars.Int64,
            column: label_type(self.entries.columns[:1], form.column_type),
            "prediction": polars.Float64,
        }

    def frames(self) -> Iterator[Any]:
        """Yield polars frames with a line for each row and rank (from 1), the column and the prediction."""
        waiting: list[RankedRows] = []
        n_lines = 0
        observed = None if self.include_observed else self.entries.seen_columns
        for part in ranked_batches(self.predictor, self.rows, self.choice, self.n, observed=observed):
            waiting.append(part)
            n_lines += part.columns.size
            if n_lines >= _LINES_AT_A_TIME:
                yield self._frame(waiting)
                waiting, n_lines = [], 0
        if waiting:
            yield self._frame(waiting)

    def _frame(self, parts: list[RankedRows]) -> Any:
        """Return the lines of some rows."""
        polars, schema, entries = import_polars(), self.schema, self.entries
        rows, columns, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        line_of, place = np.nonzero(~np.isnan(values))
        found = (
            polars.Series(entries.rows[rows].tolist(), dtype=next(iter(schema.values()))).gather(line_of),
            place + 1,
            entries.columns[columns[line_of, place]].tolist(),
            values[line_of, place],
        )
        return polars.DataFrame(dict(zip(schema, found, strict=True)), schema=schema)

    def write(self, path: str | Path) -> int:
        """Write the frames to a file, whole or not at all; return how many lines it has."""
        count = 0

        def counted() -> Iterator[Any]:
            nonlocal count
            for frame in self.frames():
                count += frame.height
                yield frame

        write_frame_file(counted(), self.schema, path)
        return count
