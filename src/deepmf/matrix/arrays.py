"""Types of arrays, and arrays of the numbers in a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, show_value

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]  # numbers, labels or objects
BoolArray = npt.NDArray[np.bool_]  # whether something holds, for each position, entry or pair
ObjectArray = npt.NDArray[np.object_]  # Python objects, such as names
FloatArray = npt.NDArray[np.float64]  # values, in the units of the scale
ValueArray = npt.NDArray[np.floating[Any]]  # values, in single precision where that is exact
IndexArray = npt.NDArray[np.integer[Any]]  # positions on an axis or in an array
IndexPair = tuple[IndexArray, IndexArray]  # positions of rows, and of columns
SingleArray = npt.NDArray[np.float32]  # numbers in single precision
LatentArray = npt.NDArray[np.float32]  # latents, (rows or columns, latent)

Numbers = TypeVar("Numbers", Array, "Tensor")  # for functions of either
AnyArray: TypeAlias = Any  # an array of numpy, or a tensor of torch


def to_numbers(numbers: Any, *, dimensions: int = 1, noun: str = "value") -> FloatArray:
    """Return a list of numbers as a float64 array; an error names the first that is no number."""
    if not isinstance(numbers, Iterable):
        raise BadEntries(f"{noun}s must be a list of numbers; got {show_value(numbers)}")
    items = numbers if isinstance(numbers, np.ndarray | list | tuple) else list(numbers)
    try:
        array: Array = np.asanyarray(items)
    except ValueError as error:  # lists of several lengths
        raise BadEntries(
            f"{noun}s must be numbers, in lists of one length; got {show_value(items)}"
        ) from error
    if array.dtype.kind in "cmM":  # numpy would drop the imaginary part, or count the days
        raise BadEntries(f"{noun}s of type {array.dtype} are not real numbers")
    if array.dtype.kind not in "fiub":
        array = _parse_numbers(array, noun)
    if array.ndim != dimensions:
        raise BadEntries(f"{noun}s must have {dimensions} dimension(s); got shape {array.shape}")
    return array.astype(np.float64, copy=False)


def _parse_numbers(numbers: Array, noun: str) -> FloatArray:
    try:
        return numbers.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        for position, number in enumerate(numbers.ravel().tolist()):
            try:
                float(number)
            except (TypeError, ValueError, OverflowError) as reason:
                is_large = isinstance(reason, OverflowError)
                problem = "is too large for 64 bits" if is_large else "is not a number"
                message = f"{noun} {show_value(number)} {problem}"
                raise BadEntries(message, position=position) from reason
        raise BadEntries(f"{noun}s of type {numbers.dtype} are not numbers") from error


def check_years(moments: Array, noun: str = "time") -> None:
    """Refuse moments of numpy beyond the years of Python, which finer units may not hold."""
    years = moments.astype("datetime64[Y]").astype(np.int64) + 1970
    bad = np.flatnonzero(~np.isnat(moments) & ((years < date.min.year) | (years > date.max.year)))
    if bad.size:
        position = int(bad[0])
        raise BadEntries(
            f"the {noun} {moments[position]} lies outside the years 1 to 9999", position=position
        )


def fetch(array: AnyArray) -> Array:
    """Return an array of numpy, from wherever it is."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def send_like(array: Array, like: AnyArray) -> AnyArray:
    """Return a copy of an array in the library, in the type and on the device of another one."""
    return array.astype(like.dtype) if isinstance(like, np.ndarray) else like.new_tensor(array)


def iterate_pieces(values: Array, size: int = 1 << 20) -> Iterator[Array]:
    """Yield slices of an array, so that a computation over it takes little memory."""
    for start in range(0, values.size, size):
        yield values[start : start + size]


def is_missing(item: Any) -> bool:
    """Whether a value is None, NaN, NaT, NA or blank."""
    if isinstance(item, str):
        return not item or item.isspace()
    if item is None or item is np.ma.masked:
        return True
    if isinstance(item, float | np.floating | np.datetime64 | Decimal):
        return bool(item != item)
    # types of pandas, which need not be installed
    return type(item).__name__ in ("NAType", "NaTType")
