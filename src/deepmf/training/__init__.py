"""Training: settings, the loop that runs all methods, its history, checkpoints and progress."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepmf.training.history import Callback, EpochRecord, History
    from deepmf.training.progress import tensorboard_log
    from deepmf.training.settings import (
        LoopSettings,
        Setting,
        Settings,
        TrainingSettings,
        list_settings,
        setting,
        settings_dataclass,
    )

__all__ = [
    "Callback",
    "EpochRecord",
    "History",
    "LoopSettings",
    "Setting",
    "Settings",
    "TrainingSettings",
    "list_settings",
    "setting",
    "settings_dataclass",
    "tensorboard_log",
]

# Modules are imported when a name of theirs is first used.
_HOMES = dict.fromkeys(__all__, "deepmf.training.settings")
_HOMES |= dict.fromkeys(("Callback", "EpochRecord", "History"), "deepmf.training.history")
_HOMES |= {"tensorboard_log": "deepmf.training.progress"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deepmf.training' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
