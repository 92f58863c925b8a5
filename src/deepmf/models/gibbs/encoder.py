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
import torch
from torch import Tensor

from deepmf.linalg.ridge import AxisPosterior, AxisSolver, Held, lay_out
from deepmf.matrix.arrays import Array, IndexArray, LatentArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.models.gibbs.chain import AxisSamples, Samples, Units
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
        device: torch.device | None = None,
        projection: Projection | None = None,
    ) -> None:
        self.units, self.samples, self.projection = units, samples, projection
        self._device = torch.device("cpu") if device is None else device
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
        deviations: LatentArray = np.hypot(row_sides[:, 0], column_sides[:, 2])
        return deviations

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
        problem = self._lay_out(axis, entries, others, self._device)
        alphas = [float(alpha) for alpha in self.samples.alphas]
        found = [problem.solve(sample, alpha) for sample, alpha in enumerate(alphas)]
        means = torch.stack([each.means for each in found])
        variances = torch.stack([each.variances for each in found]).mean(0).clamp_min(0.0)
        noises = torch.stack(
            [problem.compare_noise(each, alpha) for each, alpha in zip(found, alphas, strict=True)]
        )
        spreads = torch.stack(
            [self.units.deviation * variances.sqrt(), noises.mean(0).sqrt()], dim=1
        )
        return torch.cat([means.transpose(0, 1).flatten(1), spreads], dim=1).cpu().numpy()

    def move_rows(self, trained: TrainedRows, new: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of trained rows with new entries, of which every sample explains the
        same residuals.

        Spreads stay as they were.
        """
        samples, n_factors, moved = self.samples, self.n_factors, trained.latents.copy()
        if self._held is None:
            known = zip(samples.columns.draws, samples.rows.precisions, samples.alphas, strict=True)
            self._held = [
                Held.of(_end_in_ones(draws), trained.column_counts, matrix / alpha)
                for draws, matrix, alpha in known
            ]
        used, new = new.renumber_others()
        factors = columns.extra[used - samples.columns.draws.shape[1]].astype(np.float32)
        latents = self.finish("column", np.pad(factors, ((0, 0), (0, 2))))
        expected = (multiply_each(moved, latents, new) - self.units.mean) / self.units.deviation
        residuals = self.units.standardise(new.values) - expected
        batches = lay_out(new, residuals, n_others=used.size)
        of_samples = factors.reshape(used.size, *samples.rows.means.shape).swapaxes(0, 1)
        moves = [
            held.move_rows(batches, _end_in_ones(own), trained.totals[:, None], 1.0)
            for held, own in zip(self._held, of_samples, strict=True)
        ]
        own, effects, _ = self._split(np.pad(np.hstack(moves), ((0, 0), (0, 2))))
        own = own * np.float32(self.units.deviation / samples.n_samples)
        moved[:, :n_factors] += own if self.projection is None else own @ self.projection.rows
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
        latents = (
            self.encode("row", entries.row_entries(row_at), NOTHING_NEW),
            self.encode("column", entries.column_entries(column_at), NOTHING_NEW),
        )
        rows, columns = (
            torch.from_numpy(each[:, : self.n_factors]).to(self._device) for each in latents
        )
        return type(self)(self.units, self.samples, self._device, find_projection(rows, columns))

    def on_cpu(self) -> Self:
        """Return an encoder that encodes on the CPU, as a loaded one does."""
        return type(self)(self.units, self.samples, projection=self.projection)

    def draw(
        self,
        axis: Axis,
        entries: AxisEntries,
        others: Latents,
        which: Sequence[int],
        generator: torch.Generator,
    ) -> Tensor:
        """Draw rows (or columns) from their posterior in some samples, (draws, rows, D)."""
        problem, alphas = (
            self._lay_out(axis, entries, others, torch.device("cpu")),
            self.samples.alphas,
        )
        noises = [
            torch.randn(problem.shape, generator=generator, dtype=torch.float32) for _ in which
        ]
        found = [
            problem.solve(each, float(alphas[each]), noise)
            for each, noise in zip(which, noises, strict=True)
        ]
        return torch.stack([each.draws for each in found])

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
        (n_rows, n_columns), inputs = (
            entries.train.shape,
            (entries.row_features, entries.column_features),
        )
        n_row_features, n_column_features = (
            0 if each is None else each.n_inputs for each in inputs
        )
        size = _SIZE.read(content, known=min(entries.train.shape))["size"]
        found = _ENCODER.read(
            content,
            tensors,
            latent=size,
            rows=n_rows,
            columns=n_columns,
            row_inputs=n_columns + n_row_features,
            column_inputs=n_rows + n_column_features,
        )
        rows, columns = (AxisSamples(**found[axis]) for axis in ("rows", "columns"))
        projection = None if found["projection"] is None else Projection(**found["projection"])
        units = Units(
            found["mean"], found["deviation"], found["knots"] if found["knots"].size else None
        )
        return cls(units, Samples(rows, columns, found["alphas"]), projection=projection)

    def _lay_out(
        self, axis: Axis, entries: AxisEntries, others: Latents, device: torch.device
    ) -> _FoldIn:
        sides = self.samples.rows, self.samples.columns
        own, across = sides if axis == "row" else sides[::-1]
        return _FoldIn(entries, own, across, self.units, device, others.extra)

    def _split(self, factors: LatentArray) -> tuple[LatentArray, LatentArray, LatentArray]:
        """Return the factors of all samples side by side, the mean effects, and r and s of the
        spreads."""
        means = factors[:, :-2].reshape(len(factors), *self.samples.rows.means.shape)
        effects = torch.from_numpy(means[..., -1].T.copy()).mean(0).numpy() * np.float32(
            self.units.deviation
        )
        return means[..., :-1].reshape(len(factors), -1), effects, factors[:, -2:]


def _end_in_ones(factors: Array) -> LatentArray:
    """Return (v_j, 1) of columns with the factors (v_j, c_j)."""
    return np.column_stack([factors[:, :-1], np.ones(len(factors))]).astype(np.float32)


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


def find_projection(rows: Tensor, columns: Tensor, *, most: int = MOST_FACTORS) -> Projection:
    """Return the projection to at most some numbers that changes the products of rows and columns
    least.

    These products are a matrix U V'. With its leading left singular vectors L and values s, the
    columns are projected by T = U'L / sqrt(s), and the rows by the least-squares solution P of U P
    (V T)' = U V'.
    """
    rows, columns = rows.double(), columns.double()
    n_vectors = min(most + _SPARE_VECTORS, len(rows), len(columns))
    generator = torch.Generator().manual_seed(0)
    right = torch.randn(len(columns), n_vectors, generator=generator, dtype=torch.float64).to(
        columns.device
    )
    for _ in range(_PROJECTION_STEPS):
        left = torch.linalg.qr(rows @ (columns.mT @ right)).Q
        right = torch.linalg.qr(columns @ (rows.mT @ left)).Q
    turn, values, _ = torch.linalg.svd((left.mT @ rows) @ (columns.mT @ right))
    n_kept = max(1, int((values[:most] > _LEAST_VALUE * values[0]).sum()))
    values = values[:n_kept].clamp_min(torch.finfo(torch.float64).tiny)
    of_columns = rows.mT @ (left @ turn[:, :n_kept]) / values.sqrt()
    projected = columns @ of_columns
    # the columns of `projected` are orthogonal, of square `values`
    of_rows = columns.mT @ (projected / values)
    return Projection(of_rows.float().cpu().numpy(), of_columns.float().cpu().numpy())


class _FoldIn:
    """The entries of some rows, laid out to find their posterior in several samples."""

    def __init__(
        self,
        entries: AxisEntries,
        own: AxisSamples,
        others: AxisSamples,
        units: Units,
        device: torch.device,
        new: LatentArray,
    ) -> None:
        self.shape = entries.starts.size - 1, own.means.shape[1]
        n_others = others.draws.shape[1]
        self._used: slice | IndexArray = slice(0, n_others)
        n_used = n_others
        if entries.others.size < n_others + len(new):  # few of the columns are needed
            used, entries = entries.renumber_others()
            n_used = int(np.searchsorted(used, n_others))
            self._used, new = used[:n_used], new[used[n_used:] - n_others]
        self._new = new.reshape(len(new), *own.means.shape)
        self._own, self._others, self._n_others, self._device = own, others, n_others, device
        self._totals = torch.from_numpy(entries.totals.astype(np.float32)).to(device)
        values = units.standardise(entries.values)
        self._solver = AxisSolver(entries, values, n_others=n_used + len(new), device=device)
        # New columns say nothing of the prior: no weights of their presence were learned.
        self._inputs = Inputs(entries.below(n_used), None, n_others=n_used, device=device)

    def solve(self, sample: int, alpha: float, noise: Tensor | None = None) -> AxisPosterior:
        """Return the posterior in a sample; with variances, unless it draws."""
        own, others = self._own, self._others
        of_inputs = own.weights[sample]
        weights = torch.cat(
            [self._copy(of_inputs[self._used]), self._copy(of_inputs[self._n_others :])]
        )
        means = self._copy(own.means[sample]) + self._inputs.multiply(
            weights, self._copy(own.averages[sample])
        )
        means += self._inputs.centre_shares * self._copy(own.centres[sample])
        draws = self._copy(others.draws[sample][self._used])
        reliabilities = self._copy(others.reliabilities[sample][self._used])
        if len(self._new):
            draws = torch.cat([draws, self._copy(self._new[:, sample])])
            reliabilities = torch.cat([reliabilities, reliabilities.new_ones(len(self._new))])
        return self._solver.draw(
            draws,
            means,
            self._copy(own.precisions[sample]),
            alpha,
            other_reliabilities=reliabilities,
            noise=noise,
            moment=self._copy(others.moments[sample]) if noise is None else None,
        )

    def compare_noise(self, found: AxisPosterior, alpha: float) -> Tensor:
        """Return the variance of the noise of each row divided by the usual 1 / alpha.

        Squared errors are those expected under the posterior: those of its means, and its own
        variance.
        """
        errors = found.fit.squared_errors + found.fit.totals * found.variances
        return (_NOISE_COUNT + alpha * errors) / (_NOISE_COUNT + self._totals)

    def _copy(self, array: Array) -> Tensor:
        """Return an array, which may be memory-mapped, as a tensor in single precision.

        The tensor lies where torch puts tensors: last bits of products depend on the alignment of
        their factors.
        """
        return torch.from_numpy(array.astype(np.float32)).to(self._device, copy=True)


def _definite(least: float) -> Check:
    """Return the check that the eigenvalues of matrices are not below a number."""
    return Check(
        "be positive definite",
        lambda found, _: np.linalg.eigvalsh(found.astype(np.float64)).min(initial=1.0) >= least,
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
        Part("precisions", "float32", ("samples", factors, factors), _definite(1e-12)),
        Part("moments", "float32", ("samples", factors, factors), _definite(-1e-4)),
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
        Check("increase", lambda found, _: np.all(np.diff(found, axis=1) > 0)),
    ),
    Part(
        "alphas",
        "float32",
        ("samples",),
        positive,
        Check("have numbers", lambda found, _: found.size),
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
