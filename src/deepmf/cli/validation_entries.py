"""The entries that a command learns from, and those that choose the best epoch and settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.cli.inputs import Reading, called
from deepmf.cli.options import VALIDATION_SHARE
from deepmf.cli.unknown_ids import UnknownCounts, with_ids_like
from deepmf.errors import BadSetting, UnknownLabel

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix


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
