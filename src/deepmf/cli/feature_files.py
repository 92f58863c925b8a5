"""Files of features and of names, and the model that a command reads with these files and files
that extend it.

Features and names are read for the rows and columns of a matrix or a model, with ids of the same
type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from deepmf.cli.inputs import (
    InputOptions,
    convert_labels,
    convert_matrix,
    locate_errors,
    name_file,
    open_input,
    parse_named_values,
)
from deepmf.cli.options import BESIDE, argument, offer
from deepmf.cli.output import say
from deepmf.errors import BadFeatures, BadSetting

if TYPE_CHECKING:
    from deepmf.data.features import FeatureFile
    from deepmf.matrix.entries import EntryStore
    from deepmf.matrix.features import AxisFeatures, Features
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.matrix.table_form import TableForm
    from deepmf.models.base import Model

# The options of a command that reads a model; some show no names.
FEATURES = (
    "row_features",
    "column_features",
    "row_similarity",
    "column_similarity",
    "feature_label",
)
FEATURES_AND_NAMES = (*FEATURES, "row_names", "column_names")


@dataclass(frozen=True)
class LabelFiles:
    """The options of a command about files with a line for each row or column: features, and names
    to show."""

    panel: ClassVar[str] = BESIDE

    row_features: Path | None = offer(
        "--row-features FILE", "Features of rows, with a line per row: csv, parquet, jsonl, xlsx."
    )
    column_features: Path | None = offer(
        "--column-features FILE", "Features of columns, with a line per column."
    )
    row_similarity: Path | None = offer(
        "--row-similarity FILE",
        "How similar rows are: a line per row (also a new one) and a column per known row.",
    )
    column_similarity: Path | None = offer(
        "--column-similarity FILE", "How similar columns are, in the same form."
    )
    feature_label: list[str] | None = offer(
        "--feature-label NAME", "Id column of the features file; default: detected; repeatable."
    )
    feature_kinds: str | None = offer(
        "--feature-kinds --kind NAME=KIND,NAME=KIND",
        "Kinds of features that are not detected: number, category, list, date, position, vector or text.",
    )
    row_names: Path | None = offer(
        "--row-names FILE", "Names shown beside row ids: a table of ids and names."
    )
    column_names: Path | None = offer(
        "--column-names FILE", "Names shown beside column ids, such as titles."
    )

    def __post_init__(self) -> None:
        if not self._list_paths("features") and (self.feature_label or self.feature_kinds):
            option = "--feature-label" if self.feature_label else "--feature-kinds"
            raise BadSetting(f"{option} needs --row-features or --column-features")

    @property
    def paths(self) -> list[Path]:
        """The files that were given."""
        kinds = ("features", "similarity", "names")
        return [path for kind in kinds for path in self._list_paths(kind).values()]

    @property
    def describes(self) -> dict[str, Path]:
        """A file of features or of similarities by axis."""
        return self._list_paths("similarity") | self._list_paths("features")

    def _list_paths(self, kind: str) -> dict[str, Path]:
        """Return the files of features, of similarities, or of names, by axis."""
        return {
            axis: path for axis in ("row", "column") if (path := getattr(self, f"{axis}_{kind}"))
        }

    def read(self, matrix: ObservedMatrix, encoding: str | None) -> dict[str, Any]:
        """Return the arguments of `fit`: features that a model can learn from, and names by
        label."""
        from deepmf.matrix.features import AxisFeatures

        features = self._read_features(matrix, matrix.form, encoding)
        for axis, path in self.describes.items():
            with locate_errors(path):
                AxisFeatures.of(getattr(matrix, f"{axis}s"), features[f"{axis}_features"])
        return features | self._read_names(matrix, matrix.form, encoding)

    def extend(self, model: Model, encoding: str | None) -> Model:
        """Return the model extended by the features, with the kinds that it was fitted with."""
        paths = self.describes.values()
        if not paths:
            return model
        features = self._read_features(model.entries_, model.entries_.train.form, encoding)
        with locate_errors(Path(" and ".join(map(str, paths)))):
            return model.extend(**features)

    def add_names(self, model: Model, encoding: str | None) -> Model:
        """Return the model with the names."""
        names = self._read_names(model.entries_, model.entries_.train.form, encoding)
        for axis, path in self._list_paths("names").items():
            with locate_errors(path):
                model = model.with_names(**{f"{axis}s": names[f"{axis}_names"]})
        return model

    def _read_features(
        self, known: ObservedMatrix | EntryStore, form: TableForm, encoding: str | None
    ) -> dict[str, Any]:
        from deepmf.matrix.names import choose_name_field

        axis_features: dict[str, Any] = {}
        labels, paths = set(self.feature_label or ()), self._list_paths("features")
        unused_labels, kinds = set(labels), dict[str, str]()
        if self.feature_kinds:
            kinds = parse_named_values("--feature-kinds", self.feature_kinds)
        for axis, path in paths.items():
            file = _read_file(
                path, getattr(known, f"{axis}s"), [*labels, getattr(form, axis)], encoding
            )
            features: Features | None = file.features
            unused_labels.discard(file.label)
            if file.is_guess:
                note = f"{file.label!r} is taken as the id (set --feature-label to change this)"
                say(f"deepmf: {name_file(path)}: {note}", err=True)
            with locate_errors(path):
                if path in self._list_paths("names").values():  # whose field is no feature
                    features = file.features.drop(choose_name_field(file.features.names))
                if features is None:
                    raise BadFeatures(
                        "the only field beside the ids holds the names; there are no features"
                    )
                axis_kinds = {name: kinds[name] for name in kinds.keys() & features.names}
                axis_features[f"{axis}_features"] = features.with_kinds(axis_kinds)
        for axis, path in self._list_paths("similarity").items():
            similar = _read_similarity(
                path, getattr(known, f"{axis}s"), getattr(form, axis), encoding
            )
            others = axis_features.get(f"{axis}_features")
            axis_features[f"{axis}_features"] = similar if others is None else others.join(similar)
        files = " and ".join(map(name_file, paths.values()))
        for label in unused_labels:
            raise BadFeatures(f"--feature-label {label}: there is no such column in {files}")
        names = [name for features in axis_features.values() for name in features.names]
        for name in kinds.keys() - set(names):
            raise BadFeatures(
                f"--feature-kinds {name}: there is no such feature in {files}; it has {', '.join(names)}"
            )
        return axis_features

    def _read_names(
        self, known: ObservedMatrix | EntryStore, form: TableForm, encoding: str | None
    ) -> dict[str, Mapping[Any, Any]]:
        from deepmf.matrix.names import read_names

        names = {}
        for axis, path in self._list_paths("names").items():
            read = _read_file(path, getattr(known, f"{axis}s"), [getattr(form, axis)], encoding)
            with locate_errors(path):
                names[f"{axis}_names"] = read_names(read.features, axis)
        return names


def _read_file(path: Path, known: Labels, known_as: list[str], encoding: str | None) -> FeatureFile:
    """Read a file of features with labels of the known type."""
    from deepmf.data.features import read_feature_file
    from deepmf.data.layout import ColumnOptions

    with open_input(path) as file:
        read = read_feature_file(file, ColumnOptions(encoding=encoding), known_as=known_as)
    with locate_errors(path):
        return read._replace(
            features=read.features.relabel(convert_labels(read.features.labels, known))
        )


def _read_similarity(path: Path, known: Labels, known_as: str, encoding: str | None) -> Features:
    """Read a table of similarities, with a line for each row and a column for each known row."""
    import numpy as np

    from deepmf.matrix.features import Features

    with locate_errors(path):
        table = _read_file(path, known, [known_as], encoding).features
        table = table.with_kinds(dict.fromkeys(table.names, "number"))
        texts, to = list(map(str, table.labels.tolist())), list(table.names)
        is_square = sorted(texts) == sorted(to)
        names = texts if is_square else to
        cells = np.column_stack([table.values(name) for name in names])
        return Features.from_similarity(table.labels, cells, to=None if is_square else to)


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    """The options of a command about the model that it reads."""

    model: Annotated[Path, argument("MODEL", "Model file; - for standard input.")]
    extend: list[Path] | None = offer(
        "--extend FILE", "Entries of new rows and columns to add without training; repeatable."
    )
    files: LabelFiles
    reading: InputOptions

    @property
    def paths(self) -> list[Path]:
        """All files that are read."""
        return [self.model, *(self.extend or ()), *self.files.paths]

    def load(self) -> Model:
        """Load the model, extend it by features and by the entries of each file in turn, and add
        names."""
        from deepmf.models.loading import load

        with open_input(self.model) as file:
            model = self.files.extend(load(file), self.reading.encoding)
        for extension in self.extend or ():
            reading = self.reading.adapt_to(model.entries_.train.form)
            entries = reading.read_matrix(extension, scale=model.scale_)
            with locate_errors(extension):
                model = model.extend(
                    convert_matrix(entries, model.entries_.rows, model.entries_.columns)
                )
        return self.files.add_names(model, self.reading.encoding)


def list_kinds(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of each feature by its name, for rows and for columns."""
    return {
        f"{axis}s": files[f"{axis}_features"].kinds
        for axis in ("row", "column")
        if f"{axis}_features" in files
    }


