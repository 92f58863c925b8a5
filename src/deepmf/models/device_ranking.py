"""Rankings by value on a device, such as a GPU: products of latents, and the largest of each row, by torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import IndexArray
from deepmf.models.predictor import Predictor, Readout
from deepmf.models.relevance import Ranker, RelevanceRanker
from deepmf.training.runtime import Runtime

# Cells scored at a time on a GPU: 0.5 GB of single precision, and as much again to find the largest.
_CELLS_ON_GPU = 1 << 27


class LargestKeys(NamedTuple):
    """Keys of rankings, and the line and the place of each."""

    lines: IndexArray
    places: IndexArray
    keys: npt.NDArray[Any]


class DeviceColumns:
    """The latents of the columns to rank, in the order of their places, on a device."""

    def __init__(self, ranker: Ranker, columns: IndexArray, device: str) -> None:
        predictor = ranker.predictor
        if isinstance(ranker, RelevanceRanker):
            raise BadSetting(f"device={device!r} ranks columns by value; set rank_by='value'")
        if ranker.drift is not None:
            raise BadSetting(f"this model drifts with time, and device={device!r} ranks without; leave out device")
        ranks_by_products = predictor.readout.ranks_by_products or type(predictor.readout).scores is Readout.scores
        if type(predictor) is not Predictor or not ranks_by_products:  # subclasses score in their own way
            raise BadSetting(f"this model does not rank by products of latents; leave out device={device!r}")
        self._rows, self._device = predictor.rows, Runtime(device).device
        self._latents = self._send(predictor.columns.take(columns))

    @property
    def n_rows_at_a_time(self) -> int | None:
        """The number of rows that are ranked together; None for as many as without a device."""
        return max(_CELLS_ON_GPU // max(len(self._latents), 1), 1) if self._device.type == "cuda" else None

    def find_largest(
        self, rows: IndexArray, n: int, lines: IndexArray, places: IndexArray, everywhere: IndexArray
    ) -> LargestKeys:
        """Return the n largest keys of each row, and more if several are equal to the n-th.

        lines, places: the pairs that are left out. everywhere: the places that are left out in all lines.
        """
        keys = self._send(self._rows.take(rows)) @ self._latents.T
        keys[self._send(lines), self._send(places)] = -torch.inf
        keys[:, self._send(everywhere)] = -torch.inf
        least = keys.topk(n).values[:, -1:]
        found = ((keys >= least) & (keys > -torch.inf)).nonzero(as_tuple=True)
        return LargestKeys(*(each.cpu().numpy() for each in (*found, keys[found])))

    def _send(self, array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self._device)
