"""Predictions for pairs of labels: of the known ones by a predictor, of the unknown ones by the fallback."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.metrics import rmse_error
from deepmf.models.fallback import Fallback
from deepmf.models.label_pairs import LabelPairs, PairFunction, Unknown, find_pairs
from deepmf.models.predictive_distribution import PredictiveDistribution
from deepmf.models.predictor import Predictor
from deepmf.models.readout import check_levels
from deepmf.training.validation import ValidationEntries

ReadScores = Callable[[npt.NDArray[Any]], FloatArray]


@dataclass(frozen=True)
class PairPredictions:
    """Predictions for pairs of rows and columns, by label.

    fallback: gives the fallback, which is made only where a pair is unknown.
    means: what is predicted for positions of rows and columns, -1 where one is unknown.
    """

    method: str
    entries: EntryStore
    predictor: Predictor
    fallback: Callable[[], Fallback]
    means: PairFunction

    def values(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> FloatArray:
        """Return predictions in the scale's units."""
        return self._read(rows, columns, unknown, self.predictor.readout.values, self._values_of_means)

    def scores(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> FloatArray:
        """Return real-valued scores in the scale's units."""
        return self._read(rows, columns, unknown, self.predictor.readout.units, self.entries.scale.clip)

    def levels(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown, *, metric: str) -> FloatArray:
        """Return the levels that are best by a metric."""
        scale = self.entries.scale
        check_levels(scale, metric)
        if metric != "rmse" and self.predictor.gives_distribution:
            return self.distributions(rows, columns, unknown, lambda found: found.best(metric))
        return self._read(rows, columns, unknown, self.predictor.readout.levels, scale.nearest_level)

    def distributions(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        read: Callable[[PredictiveDistribution], FloatArray],
    ) -> FloatArray:
        """Return `read` of the predictive distributions."""
        predictor = self.predictor
        if not predictor.gives_distribution:
            raise BadSetting(
                f"{self.method} predicts a value, not a distribution; OrdinalDMF, ICFNADE and UCFNADE do both"
            )
        return self.pairs(rows, columns, unknown).evaluate(
            lambda *pairs: read(predictor.distribution(*pairs)), lambda *pairs: read(self._frequencies(*pairs))
        )

    def areas(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> npt.NDArray[np.str_]:
        """Return the area of each pair; "" where its row or its column is unknown."""
        pairs = self.pairs(rows, columns, unknown)
        return np.where(pairs.known, self.entries.areas(pairs.rows, pairs.columns), "")

    def means_error(self, validation: ValidationEntries) -> float:
        """Return the root mean squared error of the means on validation entries."""
        return rmse_error(self._values_of_means(self.means(validation.rows, validation.columns)), validation.values)

    def pairs(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> LabelPairs:
        """Return the positions of pairs of labels."""
        return find_pairs(self.entries.rows, self.entries.columns, rows, columns, unknown)

    def _read(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        of_scores: ReadScores,
        of_means: ReadScores,
    ) -> FloatArray:
        """Return `of_scores` of the score of each pair of labels, or `of_means` of the mean where one is unknown."""
        score_pairs = self.predictor.score_pairs
        return self.pairs(rows, columns, unknown).evaluate(
            lambda *pairs: of_scores(score_pairs(*pairs)), lambda *pairs: of_means(self.means(*pairs))
        )

    def _values_of_means(self, means: npt.NDArray[Any]) -> FloatArray:
        """Return means as predictions, as legal as those of the predictor."""
        scale = self.entries.scale
        return scale.nearest_level(means) if self.predictor.readout.predicts_levels else scale.clip(means)

    def _frequencies(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the fallback's distributions for pairs of positions."""
        predictor = self.predictor
        frequencies = self.fallback().distribution(rows, columns, predictor.unit_boundaries)
        boundaries = self.entries.scale.from_unit(predictor.unit_boundaries)
        return PredictiveDistribution.of_probabilities(predictor.support, boundaries, frequencies)
