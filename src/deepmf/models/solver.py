"""Methods of linear algebra: a solver that improves sweep by sweep, as a task of the loop, and the model around it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.fitting import Fitting
from deepmf.models.latents import Latents
from deepmf.models.predictor import Encoder, NoEncoder, Predictor, Readout, unpack_latents
from deepmf.models.warm_start import WarmStart
from deepmf.storage.model_file import Tensors
from deepmf.training.loop import Epoch, ValidationEntries
from deepmf.training.memory import FitBytes, check_memory

Arrays = dict[str, npt.NDArray[Any]]


# Why a method that only has factors cannot be extended.
FACTORS_ONLY = (
    "its factors belong to the rows and columns it was trained on; "
    "fit again, or use a model that extends, such as ALS or DMF"
)


# What a solver holds at least: positions and values by row and by column; and factors, those of the sweep before, those
# of the best sweep, and latents.
_BYTES_AN_ENTRY = 2 * (4 + 4)

_BYTES_OF_A_LATENT = 4 * 4


class Solver(ABC):
    """A method that improves its factors one sweep at a time."""

    @abstractmethod
    def sweep(self) -> float:
        """Improve once; return the objective, which should fall."""

    def finish(self) -> None:
        """Make of the best sweep what the model keeps."""
        return

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

    @abstractmethod
    def begin_from(self, rows: FloatArray, columns: FloatArray) -> None:
        """Begin with latents of an earlier solver; a line of zeros is of an unknown label.

        Where all lines have zeros for one of the latents, that earlier solver had fewer.
        """

    def notes(self) -> dict[str, Any]:
        """Return what the history should keep of a sweep beside the objective."""
        return {}


class FactorModel(Model):
    """A model that a solver finds: one latent for each row and column it was given."""

    n_beside: ClassVar[int]  # how many of a latent's last numbers are means, effects or constants
    predicts: ClassVar[tuple[str, ...]] = ("I",)
    cannot: ClassVar[str] = FACTORS_ONLY

    @abstractmethod
    def _solver(self, entries: EntryStore) -> Solver:
        """Return a solver at its start."""

    def _check_memory(self, entries: EntryStore) -> None:
        train = entries.train
        width = self._rank(train) + self.n_beside
        check_memory(
            FitBytes(0, _BYTES_AN_ENTRY * train.n_entries, _BYTES_OF_A_LATENT * width * sum(train.shape), 0),
            torch.device("cpu"),
            what=f"fitting {type(self).__name__} to {train.n_entries:,} entries in {train.shape[0]:,} rows x "
            f"{train.shape[1]:,} columns",
            instead="a smaller latent_size or Means (means) needs less",
        )

    def _make_task(self, entries: EntryStore, validation: ValidationEntries | None) -> SolverTask:
        return SolverTask(self._solver(entries), partial(self._found, entries=entries), validation)

    def _begin_from(self, task: SolverTask, start: WarmStart) -> None:
        rows, columns = start.latents(rank=self._rank(start.train))
        task.solver.begin_from(rows, columns)

    def _make_predictor(self, task: SolverTask, entries: EntryStore, fitting: Fitting) -> Predictor:
        task.solver.finish()
        return self._found(task.solver, entries=entries)

    def _found(self, solver: Any, *, entries: EntryStore) -> Predictor:
        """Return the predictor of what a solver has found."""
        rows, columns = (Latents(table.astype(np.float32)) for table in solver.latents())
        encoder, readout = self._encoder(solver, entries), self._readout(solver, entries.scale)
        return Predictor(rows, columns, encoder, readout, self.n_beside)

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        rows, columns = unpack_latents(tensors, entries, width=self._rank(entries.train) + self.n_beside)
        readout = self._stored_readout(entries.scale, tensors)
        return Predictor(rows, columns, self._stored_encoder(entries, tensors), readout, self.n_beside)

    def _rank(self, train: ObservedMatrix) -> int:
        """Return how many latents there are beside means, effects and constants."""
        rank: int = self.settings.to_dict()["latent_size"]
        return min(rank, *train.shape)

    def _encoder(self, solver: Any, entries: EntryStore) -> Encoder:
        return NoEncoder()

    def _stored_encoder(self, entries: EntryStore, tensors: Tensors) -> Encoder:
        return self._encoder(None, entries)

    def _readout(self, solver: Any, scale: Scale) -> Readout:
        return Readout(scale)

    def _stored_readout(self, scale: Scale, tensors: Tensors) -> Readout:
        return self._readout(None, scale)


class SolverTask:
    """A solver as a task of the loop; `predictor_of` what it has found predicts validation entries."""

    def __init__(
        self, solver: Solver, predictor_of: Callable[[Solver], Predictor], validation: ValidationEntries | None
    ) -> None:
        self.solver = solver
        self._predictor_of, self._validation = predictor_of, validation

    def run_epoch(self, epoch: int) -> Epoch:
        """Run one sweep; one that linear algebra cannot do has no finite objective."""
        try:
            objective = self.solver.sweep()
        except np.linalg.LinAlgError:
            return Epoch(math.nan)
        return Epoch(objective, notes=self.solver.notes())

    def validation_error(self) -> float | None:
        """Return the root mean squared error of the predictions for validation entries."""
        if self._validation is None:
            return None
        predictor = self._predictor_of(self.solver)
        scores = predictor.score_pairs(self._validation.rows, self._validation.columns)
        return rmse_error(predictor.readout.values(scores), self._validation.values)

    def get_learned(self) -> dict[str, Tensor]:
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
