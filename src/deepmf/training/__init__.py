"""Training: settings, the loop that runs all methods, its history, checkpoints and progress."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

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

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.training.history": ["Callback", "EpochRecord", "History"],
        "deepmf.training.progress": ["tensorboard_log"],
        "deepmf.training.settings": [
            "LoopSettings",
            "Setting",
            "Settings",
            "TrainingSettings",
            "list_settings",
            "setting",
            "settings_dataclass",
        ],
    },
)
