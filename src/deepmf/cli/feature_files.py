"""Files of features and of names: read for the rows and columns of a matrix or a model, with ids of the same type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from deepmf.cli.inputs import locate_errors, name_file, open_input
from deepmf.cli.options import BESIDE, option
from deepmf.cli.output import say
from deepmf.errors import BadFeatures, BadSetting
from deepmf.models.registry import MODELS, model_class

if TYPE_CHECKING:
    from deepmf.matrix.features import AxisFeatures, Features
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.matrix.table_form import TableForm
    from deepmf.models.base import Model


class MatrixFeatures(NamedTuple):
    """The features of rows and columns, or None; the names are the arguments of `fit`."""

    row_features: Features | None = None
    column_features: Features | None = None

    @property
    def kinds(self) -> dict[str, Any]:
        """The kind of each feature by its name, for rows and for columns."""
        return {axis: features.kinds for axis, features in zip(("rows", "columns"), self, strict=True) if features}


@dataclass(frozen=True)
class FeatureFiles:
    """The options of a command about features; `feature_label` names the id columns."""

    panel: ClassVar[str] = BESIDE

    row_features: Annotated[
        Path | None, option("--row-features FILE", "Features of rows, with a line per row: csv, parquet, jsonl, xlsx.")
    ] = None
    column_features: Annotated[
        Path | None, option("--column-features FILE", "Features of columns, with a line per column.")
    ] = None
    feature_label: Annotated[
        list[str] | None,
        option("--feature-label NAME", "Id column of the features file; default: detected; repeatable."),
    ] = None
    feature_kinds: str | None = None

    def __post_init__(self) -> None:
        if not self.paths and (self.feature_label or self._kinds):
            option = "--feature-label" if self.feature_label else "--feature-kinds"
            raise BadSetting(f"{option} needs --row-features or --column-features")

    @property
    def paths(self) -> list[Path]:
        """The files that were given."""
        return [path for path in (self.row_features, self.column_features) if path is not None]

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return {} if self.feature_kinds is None else parse_named_values("--feature-kinds", self.feature_kinds)

    def check_model(self, model: Model) -> None:
        """Refuse features for a model that cannot use them."""
        if self.paths and not model.takes_features:
            able = ", ".join(name for name in MODELS if model_class(name).takes_features)
            raise BadFeatures(f"{type(model).__name__} does not use features; these models do: {able}")

    def read(self, matrix: ObservedMatrix, encoding: str | None, named: Sequence[Path] = ()) -> MatrixFeatures:
        """Read the features of the rows and columns of a matrix, and check that a model can learn from them.

        named: files of names, whose field of names is not a feature.
        """
        from deepmf.matrix.features import AxisFeatures

        found = self._read(matrix.rows, matrix.columns, matrix.form, encoding, named)
        paths = (self.row_features, self.column_features)
        for path, features, labels in zip(paths, found, (matrix.rows, matrix.columns), strict=True):
            if path is not None and features is not None:
                with locate_errors(path):
                    AxisFeatures.of(labels, features)
        return found

    def extend(self, model: Model, encoding: str | None) -> Model:
        """Return the model extended by the features, with the kinds that the model was fitted with."""
        if not self.paths:
            return model
        known = model.entries_
        found = self._read(known.rows, known.columns, known.train.form, encoding)
        with locate_errors(self.paths[0]) if len(self.paths) == 1 else nullcontext():
            return model.extend(**found._asdict())

    def _read(
        self, rows: Labels, columns: Labels, form: TableForm, encoding: str | None, named: Sequence[Path] = ()
    ) -> MatrixFeatures:
        from deepmf.data.features import read_feature_file
        from deepmf.matrix.names import choose_name_field

        found: dict[str, Features] = {}
        used: set[str] = set()
        for axis, path, labels, name in (
            ("row_features", self.row_features, rows, form.row),
            ("column_features", self.column_features, columns, form.column),
        ):
            if path is None:
                continue
            with open_input(path) as file:
                features, label, guessed = read_feature_file(
                    file, known_as=(*(self.feature_label or ()), name), encoding=encoding
                )
            used.add(label)
            if guessed:
                note = f"{label!r} is taken as the id (set --feature-label to change this)"
                say(f"deepmf: {name_file(path)}: {note}", err=True)
            with locate_errors(path):
                kept = features.drop(choose_name_field(features.names)) if path in named else features
                if kept is None:
                    raise BadFeatures("the only field beside the ids holds the names; there are no features")
                kinds = {feature: kind for feature, kind in self._kinds.items() if feature in kept.names}
                found[axis] = convert_feature_labels(kept.with_kinds(kinds) if kinds else kept, labels)
        self._check_names(used, [name for features in found.values() for name in features.names])
        return MatrixFeatures(**found)

    def _check_names(self, labels: set[str], names: list[str]) -> None:
        files = " and ".join(map(name_file, self.paths))
        for label in self.feature_label or ():
            if label not in labels:
                raise BadFeatures(f"--feature-label {label}: there is no such column in {files}")
        for name in self._kinds:
            if name not in names:
                raise BadFeatures(
                    f"--feature-kinds {name}: there is no such feature in {files}; it has {', '.join(names)}"
                )


@dataclass(frozen=True)
class TrainingFeatureFiles(FeatureFiles):
    """The options about features of a command that fits models, which may set the kinds of features."""

    feature_kinds: Annotated[
        str | None,
        option(
            "--feature-kinds NAME=KIND,NAME=KIND",
            "Kinds of features that are detected wrongly: number, category, list, date, vector or text.",
        ),
    ] = None


def parse_named_values(option: str, text: str) -> dict[str, str]:
    """Parse `name=value,name=value`; a comma that no `name=` follows is part of the value.

    >>> parse_named_values("--features", "age=25,city=Paris, Texas,genres=Horror|Comedy")
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


