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

    def fields(self) -> list[dict[str, Any]]:
        """Return what is said of each pair, by the names that bodies have; what is not a number is null."""
        expected, n_pairs = self.expected.tolist(), self.expected.size
        parts = zip(
            expected,
            [None] * n_pairs if self.levels is None else self.levels.tolist(),
            [None] * n_pairs if self.probabilities is None else self._distributions(self.probabilities),
            [None] * n_pairs if self.ends is None else self._intervals(self.ends),
            self.areas.tolist(),
            strict=True,
        )
        names = ("expected", "level", "distribution", "interval")
        return [
            # NaN is what an unknown pair may be asked to give
            (dict(zip(names, said, strict=True)) if said[0] == said[0] else dict.fromkeys(names))
            | {"area": area or None}
            for *said, area in parts
        ]

    def _distributions(self, probabilities: FloatArray) -> list[Any]:
        assert self.support is not None
        levels = self.support.tolist()
        return [
            [{"level": level, "probability": chance} for level, chance in zip(levels, chances, strict=True)]
            for chances in np.nan_to_num(np.clip(probabilities, 0.0, 1.0)).tolist()
        ]

    def _intervals(self, ends: FloatArray) -> list[Any]:
        return [{"low": low, "high": high, "coverage": COVERAGE} for low, high in ends.tolist()]
