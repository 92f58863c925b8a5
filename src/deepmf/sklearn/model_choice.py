"""The choice of a model for a table: each is fitted without some cells; the one that predicts them best is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.metrics import rmse_error
from deepmf.models.folded import folded_matrix
from deepmf.models.model import Model
from deepmf.sklearn.observed_table import TableEntries

# From the simplest on; DMF was better than all of these on no table that was measured.
CANDIDATES = ("means", "als", "dmf-o")

# Below this many cells a network has too little to learn from, and cells are hidden in turns: one turn would be chance.
_FEW_CELLS = 200
_FEW_TURNS = 5
_MANY_CELLS = 10_000  # of which a tenth, rather than a fifth, tells enough

_OWN_RESIDUALS = 20  # from as many on, the residuals of a column are its own; with fewer, those of all columns

Fit = Callable[[str, TableEntries], Model]


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
    """The model that was chosen, the errors of all that were tried, and the residuals of the chosen one."""

    model: str
    errors: Mapping[str, float]  # root mean squared, in the units of the model
    residuals: Residuals | None  # None where there was too little to hide anything


def choose(
    candidates: tuple[str, ...], entries: TableEntries, sources: IndexArray, fit: Fit, *, seed: int
) -> ModelChoice:
    """Fit each candidate without some cells of a table, and choose the one that predicts these best.

    `entries` are in the units of the model; `sources` says of each column which cell of a row it belongs to: the
    columns of one cell are hidden together.
    """
    n_cells = np.unique(entries.rows * sources.size + sources[entries.columns]).size
    few = n_cells < _FEW_CELLS
    tried = [name for name in candidates if not few or name != "dmf-o"] or list(candidates)
    turns = list(_turns(entries, sources, few=few, share=0.2 if n_cells < _MANY_CELLS else 0.1, seed=seed))
    if not turns:
        return ModelChoice(tried[-1], {}, None)
    found = {
        name: [_residuals(fit(name, entries.where(~hidden)), entries, hidden) for hidden in turns] for name in tried
    }
    residuals = {name: _joined(parts) for name, parts in found.items()}
    errors = {name: rmse_error(each.values, np.zeros(each.values.size)) for name, each in residuals.items()}
    best = min(errors, key=errors.__getitem__)
    return ModelChoice(best, errors, residuals[best])


def _turns(
    entries: TableEntries, sources: IndexArray, *, few: bool, share: float, seed: int
) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield which entries are hidden in each turn."""
    cells, cell_of = np.unique(entries.rows * sources.size + sources[entries.columns], return_inverse=True)
    order = np.random.default_rng(seed).permutation(cells.size)
    parts = np.array_split(order, _FEW_TURNS) if few else [order[: round(share * cells.size)]]
    for part in parts:
        hidden = np.isin(cell_of, part)
        # A row or a column of which nothing would be left stays.
        for positions in (entries.rows, entries.columns):
            left = np.bincount(positions[~hidden], minlength=int(positions.max()) + 1)
            hidden &= left[positions] > 0
        if hidden.any():
            yield hidden


def _residuals(model: Model, entries: TableEntries, hidden: npt.NDArray[np.bool_]) -> Residuals:
    """Return how far a model's predictions are off, for rows that are described by what is not hidden of them."""
    asked = entries.where(hidden)
    rows, asked_rows = np.unique(asked.rows, return_inverse=True)
    shown = entries.where(~hidden & np.isin(entries.rows, rows))
    shown = shown._replace(shape=(rows.size, shown.shape[1]), rows=np.searchsorted(rows, shown.rows))
    labels, features = model.column_labels_, model.entries_.row_features
    described = None if features is None else features.take(rows)
    matrix = shown.matrix(model.scale_, column_labels=labels)
    folded = folded_matrix(model.entries_, model.predictor_, matrix, described)
    predictions = folded.predict_at(asked_rows, labels[asked.columns])
    return Residuals(asked.columns, asked.values - predictions)


def _joined(parts: list[Residuals]) -> Residuals:
    return Residuals(np.concatenate([part.columns for part in parts]), np.concatenate([part.values for part in parts]))
