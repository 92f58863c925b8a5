"""Multiple imputation: completed tables whose missing cells are joint draws from a posterior.

A draw takes a bootstrap sample of the rows, fits Gaussians to it, and draws the missing cells of each row together,
given its observed cells (Honaker and King, 2010). So completed tables differ by as much as the parameters and the
missing values are uncertain, and estimates from them are pooled by `pool`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.candidates import fit_gaussians
from deepmf.sklearn.completers import Gaussians
from deepmf.sklearn.table import ColumnUnits, TableEntries

_GAUSSIANS = ("gaussian", "gaussian-shrunk", "mixture")

# Draws need all of a column's range: a clipped outlier would make its column too narrow.
_REACH = 10.0

# A prediction hardly changes in later passes, but the spread of parameters between draws does.
_PASSES, _STILL = 100, 1e-3

_ROWS_AT_A_TIME = 10_000

# The smallest share of a category, so that every category can be drawn.
_LEAST_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class JointDraws:
    """Draws the missing cells of rows from Gaussians that are fitted anew for every draw.

    Parameters
    ----------
    entries
        The entries of the fit, in the units of their columns.
    gaussians
        Name of the Gaussians among the candidates of the imputer.
    categories
        Columns of the shares of each unordered category; their cells become 0 or 1.
    """

    entries: TableEntries
    gaussians: str
    categories: tuple[IndexArray, ...]

    @classmethod
    def of(cls, entries: TableEntries, weights: Mapping[str, float], categories: tuple[IndexArray, ...]) -> JointDraws:
        """Return the draws for a table with these entries; `weights` are those of a blend of candidates."""
        return cls(entries, max(_GAUSSIANS, key=lambda name: weights.get(name, 0.0)), categories)

    @cached_property
    def units(self) -> ColumnUnits:
        """The units of the columns, each standardised by its own mean and spread."""
        return ColumnUnits.from_columns(self.entries, reach=_REACH)

    @cached_property
    def rows(self) -> FloatArray:
        """The rows of the fit in these units, (rows, columns), with NaN; made when something is drawn."""
        return self.units.standardise(self.entries).to_array()

    def draw(self, table: FloatArray, random: np.random.Generator) -> FloatArray:
        """Return rows (rows, columns) in their own units with all cells that are NaN drawn."""
        again = random.integers(len(self.rows), size=len(self.rows))
        seed = int(random.integers(1 << 31))
        fitted = fit_gaussians(self.gaussians, self.rows[again], seed=seed, passes=_PASSES, still=_STILL)
        completed = np.array(table, dtype=np.float64)
        for start in range(0, len(table), _ROWS_AT_A_TIME):
            some = completed[start : start + _ROWS_AT_A_TIME]
            rows, columns = np.nonzero(np.isnan(some))
            units = self._draw_units(fitted, self.units.standardise(TableEntries.of(some)).to_array(), random)
            some[rows, columns] = self.units.values(units[rows, columns], columns)
        return completed

    def _draw_units(self, fitted: Gaussians, table: FloatArray, random: np.random.Generator) -> FloatArray:
        """Draw numbers together, then each category given everything drawn before it."""
        drawn = fitted.draw(table, random)
        for columns in self.categories:
            drawn[:, columns] = table[:, columns]
        for columns in self.categories:
            rows = np.flatnonzero(np.isnan(drawn[:, columns]).any(axis=1))
            if rows.size:
                centres, spreads = self.units.centres[columns], self.units.spreads[columns]
                shares = centres + spreads * fitted.complete(drawn[rows])[:, columns]
                ends = np.cumsum(np.maximum(shares, _LEAST_SHARE), axis=1)
                chosen = (ends[:, :-1] < random.random((rows.size, 1)) * ends[:, -1:]).sum(axis=1)
                drawn[np.ix_(rows, columns)] = (np.eye(columns.size)[chosen] - centres) / spreads
        return drawn
