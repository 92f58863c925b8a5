"""A model whose latents a trained network computes from the entries of a row or of a column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from deepmf.errors import BadModelFile
from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.entry_store import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.latent_model import LatentModel
from deepmf.storage.packed import Packed, Tensors, numbers
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
        network = self._undrawn_network()
        weights = {name: tensor.cpu().clone() for name, tensor in self.network_.state_dict().items()}
        network.load_state_dict(weights, assign=True)
        return network.eval()

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

    def _set_learned(self, content: Any, tensors: Tensors) -> None:
        stored = {name.removeprefix("network."): each for name, each in tensors.items() if name.startswith("network.")}
        network = self._undrawn_network()
        wanted = network.state_dict()
        if stored.keys() != wanted.keys():
            differing = sorted(stored.keys() ^ wanted.keys())
            raise BadModelFile(f"the stored network lacks tensors, or has more than it needs: {differing[0]}")
        for name, tensor in wanted.items():
            numbers(tensors, f"network.{name}", str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            if name.endswith("running_var") and np.any(stored[name] < 0):
                raise BadModelFile(f"the tensor network.{name} must be of variances; some are below 0")
        network.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in stored.items()}, assign=True)
        self.network_ = network.eval()
        super()._set_learned(content, tensors)

    def _undrawn_network(self) -> nn.Module:
        """Return a network without weights: shapes that take neither memory nor time, however large they are."""
        try:
            with torch.device("meta"):
                return self._new_network(self._seen.train)
        except (RuntimeError, TypeError) as error:  # sizes whose product no number of 64 bits holds
            raise BadModelFile(f"no network can be of the size that the stored settings ask for ({error})") from error
