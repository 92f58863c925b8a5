"""Smooth factors as a member of a blend: fitted where rows or columns have positions, such as
times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, OTHER_AXIS, Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import FeatureVectors, PositionEncoding
from deepmf.models.members import Conversion, MemberFit, MemberInputs
from deepmf.models.positions.chain import (
    Process,
    SmoothChain,
    SmoothSample,
    Times,
    solve_normal,
    square_each,
)
from deepmf.scoring.encoders import Scores, SolvingEncoder, split_by_entries
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, at_most, not_negative, one_of, positions_of, positive
from deepmf.training.holdout import HeldOut

# Passes of a chain before its first sample, those between samples, and samples.
_BURN_IN, _BETWEEN, _N_SAMPLES = 30, 4, 24

# Passes between tables that are drawn, which must not be alike.
_BETWEEN_DRAWS = 10

# Samples that predict held-out entries.
_N_BLIND = 12

# Chains are compared after fewer passes, by fewer samples; the one that goes on is not run again.
_TRIAL_BURN_IN, _TRIAL_SAMPLES = 12, 4

# Factors that are compared, and how many products a pass may take for them.
_SIZES, _PASS_PRODUCTS = (32, 8), 1e8

# More features of a time than this are left to other members.
_MOST_INPUTS = 200

# The mean and the deviation of a series with few entries are shrunk by this many others.
_DEVIATION_COUNT = 2.0

# The noise of a series counts as this many entries of the median noise.
_NOISE_COUNT = 10.0

# How far a trial must lower the error.
_LEAST_GAIN = 5e-3

# What follows the factors in a latent: a constant, and the sides.
N_BESIDE = 3

NOTHING_NEW = Latents(np.empty((0, 0), dtype=np.float32))


class Calendar(NamedTuple):
    """Where the features of an axis have a position, and its unit: the median gap.

    axis: that of times. at: the input of the position. unit: of its standardised numbers.
    """

    axis: Axis
    at: int
    unit: float

    @classmethod
    def find(cls, entries: EntryStore) -> Calendar | None:
        """Return the calendar of the first feature that is a position; None without any."""
        for axis in ("column", "row"):
            features = entries.get_features(axis)
            for first, encoding in () if features is None else features.encoding.locate_columns():
                if isinstance(encoding, PositionEncoding):
                    assert features is not None
                    gaps = np.diff(np.unique(features.base.read_input(first).astype(np.float64)))
                    unit = float(np.median(gaps)) if gaps.size else 1.0
                    return cls(axis, first, unit)
        return None

    def list_inputs(self, encoding: Any, *, with_cycles: bool) -> IndexArray:
        """Return the inputs of other features, and those of the cycles of the position."""
        inputs: list[int] = []
        for first, column in encoding.locate_columns():
            if first != self.at:
                inputs += range(first, first + column.n_inputs)
            elif with_cycles:
                inputs += range(first + column.first_cycle, first + column.n_inputs)
        return np.array(inputs, dtype=np.int64)

    def read(self, features: FeatureVectors | None, inputs: IndexArray, n_times: int) -> Times:
        """Return the positions and the features of times; those without features have neither."""
        if features is None:
            return Times(np.full(n_times, np.nan), np.zeros((n_times, inputs.size)))
        positions = features.read_input(self.at) / self.unit
        positions = np.where(features.are_known, positions, np.nan)
        table = features.to_sparse()[:, inputs].toarray()
        return Times(positions.astype(np.float64), table.astype(np.float64))


class SeriesUnits(NamedTuple):
    """How series are standardised: those with few entries by the mean and the deviation of all."""

    mean: float
    deviation: float
    prior_count: float  # as many entries have the mean of all

    @classmethod
    def of(cls, entries: AxisEntries) -> SeriesUnits:
        """Return the units of the entries of all series."""
        values, series = entries.values, entries.group_of
        counts = np.maximum(np.diff(entries.starts), 1)
        mean = float(values.mean())
        means = np.bincount(series, weights=values, minlength=counts.size) / counts
        within = float(np.mean(np.square(values - means[series])))
        between = float(np.mean(np.square(means[series] - mean)))
        deviation = math.sqrt(within) or 1.0
        return cls(mean, deviation, min(within / between if between else 1e3, 1e3))

    def measure(self, entries: AxisEntries) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the deviation of each series."""
        series, n_series = entries.group_of, entries.starts.size - 1
        counts = np.diff(entries.starts)
        sums = np.bincount(series, weights=entries.values, minlength=n_series)
        means = (sums + self.prior_count * self.mean) / np.maximum(counts + self.prior_count, 1e-9)
        errors = np.square(entries.values - means[series])
        squares = np.bincount(series, weights=errors, minlength=n_series)
        total = squares + _DEVIATION_COUNT * self.deviation**2
        return means, np.sqrt(total / (counts + _DEVIATION_COUNT))


