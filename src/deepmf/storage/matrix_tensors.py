"""A matrix, its labels and its scale as tensors and JSON, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadModelFile, BadSetting, UserError
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale

Tensors = Mapping[str, npt.NDArray[Any]]

_ENCODING = ("utf-8", "surrogatepass")  # half surrogates come from odd file names; kept as given


class Packed(NamedTuple):
    """A part of a file: its JSON content, and its tensors, all of whose names begin with one prefix.

    >>> packed = pack_labels(Labels(["Alien", "Big"], axis="column"), "movies")
    >>> packed.content
    {'kind': 'str'}
    >>> unpack_labels("movies", *packed, axis="column")
    Labels(2 columns: 'Alien', 'Big')
    """

    content: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]


def pack_matrix(matrix: ObservedMatrix, prefix: str) -> Packed:
    """Return a matrix by row: where each row starts, the column and the value of each entry."""
    rows = pack_labels(matrix.rows, f"{prefix}.rows")
    columns = pack_labels(matrix.columns, f"{prefix}.columns")
    entries = {
        f"{prefix}.entries.starts": matrix.by_row.starts,
        f"{prefix}.entries.columns": matrix.by_row.columns,
        f"{prefix}.entries.values": matrix.values,
    }
    content = {"rows": rows.content, "columns": columns.content, "scale": pack_scale(matrix.scale)}
    return Packed(content, rows.tensors | columns.tensors | entries)


def unpack_matrix(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return the matrix that was packed; anything that could not have been one raises `BadModelFile`."""
    rows = unpack_labels(f"{prefix}.rows", _field(content, "rows"), tensors, axis="row")
    columns = unpack_labels(f"{prefix}.columns", _field(content, "columns"), tensors, axis="column")
    scale = unpack_scale(_field(content, "scale"))
    column_of = _vector(tensors, f"{prefix}.entries.columns", "int32", "int64")
    values = _vector(tensors, f"{prefix}.entries.values", "float32", "float64")
    starts = _vector(tensors, f"{prefix}.entries.starts", "int32", "int64")
    _check_starts(starts, len(rows), values.size, name=f"{prefix}.entries.starts")
    if column_of.size != values.size:
        raise BadModelFile(f"the stored matrix {prefix!r} has {column_of.size} columns for {values.size} values")
    if column_of.size and not (column_of.min() >= 0 and column_of.max() < len(columns)):
        raise BadModelFile(f"the stored matrix {prefix!r} has entries outside its {len(columns)} columns")
    row_of = np.repeat(np.arange(len(rows), dtype=starts.dtype), np.diff(starts))
    with _refusing(f"matrix {prefix!r}"), np.errstate(all="ignore"):
        return ObservedMatrix.from_positions(
            Labelled(rows, row_of), Labelled(columns, column_of), values.astype(np.float64), scale=scale
        )


def pack_labels(labels: Labels, prefix: str) -> Packed:
    """Return labels as one tensor of ints or floats, or as one text and where in it each string starts."""
    if labels.array.dtype.kind == "i":
        return Packed({"kind": "int"}, {f"{prefix}.labels": labels.array})
    items = labels.array.tolist()
    kind = type(items[0]) if items else str
    if kind is float:
        return Packed({"kind": "float"}, {f"{prefix}.labels": np.array(items, dtype=np.float64)})
    if kind is not str:
        raise BadSetting(f"{labels.axis} labels of type {kind.__name__} cannot be saved; use ints or strings")
    starts = np.zeros(len(items) + 1, dtype=np.int64)  # in characters
    np.cumsum(np.fromiter(map(len, items), dtype=np.int64, count=len(items)), out=starts[1:])
    text = np.frombuffer("".join(items).encode(*_ENCODING), dtype=np.uint8)
    return Packed({"kind": "str"}, {f"{prefix}.text": text, f"{prefix}.starts": starts})


def unpack_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    """Return the labels that were packed."""
    kind = _field(content, "kind")
    if kind == "int":
        array = _vector(tensors, f"{prefix}.labels", "int64")
    elif kind == "float":
        array = _vector(tensors, f"{prefix}.labels", "float64")
    elif kind == "str":
        array = _strings(prefix, tensors)
    else:
        raise BadModelFile(f"the stored {axis} labels are of the unknown kind {kind!r}")
    with _refusing(f"{axis} labels"):
        return Labels(array, axis=axis)


def pack_scale(scale: Scale) -> dict[str, Any]:
    """Return a scale as JSON content, exact to the bit."""
    if scale.levels is not None:
        return {"levels": scale.levels.tolist()}
    return {"low": scale.low, "high": scale.high}


def unpack_scale(content: Any) -> Scale:
    """Return the scale that was packed."""
    with _refusing("scale"):
        if not isinstance(content, dict) or "levels" not in content:
            return Scale(low=_number(_field(content, "low")), high=_number(_field(content, "high")))
        if not isinstance(content["levels"], list):
            raise BadModelFile(f"the levels of a stored scale must be a list; got {content['levels']!r}")
        return Scale(levels=[_number(level) for level in content["levels"]])


def _strings(prefix: str, tensors: Tensors) -> npt.NDArray[Any]:
    try:
        text = _vector(tensors, f"{prefix}.text", "uint8").tobytes().decode(*_ENCODING)
    except UnicodeDecodeError as error:
        raise BadModelFile(f"the tensor {prefix}.text is not UTF-8 ({error.reason})") from error
    starts = _vector(tensors, f"{prefix}.starts", "int64")
    _check_starts(starts, starts.size - 1, len(text), name=f"{prefix}.starts")
    items = [text[start:end] for start, end in pairwise(starts.tolist())]
    return np.fromiter(items, dtype=object, count=len(items))


def _check_starts(starts: npt.NDArray[Any], count: int, total: int, *, name: str) -> None:
    """Check that `starts` cuts `total` things into `count` pieces."""
    if starts.size != count + 1 or starts.size == 0:
        raise BadModelFile(f"the tensor {name} has {starts.size} elements; {max(count, 0) + 1} are needed")
    if starts[0] != 0 or starts[-1] != total or np.any(starts[1:] < starts[:-1]):
        raise BadModelFile(f"the tensor {name} must rise from 0 to {total}")


def _vector(tensors: Tensors, name: str, *types: str) -> npt.NDArray[Any]:
    if name not in tensors:
        raise BadModelFile(f"the tensor {name} is missing")
    array = tensors[name]
    if array.ndim != 1 or array.dtype.name not in types:
        raise BadModelFile(
            f"the tensor {name} must be a vector of {' or '.join(types)}; got {array.dtype} of shape {array.shape}"
        )
    return array


def _field(content: Any, name: str) -> Any:
    if not isinstance(content, dict) or name not in content:
        raise BadModelFile(f"the stored content lacks {name!r}")
    return content[name]


def _number(item: Any) -> float:
    if type(item) not in (int, float):
        raise BadModelFile(f"a stored scale is made of numbers; got {item!r}")
    try:
        return float(item)
    except OverflowError as error:
        raise BadModelFile("a stored scale is made of numbers of double precision; got a larger one") from error


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Say of what the user could mend elsewhere that it is the file that is wrong."""
    try:
        yield
    except BadModelFile:
        raise
    except UserError as error:
        raise BadModelFile(f"the stored {what} cannot be used: {error}") from error
