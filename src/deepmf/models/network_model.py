"""A model whose latents a trained network computes from the entries of a row or of a column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from deepmf.errors import BadModelFile
from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.entry_store import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.latent_model import LatentModel
from deepmf.storage.matrix_tensors import Packed
from deepmf.training.block_sampler import SampledAxis
from deepmf.training.optimisers import Optimiser
from deepmf.training.runtime import Runtime
from deepmf.training.settings import TrainingSettings
from deepmf.training.trainer import Objective, Trainer


def sparse_vectors(entries: AxisEntries, inputs: npt.NDArray[Any]) -> SparseVectors:
    """Return some rows or columns as a network reads them: their entries, with inputs in place of values."""
    return SparseVectors(*(torch.from_numpy(np.array(array)) for array in (*entries[:2], inputs.astype(np.float32))))


class NetworkModel(LatentModel):
    """What all models share that train a network: the trainer as their task, and the network in their file."""

    settings: TrainingSettings
    network_: nn.Module

    @abstractmethod
    def _new_network(self, train: ObservedMatrix) -> nn.Module:
        """Return a network for a matrix, with fresh weights."""

    @abstractmethod
    def _objective(self, train: ObservedMatrix, validation: ObservedMatrix | None, runtime: Runtime) -> Objective:
        """Return what is minimised, on a runtime."""

    @abstractmethod
    def _axes(self, train: ObservedMatrix) -> Sequence[SampledAxis]:
        """Return the axes that training walks over."""

    @abstractmethod
    def _set_latents(self, objective: Any) -> None:
        """Compute all latents once, with the trained network."""

    def _optimiser(self, network: nn.Module) -> Optimiser | None:
        """Return what to step with; None for Adam."""
        return None

    def _task(self, train: ObservedMatrix, validation: ObservedMatrix | None) -> Trainer:
        runtime = Runtime(self.settings.device, self.settings.precision)
        axes = self._axes(train)
        objective = self._objective(train, validation, runtime)
        optimiser = self._optimiser(objective.network)
        return Trainer(objective, self.settings, runtime, axes=axes, optimiser=optimiser)

    def cpu_network(self) -> Any:
        """Return a copy of the network on the CPU, without the generator it was trained with."""
        return self._network_of(self.network_.state_dict())

    def __copy__(self) -> Self:
        """Return a model that shares the network: every extension makes one."""
        model = object.__new__(type(self))
        model.__dict__.update(self.__dict__)
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: a network that can be read where there is no GPU, too."""
        network = {"network_": self.cpu_network()} if "network_" in self.__dict__ else {}
        return self.__dict__ | network

    def _adopt(self, task: Trainer) -> None:
        self.network_ = task.objective.network.eval()
        with torch.no_grad():
            self._set_latents(task.objective)
        self.network_.to("cpu")

    def _learned(self) -> Packed:
        learned = super()._learned()
        network = {f"network.{name}": tensor.cpu().numpy() for name, tensor in self.network_.state_dict().items()}
        return Packed(learned.content, learned.tensors | network)

    def _set_learned(self, content: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> None:
        super()._set_learned(content, tensors)
        weights = {
            name.removeprefix("network."): torch.from_numpy(tensor.copy())
            for name, tensor in tensors.items()
            if name.startswith("network.")
        }
        try:
            self.network_ = self._network_of(weights)
        except RuntimeError as error:
            raise BadModelFile(f"the stored weights do not fit the stored settings ({error})") from error

    def _network_of(self, weights: Mapping[str, Tensor]) -> Any:
        network = self._new_network(self._seen.train).eval()
        network.load_state_dict(weights)
        return network
