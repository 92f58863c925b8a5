"""Predictions for any cell: calibration on asked cells, entries of cells that were drawn at random.

People choose what they rate, so a model that learns from their entries predicts what they would
choose. On a few cells that nobody chose, a line maps its predictions to those for any cell,

    prediction = centre + level + slope * (learned prediction - centre),

bent, where the model predicts distributions, to follow their means. Distributions keep their shape,
but not their place and width: the log-odds of exceeding boundary k become

    sharpness * learned log-odds + offset_k,

which also changes how frequent each level is. Where held-out asked cells say so, effects of rows
and columns are added, the shrunk means of what is left. Relevance is about cells that a row
chooses, and stays as learned.

Asked cells are entries of their rows and columns, too. So that this does not move predictions
twice, everything is learned from predictions for the cells of one fold by a model that was extended
by those of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.optimize
from scipy.special import expit, logit

from deepmf.matrix.arrays import Array, FloatArray, LatentArray
from deepmf.matrix.entries import ChangedStore, EntryStore, ForgetPlan
from deepmf.scoring.distribution import COVERAGES, CalibratedDistribution, PredictiveDistribution
from deepmf.scoring.effects import SHRINKAGE, Effects, Shape
from deepmf.scoring.learning import AskedCells, Learning, SteadyPart
from deepmf.scoring.predictor import Predictor, Readout
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Check, Form, Part, between, not_falling, not_negative
from deepmf.training.holdout import choose

# Log-odds are kept in this range.
_MOST_LOG_ODDS = 20.0

# Fewer cells than this bend no line; the curve has a knot at each of these shares of their
# predictions.
_FEWEST_BENT = 50
_KNOT_SHARES = np.array([0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0])

# How strongly neighbouring boundaries are held to move alike, relative to how strongly all are held
# to stay.
_SMOOTHNESS = 10.0


class Line(NamedTuple):
    """A line from learned predictions to those for any cell."""

    centre: float
    level: float
    slope: float

    def apply(self, predicted: FloatArray) -> FloatArray:
        """Return predictions for any cell, which may leave the scale."""
        return self.centre + self.level + self.slope * (predicted - self.centre)

    @classmethod
    def fit(cls, predicted: FloatArray, values: FloatArray) -> Line:
        """Return the line through some values that are not among the learned entries.

        Five entries that are just as predicted are added, so that a handful of cells moves little.
        Then the slope is shrunk to 0 as far as it is noise (positive-part James-Stein): where a
        model knows nothing about random cells, the prediction is their mean. It never falls, so
        that the order of columns stays.

        >>> Line.fit(np.linspace(1, 5, 2000), np.linspace(1, 3, 2000)).slope.__round__(2)
        0.5
        >>> Line.fit(np.linspace(1, 5, 2000), np.tile([1.0, 2.0], 1000)).slope.__round__(2)
        0.0
        """
        centre, n = float(predicted.mean()), values.size
        level = float(np.sum(values - predicted)) / (n + SHRINKAGE)
        deviations = predicted - centre
        squares = float(deviations @ deviations)
        if n < 3 or squares <= 1e-12 * n:
            return cls(centre, level, 1.0)
        prior = SHRINKAGE * squares / n
        slope = (float(deviations @ (values - values.mean())) + prior) / (squares + prior)
        residuals = values - centre - level - slope * deviations
        noise = float(residuals @ residuals) / (n - 2)
        certainty = slope * slope * (squares + prior)
        return cls(centre, level, slope * max(0.0, 1.0 - noise / certainty) if slope > 0 else 0.0)


def bend(line: Line, predicted: FloatArray, means: FloatArray) -> FloatArray | None:
    """Return knots (2, knots) of a curve from predictions to the means of distributions; None if it
    would fall."""
    if predicted.size < _FEWEST_BENT or line.slope == 0.0:
        return None
    knots = np.unique(np.quantile(predicted, _KNOT_SHARES))
    if knots.size < 4:
        return None
    curve = np.polynomial.Polynomial.fit(predicted, means, 3)(knots)
    return np.stack([knots, curve]) if np.all(np.diff(curve) >= 0) else None


def move(line: Line, knots: FloatArray | None, predicted: FloatArray) -> FloatArray:
    """Return predictions for any cell, by the curve, beyond its ends parallel to the line; they may
    leave the scale."""
    if knots is None:
        return line.apply(predicted)
    inside = np.clip(predicted, *knots[0, [0, -1]])
    return np.interp(inside, *knots) + line.slope * (predicted - inside)


class Odds(NamedTuple):
    """The change of the log-odds of exceeding each boundary, and the targets of intervals of
    levels."""

    sharpness: float
    offsets: FloatArray
    targets: FloatArray

    def apply(self, found: PredictiveDistribution) -> PredictiveDistribution:
        """Return distributions for any cell."""
        odds = self.sharpness * _read_odds(found) + self.offsets
        exceedance = np.minimum.accumulate(expit(odds), axis=1)
        return CalibratedDistribution(found.support, found.boundaries, exceedance, self.targets)

    @classmethod
    def fit(
        cls,
        found: PredictiveDistribution,
        values: FloatArray,
        effects: FloatArray,
        *,
        of_levels: bool,
    ) -> Odds:
        """Return the change under which values less effects are most probable, boundary by
        boundary.

        The prior holds all boundaries to stay, as strongly as five entries, and neighbours to move
        alike.
        """
        learned, above = (
            _read_odds(found),
            ((values - effects)[:, None] > found.boundaries).astype(np.float64),
        )
        n_boundaries = learned.shape[1]
        differences = np.diff(np.eye(n_boundaries), axis=0)
        prior = np.zeros((n_boundaries + 1, n_boundaries + 1))
        prior[0, 0] = SHRINKAGE / 4.0 * np.square(learned).mean() * n_boundaries
        prior[1:, 1:] = (
            SHRINKAGE / 4.0 * (np.eye(n_boundaries) + _SMOOTHNESS * differences.T @ differences)
        )
        usual = np.zeros(n_boundaries + 1)
        usual[0] = 1.0

        def measure_loss(change: FloatArray) -> tuple[float, FloatArray]:
            odds, moved = change[0] * learned + change[1:], change - usual
            missing, pull = above - expit(odds), prior @ moved
            loss = np.logaddexp(0.0, odds).sum() - (above * odds).sum() + moved @ pull / 2.0
            return loss, pull - np.append((missing * learned).sum(), missing.sum(axis=0))

        change = scipy.optimize.minimize(
            measure_loss, usual, jac=True, method="BFGS", options={"gtol": 1e-6}
        ).x
        plain = cls(max(float(change[0]), 0.0), change[1:], COVERAGES)
        found = plain.apply(found).shift(effects)
        return plain._replace(targets=found.choose_coverages(values, of_levels=of_levels))


def _read_odds(found: PredictiveDistribution) -> FloatArray:
    least = expit(-_MOST_LOG_ODDS)
    odds: FloatArray = logit(np.clip(found.exceedance, least, 1.0 - least))
    return odds


@dataclass(frozen=True)
class Calibration(SteadyPart):
    """The calibration of a model on asked cells.

    n_cells: how many cells it was learned from.
    line: that of predictions; means: that of the means, which predict for unknown rows and columns.
    knots: of the curve that replaces the line, (2, knots); None where the line is all.
    odds: the change of distributions; None for a model that predicts values alone.
    errors: the root mean squared error of predictions for held-out asked cells as learned,
        calibrated, and by the mean.
    effects: those of rows and columns, which the predictor adds; None where held-out asked cells
        are against them.
    """

    n_cells: int
    line: Line
    means: Line
    knots: FloatArray | None
    odds: Odds | None
    errors: tuple[float, float, float]
    effects: Effects | None = None

    @classmethod
    def fit(cls, asked: AskedCells, shape: Shape) -> Calibration:
        """Return the calibration of a model on cells that it has not learned from.

        shape: the numbers of trained rows and columns.
        """
        cells, fold_of, predict_fold = asked.cells, asked.fold_of, asked.predict_fold
        values, exceedance = cells.values, None
        learned, by_means = np.empty((2, values.size))
        for number in range(int(fold_of.max()) + 1):
            held, (predictor, predict_means) = (
                np.flatnonzero(fold_of == number),
                predict_fold(number),
            )
            pairs, readout = (cells.rows[held], cells.columns[held]), predictor.readout
            learned[held], by_means[held] = (
                readout.units(predictor.score_pairs(*pairs)),
                predict_means(*pairs),
            )
            if _has_several(readout):
                found = predictor.read_distribution(*pairs)
                exceedance = (
                    np.empty((values.size, found.boundaries.size))
                    if exceedance is None
                    else exceedance
                )
                exceedance[held] = found.exceedance
        line, means = Line.fit(learned, values), Line.fit(by_means, values)
        effects, of_cells = Effects.fit(
            values - readout.scale.clip(line.apply(learned)), cells, fold_of, shape
        )
        odds = knots = None
        if exceedance is not None:
            found = PredictiveDistribution(found.support, found.boundaries, exceedance)
            odds = Odds.fit(found, values, of_cells, of_levels=readout.scale.levels is not None)
            curve = bend(line, learned, odds.apply(found).probabilities @ found.support)
            wanted = values - of_cells
            knots = choose(
                [curve, None], lambda each: np.square(wanted - move(line, each, learned))
            ).candidate
        after = readout.scale.clip(move(line, knots, learned) + of_cells)
        errors = (
            float(np.sqrt(np.mean(np.square(each - values))))
            for each in (learned, after, values.mean())
        )
        return cls(values.size, line, means, knots, odds, tuple(errors), effects)  # type: ignore[arg-type]  # three

    def describe(self) -> dict[str, float]:
        """Return the numbers of a summary by name."""
        learned, after, constant = self.errors
        shift = {"cells": self.n_cells, "level": self.line.level, "slope": self.line.slope}
        of_rows, of_columns = (
            (0.0, 0.0) if self.effects is None else (float(each.std()) for each in self.effects)
        )
        shift |= {"row_effects": of_rows, "column_effects": of_columns}
        return shift | {"rmse_as_learned": learned, "rmse": after, "rmse_of_mean": constant}

    def adapt(self, predictor: Predictor) -> Predictor:
        """Return the predictor with predictions and distributions for any cell."""
        return replace(
            predictor, readout=AskedReadout(predictor.readout, self), effects=self.effects
        )

    def forget(self, plan: ForgetPlan, change: ChangedStore) -> Calibration:
        """Return the calibration without the effects of some rows."""
        if self.effects is None:
            return self
        of_rows = self.effects.rows.copy()
        of_rows[plan.rows[plan.rows < of_rows.size]] = 0.0
        return replace(self, effects=self.effects._replace(rows=of_rows))

    def pack(self) -> Packed:
        """Return the calibration as a part of a model file."""
        odds = {} if self.odds is None else self.odds._asdict()
        return _FORM.pack(
            dict.fromkeys(Odds._fields) | odds,
            lines=np.array([self.line, self.means]),
            knots=self.knots,
            n_cells=self.n_cells,
            errors=np.array(self.errors),
            row_effects=None if self.effects is None else self.effects.rows,
            column_effects=None if self.effects is None else self.effects.columns,
        )

    @classmethod
    def unpack(
        cls, content: Any, tensors: Tensors, entries: EntryStore, predictor: Predictor
    ) -> Self:
        """Return the stored calibration; impossible content raises `BadModelFile`."""
        readout, shape = predictor.readout, entries.train.shape
        several = _has_several(readout)
        n_boundaries = readout.support.size - 1 if several else 0
        found = _FORM.read(
            content, tensors, boundaries=n_boundaries, rows=shape[0], columns=shape[1]
        )
        odds = Odds(found["sharpness"], found["offsets"], found["targets"])
        has_odds = several and all(each is not None for each in odds)
        line, means = (Line(*each) for each in found["lines"].tolist())
        own = found["row_effects"], found["column_effects"]
        effects = None if any(each is None for each in own) else Effects(*own)
        errors = tuple(found["errors"].tolist())
        return cls(
            found["n_cells"],
            line,
            means,
            found["knots"],
            odds if has_odds else None,
            errors,
            effects,
        )


def fit_calibration(learning: Learning) -> dict[str, Calibration]:
    """Return the calibration on asked cells, if there are any."""
    if learning.asked is None:
        return {}
    return {"asked": Calibration.fit(learning.asked, learning.entries.train.shape)}


def _has_several(readout: Readout) -> bool:
    return readout.gives_distribution and readout.support.size > 1


_CURVE = Check(
    "rise from knot to knot",
    lambda found, _: (
        found.shape[1] > 1 and np.all(np.diff(found[0]) > 0) and np.all(np.diff(found[1]) >= 0)
    ),
)

_FORM = Form(
    Part("n_cells", "whole", (), not_negative),
    Part("lines", "float64", (2, 3)),
    Part("errors", "float64", (3,), not_negative),
    Part("knots", "float64", (2, "knots"), _CURVE, optional=True),
    Part("sharpness", "number", (), not_negative, optional=True),
    Part("offsets", "float64", ("boundaries",), optional=True),
    Part("targets", "float64", COVERAGES.shape, between(0.0, 1.0), not_falling, optional=True),
    Part("row_effects", "float64", ("rows",), optional=True),
    Part("column_effects", "float64", ("columns",), optional=True),
    prefix="asked",
)


class AskedReadout(Readout):
    """The readout of a model whose predictions and distributions are for any cell."""

    def __init__(self, learned: Readout, calibration: Calibration) -> None:
        super().__init__(learned.scale, learned._support, learned._unit_boundaries)
        self._learned, self.calibration = learned, calibration
        self.row_fields, self.predicts_levels = learned.row_fields, learned.predicts_levels
        self.ranks_by_products = learned.ranks_by_products

    @property
    def as_chosen(self) -> Readout:
        return self._learned

    def scores(self, products: Array, row_fields: LatentArray) -> Array:
        """Return the learned scores, which order columns as predictions do."""
        return self._learned.scores(products, row_fields)

    def units(self, scores: Array) -> FloatArray:
        return self.scale.clip(
            move(self.calibration.line, self.calibration.knots, self._learned.units(scores))
        )

    def values(self, scores: Array) -> FloatArray:
        units = self.units(scores)
        return self.scale.nearest_level(units) if self.predicts_levels else units

    def distribution(self, products: Array, row_fields: LatentArray) -> PredictiveDistribution:
        return self.calibrate(self._learned.distribution(products, row_fields))

    def calibrate(self, found: PredictiveDistribution) -> PredictiveDistribution:
        return found if self.calibration.odds is None else self.calibration.odds.apply(found)

    def pack(self) -> dict[str, Array]:
        """Return the learned parameters; those of the calibration are a part of their own."""
        return self._learned.pack()
