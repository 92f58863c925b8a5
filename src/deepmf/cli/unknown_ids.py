"""Ids of files that the model may not know: read, refused with the name of the file, or counted in a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.cli.inputs import called, like_labels, relabelled
from deepmf.errors import BadEntries, DeepMFWarning, UnknownLabel

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.model import Model

_OUTCOMES = {"nan": "have no prediction", "fallback": "are predicted by the means of what is known"}


class Ids(NamedTuple):
    """The ids of one field of a file.

    labels: of the kind that the model has.
    shown: as they are written, typed as in the file: of text the labels, or all as text where some are not such.
    """

    labels: npt.NDArray[Any]
    shown: pl.Series


def ids_of(ids: pl.Series, known: npt.NDArray[Any], source: str, *, axis: str, unknown: str) -> Ids:
    """Return ids as labels of the kind that the model has.

    One that is not of that kind is unknown: an error, or a label that nobody has.
    """
    import numpy as np
    import polars

    from deepmf.data.ids import whole_or_null

    if ids.null_count():
        raise BadEntries(f"{source}: pair {ids.is_null().arg_max()} has no {axis} id")
    try:
        texts = ids.cast(polars.String)
    except polars.exceptions.PolarsError as error:
        raise BadEntries(f"{source}: the {axis} ids are of type {ids.dtype}; ints or texts are needed") from error
    plain = np.array(texts.to_list(), dtype=object)
    typed = texts if ids.dtype == polars.String else ids
    if known.size == 0 or isinstance(known[0], str):
        return Ids(plain, typed)
    is_whole = known.dtype.kind == "i"
    numbers = whole_or_null(texts) if is_whole else texts.cast(polars.Float64, strict=False)
    wrong = numbers.is_null()
    if not wrong.any():
        return Ids(numbers.to_numpy(), numbers if typed is texts else ids)
    if unknown == "error":
        n_more = texts.filter(wrong).n_unique() - 1
        more = f" (and {n_more} more)" if n_more else ""
        kind = "whole numbers" if is_whole else "numbers"
        raise UnknownLabel(f"{axis} {texts.filter(wrong)[0]!r} is not known{more}; the model's {axis}s are {kind}")
    lowest = min([*numbers.filter(~wrong).to_list(), *known.tolist()])
    beyond = lowest - texts.rank("dense").cast(numbers.dtype)  # below all numbers: nobody has such a label
    return Ids(polars.select(polars.when(wrong).then(beyond).otherwise(numbers)).to_series().to_numpy(), typed)


def with_ids_like(
    matrix: ObservedMatrix, rows: npt.NDArray[Any], columns: npt.NDArray[Any], path: Path, *, unknown: str
) -> ObservedMatrix:
    """Return entries with ids of the kind of known labels: numbers too, where a text among them made all ids texts."""
    import polars

    matrix = like_labels(matrix, rows, columns)
    ids = []
    for axis, labels, known in (("row", matrix.row_labels, rows), ("column", matrix.column_labels, columns)):
        are_texts = labels.dtype.kind == "O" and labels.size > 0 and isinstance(labels[0], str)
        if are_texts and not (known.size and isinstance(known[0], str)):
            ids.append(ids_of(polars.Series(labels.tolist()), known, called(path), axis=axis, unknown=unknown).labels)
        else:
            ids.append(labels)
    return relabelled(matrix, *ids)


@contextmanager
def refused_by_file(path: Path) -> Iterator[None]:
    """Say of unknown ids in which file they are, and which options would accept them."""
    try:
        yield
    except UnknownLabel as error:
        from deepmf.evaluation.area_evaluation import UNKNOWN_HINT

        said = str(error).removesuffix(f"; {UNKNOWN_HINT}")  # an evaluation has said it already
        raise UnknownLabel(f"{called(path)}: {said}; {UNKNOWN_HINT}") from error


def tell_unknown(model: Model, path: Path, rows: npt.NDArray[Any], columns: npt.NDArray[Any], unknown: str) -> int:
    """Tell in one line how many pairs of a file have an unknown row or column, and return that number."""
    counts = UnknownCounts.of(model.entries_.rows, model.entries_.columns, rows, columns)
    if counts.n_pairs:
        counts.tell(path, "the model does not know", f"pairs {_OUTCOMES[unknown]}")
    return counts.n_pairs


@dataclass(frozen=True)
class UnknownCounts:
    """How many of some pairs have an unknown row or column, and how many rows and columns that are."""

    n_all: int
    n_pairs: int
    n_rows: int
    n_columns: int

    @classmethod
    def of(
        cls, known_rows: Labels, known_columns: Labels, rows: npt.NDArray[Any], columns: npt.NDArray[Any]
    ) -> UnknownCounts:
        """Count the pairs of rows and columns that are not all among the known labels."""
        import numpy as np

        from deepmf.matrix.label_arrays import n_distinct

        new_rows, new_columns = known_rows.find(rows) < 0, known_columns.find(columns) < 0
        return cls(
            n_all=rows.size,
            n_pairs=int(np.count_nonzero(new_rows | new_columns)),
            n_rows=n_distinct(rows[new_rows]),
            n_columns=n_distinct(columns[new_columns]),
        )

    def tell(self, path: Path, who: str, outcome: str) -> None:
        """Tell in one line of warning which file has them, and what comes of them."""
        warnings.warn(
            f"{called(path)}: {who} {self}; {self.n_pairs:,} of {self.n_all:,} {outcome}", DeepMFWarning, stacklevel=1
        )

    def __str__(self) -> str:
        counts = {"row": self.n_rows, "column": self.n_columns}
        return " and ".join(f"{count:,} {axis}{'s' * (count > 1)}" for axis, count in counts.items() if count)
