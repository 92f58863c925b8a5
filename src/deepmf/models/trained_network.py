"""A trained network, as its weights: branches that encode the entries of rows or columns.

A branch is a sparse product, batch norms, ReLU and small dense products. Weights are arrays; only
while a model is fitted on a GPU, they are tensors there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import Array, LatentArray, fetch
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.library import normalise, place_beside
from deepmf.nn.summaries import summarise
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form

# Added to the variances of batch norms, as in training.
_EPSILON = 1e-5

# Vectors that are encoded at a time.
_VECTORS_AT_A_TIME = 1024


class TrainedNetwork:
    """The weights of a trained network by name, and its branches of rows and columns.

    module: the same as a torch module, once it was asked for.
    """

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.weights = weights
        self.rows = TrainedBranch.of(weights, "rows")
        self.columns = TrainedBranch.of(weights, "columns")
        self.module: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickles and deep copies, without the module."""
        return self.__dict__ | {"module": None}

    def pack(self) -> Packed:
        """Return the weights for a model file."""
        return Packed({}, {f"network.{name}": fetch(self.weights[name]) for name in self.weights})


def read_weights(module: Any) -> dict[str, Any]:
    """Return the weights of a torch module: arrays, or tensors where it is on a GPU."""
    weights = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    return {name: tensor if tensor.is_cuda else tensor.numpy() for name, tensor in weights.items()}


def fill_module(module: Any, weights: Mapping[str, Any]) -> Any:
    """Return a torch module on the "meta" device with some weights, for inference."""
    import torch

    tensors = {name: torch.from_numpy(fetch(weights[name])) for name in weights}
    module.load_state_dict(tensors, assign=True)
    return module.eval()


def load_weights(shapes: Mapping[str, tuple[str, Sequence[int]]], tensors: Tensors) -> Tensors:
    """Return the stored weights; others than those of some types and shapes raise
    `BadModelFile`."""
    try:
        # numbers that take no memory, however many they are
        expected = {
            name: np.broadcast_to(np.zeros((), dtype=dtype), shape)
            for name, (dtype, shape) in shapes.items()
        }
    except ValueError as error:  # sizes whose product no number of 64 bits holds
        raise BadModelFile(
            f"a network of the size in the stored settings cannot be built ({error})"
        ) from error
    stored: Tensors = Form.like(expected, "network").read({}, tensors)
    return stored


def describe_branch(
    prefix: str,
    n_inputs: int,
    sizes: Sequence[int],
    *,
    n_summary_features: int = 0,
    n_features: int = 0,
    groups: int = 1,
) -> dict[str, tuple[str, Sequence[int]]]:
    """Return the types and the shapes of the weights of a branch, as `Branch` of `nn/` has them."""
    widths = [groups * size for size in sizes]
    shapes: dict[str, Sequence[int]] = {"first.weight": (n_inputs, widths[0])}
    if n_summary_features:
        shapes["summary_features.weight"] = (widths[0], n_summary_features)
    if n_features:
        shapes["features.weight"] = (widths[0], n_features)
    for at, (n_before, n_after) in enumerate(pairwise(sizes)):
        shape = n_after, n_before
        shapes[f"others.{at}.weight"] = shape if groups == 1 else (groups, *shape)
    for at, width in enumerate(widths):
        for name in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"norms.{at}.{name}"] = (width,)
    counts = {f"norms.{at}.num_batches_tracked": ("int64", ()) for at in range(len(widths))}
    described = {name: ("float32", shape) for name, shape in shapes.items()}
    return {f"{prefix}.{name}": found for name, found in (described | counts).items()}


@dataclass(frozen=True)
class TrainedBranch:
    """The weights of a branch: `first` is (inputs, outputs), of channels where there are summary
    features.

    layers: (outputs, inputs), or (groups, outputs, inputs). norms: scales and shifts (outputs,) of
    batch norms.
    """

    first: Any
    summary_features: Any
    features: Any
    layers: list[Any]
    norms: list[tuple[Any, Any]]

    @classmethod
    def of(cls, weights: Mapping[str, Any], prefix: str) -> TrainedBranch:
        """Return the branch whose weights have a prefix."""
        norms = list[tuple[Any, Any]]()
        while f"{prefix}.norms.{len(norms)}.weight" in weights:
            name = f"{prefix}.norms.{len(norms)}"
            scale = weights[f"{name}.weight"] * (weights[f"{name}.running_var"] + _EPSILON) ** -0.5
            norms.append((scale, weights[f"{name}.bias"] - weights[f"{name}.running_mean"] * scale))
        layers = [weights[f"{prefix}.others.{at}.weight"] for at in range(len(norms) - 1)]
        first = weights[f"{prefix}.first.weight"]
        summary_features = weights.get(f"{prefix}.summary_features.weight")
        return cls(first, summary_features, weights.get(f"{prefix}.features.weight"), layers, norms)

    @property
    def n_outputs(self) -> int:
        """The number of outputs."""
        return int(self.norms[-1][0].shape[0])

    def encode(self, entries: AxisEntries, inputs: Array) -> LatentArray:
        """Return the directions (vectors, outputs) of vectors, with inputs in place of values."""
        numbers = inputs.astype(np.float32), entries.others, entries.starts
        shape = entries.starts.size - 1, len(self.first)
        vectors = scipy.sparse.csr_array(numbers, shape=shape)
        latents = [np.empty((0, self.n_outputs), dtype=np.float32)]
        for start in range(0, shape[0], _VECTORS_AT_A_TIME):
            sums = vectors[start : start + _VECTORS_AT_A_TIME] @ self.first
            latents.append(normalise(self.finish(sums)))
        return np.concatenate(latents)

    def embed_entries(self, indices: Any, units: Any) -> Any:
        """Return the contribution of each entry to the first layer (..., outputs), for a branch
        that reads channels."""
        return self.first[indices] * units[..., None] + self.first[indices + len(self.first) // 2]

    def summarise(self, sums: Any, counts: Any) -> Any:
        """Return what the sums (vectors,) of values and the numbers of entries add to the first
        layer."""
        return summarise(sums, counts) @ self.summary_features.T

    def read_features(self, features: FeatureVectors | None) -> Any:
        """Return what the features of vectors add to the first layer; 0 without features."""
        if features is None or self.features is None:
            return 0.0
        table = np.zeros((len(features.inputs), self.features.shape[1]), dtype=np.float32)
        np.add.at(table, (np.arange(len(table))[:, None], features.inputs), features.weights)
        return place_beside(table, self.features) @ self.features.T

    def finish(self, sums: Any) -> Any:
        """Return the outputs of the first layer's sums (vectors, outputs)."""
        (scale, shift), *other_norms = self.norms
        latents = sums * scale + shift
        for layer, (scale, shift) in zip(self.layers, other_norms, strict=True):
            latents = _multiply(latents.clip(0.0), layer) * scale + shift
        return latents


def _multiply(latents: Any, layer: Any) -> Any:
    """Return the products (vectors, outputs) with a layer, of all groups side by side."""
    if layer.ndim == 2:
        return latents @ layer.T
    by_group = latents.reshape(len(latents), len(layer), -1).swapaxes(0, 1)
    return (by_group @ layer.mT).swapaxes(0, 1).reshape(len(latents), -1)
