"""Models that are fitted by a solver: the solver, the model around it, and its task for the
training loop."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from deepmf.matrix.arrays import Array
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.fitting import Fitting
from deepmf.scoring.encoders import Encoder, NoEncoder
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.training.holdout import HeldOut
from deepmf.training.loop import Epoch, Task
from deepmf.training.memory import FitBytes

Arrays = dict[str, Array]

# Why a model that has factors and no encoder cannot be extended.
FACTORS_ONLY = (
    "its factors belong to the rows and columns it was trained on; "
    "fit again, or use a model that extends, such as ALS or DMF"
)

# The least memory of a solver: positions and values by row and by column; the factors of the
# current, the last and the best sweep, and the latents.
_BYTES_PER_ENTRY = 2 * (4 + 4)
_BYTES_PER_LATENT = 4 * 4


class Solver(ABC):
    """A method of linear algebra that improves its factors one sweep at a time."""

    @abstractmethod
    def sweep(self) -> float:
        """Improve once; return the objective, which should fall."""

    def finish(self) -> None:
        """Complete the factors of the best sweep."""
        return

    @abstractmethod
    def compute_latents(self) -> tuple[Array, Array]:
        """Return latents (rows, latent) and (columns, latent) whose inner products are scores in
        the scale's units.

        Means and effects are their last columns.
        """

    @abstractmethod
    def get_arrays(self) -> Arrays:
        """Return the arrays that the next sweep depends on."""

    @abstractmethod
    def set_arrays(self, arrays: Arrays) -> None:
        """Return to stored arrays."""


class FactorModel(Model):
    """A model that a solver fits: one latent for each row and column of the matrix."""

    solver_class: ClassVar[type[Any]]  # takes a matrix and settings
    # how many of the last numbers of a latent are means, effects or constants
    n_beside: ClassVar[int] = 1
    predicts: ClassVar[tuple[str, ...]] = ("I",)
    cannot: ClassVar[str] = FACTORS_ONLY

    def _make_solver(self, entries: EntryStore) -> Solver:
        """Return a new solver."""
        solver: Solver = self.solver_class(entries.train, self.settings)
        return solver

    def _estimate_bytes(self, entries: EntryStore) -> FitBytes:
        train = entries.train
        width = self._count_latents(train) + self.n_beside
        return FitBytes(
            0, _BYTES_PER_ENTRY * train.n_entries, _BYTES_PER_LATENT * width * sum(train.shape), 0
        )

    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> SolverTask:
        return SolverTask(
            self._make_solver(entries), partial(self._wrap_solver, entries=entries), validation
        )

    def _make_predictor(self, task: SolverTask, entries: EntryStore, fitting: Fitting) -> Predictor:
        task.solver.finish()
        return self._wrap_solver(task.solver, entries=entries)

    def _wrap_solver(self, solver: Any, *, entries: EntryStore) -> Predictor:
        rows, columns = (Latents(table.astype(np.float32)) for table in solver.compute_latents())
        factors = Factors(rows, columns, self._make_encoder(solver, entries), self.n_beside)
        return Predictor.of(factors, self._make_readout(solver, entries.scale))

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        width = self._count_latents(entries.train) + self.n_beside
        latents = unpack_latents(tensors, entries, width=width)
        factors = Factors(*latents, self._load_encoder(entries, tensors), self.n_beside)
        readout = self._load_readout(entries.scale, tensors)
        return Predictor.of(factors.with_arrived(tensors, entries), readout)

    def _count_latents(self, train: ObservedMatrix) -> int:
        """Return the latent size without means, effects and constants."""
        size: int = self.settings.to_dict()["latent_size"]
        return min(size, *train.shape)

    def _make_encoder(self, solver: Any, entries: EntryStore) -> Encoder:
        return NoEncoder()

    def _load_encoder(self, entries: EntryStore, tensors: Tensors) -> Encoder:
        return self._make_encoder(None, entries)

    def _make_readout(self, solver: Any, scale: Scale) -> Readout:
        return Readout(scale)

    def _load_readout(self, scale: Scale, tensors: Tensors) -> Readout:
        return self._make_readout(None, scale)


class SolverTask(Task):
    """A solver as a task of the training loop; `make_predictor` wraps its current factors for
    validation."""

    def __init__(
        self,
        solver: Solver,
        make_predictor: Callable[[Solver], Predictor],
        validation: HeldOut | None,
    ) -> None:
        self.solver = solver
        self._make_predictor, self._validation = make_predictor, validation

    def run_epoch(self, epoch: int) -> Epoch:
        """Run one sweep; a sweep that fails has no finite objective."""
        try:
            return Epoch(self.solver.sweep())
        except np.linalg.LinAlgError:
            return Epoch(math.nan)

    def validation_error(self) -> float | None:
        if self._validation is None:
            return None
        predictor = self._make_predictor(self.solver)
        scores = predictor.score_pairs(self._validation.rows, self._validation.columns)
        return rmse_error(predictor.readout.values(scores), self._validation.values)

    def get_learned(self) -> Arrays:
        return {name: np.asarray(array) for name, array in self.solver.get_arrays().items()}

    def set_learned(self, learned: Mapping[str, Array]) -> None:
        """Give the solver a copy of stored arrays."""
        self.solver.set_arrays({name: array.copy() for name, array in learned.items()})
