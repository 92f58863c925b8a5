"""The linear part of OrdinalDMF: ALS factors beside those of the network, with a share chosen on held-out entries."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS, ALSSettings, RidgeEncoder
from deepmf.models.fitting import Fitting
from deepmf.models.latents import Latents, pair_products
from deepmf.models.means import NO_WEIGHTS, FeatureWeights, load_feature_weights
from deepmf.models.ordinal.head import OrdinalHead
from deepmf.models.ordinal.refinement import split_by_entries
from deepmf.storage.model_file import Tensors, read_field
from deepmf.training.loop import ValidationEntries

# Shares and slopes of the linear part that are compared. Slopes are in units of the slope of a logistic distribution
# with the standard deviation of the ALS errors. On a scale without levels only that distribution itself is tried, and
# shares go up to almost 1.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SLOPES = (0.4, 0.5, 0.7, 1.0, 1.4)
_SHARES_IN_VALUES = (*_SHARES, 0.99)
_LOGISTIC = np.pi / np.sqrt(3.0)

# The linear part is used only if it lowers the error by at least this share.
_LEAST_GAIN = 2e-4

_FEWEST_LATENTS, _MOST_LATENTS = 24, 40

# Early stopping of ALS; the linear part need not be as good as ALS alone could be.
_PATIENCE = 2

# The largest penalty or slope that a model file may hold.
_LARGEST = 1e12


class Blend(NamedTuple):
    """How the linear part joins the network: logits = (1 - share) * network + share * (slope * linear - cutpoints).

    `linear` is the ALS prediction less the mean. The cutpoints are the average cutpoints of the head or, with
    `in_values`, the slope times the boundaries between values: a logistic distribution around the ALS prediction.
    """

    share: float
    slope: float
    in_values: bool = False

    @property
    def weight(self) -> float:
        """The weight of ALS values beside the network's scores times the slopes of rows."""
        return self.share * self.slope / (1.0 - self.share)