_CONDITION = re.compile(r"([^<>=!]+)(>=|<=|!=|=)(.+)", re.DOTALL)


def parse_conditions(texts: Sequence[str], known: AxisFeatures | None) -> dict[str, dict[str, Any]]:
    """Parse conditions on features such as `year>=1990`, `genres=Drama|Comedy` and
    `genres!=War`."""
    from deepmf.data.delimited import is_number

    kinds = known.encoding.kinds if known else {}
    conditions: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise BadSetting(
                f"--where takes year>=1990, genres=Drama|Comedy or genres!=War; got {text!r}"
            )
        name, sign, value = (part.strip() for part in match.groups())
        is_ordered = kinds.get(name) in ("number", "date")
        if sign == "!=" and is_ordered:
            raise BadSetting(
                f"--where compares the {kinds[name]} {name} with >=, <= or =; got {text!r}"
            )
        if is_ordered or sign in (">=", "<="):
            limit: Any = value
            if is_number(value):
                limit = float(value)
            words = {">=": ("min",), "<=": ("max",), "=": ("min", "max")}[sign]
            conditions.setdefault(name, {}).update(dict.fromkeys(words, limit))
        else:
            word = "any" if sign == "=" else "none"
            conditions.setdefault(name, {})[word] = value.split("|")
    return conditions
