"""Rankings by value on a device, such as a GPU: products of latents, and the largest of each row, by torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import IndexArray
from deepmf.models.predictor import Predictor, Readout
from deepmf.models.ranking import BestSoFar, ColumnChoice, Omitted
from deepmf.models.relevance import Ranker, RelevanceRanker
from deepmf.training.runtime import Runtime

# Cells scored at a time on a GPU: 0.5 GB of single precision, and as much again to find the largest.
_CELLS_ON_GPU = 1 << 27


class DeviceColumns:
    """The latents of the columns to rank, on a device."""

    def __init__(self, ranker: Ranker, choice: ColumnChoice, device: str) -> None:
        predictor = ranker.predictor
        if isinstance(ranker, RelevanceRanker):
            raise BadSetting(f"device={device!r} ranks columns by value; set rank_by='value'")
        ranks_by_products = predictor.readout.ranks_by_products or type(predictor.readout).scores is Readout.scores
        if type(predictor) is not Predictor or not ranks_by_products:  # subclasses score in their own way
            raise BadSetting(f"this model does not rank by products of latents; leave out device={device!r}")
        self._rows, self._device = predictor.rows, Runtime(device).device
        self._latents = self._send(predictor.columns.take(choice.columns(np.arange(choice.n_places))))

    @property
    def n_rows_at_a_time(self) -> int | None:
        """The number of rows that are ranked together; None for as many as without a device."""
        return max(_CELLS_ON_GPU // max(len(self._latents), 1), 1) if self._device.type == "cuda" else None

    def find_best(self, rows: IndexArray, n: int, omitted: Omitted) -> BestSoFar:
        """Return the n largest keys of each row; ties go to the earlier place."""
        best = BestSoFar(rows.size, n)
        keys = self._send(self._rows.take(rows)) @ self._latents.T
        keys[self._send(omitted.lines), self._send(omitted.places)] = -torch.inf
        keys[:, self._send(omitted.everywhere)] = -torch.inf
        least = keys.topk(n).values[:, -1:]
        found = (keys >= least) & (keys > -torch.inf)
        lines, places = found.nonzero(as_tuple=True)
        best.merge(lines.cpu().numpy(), places.cpu().numpy(), keys[lines, places].cpu().numpy())
        return best

    def _send(self, array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self._device)
