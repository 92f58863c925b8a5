"""Labels as tensors and JSON, and back."""

from __future__ import annotations

import reprlib
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.label_kinds import AS_TEXT, ENCODING, TextKind, stored_kind
from deepmf.matrix.labels import Labels
from deepmf.matrix.text_labels import has_half_characters
from deepmf.storage.packed import Packed, Tensors, check_starts, field, refusing, vector

KINDS = ("int", "float", *AS_TEXT)


def check_storable(labels: Labels) -> None:
    """Refuse labels that no file can hold, before anything is learned that could not be kept."""
    if stored_kind(labels) == "str" and has_half_characters(labels):
        raise BadSetting(f"some {labels.axis} labels hold half of a surrogate pair, which no text file can hold")


def pack_labels(labels: Labels, prefix: str) -> Packed:
    """Return labels as one tensor of ints or floats, or as one text and where in it each label starts.

    >>> packed = pack_labels(Labels(["Alien", "Big"], axis="column"), "movies")
    >>> packed.content
    {'kind': 'str'}
    >>> unpack_labels("movies", *packed, axis="column")
    Labels(2 columns: 'Alien', 'Big')
    """
    kind = stored_kind(labels)
    if kind == "int":
        return Packed({"kind": kind}, {f"{prefix}.labels": labels.array})
    if kind == "float":
        return Packed({"kind": kind}, {f"{prefix}.labels": labels.array.astype(np.float64)})
    items = list(map(AS_TEXT[kind].write, labels.array.tolist()))
    starts = np.zeros(len(items) + 1, dtype=np.int64)  # in characters
    np.cumsum(np.fromiter(map(len, items), dtype=np.int64, count=len(items)), out=starts[1:])
    text = np.frombuffer("".join(items).encode(*ENCODING), dtype=np.uint8)
    return Packed({"kind": kind}, {f"{prefix}.text": text, f"{prefix}.starts": starts})


def unpack_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    """Return the labels that were packed."""
    kind = field(content, "kind")
    if kind == "int":
        array = vector(tensors, f"{prefix}.labels", "int64")
    elif kind == "float":
        array = vector(tensors, f"{prefix}.labels", "float64")
    elif isinstance(kind, str) and kind in AS_TEXT:
        array = _from_text(prefix, tensors, AS_TEXT[kind])
    else:
        raise BadModelFile(f"the stored {axis} labels are of the unknown kind {reprlib.repr(kind)}")
    with refusing(f"{axis} labels"):
        return Labels(array, axis=axis)


def _from_text(prefix: str, tensors: Tensors, kind: TextKind) -> npt.NDArray[Any]:
    try:
        text = vector(tensors, f"{prefix}.text", "uint8").tobytes().decode(*ENCODING)
    except UnicodeDecodeError as error:
        raise BadModelFile(f"the tensor {prefix}.text is not UTF-8 ({error.reason})") from error
    starts = vector(tensors, f"{prefix}.starts", "int64")
    check_starts(starts, starts.size - 1, len(text), name=f"{prefix}.starts")
    items = [text[start:end] for start, end in pairwise(starts.tolist())]
    labels = items if kind.type is str else [_read(item, kind) for item in items]
    return np.fromiter(labels, dtype=object, count=len(labels))


def _read(text: str, kind: TextKind) -> Any:
    """Return the label that a text stands for."""
    try:
        return kind.label(text)
    except ValueError as error:
        raise BadModelFile(f"the stored label {text!r} is no {kind.type.__name__}") from error
