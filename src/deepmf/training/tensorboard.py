"""A log of training for TensorBoard: every epoch's loss, validation error, step size and what the model notes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from deepmf.errors import CannotSave, DeepMFWarning, MissingDependency
from deepmf.training.history import EpochRecord, History
from deepmf.training.loop import Callback


@contextmanager
def tensorboard_log(folder: str | os.PathLike[str]) -> Iterator[Callback]:
    """Yield a callback of `fit` that logs each epoch, counted from 1, to a folder that TensorBoard watches.

    Give each run a folder of its own: `with tensorboard_log("runs/first") as log: model.fit(train, callbacks=[log])`.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingDependency("a log for TensorBoard needs tensorboard: pip install 'deepmf[tensorboard]'") from error
    try:
        writer = SummaryWriter(os.fspath(folder))
    except OSError as error:
        raise CannotSave(f"{os.fspath(folder)} cannot hold a log ({error.strerror})") from error

    broken = False

    def log(record: EpochRecord, _: History) -> None:
        nonlocal broken
        try:
            for name, number in ({} if broken else numbers_of(record)).items():
                writer.add_scalar(name, number, record.epoch + 1)
        except OSError as error:  # such as that of a full disk: no reason to stop training
            broken = True
            message = f"{os.fspath(folder)} could not be written ({error.strerror}); training goes on without a log"
            warnings.warn(message, DeepMFWarning, stacklevel=2)

    try:
        yield log
    finally:
        with suppress(OSError):
            writer.close()


def numbers_of(record: EpochRecord) -> dict[str, float]:
    """Return every number that an epoch has, by name; those of a list by their position, from 1.

    >>> numbers_of(EpochRecord(0, 0.5, None, 0.01, 1.0, {"boundaries": [1.4, 2.6], "phase": "first"}))
    {'loss': 0.5, 'learning_rate': 0.01, 'boundaries/1': 1.4, 'boundaries/2': 2.6}
    """
    known = {
        "loss": record.loss,
        "validation_error": record.validation_error,
        "learning_rate": record.learning_rate,
    }
    numbers: dict[str, float] = {}
    for name, value in (known | record.notes).items():
        parts = {f"{name}/{n}": part for n, part in enumerate(value, 1)} if isinstance(value, list) else {name: value}
        numbers |= {part: number for part, number in parts.items() if _is_number(number)}
    return numbers


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
