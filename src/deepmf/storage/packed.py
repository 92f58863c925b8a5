"""A part of a file: its content and its tensors, and the checks before anything is built from them."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadModelFile, UserError

Tensors = Mapping[str, npt.NDArray[Any]]


class MappedTensors(dict[str, npt.NDArray[Any]]):
    """Tensors that are mapped into memory: their types and shapes are checked, their values are read where needed."""


class Packed(NamedTuple):
    """A part of a file: its JSON content, and its tensors, all of whose names begin with one prefix."""

    content: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]


def field(content: Any, name: str) -> Any:
    """Return what is stored under a name."""
    if not isinstance(content, dict) or name not in content:
        raise BadModelFile(f"the stored content lacks {name!r}")
    return content[name]


def number(item: Any, what: str) -> float:
    """Return a stored number in double precision."""
    if type(item) not in (int, float):
        raise BadModelFile(f"{what} is made of numbers; got {reprlib.repr(item)}")
    try:
        return float(item)
    except OverflowError as error:
        raise BadModelFile(f"{what} is made of numbers of double precision; got a larger one") from error


def has_values_to_check(tensors: Tensors) -> bool:
    """Say whether all values are checked before anything is built: those that are mapped into memory are not."""
    return not isinstance(tensors, MappedTensors)


def vector(tensors: Tensors, name: str, *types: str) -> npt.NDArray[Any]:
    """Return a stored vector of one of some types."""
    array = _tensor(tensors, name)
    if array.ndim != 1 or array.dtype.name not in types:
        raise BadModelFile(
            f"the tensor {name} must be a vector of {' or '.join(types)}; got {array.dtype} of shape {array.shape}"
        )
    return array


def numbers(tensors: Tensors, name: str, kind: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """Return a stored tensor of finite numbers, of one type and shape; None stands for any length."""
    array = _tensor(tensors, name)
    fits = array.ndim == len(shape) and all(
        wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype.name != kind:
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise BadModelFile(
            f"the tensor {name} must be of {kind} and of shape ({wanted}); got {array.dtype} of shape {array.shape}"
        )
    if has_values_to_check(tensors):
        check_finite(name, array)
    return array


def check_finite(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse a tensor with NaN or infinities, in one pass and without another array where there are none."""
    if array.dtype.kind != "f":
        return
    with np.errstate(all="ignore"):
        suspicious = not np.isfinite(array.sum())  # a sum may also merely overflow
    if suspicious and not np.isfinite(array).all():
        raise BadModelFile(f"the tensor {name} must be of finite numbers; some are not")


def check_ends(starts: npt.NDArray[Any], count: int, total: int, *, name: str) -> None:
    """Check that `starts` may cut `total` things into `count` pieces, by its length and its two ends."""
    if starts.size != count + 1 or starts.size == 0:
        raise BadModelFile(f"the tensor {name} has {starts.size} elements; {max(count, 0) + 1} are needed")
    if starts[0] != 0 or starts[-1] != total:
        raise BadModelFile(f"the tensor {name} must rise from 0 to {total}")


def check_starts(starts: npt.NDArray[Any], count: int, total: int, *, name: str) -> None:
    """Check that `starts` cuts `total` things into `count` pieces."""
    check_ends(starts, count, total, name=name)
    if np.any(starts[1:] < starts[:-1]):
        raise BadModelFile(f"the tensor {name} must rise from 0 to {total}")


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn user errors into errors of the file."""
    try:
        yield
    except BadModelFile:
        raise
    except UserError as error:
        raise BadModelFile(f"the stored {what} cannot be used: {error}") from error


def _tensor(tensors: Tensors, name: str) -> npt.NDArray[Any]:
    if name not in tensors:
        raise BadModelFile(f"the tensor {name} is missing")
    return tensors[name]
