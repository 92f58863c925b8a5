"""A table with columns of text or categories beside those of numbers: a frame, or an array of objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.utils import check_array

from deepmf.errors import BadEntries
from deepmf.matrix.arrays import FloatArray
from deepmf.sklearn.observed_table import CHECKS

_NOTHING = ("NAType", "NaTType")  # what is missing in pandas, which need not be here

ObjectArray = npt.NDArray[np.object_]
Orders = dict[int, tuple[Any, ...]]  # categories in their order, by the position of the column


@dataclass(frozen=True, eq=False)
class MixedTable:
    """The numbers of a table, and its columns of text or categories by position.

    >>> table = MixedTable.of(np.array([["red", 1.5], [None, "?"]], dtype=object), missing="?")
    >>> table.numbers, table.texts[0]
    (array([[nan, 1.5],
           [nan, nan]]), array(['red', None], dtype=object))
    """

    numbers: FloatArray  # (rows, columns) NaN where missing, and in all of the other columns
    texts: dict[int, ObjectArray]  # (rows,) each, None where missing
    orders: Orders  # of the columns whose categories have one

    @classmethod
    def of(cls, table: Any, *, missing: Any, texts: Iterable[int] | None = None) -> MixedTable | None:
        """Take a table apart; None where all of its columns are numbers.

        `texts` says which columns are not numbers; left out, those of which any cell is text or a category.
        """
        if scipy.sparse.issparse(table):
            return None
        return _of_frame(table, missing, texts) if hasattr(table, "columns") else _of_array(table, missing, texts)

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where nothing is observed (rows, columns)."""
        mask = np.isnan(self.numbers)
        for column, cells in self.texts.items():
            mask[:, column] = [cell is None for cell in cells]
        return mask


def with_columns(table: Any, columns: dict[Any, Any]) -> Any:
    """Return a frame of the same kind that has these columns: arrays, or lists for the types of the old columns."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    backend = frame.implementation
    made = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            made[name] = nw.new_series(str(name), values, backend=backend)
        elif backend.is_pandas_like():
            series, kind = type(table[name]), _holding(table[name].dtype, values)
            made[name] = nw.from_native(series(values, dtype=kind), series_only=True)
        else:
            made[name] = nw.new_series(name, values, _holding(frame.get_column(name).dtype, values), backend=backend)
    if not backend.is_pandas_like():
        return nw.from_dict(made, backend=backend).to_native()
    together = {name: series.to_native().set_axis(table.index) for name, series in made.items()}
    return type(table)(together)  # names that are no strings stay what they are


def _holding(kind: Any, values: list[Any]) -> Any:
    """Return a type of categories that holds all values; those that it did not know come last."""
    known = getattr(kind, "categories", None)
    more = [] if known is None else sorted(set(values) - set(known))
    if known is None or not more:
        return kind
    return type(kind)([*known, *more], kind.ordered) if hasattr(kind, "ordered") else type(kind)([*known, *more])


def _of_frame(table: Any, missing: Any, texts: Iterable[int] | None) -> MixedTable | None:
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    columns = [frame[:, at] for at in range(len(frame.columns))]
    for column in columns:
        if column.dtype.is_temporal():
            raise BadEntries(
                f"column {column.name!r} holds {column.dtype}; numbers, text and categories are filled in: "
                "leave it out, or make it a number"
            )
    cells = {
        at: _cells(column.to_list(), missing)
        for at, column in enumerate(columns)
        if isinstance(column.dtype, nw.String | nw.Categorical | nw.Enum | nw.Object)
    }
    if texts is None:
        named = [at for at in cells if not isinstance(columns[at].dtype, nw.Object) or _has_text(cells[at])]
        texts = [at for at in named if any(cell is not None for cell in cells[at])]
    orders = {at: tuple(kind.categories) for at in texts if isinstance(kind := columns[at].dtype, nw.Enum)}
    if not texts and not isinstance(missing, str):
        return None  # numbers that are objects: scikit-learn's own checks know them
    numbers = np.full(frame.shape, np.nan)
    for at, column in enumerate(columns):
        if at not in texts:
            numbers[:, at] = _numbers(cells[at] if at in cells else column.to_frame().to_native(), missing)
    return MixedTable(numbers, {at: cells.get(at, _cells(columns[at].to_list(), missing)) for at in texts}, orders)


def _of_array(table: Any, missing: Any, texts: Iterable[int] | None) -> MixedTable | None:
    array = np.array(table, dtype=object) if isinstance(table, list | tuple) else np.asanyarray(table)
    if array.ndim != 2 or (texts is None and array.dtype.kind not in "OUS"):
        return None
    columns = [_cells(array[:, at].tolist(), missing) for at in range(array.shape[1])]
    if texts is None:
        texts = [at for at, cells in enumerate(columns) if _has_text(cells)]
        if not texts and not isinstance(missing, str):
            return None
    numbers = np.full(array.shape, np.nan)
    for at, cells in enumerate(columns):
        if at not in texts:
            numbers[:, at] = _numbers(cells, missing)
    return MixedTable(numbers, {at: columns[at] for at in texts}, {})


def _numbers(column: Any, missing: Any) -> FloatArray:
    """Return a column that is no text as numbers."""
    if isinstance(column, np.ndarray):
        column = np.array([np.nan if cell is None else cell for cell in column], dtype=object)[:, None]
    values: FloatArray = check_array(column, **CHECKS, ensure_min_samples=0)[:, 0].astype(np.float64)
    if isinstance(missing, int | float):
        values[values == missing] = np.nan
    return values


def _cells(values: list[Any], missing: Any) -> ObjectArray:
    """Return the cells of a column as objects, None where missing."""
    cells = np.empty(len(values), dtype=object)
    cells[:] = [None if is_missing(value, missing) else value for value in values]
    return cells


def is_missing(value: Any, mark: Any) -> bool:
    """Say whether a cell is missing: by its kind, or because it is the mark of what is missing."""
    if value is None or type(value).__name__ in _NOTHING:
        return True
    if isinstance(value, float | np.floating) and np.isnan(value):
        return True
    return type(mark).__name__ not in _NOTHING and bool(value == mark)


def _has_text(cells: ObjectArray) -> bool:
    return any(isinstance(cell, str) for cell in cells)
