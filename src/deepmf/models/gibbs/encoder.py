"""Predictions from kept samples of the Gibbs sampler: the encoder of rows and columns, and its file.

A kept sample has draws of all rows P and columns Q, and its parameters. Given these, p_i and q_j of
a pair without an entry are independent, so that the product of the conditional means E[p_i | Q] and
E[q_j | P] is an unbiased estimate of the posterior mean with far less noise than the product of two
draws (Rao-Blackwell). Predictions average this product over the samples. A fold-in is the same
conditional mean, so that a new row with the entries of a trained row gets its latents.

Factors of all samples side by side make latents whose product is this average. The samples agree
about most of it, so that many of them are projected to far fewer numbers, which predict the same to
about 1e-3 of the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from deepmf.linalg.backend import NUMPY, Backend
from deepmf.linalg.ridge import AxisPosterior, AxisSolver, Held, lay_out
from deepmf.matrix.arrays import AnyArray, IndexArray, LatentArray, fetch
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.models.gibbs.chain import AxisSamples, Samples, Units, end_in_ones
from deepmf.models.gibbs.prior import Inputs
from deepmf.scoring.arrivals import TrainedRows
from deepmf.scoring.encoders import SolvingEncoder, split_by_entries
from deepmf.scoring.factors import Factors
from deepmf.scoring.latents import Latents, multiply_each
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Check, Form, Part, at_most, positive

# What follows the factors in a latent: of a row (b, 1, m, r, s, 0, 0), of a column (1, c, 1, 0, 0,
# r, s). The posterior of the row, or the column, adds the standard deviation r to a prediction, and
# s multiplies that of the noise.
N_BESIDE = 7

# The prior of a factor on the noise counts as this many entries.
_NOISE_COUNT = 20.0

# trained rows and columns are in the samples
NOTHING_NEW = Latents(np.empty((0, 0), dtype=np.float16))


class SampleEncoder(SolvingEncoder):
    """The fold-in: the posterior mean of a row, or of a column, given its entries in each kept
    sample.

    The prior mean of a row is shrunk to the average row of all entries: few known entries of a row
    do not make it a row of few entries. The factors of a row are its posterior mean (samples * D)
    in each sample, by which new columns are solved for, and its spreads r and s.
    """

    factor_type = "float16"
    moves_rows = True
    sides = slice(-4, None)

    def __init__(
        self,
        units: Units,
        samples: Samples,
        backend: Backend = NUMPY,
        projection: Projection | None = None,
    ) -> None:
        self.units, self.samples, self.projection = units, samples, projection
        self._backend = backend
        self._held: list[Held] | None = None

    @property
    def size(self) -> int:
        """The latent size of each sample."""
        return int(self.samples.rows.means.shape[1]) - 1

    @property
    def n_factors(self) -> int:
        """The number of factors in a latent."""
        n_samples, size = self.samples.rows.means.shape
        n_factors: int = (
            n_samples * (size - 1) if self.projection is None else self.projection.rows.shape[1]
        )
        return n_factors

    def count_factors(self, n_latents: int) -> int:
        """Return the number of factors of all samples."""
        return self.samples.rows.means.size

    def read_fields(
        self, row_sides: LatentArray, column_sides: LatentArray | None = None
    ) -> LatentArray:
        """Return r and s of pairs, (pairs, 2); without columns, those of rows."""
        if column_sides is None:
            return row_sides[:, :2]
        deviations = np.hypot(row_sides[:, 0], column_sides[:, 2])
        return np.column_stack([deviations, row_sides[:, 1] * column_sides[:, 3]])

    def read_deviation(self, row_sides: LatentArray, column_sides: LatentArray) -> LatentArray:
        """Return r of pairs, (pairs,)."""
        return self.read_fields(row_sides, column_sides)[:, 0]

    def encode_all(self, entries: EntryStore) -> Factors:
        """Return the factors of all trained rows and columns."""
        train, of_rows, of_columns = entries.train, entries.row_entries, entries.column_entries
        row_parts = split_by_entries(train.row_counts)
        rows = [self.encode("row", of_rows(part), NOTHING_NEW) for part in row_parts]
        column_parts = split_by_entries(train.column_counts)
        columns = [self.encode("column", of_columns(part), NOTHING_NEW) for part in column_parts]
        latents = Latents(np.concatenate(rows)), Latents(np.concatenate(columns))
        return Factors(*latents, self.on_cpu(), N_BESIDE)

    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the posterior means of rows (or columns) in all samples side by side, and r and s
        of the spreads."""
        problem = self._lay_out(axis, entries, others, self._backend)
        n_samples, (n_rows, size) = self.samples.n_samples, problem.shape
        means = np.empty((n_rows, n_samples, size), dtype=np.float32)
        variances, noises = np.empty((2, n_samples, n_rows), dtype=np.float32)
        for sample, alpha in enumerate(self.samples.alphas.tolist()):
            posterior = problem.solve(sample, alpha)
            means[:, sample] = fetch(posterior.means)
            variances[sample] = fetch(posterior.variances)
            noises[sample] = fetch(problem.compare_noise(posterior, alpha))
        deviations = self.units.deviation * np.sqrt(variances.mean(axis=0).clip(min=0.0))
        spreads = np.column_stack([deviations, np.sqrt(noises.mean(axis=0))])
        return np.hstack([means.reshape(n_rows, -1), spreads])

    def move_rows(self, trained: TrainedRows, new: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of trained rows with new entries, of which every sample explains the
        same residuals.

        Spreads stay as they were.
        """
        samples, n_factors, moved = self.samples, self.n_factors, trained.latents.copy()
        if self._held is None:
            self._held = [
                Held.of(
                    end_in_ones(draws.astype(np.float32)), trained.column_counts, precision / alpha
                )
                for draws, precision, alpha in zip(
                    samples.columns.draws, samples.rows.precisions, samples.alphas, strict=True
                )
            ]
        used, entries = new.renumber_others()
        factors = columns.extra[used - samples.columns.draws.shape[1]].astype(np.float32)
        latents = self.finish("column", np.pad(factors, ((0, 0), (0, 2))))
        expected = (multiply_each(moved, latents, entries) - self.units.mean) / self.units.deviation
        residuals = self.units.standardise(entries.values) - expected
        batches = lay_out(entries, residuals, n_others=used.size)
        sample_factors = factors.reshape(used.size, *samples.rows.means.shape).swapaxes(0, 1)
        moves = [
            sample.move_rows(batches, end_in_ones(column_factors), trained.totals[:, None], 1.0)
            for sample, column_factors in zip(self._held, sample_factors, strict=True)
        ]
        move, effects, _ = self._split(np.pad(np.hstack(moves), ((0, 0), (0, 2))))
        move = move * np.float32(self.units.deviation / samples.n_samples)
        if self.projection is not None:
            move = move @ self.projection.rows
        moved[:, :n_factors] += move
        moved[:, n_factors] += effects
        return moved

    def finish(self, axis: Axis, factors: LatentArray) -> LatentArray:
        """Return the latents of rows, (u, b, 1, m, r, s, 0, 0), or of columns, (v, 1, c, 1, 0, 0,
        r, s).

        u and v are those of all samples, or their projection.
        """
        factors, effects, spreads = self._split(factors)
        ones = np.ones_like(effects)
        if axis == "row":
            beside = (
                effects,
                ones,
                np.float32(self.units.mean) * ones,
                spreads,
                np.zeros_like(spreads),
            )
            factors = factors * np.float32(self.units.deviation / self.samples.n_samples)
        else:
            beside = ones, effects, ones, np.zeros_like(spreads), spreads
        if self.projection is not None:
            factors = factors @ (self.projection.rows if axis == "row" else self.projection.columns)
        return np.column_stack([factors, *beside])

    def narrow(self, entries: EntryStore) -> Self:
        """Return an encoder with a projection where this one has many factors."""
        if self.n_factors <= MOST_FACTORS:
            return self
        numbers = np.random.default_rng(0)
        row_at, column_at = (
            np.sort(numbers.choice(n, min(n, _MOST_PROJECTED), replace=False))
            for n in entries.train.shape
        )
        row_latents = self.encode("row", entries.row_entries(row_at), NOTHING_NEW)
        column_latents = self.encode("column", entries.column_entries(column_at), NOTHING_NEW)
        projection = find_projection(
            row_latents[:, : self.n_factors], column_latents[:, : self.n_factors]
        )
        return type(self)(self.units, self.samples, self._backend, projection)

    def on_cpu(self) -> Self:
        """Return an encoder that encodes on the CPU, as a loaded one does."""
        return type(self)(self.units, self.samples, projection=self.projection)

    def draw(
        self,
        axis: Axis,
        entries: AxisEntries,
        others: Latents,
        which: Sequence[int],
        numbers: np.random.Generator,
    ) -> LatentArray:
        """Draw rows (or columns) from their posterior in some samples, (draws, rows, D)."""
        problem, alphas = self._lay_out(axis, entries, others), self.samples.alphas.tolist()
        draws = np.empty((len(which), *problem.shape), dtype=np.float32)
        for line, sample in zip(draws, which, strict=True):
            noise = numbers.standard_normal(problem.shape, dtype=np.float32)
            line[...] = problem.solve(sample, alphas[sample], noise).draws
        return draws

    def pack(self) -> Packed:
        """Return the samples and the projection."""
        units = self.units._asdict()
        if self.units.knots is None:
            units["knots"] = np.empty((2, 0))
        packed = _ENCODER.pack(units | self.samples._asdict() | {"projection": self.projection})
        return packed._replace(content=packed.content | {"size": self.size})

    @classmethod
    def load(cls, content: Any, tensors: Tensors, entries: EntryStore) -> Self:
        """Return the encoder that `pack` described; raise `BadModelFile` for anything else."""
        n_rows, n_columns = entries.train.shape
        n_row_features, n_column_features = (
            0 if features is None else features.n_inputs
            for features in (entries.row_features, entries.column_features)
        )
        size = _SIZE.read(content, known=min(n_rows, n_columns))["size"]
        stored = _ENCODER.read(
            content,
            tensors,
            latent=size,
            rows=n_rows,
            columns=n_columns,
            row_inputs=n_columns + n_row_features,
            column_inputs=n_rows + n_column_features,
        )
        projection = stored["projection"]
        if projection is not None:
            projection = Projection(**projection)
        knots = stored["knots"]
        if not knots.size:
            knots = None
        units = Units(stored["mean"], stored["deviation"], knots)
        rows, columns = AxisSamples(**stored["rows"]), AxisSamples(**stored["columns"])
        return cls(units, Samples(rows, columns, stored["alphas"]), projection=projection)

    def _lay_out(
        self, axis: Axis, entries: AxisEntries, others: Latents, backend: Backend = NUMPY
    ) -> _FoldIn:
        rows, columns = self.samples.rows, self.samples.columns
        if axis == "row":
            return _FoldIn(entries, rows, columns, self.units, backend, others.extra)
        return _FoldIn(entries, columns, rows, self.units, backend, others.extra)

    def _split(self, factors: LatentArray) -> tuple[LatentArray, LatentArray, LatentArray]:
        """Return the factors of all samples side by side, the mean effects, and r and s of the
        spreads."""
        means = factors[:, :-2].reshape(len(factors), *self.samples.rows.means.shape)
        effects = np.float32(self.units.deviation) * means[..., -1].mean(axis=1)
        return means[..., :-1].reshape(len(factors), -1), effects, factors[:, -2:]


class Projection(NamedTuple):
    """Linear maps of factors to fewer numbers whose products are about the same: u'v is about
    (u'P)(v'T)'."""

    rows: LatentArray  # P, (factors, projected)
    columns: LatentArray  # T, (factors, projected)


# More factors than this are projected to as many. The projection is that of at most some rows and
# columns, found from random vectors, some of them spare, in a few steps. Singular values below a
# share of the largest are rounding errors.
MOST_FACTORS = 256
_MOST_PROJECTED, _SPARE_VECTORS, _PROJECTION_STEPS, _LEAST_VALUE = 1_024, 16, 3, 1e-6


def find_projection(
    rows: LatentArray, columns: LatentArray, *, most: int = MOST_FACTORS
) -> Projection:
    """Return the projection to at most some numbers that changes the products of rows and columns
    least.

    These products are a matrix U V'. With its leading left singular vectors L and values s, the
    columns are projected by T = U'L / sqrt(s), and the rows by the least-squares solution P of U P
    (V T)' = U V'.
    """
    rows, columns = rows.astype(np.float64), columns.astype(np.float64)
    n_vectors = min(most + _SPARE_VECTORS, len(rows), len(columns))
    right = np.random.default_rng(0).standard_normal((len(columns), n_vectors))
    for _ in range(_PROJECTION_STEPS):
        left_vectors = np.linalg.qr(rows @ (columns.T @ right)).Q
        right = np.linalg.qr(columns @ (rows.T @ left_vectors)).Q
    turn, values, _ = np.linalg.svd((left_vectors.T @ rows) @ (columns.T @ right))
    n_kept = max(1, np.count_nonzero(values[:most] > _LEAST_VALUE * values[0]))
    values = values[:n_kept].clip(min=np.finfo(np.float64).tiny)
    column_map = rows.T @ (left_vectors @ turn[:, :n_kept]) / np.sqrt(values)
    projected = columns @ column_map
    # the columns of `projected` are orthogonal, of square `values`
    row_map = columns.T @ (projected / values)
    return Projection(row_map.astype(np.float32), column_map.astype(np.float32))


class _FoldIn:
    """The entries of some rows, laid out to find their posterior in several samples.

    samples: of the rows; column_samples: of the columns. new: the factors of new columns in all
        samples.
    """

    def __init__(
        self,
        entries: AxisEntries,
        samples: AxisSamples,
        column_samples: AxisSamples,
        units: Units,
        backend: Backend,
        new: LatentArray,
    ) -> None:
        self.shape = entries.starts.size - 1, samples.means.shape[1]
        n_columns = n_used = column_samples.draws.shape[1]
        self._used: slice | IndexArray = slice(0, n_columns)
        if entries.others.size < n_columns + len(new):  # few of the columns are needed
            used, entries = entries.renumber_others()
            n_used = int(np.searchsorted(used, n_columns))
            self._used, new = used[:n_used], new[used[n_used:] - n_columns]
        self._new = new.reshape(len(new), *samples.means.shape)
        self._samples, self._column_samples, self._n_columns = samples, column_samples, n_columns
        self._backend, self._totals = backend, backend.send_single(entries.totals)
        self._solver = AxisSolver(
            entries, units.standardise(entries.values), n_others=n_used + len(new), backend=backend
        )
        # New columns say nothing of the prior: no weights of their presence were learned.
        self._inputs = Inputs(entries.below(n_used), None, n_others=n_used, backend=backend)

    def solve(self, sample: int, alpha: float, noise: AnyArray | None = None) -> AxisPosterior:
        """Return the posterior in a sample; with variances, unless it draws."""
        send, concatenate = self._backend.send_single, np.concatenate
        rows, columns, moment = self._samples, self._column_samples, None
        weights = rows.weights[sample]
        weights = concatenate([weights[self._used], weights[self._n_columns :]])
        average, centre = send(rows.averages[sample]), send(rows.centres[sample])
        prior_means = send(rows.means[sample]) + self._inputs.multiply(send(weights), average)
        prior_means = prior_means + self._inputs.centre_shares * centre
        factors, new_factors = columns.draws[sample][self._used], self._new[:, sample]
        reliabilities = columns.reliabilities[sample][self._used]
        if noise is None:
            moment = send(columns.moments[sample])
        return self._solver.draw(
            send(concatenate([factors, new_factors])),
            prior_means,
            send(rows.precisions[sample]),
            alpha,
            other_reliabilities=send(
                concatenate([reliabilities, np.ones(len(new_factors), dtype=np.float16)])
            ),
            noise=noise,
            moment=moment,
        )

    def compare_noise(self, posterior: AxisPosterior, alpha: float) -> AnyArray:
        """Return the variance of the noise of each row divided by the usual 1 / alpha.

        Squared errors are those expected under the posterior: those of its means, and its own
        variance.
        """
        errors = posterior.fit.squared_errors + posterior.fit.totals * posterior.variances
        return (_NOISE_COUNT + alpha * errors) / (_NOISE_COUNT + self._totals)


def _check_definite(least: float) -> Check:
    """Return the check that the eigenvalues of matrices are not below a number."""
    return Check(
        "be positive definite",
        lambda matrices, _: (
            np.linalg.eigvalsh(matrices.astype(np.float64)).min(initial=1.0) >= least
        ),
    )


def _declare_axis(vectors: str, inputs: str) -> Form:
    factors = "latent + 1"  # with the effect
    return Form(
        Part("draws", "float16", ("samples", vectors, factors)),
        Part("reliabilities", "float16", ("samples", vectors), positive),
        Part("weights", "float16", ("samples", inputs, factors)),
        Part("means", "float32", ("samples", factors)),
        Part("averages", "float32", ("samples", factors)),
        Part("centres", "float32", ("samples", factors)),
        Part("precisions", "float32", ("samples", factors, factors), _check_definite(1e-12)),
        Part("moments", "float32", ("samples", factors, factors), _check_definite(-1e-4)),
    )


# the latent size of a sample, without the effect
_SIZE = Form(Part("size", "whole", (), positive, at_most("known")))

_ENCODER = Form(
    Part("mean", "number"),
    Part("deviation", "number", (), positive),
    # Without knots, the units are those of values.
    Part(
        "knots",
        "float64",
        (2, "knots"),
        Check("increase", lambda knots, _: np.all(np.diff(knots, axis=1) > 0)),
    ),
    Part(
        "alphas",
        "float32",
        ("samples",),
        positive,
        Check("have numbers", lambda alphas, _: alphas.size),
    ),
    Part("rows", _declare_axis("rows", "row_inputs")),
    Part("columns", _declare_axis("columns", "column_inputs")),
    Part(
        "projection",
        Form(
            Part("rows", "float32", ("samples * latent", "projected")),
            Part("columns", "float32", ("samples * latent", "projected")),
        ),
        optional=True,
    ),
    prefix="samples",
)
