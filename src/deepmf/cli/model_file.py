"""Model files of commands: loaded and extended, checked before the work, and saved whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from deepmf.cli.feature_files import FeatureFiles, NameFiles
from deepmf.cli.inputs import InputOptions, convert_labels, locate_errors, open_input
from deepmf.cli.output import STANDARD, check_distinct, check_writable, try_write, write_bytes
from deepmf.errors import BadSetting, DeepMFError

if TYPE_CHECKING:
    from deepmf.matrix.arrays import FloatArray
    from deepmf.models.base import Model

_N_CHECKED = 8  # pairs that are predicted when a saved model is read back


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
    """Refuse before training what `save_model` would refuse after it."""
    if str(path) == STANDARD:
        if sys.stdout is None or sys.stdout.isatty():
            raise BadSetting("a model file cannot be shown on a terminal; redirect it with > or |, or give -o FILE")
        return
    from deepmf.files import write_folder_atomically
    from deepmf.storage.model_folder import goes_to_folder, is_replaceable

    if goes_to_folder(path, n_bytes=0):
        check_distinct(path, inputs)
        try_write(lambda fill: write_folder_atomically(path, fill, replaces=is_replaceable))
    else:
        check_writable(path, inputs=inputs)


def save_model(model: Model, path: Path) -> None:
    """Write a model file or folder; `-` is standard output, which takes a file of any size.

    The model is read back before it takes its name: if it cannot be loaded, or predicts something else, nothing
    changes on disk.
    """
    check = partial(_check_saved, model)
    if str(path) != STANDARD:
        model.save(path, check=check)
        return
    from deepmf.files import temporary_folder

    with temporary_folder(Path(gettempdir())) as folder:
        file = folder / "model.safetensors"
        model.save(file, largest_file=sys.maxsize, check=check)
        write_bytes(file.read_bytes())


def _check_saved(model: Model, file: Path) -> None:
    """Refuse a file whose model predicts, or for interactions recommends, something else than the model in memory."""
    import numpy as np

    from deepmf.models.loading import load

    rows, columns = model.entries_.rows, model.entries_.columns
    has_values = model.entries_.train.has_values
    places = np.arange(min(_N_CHECKED, max(len(rows), len(columns))))
    pairs = rows[places % len(rows)], columns[places % len(columns)]

    def answer(asked: Model) -> FloatArray:
        return asked.predict(*pairs) if has_values else asked.recommend(rows[:_N_CHECKED], n=_N_CHECKED).values

    try:
        found = answer(load(file))
    except Exception as error:
        raise DeepMFError(f"the fitted model cannot be read back ({error}); it is not saved") from error
    is_finite = not has_values or np.isfinite(found).all()
    if not is_finite or not np.allclose(found, answer(model), rtol=1e-5, equal_nan=not has_values):
        raise DeepMFError("the fitted model answers something else when it is read back; it is not saved")
