"""The entries that a command learns from, and those that choose the best epoch and settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.cli.inputs import Reading, called
from deepmf.cli.options import VALIDATION_SHARE
from deepmf.cli.unknown_ids import UnknownCounts, with_ids_like
from deepmf.errors import BadSetting, BadSplit, UnknownLabel

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.model import Model


def split_off(
    entries: ObservedMatrix, validation: Path | None, share: float | None, reading: Reading, *, seed: int
) -> tuple[ObservedMatrix, ObservedMatrix | None]:
    """Return the entries to learn from, and those that choose the best epoch and settings."""
    if validation is not None:
        if share is not None:
            raise BadSetting("give --validation or --validation-share, not both")
        return entries, _known_validation(validation, entries, reading)
    from deepmf.data.splits import split_entries

    share = VALIDATION_SHARE if share is None else share
    split = split_entries(entries, train=1.0 - share, validation=share, test=0.0, seed=seed)
    return split.train, split.validation if split.validation.n_entries else None


def split_off_unseen(
    entries: ObservedMatrix, start: Model, share: float | None, *, seed: int
) -> tuple[ObservedMatrix, ObservedMatrix | None]:
    """Return entries to learn from, and some that the model to start from was not trained on, at most half of those."""
    import numpy as np

    from deepmf.data.random_stream import RandomStream
    from deepmf.models.warm_start import WarmStart

    share = VALIDATION_SHARE if share is None else share
    if not 0 <= share <= 1:
        raise BadSplit(f"validation must be a share between 0 and 1; got {share!r}")
    warm = WarmStart(start.entries_, start.predictor_, entries)
    unseen = np.flatnonzero(warm.are_unseen(entries.entry_rows, entries.by_row.columns))
    n_wanted = min(round(share * entries.n_entries), unseen.size // 2)
    chosen = unseen[RandomStream(seed).order(unseen.size)[:n_wanted]]
    left = np.setdiff1d(np.arange(entries.n_entries), chosen, assume_unique=True)
    return entries.take_entries(left), entries.take_entries(chosen) if n_wanted else None


def with_split_off(model: Model, held_out: ObservedMatrix | None) -> Model:
    """Return a fitted model that knows the entries split off for validation, too; as it is where it cannot extend."""
    if held_out is None or not model.is_fitted or model.predicts == ("I",):
        return model
    return model.extend(held_out)


def _known_validation(path: Path, train: ObservedMatrix, reading: Reading) -> ObservedMatrix:
    """Read validation entries; those whose row or column training lacks are counted, told and left out.

    Only the fallback could predict them, in every epoch alike.
    """
    read = reading.like(train.form).held_out(path, train.scale)
    validation = with_ids_like(read, train.row_labels, train.column_labels, path, unknown="fallback")
    known = validation.take_known(train.rows, train.columns)
    if known.n_entries < validation.n_entries:
        counts = UnknownCounts.of(train.rows, train.columns, *validation.entries()[:2])
        if known.n_entries == 0:
            raise UnknownLabel(f"{called(path)}: training lacks {counts}, so no entry is left to validate by")
        counts.tell(path, "training lacks", "entries are left out: they would tell no epoch from another")
    return known
