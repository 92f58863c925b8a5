"""The file of the model behind a service, and the copy of the last one that was served."""

from __future__ import annotations

import logging
import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

from deepmf.errors import FileAbsent, UnreadableFile, UserError
from deepmf.files import write_atomically, write_folder_atomically
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.storage.model_folder import compute_model_digest

logger = logging.getLogger("deepmf.serve")


class LoadedModel(NamedTuple):
    """A model, and the digest of the file or folder that it was loaded from."""

    model: Model
    digest: str


def load_with_digest(path: Path) -> LoadedModel:
    """Load a model and the digest of the same file, even if the file is replaced meanwhile."""
    while True:
        before = identify_file(path) if path.exists() else None  # `load` reports a missing file
        loaded = LoadedModel(load(path), compute_model_digest(path))
        if identify_file(path) == before:
            return loaded


def load_or_fall_back(path: Path, copy: Path) -> LoadedModel:
    """Load a model, or, if its file is damaged, the copy of the model that was served last; the log warns of it."""
    try:
        return load_with_digest(path)
    except FileAbsent:
        raise
    except (UnreadableFile, OSError) as error:
        try:
            loaded = load_with_digest(copy)
        except (UserError, OSError):
            raise error from None
        logger.warning("the model file is damaged: a copy of the last model is served", extra=_describe(error))
        return loaded


def keep_copy(path: Path, digest: str, copy: Path) -> None:
    """Copy a model that is served, unless the copy is there; if that fails, the log says why."""
    try:
        if copy.exists() and compute_model_digest(copy) == digest:
            return
        write = partial(_copy_model, path, digest)
        if path.is_dir():
            write_folder_atomically(copy, write, replaces=lambda _: True)
        else:
            write_atomically(copy, write)
    except (UserError, OSError) as error:
        logger.warning("cannot keep a copy of the model", extra=_describe(error))


def identify_file(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is written or replaced."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _copy_model(path: Path, digest: str, place: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, place, dirs_exist_ok=True)
    else:
        shutil.copyfile(path, place)
    if compute_model_digest(place) != digest:
        raise UnreadableFile(f"{path} is no longer the model that is served")


def _describe(error: Exception) -> dict[str, dict[str, str]]:
    return {"fields": {"error": type(error).__name__, "reason": str(error)}}
