"""Ids of files that the model may not know: read, refused with the name of the file, or counted in a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.cli.inputs import called, like_model, relabelled
from deepmf.errors import BadEntries, DeepMFWarning, UnknownLabel

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.model import Model

_OUTCOMES = {"nan": "have no prediction", "fallback": "are predicted by the means of what is known"}


class Ids(NamedTuple):
    """The ids of one field of a file.

    labels: of the kind that the model has.
    shown: as they are written: the labels, or all as text where some are not of that kind.
    """

    labels: npt.NDArray[Any]
    shown: npt.NDArray[Any]


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
    if known.size == 0 or isinstance(known[0], str):
        return Ids(plain, plain)
    is_whole = known.dtype.kind == "i"
    numbers = whole_or_null(texts) if is_whole else texts.cast(polars.Float64, strict=False)
    wrong = numbers.is_null()
    if not wrong.any():
        return Ids(numbers.to_numpy(), numbers.to_numpy())
    if unknown == "error":
        n_more = texts.filter(wrong).n_unique() - 1
        more = f" (and {n_more} more)" if n_more else ""
        kind = "whole numbers" if is_whole else "numbers"
        raise UnknownLabel(f"{axis} {texts.filter(wrong)[0]!r} is not known{more}; the model's {axis}s are {kind}")
    lowest = min([*numbers.filter(~wrong).to_list(), *known.tolist()])
    beyond = lowest - texts.rank("dense").cast(numbers.dtype)  # below all numbers: nobody has such a label
    return Ids(polars.select(polars.when(wrong).then(beyond).otherwise(numbers)).to_series().to_numpy(), plain)


def read_as_model(matrix: ObservedMatrix, model: Model, path: Path, *, unknown: str) -> ObservedMatrix:
    """Return entries with ids of the model's kind: numbers too, where a single text among them made all ids texts."""
    import polars

    matrix = like_model(matrix, model)
    ids = []
    for axis, labels, known in (
        ("row", matrix.row_labels, model.row_labels_),
        ("column", matrix.column_labels, model.column_labels_),
    ):
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
    import numpy as np

    seen = model.entries_
    new_rows, new_columns = seen.rows.find(rows) < 0, seen.columns.find(columns) < 0
    n_pairs = int(np.count_nonzero(new_rows | new_columns))
    if n_pairs:
        from deepmf.matrix.labels import n_distinct

        counts = {"row": n_distinct(rows[new_rows]), "column": n_distinct(columns[new_columns])}
        told = " and ".join(f"{count:,} {axis}{'s' * (count > 1)}" for axis, count in counts.items() if count)
        warnings.warn(
            f"{called(path)}: the model does not know {told}; {n_pairs:,} of {rows.size:,} pairs {_OUTCOMES[unknown]}",
            DeepMFWarning,
            stacklevel=1,
        )
    return n_pairs
