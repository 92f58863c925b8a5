"""Methods of linear algebra: a solver that improves sweep by sweep, as a task of the loop, and the model around it."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.errors import CannotExtend
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.latent_model import LatentModel
from deepmf.models.latents import Latents
from deepmf.training.loop import Epoch

Arrays = dict[str, npt.NDArray[Any]]

# Why a method that only has factors cannot be extended.
FACTORS_ONLY = (
    "its factors belong to the rows and columns it was trained on; "
    "fit again, or use a model that extends, such as ALS or DMF"
)


class Solver(ABC):
    """A method that improves its factors one sweep at a time."""

    @abstractmethod
    def sweep(self) -> float:
        """Improve once; return the objective, which should fall."""

    @abstractmethod
    def latents(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return latents (rows, latent) and (columns, latent) whose inner products are scores in the scale's units.

        Means and effects are further columns of them.
        """

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return everything that the next sweep depends on."""

    @abstractmethod
    def set_arrays(self, arrays: Arrays) -> None:
        """Go back to such arrays."""

    def notes(self) -> dict[str, Any]:
        """Return what the history should keep of a sweep beside the objective."""
        return {}


class FactorModel(LatentModel):
    """A model that a solver finds: one latent for each row and column it was given."""

    def _width(self) -> int:
        rank: int = self.settings.to_dict()["latent_size"]  # most have one; where not, a subclass says what is right
        return min(rank, *self._seen.train.shape) + self.extra_columns

    @abstractmethod
    def _solver(self, train: ObservedMatrix) -> Solver:
        """Return a solver at its start."""

    def _task(self, train: ObservedMatrix, validation: ObservedMatrix | None) -> SolverTask:
        draft = copy.copy(self)
        draft.observations_ = EntryStore.of(train)
        return SolverTask(self._solver(train), draft, validation)

    def _adopt(self, task: SolverTask) -> None:
        self._take_from(task.solver)

    def _extend(self, rows: IndexArray, columns: IndexArray) -> None:
        raise CannotExtend(self.cannot)  # unless a subclass can

    def _take_from(self, solver: Any) -> None:
        """Set what is learned from a solver."""
        rows, columns = solver.latents()
        self.row_latents_, self.column_latents_ = (Latents(table.astype(np.float32)) for table in (rows, columns))


class SolverTask:
    """A solver as a task of the loop; `draft` is a model that answers validation entries as the final one would."""

    def __init__(self, solver: Solver, draft: FactorModel, validation: ObservedMatrix | None) -> None:
        self.solver = solver
        self._draft = draft
        self._entries = validation.entries() if validation is not None and validation.n_entries else None

    def run_epoch(self, epoch: int) -> Epoch:
        """Run one sweep; one that linear algebra cannot do has no finite objective."""
        try:
            objective = self.solver.sweep()
        except np.linalg.LinAlgError:
            return Epoch(math.nan)
        return Epoch(objective, notes=self.solver.notes())

    def validation_error(self) -> float | None:
        """Return the root mean squared error of the answers on validation entries."""
        if self._entries is None:
            return None
        self._draft._take_from(self.solver)
        return rmse_error(self._draft.predict(self._entries.rows, self._entries.columns), self._entries.values)

    def learned(self) -> dict[str, Tensor]:
        """Return the arrays of the solver, which are its whole state."""
        return {name: torch.from_numpy(np.asarray(array)) for name, array in self.solver.arrays().items()}

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        """Hand a copy of such arrays back to the solver."""
        self.solver.set_arrays({name: tensor.numpy().copy() for name, tensor in learned.items()})

    def state(self) -> dict[str, Tensor]:
        """Nothing beside the arrays."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Nothing beside the arrays."""
