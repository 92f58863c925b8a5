"""Loading a model of any class from its file, or from its folder."""

from __future__ import annotations

import reprlib
from pathlib import Path

from deepmf.errors import BadModelFile
from deepmf.models.model import Model
from deepmf.models.registry import HOMES, class_named
from deepmf.storage.model_file import StoredFile, read_file
from deepmf.storage.model_folder import read_folder, verify_folder


def load(path: str | Path) -> Model:
    """Return the model that `save` wrote to a file or a folder.

    All of a file is read and checked. A folder is mapped into memory: its arrays are read as far as they are needed,
    and only their lengths, types and shapes are checked; `verify` checks all of it.

    >>> import pathlib, tempfile
    >>> from deepmf.data.synthetic import generate
    >>> from deepmf.models.means import Means
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> Means().fit(generate(seed=0).matrix).save(path)
    >>> type(load(path)).__name__
    'Means'
    """
    if Path(path).is_dir():
        return _model(path, read_folder(path, kind="model"))
    return _model(path, read_file(path, kind="model"))


def verify(path: str | Path) -> Model:
    """Return the model of a file or a folder once all checksums and all values have been checked."""
    if not Path(path).is_dir():
        return load(path)
    verify_folder(path)
    stored = read_folder(path, kind="model")
    return _model(path, stored._replace(tensors=dict(stored.tensors)))


def _model(path: str | Path, stored: StoredFile) -> Model:
    name = stored.content.get("class")
    model_class = class_named(name) if isinstance(name, str) else None
    if model_class is None:
        known = ", ".join(class_name for _, class_name in HOMES.values())
        raise BadModelFile(f"{path} holds a model of the class {reprlib.repr(name)}; this version knows {known}")
    try:
        return model_class.from_stored(stored.content, stored.tensors)
    except BadModelFile as error:
        raise BadModelFile(f"{path}: {error}") from error
