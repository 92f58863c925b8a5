"""The linear part of OrdinalDMF: a factorisation beside the network, with a share chosen on
held-out entries.

The factorisation is the posterior mean of `gibbs/`, mostly of normal scores instead of values:
scores of counts, of skewed levels and of values with outliers have noise that is more nearly
normal.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray, SingleArray, ValueArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.gibbs.chain import (
    RELIABILITY_COUNT,
    GibbsSampler,
    NoiseBound,
    Samples,
    Units,
    run_chain,
)
from deepmf.models.gibbs.prediction import MOST_FACTORS, N_BESIDE, NOTHING_NEW, SampleEncoder
from deepmf.models.ordinal.network import split_by_entries
from deepmf.models.ordinal.settings import OrdinalDMFSettings
from deepmf.scoring.distribution import find_support
from deepmf.scoring.latents import Latents, pair_products
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, at_most, below, not_falling, not_negative, positive
from deepmf.training.holdout import Choice, HeldOut, choose

# Shares and slopes of the linear part that are compared, and those of the linear part alone. Slopes
# are in units of the slope of a logistic distribution with the standard deviation of the linear
# model's errors.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SLOPES = (0.7, 0.85, 1.0, 1.2, 1.4)
_STEEP_SLOPES = (1.7, 2.0, 2.5)  # need as many held-out entries: fewer would choose them by chance
_ENTRIES_FOR_STEEP = 1000
_ALONE = 0.99, 1.0
_LOGISTIC = np.pi / np.sqrt(3.0)

# The least error of the linear model, as a share of the standard deviation of scores: no prediction
# is certain.
_LEAST_SPREAD = 0.05

# The network joins where that lowers the squared error of many held-out entries, or of few, by this
# many of its own standard errors. Slopes of the linear part alone change as with many.
_LEAST_FALLS, _MANY_HELD_OUT = (0.5, 1.5), 2_000

# Held-out entries that place cutpoints, how many of them count as much as the boundaries between
# levels, and the steps of the search.
_MOST_PLACED, _BOUNDARY_COUNT, _BISECTIONS = 8192, 100, 30

# Numbers of entries that are compared as few for a column, and those of the columns on which they
# are compared; the largest numbers of columns and of held-out entries.
_FEW_CANDIDATES, _CUT_COUNTS = (0.0, 5.0, 12.0, 25.0), (1, 2, 5, 10, 20, 50)
_MOST_CUT, _MOST_PREDICTED = 500, 5_000

# How far a count of few entries must lower the error.
_LEAST_GAIN = 2e-4

# The latent size of a sample: the least; the size above which a factor needs twice the entries; the
# most on a CPU and on a GPU; and how many entries of the average row or column each factor needs.
_FEWEST_SAMPLED, _LARGE_SAMPLED, _MOST_SAMPLED, _ENTRIES_A_FACTOR = 4, 32, {False: 16, True: 64}, 4

# Up to this many entries, held-out entries choose between chains of values and of scores, both with
# the same noise everywhere; a factor needs fewer entries, as one that says nothing costs little
# there.
FEW_ENTRIES, _FEW_A_FACTOR = 20_000, 2

# The largest penalty or slope that a model file may hold.
LARGEST = 1e12


class Blend(NamedTuple):
    """How the linear part joins the network: logits = (1 - share) * network + share * (slope *
    linear - cutpoints).

    `linear` is the prediction of the linear model less the mean. The scores, but not the cutpoints,
    of a column with n entries have the share times 1 - 1/2 / (1 + (n / few_count)^2), half of it
    without entries: the network learns from masked columns what to expect of a new one, while
    samples of the posterior take its first entries for all it gets.

    Parameters
    ----------
    cutpoints : cutpoints of the linear part.
    """

    share: float
    slope: float
    cutpoints: tuple[float, ...] = ()
    few_count: float = 0.0

    def compute_column_shares(self, counts: Array) -> LatentArray:
        """Return the share in the scores of columns with these numbers of entries.

        >>> shares = Blend(0.4, 1.0, few_count=20.0).compute_column_shares(np.array([0, 20, 1000]))
        >>> [f"{share:.2f}" for share in shares]
        ['0.20', '0.30', '0.40']
        """
        if self.few_count == 0.0:
            return np.full(counts.shape, self.share, dtype=np.float32)
        kept = 1.0 - 0.5 / (1.0 + np.square(counts / self.few_count))
        return (self.share * kept).astype(np.float32)

    def mix_logits(
        self, scores: LatentArray, cutpoints: LatentArray, linear: LatentArray, counts: Array
    ) -> LatentArray:
        """Return the logits (pairs, cutpoints) of pairs.

        Parameters
        ----------
        scores, cutpoints : those of the network: scores times the slopes of rows (pairs,), and
            cutpoints of rows (pairs, cutpoints).
        linear : predictions of the linear model less the mean, (pairs,).
        counts : numbers of entries of the columns, (pairs,).
        """
        share, shares = np.float32(self.share), self.compute_column_shares(counts)
        mixed = (1 - shares) * scores + shares * np.float32(self.slope) * linear
        own = np.array(self.cutpoints, dtype=np.float32)
        return mixed[:, None] - ((1 - share) * cutpoints + share * own)

    @property
    def leaves_network_out(self) -> bool:
        """Whether next to nothing is left to the network."""
        return self.share >= _ALONE[0]

    @property
    def weight(self) -> float:
        """The weight of linear predictions beside the network's scores times the slopes of rows."""
        return self.share * self.slope / (1.0 - self.share)


