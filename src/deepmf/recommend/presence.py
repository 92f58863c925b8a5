"""Presence: the probability that an entry exists, learned from the positions of entries alone.

It is the first factor of the relevance of a column for a row (`relevance.py`). A presence model, EASE or weighted ALS,
scores the columns of a row; `Presence` turns the scores into probabilities.
"""

from __future__ import annotations

import reprlib
import sys
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.recommend.ease import Ease
from deepmf.recommend.presence_model import Numbers, PresenceModel
from deepmf.recommend.weighted_als import WeightedALS
from deepmf.storage.model_file import Packed, Tensors, read_field

# The largest number of columns of EASE: its weights then take 150 MB, and the inverse a few seconds.
MOST_EASE_COLUMNS = 6000

# Scores of EASE may be negative; below this size they are smoothly turned into small positive numbers.
_SMALL_SCORE = 0.01


@dataclass(frozen=True)
class Presence:
    """A presence model, and how its scores become probabilities and relevance.

    The popularity of a column is its share of the rows. The odds that an entry exists are

        exp(intercept) * ((score + popularity_share * popularity) * popularity^popularity_power)^score_power

    liking_weight: w, the power of the probability that the value is at least the relevant one.
    spread: the standard deviation of held-out residuals, for models that predict values alone.
    ndcg, popularity_ndcg: NDCG@10 on held-out entries, of rankings by relevance and by popularity; 0 if there are none.
    """

    model: PresenceModel
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
        """The kind of the presence model: one of `MODELS`."""
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
            "presence_penalty": self.model.penalty,
            "count_weight": self.model.count_weight,
            "popularity_share": self.popularity_share,
            "popularity_power": self.popularity_power,
            "liking_weight": self.liking_weight,
            "presence_ndcg": self.ndcg,
            "popularity_ndcg": self.popularity_ndcg,
        }

    def pack(self) -> Packed:
        """Return the kind and the numbers as JSON content, and the model as tensors."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        of_model = {"kind": self.kind, "penalty": self.model.penalty, "count_weight": self.model.count_weight}
        return Packed(of_model | numbers, self.model.pack())

    @classmethod
    def unpack(cls, content: Any, tensors: Tensors, entries: EntryStore) -> Presence:
        """Return the stored presence; impossible contents raise `BadModelFile`."""
        names = ("penalty", "count_weight", *_NUMBERS)
        kind, penalty, count_weight, *numbers = (read_field(content, name) for name in ("kind", *names))
        if kind not in MODELS:
            raise BadModelFile(f"the stored presence must be {' or '.join(MODELS)}; got {reprlib.repr(kind)}")
        for name, number in zip(names, (penalty, count_weight, *numbers), strict=True):
            largest = sys.float_info.max if name == "spread" else _LARGEST_NUMBER  # a spread has the scale's unit
            if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= largest:
                raise BadModelFile(f"the stored presence must have a number as {name}; got {reprlib.repr(number)}")
        model = MODELS[kind].unpack(tensors, entries, float(penalty), float(count_weight))
        found = cls(model, *map(float, numbers))
        if found.score_power <= 0 or found.spread <= 0 or found.liking_weight < 0 or count_weight < 0:
            raise BadModelFile(
                "the stored presence must have a positive score_power and spread, and no negative weight"
            )
        return found

    def add_popularity(self, scores: Numbers, popularity: Numbers, raised: Numbers) -> Numbers:
        """Return scores (rows, columns) blended with popularity (columns,), times popularity raised to its power."""
        blended = scores + self.popularity_share * popularity if self.popularity_share else scores
        weighted: Numbers = blended * raised if self.popularity_power else blended
        return weighted

    def raise_popularity(self, popularity: Numbers) -> Numbers:
        """Return popularity to its power."""
        raised: Numbers = (popularity / 0.01) ** self.popularity_power  # no score becomes tiny
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


def choose_kind(n_columns: int) -> str:
    """Return the kind of presence model for a number of columns.

    EASE ranks held-out entries of MovieLens-100K and 1M better than weighted ALS, and takes a fraction of the time.
    """
    return "ease" if n_columns <= MOST_EASE_COLUMNS else "weighted-als"


MODELS: dict[str, type[PresenceModel]] = {"ease": Ease, "weighted-als": WeightedALS}

_NUMBERS = tuple(field.name for field in fields(Presence) if field.name != "model")
_LARGEST_NUMBER = 1e300
