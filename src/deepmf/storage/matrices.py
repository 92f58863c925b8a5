"""Matrices and encoded features in model files and model folders, as tensors and JSON.

A file holds the entries by row; a folder holds both orders, so that opening it maps them and sorts nothing."""

from __future__ import annotations

import re
import reprlib
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

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
from deepmf.matrix.labels import AS_TEXT, ENCODING, Labelled, Labels, TextKind, find_stored_kind
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.names import Names
from deepmf.matrix.packed import MatrixParts, are_extras_valid
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import ByColumn, ByRow, are_positions
from deepmf.matrix.table_form import PLAIN, TableForm
from deepmf.matrix.text_labels import TextLabels, has_lone_surrogates
from deepmf.storage.model_file import (
    Packed,
    Tensors,
    check_ends,
    check_starts,
    has_values_to_check,
    read_field,
    read_number,
    read_numbers,
    read_vector,
    refuse_stored,
)

KINDS = ("int", "float", *AS_TEXT)


def check_storable(labels: Labels) -> None:
    """Refuse labels that cannot be stored, before training."""
    if find_stored_kind(labels) == "str" and has_lone_surrogates(labels):
        raise BadSetting(f"some {labels.axis} labels hold half of a surrogate pair, which no text file can hold")


def pack_labels(labels: Labels, prefix: str) -> Packed:
    """Return labels as a tensor of numbers, or as one text with the start of each label.

    >>> packed = pack_labels(Labels(["Alien", "Big"], axis="column"), "movies")
    >>> packed.content
    {'kind': 'str'}
    >>> unpack_labels("movies", *packed, axis="column")
    Labels(2 columns: 'Alien', 'Big')
    """
    kind = find_stored_kind(labels)
    if kind == "int":
        return Packed({"kind": kind}, {f"{prefix}.labels": labels.array})
    if kind == "float":
        return Packed({"kind": kind}, {f"{prefix}.labels": labels.array.astype(np.float64)})
    return Packed({"kind": kind}, _pack_texts(list(map(AS_TEXT[kind].write, labels.array.tolist())), prefix))


