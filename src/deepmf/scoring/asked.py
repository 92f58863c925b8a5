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

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from deepmf.files import special
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import PlacedEntries
from deepmf.matrix.entries import ChangedStore, EntryStore, ForgetPlan
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.scoring.distribution import (
    COVERAGES,
    CalibratedDistribution,
    PredictiveDistribution,
    find_odds,
)
from deepmf.scoring.effects import SHRINKAGE, Effects, Shape
from deepmf.scoring.learning import AskedCells, Learning, SteadyPart
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Check, Form, Part, Sizes, between, not_falling, not_negative
from deepmf.training.holdout import choose

_FEWEST_BENT = 50  # cells from which on a curve is tried

# The shares of predictions at which the curve has knots, closer at the ends, where it bends most.
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
        if slope <= 0:
            return cls(centre, level, 0.0)
        return cls(centre, level, slope * max(0.0, 1.0 - noise / certainty))


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

    def apply(self, learned: PredictiveDistribution) -> PredictiveDistribution:
        """Return distributions for any cell."""
        odds = self.sharpness * find_odds(learned.exceedance) + self.offsets
        exceedance = np.minimum.accumulate(special.expit(odds), axis=1)
        return CalibratedDistribution(learned.support, learned.boundaries, exceedance, self.targets)

    @classmethod
    def fit(
        cls,
        learned: PredictiveDistribution,
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
        learned_odds = find_odds(learned.exceedance)
        n_boundaries = learned_odds.shape[1]
        is_above = ((values - effects)[:, None] > learned.boundaries).astype(np.float64)
        prior = _make_prior(learned_odds)
        usual = np.zeros(n_boundaries + 1)
        usual[0] = 1.0

        def measure_loss(change: FloatArray) -> tuple[float, FloatArray]:
            odds = change[0] * learned_odds + change[1:]
            moved = change - usual
            missing = is_above - special.expit(odds)
            pull = prior @ moved
            loss = np.logaddexp(0.0, odds).sum() - (is_above * odds).sum() + moved @ pull / 2.0
            return loss, pull - np.append((missing * learned_odds).sum(), missing.sum(axis=0))

        from scipy.optimize import minimize  # takes half as long as all of numpy

        solution = minimize(measure_loss, usual, jac=True, method="BFGS", options={"gtol": 1e-6})
        change = solution.x
        plain = cls(max(float(change[0]), 0.0), change[1:], COVERAGES)
        moved = plain.apply(learned).shift(effects)
        return plain._replace(targets=moved.choose_coverages(values, of_levels=of_levels))


def _make_prior(learned_odds: FloatArray) -> FloatArray:
    """Return the precision of the prior of sharpness and offsets, in units of five entries.

    An entry tells at most a quarter about the log-odds of a boundary, the variance of a fair coin.
    """
    n_boundaries = learned_odds.shape[1]
    differences = np.diff(np.eye(n_boundaries), axis=0)
    prior = np.zeros((n_boundaries + 1, n_boundaries + 1))
    prior[0, 0] = np.square(learned_odds).mean() * n_boundaries
    prior[1:, 1:] = np.eye(n_boundaries) + _SMOOTHNESS * differences.T @ differences
    return SHRINKAGE / 4.0 * prior


class _HeldOut(NamedTuple):
    """Asked cells, and what models that have not seen them predict there.

    predictions, means: (cells,). distribution: None for a model that predicts values alone.
    """

    cells: PlacedEntries
    fold_of: IndexArray
    scale: Scale
    predictions: FloatArray
    means: FloatArray
    distribution: PredictiveDistribution | None

    @classmethod
    def of(cls, asked: AskedCells) -> _HeldOut:
        """Return the predictions for each fold by a model that was extended by the others."""
        cells, fold_of = asked.cells, asked.fold_of
        predictions, means = np.empty((2, fold_of.size))
        distributions: list[PredictiveDistribution] = []
        places: list[IndexArray] = []
        for number in range(int(fold_of.max()) + 1):
            fold = np.flatnonzero(fold_of == number)
            pairs = cells.rows[fold], cells.columns[fold]
            predictor, predict_means = asked.predict_fold(number)
            readout = predictor.readout
            predictions[fold] = readout.units(predictor.score_pairs(*pairs))
            means[fold] = predict_means(*pairs)
            if _has_several(readout):
                distributions.append(predictor.read_distribution(*pairs))
                places.append(fold)
        held_out = cls(cells, fold_of, readout.scale, predictions, means, None)
        if not distributions:
            return held_out
        exceedance = np.concatenate([distribution.exceedance for distribution in distributions])
        ordered = exceedance[np.argsort(np.concatenate(places))]
        return held_out._replace(distribution=replace(distributions[0], exceedance=ordered))

    def take(self, are_taken: BoolArray) -> _HeldOut:
        """Return some of the cells."""
        distribution = self.distribution
        if distribution is not None:
            exceedance = distribution.exceedance[are_taken]
            distribution = replace(distribution, exceedance=exceedance)
        return _HeldOut(
            self.cells.take(are_taken),
            np.unique(self.fold_of[are_taken], return_inverse=True)[1],
            self.scale,
            self.predictions[are_taken],
            self.means[are_taken],
            distribution,
        )

    def fit(self, shape: Shape) -> Calibration:
        """Return what is learned from these cells; its errors are not measured."""
        cells, predictions = self.cells, self.predictions
        values, knots, odds = cells.values, None, None
        line, line_of_means = Line.fit(predictions, values), Line.fit(self.means, values)
        residuals = values - self.scale.clip(line.apply(predictions))
        effects, of_cells = Effects.fit(residuals, cells, self.fold_of, shape)
        if self.distribution is not None:
            of_levels = self.scale.levels is not None
            odds = Odds.fit(self.distribution, values, of_cells, of_levels=of_levels)
            means = odds.apply(self.distribution).probabilities @ self.distribution.support
            candidates = [bend(line, predictions, means), None]
            targets = values - of_cells
            knots = choose(
                candidates, lambda knots: np.square(targets - move(line, knots, predictions))
            ).candidate
        return Calibration(values.size, line, line_of_means, knots, odds, effects=effects)

    def measure(self, shape: Shape) -> tuple[float, float, float]:
        """Return the root mean squared errors as learned, calibrated, and by the mean.

        The calibration and the mean are those of the cells of the other folds.
        """
        values = self.cells.values
        calibrated, by_mean = self.predictions.copy(), np.full(values.size, values.mean())
        for number in range(int(self.fold_of.max()) + 1):
            fold = self.fold_of == number
            if fold.all():
                continue
            other_cells, held_out = self.take(~fold), self.take(fold)
            by_mean[fold] = other_cells.cells.values.mean()
            calibrated[fold] = other_cells.fit(shape).predict(held_out)
        predictions = (self.predictions, calibrated, by_mean)
        learned, after, constant = (rmse_error(predicted, values) for predicted in predictions)
        return learned, after, constant


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
    errors: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    effects: Effects | None = None

    @classmethod
    def fit(cls, asked: AskedCells, shape: Shape) -> Calibration:
        """Return the calibration of a model on cells that it has not learned from.

        shape: the numbers of trained rows and columns.
        """
        held_out = _HeldOut.of(asked)
        return replace(held_out.fit(shape), errors=held_out.measure(shape))

    def predict(self, held_out: _HeldOut) -> FloatArray:
        """Return predictions for other cells."""
        predictions = move(self.line, self.knots, held_out.predictions)
        if self.effects is not None:
            predictions += self.effects.evaluate(held_out.cells.rows, held_out.cells.columns)
        return held_out.scale.clip(predictions)

    def describe(self) -> dict[str, float]:
        """Return the numbers of a summary by name."""
        learned, after, constant = self.errors
        effects = self.effects or Effects(np.zeros(1), np.zeros(1))
        return {
            "cells": self.n_cells,
            "level": self.line.level,
            "slope": self.line.slope,
            "row_effects": float(effects.rows.std()),
            "column_effects": float(effects.columns.std()),
            "rmse_as_learned": learned,
            "rmse": after,
            "rmse_of_mean": constant,
        }

    def adapt(self, predictor: Predictor) -> Predictor:
        """Return the predictor with predictions and distributions for any cell."""
        return replace(
            predictor, readout=AskedReadout(predictor.readout, self), effects=self.effects
        )

    def forget(self, plan: ForgetPlan, change: ChangedStore) -> Calibration:
        """Return the calibration without the effects of forgotten rows and columns."""
        if self.effects is None:
            return self
        return replace(self, effects=self.effects.forget(plan.rows, plan.columns))

    def pack(self) -> Packed:
        """Return the calibration as a part of a model file."""
        odds = dict.fromkeys(Odds._fields) if self.odds is None else self.odds._asdict()
        of_rows, of_columns = self.effects or (None, None)
        return _FORM.pack(
            odds,
            lines=np.array([self.line, self.means]),
            knots=self.knots,
            n_cells=self.n_cells,
            errors=np.array(self.errors),
            row_effects=of_rows,
            column_effects=of_columns,
        )

    @classmethod
    def unpack(
        cls, content: Any, tensors: Tensors, entries: EntryStore, predictor: Predictor
    ) -> Self:
        """Return the stored calibration; impossible content raises `BadModelFile`."""
        readout, (n_rows, n_columns) = predictor.readout, entries.train.shape
        has_several = _has_several(readout)
        n_boundaries = readout.support.size - 1 if has_several else 0
        fields = _FORM.read(
            content, tensors, boundaries=n_boundaries, rows=n_rows, columns=n_columns
        )
        line, means = (Line(*numbers) for numbers in fields["lines"].tolist())
        odds = Odds(fields["sharpness"], fields["offsets"], fields["targets"])
        effects = Effects(fields["row_effects"], fields["column_effects"])
        return cls(
            fields["n_cells"],
            line,
            means,
            fields["knots"],
            odds if has_several and _is_whole(odds) else None,
            tuple(fields["errors"].tolist()),
            effects if _is_whole(effects) else None,
        )


def _is_whole(fields: tuple[Any, ...]) -> bool:
    """Whether all optional fields are stored."""
    return not any(field is None for field in fields)


def fit_calibration(learning: Learning) -> dict[str, Calibration]:
    """Return the calibration on asked cells, if there are any."""
    if learning.asked is None:
        return {}
    return {"asked": Calibration.fit(learning.asked, learning.entries.train.shape)}


def _has_several(readout: Readout) -> bool:
    return readout.gives_distribution and readout.support.size > 1


def _is_curve(knots: FloatArray, _: Sizes) -> bool:
    rises, falls_nowhere = np.all(np.diff(knots[0]) > 0), np.all(np.diff(knots[1]) >= 0)
    return bool(knots.shape[1] > 1 and rises and falls_nowhere)


_CURVE = Check("rise from knot to knot", _is_curve)

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
        self.predicts_levels = learned.predicts_levels
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

    def calibrate(self, found: PredictiveDistribution) -> PredictiveDistribution:
        odds = self.calibration.odds
        return found if odds is None else odds.apply(found)

    def pack(self) -> dict[str, Array]:
        """Return the learned parameters; those of the calibration are a part of their own."""
        return self._learned.pack()