class LinearModel(SampleEncoder):
    """Samples of the posterior (`gibbs/`): the conditional means of a row, or a column, in all
    samples side by side.

    Latents of rows are (u, b, 1, m, r, 0), of columns (v, 1, c, 1, 0, r), where r is the standard
    deviation that their posterior adds to a prediction; many factors are projected. Those of
    trained rows and columns depend on the samples alone, whatever the latents of the other side
    are.
    """

    @property
    def size(self) -> int:
        """The latent size of each sample."""
        return int(self.samples.rows.means.shape[1]) - 1

    @property
    def width(self) -> int:
        """How many numbers a latent has."""
        return self.n_factors + len(_KEPT_BESIDE)

    def finish(self, axis: Axis, factors: LatentArray) -> LatentArray:
        """Return latents without the fields that say how noisy rows and columns are."""
        latents = super().finish(axis, factors)
        return np.hstack(
            [latents[:, :-N_BESIDE], latents[:, [place - N_BESIDE for place in _KEPT_BESIDE]]]
        )

    def encode_all(self, entries: EntryStore) -> LinearLatents:
        """Return the latents of all rows and columns."""
        train, of_rows, of_columns = entries.train, entries.row_entries, entries.column_entries
        row_parts, column_parts = map(split_by_entries, (train.row_counts, train.column_counts))
        return LinearLatents(
            np.concatenate([self.encode("row", of_rows(part), NOTHING_NEW) for part in row_parts]),
            np.concatenate(
                [self.encode("column", of_columns(part), NOTHING_NEW) for part in column_parts]
            ),
        )


# What follows the factors: effect, 1 and mean, and the deviations of rows and of columns, among the
# fields of `gibbs/`.
_KEPT_BESIDE = (0, 1, 2, 3, 5)
_ONE, _MEAN, _ROW_DEVIATION, _COLUMN_DEVIATION = -4, -3, -2, -1


class LinearPart(NamedTuple):
    """A linear model as a part of the latents, with its share of the logits.

    The latent of a row is (u, b, 1, 0, r, 0) times the weight of the blend and divided by the row's
    slope, which the readout multiplies all scores by; that of a column is (v, 1, c, 1, 0, r). The
    cutpoints take care of the mean.
    """

    model: LinearModel
    blend: Blend

    @property
    def cutpoints(self) -> LatentArray:
        """The cutpoints of the linear part."""
        return np.array(self.blend.cutpoints, dtype=np.float32)

    def balance_columns(self, columns: LatentArray, fields: slice, counts: Array) -> LatentArray:
        """Return the latents of columns so that the linear part, in `fields`, has its share in
        their scores."""
        if self.blend.few_count == 0.0:
            return columns
        shares = self.blend.compute_column_shares(counts)[:, None]
        balanced: LatentArray = columns * ((1.0 - shares) / np.float32(1.0 - self.blend.share))
        balanced[:, fields] = columns[:, fields] * (shares / np.float32(self.blend.share))
        return balanced

    def apply_weights(self, rows: LatentArray, log_slopes: LatentArray) -> LatentArray:
        """Return the latents of rows with these slopes from those of the linear model."""
        latents: LatentArray = rows * (np.float32(self.blend.weight) * np.exp(-log_slopes))[:, None]
        latents[:, _MEAN] = 0.0
        return latents

    @staticmethod
    def find_deviations(rows: LatentArray, columns: LatentArray) -> LatentArray:
        """Return the standard deviations (pairs,) that the posterior adds to products, from latents
        of this part."""
        deviations: LatentArray = np.hypot(
            rows[:, _ROW_DEVIATION], rows[:, _ONE] * columns[:, _COLUMN_DEVIATION]
        )
        return deviations

    def on_cpu(self) -> LinearPart:
        """Return a linear part that encodes on the CPU, as a loaded one does."""
        return self._replace(model=self.model.on_cpu())

    def pack(self) -> Packed:
        """Return the linear model and the blend."""
        packed = self.model.pack()
        return Packed(
            {"size": self.model.size, **packed.content, **self.blend._asdict()}, packed.tensors
        )