def _pack_texts(texts: list[str], prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Return texts as tensors: all of them together, and the start of each."""
    starts = np.zeros(len(texts) + 1, dtype=np.int64)  # in characters
    np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)), out=starts[1:])
    return {
        f"{prefix}.text": np.frombuffer("".join(texts).encode(*ENCODING), dtype=np.uint8),
        f"{prefix}.starts": starts,
    }


def pack_names(names: Names, prefix: str) -> Packed:
    """Return names as tensors: their labels, and their texts.

    >>> packed = pack_names(Names({7: "Alien", 9: "Big"}, axis="column"), "column_names")
    >>> unpack_names("column_names", *packed, axis="column")
    Names({7: 'Alien', 9: 'Big'}, axis='column')
    """
    labels = pack_labels(Labels(list(names), axis=names.axis), f"{prefix}.ids")
    return Packed(labels.content, labels.tensors | _pack_texts(list(names.values()), prefix))


def unpack_names(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Names:
    """Return the packed names; raise `BadModelFile` for impossible content."""
    labels, texts = unpack_labels(f"{prefix}.ids", content, tensors, axis=axis), _read_texts(prefix, tensors)
    if len(labels) != len(texts) or not all(texts):
        raise BadModelFile(f"the stored {axis} names must be {len(labels)} texts, one for each of their ids")
    return Names(dict(zip(labels.array.tolist(), texts, strict=True)), axis=axis)


def unpack_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    """Return the packed labels."""
    kind = read_field(content, "kind")
    if kind == "int":
        array = read_vector(tensors, f"{prefix}.labels", "int64")
    elif kind == "float":
        array = read_vector(tensors, f"{prefix}.labels", "float64")
    elif isinstance(kind, str) and kind in AS_TEXT:
        array = _read_text_labels(prefix, tensors, AS_TEXT[kind])
    else:
        raise BadModelFile(f"the stored {axis} labels are of the unknown kind {reprlib.repr(kind)}")
    with refuse_stored(f"{axis} labels"):
        return Labels(array, axis=axis)


def _read_texts(prefix: str, tensors: Tensors) -> list[str]:
    try:
        text = read_vector(tensors, f"{prefix}.text", "uint8").tobytes().decode(*ENCODING)
    except UnicodeDecodeError as error:
        raise BadModelFile(f"the tensor {prefix}.text is not UTF-8 ({error.reason})") from error
    starts = read_vector(tensors, f"{prefix}.starts", "int64")
    check_starts(starts, starts.size - 1, len(text), name=f"{prefix}.starts")
    return [text[start:end] for start, end in pairwise(starts.tolist())]


def _read_text_labels(prefix: str, tensors: Tensors, kind: TextKind) -> npt.NDArray[Any]:
    items = _read_texts(prefix, tensors)
    labels = items if kind.type is str else [_read_label(item, kind) for item in items]
    return np.fromiter(labels, dtype=object, count=len(labels))


def _read_label(text: str, kind: TextKind) -> Any:
    try:
        return kind.label(text)
    except ValueError as error:
        raise BadModelFile(f"the stored label {text!r} is no {kind.type.__name__}") from error


_A_SCALE = "a stored scale"


def pack_matrix(matrix: ObservedMatrix, prefix: str) -> Packed:
    """Return a matrix for a file: the start of each row, and the column and value of each entry."""
    rows = pack_labels(matrix.rows, f"{prefix}.rows")
    columns = pack_labels(matrix.columns, f"{prefix}.columns")
    entries = {
        f"{prefix}.entries.starts": matrix.by_row.starts,
        f"{prefix}.entries.columns": matrix.by_row.columns,
        f"{prefix}.entries.values": np.asarray(matrix.values),
    }
    entries |= pack_extras(matrix.extras, prefix)
    content: dict[str, Any] = {"rows": rows.content, "columns": columns.content, "scale": matrix.scale.to_dict()}
    content |= {} if matrix.form == PLAIN else {"form": matrix.form.to_dict()}
    return Packed(content, rows.tensors | columns.tensors | entries)


def unpack_matrix(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return the packed matrix; raise `BadModelFile` for impossible content."""
    rows = unpack_labels(f"{prefix}.rows", read_field(content, "rows"), tensors, axis="row")
    columns = unpack_labels(f"{prefix}.columns", read_field(content, "columns"), tensors, axis="column")
    scale = unpack_scale(read_field(content, "scale"))
    form = unpack_form(content["form"]) if "form" in content else PLAIN
    column_of = read_vector(tensors, f"{prefix}.entries.columns", "int32", "int64")
    values = read_vector(tensors, f"{prefix}.entries.values", "float32", "float64")
    starts = read_vector(tensors, f"{prefix}.entries.starts", "int32", "int64")
    check_starts(starts, len(rows), values.size, name=f"{prefix}.entries.starts")
    if column_of.size != values.size:
        raise BadModelFile(f"the stored matrix {prefix!r} has {column_of.size} columns for {values.size} values")
    if column_of.size and not (column_of.min() >= 0 and column_of.max() < len(columns)):
        raise BadModelFile(f"the stored matrix {prefix!r} has entries outside its {len(columns)} columns")
    row_of = np.repeat(np.arange(len(rows), dtype=starts.dtype), np.diff(starts))
    with refuse_stored(f"matrix {prefix!r}"), np.errstate(all="ignore"):
        return ObservedMatrix.from_positions(
            Labelled(rows, row_of),
            Labelled(columns, column_of),
            values.astype(np.float64),
            scale=scale,
            form=form,
            extras=unpack_extras(prefix, tensors, values.size),
        )


def pack_extras(extras: Extras, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Return the times and weights of entries as tensors; none where there are none."""
    return {
        f"{prefix}.entries.{name}": np.asarray(field) for name, field in extras._asdict().items() if field is not None
    }


def unpack_extras(prefix: str, tensors: Tensors, n_entries: int) -> Extras:
    """Return the packed times and weights, where there are any."""
    kinds = {"times": ("int64",), "weights": ("float32", "float64")}
    fields = {
        name: read_vector(tensors, f"{prefix}.entries.{name}", *kind)
        for name, kind in kinds.items()
        if f"{prefix}.entries.{name}" in tensors
    }
    extras = Extras(**fields)
    are_right = all(field.size == n_entries for field in fields.values())
    if not are_right or (has_values_to_check(tensors) and not are_extras_valid(extras)):
        raise BadModelFile(f"the stored matrix {prefix!r} has impossible times or weights")
    return extras


def unpack_form(content: Any) -> TableForm:
    """Return the packed form of a table."""
    form = TableForm.from_dict(content)
    if form is None:
        raise BadModelFile(
            "the stored form of a table must have three names, a bool, and types of whole numbers if any; "
            f"got {reprlib.repr(content)}"
        )
    return form


def unpack_scale(content: Any) -> Scale:
    """Return the scale whose `to_dict` gave this content; without `bounded` it is bounded."""
    if content == {"interactions": True}:
        return Scale.interactions()
    with refuse_stored("scale"):
        if not isinstance(content, dict) or "levels" not in content:
            low, high = (read_number(read_field(content, end), _A_SCALE) for end in ("low", "high"))
            return Scale(low=low, high=high, bounded=content.get("bounded", True))
        if not isinstance(content["levels"], list):
            raise BadModelFile(f"the levels of a stored scale must be a list; got {reprlib.repr(content['levels'])}")
        return Scale(levels=[read_number(level, _A_SCALE) for level in content["levels"]])


_INDEX = ("int32", "int64")

_MEAN = "mean"  # a field that only the matrix of a folder has


def pack_mapped_matrix(matrix: ObservedMatrix, prefix: str) -> Packed:
    """Return a matrix for a folder: its entries by row and by column."""
    labels = {"rows": _pack_mapped_labels(matrix.rows, f"{prefix}.rows")}
    labels["columns"] = _pack_mapped_labels(matrix.columns, f"{prefix}.columns")
    tensors = {
        f"{prefix}.entries.starts": matrix.by_row.starts,
        f"{prefix}.entries.columns": matrix.by_row.columns,
        f"{prefix}.entries.values": np.asarray(matrix.values),
        f"{prefix}.by_column.starts": matrix.by_column.starts,
        f"{prefix}.by_column.rows": matrix.by_column.rows,
        f"{prefix}.by_column.entries": matrix.by_column.entries,
        **pack_extras(matrix.extras, prefix),
    }
    content: dict[str, Any] = {axis: packed.content for axis, packed in labels.items()}
    content |= {"scale": matrix.scale.to_dict(), _MEAN: matrix.mean}
    content |= {} if matrix.form == PLAIN else {"form": matrix.form.to_dict()}
    return Packed(content, tensors | labels["rows"].tensors | labels["columns"].tensors)


def unpack_any_matrix(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return a matrix that was packed for a file or a folder."""
    is_mapped = isinstance(content, dict) and _MEAN in content
    return (unpack_mapped_matrix if is_mapped else unpack_matrix)(prefix, content, tensors)


def unpack_mapped_matrix(prefix: str, content: Any, tensors: Tensors) -> ObservedMatrix:
    """Return the packed matrix; of a memory-mapped one, only lengths and positions are checked."""
    rows = _unpack_mapped_labels(f"{prefix}.rows", read_field(content, "rows"), tensors, axis="row")
    columns = _unpack_mapped_labels(f"{prefix}.columns", read_field(content, "columns"), tensors, axis="column")
    values = read_vector(tensors, f"{prefix}.entries.values", "float32", "float64")
    by_row = ByRow(
        read_vector(tensors, f"{prefix}.entries.starts", *_INDEX),
        read_vector(tensors, f"{prefix}.entries.columns", *_INDEX),
    )
    by_column = ByColumn(*(read_vector(tensors, f"{prefix}.by_column.{part}", *_INDEX) for part in ByColumn._fields))
    if not by_row.columns.size == by_column.rows.size == by_column.entries.size == values.size:
        raise BadModelFile(f"the stored matrix {prefix!r} has other numbers of rows and columns than of values")
    check_starts(by_row.starts, len(rows), values.size, name=f"{prefix}.entries.starts")
    check_starts(by_column.starts, len(columns), values.size, name=f"{prefix}.by_column.starts")
    _check_positions(by_row, by_column, (len(rows), len(columns)), prefix)
    parts = MatrixParts(
        rows,
        columns,
        scale=unpack_scale(read_field(content, "scale")),
        form=unpack_form(content["form"]) if "form" in content else PLAIN,
        by_row=by_row,
        by_column=by_column,
        values=values,
        mean=float("nan") if read_field(content, _MEAN) is None else read_number(content[_MEAN], "a stored mean"),
        extras=unpack_extras(prefix, tensors, values.size),
    )
    opened = ObservedMatrix.from_parts(parts)
    if has_values_to_check(tensors):
        _check_entries(opened, prefix)
    return opened


def _check_positions(by_row: ByRow, by_column: ByColumn, shape: tuple[int, int], prefix: str) -> None:
    """Refuse entries outside the matrix, which would make later code read other memory."""
    n_rows, n_columns = shape
    positions = (by_row.columns, n_columns), (by_column.rows, n_rows), (by_column.entries, by_row.columns.size)
    if not all(are_positions(array, count) for array, count in positions):
        raise BadModelFile(f"the stored matrix {prefix!r} has entries outside its {n_rows} rows x {n_columns} columns")


def _check_entries(opened: ObservedMatrix, prefix: str) -> None:
    """Refuse entries that are impossible or differ between the two orders."""
    (starts, column_of), values = opened.by_row, opened.values
    row_of = np.repeat(np.arange(len(opened.rows), dtype=starts.dtype), np.diff(starts))
    with refuse_stored(f"matrix {prefix!r}"), np.errstate(all="ignore"):
        again = ObservedMatrix.from_positions(
            Labelled(opened.rows, row_of),
            Labelled(opened.columns, column_of),
            values.astype(np.float64),
            scale=opened.scale,
            extras=opened.extras,
        )
    orders = zip((*again.by_row, *again.by_column), (*opened.by_row, *opened.by_column), strict=True)
    if not all(np.array_equal(one, other) for one, other in orders):
        raise BadModelFile(f"the stored matrix {prefix!r} is not in order, or not the same by row and by column")
    if not np.isclose(again.mean, opened.mean, equal_nan=True):
        raise BadModelFile(f"the stored matrix {prefix!r} has the mean {again.mean:g}, not {opened.mean:g}")


def _pack_mapped_labels(labels: Labels, prefix: str) -> Packed:
    """Return labels for a folder: text has the start of each label in bytes, so that labels decode one by one."""
    kind = find_stored_kind(labels)
    if kind not in AS_TEXT:
        return pack_labels(labels, prefix)
    text = TextLabels.of(labels, kind)
    content = {"kind": kind, "sorted": text.is_sorted}
    return Packed(content, {f"{prefix}.text": text.text, f"{prefix}.starts": text.starts})


def _unpack_mapped_labels(prefix: str, content: Any, tensors: Tensors, *, axis: str) -> Labels:
    kind = read_field(content, "kind")
    if not isinstance(kind, str) or kind not in AS_TEXT:
        if kind not in ("int", "float") or has_values_to_check(tensors):
            return unpack_labels(prefix, content, tensors, axis=axis)
        return Labels.from_distinct(read_vector(tensors, f"{prefix}.labels", f"{kind}64"), axis=axis)
    is_sorted = read_field(content, "sorted")
    if not isinstance(is_sorted, bool):
        raise BadModelFile(f"whether the stored {axis} labels are sorted must be true or false; got {is_sorted!r}")
    text, starts = read_vector(tensors, f"{prefix}.text", "uint8"), read_vector(tensors, f"{prefix}.starts", "int64")
    check_ends(starts, starts.size - 1, text.size, name=f"{prefix}.starts")
    labels = TextLabels(text, starts, kind=kind, is_sorted=is_sorted, axis=axis)
    if has_values_to_check(tensors):
        _check_labels(labels, prefix)
    return labels


def _check_labels(labels: TextLabels, prefix: str) -> None:
    """Refuse invalid and repeated labels, and a wrong statement of their order."""
    check_starts(labels.starts, len(labels), labels.text.size, name=f"{prefix}.starts")
    try:
        array = labels.array
    except ValueError as error:  # also raised for invalid UTF-8
        raise BadModelFile(f"the tensor {prefix}.text holds no labels of type {labels.kind} ({error})") from error
    with refuse_stored(f"{labels.axis} labels"):
        again = Labels(array, axis=labels.axis)
    if TextLabels.of(again, labels.kind).is_sorted != labels.is_sorted:
        raise BadModelFile(f"the stored {labels.axis} labels are{'' if labels.is_sorted else ' not'} said to be sorted")


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def pack_features(features: AxisFeatures, prefix: str) -> Packed:
    """Return the features of an axis: their encoding, and the vectors of training and of extensions."""
    extra = features.extra or FeatureVectors.empty(0, features.n_inputs)
    tensors: dict[str, Any] = {f"{prefix}.positions": features.positions}
    for name, vectors in (("base", features.base), ("extra", extra)):
        tensors |= {f"{prefix}.{name}.inputs": vectors.inputs, f"{prefix}.{name}.weights": vectors.weights}
    return Packed(features.encoding.to_dict(), tensors)


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
    encoding = _unpack_encoding(content)
    positions = read_numbers(tensors, f"{prefix}.positions", "int64", (None,))
    if positions.size and not (positions[0] >= 0 and positions[-1] < count and np.all(np.diff(positions) > 0)):
        raise BadModelFile(f"the stored positions of {prefix} must increase and be those of known labels")
    base = _unpack_vectors(f"{prefix}.base", tensors, n_trained, encoding.n_inputs)
    extra = _unpack_vectors(f"{prefix}.extra", tensors, positions.size, encoding.n_inputs)
    return AxisFeatures(encoding, base, positions, extra if positions.size else None)


def _unpack_vectors(prefix: str, tensors: Tensors, count: int, n_inputs: int) -> FeatureVectors:
    inputs = read_numbers(tensors, f"{prefix}.inputs", "int32", (count, None))
    weights = read_numbers(tensors, f"{prefix}.weights", "float32", inputs.shape)
    if inputs.size and not 0 <= inputs.min() <= inputs.max() < n_inputs:
        raise BadModelFile(f"the stored tensor {prefix}.inputs points outside the {n_inputs} inputs of its features")
    if weights.size and np.abs(weights).max() > LARGEST_WEIGHT:
        raise BadModelFile(f"the stored tensor {prefix}.weights has weights beyond {LARGEST_WEIGHT:g}")
    return FeatureVectors(inputs, weights, n_inputs)


def _unpack_encoding(content: Any) -> FeatureEncoding:
    columns = read_field(content, "columns")
    if not isinstance(columns, list):
        raise BadModelFile(f"the stored features must be a list; got {reprlib.repr(columns)}")
    encoding = FeatureEncoding(tuple(map(_unpack_column, columns)))
    if len(set(encoding.names)) < len(columns):
        raise BadModelFile("the stored features have a name twice")
    return encoding


def _unpack_column(content: Any) -> ColumnEncoding:
    kind, name = read_field(content, "kind"), _check_text(read_field(content, "name"))
    if kind == "number":
        return _unpack_number(content)
    if kind in ("category", "list"):
        categories = read_field(content, "categories")
        if not isinstance(categories, list) or len(set(map(_check_text, categories))) < len(categories):
            raise BadModelFile(f"the stored categories of {name!r} must be a list of different texts")
        return (CategoryEncoding if kind == "category" else ListEncoding)(name, tuple(categories))
    if kind == "date":
        latest = _check_text(read_field(content, "latest"))
        if not _DATE.fullmatch(latest):
            raise BadModelFile(f"the stored date of {name!r} must be written as 2001-12-31; got {reprlib.repr(latest)}")
        try:
            np.datetime64(latest, "D")
        except ValueError as error:
            raise BadModelFile(f"the stored date of {name!r} does not exist: {reprlib.repr(latest)}") from error
        return DateEncoding(
            name, latest, _unpack_number(read_field(content, "year")), _unpack_number(read_field(content, "age"))
        )
    raise BadModelFile(f"the stored feature {name!r} is of the unknown kind {reprlib.repr(kind)}")


def _unpack_number(content: Any) -> NumberEncoding:
    name, knots = _check_text(read_field(content, "name")), read_field(content, "knots")
    if not isinstance(knots, list):
        raise BadModelFile(f"the stored knots of {name!r} must be a list; got {reprlib.repr(knots)}")
    mean, spread, *places = (
        read_number(each, f"the feature {name!r}")
        for each in (read_field(content, "mean"), read_field(content, "spread"), *knots)
    )
    if (
        not (np.isfinite([mean, spread, *places]).all() and spread > 0 and np.all(np.diff(places) > 0))
        or len(knots) == 1
    ):
        raise BadModelFile(f"the stored numbers of the feature {name!r} are impossible")
    return NumberEncoding(name, mean, spread, tuple(places))


def _check_text(item: Any) -> str:
    if not isinstance(item, str):
        raise BadModelFile(f"features are named by texts; got {reprlib.repr(item)}")
    return item
