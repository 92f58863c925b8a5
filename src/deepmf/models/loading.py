"""Load a model of any class from the file or the folder that `save` wrote."""

from __future__ import annotations

import reprlib
from pathlib import Path

from deepmf.errors import BadModelFile
from deepmf.models.base import Model
from deepmf.models.registry import MODELS, find_class
from deepmf.storage.model_file import StoredFile, read_file
from deepmf.storage.model_folder import read_folder, verify_folder


def load(path: str | Path) -> Model:
    """Return the model that `save` wrote to a file or a folder; a class of your own must be imported before.

    A file is read and checked as a whole. A folder is memory-mapped: its arrays are read when they are needed, and only
    their lengths, types and shapes are checked; `verify` checks everything.

    >>> import pathlib, tempfile
    >>> from deepmf import Means
    >>> from deepmf.data.synthetic import generate
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> Means().fit(generate(seed=0).matrix).save(path)
    >>> type(load(path)).__name__
    'Means'
    """
    is_folder = Path(path).is_dir()
    return _build_model(path, read_folder(path, kind="model") if is_folder else read_file(path, kind="model"))


def verify(path: str | Path) -> Model:
    """Return the model of a file or a folder after checking all checksums and all values."""
    if not Path(path).is_dir():
        return load(path)
    verify_folder(path, kind="model")
    stored = read_folder(path, kind="model")
    return _build_model(path, stored._replace(tensors=dict(stored.tensors)))


def _build_model(path: str | Path, stored: StoredFile) -> Model:
    name = stored.content.get("class")
    model_class = find_class(name) if isinstance(name, str) else None
    if model_class is None:
        known = ", ".join(registration.class_name for registration in MODELS.values())
        raise BadModelFile(f"{path} holds a model of the class {reprlib.repr(name)}; this version knows {known}")
    try:
        return model_class.from_stored(stored.content, stored.tensors)
    except BadModelFile as error:
        raise BadModelFile(f"{path}: {error}") from error
