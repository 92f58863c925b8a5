"""Kinds of feedback, such as views, likes and purchases, and the values and weights that they stand for."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from deepmf.errors import BadSetting
from deepmf.files import read_toml
from deepmf.matrix.extras import LARGEST_WEIGHT, SMALLEST_WEIGHT
from deepmf.models.base import Model
from deepmf.serve.errors import ApiError
from deepmf.serve.schemas import LONGEST_KIND, EntryRequest


class FeedbackKind(NamedTuple):
    """The value and the weight of the entries of a kind."""

    value: float
    weight: float = 1.0


Kinds = Mapping[str, FeedbackKind]


def read_kinds(path: Path) -> dict[str, FeedbackKind]:
    """Read a TOML file with a line for each kind, such as `like = 4` or `view = {value = 4, weight = 0.1}`."""
    return {name: _read_kind(path, name, given) for name, given in read_toml(path).items()}


def _read_kind(path: Path, name: str, given: Any) -> FeedbackKind:
    fields = given if isinstance(given, dict) else {"value": given}
    if not {"value"} <= fields.keys() <= {"value", "weight"} or not all(map(_is_number, fields.values())):
        raise BadSetting(
            f"{path}: the kind {name!r} is {reprlib.repr(given)}; write {name} = 5, or "
            f"{name} = {{value = 5, weight = 0.5}}"
        )
    found = FeedbackKind(**{field: float(number) for field, number in fields.items()})
    if not SMALLEST_WEIGHT <= found.weight <= LARGEST_WEIGHT:
        raise BadSetting(
            f"{path}: the kind {name!r} has the weight {found.weight:g}; it must lie between "
            f"{SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}"
        )
    if not 1 <= len(name) <= LONGEST_KIND:
        raise BadSetting(f"{path}: the name of the kind {name!r} must have 1 to {LONGEST_KIND} characters")
    return found


def _is_number(given: Any) -> bool:
    return not isinstance(given, bool) and isinstance(given, int | float) and abs(given) <= sys.float_info.max


def check_kinds(kinds: Kinds, model: Model) -> None:
    """Raise `BadSetting` for kinds whose values are not on the scale of a model, and for weights that it ignores."""
    for name, kind in kinds.items():
        if not model.scale_.holds(kind.value):
            raise BadSetting(
                f"the kind {name!r} has the value {kind.value:g}; the scale of the model is {model.scale_}"
            )
        if kind.weight != 1 and not model.takes_weights:
            raise BadSetting(
                f"the kind {name!r} has the weight {kind.weight:g}; {type(model).__name__} does not use weights"
            )


def find_kind(name: str, kinds: Kinds) -> FeedbackKind:
    """Return a kind; raise `ApiError` if there is no such kind."""
    if name not in kinds:
        raise ApiError(422, "unknown_kind", explain_unknown_kind(kinds))
    return kinds[name]


def read_entry(entry: EntryRequest, kinds: Kinds) -> tuple[Any, ...]:
    """Return the fields of a `GivenEntry`: a kind gives value and weight, unless the request has a weight."""
    extras = entry.list_extras()
    if entry.kind is None:
        return entry.value, *extras
    value, weight = find_kind(entry.kind, kinds)
    time, own_weight = extras or (None, None)
    return value, time, weight if own_weight is None else own_weight


def explain_unknown_kind(kinds: Kinds) -> str:
    """Return why a kind is not known."""
    if not kinds:
        return "this service has no kinds of feedback; send values"
    return f"this kind is not known; this service has {', '.join(kinds)}"
