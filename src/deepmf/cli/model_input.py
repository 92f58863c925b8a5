"""The model that a command reads: its file, and the files that extend it and name its rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deepmf.cli.feature_files import LabelFiles
from deepmf.cli.inputs import InputOptions, convert_matrix, locate_errors, open_input
from deepmf.cli.options import argument, option

if TYPE_CHECKING:
    from deepmf.models.base import Model


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    """The options of a command about the model that it reads."""

    model: Annotated[Path, argument("MODEL", "Model file; - for standard input.")]
    extend: Annotated[
        list[Path] | None,
        option("--extend FILE", "Entries of new rows and columns to add without training; repeatable."),
    ] = None
    files: LabelFiles
    reading: InputOptions

    @property
    def paths(self) -> list[Path]:
        """All files that are read."""
        return [self.model, *(self.extend or ()), *self.files.paths]

    def load(self) -> Model:
        """Load the model, extend it by features and by the entries of each file in turn, and add names."""
        from deepmf.models.loading import load

        with open_input(self.model) as file:
            model = self.files.extend(load(file), self.reading.encoding)
        for extension in self.extend or ():
            reading = self.reading.adapt_to(model.entries_.train.form)
            entries = reading.read_matrix(extension, scale=model.scale_)
            with locate_errors(extension):
                model = model.extend(convert_matrix(entries, model.entries_.rows, model.entries_.columns))
        return self.files.add_names(model, self.reading.encoding)
