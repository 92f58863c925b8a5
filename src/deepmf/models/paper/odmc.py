"""ODMC: low-rank scores, and learned boundaries that map a score to a level."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.solver import Arrays, FactorModel, Solver
from deepmf.scoring.readouts import BoundaryReadout
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Form, Part, not_falling
from deepmf.training.settings import WIDEST, LoopSettings, Settings, setting, settings_dataclass


@settings_dataclass
class ODMCSettings(LoopSettings):
    """The settings of ODMC; the defaults were chosen on validation entries of MovieLens-1M.

    With a `margin` of 0, as in the paper, scores gather at the boundaries; with two levels, a
    constant score at the boundary has no loss. A margin of 0.25 avoids this, and lowers RMSE / MAE
    of validation entries of MovieLens-1M from .915 / .649 to .910 / .637.
    """

    epochs: int = 30
    latent_size: int = setting(20, "Rank, without row and column effects.", low=1, high=WIDEST)
    gamma: float = setting(8.0, "Weight of the L2 penalty on latents and effects.", low=0.0)
    alpha: float = setting(
        1.0,
        "Weight of the penalty that keeps boundaries midway between levels, per entry.",
        low=0.0,
    )
    margin: float = setting(
        0.0,
        "Margin between a score and a boundary, as a share of the gap between two levels.",
        low=0.0,
        high=0.5,
    )
    learning_rate: float = setting(
        0.006, "Learning rate of stochastic gradient descent in the first sweep.", above=0.0
    )
    decay: float = setting(
        0.9, "Factor on the learning rate after each sweep.", above=0.0, high=1.0
    )
    momentum: float = setting(0.9, "Momentum of stochastic gradient descent.", low=0.0, high=0.99)


# Standard deviation of the initial latents, in units of a quarter of the scale.
_SPREAD = 0.1

# The least number of batches in a sweep, and the largest expected number of entries of one row or
# column in a batch: steps follow the sum of the gradients of a batch and become unstable if a
# latent gets too many of them.
_LEAST_BATCHES, _MOST_OF_ONE = 64, 100


class Slopes(NamedTuple):
    """The objective of a batch and its gradient."""

    objective: float
    rows: FloatArray  # (rows, latent + 2)
    columns: FloatArray  # (columns, latent + 2)
    thresholds: FloatArray  # (levels - 1,)


class ODMCSolver(Solver):
    """Minimises, by stochastic gradients with momentum, over latents u_i, v_j and thresholds 0 <= d
    <= 1:

        sum over observed (i, j) of 1/2 max(0, lower - score_ij)^2 + 1/2 max(0, score_ij - upper)^2
        + gamma/2 (||U||^2 + ||V||^2) + n_entries alpha/2 ||d - 1/2||^2

    where lower and upper are the boundaries of the entry's level l: its upper boundary is I_l + d_l
    (I_{l+1} - I_l), its lower one that of level l - 1. The first level has no lower boundary, the
    last no upper one. A score is mean + u_i'v_j.

    Not in the paper: the mean; row and column effects, as a column of U beside a column of ones in
    V and vice versa (RMSE / MAE of levels on validation entries of MovieLens-1M: .915 / .649 with,
    .928 / .662 without); the penalty alpha is per entry, so that its effect does not depend on the
    number of entries; thresholds follow the mean gradient of a batch, latents its sum. All numbers
    are in units of a quarter of the scale, so that settings mean the same on every scale.
    """

    def __init__(self, train: ObservedMatrix, settings: ODMCSettings) -> None:
        levels = train.scale.require_levels("ODMC")
        self.settings = settings
        self.unit = (train.scale.high - train.scale.low) / 4.0
        self._levels = levels / self.unit
        self._mean = train.mean / self.unit
        self.entry_rows, self.entry_columns = train.entry_rows, train.by_row.columns
        self.entry_levels = train.scale.level_positions(train.values)
        self._shape = train.shape
        self._batch_size = _choose_batch_size(train)
        self._sweeps = 0
        generator = np.random.default_rng([settings.seed, 0])
        shapes = ((size, settings.latent_size) for size in train.shape)
        rows, columns = (
            np.pad(_SPREAD * generator.standard_normal(shape), ((0, 0), (0, 2))) for shape in shapes
        )
        rows[:, -1] = columns[:, -2] = 1.0  # beside the column effects, and the row effects
        self.learned = {
            "rows": rows,
            "columns": columns,
            "thresholds": np.full(levels.size - 1, 0.5),
        }
        self.velocities = {name: np.zeros_like(array) for name, array in self.learned.items()}

    @property
    def boundaries(self) -> FloatArray:
        """The boundaries between neighbouring levels, (levels - 1,), in the scale's units; they
        never cross."""
        boundaries: FloatArray = self._levels[:-1] + self.learned["thresholds"] * np.diff(
            self._levels
        )
        return self.unit * boundaries

    def sweep(self) -> float:
        """Pass over all entries in random batches; return the sum of their objectives."""
        self._sweeps += 1
        n_entries = self.entry_levels.size
        order = np.random.default_rng([self.settings.seed, self._sweeps]).permutation(n_entries)
        objective = 0.0
        for start in range(0, n_entries, self._batch_size):
            batch = order[start : start + self._batch_size]
            slopes = self.differentiate(batch)
            self._step(slopes, batch.size)
            objective += slopes.objective
        return objective

    def differentiate(self, batch: IndexArray) -> Slopes:
        """Return the objective of a batch, with its share of the penalties, and its gradient."""
        rows, columns, thresholds = self.learned.values()
        row_of, column_of, level_of = (
            self.entry_rows[batch],
            self.entry_columns[batch],
            self.entry_levels[batch],
        )
        scores = self._mean + np.einsum("ed,ed->e", rows[row_of], columns[column_of])
        gaps = np.diff(self._levels)
        boundaries, margins = self._levels[:-1] + thresholds * gaps, self.settings.margin * gaps
        below = np.maximum(np.append(-np.inf, boundaries + margins)[level_of] - scores, 0.0)
        above = np.maximum(scores - np.append(boundaries - margins, np.inf)[level_of], 0.0)
        outside = scipy.sparse.csr_array((above - below, (row_of, column_of)), shape=self._shape)
        gamma = self.settings.gamma * batch.size / self.entry_levels.size
        row_slopes, column_slopes = (
            outside @ columns + gamma * rows,
            outside.T @ rows + gamma * columns,
        )
        row_slopes[:, -1] = column_slopes[:, -2] = 0.0  # the columns of ones are constant
        n_levels, off_middle, alpha = (
            self._levels.size,
            thresholds - 0.5,
            self.settings.alpha * batch.size,
        )
        lifted = (
            np.bincount(level_of, below, n_levels)[1:] - np.bincount(level_of, above, n_levels)[:-1]
        )
        objective = 0.5 * (below @ below + above @ above + alpha * (off_middle @ off_middle))
        objective += (
            0.5 * gamma * (np.sum(rows[:, :-1] ** 2) + np.sum(np.delete(columns, -2, axis=1) ** 2))
        )
        return Slopes(
            float(objective), row_slopes, column_slopes, lifted * gaps + alpha * off_middle
        )

    def _step(self, slopes: Slopes, n_entries: int) -> None:
        rate = self.settings.learning_rate * self.settings.decay ** (self._sweeps - 1)
        rates = {"rows": rate, "columns": rate, "thresholds": rate / n_entries}
        for name, array in self.learned.items():
            velocity = self.velocities[name]
            velocity *= self.settings.momentum
            velocity -= rates[name] * getattr(slopes, name)
            array += velocity
        thresholds = self.learned["thresholds"]
        self.velocities["thresholds"][(thresholds < 0) | (thresholds > 1)] = 0.0
        np.clip(thresholds, 0.0, 1.0, out=thresholds)

    def compute_latents(self) -> tuple[FloatArray, FloatArray]:
        """Return the latents; the mean is added to the column effects."""
        columns = self.learned["columns"].copy()
        columns[:, -1] += self._mean
        return self.unit * self.learned["rows"], columns

    def get_arrays(self) -> Arrays:
        """Return the parameters, their velocities, and the number of sweeps, which seeds the next
        sweep."""
        velocities = {f"velocity.{name}": array for name, array in self.velocities.items()}
        return {**self.learned, **velocities, "sweeps": np.array([self._sweeps])}

    def set_arrays(self, arrays: Arrays) -> None:
        self._sweeps = int(arrays["sweeps"][0])
        for name in self.learned:
            self.learned[name], self.velocities[name] = arrays[name], arrays[f"velocity.{name}"]


class ODMC(FactorModel):
    """Optimal discrete matrix completion (Huo, Liu and Huang, AAAI 2016): low-rank scores and
    learned boundaries.

    Predictions are levels; rankings use the scores. The scale needs at least two levels. Settings
    are keyword arguments, see `ODMCSettings`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> ODMC(latent_size=1, gamma=0.1, margin=0.25).fit(board).predict([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = ODMCSettings
    settings: ODMCSettings
    solver_class = ODMCSolver
    n_beside: ClassVar[int] = 2  # the effects and their constants

    @property
    def boundaries_(self) -> FloatArray:
        """The learned boundaries between neighbouring levels."""
        readout = self.predictor_.readout.as_chosen
        assert isinstance(readout, BoundaryReadout)
        return readout.boundaries

    def _count_latents(self, train: ObservedMatrix) -> int:
        return self.settings.latent_size

    def _make_readout(self, solver: ODMCSolver, scale: Scale) -> BoundaryReadout:
        return BoundaryReadout(scale, solver.boundaries)

    def _load_readout(self, scale: Scale, tensors: Tensors) -> BoundaryReadout:
        boundaries = Part("boundaries", "float64", ("levels - 1",), not_falling)
        return BoundaryReadout(
            scale, **Form(boundaries).read({}, tensors, levels=scale.require_levels("ODMC").size)
        )


def _choose_batch_size(train: ObservedMatrix) -> int:
    """Return the number of entries of a batch: at most the number of rows and columns, whose
    latents it updates."""
    heaviest = max(int(train.row_counts.max()), int(train.column_counts.max()))
    most = min(train.n_entries // _LEAST_BATCHES, train.n_entries * _MOST_OF_ONE // heaviest)
    return max(1, min(sum(train.shape), most))
