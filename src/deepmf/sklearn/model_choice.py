"""The choice for a table: candidates are fitted without some cells; the one that predicts these best, or a blend."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.completer import Completer
from deepmf.sklearn.observed_table import MaskArray, TableEntries

# Below this many cells a network has too little to learn from, and cells are hidden in turns: one turn would be chance.
_FEW_CELLS = 200
_MOST_TURNS = 5
_MANY_CELLS = 10_000  # of which a tenth, rather than a fifth, tells enough
_CELLS_FOR_WEIGHTS = 1_000  # hidden in as many turns as that takes: several weights are to be told from each other
_LEAST_WEIGHT = 0.05  # of a part of a blend; less is not worth its fit

_OWN_RESIDUALS = 20  # from as many on, the residuals of a column are its own; with fewer, those of all columns

Fit = Callable[[str, TableEntries], Completer]


@dataclass(frozen=True)
class Residuals:
    """How far predictions for hidden cells were off, in the units of the model: value less prediction."""

    columns: IndexArray
    values: FloatArray

    def quantiles(self, columns: IndexArray, share: float) -> FloatArray:
        """Return the quantile of the residuals of each of some columns."""
        # Ranks over n + 1: right on average, however few residuals there are.
        return self._of_each(columns, lambda own, _: np.quantile(own, share, method="weibull"))

    def drawn(self, columns: IndexArray, random: np.random.Generator) -> FloatArray:
        """Return residuals drawn at random for each of some columns."""
        return self._of_each(columns, lambda own, count: random.choice(own, count))

    def _of_each(self, columns: IndexArray, take: Callable[[FloatArray, int], Any]) -> FloatArray:
        found = np.empty(columns.size)
        for column in np.unique(columns):
            own = self.values[self.columns == column]
            asked = columns == column
            found[asked] = take(own if own.size >= _OWN_RESIDUALS else self.values, int(asked.sum()))
        return found


@dataclass(frozen=True)
class ModelChoice:
    """What was chosen, the errors of all that were tried, and the residuals of what was chosen."""

    weights: Mapping[str, float]  # of each candidate that was chosen, the largest first; together 1
    errors: Mapping[str, float]  # root mean squared, in the units of the model
    residuals: Residuals | None  # None where there was too little to hide anything


class _Hidden(NamedTuple):
    """Cells that were hidden in all turns, and what each candidate predicted for them."""

    columns: IndexArray  # (cells,)
    values: FloatArray  # (cells,)
    predictions: dict[str, FloatArray]  # (cells,)
    shares: FloatArray  # (cells,) of a cell of the table: the columns of one category are one cell together

    @property
    def errors(self) -> dict[str, float]:
        return {
            name: float(np.sqrt(np.average(np.square(found - self.values), weights=self.shares)))
            for name, found in self.predictions.items()
        }

    def residuals(self, predictions: FloatArray) -> Residuals:
        return Residuals(self.columns, self.values - predictions)


def choose(
    candidates: tuple[str, ...], entries: TableEntries, sources: IndexArray, fit: Fit, *, seed: int
) -> ModelChoice:
    """Fit each candidate without some cells of a table, and choose the one that predicts these best.

    `entries` are in the units of the model; `sources` says of each column which cell of a row it belongs to: the
    columns of one cell are hidden together.
    """
    n_cells = _n_cells(entries, sources)
    few = n_cells < _FEW_CELLS
    tried = [name for name in candidates if not few or name != "dmf-o"] or list(candidates)
    hidden = _hidden(tried, entries, sources, fit, _turns(entries, sources, _MOST_TURNS if few else 1, seed=seed))
    if hidden is None:
        return ModelChoice({tried[-1]: 1.0}, {}, None)
    best = min(hidden.errors, key=hidden.errors.__getitem__)
    return ModelChoice({best: 1.0}, hidden.errors, hidden.residuals(hidden.predictions[best]))


def blend(
    candidates: tuple[str, ...], entries: TableEntries, sources: IndexArray, fit: Fit, *, seed: int
) -> ModelChoice:
    """Fit each candidate without some cells of a table, and choose the weights by which they predict these best.

    Weights are not negative, and their sum is 1 (Breiman, Stacked regressions, 1996).
    """
    share = _share(_n_cells(entries, sources))
    n_turns = math.ceil(_CELLS_FOR_WEIGHTS / (share * _n_cells(entries, sources)))
    hidden = _hidden(candidates, entries, sources, fit, _turns(entries, sources, min(n_turns, _MOST_TURNS), seed=seed))
    if hidden is None:
        return ModelChoice({candidates[0]: 1.0}, {}, None)
    weights = _weights(np.stack(list(hidden.predictions.values()), axis=1), hidden.values, hidden.shares)
    named = {name: float(weight) for name, weight in zip(hidden.predictions, weights, strict=True) if weight > 0}
    mixed = np.asarray(sum(weight * hidden.predictions[name] for name, weight in named.items()))
    ordered = dict(sorted(named.items(), key=lambda each: -each[1]))
    return ModelChoice(ordered, hidden.errors, hidden.residuals(mixed))


def _weights(predictions: FloatArray, values: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the weights (candidates,) with which predictions (cells, candidates) are nearest to the values.

    A cell counts by its share (cells,).
    """
    counted = np.sqrt(shares)
    predictions, values = predictions * counted[:, None], values * counted
    # The last equation, that their sum is 1, counts more than all cells together.
    heavy = 1e3 * max(1.0, float(np.linalg.norm(values)))
    equations = np.vstack([predictions, np.full(predictions.shape[1], heavy)])
    weights = scipy.optimize.nnls(equations, np.append(values, heavy))[0]
    weights[weights < _LEAST_WEIGHT] = 0.0
    normalised: FloatArray = weights / weights.sum()
    return normalised


