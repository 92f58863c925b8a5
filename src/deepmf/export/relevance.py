"""Relevance as a torch module, which `export_onnx` writes to relevance.onnx."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from deepmf.models.base import Model
from deepmf.models.predictor import LEAST_PROBABILITY
from deepmf.models.presence import SMALL_SCORE, Ease, Presence

OUTPUTS = ("presence", "liked", "relevance")


class RelevanceModule(nn.Module):
    """Both probabilities of relevance and their product, for rows with some entries and all columns of a model.

    inputs: the names of its inputs: "row_values" (rows, trained columns), NaN where nothing is observed, and the output
        of the head that liking is read from.
    """

    weights: Tensor
    diagonal: Tensor
    co_counts: Tensor
    popularity: Tensor
    raised: Tensor
    levels: Tensor | None
    lower_ends: Tensor
    edges: Tensor | None

    def __init__(self, model: Model, presence: Presence, scored: str) -> None:
        super().__init__()
        ease, readout = presence.model, model.predictor_.readout
        assert isinstance(ease, Ease)
        popularity = model.rankers_.popularity
        self.inputs = ("row_values", scored)
        self._presence, self._mean = presence, model.rankers_.entries.train.mean
        levels = model.scale_.levels
        first = np.zeros(1, dtype=np.int64)
        edges = model.predictor_.distribution(first, first).edges if readout.gives_distribution else None
        self.register_buffer("weights", torch.tensor(ease.weights))
        self.register_buffer("diagonal", torch.tensor(ease.diagonal))
        self.register_buffer("co_counts", torch.tensor(ease.co_counts.toarray()))
        self.register_buffer("popularity", torch.tensor(popularity))
        self.register_buffer("raised", torch.tensor(model.rankers_.factors))
        self.register_buffer("levels", None if levels is None else torch.tensor(levels, dtype=torch.float32))
        ends = np.empty(0) if levels is None else np.maximum(readout.lower_ends(levels), -1e30)  # the first is infinite
        self.register_buffer("lower_ends", torch.tensor(ends, dtype=torch.float32))
        self.register_buffer("edges", None if edges is None else torch.tensor(edges, dtype=torch.float32))

    def forward(self, row_values: Tensor, scored: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return presence, liked and relevance, each (rows, columns)."""
        taken = (~row_values.isnan()).float()
        presence = self._find_presence(taken)
        liked = self._find_liked(scored, self._find_thresholds(row_values.nan_to_num(0.0), taken))
        liked = liked.clamp(min=LEAST_PROBABILITY)
        return presence, liked, presence * liked**self._presence.liking_weight

    def _find_presence(self, taken: Tensor) -> Tensor:
        """Return the probabilities that entries exist, as `Presence.log_probabilities` does."""
        scores = taken @ self.weights
        scores = torch.cat([scores, ((taken - scores) * self.diagonal) @ self.co_counts.T], dim=1)
        scores = torch.where(taken.sum(dim=1, keepdim=True) > 0, scores, self.popularity)
        scores = scores + self._presence.popularity_share * self.popularity
        if self._presence.popularity_power:
            scores = scores * self.raised
        sums = (scores.square() + SMALL_SCORE**2).sqrt() + scores.abs()
        positive = torch.where(scores > 0, sums / 2, SMALL_SCORE**2 / (2 * sums))
        return torch.sigmoid(self._presence.intercept + self._presence.score_power * positive.log())

    def _find_thresholds(self, values: Tensor, taken: Tensor) -> Tensor:
        """Return from which values on each row likes a column, (rows, 1): its mean, rounded up to a level."""
        counts = taken.sum(dim=1, keepdim=True)
        means = torch.where(counts > 0, values.sum(dim=1, keepdim=True) / counts.clamp(min=1.0), self._mean)
        if self.levels is None:
            return means
        close = 1e-5 * (self.levels[-1] - self.levels[0])  # single precision may exceed a level
        above = (self.levels < means - close).sum(dim=1).clamp(max=len(self.levels) - 1)
        return self.lower_ends[above][:, None]

    def _find_liked(self, scored: Tensor, thresholds: Tensor) -> Tensor:
        """Return the probabilities that values reach the thresholds, from distributions or from predictions."""
        if self.edges is None:
            return 0.5 * torch.erfc((thresholds - scored) / (self._presence.spread * 2**0.5))
        low, widths = self.edges[:-1], (self.edges[1:] - self.edges[:-1]).clamp(min=1e-30)
        above = 1.0 - ((thresholds[:, :, None] - low) / widths).clamp(0.0, 1.0)  # the part of each bin
        return (scored * above).sum(dim=2)
