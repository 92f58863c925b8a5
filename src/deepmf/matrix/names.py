"""Names of rows and columns: texts such as titles that are shown beside ids; ids stay the keys."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from deepmf.errors import BadFeatures, BadSetting
from deepmf.matrix.arrays import Array, ObjectArray, is_missing
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labels, build_label_array

# Usual names of the field of names, in lower case; the first that a table has is taken.
_USUAL_FIELDS = ("title", "name", "label", "text", "description")

GivenNames = Any  # a dict of names by id, a frame, features, or the name of a feature


class Names(dict[Any, str]):
    """Names by label; labels may be left out.

    >>> Names({7: "Alien", 9: ""}, axis="column").find([7, 8, 9])
    ['Alien', None, None]
    """

    def __init__(self, by_label: Mapping[Any, Any], *, axis: str) -> None:
        labels = build_label_array(by_label, axis=axis).tolist()
        texts = (
            "" if is_missing(name) else " ".join(str(name).split()) for name in by_label.values()
        )
        super().__init__((label, text) for label, text in zip(labels, texts, strict=True) if text)
        self.axis = axis

    def find(self, labels: Iterable[Any]) -> list[str | None]:
        """Return the name of each label, None if it has none."""
        return [self.get(label) for label in labels]

    def find_array(self, labels: Array) -> ObjectArray:
        """Return the names of an array of labels as an array of the same shape."""
        texts = np.fromiter(self.find(labels.ravel().tolist()), dtype=object, count=labels.size)
        return texts.reshape(labels.shape)

    def without(self, labels: Iterable[Any]) -> Names | None:
        """Return the names without those of some labels; None if no name is left."""
        gone = set(labels)
        names = {label: text for label, text in self.items() if label not in gone}
        return Names(names, axis=self.axis) if names else None

    def __repr__(self) -> str:
        return f"Names({reprlib.repr(dict(self))}, axis={self.axis!r})"


def join_names(known: Names | None, given: GivenNames | None, labels: Labels) -> Names | None:
    """Return known names of an axis with others, which replace those of the same labels.

    Parameters
    ----------
    known : the names so far.
    given : a dict of names by id, a frame with a column of ids and a column of names, or features
        with such a column.
    labels : the labels of the axis; at least one name must belong to one of them.
    """
    if given is None:
        return known
    names = Names(read_names(given, labels.axis), axis=labels.axis)
    if names and len(labels) and not np.any(labels.find(names) >= 0):
        example, other_example = (
            reprlib.repr(next(iter(examples))) for examples in (names, labels[:1].tolist())
        )
        raise BadSetting(
            f"no {labels.axis} has a name: names are given for ids such as {example}, and the "
            f"{labels.axis}s have ids such as {other_example}"
        )
    if known is None:
        return names or None
    return Names({**known, **names}, axis=labels.axis)


def read_names(given: GivenNames, axis: str) -> Mapping[Any, Any]:
    """Return names by label, from a dict, a pandas series, a frame or features."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, Features):
        return given.pair(choose_name_field(given.names))
    # a pandas series
    if hasattr(given, "to_dict") and hasattr(given, "index") and not hasattr(given, "columns"):
        return dict(given.to_dict())
    from deepmf.matrix.frames import read_feature_columns

    try:
        labels, columns = read_feature_columns(
            given, getattr(getattr(given, "index", None), "name", None)
        )
    except BadFeatures as error:
        raise BadSetting(
            f"{axis} names must be a dict of names by id, a frame or features: {error}"
        ) from error
    return dict(zip(labels, columns[choose_name_field(tuple(columns))], strict=True))


def choose_name_field(fields: tuple[str, ...], wanted: str | None = None) -> str:
    """Return the field of names: as given, the only one, or one with a usual name.

    >>> choose_name_field(("year", "title"))
    'title'
    """
    if wanted is not None:
        if wanted not in fields:
            raise BadSetting(
                f"there is no field {wanted!r} of names; there are {', '.join(fields)}"
            )
        return wanted
    plain = {field.lower(): field for field in reversed(fields)}
    usual = [plain[word] for word in _USUAL_FIELDS if word in plain]
    has_header = not all(field.startswith("field ") for field in fields)
    if not usual and ((len(fields) > 1 and has_header) or not fields):
        listed = ", ".join(fields) or "none"
        raise BadSetting(
            f"the field of names is not clear: call it title or name, or give two fields; got {listed}"
        )
    return [*usual, *fields][0]


def take_names_from(
    features: Features | None, given: GivenNames | None
) -> tuple[Features | None, GivenNames | None]:
    """Return features and names; a feature that is named as the names is taken out of the features.

    >>> films = Features.from_columns([7, 9], {"title": ["Alien", "Big"], "year": [1979, 1988]})
    >>> take_names_from(films, "title")
    (Features(2 labels: year (number)), {7: 'Alien', 9: 'Big'})
    """
    if not isinstance(given, str):
        return features, given
    if features is None:
        raise BadSetting(
            f"{given!r} names no feature, because there are none; give the names as a dict or a frame"
        )
    field = choose_name_field(features.names, given)
    return features.drop(field), features.pair(field)


def format_label(label: Any, names: Mapping[Any, str] | None) -> str:
    """Return a label as text, after its name if it has one.

    >>> format_label(7, {7: "Alien"}), format_label(8, {7: "Alien"})
    ('Alien (7)', '8')
    """
    name = None if names is None else names.get(label)
    return str(label) if name is None or name == str(label) else f"{name} ({label})"
