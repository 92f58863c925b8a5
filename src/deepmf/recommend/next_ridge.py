"""The directed ridge: which column a row takes next, by the order of its entries.

For every beginning of a row, s weighs its latest entries by their age, exp(-age / length), and t
has the entries that follow, the next one most. With a line of S and T for each beginning, the
weights of all columns are

    B = (S'S + diag(penalty + noise * diag S'S))^-1 S'T

(SLIST: Choi et al., "Session-aware linear item-item models for session-based recommendation",
2021). The sums depend on the places of pairs of entries alone: with W latest entries and n entries
in all, they take n W additions. As in the column ridge, columns are regressed on all others where
these are few, otherwise on those that precede them most often.

A row is scored by several decays, by the column ridge, which knows no order, and by popularity.
Each part is divided by its deviation over the columns of the row; the weights of the parts are
chosen on the last entries of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.recommend.column_ridge import TINY, ColumnRidge, Ridge, Score
from deepmf.scoring.learning import SteadyPart
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, below, not_negative, positive

if TYPE_CHECKING:
    import torch


class Decay(NamedTuple):
    """How entries count by age, as inputs and as targets.

    length: the age, in entries, at which the weight of an input has fallen to 1 / e. window: the
        number of inputs.
    ahead: the number of targets. reach: the distance at which the weight of a target has fallen to
        1 / e.
    """

    length: float
    window: int
    ahead: int = 1
    reach: float = 1.0

    @property
    def inputs(self) -> FloatArray:
        """The weights of the latest entries, by age."""
        return np.exp(-np.arange(self.window) / self.length)

    @property
    def targets(self) -> FloatArray:
        """The weights of the entries that follow."""
        return np.exp(-np.arange(self.ahead) / self.reach)

    def weigh(self, entries: AxisEntries) -> AxisEntries:
        """Return the latest entries of some rows, with weights that the column ridge reads as those
        of their ages."""
        ages = _find_ages(entries)
        latest = entries.select(ages < self.window)
        weights = (
            latest.extras.fill_weights(latest.others.size)
            * self.inputs[ages[ages < self.window]] ** 2
        )
        return AxisEntries(
            latest.starts, latest.others, np.ones(weights.size), extras=Extras(weights=weights)
        )


def _find_ages(entries: AxisEntries) -> IndexArray:
    """Return how many entries of its row are later than each entry."""
    rows = entries.group_of
    ages = np.empty(rows.size, dtype=np.int64)
    ages[entries.extras.sort_within(rows)] = entries.starts[rows + 1] - 1 - np.arange(rows.size)
    return ages


# Those among which held-out entries choose.
_DECAYS = (
    Decay(0.7, 6),
    Decay(1.5, 12),
    Decay(3.0, 20, 5, 1.7),
    Decay(8.0, 40, 5, 1.7),
    Decay(30.0, 100, 10, 3.0),
)

# The share of the rows that must be longer than a decay.
_LONGER = 0.1


def list_decays(lengths: IndexArray) -> list[Decay]:
    """Return the decays that differ on rows of these lengths; windows and targets are no longer
    than the rows."""
    longest, usual = max(int(lengths.max(initial=2)) - 1, 1), np.quantile(lengths, 1 - _LONGER)
    decays = [decay for decay in _DECAYS if decay.length <= usual] or [_DECAYS[0]]
    return [
        decay._replace(window=min(decay.window, longest), ahead=min(decay.ahead, longest))
        for decay in decays
    ]


class NextPart(NamedTuple):
    """A decay, its weights, and how much it counts."""

    decay: Decay
    model: ColumnRidge
    weight: float

    def score(self, entries: AxisEntries) -> Array:
        """Return the scores (rows, trained columns) of rows with these entries."""
        return self.model.score(self.decay.weigh(entries))


@dataclass(frozen=True)
class NextRidge(SteadyPart):
    """Scores what a row takes next.

    undirected, popularity: how much the column ridge and the popularity of columns count.
    sharpness: the probability that a column is the next one is proportional to exp(sharpness *
        score).
    liking_weight: the power of the probability that the value is at least the relevant one.
    allows_repeats: whether rows take columns again; repeats: how much the logarithm of 1 + the
        count of a known column counts then.
    ndcg: NDCG@10 on the last entries of rows. is_default: whether this order is better than
        relevance on held-out entries, beyond doubt.
    """

    parts: tuple[NextPart, ...]
    undirected: float
    popularity: float
    sharpness: float
    liking_weight: float = 0.0
    allows_repeats: bool = False
    repeats: float = 0.0
    ndcg: float = 0.0
    is_default: bool = False

    def score(
        self,
        entries: AxisEntries,
        undirected: Any,
        popularity: Any,
        directed: Iterable[Any] | None = None,
    ) -> Any:
        """Return the scores (rows, columns) of rows with these entries over the trained columns.

        They are an array, or a tensor on a device, as the scores of the parts are.

        undirected, popularity: their scores by the column ridge, and the popularity of columns; of
            all columns.
        directed: their scores by the directed parts; None: computed here.
        """
        scores = self.undirected * scale_rows(undirected)
        if self.popularity:
            scores = scores + self.popularity * scale_rows(popularity)
        directed = (part.score(entries) for part in self.parts) if directed is None else directed
        for part, part_scores in zip(self.parts, directed, strict=True):
            scores[:, : part_scores.shape[1]] += part.weight * scale_rows(part_scores)
        if self.repeats:
            counts = self.find_repeats(entries)
            repeat_scores = counts if isinstance(scores, np.ndarray) else scores.new_tensor(counts)
            scores[entries.group_of, entries.others] += repeat_scores
        return scores

    def find_repeats(self, entries: AxisEntries) -> LatentArray:
        """Return what the columns of entries are scored beside, because they are known."""
        return self.repeats * np.log1p(entries.values).astype(np.float32)

    def send(self, device: torch.device) -> list[tuple[Decay, Score]]:
        """Return the directed parts on a device."""
        return [
            (part.decay, part.model.send(np.arange(part.model.n_trained), device))
            for part in self.parts
        ]

    def explain(
        self, entries: AxisEntries, undirected: ColumnRidge, popularity: LatentArray, column: int
    ) -> tuple[FloatArray, float]:
        """Return by how much each entry of a single row raises the probability that a column comes
        next, and this."""
        undirected_scores = undirected.score(entries)
        keys = self.sharpness * self.score(entries, undirected_scores, popularity)[0].astype(
            np.float64
        )
        of_entries = (
            self.undirected
            / _measure_deviations(undirected_scores)[0, 0]
            * undirected.find_effects(entries, column)
        )
        directed: FloatArray = self.repeats * np.log1p(entries.values) * (entries.others == column)
        for decay, model, weight in self.parts:
            if column < model.n_trained:
                latest = decay.weigh(entries)
                deviation = _measure_deviations(model.score(latest))[0, 0]
                directed[_find_ages(entries) < decay.window] += (
                    weight / deviation * model.find_effects(latest, column)
                )
        without = keys[column] - self.sharpness * (of_entries + directed)
        odds = np.exp(np.append(without, keys[column]) - logsumexp(np.delete(keys, column)))
        chances = odds / (1.0 + odds)
        return chances[-1] - chances[:-1], float(chances[-1])

    def describe_choice(self) -> dict[str, float]:
        """Return what was chosen on held-out entries, by name."""
        decays = {f"next_{part.decay.length:g}": part.weight for part in self.parts}
        weights = {"next_undirected": self.undirected, "next_popularity": self.popularity}
        weights |= {"next_repeats": self.repeats, "allows_repeats": float(self.allows_repeats)}
        return decays | weights | {"next_liking_weight": self.liking_weight, "next_ndcg": self.ndcg}

    def pack(self) -> Packed:
        """Return the numbers as JSON content, and the weights as tensors."""
        decays = [
            part.decay._asdict() | part.model.ridge._asdict() | {"weight": part.weight}
            for part in self.parts
        ]
        content = _NEXT.pack(self, decays=decays).content
        packed = (part.model.pack(prefix=f"next.{at}") for at, part in enumerate(self.parts))
        return Packed(
            content, {name: tensor for tensors in packed for name, tensor in tensors.items()}
        )

    @classmethod
    def unpack(
        cls, content: Any, tensors: Tensors, entries: EntryStore, predictor: Predictor
    ) -> NextRidge:
        """Return the stored part; impossible content raises `BadModelFile`."""
        n_columns = entries.train.shape[1]
        numbers = _NEXT.read(content)
        parts = []
        for at, stored_part in enumerate(numbers.pop("decays")):
            decay, ridge = (
                Decay(*map(stored_part.get, Decay._fields)),
                Ridge(*map(stored_part.get, Ridge._fields)),
            )
            model = ColumnRidge.unpack(tensors, n_columns, ridge, prefix=f"next.{at}")
            parts.append(NextPart(decay, model, stored_part["weight"]))
        return cls(tuple(parts), **numbers)


def scale_rows(scores: Any) -> Any:
    """Return scores (rows, columns), an array or a tensor, each row divided by its deviation."""
    return scores / _measure_deviations(scores)


def _measure_deviations(scores: Any) -> Any:
    if isinstance(scores, np.ndarray):
        deviations = scores.std(axis=-1, keepdims=True)
        return np.where(deviations > TINY, deviations, np.ones_like(deviations))
    deviations = scores.std(dim=-1, correction=0, keepdim=True)
    return deviations.where(deviations > TINY, deviations.new_tensor(1.0))


_bounded = below(1e300)

_NEXT = Form(
    Part(
        "decays",
        Form(
            Part("length", "number", (), positive, _bounded),
            Part("window", "whole", (), positive),
            Part("ahead", "whole", (), positive),
            Part("reach", "number", (), positive, _bounded),
            *(Part(name, "number", (), not_negative, _bounded) for name in Ridge._fields),
            Part("weight", "number", (), _bounded),
        ),
        ("decays",),
    ),
    *(
        Part(name, "number", (), not_negative, _bounded)
        for name in ("undirected", "popularity", "sharpness", "liking_weight", "repeats", "ndcg")
    ),
    Part("allows_repeats", "flag"),
    Part("is_default", "flag"),
)