def load_linear_part(
    content: Any, entries: EntryStore, tensors: Tensors, *, n_cutpoints: int
) -> LinearPart:
    """Return the linear part that `pack` described; raise `BadModelFile` for anything else."""
    train = entries.train
    found = _LINEAR.read(content, known=min(train.shape), cutpoints=n_cutpoints)
    size = found.pop("size")
    blend = Blend(**found | {"cutpoints": tuple(found["cutpoints"].tolist())})
    width = train.scale.high - train.scale.low or 1.0
    if blend.slope >= LARGEST / width:
        raise BadModelFile(
            f"the stored linear part must have a slope below {LARGEST / width:g}; got {blend.slope:g}"
        )
    return LinearPart(LinearModel.load(content, tensors, entries, size=size), blend)


_LINEAR = Form(
    Part("size", "whole", (), positive, at_most("known")),
    Part("share", "number", (), positive, below(1.0)),
    Part("slope", "number", (), positive),
    Part("cutpoints", "number", ("cutpoints",), not_falling, below(LARGEST)),
    Part("few_count", "number", (), not_negative, below(LARGEST)),
    prefix="linear part",
)


class LinearLatents(NamedTuple):
    """The linear model's latents of all rows and columns."""

    rows: LatentArray  # (u, b, 1, m, r, 0)
    columns: LatentArray  # (v, 1, c, 1, 0, r)

    def predict(self, row_at: IndexArray, column_at: IndexArray) -> LatentArray:
        """Return the predictions of pairs of positions, less the mean."""
        products = pair_products(Latents(self.rows), Latents(self.columns), row_at, column_at)
        predictions: LatentArray = products - self.rows[row_at, _MEAN]
        return predictions


class LinearFit(NamedTuple):
    """A fitted linear model; `blind` is the same by a chain that has not seen the held-out
    entries."""

    model: LinearModel
    blind: LinearModel
    chain: Chain


class Chain(NamedTuple):
    """A chain after some iterations, from which a longer one can go on; it predicts held-out
    entries unseen."""

    sampler: GibbsSampler
    n_run: int
    samples: Samples
    held_out: HeldOutScores


def fit_beside(
    fit: Callable[[], LinearFit | None], device: torch.device
) -> Future[LinearFit | None]:
    """Fit a linear model in a thread and on a stream of their own.

    A network whose steps are a CUDA graph leaves the processor, and some of the GPU, to it.
    """

    def work() -> LinearFit | None:
        if device.type != "cuda":
            return fit()
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.no_grad(), torch.cuda.stream(stream):
            found = fit()
            stream.synchronize()
        return found

    threads = ThreadPoolExecutor(1, thread_name_prefix="linear part")
    try:
        return threads.submit(work)
    finally:
        threads.shutdown(wait=False)


def find_seen(matrix: ObservedMatrix, entries: EntryStore) -> EntryStore:
    """Return the entries that training sees, which are fewer than all where `fit` holds some
    out."""
    return (
        entries
        if matrix is entries.train
        else EntryStore.of(matrix, entries.row_features, entries.column_features)
    )


