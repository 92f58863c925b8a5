"""Complete a matrix: predict every missing entry, as an array, as a frame, or streamed to a
file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import NotEnoughMemory
from deepmf.files import polars
from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.frame_file import find_label_type, write_frame_file
from deepmf.recommend.ranker import Rankers
from deepmf.recommend.ranking import batches
from deepmf.recommend.request import Order
from deepmf.scoring.predictor import Predictor
from deepmf.training.threads import count_free_main_bytes

# The largest completion in memory; complete_to streams larger ones.
MOST_BYTES = 8 << 30

_BYTES_A_VALUE = 8

_BYTES_A_LINE = 3 * 8  # of a long frame, at least: two labels and a value

_GIB = 1 << 30


class CompletedRows(NamedTuple):
    """Some completed rows: `values` (rows, columns), and which of them were observed."""

    rows: IndexArray
    values: FloatArray
    observed: BoolArray


# Rows whose entries tell whether rows choose what they like, and when they do: the correlation of
# value and presence within rows, and how many standard errors (of columns) it is above 0.
_MOST_ROWS, _LEAST_CORRELATION, _LEAST_ERRORS = 500, 0.1, 3.0


def describe_choice(rankers: Rankers, predictor: Predictor) -> str | None:
    """Return a sentence where rows choose what they like, or dislike, so that completed cells are
    biased; else None.

    The probability that a row has an entry is predicted from its other entries, and compared with
    the value.
    """
    entries = rankers.entries
    if rankers.presence is None or not entries.train.has_values:
        return None
    numbers = np.random.default_rng(0)
    rows = np.sort(numbers.permutation(len(entries.rows))[:_MOST_ROWS])
    relevance = rankers.make(predictor, entries.seen_columns, Order(rank_by="relevance")).relevance
    assert relevance is not None
    scores, row_entries = [], entries.seen_columns(rows)
    for part in np.array_split(
        np.arange(rows.size), max(1, rows.size * len(entries.columns) // (1 << 22))
    ):
        block = relevance.score_block(rows[part], slice(0, len(entries.columns)))
        part_entries = row_entries.take(part)
        scores.append(block[part_entries.group_of, part_entries.others])
    counts, line = np.diff(row_entries.starts), row_entries.group_of

    def centre(values: FloatArray) -> FloatArray:
        return (
            values
            - (np.bincount(line, values, minlength=counts.size) / np.maximum(counts, 1))[line]
        )

    presence = centre(np.log(np.maximum(np.concatenate(scores).astype(np.float64), 1e-6)))
    values = centre(row_entries.values)
    squares, products = float(presence @ presence), float(presence @ values)
    if squares <= 0 or not values.any():
        return None
    slope = products / squares
    residuals = np.bincount(row_entries.others, presence * (values - slope * presence))
    correlation = products / np.sqrt(squares * float(values @ values))
    if abs(correlation) < _LEAST_CORRELATION or abs(products) < _LEAST_ERRORS * np.linalg.norm(
        residuals
    ):
        return None
    likes, bias = ("like", "high") if correlation > 0 else ("dislike", "low")
    return (
        f"rows seem to choose what they {likes} (within rows, presence and value have a correlation of "
        f"{correlation:.2f}), so predictions for all other cells are probably too {bias}; entries of random cells, "
        "given to fit as asked, correct that"
    )


def complete_array(entries: EntryStore, predictor: Predictor) -> FloatArray:
    """Return the whole matrix, observed entries as they are."""
    shape = len(entries.rows), len(entries.columns)
    _check_memory(entries, shape[0] * shape[1] * _BYTES_A_VALUE)
    completed = np.empty(shape)
    for part in complete_rows(entries, predictor):
        completed[part.rows] = part.values
    return completed


def complete_frame(entries: EntryStore, predictor: Predictor) -> Any:
    """Return every missing entry as a long polars frame."""
    n_missing = len(entries.rows) * len(entries.columns) - entries.n_entries
    _check_memory(entries, n_missing * _BYTES_A_LINE)
    return polars.concat(_iterate_missing(entries, predictor))


def complete_to(entries: EntryStore, predictor: Predictor, path: str | Path) -> int:
    """Write every missing entry to a file in bounded memory, completely or not at all; return their
    number."""
    return write_frame_file(_iterate_missing(entries, predictor), _build_schema(entries), path)


def complete_rows(
    entries: EntryStore,
    predictor: Predictor,
    positions: IndexArray | None = None,
    observed_columns: Callable[[IndexArray], AxisEntries] | None = None,
    *,
    to_levels: bool = False,
) -> Iterator[CompletedRows]:
    """Complete some rows at a time: all, or the chosen positions of the predictor.

    observed_columns: maps positions of rows to their entries; default: those of the stored rows.
    to_levels: whether predictions become levels.
    """
    columns = np.arange(len(entries.columns))
    positions = np.arange(len(entries.rows)) if positions is None else positions
    for rows in batches(positions, width=columns.size):
        values = predictor.predict_block(rows, columns)
        values = predictor.readout.scale.nearest_level(values) if to_levels else values
        observed_entries = (observed_columns or entries.seen_columns)(rows)
        observed = np.zeros(values.shape, dtype=bool)
        places = observed_entries.group_of, observed_entries.others
        observed[places] = True
        values[places] = observed_entries.values
        yield CompletedRows(rows, values, observed)


def _check_memory(entries: EntryStore, n_bytes: int) -> None:
    free = count_free_main_bytes()
    most = MOST_BYTES if free is None else min(MOST_BYTES, free)
    if n_bytes > most:
        of = "that may be taken" if most == MOST_BYTES else "that is free"
        raise NotEnoughMemory(
            f"{len(entries.rows):,} rows x {len(entries.columns):,} columns take {n_bytes / _GIB:,.1f} GiB of memory "
            f"when completed, and {most / _GIB:.1f} GiB is all {of}; complete_to streams to a file"
        )


def _iterate_missing(entries: EntryStore, predictor: Predictor) -> Iterator[Any]:
    schema = _build_schema(entries)
    for part in complete_rows(entries, predictor):
        row_of, column_of = np.nonzero(~part.observed)
        labels = entries.rows.array[part.rows[row_of]], entries.columns.array[column_of]
        fields = zip(schema, (*labels, part.values[row_of, column_of]), strict=True)
        yield polars.DataFrame(dict(fields), schema=schema)


def _build_schema(entries: EntryStore) -> dict[str, Any]:
    """Return the column types of a completed frame, from the types of all labels."""
    form = entries.train.form
    row, column, value = form.names
    return {
        row: find_label_type(entries.rows.array),
        column: find_label_type(entries.columns.array),
        value: polars.Float64,
    }
