"""Encoded features of rows and columns as tensors and JSON in model files."""

from __future__ import annotations

import re
import reprlib
from dataclasses import replace
from typing import Any

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.matrix.entries import EntryStore
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
from deepmf.storage.model_file import Packed, Tensors, read_field, read_number, read_numbers

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
            raise BadModelFile(f"the stored date of {name!r} is none: {reprlib.repr(latest)}") from error
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
        raise BadModelFile(f"the stored numbers of the feature {name!r} cannot be those of one")
    return NumberEncoding(name, mean, spread, tuple(places))


def _check_text(item: Any) -> str:
    if not isinstance(item, str):
        raise BadModelFile(f"features are named by texts; got {reprlib.repr(item)}")
    return item
