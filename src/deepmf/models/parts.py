"""The parts of a model: what it learns beside values, such as drift, presence and what comes next.

Every part answers the same questions, so fitting, extending, forgetting, saving and loading are
loops over `PARTS`. Their order is declared there: a part may read those before it, and predictions
are adapted in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self

from deepmf.errors import BadModelFile
from deepmf.matrix.entries import ChangedStore, EntryStore, ForgetPlan
from deepmf.recommend.next_ridge import NextRidge
from deepmf.recommend.presence import Presence, Recency
from deepmf.scoring.asked import Calibration
from deepmf.scoring.drift import Drift
from deepmf.scoring.learning import Learning, SteadyPart as SteadyPart
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors


class Part(Protocol):
    """What a model learns beside values. `SteadyPart` has all but `pack` and `unpack`.

    A part never changes: `extend` and `forget` return another one.
    """

    def extend(self, change: ChangedStore) -> Self:
        """Return the part after an extension.

        change: the entries after it, and the positions of the rows and columns that changed.
        """

    def forget(self, plan: ForgetPlan, change: ChangedStore) -> Self:
        """Return the part without some rows and columns; `extend` with the same change follows.

        plan: their positions before. change: the entries after it, and what changed.
        """

    def adapt(self, predictor: Predictor) -> Predictor:
        """Return a predictor that predicts with this part."""

    def describe_choice(self) -> dict[str, float]:
        """Return what was chosen on held-out entries, by name."""

    def pack(self) -> Packed:
        """Return the part for a model file; the names of its tensors begin with that of the part."""

    @classmethod
    def unpack(
        cls, content: Any, tensors: Tensors, entries: EntryStore, predictor: Predictor
    ) -> Self:
        """Return the stored part; impossible content raises `BadModelFile`.

        predictor: adapted by the parts before this one.
        """


Parts = dict[str, Part]


class PartKind(NamedTuple):
    """The class of a part, and the function that fits it, "module:function".

    The function maps a `Learning` to parts by name: this one unless it would not help, and earlier
    ones that it changes. It is imported when a model is fitted.
    """

    part: type[Part]
    fit: str = ""


PARTS: dict[str, PartKind] = {
    "drift": PartKind(Drift, "deepmf.scoring.drift_fit:fit_drift"),
    "presence": PartKind(Presence, "deepmf.recommend.presence_fit:fit_presence"),
    "recency": PartKind(Recency),  # fitted with "next"
    "next": PartKind(NextRidge, "deepmf.recommend.order_fit:fit_order"),
    "asked": PartKind(Calibration, "deepmf.scoring.asked:fit_calibration"),
}


def fit_parts(learning: Learning) -> Parts:
    """Return the parts that are learned, in their order."""
    parts: Parts = {}
    for kind in PARTS.values():
        if kind.fit:
            module, function = kind.fit.split(":")
            fit = getattr(import_module(module), function)
            parts |= fit(replace(learning, parts=parts))
    return {name: parts[name] for name in PARTS if name in parts}


def adapt_predictor(predictor: Predictor, parts: Parts) -> Predictor:
    """Return a predictor that predicts with all parts."""
    for part in parts.values():
        predictor = part.adapt(predictor)
    return predictor


def pack_parts(parts: Parts) -> Packed:
    """Return all parts for a model file."""
    packed = {name: part.pack() for name, part in parts.items()}
    content = {name: part.content for name, part in packed.items()}
    tensors = {name: tensor for part in packed.values() for name, tensor in part.tensors.items()}
    return Packed(content, tensors)


def unpack_parts(
    content: Mapping[str, Any], tensors: Tensors, entries: EntryStore, predictor: Predictor
) -> Parts:
    """Return the stored parts; unknown parts and impossible content raise `BadModelFile`."""
    unknown = content.keys() - PARTS.keys()
    if unknown:
        raise BadModelFile(
            f"the stored part {min(unknown)!r} is unknown; the parts are {', '.join(PARTS)}"
        )
    parts: Parts = {}
    for name in (name for name in PARTS if name in content):
        parts[name] = PARTS[name].part.unpack(content[name], tensors, entries, predictor)
        predictor = parts[name].adapt(predictor)
    return parts
