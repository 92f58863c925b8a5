"""The file in which a study keeps its trials: a journal that optuna's own tools read too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.errors import BadSetting, CannotSave, MissingDependency, UnreadableFile

if TYPE_CHECKING:
    import optuna

_NAME = "deepmf"  # of the only study in a file
_MADE_FOR = "made for"


def open_study(file: Path | None, made_for: dict[str, Any]) -> optuna.Study:
    """Return a new study, or the one in the file; `made_for` tells its search from others, which are refused."""
    try:
        import optuna
    except ImportError as error:
        raise MissingDependency("tuning needs optuna: pip install 'deepmf[tune]'") from error
    storage = optuna.storages.InMemoryStorage() if file is None else _storage(file)
    if _NAME in optuna.get_all_study_names(storage):
        study = optuna.load_study(study_name=_NAME, storage=storage)
    else:
        with _quietly():
            study = optuna.create_study(study_name=_NAME, storage=storage)
    own = json.loads(json.dumps(made_for))  # a tuple becomes a list
    kept = study.user_attrs.get(_MADE_FOR)
    if kept is None:
        study.set_user_attr(_MADE_FOR, own)
    elif kept != own:
        differing = [name for name in own | kept if name not in own or name not in kept or own[name] != kept[name]]
        raise BadSetting(
            f"{file} is the study of another search (its {', '.join(differing)} differ); "
            "give another file, or delete it to start afresh"
        )
    return study


def _storage(path: Path) -> optuna.storages.BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    try:
        _check_journal(path)
        return JournalStorage(JournalFileBackend(str(path), JournalFileOpenLock(str(path))))
    except OSError as error:
        raise CannotSave(f"{path} cannot hold a study ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableFile(f"{path} is not a study of deepmf, or damaged; give another file") from error


def _check_journal(path: Path) -> None:
    """Refuse a file that is no study before anything is written to it."""
    if path.exists():
        with path.open("rb") as file:
            first = file.readline()
        if first and json.loads(first)["study_name"] != _NAME:
            raise ValueError("it has another name")


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep optuna from telling that there is a new study."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
