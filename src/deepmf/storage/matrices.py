"""Matrices and encoded features in model files and model folders, as tensors and JSON.

A file holds the entries by row; a folder holds both orders, so that opening it maps them and sorts nothing."""

from __future__ import annotations

import re
import reprlib
from dataclasses import replace
from typing import Any

import numpy as np

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.matrix.feature_encoding import (
    LARGEST_WEIGHT,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    FeatureEncoding,
    FeatureVectors,
    ListEncoding,
    NumberEncoding,
)
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.labels import AS_TEXT, Labelled, Labels, find_stored_kind
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.names import Names
from deepmf.matrix.packed import MatrixParts, are_extras_valid
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import ByColumn, ByRow
from deepmf.matrix.table_form import PLAIN, TableForm
from deepmf.matrix.text_labels import TextLabels, has_lone_surrogates, is_increasing
from deepmf.storage.model_file import Packed, Tensors, has_values_to_check, refuse_stored
from deepmf.storage.parts import (
    Check,
    Form,
    Part,
    between,
    distinct,
    ends_of,
    not_falling,
    not_negative,
    one_of,
    positions_of,
    positive,
    rising,
)

KINDS = ("int", "float", *AS_TEXT)

# The bytes of all texts, and the first byte of each.
_TEXTS = Form(
    Part("text", "uint8", ("bytes",)),
    Part("starts", "int64", ("labels + 1",), ends_of("bytes"), not_falling._replace(is_lazy=True)),
)

_KIND = Part("kind", "text", (), one_of(*KINDS))

_LABELS = {
    "int": Form(_KIND, Part("labels", "int64", ("labels",))),
    "float": Form(_KIND, Part("labels", "float64", ("labels",), is_finite=False)),
} | dict.fromkeys(AS_TEXT, Form(_KIND, Part("is_sorted", "flag"), *_TEXTS.parts))


def check_storable(labels: Labels) -> None:
    """Refuse labels that cannot be stored, before training."""
    if find_stored_kind(labels) == "str" and has_lone_surrogates(labels):
        raise BadSetting(f"some {labels.axis} labels hold half of a surrogate pair, which no text file can hold")


def pack_labels(labels: Labels, prefix: str) -> Packed:
    """Return labels as a tensor of numbers, or as one text with the start of each label.

    >>> packed = pack_labels(Labels(["Alien", "Big"], axis="column"), "movies")
    >>> packed.content
    {'kind': 'str', 'is_sorted': True}
    >>> unpack_labels("movies", *packed, axis="column")
    Labels(2 columns: 'Alien', 'Big')
    """
    kind = find_stored_kind(labels)
    if kind in AS_TEXT:
        return _LABELS[kind].pack(TextLabels.of(labels, kind), prefix=prefix)
    return _LABELS[kind].pack(kind=kind, labels=labels.array, prefix=prefix)


def unpack_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    """Return the packed labels; texts of a memory-mapped file are decoded one by one."""
    kind = Form(_KIND, prefix=prefix).read(content)["kind"]
    found = _LABELS[kind].read(content, tensors, prefix=prefix)
    with refuse_stored(f"{axis} labels"):
        if kind not in AS_TEXT:
            return (Labels if has_values_to_check(tensors) else Labels.from_distinct)(found["labels"], axis=axis)
        labels = TextLabels(**found, axis=axis)
        if not has_values_to_check(tensors):
            return labels
        decoded = Labels(labels.array, axis=axis)
    if is_increasing(labels.array) != labels.is_sorted:
        raise BadModelFile(f"the stored {axis} labels are{'' if labels.is_sorted else ' not'} said to be sorted")
    return decoded


def pack_names(names: Names, prefix: str) -> Packed:
    """Return names as tensors: their labels, and their texts.

    >>> packed = pack_names(Names({7: "Alien", 9: "Big"}, axis="column"), "column_names")
    >>> unpack_names("column_names", *packed, axis="column")
    Names({7: 'Alien', 9: 'Big'}, axis='column')
    """
    labels = pack_labels(Labels(list(names), axis=names.axis), f"{prefix}.ids")
    texts = _TEXTS.pack(TextLabels.encode(list(names.values()), kind="str", axis=names.axis), prefix=prefix)
    return Packed(labels.content, labels.tensors | texts.tensors)


