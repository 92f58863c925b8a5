"""Loading a model of any class from its file."""

from __future__ import annotations

import reprlib
from pathlib import Path

from deepmf.errors import BadModelFile
from deepmf.models.model import Model
from deepmf.models.registry import HOMES, class_named
from deepmf.storage.model_file import read_file


def load(path: str | Path) -> Model:
    """Return the model that `save` wrote to a file.

    >>> import pathlib, tempfile
    >>> from deepmf.data.synthetic import generate
    >>> from deepmf.models.means import Means
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> Means().fit(generate(seed=0).matrix).save(path)
    >>> type(load(path)).__name__
    'Means'
    """
    stored = read_file(path, kind="model")
    name = stored.content.get("class")
    model_class = class_named(name) if isinstance(name, str) else None
    if model_class is None:
        known = ", ".join(class_name for _, class_name in HOMES.values())
        raise BadModelFile(f"{path} holds a model of the class {reprlib.repr(name)}; this version knows {known}")
    try:
        return model_class.from_stored(stored.content, stored.tensors)
    except BadModelFile as error:
        raise BadModelFile(f"{path}: {error}") from error
