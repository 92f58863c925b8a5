"""What `fit` and `extend` are given: matrices and features, checked, and the entries that a model makes of them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

from deepmf.errors import BadEntries, BadFeatures, BadSetting, NothingObserved
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.storage.label_tensors import check_storable

Conflicts = Literal["error", "replace"]


def check_trainable(train: Any) -> None:
    """Refuse what is no matrix that a model could learn from and be saved with."""
    check_matrix(train, "fit")
    for labels in (train.rows, train.columns):
        check_storable(labels)  # known now rather than when the model is saved
    if train.n_entries == 0:
        raise BadEntries("there is nothing to learn: the matrix has no entries")


def check_matrix(given: Any, taker: str) -> None:
    """Refuse what is no matrix, and say what makes one of it."""
    if not isinstance(given, ObservedMatrix):
        raise BadEntries(f"{taker} takes an ObservedMatrix; got {type(given).__name__} ({_makes_one(given)})")


def _makes_one(given: Any) -> str:
    """Say what makes a matrix of something else."""
    if isinstance(given, str | Path):
        return "read_matrix reads one from a file"
    kinds = {"from_frame, or from_table for a wide one,": "columns", "from_sparse": "tocoo", "from_array": "__array__"}
    makers = [maker for maker, attribute in kinds.items() if hasattr(given, attribute)]
    return f"ObservedMatrix.{makers[0] if makers else 'from_entries'} makes one"


def check_features(given: Any, name: str) -> None:
    """Refuse what is no features."""
    if not isinstance(given, Features):
        kind = type(given).__name__
        raise BadFeatures(f"{name} must be Features (Features.from_frame makes them); got {kind}")


def training_entries(
    train: ObservedMatrix,
    row_features: Features | None,
    column_features: Features | None,
    *,
    method: str,
    takes_features: bool,
) -> EntryStore:
    """Return the entries of a matrix with the features of its rows and columns, where the method reads any."""
    for name, features in (("row_features", row_features), ("column_features", column_features)):
        if features is None:
            continue
        check_features(features, name)
        if not takes_features:
            raise BadFeatures(f"{method} reads entries alone, no features; Means, ALS, DMF, DMFD and OrdinalDMF do")
    return EntryStore.of(
        train,
        None if row_features is None else AxisFeatures.of(train.rows, row_features, train.row_counts),
        None if column_features is None else AxisFeatures.of(train.columns, column_features, train.column_counts),
    )


def check_extension(
    new: Any, row_features: Features | None, column_features: Features | None, conflicts: Conflicts
) -> None:
    """Refuse what no model could be extended by."""
    if new is not None or (row_features is None and column_features is None):
        check_matrix(new, "extend")
    if conflicts not in ("error", "replace"):
        raise BadSetting(f"conflicts must be 'error' or 'replace'; got {conflicts!r}")
    for name, features in (("row_features", row_features), ("column_features", column_features)):
        if features is not None:
            check_features(features, name)


def warn_of_nothing(seen: EntryStore, axis: Literal["row", "column"], positions: IndexArray) -> None:
    """Warn of rows, or columns, at some positions that nothing describes; to be called by what users call."""
    entries = seen.row_entries(positions) if axis == "row" else seen.column_entries(positions)
    empty = positions[entries.describe_nothing]
    if empty.size:
        labels = (seen.rows if axis == "row" else seen.columns)[empty[:3]].tolist()
        other = "columns" if axis == "row" else "rows"
        shown = ", ".join(map(repr, labels)) + (", ..." if empty.size > 3 else "")
        warnings.warn(
            f"{empty.size} {axis}(s) have no entry over the trained {other} ({shown}): "
            "they are predicted from an empty description",
            NothingObserved,
            stacklevel=3,
        )
