"""Matrices, names and encoded features as they come back from model files and stores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import (
    CYCLES,
    ENCODINGS_OF_KINDS,
    LARGEST_WEIGHT,
    ColumnEncoding,
    FeatureEncoding,
    FeatureVectors,
)
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.labels import AS_TEXT, Labels, TextLabels, find_stored_kind
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.names import Names
from deepmf.matrix.packed import STORE, TEXTS, pack_labels, unpack_labels, unpack_parts
from deepmf.storage.model_file import (
    Packed,
    StoredFile,
    Tensors,
    map_file,
    refuse_stored,
    verify_file,
)
from deepmf.storage.parts import (
    Check,
    Form,
    Part,
    between,
    distinct,
    one_of,
    positions_of,
    positive,
    rising,
)

# Matrices


def unpack_matrix(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return a matrix that was packed for a file; raise `BadModelFile` for impossible content."""
    return ObservedMatrix.from_parts(**unpack_parts(prefix, content, tensors))


def open_store(path: Path) -> ObservedMatrix:
    """Open a store after a check of its header, its positions and its values."""
    return _unpack_store(path, map_file(path, kind=STORE))


def verify_store(path: Path) -> ObservedMatrix:
    """Open a store after comparing all its values with their checksum."""
    return _unpack_store(path, verify_file(path, kind=STORE))


def _unpack_store(path: Path, stored: StoredFile) -> ObservedMatrix:
    try:
        return unpack_matrix(STORE, stored.content, stored.tensors)
    except BadModelFile as error:
        raise error.locate(f"{path} is not a whole store") from error


# Labels and names


def check_storable(labels: Labels) -> None:
    """Refuse labels that cannot be stored, before training."""
    if (kind := find_stored_kind(labels)) in AS_TEXT:
        TextLabels.from_labels(labels, kind)


def pack_names(names: Names, prefix: str) -> Packed:
    """Return names as tensors: their labels, and their texts.

    >>> packed = pack_names(Names({7: "Alien", 9: "Big"}, axis="column"), "column_names")
    >>> unpack_names("column_names", *packed, axis="column")
    Names({7: 'Alien', 9: 'Big'}, axis='column')
    """
    labels = pack_labels(Labels(list(names), axis=names.axis), f"{prefix}.ids")
    texts = TEXTS.pack(
        TextLabels.encode(list(names.values()), kind="str", axis=names.axis), prefix=prefix
    )
    return Packed(labels.content, labels.tensors | texts.tensors)


def unpack_names(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Names:
    """Return the packed names; raise `BadModelFile` for impossible content."""
    labels = unpack_labels(f"{prefix}.ids", content, tensors, axis=axis)
    parts = TEXTS.read({}, tensors, prefix=prefix, labels=len(labels))
    with refuse_stored(f"{axis} names"):
        texts = TextLabels(**parts, kind="str", is_sorted=False, axis=axis).array.tolist()
    if not all(texts):
        raise BadModelFile(f"the stored {axis} names must not be empty")
    return Names(dict(zip(labels.array.tolist(), texts, strict=True)), axis=axis)


# Features

_NAME = Part("name", "text")

_NUMBER = Form(
    _NAME,
    Part("mean", "number"),
    Part("spread", "number", (), positive),
    Part(
        "knots",
        "number",
        ("knots",),
        rising,
        Check("be none or several", lambda found, _: found.size != 1),
    ),
)

_POSITION = Form(
    *_NUMBER.parts,
    Part("are_dates", "flag"),
    Part(
        "cycles",
        "text",
        ("cycles",),
        distinct,
        Check("be cycles of dates", lambda found, _: set(found) <= set(CYCLES)),
    ),
)

_CATEGORIES = Form(_NAME, Part("categories", "text", ("categories",), distinct))

_VECTOR = Form(_NAME, Part("means", "number", ("numbers",)), Part("spread", "number", (), positive))

_SIMILARITY = Form(
    _NAME, Part("labels", "text", ("labels",), distinct), Part("unit", "number", (), positive)
)

_ENCODINGS = {
    "number": _NUMBER,
    "position": _POSITION,
    "category": _CATEGORIES,
    "list": _CATEGORIES,
    "date": _NUMBER,
    "vector": _VECTOR,
    "similarity": _SIMILARITY,
}

_COLUMN = Form(Part("kind", "text", (), one_of(*_ENCODINGS)), prefix="features")

_POSITIONS = Part("positions", "int64", ("changed",), rising, positions_of("known"))

_VECTORS = Form(
    Part("inputs", "int32", ("vectors", "width"), positions_of("inputs")),
    Part("weights", "float32", ("vectors", "width"), between(-LARGEST_WEIGHT, LARGEST_WEIGHT)),
)


def pack_features(features: AxisFeatures, prefix: str) -> Packed:
    """Return the features of an axis: their encoding, and the vectors of training and of
    extensions."""
    tensors = Form(_POSITIONS).pack(features, prefix=prefix).tensors
    for name, vectors in (("base", features.base), ("extra", features.extra)):
        tensors |= _VECTORS.pack(vectors, prefix=f"{prefix}.{name}").tensors
    columns = []
    for number, encoding in enumerate(features.encoding.columns):
        packed = _ENCODINGS[encoding.kind].pack(encoding, prefix=f"{prefix}.{number}")
        columns.append({"kind": encoding.kind} | packed.content)
        tensors |= packed.tensors
    return Packed({"columns": columns}, tensors)


def unpack_features(entries: EntryStore, content: Any, tensors: Tensors) -> EntryStore:
    """Return a store with the packed features; raise `BadModelFile` for impossible content."""
    rows, columns = (
        _unpack_axis(name, content[name], tensors, n_trained, len(labels))
        if name in content
        else None
        for name, n_trained, labels in zip(
            ("row_features", "column_features"),
            entries.train.shape,
            (entries.rows, entries.columns),
            strict=True,
        )
    )
    return replace(entries, row_features=rows, column_features=columns)


def _unpack_axis(
    prefix: str, content: Any, tensors: Tensors, n_trained: int, count: int
) -> AxisFeatures:
    columns = Form(Part("columns", "object", ("columns",))).read(content, prefix=prefix)["columns"]
    encodings = (
        _unpack_column(column, tensors, f"{prefix}.{number}")
        for number, column in enumerate(columns)
    )
    encoding = FeatureEncoding(tuple(encodings))
    if len(set(encoding.names)) < len(columns):
        raise BadModelFile("the stored features have a name twice")
    positions = Form(_POSITIONS).read({}, tensors, prefix=prefix, known=count)["positions"]
    base, extra = (
        FeatureVectors(
            **_VECTORS.read(
                {}, tensors, prefix=f"{prefix}.{name}", vectors=n_vectors, inputs=encoding.n_inputs
            ),
            n_inputs=encoding.n_inputs,
        )
        for name, n_vectors in (("base", n_trained), ("extra", positions.size))
    )
    return AxisFeatures(encoding, base, positions, extra)


def _unpack_column(content: Any, tensors: Tensors, prefix: str) -> ColumnEncoding:
    kind = _COLUMN.read(content)["kind"]
    arrays = _ENCODINGS[kind].read(content, tensors, prefix=prefix)
    fields = {
        name: tuple(field) if isinstance(field, list) else field for name, field in arrays.items()
    }
    lists = {
        name: tuple(field.tolist())
        for name, field in fields.items()
        if isinstance(field, np.ndarray)
    }
    encoding: ColumnEncoding = ENCODINGS_OF_KINDS[kind](**fields | lists)
    return encoding
