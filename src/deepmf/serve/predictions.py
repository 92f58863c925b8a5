"""What the model predicts for pairs, as the bodies of answers have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.models.label_pairs import Unknown
from deepmf.models.model import Model
from deepmf.models.predictor import Predictor
from deepmf.serve.bodies import Likelihood, RangeBody

COVERAGE = 0.9


@dataclass(frozen=True)
class PairFigures:
    """The expected values of pairs, their areas, and what else the model has: all are (pairs, ...)."""

    expected: FloatArray
    areas: npt.NDArray[np.str_]
    levels: FloatArray | None
    support: FloatArray | None
    probabilities: FloatArray | None
    ends: FloatArray | None  # (pairs, 2)

    @classmethod
    def at(
        cls, predictor: Predictor, rows: IndexArray, columns: IndexArray, areas: npt.NDArray[np.str_]
    ) -> PairFigures:
        """Return what a predictor says of pairs of positions."""
        scores, readout = predictor.score_pairs(rows, columns), predictor.readout
        levels = None if readout.scale.levels is None else readout.levels(scores)
        if not predictor.gives_distribution:
            return cls(readout.units(scores), areas, levels, None, None, None)
        found = predictor.distribution(rows, columns)
        ends = found.ends(COVERAGE, readout.scale)
        return cls(readout.units(scores), areas, levels, predictor.support, found.probabilities, ends)

    @classmethod
    def of_pairs(cls, model: Model, rows: Sequence[Any], columns: Sequence[Any], unknown: Unknown) -> PairFigures:
        """Return what a model says of pairs of labels, some of which may be unknown."""
        expected = model.scores(rows, columns, unknown=unknown)
        areas = model.areas(rows, columns, unknown=unknown)
        levels = None if model.scale_.levels is None else model.predict_levels(rows, columns, unknown=unknown)
        if not model.gives_distribution:
            return cls(expected, areas, levels, None, None, None)
        probabilities = model.predict_distribution(rows, columns, unknown=unknown)
        ends = np.stack(model.predict_interval(rows, columns, coverage=COVERAGE, unknown=unknown), axis=1)
        return cls(expected, areas, levels, model.support_, probabilities, ends)

    def fields(self, pair: int) -> dict[str, Any]:
        """Return what is said of one pair, by the names that bodies have; what is not a number is null."""
        expected = float(self.expected[pair])
        known = expected == expected  # NaN is what an unknown pair may be asked to give
        has_distribution = known and self.probabilities is not None
        return {
            "expected": expected if known else None,
            "level": None if self.levels is None or not known else float(self.levels[pair]),
            "distribution": self._distribution(pair) if has_distribution else None,
            "interval": self._interval(pair) if has_distribution else None,
            "area": str(self.areas[pair]) or None,
        }

    def _distribution(self, pair: int) -> list[Likelihood]:
        assert self.support is not None and self.probabilities is not None
        chances = np.clip(self.probabilities[pair], 0.0, 1.0).tolist()
        return [Likelihood(level=at, probability=p) for at, p in zip(self.support.tolist(), chances, strict=True)]

    def _interval(self, pair: int) -> RangeBody:
        assert self.ends is not None
        return RangeBody(low=float(self.ends[pair, 0]), high=float(self.ends[pair, 1]), coverage=COVERAGE)
