"""A model as its file, or its folder, holds it: its description, its entries and features, and what it has learned."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepmf.errors import BadModelFile
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.entry_store import EntryStore
from deepmf.models.predicted_areas import PredictedAreas
from deepmf.storage.feature_tensors import pack_features, unpack_features
from deepmf.storage.matrix_tensors import pack_matrix
from deepmf.storage.model_file import write_file
from deepmf.storage.model_folder import goes_to_folder, write_folder
from deepmf.storage.ordered_matrix import pack_ordered, unpack_either
from deepmf.storage.packed import Packed, Tensors, field, has_values_to_check, numbers, refusing


def write_model(
    path: str | Path,
    description: dict[str, Any],
    entries: EntryStore,
    learned: Packed,
    *,
    largest_file: int,
    check: Callable[[Path], object],
) -> None:
    """Write a model to one file, or to a folder where its name or its size asks for one, whole or not at all.

    description: its class, settings, choice and history, by these names.
    check: called with what is written before it takes its name.
    """
    n_bytes = entries.train.nbytes + sum(tensor.nbytes for tensor in learned.tensors.values())
    in_folder = goes_to_folder(path, n_bytes, largest_file=largest_file)
    parts = _parts(entries, learned, in_folder=in_folder)
    content = description | {name: part.content for name, part in parts.items()}
    tensors = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
    (write_folder if in_folder else write_file)(path, kind="model", content=content, tensors=tensors, check=check)


def _parts(entries: EntryStore, learned: Packed, *, in_folder: bool) -> dict[str, Packed]:
    """Return the parts of a file, or of a folder, by name: those of a model's entries, and what it has learned."""
    pack = pack_ordered if in_folder else pack_matrix
    parts = {"train": pack(entries.train, "train"), "learned": learned}
    if entries.extension is not None:
        parts["extension"] = pack(entries.extension, "extension")
    for name, features in (("row_features", entries.row_features), ("column_features", entries.column_features)):
        if features is not None:
            parts[name] = pack_features(features, name)
    if entries.dropped.size:
        parts["dropped"] = Packed({}, {"dropped.entries": entries.dropped})
    return parts


def stored_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Return the stored settings by name."""
    settings = field(content, "settings")
    if not isinstance(settings, dict):
        raise BadModelFile(f"the stored settings must have names; got {reprlib.repr(settings)}")
    return settings


def stored_entries(
    content: dict[str, Any], tensors: Tensors, areas: PredictedAreas, *, takes_features: bool
) -> EntryStore:
    """Return the stored entries and features; any that a method cannot have raise `BadModelFile`."""
    train = unpack_either("train", field(content, "train"), tensors)
    added = unpack_either("extension", content["extension"], tensors) if "extension" in content else None
    dropped = numbers(tensors, "dropped.entries", "int64", (None,)) if "dropped" in content else NOTHING
    with refusing("extension"):
        if added is not None:
            areas.check_extends()
        stored = EntryStore.stored if has_values_to_check(tensors) else EntryStore.opened
        entries = unpack_features(stored(train, added, dropped), content, tensors)
        if not takes_features and (entries.row_features or entries.column_features):
            raise BadModelFile(f"the stored model has features, and {areas.method} reads none")
        areas.check_new("row", train.rows, entries.rows)
        areas.check_new("column", train.columns, entries.columns)
    return entries
