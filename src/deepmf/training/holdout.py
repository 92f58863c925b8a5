"""Held-out entries, and the one rule by which candidates are compared on them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from deepmf.errors import BadEntries
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.matrix import ObservedMatrix

if TYPE_CHECKING:
    import torch

# The smallest and the largest number of held-out entries: fewer are too noisy to choose by, more
# change no choice.
_FEWEST, _MOST = 20, 50_000

# Held-out entries to compare epochs and settings on. More would separate them no better, and need
# more rows and columns to be encoded.
_MOST_COMPARED = 1 << 16

Candidate = TypeVar("Candidate")


class Choice(NamedTuple, Generic[Candidate]):
    """The chosen candidate, and its loss."""

    candidate: Candidate
    loss: Any


def choose(
    candidates: Sequence[Candidate],
    score: Callable[[Candidate], Any],
    *,
    usual: int = 0,
    at_least: float = 0.0,
) -> Choice[Candidate]:
    """Return the candidate with the lowest loss on held-out entries; the usual one, unless the loss
    falls by enough.

    Parameters
    ----------
    score : the loss of a candidate: a number, or an array with a number for each entry or row,
        whose mean counts.
    usual : the place of the usual candidate.
    at_least : how far the loss must fall: in standard errors of the fall where losses are arrays,
        otherwise as a share of the usual loss.

    >>> losses = {"none": 1.0, "some": 0.9999, "all": 2.0}
    >>> choose(list(losses), losses.__getitem__).candidate
    'some'
    >>> choose(list(losses), losses.__getitem__, at_least=2e-4).candidate
    'none'
    """
    losses = [score(candidate) for candidate in candidates]
    best = int(np.argmin([np.mean(loss) for loss in losses]))
    fall = np.asarray(losses[usual] - losses[best])
    unit = fall.std() / math.sqrt(fall.size) if fall.ndim else losses[usual]
    least_fall = at_least * unit if at_least else 0.0  # without a condition, a unit may be NaN
    if fall.mean() > least_fall:
        return Choice(candidates[best], losses[best])
    return Choice(candidates[usual], losses[usual])


def draw_some(places: IndexArray, most: int, *, seed: int | list[int]) -> IndexArray:
    """Return all of some increasing places, or a random sample of the most."""
    if places.size <= most:
        return places
    return np.sort(np.random.default_rng(seed).choice(places, most, replace=False))


class HeldOut(NamedTuple):
    """Entries that are not learned from: their positions in the training matrix, and their
    values."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray

    @classmethod
    def of(cls, train: ObservedMatrix, validation: ObservedMatrix | None) -> HeldOut | None:
        """Return the validation entries, or None without any; refuse labels and levels unknown to
        training."""
        if validation is None:
            return None
        rows, columns, values = validation.entries()
        held_out = cls(train.rows.positions(rows), train.columns.positions(columns), values)
        # The interval of a scale without levels is only the range seen in training: values may lie
        # beyond it.
        if train.scale.levels is not None and not np.all(train.scale.holds(values)):
            raise BadEntries(
                f"validation has the scale {validation.scale}; the training matrix has {train.scale}"
            )
        return held_out if values.size else None

    @classmethod
    def split(
        cls, train: ObservedMatrix, *, seed: int, one_in: int = 20, most: int = _MOST
    ) -> tuple[ObservedMatrix, HeldOut | None]:
        """Hold out random entries: return the other entries, and the held-out ones.

        A matrix with too few entries is returned whole, with None.

        Parameters
        ----------
        one_in : hold out one entry in this many.
        most : hold out no more entries than this.
        """
        n_held_out = min(train.n_entries // one_in, most)
        if n_held_out < _FEWEST:
            return train, None
        places = draw_some(np.arange(train.n_entries), n_held_out, seed=seed)
        values = train.values[places].astype(np.float64)
        held_out = cls(train.entry_rows[places], train.by_row.columns[places], values)
        return train.take_entries(np.delete(np.arange(train.n_entries), places)), held_out

    def sample(self, *, seed: int, most: int = _MOST_COMPARED) -> HeldOut:
        """Return all entries, or a random sample that is enough to compare epochs on."""
        places = draw_some(np.arange(self.values.size), most, seed=seed)
        return HeldOut(self.rows[places], self.columns[places], self.values[places])

    def digest(self) -> str:
        """Return a short checksum of the entries."""
        digest = hashlib.sha256()
        for array in self:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def to(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the entries on a device."""
        import torch

        rows, columns, values = (torch.from_numpy(array).to(device) for array in self)
        return rows, columns, values
