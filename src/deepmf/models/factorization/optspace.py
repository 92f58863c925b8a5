"""OptSpace: matrix completion by descent over the row space and the column space of a low-rank matrix."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.factorization_settings import OptSpaceSettings
from deepmf.models.factorization.low_rank import LowRank, Sparse, krylov_svd, orthonormal, sparse_of
from deepmf.models.factorization.solver import Arrays, FactorModel, Solver
from deepmf.models.latents import entry_products
from deepmf.training.declarations import takes_settings
from deepmf.training.settings import Settings

# Powers of the Gram matrix in the Krylov space of the start: on MovieLens-1M, rank 20, its vectors are right to 1e-7.
_POWERS = 20
# The parabola is below its start up to twice its minimiser, and F, for which S is solved anew, is flatter: long steps
# pay. Twice was erratic from rank to rank on validation entries of MovieLens-1M, once slow.
_OVERSHOOT = 1.8
# A step must bring this share of the fall that the slope promises; a promise of less than this share of the squared
# values is lost in rounding, and not worth a trial.
_LEAST_FALL, _ROUNDING = 1e-4, 1e-14


class Spaces(NamedTuple):
    """A pair of subspaces: orthonormal bases X (rows, latent) and Y (columns, latent). Also a direction of moving."""

    rows: FloatArray
    columns: FloatArray

    def moved(self, direction: Spaces, step: float) -> Spaces:
        """Return the spaces a step further, back on the manifolds by a QR decomposition."""
        return Spaces(*(orthonormal(here + step * to) for here, to in zip(self, direction, strict=True)))


class Point(NamedTuple):
    """The best matrix X S Y' of two spaces: its core S (latent, latent), its residuals (entries,), and F."""

    spaces: Spaces
    core: FloatArray
    residuals: FloatArray
    objective: float


