"""Presence: the probability that an entry exists, learned from the positions of entries alone.

It is the first factor of the relevance of a column for a row (`relevance.py`). The column ridge (`column_ridge.py`)
scores the columns of a row; `Presence` turns the scores into probabilities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.recommend.column_ridge import ColumnRidge, Ridge
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, below, not_negative, positive

Numbers = TypeVar("Numbers", npt.NDArray[Any], Tensor)  # tensors lie on the device of a fit

# Scores may be negative; below this size they are smoothly turned into small positive numbers.
_SMALL_SCORE = 0.01

# The popularity whose powers are 1, so that no score becomes tiny.
_UNIT_POPULARITY = 0.01


@dataclass(frozen=True)
class Presence:
    """A column ridge, and how its scores become probabilities and relevance.

    The popularity of a column is its share of the rows. The odds that an entry exists are

        exp(intercept) * ((score + popularity_share * popularity) * popularity^popularity_power)^score_power

    liking_weight: w, the power of the probability that the value is at least the relevant one.
    spread: the standard deviation of held-out residuals, for models that predict values alone.
    ndcg, popularity_ndcg: NDCG@10 on held-out entries, of rankings by relevance and by popularity; 0 if there are none.
    """

    model: ColumnRidge
    intercept: float = 0.0
    score_power: float = 1.0
    popularity_share: float = 0.0
    popularity_power: float = 0.0
    liking_weight: float = 1.0
    spread: float = 1.0
    ndcg: float = 0.0
    popularity_ndcg: float = 0.0

    @property
    def kind(self) -> str:
        """The kind of the column ridge: "full" or "nearest"."""
        return self.model.kind

    def extend(self, entries: EntryStore, columns: IndexArray) -> Presence:
        """Return a presence that also scores new columns."""
        model = self.model.extend(entries, columns)
        return self if model is self.model else replace(self, model=model)

    def without_columns(self, columns: IndexArray) -> Presence:
        """Return a presence without some new columns."""
        model = self.model.without_columns(columns)
        return self if model is self.model else replace(self, model=model)

    def describe_choice(self) -> dict[str, float]:
        """Return what was chosen on held-out entries, by name."""
        return {
            "presence_penalty": self.model.ridge.penalty,
            "presence_noise": self.model.ridge.noise,
            "count_weight": self.model.count_weight,
            "popularity_share": self.popularity_share,
            "popularity_power": self.popularity_power,
            "liking_weight": self.liking_weight,
            "presence_ndcg": self.ndcg,
            "popularity_ndcg": self.popularity_ndcg,
        }

    def pack(self) -> Packed:
        """Return the numbers as JSON content, and the model as tensors."""
        of_model = self.model.ridge._asdict() | {"count_weight": self.model.count_weight}
        return Packed(_PRESENCE.pack(self, **of_model).content, self.model.pack())

    @classmethod
    def unpack(cls, content: Any, tensors: Tensors, entries: EntryStore) -> Presence:
        """Return the stored presence; impossible contents raise `BadModelFile`."""
        found = _PRESENCE.read(content)
        ridge, count_weight = Ridge(*(found.pop(name) for name in Ridge._fields)), found.pop("count_weight")
        return cls(ColumnRidge.unpack(tensors, entries, ridge, count_weight), **found)

    def scale_popularity(self, amount: float, usual: float) -> Presence:
        """Return a presence whose scores favour popular columns more or less: 1 as learned, 0 not at all.

        Both terms of popularity are scaled, and the scores divided by popularity to the power 1 - amount. The odds of a
        column with the usual popularity keep their size: where all odds are large, relevance is liking alone.
        """
        share, power = amount * self.popularity_share, amount * self.popularity_power + amount - 1
        shift = (self.popularity_power - power) * math.log(usual / _UNIT_POPULARITY) * self.score_power
        return replace(self, intercept=self.intercept + shift, popularity_share=share, popularity_power=power)

    def add_popularity(self, scores: Numbers, popularity: Numbers, raised: Numbers) -> Numbers:
        """Return scores (rows, columns) blended with popularity (columns,), times popularity raised to its power."""
        blended = scores + self.popularity_share * popularity if self.popularity_share else scores
        weighted: Numbers = blended * raised if self.popularity_power else blended
        return weighted

    def raise_popularity(self, popularity: Numbers) -> Numbers:
        """Return popularity to its power."""
        raised: Numbers = (popularity / _UNIT_POPULARITY) ** self.popularity_power
        return raised

    def log_probabilities(self, scores: Numbers) -> Numbers:
        """Return the logarithms of the probabilities that entries exist, from scores times powers of popularity."""
        log_odds: Numbers = self.intercept + self.score_power * _find_library(scores).log(make_positive(scores))
        if isinstance(log_odds, Tensor):
            return functional.logsigmoid(log_odds)
        found: Numbers = -np.logaddexp(0.0, -log_odds)
        return found

    def score_of(self, log_probability: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the scores times powers of popularity that have these probabilities, minus infinity for P = 0."""
        with np.errstate(divide="ignore", over="ignore"):
            log_odds = log_probability - np.log(-np.expm1(log_probability))
            positive = np.exp((log_odds - self.intercept) / self.score_power)
            found: npt.NDArray[Any] = positive - _SMALL_SCORE**2 / (4 * positive)
        return found


def make_positive(scores: Numbers) -> Numbers:
    """Return scores as positive numbers in the same order; large scores hardly change."""
    library = _find_library(scores)
    sums = library.sqrt(library.square(scores) + _SMALL_SCORE**2) + library.abs(scores)
    positive: Numbers = library.where(scores > 0, sums / 2, _SMALL_SCORE**2 / (2 * sums))
    return positive


def _find_library(numbers: Any) -> Any:
    """Return numpy for an array, torch for a tensor."""
    return torch if isinstance(numbers, Tensor) else np


_bounded = below(1e300)

_PRESENCE = Form(
    Part("penalty", "number", (), not_negative, _bounded),
    Part("noise", "number", (), not_negative, _bounded),
    Part("count_weight", "number", (), not_negative, _bounded),
    Part("intercept", "number", (), _bounded),
    Part("score_power", "number", (), positive, _bounded),
    Part("popularity_share", "number", (), _bounded),
    Part("popularity_power", "number", (), _bounded),
    Part("liking_weight", "number", (), not_negative, _bounded),
    Part("spread", "number", (), positive),  # in the unit of the scale
    Part("ndcg", "number", (), _bounded),
    Part("popularity_ndcg", "number", (), _bounded),
)