_CONDITION = re.compile(r"([^<>=!]+)(>=|<=|!=|=)(.+)", re.DOTALL)


def parse_conditions(texts: Sequence[str], known: AxisFeatures | None) -> dict[str, dict[str, Any]]:
    """Parse conditions on features such as `year>=1990`, `genres=Drama|Comedy` and `genres!=War`."""
    from deepmf.data.delimited import is_number

    kinds = {} if known is None else known.encoding.kinds
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise BadSetting(f"--where takes year>=1990, genres=Drama|Comedy or genres!=War; got {text!r}")
        name, sign, value = (part.strip() for part in match.groups())
        is_ordered = kinds.get(name) in ("number", "date")
        if sign == "!=" and is_ordered:
            raise BadSetting(f"--where compares the {kinds[name]} {name} with >=, <= or =; got {text!r}")
        if is_ordered or sign in (">=", "<="):
            limit: Any = float(value) if is_number(value) else value
            words = {">=": ("min",), "<=": ("max",), "=": ("min", "max")}[sign]
            found.setdefault(name, {}).update(dict.fromkeys(words, limit))
        else:
            found.setdefault(name, {})["any" if sign == "=" else "none"] = value.split("|")
    return found


def convert_feature_labels(features: Features, labels: Labels) -> Features:
    """Return features with labels of the known type: a file of digits alone reads as ints."""
    known = labels.array
    if features.labels.dtype.kind == "i" and known.size and isinstance(known[0], str):
        return features.relabel([str(label) for label in features.labels.tolist()])
    return features


@dataclass(frozen=True)
class NameFiles:
    """The options of a command about names."""

    panel: ClassVar[str] = BESIDE

    row_names: Annotated[
        Path | None, option("--row-names FILE", "Names shown beside row ids: a table of ids and names.")
    ] = None
    column_names: Annotated[
        Path | None, option("--column-names FILE", "Names shown beside column ids, such as titles.")
    ] = None

    @property
    def paths(self) -> list[Path]:
        """The files that were given."""
        return [path for path in (self.row_names, self.column_names) if path is not None]

    def read(self, matrix: ObservedMatrix, encoding: str | None) -> dict[str, Any]:
        """Return the arguments of `fit` with the names of rows and columns."""
        found = self._read(matrix.rows, matrix.columns, matrix.form, encoding)
        return {f"{axis}_names": names for axis, names in found.items()}

    def add_to(self, model: Model, encoding: str | None) -> Model:
        """Return a model with the names."""
        known = model.entries_
        paths = {"row": self.row_names, "column": self.column_names}
        for axis, names in self._read(known.rows, known.columns, known.train.form, encoding).items():
            with locate_errors(paths[axis] or Path()):
                model = model.with_names(**{f"{axis}s": names})
        return model

    def _read(
        self, rows: Labels, columns: Labels, form: TableForm, encoding: str | None
    ) -> dict[str, Mapping[Any, Any]]:
        """Return the names of rows and of columns by axis, as far as there are files."""
        from deepmf.data.features import read_feature_file
        from deepmf.matrix.names import read_names

        found = {}
        for path, labels, field in ((self.row_names, rows, form.row), (self.column_names, columns, form.column)):
            if path is not None:
                with open_input(path) as file:
                    features = read_feature_file(file, known_as=[field], encoding=encoding).features
                with locate_errors(path):
                    found[labels.axis] = read_names(convert_feature_labels(features, labels), labels.axis)
        return found