def unpack_names(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Names:
    """Return the packed names; raise `BadModelFile` for impossible content."""
    labels = unpack_labels(f"{prefix}.ids", content, tensors, axis=axis)
    found = _TEXTS.read({}, tensors, prefix=prefix, labels=len(labels))
    with refuse_stored(f"{axis} names"):
        texts = TextLabels(**found, kind="str", is_sorted=False, axis=axis).array.tolist()
    if not all(texts):
        raise BadModelFile(f"the stored {axis} names must not be empty")
    return Names(dict(zip(labels.array.tolist(), texts, strict=True)), axis=axis)


_INDEX = "int32 int64"

_MATRIX = Form(
    Part("rows", "object"),
    Part("columns", "object"),
    Part("scale", "object"),
    Part("form", "object", optional=True),
    Part("mean", "number", optional=True),  # in a folder
)

_BY_ROW = Form(
    Part("values", "float32 float64", ("entries",)),
    Part("starts", _INDEX, ("rows + 1",), ends_of("entries"), not_falling),
    Part("columns", _INDEX, ("entries",), positions_of("columns")),
    Part(
        "times",
        "int64",
        ("entries",),
        Check("be times of the years 1 to 9999", lambda found, _: are_extras_valid(Extras(times=found)), is_lazy=True),
        optional=True,
    ),
    Part(
        "weights",
        "float32 float64",
        ("entries",),
        Check("be in the range of weights", lambda found, _: are_extras_valid(Extras(weights=found)), is_lazy=True),
        optional=True,
    ),
    Part("places", "int32", ("entries",), not_negative, optional=True),
)

_BY_COLUMN = Form(
    Part("starts", _INDEX, ("columns + 1",), ends_of("entries"), not_falling),
    Part("rows", _INDEX, ("entries",), positions_of("rows")),
    Part("entries", _INDEX, ("entries",), positions_of("entries")),
)


def pack_matrix(matrix: ObservedMatrix, prefix: str) -> Packed:
    """Return a matrix for a file: the start of each row, and the column and value of each entry."""
    rows = pack_labels(matrix.rows, f"{prefix}.rows")
    columns = pack_labels(matrix.columns, f"{prefix}.columns")
    parts = matrix.by_row._asdict() | matrix.extras._asdict() | {"values": matrix.values}
    content = {"rows": rows.content, "columns": columns.content, "scale": matrix.scale.to_dict()}
    content |= {} if matrix.form == PLAIN else {"form": matrix.form.to_dict()}
    return Packed(content, rows.tensors | columns.tensors | _BY_ROW.pack(parts, prefix=f"{prefix}.entries").tensors)


def pack_mapped_matrix(matrix: ObservedMatrix, prefix: str) -> Packed:
    """Return a matrix for a folder: its entries by row and by column."""
    packed, by_column = pack_matrix(matrix, prefix), _BY_COLUMN.pack(matrix.by_column, prefix=f"{prefix}.by_column")
    return Packed(packed.content | {"mean": matrix.mean}, packed.tensors | by_column.tensors)


def unpack_matrix(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return a matrix that was packed for a file or a folder; raise `BadModelFile` for impossible content."""
    described = _MATRIX.read(content, prefix=prefix)
    rows = unpack_labels(f"{prefix}.rows", described["rows"], tensors, axis="row")
    columns = unpack_labels(f"{prefix}.columns", described["columns"], tensors, axis="column")
    scale = unpack_scale(described["scale"])
    form = PLAIN if described["form"] is None else unpack_form(described["form"])
    sizes = {"rows": len(rows), "columns": len(columns)}
    found = _BY_ROW.read({}, tensors, prefix=f"{prefix}.entries", **sizes)
    by_row, values = ByRow(found["starts"], found["columns"]), found["values"]
    extras = Extras(found["times"], found["weights"], found["places"])
    if f"{prefix}.by_column.starts" not in tensors:
        return _sort_entries(rows, columns, by_row, values, prefix, scale=scale, form=form, extras=extras)
    sizes["entries"] = values.size
    by_column = ByColumn(**_BY_COLUMN.read({}, tensors, prefix=f"{prefix}.by_column", **sizes))
    mean = float("nan") if described["mean"] is None else described["mean"]
    parts = MatrixParts(
        rows, columns, scale, form, by_row=by_row, by_column=by_column, values=values, mean=mean, extras=extras
    )
    if has_values_to_check(tensors):
        again = _sort_entries(rows, columns, by_row, values, prefix, scale=scale, extras=extras)
        orders = zip((*again.by_row, *again.by_column), (*by_row, *by_column), strict=True)
        if not all(np.array_equal(one, other) for one, other in orders):
            raise BadModelFile(f"the stored matrix {prefix!r} is not in order, or not the same by row and by column")
        if not np.isclose(again.mean, mean, equal_nan=True):
            raise BadModelFile(f"the stored matrix {prefix!r} has the mean {again.mean:g}, not {mean:g}")
    return ObservedMatrix.from_parts(parts)


def _sort_entries(
    rows: Labels, columns: Labels, by_row: ByRow, values: Any, prefix: str, **others: Any
) -> ObservedMatrix:
    row_of = np.repeat(np.arange(len(rows), dtype=by_row.starts.dtype), np.diff(by_row.starts))
    with refuse_stored(f"matrix {prefix!r}"), np.errstate(all="ignore"):
        return ObservedMatrix.from_positions(
            Labelled(rows, row_of), Labelled(columns, by_row.columns), values.astype(np.float64), **others
        )


def unpack_form(content: Any) -> TableForm:
    """Return the packed form of a table."""
    form = TableForm.from_dict(content)
    if form is None:
        raise BadModelFile(
            "the stored form of a table must have three names, a bool, and types of whole numbers if any; "
            f"got {reprlib.repr(content)}"
        )
    return form


_SCALE = Form(
    Part("interactions", "flag", optional=True),
    Part("levels", "number", ("levels",), optional=True),
    Part("low", "number", optional=True),
    Part("high", "number", optional=True),
    Part("bounded", "flag", optional=True),
    prefix="scale",
)


def unpack_scale(content: Any) -> Scale:
    """Return the scale whose `to_dict` gave this content; without `bounded` it is bounded."""
    found = {name: part for name, part in _SCALE.read(content).items() if part is not None}
    with refuse_stored("scale"):
        return Scale.interactions() if found.pop("interactions", False) else Scale(**found)


def _is_date(text: str) -> bool:
    try:
        np.datetime64(text, "D")
    except ValueError:
        return False
    return bool(re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text))


_NAME = Part("name", "text")

_NUMBER = Form(
    _NAME,
    Part("mean", "number"),
    Part("spread", "number", (), positive),
    Part("knots", "number", ("knots",), rising, Check("be none or several", lambda found, _: found.size != 1)),
)

_CATEGORIES = Form(_NAME, Part("categories", "text", ("categories",), distinct))

_DATE = Form(
    _NAME,
    Part("latest", "text", (), Check("be a date such as 2001-12-31", lambda found, _: _is_date(found))),
    Part("year", _NUMBER),
    Part("age", _NUMBER),
)

_ENCODINGS = {"number": _NUMBER, "category": _CATEGORIES, "list": _CATEGORIES, "date": _DATE}

_COLUMN = Form(Part("kind", "text", (), one_of(*_ENCODINGS)), prefix="features")

_POSITIONS = Part("positions", "int64", ("changed",), rising, positions_of("known"))

_VECTORS = Form(
    Part("inputs", "int32", ("vectors", "width"), positions_of("inputs")),
    Part("weights", "float32", ("vectors", "width"), between(-LARGEST_WEIGHT, LARGEST_WEIGHT)),
)


def pack_features(features: AxisFeatures, prefix: str) -> Packed:
    """Return the features of an axis: their encoding, and the vectors of training and of extensions."""
    extra = features.extra or FeatureVectors.empty(0, features.n_inputs)
    tensors = Form(_POSITIONS).pack(features, prefix=prefix).tensors
    for name, vectors in (("base", features.base), ("extra", extra)):
        tensors |= _VECTORS.pack(vectors, prefix=f"{prefix}.{name}").tensors
    columns = [{"kind": each.kind} | _ENCODINGS[each.kind].pack(each).content for each in features.encoding.columns]
    return Packed({"columns": columns}, tensors)


def unpack_features(entries: EntryStore, content: Any, tensors: Tensors) -> EntryStore:
    """Return a store with the packed features; raise `BadModelFile` for impossible content."""
    rows, columns = (
        _unpack_axis(name, content[name], tensors, n_trained, len(labels)) if name in content else None
        for name, n_trained, labels in zip(
            ("row_features", "column_features"), entries.train.shape, (entries.rows, entries.columns), strict=True
        )
    )
    return replace(entries, row_features=rows, column_features=columns)


def _unpack_axis(prefix: str, content: Any, tensors: Tensors, n_trained: int, count: int) -> AxisFeatures:
    columns = Form(Part("columns", "object", ("columns",))).read(content, prefix=prefix)["columns"]
    encoding = FeatureEncoding(tuple(map(_unpack_column, columns)))
    if len(set(encoding.names)) < len(columns):
        raise BadModelFile("the stored features have a name twice")
    positions = Form(_POSITIONS).read({}, tensors, prefix=prefix, known=count)["positions"]
    base, extra = (
        FeatureVectors(
            **_VECTORS.read({}, tensors, prefix=f"{prefix}.{name}", vectors=n_vectors, inputs=encoding.n_inputs),
            n_inputs=encoding.n_inputs,
        )
        for name, n_vectors in (("base", n_trained), ("extra", positions.size))
    )
    return AxisFeatures(encoding, base, positions, extra if positions.size else None)


def _unpack_column(content: Any) -> ColumnEncoding:
    kind = _COLUMN.read(content)["kind"]
    found = _ENCODINGS[kind].read(content, prefix="features")
    if kind == "number":
        return _make_number(found)
    if kind == "date":
        return DateEncoding(found["name"], found["latest"], _make_number(found["year"]), _make_number(found["age"]))
    return (CategoryEncoding if kind == "category" else ListEncoding)(found["name"], tuple(found["categories"]))


def _make_number(found: dict[str, Any]) -> NumberEncoding:
    return NumberEncoding(**found | {"knots": tuple(found["knots"].tolist())})