class LinearPart:
    """ALS as a part of the latents: ridge regressions of the entries of a row, or of a column.

    Rows are solved given the columns that ALS has learned, and columns given the trained rows. The latent of a row is
    (u, b, 1, 0) times the weight of the blend and divided by the row's slope, which the readout multiplies all scores
    by; that of a column is (v, 1, c, 1). The cutpoints take care of the mean.

    Parameters
    ----------
    settings
        Settings of ALS with the latent size of the linear part.
    """

    def __init__(
        self, train: ObservedMatrix, settings: ALSSettings, blend: Blend, feature_weights: FeatureWeights = NO_WEIGHTS
    ) -> None:
        self.size, self.blend, self.width = settings.latent_size, blend, settings.latent_size + ALS.n_beside
        self.settings, self.mean, self._scale = settings, train.mean, train.scale
        self.feature_weights = feature_weights
        self._encoder = RidgeEncoder(train, self.settings, feature_weights)

    def make_cutpoints(self, head: OrdinalHead) -> LatentArray:
        """Return the cutpoints of the linear part: the head's average cutpoints, or the boundaries between values."""
        if not self.blend.in_values:
            return head.cutpoints.detach().cpu().numpy()
        boundaries = self._scale.from_unit(head.boundaries.cpu().numpy())
        return (self.blend.slope * (boundaries - self.mean)).astype(np.float32)

    def encode_rows(self, entries: AxisEntries, columns: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of rows with these slopes, given the columns that ALS has learned."""
        return self.apply_weights(self._encoder.rows(entries, Latents(columns)), log_slopes)

    def encode_columns(self, entries: AxisEntries, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of columns, given the trained rows and their slopes."""
        if entries.others.size < len(rows):  # few of the rows are needed
            used, places = np.unique(entries.others, return_inverse=True)
            rows, log_slopes, entries = rows[used], log_slopes[used], entries._replace(others=places)
        return self._encoder.columns(entries, Latents(self.remove_weights(rows, log_slopes)))

    def apply_weights(self, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of rows with these slopes from their ALS latents."""
        latents: LatentArray = rows * self._weights(log_slopes)
        latents[:, -1] = 0.0  # the mean
        return latents

    def remove_weights(self, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the ALS latents of rows with these slopes, without the mean."""
        factors: LatentArray = rows / self._weights(log_slopes)
        return factors

    def _weights(self, log_slopes: LatentArray) -> LatentArray:
        return (np.float32(self.blend.weight) * np.exp(-log_slopes))[:, None]

    def pack(self) -> dict[str, Any]:
        """Return size, penalty and blend by name."""
        return {"size": self.size, "penalty": self.settings.penalty, **self.blend._asdict()}


def load_linear_part(content: Any, entries: EntryStore, tensors: Tensors) -> LinearPart:
    """Return the linear part that `pack` described; raise `BadModelFile` for anything else."""
    train = entries.train
    size = read_field(content, "size")
    if type(size) is not int or not 1 <= size <= min(train.shape):
        raise BadModelFile(f"the stored size of the linear part must be 1 to {min(train.shape)}; it is {size!r}")
    share = check_positive(read_field(content, "share"), "share of the linear part", below=1.0)
    width = train.scale.high - train.scale.low or 1.0
    slope = check_positive(read_field(content, "slope"), "slope of the linear part", below=_LARGEST / width)
    weights = load_feature_weights(entries, tensors, width=size + 1, kind="float32")
    # Files of earlier versions have neither of these: their linear parts have the default penalty on every scale.
    penalty = check_positive(content.get("penalty", ALSSettings().penalty), "penalty of the linear part")
    in_values = content.get("in_values", False)
    if type(in_values) is not bool or (in_values and train.scale.levels is not None):
        raise BadModelFile("the stored linear part can be in values only on a scale without levels")
    settings = ALSSettings(latent_size=size, penalty=penalty)
    return LinearPart(train, settings, Blend(share, slope, in_values), weights)


def check_positive(value: Any, name: str, *, below: float = _LARGEST) -> float:
    """Return a stored number above 0 and below a bound; raise `BadModelFile` for anything else."""
    if type(value) not in (int, float) or not 0.0 < value < below:
        raise BadModelFile(f"the stored {name} must be a number above 0 and below {below:g}")
    return float(value)


class LearnedLinear(NamedTuple):
    """What ALS has learned for the linear part: the latents of columns, and the weights of features."""

    settings: ALSSettings
    columns: LatentArray
    feature_weights: FeatureWeights


class LinearLatents(NamedTuple):
    """The ALS latents of all rows and columns."""

    rows: LatentArray  # (u, b, 1, m)
    columns: LatentArray  # (v, 1, c, 1)

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return float(self.rows[0, -1])

    def predict(self, row_at: IndexArray, column_at: IndexArray) -> LatentArray:
        """Return the ALS predictions of pairs of positions, less the mean."""
        products = pair_products(Latents(self.rows), Latents(self.columns), row_at, column_at)
        predictions: LatentArray = products - self.rows[row_at, -1]
        return predictions


def fit_linear_part(
    seen: EntryStore, held_out: ValidationEntries, *, size: int | None, seed: int
) -> LearnedLinear | None:
    """Fit ALS with a latent size, chosen for the matrix by default; None where the size is 0."""
    train = seen.train
    size = choose_linear_size(*train.shape, train.n_entries) if size is None else size
    if not size:
        return None
    als = ALS(latent_size=size, patience=_PATIENCE, seed=seed)._with_choice(train, None)
    als._learn(seen, held_out, Fitting())
    encoder = als.predictor_.encoder
    assert isinstance(encoder, RidgeEncoder)
    columns = als.predictor_.columns.base
    learned = replace(als.settings, latent_size=columns.shape[1] - ALS.n_beside)  # no more than rows or columns
    return LearnedLinear(learned, columns, encoder.feature_weights)


def choose_linear_size(n_rows: int, n_columns: int, n_entries: int) -> int:
    """Return the latent size of the linear part: the mean number of entries of a row or column, within bounds."""
    mean_count = 2 * n_entries // (n_rows + n_columns)
    return min(max(mean_count, _FEWEST_LATENTS), _MOST_LATENTS, n_rows, n_columns)


def solve_linear_part(train: ObservedMatrix, learned: LearnedLinear, seen: EntryStore) -> LinearLatents:
    """Return the ALS latents of all rows given the learned columns, and of all columns given these rows."""
    ridge = RidgeEncoder(train, learned.settings, learned.feature_weights)
    start = Latents(learned.columns)
    row_parts, column_parts = map(split_by_entries, (train.row_counts, train.column_counts))
    rows = np.concatenate([ridge.rows(seen.row_entries(part), start) for part in row_parts])
    columns = np.concatenate([ridge.columns(seen.column_entries(part), Latents(rows)) for part in column_parts])
    return LinearLatents(rows, columns)


class BlendChoice(NamedTuple):
    """The best blend, None where the network alone is as good, and the errors without and with it."""

    blend: Blend | None
    error_without: float
    error_with: float


def choose_blend(
    logits: npt.NDArray[np.float32],
    linear: npt.NDArray[np.float32],
    cutpoints: npt.NDArray[np.float32],
    values: FloatArray,
    support: FloatArray,
    boundaries: FloatArray | None = None,
) -> BlendChoice:
    """Return the blend that predicts held-out entries best.

    Parameters
    ----------
    logits
        Logits of the network, (entries, cutpoints).
    linear
        ALS predictions less the mean, (entries,).
    cutpoints
        Average cutpoints of the head.
    values
        Values of the entries.
    support
        Values of the distribution.
    boundaries
        Boundaries between these values less the mean, on a scale without levels.
    """

    def compute_error(blend: Blend) -> float:
        share, slope, _ = blend
        own = cutpoints if boundaries is None else slope * boundaries
        return compute_rmse((1.0 - share) * logits + share * (slope * linear[:, None] - own), values, support)

    spread = float(np.std(values - linear))
    unit = _LOGISTIC / max(spread, 1e-6 * float(support[-1] - support[0]) or 1.0)
    if boundaries is None:
        blends = [Blend(share, slope * unit) for share, slope in itertools.product(_SHARES, _SLOPES)]
    else:
        blends = [Blend(share, unit, in_values=True) for share in _SHARES_IN_VALUES]
    without = compute_rmse(logits, values, support)
    lowest, best = min((compute_error(blend), blend) for blend in blends)
    if not lowest < (1.0 - _LEAST_GAIN) * without:
        return BlendChoice(None, without, without)
    return BlendChoice(best._replace(slope=float(best.slope)), without, lowest)


def compute_rmse(logits: npt.NDArray[np.floating], values: FloatArray, support: FloatArray) -> float:
    """Return the root mean squared error of the expected values by logits (entries, cutpoints)."""
    return rmse_error(support[0] + expit(logits) @ np.diff(support), values)
