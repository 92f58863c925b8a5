"""Types of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

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


def iterate_pieces(values: Array, size: int = 1 << 20) -> Iterator[Array]:
    """Yield slices of an array, so that a computation over it takes little memory."""
    for start in range(0, values.size, size):
        yield values[start : start + size]
