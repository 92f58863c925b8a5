"""Model files of commands: loaded and extended, and checked before the work."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.cli.feature_files import FeatureFiles, NameFiles
from deepmf.cli.inputs import InputOptions, convert_labels, locate_errors, open_input
from deepmf.cli.output import check_distinct, check_writable, try_write

if TYPE_CHECKING:
    from deepmf.models.base import Model


def load_model(
    path: Path,
    *,
    extensions: Iterable[Path] | None = None,
    reading: InputOptions | None = None,
    features: FeatureFiles | None = None,
    names: NameFiles | None = None,
) -> Model:
    """Load a model, extend it by features files and by the entries of each extension in turn, and add names."""
    from deepmf.models.loading import load

    with open_input(path) as file:
        model = load(file)
    reading = reading or InputOptions()
    if features is not None:
        model = features.extend(model, reading.encoding)
    for extension in extensions or ():
        entries = reading.adapt_to(model.entries_.train.form).read_matrix(extension, scale=model.scale_)
        with locate_errors(extension):
            model = model.extend(convert_labels(entries, model.row_labels_, model.column_labels_))
    return model if names is None else names.add_to(model, reading.encoding)


def check_model_target(path: Path, *, inputs: Iterable[Path | None]) -> None:
    """Refuse before training a file or folder that the model could not be saved in."""
    from deepmf.files import write_folder_atomically
    from deepmf.storage.model_folder import goes_to_folder, is_replaceable

    if goes_to_folder(path, n_bytes=0):
        check_distinct(path, inputs)
        try_write(lambda fill: write_folder_atomically(path, fill, replaces=is_replaceable))
    else:
        check_writable(path, inputs=inputs)