class OptSpaceSolver(Solver):
    """Minimises F(X, Y) = min_S 1/2 sum over observed (i, j) of ((X S Y')_ij - M_ij)^2 over pairs of subspaces.

    M are the values less their mean. The start is the leading singular vectors of M with zeros for what is missing,
    after trimming (rescaling by cells / entries, as the paper does, changes singular values alone, and S is solved for
    anyway). A sweep is one step of gradient descent on the two Grassmann manifolds with backtracking.
    """

    def __init__(self, train: ObservedMatrix, settings: OptSpaceSettings) -> None:
        self._train, self.mean = train, train.mean
        self.entry_rows, self.entry_columns = train.entry_rows, train.by_row.columns
        self.values = train.values.astype(np.float64) - self.mean
        self._rounding = _ROUNDING * float(self.values @ self.values)
        self._centred, self._observed = (sparse_of(train, each) for each in (self.values, np.ones_like(self.values)))
        trimmed = sparse_of(train, np.where(light_entries(train, settings.trimming), self.values, 0.0))
        rank = min(settings.latent_size, *train.shape)
        directions = np.random.default_rng(settings.seed).standard_normal((train.shape[1], rank))
        start = krylov_svd(Sparse.of(trimmed), start=directions, powers=_POWERS)
        self.point = self.best_at(Spaces(start.row_vectors, start.column_vectors))

    def sweep(self) -> float:
        """Step downhill, at first by 1.8 times the minimiser of the parabola that holds S fixed, then by less."""
        gradient = self.gradient()
        squared_slope = sum(float(np.sum(part * part)) for part in gradient)
        downhill = Spaces(*(-part for part in gradient))
        change = self._change(downhill)
        bend = float(change @ change)
        step = _OVERSHOOT * squared_slope / bend if bend > 0 else 0.0
        while step * squared_slope > self._rounding:
            trial = self.best_at(self.point.spaces.moved(downhill, step))
            if trial.objective <= self.point.objective - _LEAST_FALL * step * squared_slope:
                self.point = trial
                break
            step /= 2.0
        return self.point.objective

    def best_at(self, spaces: Spaces) -> Point:
        """Return the best matrix of two spaces."""
        core = self.best_core(spaces)
        residuals = self._products(spaces.rows @ core, spaces.columns) - self.values
        return Point(spaces, core, residuals, 0.5 * float(residuals @ residuals))

    def best_core(self, spaces: Spaces) -> FloatArray:
        """Return the S that minimises the error, by its normal equations; the smallest where many do.

        With x_i and y_j for rows of X and Y, S_cd has in the equation of S_ab the coefficient sum over observed (i, j)
        of x_ia x_ic y_jb y_jd: a sum over rows i of products of x_i by sums over columns j of products of y_j. As
        products of pairs, only half of either is needed.
        """
        rank = spaces.rows.shape[1]
        first, second = np.triu_indices(rank)
        row_pairs, column_pairs = (space[:, first] * space[:, second] for space in spaces)
        sums = row_pairs.T @ (self._observed @ column_pairs)  # (pairs, pairs)
        pair = np.empty((rank, rank), dtype=np.intp)
        pair[first, second] = pair[second, first] = np.arange(first.size)
        coefficients = sums[pair[:, None, :, None], pair[None, :, None, :]].reshape(rank**2, rank**2)
        right = spaces.rows.T @ (self._centred @ spaces.columns)
        core: FloatArray = np.linalg.lstsq(coefficients, right.ravel(), rcond=1e-12)[0].reshape(rank, rank)
        return core

    def gradient(self) -> Spaces:
        """Return the gradient of F: R Y S' and R' X S, where R are the sparse residuals.

        It is tangent to the manifolds as it stands, for X'RY = 0 are the normal equations of S.
        """
        (rows, columns), core, residuals, _ = self.point
        sparse = sparse_of(self._train, residuals)
        return Spaces(sparse @ (columns @ core.T), sparse.T @ (rows @ core))

    def _change(self, direction: Spaces) -> FloatArray:
        """Return by how much the observed entries of X S Y' change along a direction, to first order: (entries,)."""
        (rows, columns), core = self.point.spaces, self.point.core
        return self._products(np.hstack([direction.rows @ core, rows @ core]), np.hstack([columns, direction.columns]))

    def _products(self, row_latents: FloatArray, column_latents: FloatArray) -> FloatArray:
        """Return the inner products (entries,) of latents where an entry is observed."""
        return entry_products(row_latents, column_latents, self.entry_rows, self.entry_columns)

    def begin_from(self, rows: FloatArray, columns: FloatArray) -> None:
        """Begin with the spaces of latents learned earlier."""
        self.point = self.best_at(Spaces(orthonormal(rows[:, :-1]), orthonormal(columns[:, :-1])))

    def latents(self) -> tuple[FloatArray, FloatArray]:
        """Return X P d and Y Q d, where S = P d^2 Q', and a further column for the mean."""
        (rows, columns), core = self.point.spaces, self.point.core
        left, values, right = np.linalg.svd(core)
        return LowRank(rows @ left, values, columns @ right.T).latents(self.mean)

    def arrays(self) -> Arrays:
        """Return the two spaces, from which all else follows."""
        return dict(self.point.spaces._asdict())

    def set_arrays(self, arrays: Arrays) -> None:
        """Go back to two spaces."""
        self.point = self.best_at(Spaces(**arrays))


class OptSpace(FactorModel):
    """OptSpace (Keshavan, Montanari and Oh, "Matrix Completion from a Few Entries", 2009) on values less their mean.

    Without the paper's penalty on coherence, which overflows at the start from MovieLens-1M. Settings are keyword
    arguments; `OptSpaceSettings` explains them. A row or column without any entry is predicted by the mean.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> OptSpace(latent_size=1).fit(board).predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = OptSpaceSettings
    settings: OptSpaceSettings
    n_beside: ClassVar[int] = 1  # the mean

    @takes_settings(OptSpaceSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def _solver(self, entries: EntryStore) -> OptSpaceSolver:
        return OptSpaceSolver(entries.train, self.settings)


def light_entries(matrix: ObservedMatrix, most: float) -> npt.NDArray[np.bool_]:
    """Return for each entry whether its row and its column have at most `most` times the mean number of entries."""
    light_rows, light_columns = (counts <= most * counts.mean() for counts in (matrix.row_counts, matrix.column_counts))
    kept: npt.NDArray[np.bool_] = light_rows[matrix.entry_rows] & light_columns[matrix.by_row.columns]
    return kept