class SmoothEncoder(SolvingEncoder):
    """Solves for a series given the factors of times, and for a time given those of series and its
    neighbours in time, in each kept sample.

    The factors of a series are w and b of all samples, its mean, its deviation and the precision of
    its noise; those of a time are x of all samples, and the share of their variance that is not
    known.

    usual: that share of trained times.
    """

    sides = slice(-2, None)
    widens = True

    def __init__(
        self,
        calendar: Calendar,
        inputs: IndexArray,
        times: Times,
        units: SeriesUnits,
        measured: tuple[FloatArray, FloatArray],
        samples: list[SmoothSample],
        usual: float = 0.0,
    ) -> None:
        self.calendar, self.inputs, self.times = calendar, inputs, times
        self.units, self.measured, self.samples = units, measured, samples
        self.usual = usual

    @property
    def size(self) -> int:
        """The number of factors of a sample."""
        return int(self.samples[0].times.shape[1])

    @property
    def width(self) -> int:
        """The length of a latent: the factors of all samples, and the numbers beside them."""
        return len(self.samples) * self.size + N_BESIDE

    def count_factors(self, n_latents: int) -> int:
        """Return how many numbers are kept of a series or a time."""
        return len(self.samples) * (self.size + 1) + 3

    def encode_all(self, entries: EntryStore) -> Factors:
        """Return the factors of all trained rows and columns."""
        train = entries.train
        row_parts = split_by_entries(train.row_counts)
        rows = [self.encode("row", entries.row_entries(part), NOTHING_NEW) for part in row_parts]
        column_parts = split_by_entries(train.column_counts)
        columns = [
            self.encode("column", entries.column_entries(part), NOTHING_NEW)
            for part in column_parts
        ]
        latents = np.concatenate(rows), np.concatenate(columns)
        unknown = latents[self.calendar.axis == "column"][:, -1]
        self.usual = float(np.median(unknown))
        unknown[:] = np.maximum(unknown - self.usual, 0.0)
        row_latents, column_latents = map(Latents, latents)
        return Factors(row_latents, column_latents, self, N_BESIDE)

    def read_deviation(self, row_sides: LatentArray, column_sides: LatentArray) -> LatentArray:
        """Return the standard deviations (pairs,) of what is not known of times, beyond the usual
        one."""
        deviations: LatentArray = np.sqrt(np.sum(row_sides * column_sides[:, ::-1], axis=1))
        return deviations

    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the factors of series, or of times, with these entries."""
        extra = others.extra
        new = extra.reshape(len(extra), self.count_factors(0)).astype(np.float64)
        if axis == self.calendar.axis:
            return self._solve_times(entries, new).astype(np.float32)
        return self._solve_series(entries, new).astype(np.float32)

    def finish(self, axis: Axis, factors: LatentArray) -> LatentArray:
        """Return the latents of series, (deviation * w / samples, constant, variance, 0), or of
        times, (x, 1, 0, unknown share of the variance)."""
        n_samples, size = len(self.samples), self.size
        by_sample = factors[:, :-3].reshape(len(factors), n_samples, size + 1)
        vectors = by_sample[:, :, :-1].reshape(len(factors), -1)
        zeros = np.zeros(len(factors), dtype=np.float32)
        if axis == self.calendar.axis:
            unknown = np.maximum(factors[:, -1] - np.float32(self.usual), 0.0)
            return np.column_stack([vectors, zeros + 1.0, zeros, unknown])
        means, deviations = factors[:, -3], factors[:, -2]
        constants = means + deviations * by_sample[:, :, -1].mean(axis=1)
        scaled = vectors * (deviations[:, None] / np.float32(n_samples))
        precisions = np.stack([sample.process.precisions for sample in self.samples])
        shares = np.square(by_sample[:, :, :-1]) / precisions
        variances = np.square(deviations) * shares.sum(axis=2).mean(axis=1)
        return np.column_stack([scaled, constants, variances.astype(np.float32), zeros])

    def _solve_series(self, entries: AxisEntries, new: FloatArray) -> FloatArray:
        used, entries = entries.renumber_others()
        means, deviations = self.units.measure(entries)
        series = entries.group_of
        targets = (entries.values - means[series]) / deviations[series]
        weights = entries.weights
        shape = len(means), used.size
        observed = scipy.sparse.csr_array((weights, entries.others, entries.starts), shape=shape)
        values = scipy.sparse.csr_array(
            (weights * targets, entries.others, entries.starts), shape=shape
        )
        counts = np.diff(entries.starts)
        new_times = self._split(new)[:, :, :-1]
        factors, precisions = [], np.zeros(len(means))
        for number, sample in enumerate(self.samples):
            times = np.concatenate([sample.times, new_times[:, number]])[used]
            times = np.column_stack([times, np.ones(used.size)])
            grams, sums = observed @ square_each(times), values @ times
            usual = np.median(sample.alphas)
            alphas = np.full(len(means), usual)
            for _ in range(2):
                posterior = solve_normal(
                    grams, sums, alphas, np.append(sample.series_precisions, 1.0)
                )
                factors_of_sample = posterior.means
                predicted = np.einsum("ef,ef->e", factors_of_sample[series], times[entries.others])
                errors = np.bincount(
                    series, weights=weights * np.square(targets - predicted), minlength=len(means)
                )
                alphas = (_NOISE_COUNT + counts) / (_NOISE_COUNT / usual + errors)
            factors.append(factors_of_sample)
            precisions += alphas / len(self.samples)
        return np.column_stack([*factors, means, deviations, precisions])

    def _solve_times(self, entries: AxisEntries, new: FloatArray) -> FloatArray:
        n_times = entries.starts.size - 1
        used, entries = entries.renumber_others()
        at = self.calendar.read(entries.features, self.inputs, n_times)
        means, deviations = (
            np.concatenate([trained, arrived])[used]
            for trained, arrived in zip(self.measured, (new[:, -3], new[:, -2]), strict=True)
        )
        weights, series_at = entries.weights, entries.others
        targets = (entries.values - means[series_at]) / deviations[series_at]
        shape = n_times, used.size
        new_series = self._split(new)
        neighbours = _find_neighbours(self.times.positions, at.positions)
        factors_of_samples, unknown = [], np.zeros(n_times)
        for number, sample in enumerate(self.samples):
            series = np.concatenate([sample.series, new_series[:, number]])[used]
            alphas = np.concatenate([sample.alphas, new[:, -1]])[used]
            factors, precisions = series[:, :-1], weights * alphas[series_at]
            observed = scipy.sparse.csr_array((precisions, series_at, entries.starts), shape=shape)
            residuals = precisions * (targets - series[series_at, -1])
            values = scipy.sparse.csr_array((residuals, series_at, entries.starts), shape=shape)
            expected, prior = self._expect(sample, at, neighbours)
            posterior = solve_normal(
                observed @ square_each(factors),
                values @ factors + prior * expected,
                np.ones(n_times),
                prior,
            )
            factors_of_samples.append(np.column_stack([posterior.means, np.ones(n_times)]))
            gains = np.square(sample.series[:, :-1]).mean(axis=0)
            variances = 1.0 / (prior + observed @ np.square(factors))
            unknown += variances @ gains / np.sum(gains / sample.process.precisions)
        unknown /= len(self.samples)
        return np.column_stack([*factors_of_samples, np.zeros((n_times, 2)), unknown])

    def _expect(
        self, sample: SmoothSample, at: Times, neighbours: Neighbours
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the precisions of x at some times, given those of their
        neighbours."""
        process, trained = sample.process, self.times
        residuals = sample.times - trained.features @ process.weights
        before, noise_before = process.step(neighbours.gaps_before)
        after, noise_after = process.step(neighbours.gaps_after)
        precisions = noise_before + np.square(after) * noise_after
        pulled = before * noise_before * residuals[neighbours.before]
        pulled += after * noise_after * residuals[neighbours.after]
        return at.features @ process.weights + pulled / precisions, precisions

    def _split(self, factors: FloatArray) -> FloatArray:
        """Return the factors (vectors, samples, size + 1) of new series or times."""
        n_new = len(factors)
        return factors[:, :-3].reshape(n_new, len(self.samples), self.size + 1)

    def pack(self) -> Packed:
        """Return the samples and what they are read with."""
        stacked = {
            name: np.stack([getattr(sample, name) for sample in self.samples]).astype(np.float32)
            for name in ("times", "series", "alphas", "series_precisions")
        }
        stacked |= {
            name: np.stack([getattr(sample.process, name) for sample in self.samples]).astype(
                np.float32
            )
            for name in Process._fields
        }
        means, deviations = self.measured
        content = self.calendar._asdict() | self.units._asdict() | stacked
        content |= {"inputs": self.inputs, "means": means, "deviations": deviations}
        content |= {"usual": self.usual}
        packed = _ENCODER.pack(content | {"at": self.calendar.at})
        return packed._replace(content=packed.content | {"size": self.size})

    @classmethod
    def load(cls, content: Any, tensors: Tensors, entries: EntryStore) -> Self:
        """Return the encoder that `pack` described; anything else raises `BadModelFile`."""
        axis = _AXIS.read(content)["axis"]
        features = entries.get_features(axis)
        n_rows, n_columns = entries.train.shape
        n_times, n_series = (n_columns, n_rows) if axis == "column" else (n_rows, n_columns)
        n_inputs = 0 if features is None else features.n_inputs
        stored = _ENCODER.read(
            content,
            tensors,
            times=n_times,
            series=n_series,
            known_inputs=n_inputs,
            factors=_SIZE.read(content, largest=_SIZES[0])["size"],
        )
        calendar = Calendar(axis, stored["at"], stored["unit"])
        units = SeriesUnits(stored["mean"], stored["deviation"], stored["prior_count"])
        inputs = stored["inputs"]
        counts = entries.train.column_counts if axis == "column" else entries.train.row_counts
        base = None if features is None else features.base
        times = calendar.read(base, inputs, n_times).leave_out(counts == 0)
        samples = []
        for number in range(len(stored["times"])):
            fields = {
                name: stored[name][number].astype(np.float64)
                for name in (*SmoothSample._fields[:-1], *Process._fields)
            }
            process = Process(*(fields.pop(name) for name in Process._fields))
            samples.append(SmoothSample(**fields, process=process))
        measured = stored["means"], stored["deviations"]
        return cls(calendar, inputs, times, units, measured, samples, stored["usual"])


