"""Validation entries of `fit` and `tune`: read from a file, or split off the entries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.cli.inputs import InputOptions, convert_held_out, locate_errors
from deepmf.cli.options import VALIDATION_SHARE
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.base import Model


def find_validation(
    entries: ObservedMatrix,
    validation: Path | None,
    share: float | None,
    reading: InputOptions,
    *,
    seed: int,
    by: str = "entries",
) -> tuple[ObservedMatrix, ObservedMatrix | None]:
    """Return the entries to train on, and the validation entries: those of a file, or a random or the latest share."""
    if by not in ("entries", "time", "last"):
        raise BadSetting(f"--by must be entries, time or last; got {by!r}")
    if validation is not None:
        if share is not None or by != "entries":
            raise BadSetting("give --validation, or --validation-share and --by, not both")
        return entries, _read_validation(validation, entries, reading)
    from deepmf.data.splits import split_entries, split_last, split_time

    share = VALIDATION_SHARE if share is None else share
    if by != "entries" and share > 0:
        later = split_time(entries, validation=0.0, test=share) if by == "time" else split_last(entries)
        return later.train, later.test
    split = split_entries(entries, train=1.0 - share, validation=share, test=0.0, seed=seed)
    return split.train, split.validation if split.validation.n_entries else None


def add_held_out(model: Model, held_out: ObservedMatrix | None) -> Model:
    """Return a fitted model that also knows the validation entries; unchanged if it cannot be extended."""
    if held_out is None or not model.is_fitted or model.predicts == ("I",):
        return model
    return model.extend(held_out)


def read_like(path: Path, train: ObservedMatrix, reading: InputOptions) -> ObservedMatrix:
    """Read more entries with the scale, the column names and the types of labels of the training entries."""
    read = reading.adapt_to(train.form).read_held_out(path, train.scale)
    return convert_held_out(read, train.row_labels, train.column_labels, path, unknown="fallback")


def _read_validation(path: Path, train: ObservedMatrix, reading: InputOptions) -> ObservedMatrix:
    from deepmf.models.fitting import keep_known

    with locate_errors(path):
        return keep_known(train, read_like(path, train, reading))
