"""The readout of BayesianMF: normal distributions between cutpoints, calibrated on held-out
entries."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, SingleArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.gibbs.chain import Samples, Units
from deepmf.scoring.distribution import PredictiveDistribution, find_support, place_cutpoints
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Form, Part, not_falling, positive
from deepmf.training.holdout import HeldOut, choose, draw_some

# Scales of the predictive spread that are compared on held-out entries, and the most of these.
_SPREADS = np.geomspace(0.6, 1.7, 27)
_MOST_CALIBRATED = 8192


class SampleReadout(Readout):
    """Values are clipped products; distributions are normal, between cutpoints.

    Parameters
    ----------
    cutpoints : boundaries between neighbouring values of the support, in the scale's units, as
        held-out entries place them.
    noise : standard deviation of the usual noise.
    spread : factor on the standard deviation of predictions, chosen on held-out entries.
    """

    def __init__(
        self,
        scale: Scale,
        support: FloatArray,
        unit_boundaries: SingleArray,
        *,
        cutpoints: FloatArray,
        noise: float,
        spread: float = 1.0,
    ) -> None:
        super().__init__(scale, support, unit_boundaries)
        self.cutpoints, self.noise, self.spread = cutpoints, noise, spread

    def distribution(self, products: Array, row_fields: Array) -> PredictiveDistribution:
        """Return the distribution of each product, with spreads of its row, or of its row and
        column, (pairs, 2)."""
        deviations = self.spread * combine_spreads(self.noise, row_fields)[:, None]
        exceedance = special.ndtr(
            (products[:, None].astype(np.float64) - self.cutpoints) / deviations
        )
        boundaries = self.scale.from_unit(self.unit_boundaries)
        return PredictiveDistribution(self.support, boundaries, exceedance)

    def widen(
        self, products: Array, row_fields: Array, variances: FloatArray
    ) -> PredictiveDistribution:
        fields = row_fields.astype(np.float64)
        fields[:, 0] = np.hypot(fields[:, 0], np.sqrt(variances) / self.spread)
        return self.distribution(products, fields)

    def log_exceedance(self, products: Array, row_fields: Array, thresholds: FloatArray) -> Array:
        """Return the logarithms of P(value >= threshold) for products (rows, columns), by one
        cutpoint a row."""
        assert self.scale.levels is not None
        deviations = self.spread * combine_spreads(self.noise, row_fields)[:, None]
        ends = np.concatenate([[-np.inf], self.cutpoints, [np.inf]])
        row_ends = ends[np.searchsorted(self.scale.levels, thresholds)]
        log_exceedance: Array = special.log_ndtr((products - row_ends[:, None]) / deviations)
        return log_exceedance

    def pack(self) -> dict[str, Array]:
        """Return the support, its boundaries and the calibration."""
        return _READOUT.pack(self, spread=np.array([self.noise, self.spread])).tensors


def combine_spreads(noise: float, spreads: Array) -> FloatArray:
    """Return standard deviations of values: of the noise times s, and of the posterior r, for
    spreads (..., 2)."""
    return np.hypot(noise * spreads[..., 1].astype(np.float64), spreads[..., 0].astype(np.float64))


def make_readout(
    entries: EntryStore, units: Units, samples: Samples, *, n_bins: int
) -> SampleReadout:
    """Return the readout of samples, not calibrated."""
    if not np.all(samples.alphas > 0):
        raise np.linalg.LinAlgError("the precision of the noise is not above 0")
    noise = units.deviation * float(np.sqrt(np.mean(1.0 / samples.alphas.astype(np.float64))))
    support = find_support(entries.train, n_bins=n_bins)
    unit_boundaries = np.array(support.boundaries, dtype=np.float32)
    boundaries = entries.scale.from_unit(unit_boundaries)
    values = np.array(support.values)
    return SampleReadout(entries.scale, values, unit_boundaries, cutpoints=boundaries, noise=noise)


class HeldOutPredictions(NamedTuple):
    """Predictions of held-out entries, and their true values."""

    means: FloatArray
    spreads: Array  # (pairs, 2), r and s
    values: FloatArray

    def measure(self, scale: Scale) -> float:
        """Return the root mean squared error of predictions on a scale."""
        return rmse_error(scale.clip(self.means), self.values)


def predict_held_out(predictor: Predictor, held_out: HeldOut) -> HeldOutPredictions:
    """Return the predictions of held-out entries."""
    scores = predictor.score(held_out.rows, held_out.columns)
    return HeldOutPredictions(scores.location.astype(np.float64), scores.fields, held_out.values)


def calibrate(plain: SampleReadout, held_out: HeldOutPredictions) -> SampleReadout:
    """Return the readout whose distributions fit held-out entries best.

    On levels, cutpoints are placed so that each level is predicted as often as it occurs, for the
    spread under which the held-out entries are most probable. On other scales, cutpoints are the
    boundaries.
    """
    if plain.support.size < 2:
        return plain
    scale, noise, boundaries = (
        plain.scale,
        plain.noise,
        plain.scale.from_unit(plain.unit_boundaries),
    )
    places = draw_some(np.arange(held_out.values.size), _MOST_CALIBRATED, seed=0)
    held_out = HeldOutPredictions(*(array[places] for array in held_out))
    above = held_out.values[:, None] > boundaries

    def place(spread: float) -> SampleReadout:
        cutpoints = boundaries
        if scale.levels is not None:
            deviations = spread * combine_spreads(noise, held_out.spreads)
            cutpoints = place_cutpoints(special.ndtr, held_out.means, deviations, above.sum(axis=0))
        values = plain.support, plain.unit_boundaries
        return SampleReadout(scale, *values, cutpoints=cutpoints, noise=noise, spread=spread)

    def measure_surprise(candidate: SampleReadout) -> float:
        chances = candidate.distribution(held_out.means, held_out.spreads).probabilities
        chances_of_values = chances[np.arange(len(chances)), above.sum(axis=1)]
        return float(-np.log(np.maximum(chances_of_values, 1e-12)).mean())

    errors = np.square(held_out.values - held_out.means).mean()
    expected = np.square(combine_spreads(noise, held_out.spreads)).mean()
    # other members than the sampler may be far nearer
    usual = math.sqrt(errors / expected) if errors < _SPREADS[0] ** 2 * expected else 1.0
    return choose(list(map(place, usual * _SPREADS)), measure_surprise).candidate


_READOUT = Form(
    Part("support", "float64", ("support",), not_falling),
    Part("unit_boundaries", "float32", ("support - 1",), not_falling),
    Part("cutpoints", "float64", ("support - 1",), not_falling),
    Part("spread", "float64", (2,), positive),
    prefix="readout",
)


def load_readout(scale: Scale, tensors: Tensors) -> SampleReadout:
    """Return the readout that `pack` described; raise `BadModelFile` for anything else."""
    stored = _READOUT.read({}, tensors)
    noise, spread = stored.pop("spread").tolist()
    if scale.levels is not None and not np.array_equal(stored["support"], scale.levels):
        raise BadModelFile(
            f"the stored support must be the levels of {scale}; it is {stored['support'].tolist()}"
        )
    return SampleReadout(scale, noise=noise, spread=spread, **stored)
