"""The linear part of OrdinalDMF: a factorisation beside the network, with a share chosen on held-out entries.

The factorisation is the posterior mean of `gibbs/` or, where that is no better, ALS.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS, ALSSettings, RidgeEncoder
from deepmf.models.fitting import Fitting
from deepmf.models.gibbs.chain import Units, run_chain
from deepmf.models.gibbs.prediction import MOST_FACTORS, SampleEncoder, load_encoder
from deepmf.models.means import NO_WEIGHTS, FeatureWeights, load_feature_weights
from deepmf.models.ordinal.refinement import split_by_entries
from deepmf.scoring.latents import Latents, pair_products
from deepmf.scoring.predictor import SolvingEncoder
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, at_most, below, not_falling, not_negative, one_of, positive
from deepmf.training.holdout import Choice, HeldOut, choose

# Shares and slopes of the linear part that are compared. Slopes are in units of the slope of a logistic distribution
# with the standard deviation of the linear model's errors. On a scale without levels only that distribution itself is
# tried, and shares go up to almost 1.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SLOPES = (0.7, 0.85, 1.0, 1.2, 1.4)
_STEEP_SLOPES = (1.7, 2.0, 2.5)  # need as many held-out entries: fewer would choose them by chance
_ENTRIES_FOR_STEEP = 1000
_SHARES_IN_VALUES = (*_SHARES, 0.99)
_LOGISTIC = np.pi / np.sqrt(3.0)

# Held-out entries that place cutpoints, and the steps of the search.
_MOST_PLACED, _BISECTIONS = 8192, 30

# Numbers of entries that are compared as few for a column, and those of the columns on which they are compared; the
# largest numbers of columns and of held-out entries.
_FEW_CANDIDATES, _CUT_COUNTS = (0.0, 5.0, 12.0, 25.0), (1, 2, 5, 10, 20, 50)
_MOST_CUT, _MOST_PREDICTED = 500, 5_000

# The linear part is used only if it lowers the error by at least this share.
LEAST_GAIN = 2e-4

# Latent sizes of ALS, and of a sample of the posterior on a CPU and on a GPU. Large ones need twice as many entries of
# each row and column.
_FEWEST_LATENTS, _MOST_LATENTS = 24, 40
_FEWEST_SAMPLED, _LARGE_SAMPLED, _MOST_SAMPLED = 4, 32, {False: 16, True: 64}

# With more entries, as on MovieLens-1M, samples of the posterior are better than ALS, and ALS is not fitted.
_ALS_UP_TO = 300_000

# Early stopping of ALS; the linear part need not be as good as ALS alone could be.
_PATIENCE = 2

# The largest penalty or slope that a model file may hold.
LARGEST = 1e12


class Blend(NamedTuple):
    """How the linear part joins the network: logits = (1 - share) * network + share * (slope * linear - cutpoints).

    `linear` is the prediction of the linear model less the mean. The scores, but not the cutpoints, of a column with n
    entries have the share times 1 - 1/2 / (1 + (n / few_count)^2), half of it without entries: the network learns from
    masked columns what to expect of a new one, while samples of the posterior take its first entries for all it gets.

    Parameters
    ----------
    cutpoints : cutpoints of the linear part.
    """

    share: float
    slope: float
    cutpoints: tuple[float, ...] = ()
    few_count: float = 0.0

    def compute_column_shares(self, counts: npt.NDArray[Any]) -> LatentArray:
        """Return the share in the scores of columns with these numbers of entries.

        >>> shares = Blend(0.4, 1.0, few_count=20.0).compute_column_shares(np.array([0, 20, 1000]))
        >>> [f"{share:.2f}" for share in shares]
        ['0.20', '0.30', '0.40']
        """
        if self.few_count == 0.0:
            return np.full(counts.shape, self.share, dtype=np.float32)
        kept = 1.0 - 0.5 / (1.0 + np.square(counts / self.few_count))
        shares: LatentArray = (self.share * kept).astype(np.float32)
        return shares

    def mix_logits(
        self, scores: LatentArray, cutpoints: LatentArray, linear: LatentArray, counts: npt.NDArray[Any]
    ) -> LatentArray:
        """Return the logits (pairs, cutpoints) of pairs.

        Parameters
        ----------
        scores, cutpoints : those of the network: scores times the slopes of rows (pairs,), and cutpoints of rows
            (pairs, cutpoints).
        linear : predictions of the linear model less the mean, (pairs,).
        counts : numbers of entries of the columns, (pairs,).
        """
        share, shares = np.float32(self.share), self.compute_column_shares(counts)
        mixed = (1 - shares) * scores + shares * np.float32(self.slope) * linear
        own = np.array(self.cutpoints, dtype=np.float32)
        logits: LatentArray = mixed[:, None] - ((1 - share) * cutpoints + share * own)
        return logits

    @property
    def weight(self) -> float:
        """The weight of linear predictions beside the network's scores times the slopes of rows."""
        return self.share * self.slope / (1.0 - self.share)


