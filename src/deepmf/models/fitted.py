"""The state of a fitted model: what it knows, how it grows and shrinks, and how it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.entries import ChangedStore, Conflicts, EntryStore, ForgetPlan, forget
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.extension import check_arrived, refuse_divergence
from deepmf.models.parts import Parts, adapt_predictor, pack_parts
from deepmf.recommend.ranker import Rankers
from deepmf.recommend.request import RankBy
from deepmf.scoring.pairs import Fallback, PredictedAreas
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors, has_values_to_check, refuse_stored
from deepmf.storage.parts import Form, Part


@dataclass(frozen=True)
class Fitted:
    """The state of a fitted model.

    entries: the entries that it knows.
    learned: what it learned from their values.
    parts: what it learned beside values, by name, in the order of `PARTS`.
    rank_by: the order in which it ranks columns by default.
    """

    entries: EntryStore
    learned: Predictor
    parts: Parts = field(default_factory=dict)
    rank_by: RankBy = "value"

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor with all parts."""
        return adapt_predictor(self.learned, self.parts)

    @cached_property
    def rankers(self) -> Rankers:
        """The rankers of columns."""
        parts: dict[str, Any] = {**self.parts}
        return Rankers(
            self.entries.as_read,
            parts.get("presence"),
            self.rank_by,
            recency=parts.get("recency"),
            following=parts.get("next"),
        )

    @cached_property
    def fallback(self) -> Fallback:
        """The means that predict for unknown rows and columns."""
        return Fallback(self.entries.as_read)

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
        change = self.entries.extend(
            new, conflicts=conflicts, row_features=row_features, column_features=column_features
        )
        areas.check_new("row", self.entries.rows, change.entries.rows)
        areas.check_new("column", self.entries.columns, change.entries.columns)
        with refuse_divergence():
            extended = self._encode_again(change, areas)
        check_arrived(extended.learned, change)
        return ExtendedState(extended, change.rows, change.columns)

    def forget(self, plan: ForgetPlan, areas: PredictedAreas) -> Fitted:
        """Return the state without some rows, columns, entries and features."""
        change = forget(self.entries, plan)
        learned = self.learned.without("row", change.gone_rows)
        learned = learned.without("column", change.gone_columns)
        parts = {name: part.forget(plan, change) for name, part in self.parts.items()}
        return replace(self, learned=learned, parts=parts)._encode_again(change, areas)

    def _encode_again(self, change: ChangedStore, areas: PredictedAreas) -> Fitted:
        """Return the state with changed entries, from which rows and columns are encoded again."""
        if not areas.covers_new("row"):
            change = change._replace(rows=NOTHING)
        if not areas.covers_new("column"):
            change = change._replace(columns=NOTHING)
        as_read = change._replace(entries=change.entries.as_read)
        learned = self.learned.extend(*as_read[:4])
        parts = {name: part.extend(as_read) for name, part in self.parts.items()}
        return replace(self, entries=change.entries, learned=learned, parts=parts)

    def pack(self) -> dict[str, Packed]:
        """Return everything but the entries for a model file, by name."""
        return {"learned": self.learned.pack(), "parts": pack_parts(self.parts)}


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
    extension = (
        unpack_matrix("extension", content["extension"], tensors)
        if "extension" in content
        else None
    )
    dropped = _DROPPED.read({}, tensors)["entries"] if "dropped" in content else NOTHING
    with refuse_stored("extension"):
        if extension is not None:
            areas.check_extends()
        entries = EntryStore.from_parts(
            train, extension, dropped, are_trusted=not has_values_to_check(tensors)
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
