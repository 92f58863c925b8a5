"""Loading a model of any class from its file."""

from __future__ import annotations

from pathlib import Path

from deepmf.errors import BadModelFile, UserError
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD
from deepmf.models.means import Means
from deepmf.models.model import Model
from deepmf.storage.model_file import read_file

MODELS: dict[str, type[Model]] = {model.__name__: model for model in (DMF, DMFD, Means)}


def load(path: str | Path) -> Model:
    """Return the model that `save` wrote to a file.

    >>> import pathlib, tempfile
    >>> from deepmf.data.synthetic import generate
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> Means().fit(generate(seed=0).matrix).save(path)
    >>> type(load(path)).__name__
    'Means'
    """
    stored = read_file(path, kind="model")
    name = stored.content.get("class")
    if not isinstance(name, str) or name not in MODELS:
        raise BadModelFile(f"{path} holds a model of the class {name!r}; this version knows {', '.join(MODELS)}")
    try:
        return MODELS[name].from_stored(stored.content, stored.tensors)
    except BadModelFile as error:
        raise BadModelFile(f"{path}: {error}") from error
    except (UserError, KeyError, TypeError, ValueError) as error:
        raise BadModelFile(f"{path} holds a {name} that cannot be used ({error})") from error