class LinearModel(ABC):
    """A factorisation that is fitted beside the network: latents of rows are (u, b, 1, m), of columns (v, 1, c, 1).

    size: the latent size, of each sample. n_samples: 0 for ALS. mean: the mean m of all values.
    """

    size: int
    n_samples: int
    mean: float

    encoder: SolvingEncoder

    @property
    def width(self) -> int:
        """How many numbers a latent has."""
        return self.size + ALS.n_beside

    @property
    def n_kept(self) -> int:
        """How many numbers of the factors of a new row, or column, are kept."""
        return self.encoder.count_factors(self.width)

    def encode_rows(self, entries: AxisEntries, columns: LatentArray) -> LatentArray:
        """Return the latents of rows, given the columns that ALS has learned."""
        return self.encoder.rows(entries, Latents(columns))[:, : self.width]

    def encode_columns(self, entries: AxisEntries, rows: LatentArray) -> LatentArray:
        """Return the latents of columns, given the latents of the trained rows."""
        return self.encoder.columns(entries, Latents(rows))[:, : self.width]

    @abstractmethod
    def pack(self) -> Packed:
        """Return what it has learned."""

    def on_cpu(self) -> LinearModel:
        """Return a model that encodes on the CPU."""
        return self

    def solve(self, columns: LatentArray, entries: EntryStore) -> LinearLatents:
        """Return the latents of all rows given the columns that ALS has learned, and of all columns given the rows."""
        train = entries.train
        row_parts, column_parts = map(split_by_entries, (train.row_counts, train.column_counts))
        rows = np.concatenate([self.encode_rows(entries.row_entries(part), columns) for part in row_parts])
        found = [self.encode_columns(entries.column_entries(part), rows) for part in column_parts]
        return LinearLatents(rows, np.concatenate(found))


class RidgeModel(LinearModel):
    """ALS: ridge regressions of the entries of a row given the learned columns, of a column given the trained rows."""

    n_samples = 0

    def __init__(
        self, train: ObservedMatrix, settings: ALSSettings, feature_weights: FeatureWeights = NO_WEIGHTS
    ) -> None:
        self.size, self.mean, self.settings = settings.latent_size, train.mean, settings
        self.encoder = RidgeEncoder(train, settings, feature_weights)

    def pack(self) -> Packed:
        """Return size and penalty, and the weights of features."""
        content = {"kind": "als", "size": self.size, "penalty": self.settings.penalty}
        return Packed(content, self.encoder.pack().tensors)


