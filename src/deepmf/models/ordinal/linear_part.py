"""The linear part of OrdinalDMF: the factors of ALS, beside those of the network, with a weight chosen on held-out
entries."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS, ALSSettings, RidgeEncoder
from deepmf.models.latents import Latents, pair_products
from deepmf.models.means import NO_WEIGHTS, FeatureWeights
from deepmf.models.ordinal.head import OrdinalHead
from deepmf.models.ordinal.views import entry_parts

# The shares of the linear part that are compared, and its slopes: in those of a logistic distribution with the standard
# deviation of its errors. On a scale without levels that distribution itself is what joins, up to almost alone.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

_SLOPES = (0.4, 0.5, 0.7, 1.0, 1.4)

_SHARES_IN_VALUES = (*_SHARES, 0.99)

_LOGISTIC = np.pi / np.sqrt(3.0)

# A linear part that lowers the error by less is left out.
_LEAST_GAIN = 2e-4

# The fewest and the most latents.
_FEWEST, _MOST = 24, 40


class Blend(NamedTuple):
    """How the linear part joins the network.

    A share of the logits are the slope times its values, less the cutpoints of no row in particular. In values, these
    cutpoints are the slope times the boundaries between the values: a logistic distribution around its predictions.
    """

    share: float
    slope: float
    in_values: bool = False

    @property
    def weight(self) -> float:
        """What the values of the linear part weigh, beside the network's scores times the slopes of rows."""
        return self.share * self.slope / (1.0 - self.share)


def linear_size(n_rows: int, n_columns: int, n_entries: int) -> int:
    """Return how many latents the linear part has: as many as a row or column has entries, within bounds."""
    by_vector = 2 * n_entries // (n_rows + n_columns)
    return min(max(by_vector, _FEWEST), _MOST, n_rows, n_columns)


class LinearPart:
    """ALS as a part of the latents: factors of rows and columns by ridge regression on their entries.

    It begins with the columns that ALS has learned: rows are solved for by these, and columns by the trained rows.
    Its latents are (u, b, 1, 0) of a row, times the weight and over the row's slope, by which the readout multiplies
    all scores; and (v, 1, c, 1) of a column. The mean is left to the cutpoints.

    settings: those of ALS, with as many latents as the part has.
    """

    def __init__(
        self, train: ObservedMatrix, settings: ALSSettings, blend: Blend, feature_weights: FeatureWeights = NO_WEIGHTS
    ) -> None:
        self.size, self.blend, self.width = settings.latent_size, blend, settings.latent_size + ALS.n_beside
        self.settings, self.mean, self._scale = settings, train.mean, train.scale
        self.feature_weights = feature_weights
        self._encoder = RidgeEncoder(train, self.settings, feature_weights)

    def pack(self) -> dict[str, Any]:
        """Return its size, its penalty and how it joins, by name."""
        return {"size": self.size, "penalty": self.settings.penalty, **self.blend._asdict()}

    def cutpoints(self, head: OrdinalHead) -> LatentArray:
        """Return its cutpoints beside a head: those of no row in particular, or the boundaries between the values."""
        if not self.blend.in_values:
            return head.cutpoints.detach().cpu().numpy()
        boundaries = self._scale.from_unit(head.boundaries.cpu().numpy())
        return (self.blend.slope * (boundaries - self.mean)).astype(np.float32)

    def rows(self, entries: AxisEntries, columns: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of rows with these slopes, by the columns that it begins with."""
        return self.weighted(self._encoder.rows(entries, Latents(columns)), log_slopes)

    def columns(self, entries: AxisEntries, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of columns, by those of the trained rows, which have these slopes."""
        if entries.others.size < len(rows):  # few of them are needed
            used, places = np.unique(entries.others, return_inverse=True)
            rows, log_slopes, entries = rows[used], log_slopes[used], entries._replace(others=places)
        return self._encoder.columns(entries, Latents(self.unweighted(rows, log_slopes)))

    def weighted(self, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of rows with these slopes from those of ALS."""
        latents: LatentArray = rows * self._weights(log_slopes)
        latents[:, -1] = 0.0  # the mean
        return latents

    def unweighted(self, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of rows with these slopes as ALS has them, without the mean."""
        factors: LatentArray = rows / self._weights(log_slopes)
        return factors

    def _weights(self, log_slopes: LatentArray) -> LatentArray:
        return (np.float32(self.blend.weight) * np.exp(-log_slopes))[:, None]


class SolvedLinear(NamedTuple):
    """The latents of all rows and columns as ALS has them, solved for one after the other."""

    rows: LatentArray  # (u, b, 1, m)
    columns: LatentArray  # (v, 1, c, 1)

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return float(self.rows[0, -1])

    def values(self, row_at: IndexArray, column_at: IndexArray) -> LatentArray:
        """Return the linear part of pairs of positions, less the mean."""
        products = pair_products(Latents(self.rows), Latents(self.columns), row_at, column_at)
        values: LatentArray = products - self.rows[row_at, -1]
        return values


class LearnedLinear(NamedTuple):
    """What ALS has learned for the linear part: the columns that it begins with, and what features say."""

    settings: ALSSettings
    columns: LatentArray
    feature_weights: FeatureWeights


def solved_linear(train: ObservedMatrix, learned: LearnedLinear, seen: EntryStore) -> SolvedLinear:
    """Return what ALS has learned and the entries seen make of all rows and columns."""
    ridge = RidgeEncoder(train, learned.settings, learned.feature_weights)
    begin, (row_parts, column_parts) = (
        Latents(learned.columns),
        map(entry_parts, (train.row_counts, train.column_counts)),
    )
    rows = np.concatenate([ridge.rows(seen.row_entries(part), begin) for part in row_parts])
    solved = np.concatenate([ridge.columns(seen.column_entries(part), Latents(rows)) for part in column_parts])
    return SolvedLinear(rows, solved)


def best_blend(
    logits: npt.NDArray[np.float32],
    linear: npt.NDArray[np.float32],
    cutpoints: npt.NDArray[np.float32],
    values: FloatArray,
    support: FloatArray,
    boundaries: FloatArray | None = None,
) -> tuple[Blend | None, float, float]:
    """Return the blend that predicts held-out entries best, None where the network alone does as well, and both errors.

    logits: those of the network (entries, cutpoints). linear: the linear part of each entry, less the mean.
    cutpoints: those of no row in particular. boundaries: those between the values, less the mean, on a scale without
    levels.
    """

    def error(blend: Blend) -> float:
        share, slope, _ = blend
        own = cutpoints if boundaries is None else slope * boundaries
        return error_of((1.0 - share) * logits + share * (slope * linear[:, None] - own), values, support)

    spread = float(np.std(values - linear))
    unit = _LOGISTIC / max(spread, 1e-6 * float(support[-1] - support[0]) or 1.0)
    if boundaries is None:
        blends = [Blend(share, slope * unit) for share, slope in itertools.product(_SHARES, _SLOPES)]
    else:
        blends = [Blend(share, unit, in_values=True) for share in _SHARES_IN_VALUES]
    alone = error_of(logits, values, support)
    together, best = min((error(blend), blend) for blend in blends)
    if not together < (1.0 - _LEAST_GAIN) * alone:
        return None, alone, alone
    return best._replace(slope=float(best.slope)), alone, together


def error_of(logits: npt.NDArray[np.floating], values: FloatArray, support: FloatArray) -> float:
    """Return the root mean squared error of the expected values by logits (entries, cutpoints)."""
    return rmse_error(support[0] + expit(logits) @ np.diff(support), values)
