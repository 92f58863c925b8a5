"""RDMC: robust discrete matrix completion, least absolute error and nuclear norm over matrices of legal levels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.factorization.factorization_settings import RDMCSettings
from deepmf.models.factorization.low_rank import LowRank, RowBlocks, grown, soft_threshold, truncated_svd
from deepmf.models.factorization.solver import Arrays, FactorModel, Solver
from deepmf.models.readout import LevelReadout
from deepmf.training.declarations import takes_settings
from deepmf.training.settings import Settings

# Steps of subspace iteration in a sweep, from the vectors of the sweep before; each makes all blocks of rows twice.
_SVD_STEPS = 1


class RDMCSolver(Solver):
    """Minimises the sum of |X - M| over the observed entries + gamma * (nuclear norm of X), X drawn to the levels.

    The constraint that every entry of X is a level is held by a penalty nu that grows. With errors E = X - M on the
    observed entries, a copy Z + mean of X for the nuclear norm, and multipliers Lambda and Y on the observed entries,

        L(E, X, Z) = |E|_1 + <Lambda, X - M - E> + mu / 2 ||X - M - E||^2
                     + nu / 2 ||X - nearest levels||^2
                     + gamma ||Z||_* + <Y, X - mean - Z> + mu / 2 ||X - mean - Z||^2

    is minimised over E (a soft threshold), over X (a part of the way to the nearest level) and over Z (a threshold on
    singular values) in turn. Then the multipliers move, and both penalties grow. There are no multipliers where
    nothing is observed: X is a function of Z there, of which only a block of rows is ever made.
    """

    def __init__(self, train: ObservedMatrix, settings: RDMCSettings) -> None:
        self._train, self._settings = train, settings
        self._rows, self._columns = train.entry_rows, train.by_row.columns
        self.targets = train.values.astype(np.float64)  # M
        self.mean = float(self.targets.mean())
        deviation = float(np.abs(self.targets - self.mean).mean())
        self._unit = 1.0 / (deviation or 1.0)
        self.gamma = settings.gamma * sum(np.sqrt(train.n_entries / size) for size in train.shape)
        self.low_rank = LowRank.zero(train.shape, rank=settings.latent_size, seed=settings.seed)  # Z
        self.scores = np.full_like(self.targets, self.mean)  # Z + mean on the observed entries
        self.discrete = self.scores  # X on the observed entries
        self.errors = np.zeros_like(self.targets)  # E
        self.error_multipliers = np.zeros_like(self.targets)  # Lambda
        self.copy_multipliers = np.zeros_like(self.targets)  # Y
        self.n_sweeps = 0

    @property
    def penalty(self) -> float:
        """The penalty mu of the sweep at hand."""
        return grown(self._unit * self._settings.penalty, self._settings.penalty_growth, self.n_sweeps)

    @property
    def level_penalty(self) -> float:
        """The penalty nu of the sweep at hand."""
        return grown(self._unit * self._settings.level_penalty, self._settings.level_penalty_growth, self.n_sweeps)

    def sweep(self) -> float:
        """Update errors, discrete matrix, low-rank copy and multipliers; return the objective per observed entry.

        It is that of Z + mean, so it falls while nu is small, and rises again as the levels take hold.
        """
        self.update_errors()
        self.update_discrete()
        self.update_low_rank()
        self.update_multipliers()
        absolute_error = np.abs(self.scores - self.targets).sum()
        return float(absolute_error + self.gamma * self.low_rank.values.sum()) / self.targets.size

    def update_errors(self) -> None:
        """Minimise L over E."""
        shifted = self.discrete - self.targets + self.error_multipliers / self.penalty
        self.errors = soft_threshold(shifted, 1.0 / self.penalty)

    def update_discrete(self) -> None:
        """Minimise L over X where it is observed; elsewhere `update_low_rank` does, block by block."""
        from_errors = self.targets + self.errors - self.error_multipliers / self.penalty
        from_copy = self.scores - self.copy_multipliers / self.penalty
        middle = (from_errors + from_copy) / 2.0
        share = self.level_penalty / (2.0 * self.penalty + self.level_penalty)
        self.discrete = drawn_to_levels(middle, self._train.scale, share=share)

    def update_low_rank(self) -> None:
        """Minimise L over Z."""
        row_latents, column_latents = self.low_rank.latents(self.mean)
        observed = self.discrete + self.copy_multipliers / self.penalty
        starts, share = self._train.by_row.starts, self.level_penalty / (self.penalty + self.level_penalty)

        def rows_of_discrete(some: slice) -> FloatArray:
            rows = drawn_to_levels(row_latents[some] @ column_latents.T, self._train.scale, share=share)
            entries = slice(starts[some.start], starts[some.stop])
            rows[self._rows[entries] - some.start, self._columns[entries]] = observed[entries]
            return rows - self.mean

        matrix = RowBlocks(self._train.shape, rows_of_discrete)
        nearest = truncated_svd(matrix, start=self.low_rank.column_vectors, steps=_SVD_STEPS)
        self.low_rank = nearest.thresholded(self.gamma / self.penalty)
        self.scores = self._scores()

    def update_multipliers(self) -> None:
        """Move the multipliers by what is left of the two constraints, and let both penalties grow."""
        self.error_multipliers = self.error_multipliers + self.penalty * (self.discrete - self.targets - self.errors)
        self.copy_multipliers = self.copy_multipliers + self.penalty * (self.discrete - self.scores)
        self.n_sweeps += 1

    def begin_from(self, rows: FloatArray, columns: FloatArray) -> None:
        """Begin with the matrix of latents learned earlier."""
        self.low_rank = LowRank.of_factors(rows[:, :-1], columns[:, :-1])
        self.scores = self.discrete = self._scores()

    def latents(self) -> tuple[FloatArray, FloatArray]:
        """Return the factors of Z, and a further column for the mean."""
        return self.low_rank.latents(self.mean)

    def arrays(self) -> Arrays:
        """Return Z, X on the observed entries, the multipliers and the number of sweeps; all else follows."""
        return {
            **self.low_rank._asdict(),
            "discrete": self.discrete,
            "error_multipliers": self.error_multipliers,
            "copy_multipliers": self.copy_multipliers,
            "n_sweeps": np.array(self.n_sweeps),
        }

    def set_arrays(self, arrays: Arrays) -> None:
        """Go back to such arrays."""
        self.low_rank = LowRank(*(arrays[name] for name in LowRank._fields))
        self.scores = self._scores()
        self.discrete, self.n_sweeps = arrays["discrete"], int(arrays["n_sweeps"])
        self.error_multipliers, self.copy_multipliers = arrays["error_multipliers"], arrays["copy_multipliers"]

    def notes(self) -> dict[str, Any]:
        """Return the rank of Z, and the penalties that the next sweep will have."""
        rank = int(np.count_nonzero(self.low_rank.values))
        return {"rank": rank, "penalty": self.penalty, "level_penalty": self.level_penalty}

    def _scores(self) -> FloatArray:
        return self.mean + self.low_rank.at(self._rows, self._columns)


class RDMC(FactorModel):
    """Robust discrete matrix completion (Huang, Nie and Huang, "Robust Discrete Matrix Completion", AAAI 2013).

    Predictions are legal levels, the nearest ones of the scores; rankings go by the scores underneath. For matrices
    with at least two levels. The paper leaves its solver's details open; ours are in `RDMCSolver`, and differ in that
    the entries are drawn to levels gradually, with the default number of sweeps a tenth of the way: held to levels from
    the first sweep, missing entries stick to those they start from. Settings are keyword arguments; `RDMCSettings`
    explains them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> RDMC().fit(board).predict([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = RDMCSettings
    settings: RDMCSettings
    n_beside: ClassVar[int] = 1  # the mean

    @takes_settings(RDMCSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def _solver(self, entries: EntryStore) -> RDMCSolver:
        entries.train.scale.levels_for("RDMC")
        return RDMCSolver(entries.train, self.settings)

    def _readout(self, solver: Any, scale: Scale) -> LevelReadout:
        return LevelReadout(scale)


def drawn_to_levels(values: FloatArray, scale: Scale, *, share: float) -> FloatArray:
    """Move each value a share of the way to its nearest level.

    With share = nu / (mu + nu) it minimises nu / 2 (distance to the nearest level)^2 + mu / 2 (x - value)^2.
    """
    return values + share * (scale.nearest_level(values) - values)