def fit_linear(
    train: ObservedMatrix,
    entries: EntryStore,
    held_out: HeldOut,
    settings: OrdinalDMFSettings,
    earlier: Chain | None,
    device: torch.device,
) -> LinearFit | None:
    """Sample the posterior; None where that is impossible, with a size of 0 or a single value.

    It needs nothing of the network. The first half of a chain is given the entries of `train`, and
    predicts the held-out ones; the second half is given all entries. Of a few entries, two longer
    chains are compared in this way.

    Parameters
    ----------
    earlier : a shorter chain of many entries to go on from.
    """
    size, iterations, n_samples = (
        settings.linear_size,
        settings.linear_iterations,
        settings.linear_samples,
    )
    seen, held_out = find_seen(train, entries), held_out.sample(seed=settings.seed)
    support, values = find_support(entries.train, n_bins=settings.bins), held_out.values
    if size == 0 or len(support.values) < 2:
        return None
    size = choose_size(seen, is_gpu=device.type == "cuda") if size is None else size
    is_small, is_joined = entries.train.n_entries <= FEW_ENTRIES, seen is not entries
    first = iterations // 2 if is_joined and not is_small and iterations > 1 else iterations
    n_joined = iterations - iterations // 2 if is_joined and iterations > 1 else 0

    def try_units(units: Units) -> Chain:
        count = math.inf if is_small else RELIABILITY_COUNT
        if earlier is None or is_small or earlier.n_run >= first:
            sampler = GibbsSampler(
                seen,
                units,
                latent_size=size,
                seed=settings.seed,
                device=device,
                reliability_count=count,
            )
            begin, burn_in = 0, first // 3
        else:
            sampler, begin, burn_in = copy.copy(earlier.sampler), earlier.n_run, 0
        bound = NoiseBound(held_out, units, device)
        part = run_chain(
            sampler, range(begin, first), burn_in=burn_in, n_samples=n_samples, bound=bound
        )
        scores = HeldOutScores(
            linear=(units.deviation * part.predictions.cpu().numpy()).astype(np.float32),
            targets=units.score(values) - units.mean,
            values=values,
            support=np.array(support.values),
            boundaries=units.score(entries.scale.from_unit(np.array(support.boundaries)))
            - units.mean,
            has_repeats=entries.scale.levels is not None
            or np.unique(values).size < values.size / 2,
        )
        return Chain(sampler, first, part.samples, scores)

    try:
        makers = (Units.of, Units.by_scores) if is_small else (Units.by_scores,)
        chains = [try_units(make(entries.train)) for make in makers]
        best = choose(chains, lambda chain: chain.held_out.square_errors_alone().mean()).candidate
        sampler, samples, units = best.sampler, best.samples, best.sampler.units
        if n_joined:
            sampler = copy.copy(sampler)
            sampler.set_entries(entries)
            left = range(first, first + n_joined)
            samples = run_chain(sampler, left, burn_in=n_joined // 6, n_samples=n_samples).samples
        blind = LinearModel(units, best.samples, device)
        model = LinearModel(units, samples, device).narrow(entries)
    except np.linalg.LinAlgError:
        # a posterior that single precision cannot draw from
        return None
    if not np.all(np.isfinite(best.held_out.linear)):
        return None
    return LinearFit(model, blind, best)


def choose_size(seen: EntryStore, *, is_gpu: bool) -> int:
    """Return the latent size of a sample for a matrix."""
    mean_count = 2 * seen.train.n_entries // sum(seen.train.shape)
    wanted = max(
        min(mean_count // _ENTRIES_A_FACTOR, _LARGE_SAMPLED), mean_count // (2 * _ENTRIES_A_FACTOR)
    )
    if seen.train.n_entries <= FEW_ENTRIES:
        wanted = min(mean_count // _FEW_A_FACTOR, _MOST_SAMPLED[False])
    return max(_FEWEST_SAMPLED, min(_MOST_SAMPLED[is_gpu], wanted))


def bound_linear_width(*, size: int | None, n_samples: int, is_gpu: bool) -> int:
    """Return the largest width that the latents of the linear part may have with these settings."""
    return (
        0
        if size == 0
        else min(n_samples * (size or _MOST_SAMPLED[is_gpu]), MOST_FACTORS) + len(_KEPT_BESIDE)
    )


class HeldOutScores(NamedTuple):
    """Predictions of held-out entries by the linear model, and what these entries are.

    Scores are the numbers that the chain was given: values, or their normal scores.
    """

    linear: SingleArray  # (entries,) predicted scores less the mean
    targets: FloatArray  # (entries,) scores less the mean
    values: FloatArray  # (entries,)
    support: FloatArray  # the values of the distribution
    boundaries: FloatArray  # between these, as scores less the mean
    has_repeats: bool  # whether values repeat, as levels do

    def make_blends(self, shares: Sequence[float], slopes: Sequence[float]) -> list[Blend]:
        """Return blends with shares and slopes; these are in units of a logistic distribution of
        the errors.

        Cutpoints lie at the boundaries. Where values repeat, they move towards cutpoints with which
        the linear part expects each value as often as it occurs, the farther the more held-out
        entries there are.
        """
        spread = math.hypot(
            float(np.std(self.targets - self.linear)), _LEAST_SPREAD * float(np.std(self.targets))
        )
        unit = float(_LOGISTIC / max(spread, 1e-6 * float(np.ptp(self.boundaries)) or 1.0))
        trust = self.has_repeats * self.values.size / (self.values.size + _BOUNDARY_COUNT)
        binned = self.support[np.searchsorted(self.boundaries, self.targets)]

        def place(slope: float) -> tuple[float, ...]:
            own = slope * self.boundaries
            if trust:
                placed = np.array(place_cutpoints(slope * self.linear, binned, self.support))
                own = trust * placed + (1.0 - trust) * own
            return tuple(map(float, own))

        placed = {slope: place(slope * unit) for slope in slopes}
        return [
            Blend(share, slope * unit, placed[slope])
            for share, slope in itertools.product(shares, slopes)
        ]

    def square_errors(self, logits: LatentArray, blend: Blend | None) -> FloatArray:
        """Return the squared errors of a network with logits (entries, cutpoints) and a blend."""
        if blend is not None:
            own = np.float32(blend.slope) * self.linear[:, None] - np.array(
                blend.cutpoints, dtype=np.float32
            )
            logits = (1.0 - blend.share) * logits + blend.share * own
        return square_errors(logits, self.values, self.support)

    def square_errors_alone(self) -> FloatArray:
        """Return the squared errors without a network."""
        (alone,) = self.make_blends(*((each,) for each in _ALONE))
        return self.square_errors(np.zeros((1, 1), dtype=np.float32), alone)


def choose_blend(
    logits: LatentArray, held_out: HeldOutScores, *, is_trained: bool = True
) -> Choice[Blend | None]:
    """Return the blend that predicts held-out entries best, None where the network alone does, and
    its error.

    The usual blend has next to nothing of the network, and the network takes no part unless it
    `is_trained`.

    Parameters
    ----------
    logits
        Logits of the network, (entries, cutpoints).
    """
    n_held_out = held_out.values.size
    if held_out.support.size < 2:
        return Choice(None, compute_rmse(logits, held_out.values, held_out.support))
    slopes = _SLOPES + (_STEEP_SLOPES if n_held_out >= _ENTRIES_FOR_STEEP else ())

    def compute_errors(blend: Blend | None) -> FloatArray:
        return held_out.square_errors(logits, blend)

    alone = held_out.make_blends((_ALONE[0],), slopes)
    usual = slopes.index(_ALONE[1])
    chosen: Choice[Blend | None] = choose(
        alone, compute_errors, usual=usual, at_least=_LEAST_FALLS[0]
    )
    if is_trained:
        candidates = [chosen.candidate, None, *held_out.make_blends(_SHARES, slopes)]
        chosen = choose(
            candidates, compute_errors, at_least=_LEAST_FALLS[n_held_out < _MANY_HELD_OUT]
        )
    return Choice(chosen.candidate, math.sqrt(np.mean(chosen.loss)))


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
    of_column = entries.group_of
    order = np.lexsort((numbers.random(of_column.size), of_column))
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size) - entries.starts[of_column]
    limits = numbers.choice(_CUT_COUNTS, columns.size)
    places = np.searchsorted(columns, held_out.columns[pairs])
    return CutColumns(
        entries.select(rank < limits[of_column]),
        held_out.rows[pairs],
        places,
        held_out.values[pairs],
    )


def choose_few_count(
    blend: Blend,
    scores: LatentArray,
    cutpoints: LatentArray,
    linear: LatentArray,
    counts: Array,
    values: FloatArray,
    support: FloatArray,
) -> float:
    """Return the count of few entries that predicts values of such columns best; other arguments as
    in `mix_logits`."""

    def compute_error(few_count: float) -> float:
        logits = blend._replace(few_count=few_count).mix_logits(scores, cutpoints, linear, counts)
        return compute_rmse(logits, values, support)

    return choose(_FEW_CANDIDATES, compute_error, at_least=_LEAST_GAIN).candidate


def place_cutpoints(
    scores: LatentArray, values: FloatArray, support: FloatArray
) -> tuple[float, ...]:
    """Return the cutpoints with which logistic distributions of scores expect each level as often
    as it occurs."""
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


def compute_rmse(logits: ValueArray, values: FloatArray, support: FloatArray) -> float:
    """Return the root mean squared error of the expected values by logits (entries, cutpoints)."""
    return math.sqrt(np.mean(square_errors(logits, values, support)))


def square_errors(logits: ValueArray, values: FloatArray, support: FloatArray) -> FloatArray:
    """Return the squared errors (entries,) of the expected values by logits (entries,
    cutpoints)."""
    errors: FloatArray = np.square(support[0] + expit(logits) @ np.diff(support) - values)
    return errors
