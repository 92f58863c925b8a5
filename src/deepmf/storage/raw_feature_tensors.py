"""Features as they were given, as tensors and JSON, and back: what another process fits a model with."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labels
from deepmf.storage.label_tensors import pack_labels, unpack_labels
from deepmf.storage.packed import Packed, Tensors, field, vector


def pack_raw_features(features: Features, prefix: str) -> Packed:
    """Return the labels of features, and the values of each: numbers, days, or positions among its categories."""
    labels = pack_labels(Labels(features.labels, axis="feature"), f"{prefix}.labels")
    content: dict[str, Any] = {"labels": labels.content, "kinds": features.kinds, "categories": {}}
    tensors = dict(labels.tensors)
    for at, (name, kind) in enumerate(features.kinds.items()):
        values, key = features.values(name), f"{prefix}.{at}"
        if kind in ("number", "date"):
            tensors[key] = values if kind == "number" else values.astype(np.int64)
            continue
        lists = [(item,) if isinstance(item, str) else item for item in values.tolist()]
        found = Labels.gather(list(chain.from_iterable(each for each in lists if each is not None)), axis="category")
        packed = pack_labels(found.labels, f"{key}.categories")
        content["categories"][name] = packed.content
        counts = np.fromiter((-1 if each is None else len(each) for each in lists), dtype=np.int64, count=len(lists))
        tensors |= packed.tensors | {f"{key}.counts": counts, f"{key}.codes": found.positions.astype(np.int64)}
    return Packed(content, tensors)


def unpack_raw_features(prefix: str, content: Any, tensors: Tensors) -> Features:
    """Return the features that were packed."""
    labels = unpack_labels(f"{prefix}.labels", field(content, "labels"), tensors, axis="feature")
    kinds = field(content, "kinds")
    columns: dict[str, Any] = {}
    for at, (name, kind) in enumerate(kinds.items()):
        key = f"{prefix}.{at}"
        if kind == "number":
            columns[name] = vector(tensors, key, "float64")
        elif kind == "date":
            columns[name] = vector(tensors, key, "int64").astype("datetime64[D]")
        else:
            stored = unpack_labels(f"{key}.categories", content["categories"][name], tensors, axis="category")
            lists = _lists(
                stored.array, vector(tensors, f"{key}.counts", "int64"), vector(tensors, f"{key}.codes", "int64")
            )
            columns[name] = [each and each[0] for each in lists] if kind == "category" else lists
    return Features(labels.array, columns, kinds=kinds)


def _lists(categories: npt.NDArray[Any], counts: npt.NDArray[Any], codes: npt.NDArray[Any]) -> list[Any]:
    """Return the lists of categories, None for those that are missing."""
    texts, ends = categories[codes].tolist(), np.cumsum(np.maximum(counts, 0)).tolist()
    return [
        None if count < 0 else tuple(texts[end - count : end]) for count, end in zip(counts.tolist(), ends, strict=True)
    ]
