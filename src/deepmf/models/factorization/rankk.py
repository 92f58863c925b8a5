"""RankK: the matrix of exactly rank k with the least absolute error, which a few gross errors do not bend."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.factorization_settings import RankKSettings
from deepmf.models.factorization.low_rank import (
    LowRank,
    LowRankPlusSparse,
    grown,
    soft_threshold,
    sparse_of,
    truncated_svd,
)
from deepmf.models.factorization.solver import Arrays, FactorModel, Solver
from deepmf.training.declarations import takes_settings
from deepmf.training.settings import Settings

# Steps of subspace iteration in a sweep, from the vectors of the sweep before.
_SVD_STEPS = 2


class RankKSolver(Solver):
    """Minimises the sum of |X - M| over the observed entries over all X of rank k, by an augmented Lagrangian.

    M are the values less their mean. With errors E = X - M and multipliers Lambda, all on the observed entries,

        L(X, E) = |E|_1 + <Lambda, X - M - E> + mu / 2 ||X - M - E||^2

    is minimised over E (a soft threshold) and lowered over X: what is missing is filled in by the X at hand, and the
    best rank-k matrix to that is a truncated SVD of low rank + sparse. Then Lambda += mu (X - M - E), and mu grows.
    """

    def __init__(self, train: ObservedMatrix, settings: RankKSettings) -> None:
        self._train, self._settings = train, settings
        self._rows, self._columns = train.entry_rows, train.by_row.columns
        self.mean = train.mean
        self.targets = train.values.astype(np.float64) - self.mean  # M
        deviation = float(np.abs(self.targets).mean())
        self._first_penalty = settings.penalty / (deviation or 1.0)
        self.low_rank = LowRank.zero(train.shape, rank=settings.latent_size, seed=settings.seed)  # X
        self.fitted = np.zeros_like(self.targets)  # X on the observed entries
        self.errors = np.zeros_like(self.targets)  # E
        self.multipliers = np.zeros_like(self.targets)  # Lambda
        self.n_sweeps = 0

    @property
    def penalty(self) -> float:
        """The penalty mu of the sweep at hand."""
        return grown(self._first_penalty, self._settings.penalty_growth, self.n_sweeps)

    def sweep(self) -> float:
        """Update errors, matrix and multipliers; return the mean absolute error."""
        self.update_errors()
        self.update_low_rank()
        self.update_multipliers()
        return float(np.abs(self.fitted - self.targets).mean())

    def update_errors(self) -> None:
        """Minimise L over E."""
        shifted = self.fitted - self.targets + self.multipliers / self.penalty
        self.errors = soft_threshold(shifted, 1.0 / self.penalty)

    def update_low_rank(self) -> None:
        """Lower L over X of rank k."""
        wanted = self.targets + self.errors - self.multipliers / self.penalty
        filled = LowRankPlusSparse(self.low_rank, sparse_of(self._train, wanted - self.fitted))
        self.low_rank = truncated_svd(filled, start=self.low_rank.column_vectors, steps=_SVD_STEPS)
        self.fitted = self.low_rank.at(self._rows, self._columns)

    def update_multipliers(self) -> None:
        """Move the multipliers by what is left of the constraint, and let the penalty grow."""
        self.multipliers = self.multipliers + self.penalty * (self.fitted - self.targets - self.errors)
        self.n_sweeps += 1

    def begin_from(self, rows: FloatArray, columns: FloatArray) -> None:
        """Begin with the matrix of latents learned earlier."""
        self.low_rank = LowRank.of_factors(rows[:, :-1], columns[:, :-1])
        self.fitted = self.low_rank.at(self._rows, self._columns)

    def latents(self) -> tuple[FloatArray, FloatArray]:
        """Return the factors of X, and a further column for the mean."""
        return self.low_rank.latents(self.mean)

    def arrays(self) -> Arrays:
        """Return X, the multipliers and the number of sweeps, from which all else follows."""
        return {
            **self.low_rank._asdict(),
            "multipliers": self.multipliers,
            "n_sweeps": np.array(self.n_sweeps),
        }

    def set_arrays(self, arrays: Arrays) -> None:
        """Go back to such arrays."""
        self.low_rank = LowRank(*(arrays[name] for name in LowRank._fields))
        self.fitted = self.low_rank.at(self._rows, self._columns)
        self.multipliers, self.n_sweeps = arrays["multipliers"], int(arrays["n_sweeps"])

    def notes(self) -> dict[str, Any]:
        """Return the penalty that the next sweep will have."""
        return {"penalty": self.penalty}


class RankK(FactorModel):
    """Rank-k matrix recovery (Huang et al., "Social Trust Prediction Using Rank-k Matrix Recovery", IJCAI 2013).

    The paper leaves its solver's details open; ours are in `RankKSolver`. The mean is subtracted first. Settings are
    keyword arguments; `RankKSettings` explains them. A row or column without any entry is predicted by the mean.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> RankK(latent_size=1).fit(board).predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = RankKSettings
    settings: RankKSettings
    n_beside: ClassVar[int] = 1  # the mean

    @takes_settings(RankKSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def _solver(self, entries: EntryStore) -> RankKSolver:
        return RankKSolver(entries.train, self.settings)
