"""Labels as tensors and JSON, and back; the one place that knows which kinds of labels a file can hold."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.labels import Labels
from deepmf.storage.packed import Packed, Tensors, check_starts, field, refusing, vector

_ENCODING = ("utf-8", "surrogatepass")  # half surrogates come from odd file names; kept as given


class _AsText(NamedTuple):
    """A kind of label that is stored as text: the type of its labels, and the way there and back."""

    type: type
    write: Callable[[Any], str]
    read: Callable[[str], Any]


_AS_TEXT = {
    kind.type.__name__: kind
    for kind in (
        _AsText(str, str, str),
        _AsText(bool, str, {"False": False, "True": True}.__getitem__),
        _AsText(bytes, lambda label: label.decode("latin-1"), lambda text: text.encode("latin-1")),
        _AsText(date, date.isoformat, date.fromisoformat),
        _AsText(datetime, datetime.isoformat, datetime.fromisoformat),
        _AsText(Decimal, str, Decimal),
        _AsText(UUID, str, UUID),
    )
}
KINDS = ("int", "float", *_AS_TEXT)


def check_storable(labels: Labels) -> None:
    """Refuse labels that no file can hold, before anything is learned that could not be kept."""
    _stored_kind(labels)


def pack_labels(labels: Labels, prefix: str) -> Packed:
    """Return labels as one tensor of ints or floats, or as one text and where in it each label starts.

    >>> packed = pack_labels(Labels(["Alien", "Big"], axis="column"), "movies")
    >>> packed.content
    {'kind': 'str'}
    >>> unpack_labels("movies", *packed, axis="column")
    Labels(2 columns: 'Alien', 'Big')
    """
    kind = _stored_kind(labels)
    if kind == "int":
        return Packed({"kind": kind}, {f"{prefix}.labels": labels.array})
    if kind == "float":
        return Packed({"kind": kind}, {f"{prefix}.labels": labels.array.astype(np.float64)})
    items = list(map(_AS_TEXT[kind].write, labels.array.tolist()))
    starts = np.zeros(len(items) + 1, dtype=np.int64)  # in characters
    np.cumsum(np.fromiter(map(len, items), dtype=np.int64, count=len(items)), out=starts[1:])
    text = np.frombuffer("".join(items).encode(*_ENCODING), dtype=np.uint8)
    return Packed({"kind": kind}, {f"{prefix}.text": text, f"{prefix}.starts": starts})


def unpack_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    """Return the labels that were packed."""
    kind = field(content, "kind")
    if kind == "int":
        array = vector(tensors, f"{prefix}.labels", "int64")
    elif kind == "float":
        array = vector(tensors, f"{prefix}.labels", "float64")
    elif isinstance(kind, str) and kind in _AS_TEXT:
        array = _from_text(prefix, tensors, _AS_TEXT[kind])
    else:
        raise BadModelFile(f"the stored {axis} labels are of the unknown kind {reprlib.repr(kind)}")
    with refusing(f"{axis} labels"):
        return Labels(array, axis=axis)


def _stored_kind(labels: Labels) -> str:
    """Return the kind that a file calls labels by."""
    if labels.array.dtype.kind == "i":
        return "int"
    found = type(labels.array[0]) if len(labels) else str
    if found is datetime and any(type(label.tzinfo) not in (type(None), timezone) for label in labels.array):
        raise BadSetting(
            f"{labels.axis} labels with a named time zone cannot be saved, such as {labels.array[0]!r}; "
            "use times in UTC, or strings"
        )
    known = {float: "float"} | {kind.type: name for name, kind in _AS_TEXT.items()}
    if found not in known:
        raise BadSetting(
            f"{labels.axis} labels of type {found.__name__} cannot be saved, such as {labels.array[0]!r}; "
            "use ints or strings"
        )
    return known[found]


def _from_text(prefix: str, tensors: Tensors, kind: _AsText) -> npt.NDArray[Any]:
    try:
        text = vector(tensors, f"{prefix}.text", "uint8").tobytes().decode(*_ENCODING)
    except UnicodeDecodeError as error:
        raise BadModelFile(f"the tensor {prefix}.text is not UTF-8 ({error.reason})") from error
    starts = vector(tensors, f"{prefix}.starts", "int64")
    check_starts(starts, starts.size - 1, len(text), name=f"{prefix}.starts")
    items = [text[start:end] for start, end in pairwise(starts.tolist())]
    labels = items if kind.type is str else [_read(item, kind) for item in items]
    return np.fromiter(labels, dtype=object, count=len(labels))


def _read(text: str, kind: _AsText) -> Any:
    """Return the label that a text stands for; only the text that the label is written as is read."""
    try:
        label = kind.read(text)
    except (ValueError, LookupError, ArithmeticError) as error:  # ArithmeticError: of decimals
        raise BadModelFile(f"the stored label {text!r} is no {kind.type.__name__}") from error
    if kind.write(label) != text:
        raise BadModelFile(f"the stored label {text!r} is no {kind.type.__name__}")
    return label
