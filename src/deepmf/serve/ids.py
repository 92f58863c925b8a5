"""Ids as they appear in URLs and bodies, and the labels of the model that they stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from deepmf.errors import BadSetting
from deepmf.matrix.labels import Labels
from deepmf.matrix.stored import check_storable
from deepmf.serve.schemas import LARGEST_ID, SMALLEST_ID, ApiError, Id

_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")
ID_KINDS = {str: "text", int: "integers of 64 bits"}
_FIRST_VISITOR = 2**62  # the page gives its visitors numeric ids from here on


def get_kind(labels: Labels) -> type[int] | type[str]:
    """Return the type of the ids of an axis."""
    if len(labels) > 0 and labels[:1].dtype.kind == "i":
        return int
    return str


def check_servable(labels: Labels) -> None:
    """Raise `BadSetting` for labels that are neither text nor integers: JSON and URLs have no other
    types."""
    check_storable(labels)
    if get_kind(labels) is str and len(labels) and not isinstance(labels[0], str):
        kind = type(labels[0]).__name__
        raise BadSetting(
            f"the {labels.axis}s of this model are of type {kind}; the service takes ids that are text or integers"
        )


def is_id(given: Id, kind: type) -> bool:
    """Whether an id can be a label of a type: of an integer, its text can too."""
    if kind is str:
        return True
    is_integer = isinstance(given, int) or _INTEGER.fullmatch(given) is not None
    return is_integer and SMALLEST_ID <= int(given) <= LARGEST_ID


def convert_id(given: Id, labels: Labels) -> Any:
    """Convert an id to a label of the axis's type; raise `ApiError` if it has another type."""
    kind = get_kind(labels)
    if not is_id(given, kind):
        reason = f"{labels.axis}s are {ID_KINDS[kind]} here"
        raise ApiError(422, "bad_id", f"{labels.axis} {quote_id(given)} is not an id: {reason}")
    return kind(given)


def convert_ids(ids: Sequence[Id], labels: Labels) -> list[Any]:
    """Convert ids to labels of the axis's type."""
    kind = get_kind(labels)
    return [raw_id if type(raw_id) is kind else convert_id(raw_id, labels) for raw_id in ids]


def find_label(given: Id, labels: Labels) -> Any:
    """Return the label that an id stands for; raise `ApiError` if the axis does not have it."""
    return find_labels([given], labels)[0]


def find_labels(ids: Sequence[Id], labels: Labels) -> list[Any]:
    """Return the labels that ids stand for; raise `ApiError` for the first that the axis does not
    have."""
    wanted_labels = convert_ids(ids, labels)
    missing = np.flatnonzero(labels.find(wanted_labels) < 0)
    if missing.size:
        raise make_unknown_id_error(ids[missing[0]], labels.axis)
    return wanted_labels


def make_unknown_id_error(given: Id, axis: str) -> ApiError:
    """Return the error for an id that the model does not know."""
    return ApiError(404, f"unknown_{axis}", f"{axis} {quote_id(given)} is not known")


def is_visitor(label: Any) -> bool:
    """Whether the page made this row for a visitor; its id is their secret and is never listed."""
    if isinstance(label, str):
        return re.fullmatch("guest-[0-9a-f]{32}", label) is not None
    return bool(label >= _FIRST_VISITOR)


def invent_label(labels: Labels) -> Any:
    """Return a label that an axis does not have, and that tells nothing about the ids of
    visitors."""
    if get_kind(labels) is int:
        return int(labels.array[labels.array < _FIRST_VISITOR].max(initial=0)) + 1
    return next(label for number in count(len(labels)) if (label := f"new-{number}") not in labels)


def quote_id(given: Id) -> str:
    """Return an id as messages show it: quoted, and cut if it is long."""
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"
