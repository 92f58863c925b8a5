"""Completers: what predicts the missing cells of rows that it has not seen; a model, or several things blended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.models.base import Model
from deepmf.models.fold_in import FoldedRows, fold_in_matrix
from deepmf.sklearn.observed_table import TableEntries


class Completer(ABC):
    """Predicts cells of rows by their entries; each row by its own alone."""

    @abstractmethod
    def predicted(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return predictions for cells of the rows that have these entries and features, in the units of entries."""

    def features_of(self, rows: IndexArray) -> FeatureVectors | None:
        """Return the features of some rows that it was fitted to; None where it reads none."""
        return None

    @property
    def name(self) -> str:
        """What messages call it."""
        return type(self).__name__

    @property
    def gives_distribution(self) -> bool:
        """Whether it gives a distribution, not a value alone."""
        return False


class WholeRows(Completer):
    """Predicts all cells of a row at once, in columns that are standardised."""

    @abstractmethod
    def completed(self, table: FloatArray) -> FloatArray:
        """Return rows (rows, columns) with predictions where they have NaN."""

    def predicted(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return some cells of the completed rows."""
        return self.completed(entries.to_array())[rows, columns]


@dataclass(frozen=True, eq=False)
class ByModel(Completer):
    """Completes by a model, which folds every row in."""

    model: Model

    def predicted(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return the model's predictions."""
        return self.folded(entries, features).predict_at(rows, self.model.column_labels_[columns])

    def folded(self, entries: TableEntries, features: FeatureVectors | None) -> FoldedRows:
        """Return rows as the model has folded them in."""
        matrix = entries.matrix(self.model.scale_, column_labels=self.model.column_labels_)
        return fold_in_matrix(self.model.entries_, self.model.predictor_, matrix, features)

    def features_of(self, rows: IndexArray) -> FeatureVectors | None:
        """Return the features of some rows of the fit."""
        known = self.model.entries_.row_features
        return None if known is None else known.take(rows)

    @property
    def name(self) -> str:
        """The class of the model."""
        return type(self.model).__name__

    @property
    def gives_distribution(self) -> bool:
        """Whether the model gives a distribution."""
        return self.model.gives_distribution


class ByMeans(WholeRows):
    """Completes rows by the means of the columns."""

    def completed(self, table: FloatArray) -> FloatArray:
        """Return rows with 0 where they have NaN."""
        return np.nan_to_num(table)


@dataclass(frozen=True, eq=False)
class Stacked(Completer):
    """Completes by the weighted mean of several completers."""

    parts: tuple[Completer, ...]
    weights: FloatArray

    def predicted(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray, features: FeatureVectors | None
    ) -> FloatArray:
        """Return the weighted mean of all predictions."""
        found = np.stack([part.predicted(entries, rows, columns, features) for part in self.parts])
        mean: FloatArray = self.weights @ found
        return mean
