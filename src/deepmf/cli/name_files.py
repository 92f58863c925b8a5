"""Files of names: read for the rows and columns of a matrix or a model, with ids of the same type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.cli.feature_files import convert_feature_labels
from deepmf.cli.inputs import locate_errors, open_input

if TYPE_CHECKING:
    from deepmf.matrix.frames import TableForm
    from deepmf.matrix.labels import Labels
    from deepmf.models.base import Model


@dataclass(frozen=True)
class NameFiles:
    """The options of a command about names."""

    rows: Path | None = None
    columns: Path | None = None
    encoding: str | None = None

    @property
    def paths(self) -> list[Path]:
        """The files that were given."""
        return [path for path in (self.rows, self.columns) if path is not None]

    def read(self, rows: Labels, columns: Labels, form: TableForm) -> dict[str, dict[Any, Any] | None]:
        """Return the arguments of `fit` with the names of rows and columns."""
        return {
            "row_names": self._read(self.rows, rows, form.row),
            "column_names": self._read(self.columns, columns, form.column),
        }

    def add_to(self, model: Model) -> Model:
        """Return a model with the names."""
        if not self.paths:
            return model
        known = model.entries_
        for path, axis, labels, field in (
            (self.rows, "rows", known.rows, known.train.form.row),
            (self.columns, "columns", known.columns, known.train.form.column),
        ):
            if path is not None:
                with locate_errors(path):
                    model = model.with_names(**{axis: self._read(path, labels, field)})
        return model

    def _read(self, path: Path | None, labels: Labels, field: str) -> dict[Any, Any] | None:
        if path is None:
            return None
        from deepmf.data.features import read_feature_file
        from deepmf.matrix.names import read_names

        with open_input(path) as file:
            features = read_feature_file(file, known_as=[field], encoding=self.encoding).features
        with locate_errors(path):
            return dict(read_names(convert_feature_labels(features, labels, path), labels.axis))
