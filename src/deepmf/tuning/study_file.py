"""The file in which a study keeps its trials, and how it is opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from deepmf.errors import BadSetting, MissingDependency, UnreadableFile, UserError
from deepmf.tuning.journal import Journal

if TYPE_CHECKING:
    import optuna

_NAME = "deepmf"  # of the only study in a file
_MADE_FOR = "made for"


class OpenStudy(NamedTuple):
    """A study, and the context in which no other process runs its trials."""

    study: optuna.Study
    held: Callable[[], AbstractContextManager[None]]


def open_study(file: Path | None, made_for: dict[str, Any]) -> OpenStudy:
    """Return a new study, or the one in the file; `made_for` tells its search from others, which are refused."""
    try:
        import optuna
    except ImportError as error:
        raise MissingDependency("tuning needs optuna: pip install 'deepmf[tune]'") from error
    if file is None:
        return OpenStudy(_study(optuna.storages.InMemoryStorage(), file, made_for), nullcontext)
    journal = Journal(file)
    try:
        storage = optuna.storages.JournalStorage(cast("Any", journal))  # it has all that is asked of a backend
        return OpenStudy(_study(storage, file, made_for), journal.held)
    except UserError:
        raise
    except Exception as error:  # every line is whole, but they make no study: optuna may raise anything
        raise not_a_study(file) from error


def not_a_study(file: Path) -> UnreadableFile:
    """Return the error of a file whose lines make no study."""
    return UnreadableFile(f"{file} is not a study of deepmf, or damaged; give another file")


def _study(storage: optuna.storages.BaseStorage, file: Path | None, made_for: dict[str, Any]) -> optuna.Study:
    import optuna

    if _NAME in optuna.get_all_study_names(storage):
        study = optuna.load_study(study_name=_NAME, storage=storage)
    else:
        with _quietly():
            study = optuna.create_study(study_name=_NAME, storage=storage)
    own = json.loads(json.dumps(made_for))  # a tuple becomes a list
    kept = study.user_attrs.get(_MADE_FOR)
    if kept is not None and not isinstance(kept, dict):
        raise TypeError(f"a study is made for settings by name; got {type(kept).__name__}")
    if kept is None:
        study.set_user_attr(_MADE_FOR, own)
    elif kept != own:
        differing = [name for name in own | kept if name not in own or name not in kept or own[name] != kept[name]]
        raise BadSetting(
            f"{file} is the study of another search (its {', '.join(differing)} differ); "
            "give another file, or delete it to start from scratch"
        )
    return study


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