class Neighbours(NamedTuple):
    """The trained times before and after some times, and the gaps; infinite where there are none."""

    before: IndexArray
    after: IndexArray
    gaps_before: FloatArray
    gaps_after: FloatArray


def _find_neighbours(trained: FloatArray, positions: FloatArray) -> Neighbours:
    order = np.argsort(trained, kind="stable")[: np.count_nonzero(~np.isnan(trained))]
    if order.size == 0:
        nowhere = np.zeros(positions.size, dtype=np.int64)
        forever = np.full(positions.size, np.inf)
        return Neighbours(nowhere, nowhere, forever, forever)
    ordered = trained[order]
    # a trained time is not its own neighbour; float32 tells positions apart to about 1e-6
    margin = 1e-6 * np.abs(ordered).max()
    before = np.searchsorted(ordered, positions - margin) - 1
    after = np.searchsorted(ordered, positions + margin, side="right")
    gaps_before = np.where(before >= 0, positions - ordered[np.maximum(before, 0)], np.inf)
    last = order.size - 1
    gaps_after = np.where(after <= last, ordered[np.minimum(after, last)] - positions, np.inf)
    return Neighbours(
        order[np.maximum(before, 0)],
        order[np.minimum(after, last)],
        np.where(np.isnan(positions), np.inf, gaps_before),
        np.where(np.isnan(positions), np.inf, gaps_after),
    )


