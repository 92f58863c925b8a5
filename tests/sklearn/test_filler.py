"""Draws of missing cells: numbers with residuals, shares of categories as they are predicted."""

import numpy as np

from deepmf.sklearn.completer import ByMeans
from deepmf.sklearn.filler import Filler
from deepmf.sklearn.model_choice import Residuals
from deepmf.sklearn.observed_table import TableEntries
from deepmf.sklearn.units import ColumnUnits


def test_numbers_are_drawn_with_residuals_and_shares_are_not() -> None:
    table = np.array([[0.0, 0.0, 1.0], [10.0, 1.0, 2.0], [2.0, 0.0, 3.0], [8.0, 1.0, 4.0]])
    entries = TableEntries.of(table)
    units = ColumnUnits.own(entries)
    filler = Filler(
        ByMeans(),
        units,
        units.seen(entries),
        to_levels=False,
        residuals=Residuals(np.zeros(30, dtype=np.int64), np.full(30, 0.5)),  # values were above predictions
        shares=np.array([False, True, False]),
        random=np.random.default_rng(0),
        coverage=None,
    )
    cells = np.array([[np.nan, np.nan, 2.0]])
    filler.complete(cells)
    np.testing.assert_allclose(cells, [[5.0 + 0.5 * table[:, 0].std(), 0.5, 2.0]])