def _n_cells(entries: TableEntries, sources: IndexArray) -> int:
    return int(np.unique(_cell_of(entries, sources)).size)


def _cell_of(entries: TableEntries, sources: IndexArray) -> IndexArray:
    """Return a number of the cell that each entry belongs to."""
    cells: IndexArray = entries.rows * sources.size + sources[entries.columns]
    return cells


def _share(n_cells: int) -> float:
    """Return how many cells are hidden in a turn."""
    return 0.2 if n_cells < _MANY_CELLS else 0.1


def _turns(entries: TableEntries, sources: IndexArray, n_turns: int, *, seed: int) -> Iterator[MaskArray]:
    """Yield which entries are hidden in each turn; no cell is in two of them."""
    cells, cell_of = np.unique(_cell_of(entries, sources), return_inverse=True)
    order = np.random.default_rng(seed).permutation(cells.size)
    width = _share(cells.size) * cells.size
    for turn in range(n_turns):
        hidden = np.isin(cell_of, order[round(turn * width) : round((turn + 1) * width)])
        # A row or a column of which nothing would be left stays.
        for positions in (entries.rows, entries.columns):
            left = np.bincount(positions[~hidden], minlength=int(positions.max()) + 1)
            hidden &= left[positions] > 0
        if hidden.any():
            yield hidden


def _hidden(
    candidates: Iterable[str], entries: TableEntries, sources: IndexArray, fit: Fit, turns: Iterator[MaskArray]
) -> _Hidden | None:
    """Return what candidates predict in all turns; None where there is none."""
    masks = list(turns)
    if not masks:
        return None
    predictions = {
        name: np.concatenate([_predictions(fit(name, entries.where(~hidden)), entries, hidden) for hidden in masks])
        for name in candidates
    }
    asked = [entries.where(hidden) for hidden in masks]
    columns = np.concatenate([each.columns for each in asked])
    shares = 1.0 / np.bincount(sources)[sources[columns]]
    return _Hidden(columns, np.concatenate([each.values for each in asked]), predictions, shares)


def _predictions(completer: Completer, entries: TableEntries, hidden: MaskArray) -> FloatArray:
    """Return what is predicted for hidden entries of rows that are described by what is not hidden of them."""
    asked = entries.where(hidden)
    rows, asked_rows = np.unique(asked.rows, return_inverse=True)
    shown = entries.where(~hidden & np.isin(entries.rows, rows))
    shown = shown._replace(shape=(rows.size, shown.shape[1]), rows=np.searchsorted(rows, shown.rows))
    return completer.predicted(shown, asked_rows, asked.columns, completer.features_of(rows))
