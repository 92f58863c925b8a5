"""Training: settings, the loop that runs all methods, its history, checkpoints and progress."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.training.history import (
        Callback as Callback,
        EpochRecord as EpochRecord,
        History as History,
    )
    from deepmf.training.settings import (
        LoopSettings as LoopSettings,
        Setting as Setting,
        Settings as Settings,
        TrainingSettings as TrainingSettings,
        list_settings as list_settings,
        setting as setting,
        settings_dataclass as settings_dataclass,
    )

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
