"""Checks of entries before they form a matrix: numbers, finite, on the scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, OffScale
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.labels import Labelled
from deepmf.matrix.scale import LARGEST, Scale


def numbers(values: Any, *, dimensions: int = 1) -> FloatArray:
    """Return values as float64; what is not a number is named."""
    if not isinstance(values, Iterable):
        raise BadEntries(f"values must be a list of numbers; got {values!r}")
    if not isinstance(values, np.ndarray):
        values = np.asarray(values if isinstance(values, list | tuple) else list(values))
    if values.dtype.kind in "cmM":  # numpy would drop the imaginary part, or count the days
        raise BadEntries(f"values of type {values.dtype} are not real numbers")
    if values.dtype.kind not in "fiub":
        values = _parsed(values)
    array: FloatArray = values.astype(np.float64, copy=False)
    if array.ndim != dimensions:
        raise BadEntries(f"values must have {dimensions} dimension(s); got shape {array.shape}")
    return array


def _parsed(values: npt.NDArray[Any]) -> FloatArray:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        for position, value in enumerate(values.ravel().tolist()):
            try:
                float(value)
            except (TypeError, ValueError):
                raise BadEntries(f"value {value!r} is not a number", position=position) from error
        raise BadEntries(f"values of type {values.dtype} are not numbers") from error


def check_finite(rows: Labelled, columns: Labelled, values: FloatArray) -> None:
    """Refuse a value that is NaN or infinite, or so large that a spread of such values is."""
    if values.size == 0 or (values.min() >= -LARGEST and values.max() <= LARGEST):  # NaN passes neither comparison
        return
    bad = int(np.flatnonzero(~(np.abs(values) <= LARGEST))[0])
    needed = (
        "values must be finite numbers" if not np.isfinite(values[bad]) else f"magnitudes up to {LARGEST:g} are taken"
    )
    raise BadEntries(f"{spot(rows, columns, bad)} has value {values[bad]}; {needed}", position=bad)


def check_on_scale(rows: Labelled, columns: Labelled, values: FloatArray, scale: Scale) -> None:
    """Refuse a value that the scale does not hold."""
    bad = np.flatnonzero(~scale.holds(values))
    if bad.size:
        raise OffScale(
            f"{spot(rows, columns, bad[0])} has value {values[bad[0]]:g}; the scale is {scale}",
            position=int(bad[0]),
        )


def spot(rows: Labelled, columns: Labelled, position: int) -> str:
    """Name the row and the column of an entry, for messages."""
    row, column = (axis.labels[axis.positions[[position]]].tolist()[0] for axis in (rows, columns))
    return f"row {row!r}, column {column!r}"
