"""The state of a fitted model: what it knows, how it grows and shrinks, and its parts of a model
file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import IndexArray, IndexPair
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.entries import Conflicts, EntryStore
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.scoring.arrivals import find_changed
from deepmf.scoring.pairs import Fallback, PredictedAreas
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors, has_values_to_check, refuse_stored
from deepmf.storage.parts import Form, Part

if TYPE_CHECKING:
    from deepmf.recommend.next_ridge import NextRidge
    from deepmf.recommend.presence import Presence, Recency
    from deepmf.recommend.ranker import Rankers
    from deepmf.recommend.request import RankBy
    from deepmf.scoring.asked import Calibration


@dataclass(frozen=True)
class Fitted:
    """The state of a fitted model: the entries it knows, its predictor, its presence part and
    recency.

    rank_by: the order in which it ranks columns by default.
    following: what a row takes next, by the order of its entries.
    asked: the calibration on cells that nobody chose, which the readout of the predictor applies.
    """

    entries: EntryStore
    predictor: Predictor
    presence: Presence | None = None
    rank_by: RankBy = "value"
    recency: Recency | None = None
    following: NextRidge | None = None
    asked: Calibration | None = None

    @cached_property
    def rankers(self) -> Rankers:
        """The rankers of columns."""
        from deepmf.recommend.ranker import Rankers

        return Rankers(self.entries, self.presence, self.rank_by, self.recency, self.following)

    @cached_property
    def fallback(self) -> Fallback:
        """The means that predict for unknown rows and columns."""
        return Fallback(self.entries)

    def extend(
        self,
        new: ObservedMatrix | None,
        areas: PredictedAreas,
        *,
        row_features: Features | None = None,
        column_features: Features | None = None,
        conflicts: Conflicts = "error",
    ) -> ExtendedState:
        """Return the state with more entries and features, and the rows and columns that were
        encoded for them."""
        known = self.entries
        more: dict[str, Any] = {"row_features": row_features, "column_features": column_features}
        entries, rows, columns, crossed, *_ = known.extend(new, conflicts=conflicts, **more)
        areas.check_new("row", known.rows, entries.rows)
        areas.check_new("column", known.columns, entries.columns)
        encoded = self.encode_again(entries, rows, columns, areas, crossed)
        return ExtendedState(encoded, rows, columns)

    def encode_again(
        self,
        entries: EntryStore,
        rows: IndexArray,
        columns: IndexArray,
        areas: PredictedAreas,
        crossed: IndexPair,
    ) -> Fitted:
        """Return the state with other entries, from which some rows and columns are encoded
        again."""
        rows = rows if areas.covers_new("row") else rows[:0]
        columns = columns if areas.covers_new("column") else columns[:0]
        presence = self.presence and self.presence.extend(
            entries, find_changed(entries, rows, columns, crossed)
        )
        predictor = self.predictor.extend(entries, rows, columns, crossed)
        return replace(self, entries=entries, predictor=predictor, presence=presence)

    def pack_learned(self) -> dict[str, Packed]:
        """Return everything but the entries as parts of a model file, by name."""
        parts = {"learned": self.predictor.pack()}
        if self.presence is not None:
            parts["presence"] = self.presence.pack()
        if self.predictor.drift is not None:
            parts["drift"] = self.predictor.drift.pack()
        if self.recency is not None:
            parts["recency"] = Packed(self.recency._asdict(), {})
        if self.asked is not None:
            parts["asked"] = self.asked.pack()
        if self.following is not None:
            parts["next"] = self.following.pack()
        return parts


class ExtendedState(NamedTuple):
    """A state with more entries, and the positions of the rows and columns that were encoded for
    them."""

    fitted: Fitted
    rows: IndexArray
    columns: IndexArray


def pack_entries(entries: EntryStore, *, is_mapped: bool) -> dict[str, Packed]:
    """Return the entries and the features as parts of a model file, by name."""
    from deepmf.matrix.packed import pack_mapped_matrix, pack_matrix
    from deepmf.matrix.stored import pack_features, pack_names

    pack = pack_mapped_matrix if is_mapped else pack_matrix
    parts = {"train": pack(entries.train, "train")}
    if entries.extension is not None:
        parts["extension"] = pack(entries.extension, "extension")
    for name, features in (
        ("row_features", entries.row_features),
        ("column_features", entries.column_features),
    ):
        if features is not None:
            parts[name] = pack_features(features, name)
    for name, names in (("row_names", entries.row_names), ("column_names", entries.column_names)):
        if names:
            parts[name] = pack_names(names, name)
    if entries.dropped.size:
        parts["dropped"] = _DROPPED.pack(entries=entries.dropped)
    return parts


_DROPPED = Form(Part("entries", "int64", ("dropped",)), prefix="dropped")


def unpack_entries(
    content: dict[str, Any], tensors: Tensors, areas: PredictedAreas, *, takes_features: bool
) -> EntryStore:
    """Return the stored entries and features; entries that a model cannot have raise
    `BadModelFile`."""
    from deepmf.matrix.stored import unpack_features, unpack_matrix, unpack_names

    train = unpack_matrix("train", content.get("train"), tensors)
    added = (
        unpack_matrix("extension", content["extension"], tensors)
        if "extension" in content
        else None
    )
    dropped = _DROPPED.read({}, tensors)["entries"] if "dropped" in content else NOTHING
    with refuse_stored("extension"):
        if added is not None:
            areas.check_extends()
        entries = EntryStore.from_parts(
            train, added, dropped, are_trusted=not has_values_to_check(tensors)
        )
        entries = unpack_features(entries, content, tensors)
        if not takes_features and (entries.row_features or entries.column_features):
            raise BadModelFile(f"the stored model has features, and {areas.method} reads none")
        areas.check_new("row", train.rows, entries.rows)
        areas.check_new("column", train.columns, entries.columns)
    row_names, column_names = (
        unpack_names(f"{axis}_names", content[f"{axis}_names"], tensors, axis=axis)
        if f"{axis}_names" in content
        else None
        for axis in ("row", "column")
    )
    return replace(entries, row_names=row_names, column_names=column_names)
