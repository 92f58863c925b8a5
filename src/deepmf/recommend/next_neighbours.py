"""Neighbours: rows that were once where a row is now, and what they took next.

The latest entries of a row, weighted by age, are compared with those at every place of all rows, by
the cosine. The places that are most alike vote for the entries that followed there, each with its
similarity to a power. Nothing is fitted but the memory and the power, so what is written counts at
once, and what is deleted is gone at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries, find_spans
from deepmf.recommend.column_ridge import TINY
from deepmf.recommend.sequences import Decay, Histories, Sequences, find_ages

# Places that vote.
_MOST_ALIKE = 300

# The cosine of the same entries, up to rounding.
_SAME = 1 - 1e-5


class Memory(NamedTuple):
    """What of a row is compared, how its neighbours vote, and how much their votes count."""

    decay: Decay
    power: float
    weight: float = 1.0

    def score(self, entries: AxisEntries, histories: Histories) -> LatentArray:
        """Return the votes (rows, columns) for what comes next in rows with these entries."""
        (latest, numbers), n_columns = self._weigh(entries), len(histories.entries.columns)
        votes = np.zeros((latest.starts.size - 1, n_columns), dtype=np.float32)
        for row, start in enumerate(latest.starts[:-1]):
            span = slice(start, latest.starts[row + 1])
            votes[row] = self._collect(latest.others[span], numbers[span], histories)
        return votes

    def find_effects(self, entries: AxisEntries, histories: Histories, column: int) -> FloatArray:
        """Return how many votes for a column each entry of a single row brings."""
        (latest, numbers), effects = self._weigh(entries), np.zeros(entries.others.size)
        votes = [
            self._collect(latest.others, numbers * is_kept.astype(np.float32), histories)[column]
            for is_kept in np.vstack([np.ones(numbers.size), 1.0 - np.eye(numbers.size)])
        ]
        effects[find_ages(entries) < self.decay.window] = votes[0] - np.array(votes[1:])
        return effects

    def _weigh(self, entries: AxisEntries) -> tuple[AxisEntries, LatentArray]:
        """Return the latest entries of some rows, and their numbers by age."""
        ages = find_ages(entries)
        are_latest = ages < self.decay.window
        numbers = self.decay.inputs[ages[are_latest]].astype(np.float32)
        return entries.select(are_latest), numbers

    def _collect(
        self, columns: IndexArray, numbers: LatentArray, histories: Histories
    ) -> FloatArray:
        """Return the votes (columns,) for what comes after some entries."""
        parts = [
            self._list_targets(
                sequences, *self._find_alike(sequences, are_current, columns, numbers)
            )
            for sequences, are_current in histories.parts
        ]
        similarities, targets, weights = (
            np.concatenate(arrays) for arrays in zip(*parts, strict=True)
        )
        best = _find_best(similarities)
        votes = similarities[best, None] ** self.power * weights[best]
        n_columns = len(histories.entries.columns)
        sums = np.bincount(targets[best].ravel(), votes.ravel(), minlength=n_columns)
        return np.asarray(sums, dtype=np.float64)

    def _find_alike(
        self,
        sequences: Sequences,
        are_current: BoolArray | None,
        columns: IndexArray,
        numbers: LatentArray,
    ) -> tuple[IndexArray, LatentArray]:
        """Return the places of sequences that are most like some entries, and their cosines.

        The product with a place is that with the place before, times a decay, plus the number of
        the entry there. So only places of the same columns, and those just after, can be the best.
        """
        inputs, (by_column, starts) = self.decay.inputs.astype(np.float32), sequences.by_column
        is_there = columns < starts.size - 1
        at, which = find_spans(columns[is_there], starts)
        places, amounts = by_column[at], numbers[is_there][which]
        if are_current is not None:
            places, amounts = places[are_current[places]], amounts[are_current[places]]
        order = np.argsort(places)
        places, amounts = places[order], amounts[order]
        earlier, later = sequences.earlier[places], sequences.later[places]
        farthest, products = np.minimum(earlier, inputs.size - 1), amounts.copy()
        for back in range(1, columns.size):
            gaps = places[back:] - places[:-back]
            near = np.flatnonzero(gaps <= farthest[back:])
            products[near + back] += amounts[near] * inputs[gaps[near]]
        sizes = np.sqrt(np.cumsum(np.square(inputs)) * np.square(numbers).sum()) + TINY
        cosines = products / sizes[farthest]
        row_starts = places - earlier
        # a row that ends as this one is this one
        own = row_starts[(later == 0) & (cosines > _SAME)]
        cosines[(later == 0) | np.isin(row_starts, own)] = 0.0
        best = _find_best(cosines)
        best = best[cosines[best] > 0]
        n_places = np.minimum(np.diff(places, append=places[-1:] + inputs.size), later)[best]
        first, delay = np.nonzero(np.arange(inputs.size) < n_places[:, None])
        first = best[first]
        farthest = np.minimum(earlier[first] + delay, inputs.size - 1)
        places, cosines = places[first] + delay, products[first] * inputs[delay] / sizes[farthest]
        best = _find_best(cosines)
        return places[best], cosines[best]

    def _list_targets(
        self, sequences: Sequences, places: IndexArray, cosines: LatentArray
    ) -> tuple[LatentArray, IndexArray, FloatArray]:
        """Return the cosines of places, the columns (places, ahead) that followed, and their
        weights."""
        steps = np.arange(self.decay.ahead)
        weights = np.where(steps < sequences.later[places][:, None], self.decay.targets, 0.0)
        at = np.minimum(places[:, None] + 1 + steps, sequences.columns.size - 1)
        if sequences.roots is not None:
            weights *= np.square(sequences.roots[at])
        return cosines, sequences.columns[at], weights


def _find_best(similarities: LatentArray) -> IndexArray:
    """Return the places of the largest similarities."""
    if similarities.size <= _MOST_ALIKE:
        return np.arange(similarities.size)
    return np.argpartition(-similarities, _MOST_ALIKE)[:_MOST_ALIKE]