class SampledModel(LinearModel):
    """Samples of the posterior (`gibbs/`): the conditional means of a row, or a column, in all samples side by side.

    Many of them are projected. They depend on the samples, whatever the latents of the trained other side are.
    """

    encoder: SampleEncoder

    def __init__(self, encoder: SampleEncoder) -> None:
        samples = encoder.samples
        self.size, self.n_samples = samples.rows.means.shape[1] - 1, samples.n_samples
        self.mean, self.encoder = encoder.units.mean, encoder

    @property
    def width(self) -> int:
        """How many numbers a latent has."""
        return self.encoder.n_factors + ALS.n_beside

    def on_cpu(self) -> SampledModel:
        """Return a model that encodes on the CPU."""
        return SampledModel(self.encoder.on_cpu())

    def pack(self) -> Packed:
        """Return the size and the samples."""
        packed = self.encoder.pack()
        return Packed({"kind": "samples", "size": self.size} | packed.content, packed.tensors)


class LinearPart:
    """A linear model as a part of the latents, with its share of the logits.

    The latent of a row is (u, b, 1, 0) times the weight of the blend and divided by the row's slope, which the readout
    multiplies all scores by; that of a column is (v, 1, c, 1). The cutpoints take care of the mean.
    """

    def __init__(self, model: LinearModel, blend: Blend) -> None:
        self.model, self.blend = model, blend

    @property
    def cutpoints(self) -> LatentArray:
        """The cutpoints of the linear part."""
        return np.array(self.blend.cutpoints, dtype=np.float32)

    def solve_columns(self, entries: AxisEntries, rows: Latents, log_slopes: LatentArray) -> LatentArray:
        """Return the factors of columns, given the trained rows (`base`) with their slopes, and factors of new rows."""
        n_trained, new = len(rows.base), rows.extra
        if self.model.n_samples:
            return self.model.encoder.solve_columns(entries, rows)
        trained: slice | IndexArray = slice(0, n_trained)
        if entries.others.size < n_trained + len(new):  # few of the rows are needed
            used, entries = entries.renumber_others()
            trained, new = used[used < n_trained], new[used[used >= n_trained] - n_trained]
        learned = self.remove_weights(rows.base[trained], log_slopes[trained])
        return self.model.encoder.solve_columns(
            entries, Latents(np.concatenate([learned, new]) if len(new) else learned)
        )

    def balance_columns(self, columns: LatentArray, fields: slice, counts: npt.NDArray[Any]) -> LatentArray:
        """Return the latents of columns so that the linear part, in `fields`, has its share in their scores."""
        if self.blend.few_count == 0.0:
            return columns
        shares = self.blend.compute_column_shares(counts)[:, None]
        balanced: LatentArray = columns * ((1.0 - shares) / np.float32(1.0 - self.blend.share))
        balanced[:, fields] = columns[:, fields] * (shares / np.float32(self.blend.share))
        return balanced

    def apply_weights(self, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of rows with these slopes from those of the linear model."""
        latents: LatentArray = rows * self._weights(log_slopes)
        latents[:, -1] = 0.0  # the mean
        return latents

    def remove_weights(self, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the linear model's latents of rows with these slopes, without the mean."""
        factors: LatentArray = rows / self._weights(log_slopes)
        return factors

    def _weights(self, log_slopes: LatentArray) -> LatentArray:
        return (np.float32(self.blend.weight) * np.exp(-log_slopes))[:, None]

    def on_cpu(self) -> LinearPart:
        """Return a linear part that encodes on the CPU, as a loaded one does."""
        return LinearPart(self.model.on_cpu(), self.blend)

    def pack(self) -> Packed:
        """Return the linear model and the blend."""
        packed = self.model.pack()
        return Packed({**packed.content, **self.blend._asdict()}, packed.tensors)


def load_linear_part(content: Any, entries: EntryStore, tensors: Tensors) -> LinearPart:
    """Return the linear part that `pack` described; raise `BadModelFile` for anything else."""
    train = entries.train
    found = _LINEAR.read(content, known=min(train.shape))
    kind, size, penalty = (found.pop(name) for name in ("kind", "size", "penalty"))
    blend = Blend(**found | {"cutpoints": tuple(found["cutpoints"].tolist())})
    width = train.scale.high - train.scale.low or 1.0
    if blend.slope >= LARGEST / width:
        raise BadModelFile(f"the stored linear part must have a slope below {LARGEST / width:g}; got {blend.slope:g}")
    if kind == "samples":
        return LinearPart(SampledModel(load_encoder(content, tensors, entries, size=size)), blend)
    weights = load_feature_weights(entries, tensors, width=size + 1, kind="float32")
    settings = ALSSettings(latent_size=size, penalty=penalty)
    return LinearPart(RidgeModel(train, settings, weights), blend)


_LINEAR = Form(
    Part("kind", "text", (), one_of("als", "samples")),
    Part("size", "whole", (), positive, at_most("known")),
    Part("penalty", "number", (), positive, below(LARGEST), optional=True),  # of ALS
    Part("share", "number", (), positive, below(1.0)),
    Part("slope", "number", (), positive),
    Part("cutpoints", "number", ("cutpoints",), not_falling, below(LARGEST)),
    Part("few_count", "number", (), not_negative, below(LARGEST)),
    prefix="linear part",
)


class LinearLatents(NamedTuple):
    """The linear model's latents of all rows and columns."""

    rows: LatentArray  # (u, b, 1, m)
    columns: LatentArray  # (v, 1, c, 1)

    def predict(self, row_at: IndexArray, column_at: IndexArray) -> LatentArray:
        """Return the predictions of pairs of positions, less the mean."""
        products = pair_products(Latents(self.rows), Latents(self.columns), row_at, column_at)
        predictions: LatentArray = products - self.rows[row_at, -1]
        return predictions


class LinearFit(NamedTuple):
    """A fitted linear model.

    columns: the columns that ALS has learned, from which rows are encoded; zeros where samples hold them.
    predictions: the predictions of held-out entries, less the mean.
    latents: those of the entries it was fitted to, where they are known.
    """

    model: LinearModel
    columns: LatentArray
    predictions: LatentArray
    latents: LinearLatents | None = None


def fit_linear_models(
    seen: EntryStore,
    held_out: HeldOut,
    train: ObservedMatrix,
    *,
    size: int | None,
    iterations: int,
    n_samples: int,
    seed: int,
    device: torch.device,
) -> list[LinearFit]:
    """Fit the linear models that held-out entries choose among: samples of the posterior, ALS, or both.

    Parameters
    ----------
    train : has the mean and the scale that latents are computed with; `seen` may have fewer entries.
    size : latent size of either model; default: chosen for the matrix. 0: no linear model.
    iterations : number of iterations of the sampler; 0: ALS alone.
    n_samples : number of samples that are kept of them.
    """
    fits = []
    if size != 0 and iterations:
        sampled = fit_samples(
            seen, held_out, size=size, iterations=iterations, n_samples=n_samples, seed=seed, device=device
        )
        fits += [] if sampled is None else [sampled]
    if size != 0 and not (fits and seen.train.n_entries > _ALS_UP_TO):
        fits.append(fit_als(seen, held_out, train, size=size, seed=seed))
    return fits


def fit_beside(fit: Callable[[], list[LinearFit]], device: torch.device) -> Future[list[LinearFit]]:
    """Fit linear models in a thread and on a stream of their own.

    A network whose steps are a CUDA graph leaves the processor, and some of the GPU, to them.
    """

    def work() -> list[LinearFit]:
        if device.type != "cuda":
            return fit()
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.no_grad(), torch.cuda.stream(stream):
            fits = fit()
            stream.synchronize()
        return fits

    threads = ThreadPoolExecutor(1, thread_name_prefix="linear part")
    try:
        return threads.submit(work)
    finally:
        threads.shutdown(wait=False)


def fit_als(seen: EntryStore, held_out: HeldOut, train: ObservedMatrix, *, size: int | None, seed: int) -> LinearFit:
    """Fit ALS with a latent size, chosen for the matrix by default; `train` has the mean and the scale."""
    size = choose_linear_size(*train.shape, seen.train.n_entries) if size is None else size
    als = ALS(latent_size=size, patience=_PATIENCE, seed=seed)._with_choice(seen.train, None)
    fitted = als._learn(seen, held_out, Fitting())
    assert fitted is not None and isinstance(fitted.predictor.encoder, RidgeEncoder)
    encoder, columns = fitted.predictor.encoder, fitted.predictor.columns.base
    learned = replace(als.settings, latent_size=columns.shape[1] - ALS.n_beside)  # no more than rows or columns
    model = RidgeModel(train, learned, encoder.feature_weights)
    latents = model.solve(columns, seen)
    return LinearFit(model, columns, latents.predict(held_out.rows, held_out.columns), latents)


def fit_samples(
    seen: EntryStore,
    held_out: HeldOut,
    *,
    size: int | None,
    iterations: int,
    n_samples: int,
    seed: int,
    device: torch.device,
) -> LinearFit | None:
    """Sample the posterior with a latent size, chosen for the matrix by default; None where that is impossible."""
    train = seen.train
    if size is None:
        mean_count = 2 * train.n_entries // sum(train.shape)
        wanted = max(min(mean_count, _LARGE_SAMPLED), mean_count // 2)
        size = max(_FEWEST_SAMPLED, min(_MOST_SAMPLED[device.type == "cuda"], wanted))
    try:
        units = Units.of(train)
        samples = run_chain(
            seen, units, latent_size=size, iterations=iterations, n_samples=n_samples, seed=seed, device=device
        )
        model = SampledModel(SampleEncoder(units, samples, device).narrow(seen))
        columns = np.zeros((train.shape[1], model.width), dtype=np.float32)
        latents = model.solve(columns, seen)
    except torch.OutOfMemoryError:
        raise
    except (np.linalg.LinAlgError, RuntimeError, ValueError):  # a posterior that single precision cannot draw from
        return None
    predictions = latents.predict(held_out.rows, held_out.columns)
    return LinearFit(model, columns, predictions, latents) if np.all(np.isfinite(predictions)) else None


def bound_linear_width(*, size: int | None, iterations: int, n_samples: int, is_gpu: bool) -> int:
    """Return the largest width that the latents of the linear part may have with these settings."""
    if size == 0:
        return 0
    if iterations == 0:
        return (size or _MOST_LATENTS) + ALS.n_beside
    return min(n_samples * (size or _MOST_SAMPLED[is_gpu]), MOST_FACTORS) + ALS.n_beside


def choose_linear_size(n_rows: int, n_columns: int, n_entries: int) -> int:
    """Return the latent size of ALS: the mean number of entries of a row or column, within bounds."""
    mean_count = 2 * n_entries // (n_rows + n_columns)
    return min(max(mean_count, _FEWEST_LATENTS), _MOST_LATENTS, n_rows, n_columns)


def choose_blend(
    logits: npt.NDArray[np.float32],
    linear: npt.NDArray[np.float32],
    values: FloatArray,
    support: FloatArray,
    boundaries: FloatArray | None = None,
) -> Choice[Blend | None]:
    """Return the blend that predicts held-out entries best, None where the network alone is as good, and its error.

    Parameters
    ----------
    logits : logits of the network, (entries, cutpoints).
    linear : predictions of the linear model less the mean, (entries,).
    values : values of the entries.
    support : values of the distribution.
    boundaries : boundaries between these values less the mean, on a scale without levels: the linear part is a logistic
        distribution around its predictions. On levels, it predicts each level as often as it occurs.
    """

    def compute_error(blend: Blend | None) -> float:
        if blend is None:
            return compute_rmse(logits, values, support)
        share, slope, cutpoints = blend[:3]
        of_linear = np.float32(slope) * linear[:, None] - np.array(cutpoints, dtype=np.float32)
        return compute_rmse((1.0 - share) * logits + share * of_linear, values, support)

    spread = float(np.std(values - linear))
    unit = float(_LOGISTIC / max(spread, 1e-6 * float(support[-1] - support[0]) or 1.0))
    if boundaries is None:
        slopes = _SLOPES + (_STEEP_SLOPES if values.size >= _ENTRIES_FOR_STEEP else ())
        placed = {slope: place_cutpoints(slope * unit * linear, values, support) for slope in slopes}
        blends = [Blend(share, slope * unit, placed[slope]) for share, slope in itertools.product(_SHARES, slopes)]
    else:
        cutpoints = tuple(map(float, unit * boundaries))
        blends = [Blend(share, unit, cutpoints) for share in _SHARES_IN_VALUES]
    return choose([None, *blends], compute_error, at_least=LEAST_GAIN)


class CutColumns(NamedTuple):
    """Columns with few of their entries, as if they were new, and held-out entries of theirs."""

    entries: AxisEntries
    rows: IndexArray  # (pairs,) positions
    places: IndexArray  # (pairs,) in `entries`
    values: FloatArray  # (pairs,)


def cut_columns(seen: EntryStore, held_out: HeldOut, *, seed: int) -> CutColumns:
    """Return some of the columns that have held-out entries, each with a few of its entries."""
    numbers = np.random.default_rng(seed)
    pairs = numbers.permutation(held_out.values.size)
    columns = np.unique(held_out.columns)
    if columns.size > _MOST_CUT:
        columns = np.sort(numbers.choice(columns, _MOST_CUT, replace=False))
    pairs = np.sort(pairs[np.isin(held_out.columns[pairs], columns)][:_MOST_PREDICTED])
    entries = seen.column_entries(columns)
    counts = np.diff(entries.starts)
    of_column = np.repeat(np.arange(columns.size), counts)
    order = np.lexsort((numbers.random(of_column.size), of_column))
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size) - entries.starts[of_column]
    limits = numbers.choice(_CUT_COUNTS, columns.size)
    places = np.searchsorted(columns, held_out.columns[pairs])
    return CutColumns(entries.select(rank < limits[of_column]), held_out.rows[pairs], places, held_out.values[pairs])


def choose_few_count(
    blend: Blend,
    scores: LatentArray,
    cutpoints: LatentArray,
    linear: LatentArray,
    counts: npt.NDArray[Any],
    values: FloatArray,
    support: FloatArray,
) -> float:
    """Return the count of few entries that predicts values of such columns best; other arguments as in `mix_logits`."""

    def compute_error(few_count: float) -> float:
        logits = blend._replace(few_count=few_count).mix_logits(scores, cutpoints, linear, counts)
        return compute_rmse(logits, values, support)

    return choose(_FEW_CANDIDATES, compute_error, at_least=LEAST_GAIN).candidate


def place_cutpoints(scores: LatentArray, values: FloatArray, support: FloatArray) -> tuple[float, ...]:
    """Return the cutpoints with which logistic distributions of scores expect each level as often as it occurs."""
    if values.size > _MOST_PLACED:
        some = np.random.default_rng(0).choice(values.size, _MOST_PLACED, replace=False)
        scores, values = scores[some], values[some]
    n_above = np.clip((values[:, None] > support[:-1]).sum(axis=0), 0.5, values.size - 0.5)
    reach = float(np.abs(scores).max()) + np.log(2.0 * values.size) + 1.0
    low, high = np.full(n_above.size, -reach), np.full(n_above.size, reach)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        is_low = expit(scores[:, None] - middle).sum(axis=0) > n_above
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return tuple(map(float, (low + high) / 2.0))


def compute_rmse(logits: npt.NDArray[np.floating], values: FloatArray, support: FloatArray) -> float:
    """Return the root mean squared error of the expected values by logits (entries, cutpoints)."""
    return rmse_error(support[0] + expit(logits) @ np.diff(support), values)
