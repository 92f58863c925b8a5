"""The base class of models that train a network, which also encodes the entries of rows and
columns.

torch is imported where a network is trained, or where a network of the paper answers.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deepmf.errors import BadModelFile, MissingDependency
from deepmf.matrix.arrays import Array
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.fitting import Fitting
from deepmf.models.trained_network import TrainedNetwork, fill_module
from deepmf.scoring.encoders import Encoder
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form
from deepmf.training.devices import has_torch
from deepmf.training.settings import TrainingSettings, TwoBranchSettings

if TYPE_CHECKING:
    from torch import nn

    from deepmf.nn.inputs import SparseVectors
    from deepmf.training.memory import FitBytes
    from deepmf.training.trainer import Trainer


class TrainedEncoder(Encoder):
    """An encoder by the weights of a trained network, which needs no torch."""

    def __init__(self, network: TrainedNetwork) -> None:
        self.network = network

    def pack(self) -> Packed:
        return self.network.pack()


class NetworkEncoder(Encoder):
    """An encoder that is a trained network."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def pack(self) -> Packed:
        state = self.network.state_dict()
        return Packed(
            {}, {f"network.{name}": tensor.cpu().numpy() for name, tensor in state.items()}
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickles and deep copies, with the network on the CPU."""
        return self.__dict__ | {"network": copy.deepcopy(self.network).to("cpu")}


class NetworkModel(Model):
    """The base class of models that train a network."""

    settings: TrainingSettings

    @property
    def network_(self) -> Any:
        """The trained network."""
        encoder = self.predictor_.encoder
        assert isinstance(encoder, NetworkEncoder | TrainedEncoder)
        return self._find_module(encoder.network)

    def _find_module(self, network: Any) -> Any:
        """Return a trained network as a torch module."""
        if not isinstance(network, TrainedNetwork):
            return network
        if network.module is None:
            network.module = self._fill_network(self.entries_, network.weights)
        return network.module

    @abstractmethod
    def _new_network(self, entries: EntryStore) -> nn.Module:
        """Return a network for the entries of a matrix and their features, with fresh weights."""

    @abstractmethod
    def _wrap_network(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        """Return the predictor of a trained network; called without gradients."""

    @property
    def _latent_width(self) -> int:
        """The width of the latents of a row or column; 0 if they are not kept."""
        return 0

    def _count_read(self, train: ObservedMatrix) -> float:
        """Return the average number of entries that a step reads: those of the rows and the columns
        of a block."""
        if not isinstance(self.settings, TwoBranchSettings):
            return 0.0  # batches of whole rows or columns
        blocks = self.settings.block_rows, self.settings.block_columns
        return train.n_entries * sum(
            min(block / n, 1.0) for block, n in zip(blocks, train.shape, strict=True)
        )

    def _choose_settings(self, train: ObservedMatrix) -> dict[str, Any]:
        if not has_torch():
            name = type(self).__name__
            raise MissingDependency(f"{name} is fitted by torch: install it with pip install torch")
        return {}

    def _estimate_bytes(self, entries: EntryStore) -> FitBytes:
        import torch

        from deepmf.training.memory import estimate_fit_bytes
        from deepmf.training.runtime import Runtime

        train, settings = entries.train, self.settings
        runtime = Runtime(settings.device, settings.precision)
        with torch.device("meta"):  # shapes that take neither memory nor time
            network = self._new_network(entries)
        width, n_read = self._latent_width, self._count_read(train)
        return estimate_fit_bytes(
            network, train, settings, runtime, latent_width=width, n_read=n_read
        )

    def _make_predictor(self, task: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        import torch

        from deepmf.nn.branch import use_generator

        task.join()
        network = task.network.eval()
        # it is drawn from in training alone, and no pickle could hold it
        use_generator(network, None)
        with torch.no_grad():
            return self._wrap_network(task, entries, fitting)

    def _load_network(self, entries: EntryStore, tensors: Tensors) -> Any:
        """Return the network with the stored weights; weights that do not fit the settings raise
        `BadModelFile`."""
        import torch

        try:
            # shapes that take neither memory nor time, however large they are
            with torch.device("meta"):
                network = self._new_network(entries)
        except (RuntimeError, TypeError) as error:  # sizes whose product no number of 64 bits holds
            raise BadModelFile(
                f"a network of the size in the stored settings cannot be built ({error})"
            ) from error
        return fill_module(network, Form.like(network.state_dict(), "network").read({}, tensors))

    def _fill_network(self, entries: EntryStore, weights: Mapping[str, Any]) -> Any:
        """Return a torch module with some weights."""
        import torch

        with torch.device("meta"):
            network = self._new_network(entries)
        return fill_module(network, weights)


def make_sparse_vectors(entries: AxisEntries, inputs: Array) -> SparseVectors:
    """Return rows or columns as inputs of a network: their entries, with inputs in place of
    values."""
    import torch

    from deepmf.nn.inputs import SparseVectors, make_feature_batch

    arrays = (
        torch.from_numpy(np.array(array)) for array in (*entries[:2], inputs.astype(np.float32))
    )
    weights = entries.extras.weights
    roots = None if weights is None else torch.from_numpy(np.sqrt(weights).astype(np.float32))
    return SparseVectors(*arrays, features=make_feature_batch(entries.features), roots=roots)
