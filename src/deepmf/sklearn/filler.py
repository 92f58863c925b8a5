"""The filler: it fills in the missing cells of rows, by predictions or by draws, and says how sure they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.sklearn.completer import ByModel, Completer
from deepmf.sklearn.model_choice import Residuals
from deepmf.sklearn.observed_table import MaskArray, TableEntries
from deepmf.sklearn.units import ColumnUnits


class Filled(NamedTuple):
    """Cells that were missing: their values, and both ends of their intervals (2, cells) where these are wanted."""

    values: FloatArray
    ends: FloatArray | None


@dataclass(frozen=True, eq=False)
class Filler:
    """Fills in rows of the columns that had entries, all of them new to the completer.

    completer: None where there was too little to learn from.
    seen: the entries of the fit, in the units of the completer.
    residuals: of hidden cells, which tell how far predictions are off; where there are none, the model's own
        distribution does.
    shares: of each column whether its values are the shares of a category, which are never drawn themselves.
    random: what values are drawn by; None where they are predicted.
    coverage: of intervals; None where there are none.
    """

    completer: Completer | None
    units: ColumnUnits
    seen: TableEntries
    to_levels: bool
    residuals: Residuals | None
    shares: MaskArray
    random: np.random.Generator | None
    coverage: float | None

    def check(self) -> None:
        """Refuse draws and intervals where nothing is known about how far predictions are off."""
        uncertain = self.random is not None or self.coverage is not None
        completer = self.completer
        if uncertain and completer is not None and not completer.gives_distribution and self.residuals is None:
            raise BadSetting(
                f"{completer.name} predicts a value, not a distribution, so there are no intervals; "
                "model='auto' and model='dmf-o' give them"
            )

    def complete(
        self,
        known: npt.NDArray[np.floating],
        ends: FloatArray | None = None,
        features: FeatureVectors | None = None,
    ) -> None:
        """Fill in rows (rows, columns) in place, and the ends of their intervals (2, rows, columns) too.

        features: of each row, where the model was fitted with any.
        """
        missing = np.isnan(known)
        nothing = missing.all(axis=1) if features is None else missing.all(axis=1) & ~features.are_known
        described = missing.any(axis=1) & ~nothing & (self.completer is not None)
        for by_completer in (False, True):
            rows = np.flatnonzero(described == by_completer)
            row_of, column_of = np.nonzero(missing[rows])
            if row_of.size == 0:
                continue
            if by_completer:
                own = None if features is None else features.take(rows)
                filled = self._by_completer(known[rows], row_of, column_of, own)
            else:
                filled = self._by_column(row_of, column_of)
            known[rows[row_of], column_of] = filled.values
            if ends is not None:
                ends[:, rows[row_of], column_of] = filled.ends

    def _by_completer(
        self,
        table: npt.NDArray[np.floating],
        rows: IndexArray,
        columns: IndexArray,
        features: FeatureVectors | None,
    ) -> Filled:
        """Fill in cells of rows that have entries, or features."""
        completer, scale = self.completer, self.units.scale
        assert completer is not None
        entries = self.units.seen(TableEntries.of(table))
        uncertain = self.random is not None or self.coverage is not None
        if isinstance(completer, ByModel) and not uncertain and self.to_levels and scale.levels is not None:
            labels = completer.model.column_labels_[columns]
            return Filled(completer.folded(entries, features).predict_levels_at(rows, labels), None)
        units, ends = completer.predicted(entries, rows, columns, features), None
        if self.residuals is not None:
            if self.coverage is not None:
                ends = np.stack([units + self.residuals.quantiles(columns, tail) for tail in self._tails])
            if self.random is not None:
                units = np.where(self.shares[columns], units, units + self.residuals.drawn(columns, self.random))
        elif isinstance(completer, ByModel) and uncertain:
            found = completer.folded(entries, features).predictor.distribution(rows, columns)
            if self.coverage is not None:
                ends = found.ends(self.coverage, scale).T
            if self.random is not None:
                units = found.sample(self.random.random(rows.size), scale)
        return self._in_units_of_columns(units, ends, columns)

    def _by_column(self, rows: IndexArray, columns: IndexArray) -> Filled:
        """Fill in cells of rows without entries by what the columns showed: means, or the values themselves."""
        values: FloatArray = self.units.means[columns]
        if self.completer is None:
            scales = [self.units.column_scales[column] for column in columns]
            ends = np.array([[scale.low for scale in scales], [scale.high for scale in scales]])
            return Filled(self._legal(values, columns), ends)
        if self.random is None and self.coverage is None:
            return Filled(self._legal(values, columns), None)
        ends, units = np.empty((2, columns.size)), np.empty(columns.size)
        for column in np.unique(columns):
            own = self.seen.values[self.seen.columns == column]
            asked = columns == column
            ends[:, asked] = np.quantile(own, self._tails)[:, None]
            units[asked] = 0.0 if self.random is None else self.random.choice(own, int(asked.sum()))
        drawn = self._in_units_of_columns(units, ends, columns)
        predicted = self.shares[columns] | (self.random is None)
        return drawn._replace(values=np.where(predicted, self._legal(values, columns), drawn.values))

    @property
    def _tails(self) -> list[float]:
        """The shares of values below both ends of an interval."""
        return [(1.0 + side * (self.coverage or 0.0)) / 2.0 for side in (-1, 1)]

    def _in_units_of_columns(self, units: FloatArray, ends: FloatArray | None, columns: IndexArray) -> Filled:
        values = self._legal(self.units.values(units, columns), columns)
        return Filled(values, None if ends is None else np.stack([self.units.values(end, columns) for end in ends]))

    def _legal(self, values: FloatArray, columns: IndexArray) -> FloatArray:
        return self.units.levels(values, columns) if self.to_levels else values
