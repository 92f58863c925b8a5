"""Rankings on a device, such as a GPU: products of latents, relevance, and the best of each row, by
torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from deepmf.errors import BadSetting
from deepmf.linalg.largest import find_largest
from deepmf.matrix.arrays import Array, FloatArray, IndexArray
from deepmf.recommend.column_choice import BestColumns, Omitted
from deepmf.recommend.next_ridge import NextRidge
from deepmf.recommend.presence import Presence
from deepmf.recommend.ranker import EncodedRows, NextRanker, Ranker
from deepmf.scoring.confidence import OddsChange
from deepmf.scoring.predictor import Predictor
from deepmf.training.runtime import Runtime

# Cells scored at a time on a GPU by each thread: 0.25 GB of single precision for each of a few
# tables.
_CELLS_ON_GPU = 1 << 26

# Threads that prepare rows and read results while others wait for the GPU.
MOST_GPU_THREADS = 6


class DeviceColumns:
    """The columns to rank, in the order of their places, on a device."""

    def __init__(self, ranker: Ranker, columns: IndexArray, device: str) -> None:
        predictor, relevance = ranker.predictor, ranker.relevance
        has_values = ranker.has_values
        if predictor.moves:
            raise BadSetting(
                f"this model drifts with time or has effects of asked cells, which rankings on device={device!r} have "
                "not; leave out device"
            )
        assert isinstance(predictor, Predictor)
        if has_values and not (predictor.is_stacked and predictor.keys_are_products):
            raise BadSetting(
                f"this model does not rank by products of latents; leave out device={device!r}"
            )
        self._device, self._has_values = Runtime(device).device, has_values
        self._positions = columns
        self._latents = self._send(predictor.stack_columns(columns))
        if relevance is not None:
            self._presence = relevance.presence.model.send(columns, self._device)
            self._popularity = self._send(relevance.popularity[columns])
            self._factors = self._send(relevance.factors[columns])
            self._empty_scores = self._send(relevance.empty_scores[columns])
        self._columns, self._following = self._send(columns), None
        if isinstance(ranker, NextRanker):  # deviations are those over all columns
            self._following, model = ranker.following, ranker.relevance.presence.model
            self._directed = self._following.send(self._device)
            self._undirected = model.send(
                np.arange(ranker.relevance.popularity.shape[-1]), self._device
            )
            self._every_popularity = self._send(ranker.relevance.popularity)
            self._log_recent = self._send(np.log(ranker.relevance.find_recent()))

    @property
    def n_rows_at_a_time(self) -> int | None:
        """The number of rows that are ranked together; None for as many as without a device."""
        return (
            max(_CELLS_ON_GPU // max(len(self._latents), 1), 1)
            if self._device.type == "cuda"
            else None
        )

    def find_best(self, ranker: Ranker, rows: IndexArray, n: int, omitted: Omitted) -> BestColumns:
        """Return the n best columns of each row; ties go to the earlier place, and omitted ones
        have minus infinity."""
        predictor = ranker.predictor
        assert isinstance(predictor, Predictor)
        products = self._send(predictor.stack_rows(rows)) @ self._latents.T
        keys, scores, relevance = products, None, ranker.relevance
        if relevance is not None:
            encoded, presence = relevance.encode_rows(rows), relevance.presence
            scores = self._score(presence, encoded)
            if ranker.rank_by != "value":
                liking_weight = presence.liking_weight
                if self._following is not None:
                    keys, liking_weight = (
                        self._log_next(self._following, encoded),
                        self._following.liking_weight,
                    )
                else:
                    offsets = self._send(relevance.find_offsets(rows))[:, None]
                    keys = presence.log_probabilities(scores, offsets)
                if liking_weight and self._has_values:
                    log_liked = self._log_liked(
                        predictor, presence, products, rows, relevance.repeat_threshold(rows.size)
                    )
                    keys = keys + liking_weight * log_liked
        keys[self._send(omitted.lines), self._send(omitted.places)] = -torch.inf
        keys[:, self._send(omitted.everywhere)] = -torch.inf
        best = find_largest(keys, n)
        at_best = None if scores is None else scores.gather(1, best).cpu().numpy()
        tensors = keys.gather(1, best), best, products.gather(1, best)
        largest, of_best, of_products = (tensor.cpu().numpy() for tensor in tensors)
        return BestColumns(largest, of_best, of_products, at_best)

    def _score(self, presence: Presence, encoded: EncodedRows) -> Tensor:
        """Return the scores (rows, columns) of presence, times powers of popularity."""
        scores = self._presence(encoded.implied_entries)
        scores = presence.add_popularity(scores, self._popularity, self._factors)
        scores[self._send(encoded.are_empty)] = self._empty_scores
        return scores

    def _log_next(self, following: NextRidge, encoded: EncodedRows) -> Tensor:
        """Return the logarithms (rows, columns) of the probabilities that columns come next."""
        entries = encoded.entries
        directed = (score(decay.weigh(encoded.trained_entries)) for decay, score in self._directed)
        scores = following.score(
            entries, self._undirected(encoded.implied_entries), self._every_popularity, directed
        )
        keys: Tensor = following.sharpness * scores
        keys[self._send(encoded.are_empty)] = self._log_recent
        return (keys - keys.logsumexp(dim=1, keepdim=True))[:, self._columns]

    def _log_liked(
        self,
        predictor: Predictor,
        presence: Presence,
        products: Tensor,
        rows: IndexArray,
        thresholds: FloatArray,
    ) -> Tensor:
        """Return the logarithms (rows, columns) of the probabilities that values are at least a
        threshold (rows,)."""
        readout = predictor.readout.as_chosen
        if not readout.gives_distribution:
            ends = self._send(readout.lower_ends(thresholds))[:, None]
            margins = products.double().clamp(readout.scale.low, readout.scale.high) - ends
            log_liked: Tensor = torch.special.log_ndtr(margins / presence.spread)
            return log_liked
        logits = readout.find_logits(predictor.read_rows(rows), thresholds)
        if logits is None:
            raise BadSetting(
                "the probabilities of this model are computed on the CPU alone: set rank_by='value'"
            )
        slopes, cutpoints = (self._send(numbers)[:, None] for numbers in logits)
        odds = products * slopes - cutpoints
        change = predictor.change_odds(rows, self._positions, thresholds)
        if change is not None:
            excess, pooled = (self._send(numbers.astype(np.float32)) for numbers in change)
            odds = OddsChange(excess, pooled).apply(odds)
        return functional.logsigmoid(odds)

    def _send(self, array: Array) -> Tensor:
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self._device)
