"""Files of features: read for the rows and columns of a matrix or a model, with ids of the kind that they have."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.cli.inputs import called, local_file
from deepmf.cli.options import ColumnFeatures, FeatureKinds, FeatureLabels, RowFeatures
from deepmf.cli.output import say
from deepmf.errors import BadFeatures, BadSetting, DeepMFWarning, UserError
from deepmf.models.registry import MODELS, model_class

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepmf.matrix.features import Features
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.base import Model


class AxisPair(NamedTuple):
    """The features of rows and those of columns, None where there are none: what `fit` takes by these names."""

    row_features: Features | None = None
    column_features: Features | None = None


@dataclass(frozen=True)
class FeatureFiles:
    """The files of features of one command, and how they are read: a group of options.

    labels: names of the columns with ids. kinds: kinds by name, as text; each is for the files that have the name.
    """

    rows: RowFeatures = None
    columns: ColumnFeatures = None
    labels: FeatureLabels = None
    kinds: FeatureKinds = None

    def __post_init__(self) -> None:
        if not self.paths and (self.labels or self._kinds):
            option = "--feature-label" if self.labels else "--feature-kinds"
            raise BadSetting(f"{option} is for a file of features: give --row-features or --column-features too")

    @property
    def paths(self) -> list[Path]:
        """All files that there are."""
        return [path for path in (self.rows, self.columns) if path is not None]

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return {} if self.kinds is None else by_name("--feature-kinds", self.kinds)

    def check_taken_by(self, model: Model) -> None:
        """Refuse files of features for a model that reads none."""
        if self.paths and not model.takes_features:
            able = ", ".join(name for name in MODELS if model_class(name).takes_features)
            raise BadFeatures(f"{type(model).__name__} reads entries alone, no features; {able} read both")

    def read(self, matrix: ObservedMatrix) -> AxisPair:
        """Read the features of the rows and columns of a matrix; what could not be learned from is refused here."""
        from deepmf.matrix.features import AxisFeatures

        found = self._read(matrix.rows, matrix.columns, matrix.form.row, matrix.form.column)
        for path, features, labels in zip((self.rows, self.columns), found, (matrix.rows, matrix.columns), strict=True):
            if path is not None and features is not None:
                with _named(path):
                    AxisFeatures.of(labels, features)
        return found

    def extended(self, model: Model) -> Model:
        """Return a model extended by the features, whose kinds are those that it was fitted with."""
        if not self.paths:
            return model
        known = model.entries_
        found = self._read(known.rows, known.columns, known.train.form.row, known.train.form.column)
        for path, name, features in zip((self.rows, self.columns), found._fields, found, strict=True):
            if path is not None and features is not None:
                with _named(path):
                    model = model.extend(**{name: features})  # type: ignore[arg-type]
        return model

    def _read(self, rows: Labels, columns: Labels, row_name: str, column_name: str) -> AxisPair:
        found: list[Features | None] = []
        used: set[str] = set()
        for path, labels, name in ((self.rows, rows, row_name), (self.columns, columns, column_name)):
            if path is None:
                found.append(None)
                continue
            features, label = self._read_file(path, name)
            used.add(label)
            with _named(path):
                found.append(_like(features, labels.array, path, axis=labels.axis))
        self._check_used(used, [name for features in found if features is not None for name in features.names])
        return AxisPair(*found)

    def _read_file(self, path: Path, name: str) -> tuple[Features, str]:
        from deepmf.data.features import read_feature_file

        with local_file(path) as file:
            features, label, guessed = read_feature_file(file, known_as=(*(self.labels or ()), name))
        if guessed:
            say(f"deepmf: {called(path)}: {label!r} is taken as the id (--feature-label says otherwise)", err=True)
        kinds = {feature: kind for feature, kind in self._kinds.items() if feature in features.names}
        with _named(path):
            return features.with_kinds(kinds) if kinds else features, label

    def _check_used(self, labels: set[str], names: list[str]) -> None:
        """Refuse a name that no file has."""
        files = " and ".join(map(called, self.paths))
        for label in self.labels or ():
            if label not in labels:
                raise BadFeatures(f"--feature-label {label}: there is no such column in {files}")
        for name in self._kinds:
            if name not in names:
                raise BadFeatures(f"--feature-kinds {name}: {files} have {', '.join(names)}")


def by_name(option: str, text: str) -> dict[str, str]:
    """Read texts by name; a comma that no name and = follow is part of a text.

    >>> by_name("--features", "age=25,city=Paris, Texas,genres=Horror|Comedy")
    {'age': '25', 'city': 'Paris, Texas', 'genres': 'Horror|Comedy'}
    """
    found: dict[str, str] = {}
    for part in re.split(r",(?=[^,=]+=)", text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise BadSetting(f"{option} takes name=value,name=value, such as age=25; got {text!r}")
        if name.strip() in found:
            raise BadSetting(f"{option} has {name.strip()!r} twice; got {text!r}")
        found[name.strip()] = value.strip()
    return found


def told(names: AxisPair) -> dict[str, Any]:
    """Return the names and kinds of features by axis."""
    return {axis: features.kinds for axis, features in zip(("rows", "columns"), names, strict=True) if features}


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Say of what is wrong in which file it is, and what would help as the command line says it."""
    try:
        yield
    except UserError as error:
        raise error.locate(called(path)) from error


def _like(features: Features, known: npt.NDArray[Any], path: Path, *, axis: str) -> Features:
    """Return features with ids of the kind of known ones: a file with nothing but digits reads as ints."""
    import numpy as np

    from deepmf.data.delimited import is_whole

    own = features.labels
    if own.dtype.kind == "i" and known.size and isinstance(known[0], str):
        return features.relabel([str(label) for label in own.tolist()])
    if known.dtype.kind != "i" or own.dtype.kind == "i" or not all(isinstance(label, str) for label in own.tolist()):
        return features
    whole = np.flatnonzero([is_whole(label) for label in own.tolist()])
    if not whole.size:
        return features
    warnings.warn(
        f"{called(path)}: {own.size - whole.size:,} of {own.size:,} ids are no whole numbers, as the {axis}s are, and "
        "are left out",
        DeepMFWarning,
        stacklevel=1,
    )
    return features.take(whole).relabel([int(label) for label in own[whole].tolist()])