@dataclass
class PositionsMember:
    """Factors that are smooth along positions of rows or columns; held-out entries choose their
    number, and the features of times that they follow."""

    seed: int

    def fit(self, inputs: MemberInputs) -> MemberFit | None:
        """Return smooth factors; None without positions, or without held-out entries."""
        training, entries, held_out = inputs.seen, inputs.entries, inputs.held_out
        calendar = Calendar.find(entries)
        if calendar is None or held_out is None:
            return None
        best: _Trial | None = None
        for trial in self._list_trials(calendar, entries):
            trial.start(training, seed=self.seed)
            trial.run(_TRIAL_BURN_IN, _TRIAL_SAMPLES)
            trial.measure(training, held_out)
            if best is None or trial.error < (1.0 - _LEAST_GAIN) * best.error:
                best = trial
        assert best is not None
        best.run(_BURN_IN - _TRIAL_BURN_IN, _N_BLIND)
        blind = best.make_encoder()
        factors = blind.encode_all(training)
        scores = factors.score_pairs(held_out.rows, held_out.columns)
        fitted = factors
        if training is not entries:
            best.set_entries(entries)
            best.run(_BURN_IN // 3, _N_SAMPLES)
            fitted = best.make_encoder().encode_all(entries)

        def encode_blind(rows: AxisEntries, columns: AxisEntries) -> Factors:
            nothing = Factors(NOTHING_NEW, NOTHING_NEW, blind, N_BESIDE)
            return nothing.fold_in("row", rows).fold_in("column", columns)

        return MemberFit(
            fitted,
            Scores.of_values(scores.location)._replace(deviation=scores.deviation),
            float(np.sqrt(np.mean(np.square(held_out.values - scores.location)))),
            Conversion(centre=float(entries.train.values.mean())),
            encode_blind,
        )

    def _list_trials(self, calendar: Calendar, entries: EntryStore) -> list[_Trial]:
        """Return the chains that are compared: with all features of times, without the cycles of
        dates, without any, and with fewer factors."""
        features = entries.get_features(calendar.axis)
        assert features is not None
        n_rows, n_columns = entries.train.shape
        n_times, n_series = (
            (n_columns, n_rows) if calendar.axis == "column" else (n_rows, n_columns)
        )
        choices: list[IndexArray] = []
        for with_cycles in (True, False):
            listed = calendar.list_inputs(features.encoding, with_cycles=with_cycles)
            is_new = not any(np.array_equal(listed, choice) for choice in choices)
            if is_new and 0 < listed.size <= _MOST_INPUTS:
                choices.append(listed)
        choices.append(NOTHING)
        sizes = [_bound_size(size, n_series, n_times, entries.train.n_entries) for size in _SIZES]
        trials = [_Trial(calendar, listed, sizes[0]) for listed in choices]
        if sizes[1] < sizes[0]:
            trials.append(_Trial(calendar, choices[0], sizes[1]))
        return trials

    def load(self, content: Any, tensors: Tensors, entries: EntryStore) -> Factors:
        """Return the stored factors; impossible ones raise `BadModelFile`."""
        encoder = SmoothEncoder.load(content, tensors, entries)
        latents = unpack_latents(tensors, entries, width=encoder.width)
        return Factors(*latents, encoder, N_BESIDE).with_arrived(tensors, entries)


def draw_tables(factors: Factors, entries: EntryStore, *, seed: int) -> Iterator[FloatArray]:
    """Yield tables (rows, columns) of values that are drawn with all that smooth factors of these
    entries do not know; the kind and the number of factors are those of fitted ones."""
    calendar, encoder = Calendar.find(entries), factors.encoder
    assert calendar is not None and isinstance(encoder, SmoothEncoder)
    features = entries.get_features(calendar.axis)
    assert features is not None
    inputs = calendar.list_inputs(features.encoding, with_cycles=encoder.inputs.size > 0)
    trial = _Trial(calendar, inputs, encoder.size)
    trial.start(entries, seed=seed)
    trial.run(_BURN_IN, 0)
    means, deviations = trial.measured
    while True:
        drawn = trial.chain.draw_values(_BETWEEN_DRAWS)
        values = means[:, None] + deviations[:, None] * drawn
        yield values if calendar.axis == "column" else values.T


def _bound_size(size: int, n_series: int, n_times: int, n_entries: int) -> int:
    """Return how many factors a pass can draw: products of entries grow with their square, and
    bands with their cube."""
    by_entries = math.sqrt(2.0 * _PASS_PRODUCTS / max(n_entries, 1))
    by_times = (_PASS_PRODUCTS / max(n_times, 1)) ** (1 / 3)
    return max(1, min(size, n_series, int(by_entries), int(by_times)))


def combine_errors(errors: FloatArray, are_in_gaps: BoolArray) -> float:
    """Return the mean squared error of times with entries times that of gaps, by which chains are
    compared: gaps have far larger errors, but must not count for more."""
    groups = [errors[part] for part in (are_in_gaps, ~are_in_gaps) if part.any()]
    return math.prod(float(np.mean(np.square(group))) for group in groups)


class _Trial:
    """A chain that is compared with others on held-out entries."""

    def __init__(self, calendar: Calendar, inputs: IndexArray, size: int) -> None:
        self.calendar, self.inputs, self.size = calendar, inputs, size
        self.error = math.inf

    def start(self, entries: EntryStore, *, seed: int) -> None:
        """Begin a chain of some entries."""
        axis = self.calendar.axis
        features = entries.get_features(axis)
        n_times = entries.train.shape[axis == "column"]
        base = None if features is None else features.base
        self.times = self.calendar.read(base, self.inputs, n_times)
        standardised = self._standardise(entries)
        self.are_empty = np.bincount(standardised.others, minlength=n_times) == 0
        self.chain = SmoothChain(standardised, self.times, size=self.size, seed=seed)

    def set_entries(self, entries: EntryStore) -> None:
        """Go on with other entries."""
        standardised = self._standardise(entries)
        self.are_empty[standardised.others] = False
        self.chain.set_entries(standardised)

    def run(self, burn_in: int, n_samples: int) -> None:
        """Run the chain, and keep some samples."""
        if burn_in > 0:
            self.chain.run(burn_in)
        self.samples = [self.chain.run(_BETWEEN) for _ in range(n_samples)]

    def make_encoder(self) -> SmoothEncoder:
        """Return the encoder by the kept samples."""
        times = self.times.leave_out(self.are_empty)
        return SmoothEncoder(
            self.calendar, self.inputs, times, self.units, self.measured, self.samples
        )

    def predict(self, entries: EntryStore, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the mean of the samples for pairs, (pairs,)."""
        series, times = (rows, columns) if self.calendar.axis == "column" else (columns, rows)
        means, deviations = self.measured
        total = np.zeros(rows.size)
        for sample in self.samples:
            factors = sample.series[series]
            total += np.einsum("pf,pf->p", factors[:, :-1], sample.times[times]) + factors[:, -1]
        return means[series] + deviations[series] * total / len(self.samples)

    def measure(self, entries: EntryStore, held_out: HeldOut) -> None:
        """Measure the error of held-out entries."""
        errors = held_out.values - self.predict(entries, held_out.rows, held_out.columns)
        times = held_out.columns if self.calendar.axis == "column" else held_out.rows
        self.error = combine_errors(errors, self.are_empty[times])

    def _standardise(self, entries: EntryStore) -> AxisEntries:
        axis = OTHER_AXIS[self.calendar.axis]
        series_entries = entries.read_trained(
            axis, np.arange(entries.train.shape[axis == "column"])
        )
        self.units = SeriesUnits.of(series_entries)
        self.measured = self.units.measure(series_entries)
        means, deviations = self.measured
        series = series_entries.group_of
        return series_entries._replace(
            values=(series_entries.values - means[series]) / deviations[series]
        )


_AXIS = Form(Part("axis", "text", (), one_of("row", "column")))

_SIZE = Form(Part("size", "whole", (), positive, at_most("largest")))

_ENCODER = Form(
    Part("axis", "text", (), one_of("row", "column")),
    Part("at", "whole", (), at_most("known_inputs")),
    Part("unit", "number", (), positive),
    Part("mean", "number"),
    Part("deviation", "number", (), positive),
    Part("prior_count", "number"),
    Part("usual", "number", (), not_negative),
    Part("inputs", "int64", ("inputs",), positions_of("known_inputs")),
    Part("means", "float64", ("series",)),
    Part("deviations", "float64", ("series",), positive),
    Part("times", "float32", ("samples", "times", "factors")),
    Part("series", "float32", ("samples", "series", "factors + 1")),
    Part("alphas", "float32", ("samples", "series"), positive),
    Part("series_precisions", "float32", ("samples", "factors"), positive),
    Part("correlations", "float32", ("samples", "factors")),
    Part("precisions", "float32", ("samples", "factors"), positive),
    Part("weights", "float32", ("samples", "inputs", "factors")),
    prefix="smooth",
)
