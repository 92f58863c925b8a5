"""Load a model of any class from the file that `save` wrote."""

from __future__ import annotations

import reprlib
from pathlib import Path

from deepmf.errors import BadModelFile, Hint
from deepmf.models.base import Model
from deepmf.models.registry import MODELS, find_class
from deepmf.storage.model_file import StoredFile, is_mapped, map_file, read_file, verify_file


def load(path: str | Path) -> Model:
    """Return the model that `save` wrote to a file; a class of your own must be imported before.

    A file is read and checked as a whole. One whose name ends in ".model", or that takes more than
    2 GiB, is memory-mapped: its arrays are read when they are needed, and only their types and
    shapes are checked; `verify` checks everything.

    >>> import pathlib, tempfile
    >>> from deepmf import Means
    >>> from deepmf.data.synthetic import generate
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> Means().fit(generate(seed=0).matrix).save(path)
    >>> type(load(path)).__name__
    'Means'
    """
    file = Path(path)
    is_large = file.exists() and is_mapped(file, file.stat().st_size)
    return _build_model(path, (map_file if is_large else read_file)(path, kind="model"))


def verify(path: str | Path) -> Model:
    """Return the model of a file, memory-mapped, after checking all checksums and all values."""
    stored = verify_file(path, kind="model")
    return _build_model(path, stored._replace(tensors=dict(stored.tensors)))


def _build_model(path: str | Path, stored: StoredFile) -> Model:
    name = stored.content.get("class")
    model_class = find_class(name) if isinstance(name, str) else None
    if model_class is None:
        classes = ", ".join(registration.class_name for registration in MODELS.values())
        raise BadModelFile(
            f"{path} holds a model of the class {reprlib.repr(name)}; this version knows {classes}",
            hint=Hint(
                "import the module of a class of your own first",
                "for a class of your own in module.py: "
                'python -c "import module, deepmf.__main__ as command; command.main()" ...',
            ),
        )
    try:
        return model_class.from_stored(stored.content, stored.tensors)
    except BadModelFile as error:
        raise BadModelFile(f"{path}: {error.message}", hint=error.hint) from error
