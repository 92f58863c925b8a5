"""Ids as they stand in URLs and bodies, and the labels of a model that they mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepmf.errors import BadSetting, UnknownLabel
from deepmf.matrix.labels import Labels
from deepmf.serve.errors import Refusal
from deepmf.storage.matrices import check_storable

Id = str | int


_FIRST_VISITOR = 2**62  # where rows are whole numbers

SMALLEST, LARGEST = -(2**63), 2**63 - 1  # ids that are whole numbers have 64 bits


def check_servable(labels: Labels) -> None:
    """Refuse a model whose ids are neither text nor whole numbers: JSON and URLs have no other kinds."""
    check_storable(labels)
    if not are_numbers(labels) and len(labels) and not isinstance(labels[0], str):
        kind = type(labels[0]).__name__
        raise BadSetting(
            f"the service takes ids that are text or whole numbers; this model's {labels.axis}s are of type {kind}"
        )


def are_numbers(labels: Labels) -> bool:
    """Say whether the labels of an axis are whole numbers."""
    return len(labels) > 0 and labels[:1].dtype.kind == "i"


def as_labels(given: Sequence[Id], labels: Labels) -> list[Any]:
    """Return ids as labels of the kind that an axis has."""
    kind = int if are_numbers(labels) else str
    return [one if type(one) is kind else as_label(one, labels) for one in given]


def as_label(given: Id, labels: Labels) -> Any:
    """Return an id as a label of the kind that an axis has; one that cannot be of this kind is refused."""
    if not are_numbers(labels):
        return str(given)
    if isinstance(given, str) and not _is_whole(given):
        raise Refusal(422, "bad_id", f"{labels.axis} {shown(given)} is no id here: {labels.axis}s are whole numbers")
    number = int(given)
    if not SMALLEST <= number <= LARGEST:
        raise Refusal(422, "bad_id", f"{labels.axis} {shown(given)} is no id here: whole numbers have 64 bits")
    return number


def known_label(given: Id, labels: Labels) -> Any:
    """Return an id as a label that an axis has; an unknown one is refused by its name, without naming others."""
    return known_labels([given], labels)[0]


def known_labels(given: Sequence[Id], labels: Labels) -> list[Any]:
    """Return ids as labels that an axis has, all looked up at once."""
    found = as_labels(given, labels)
    missing = np.flatnonzero(labels.find(found) < 0)
    if missing.size:
        raise unknown(given[missing[0]], labels.axis)
    return found


def is_visitors(label: Any) -> bool:
    """Say whether a row is one that the page made for a visitor: its id is a secret of theirs, and is never listed."""
    if isinstance(label, str):
        return re.fullmatch("guest-[0-9a-f]{32}", label) is not None
    return bool(label >= _FIRST_VISITOR)


def unknown(given: Id, axis: str) -> Refusal:
    """Return the refusal of an id that nobody has heard of."""
    return Refusal(404, f"unknown_{axis}", f"{axis} {shown(given)} is not known")


def shown(given: Id) -> str:
    """Return an id as messages show it: quoted, and cut where it is long."""
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"


def named_unknown(error: UnknownLabel) -> str:
    """Return what an error says of an unknown label, without the labels that there are."""
    return str(error).split("; there are ")[0]


def _is_whole(text: str) -> bool:
    digits = text[1:] if text.startswith("-") else text
    return digits.isascii() and digits.isdigit() and len(digits) <= 19 and str(int(text)) == text
