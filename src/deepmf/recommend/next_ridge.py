"""The directed ridge: which column a row takes next, by the order of its entries.

For every beginning of a row, s weighs its latest entries by their age, exp(-age / length), and t
has the entries that follow, the next one most. With a line of S and T for each beginning, the
weights of all columns are

    B = (S'S + diag(penalty + noise * diag S'S))^-1 S'T

(SLIST: Choi et al., "Session-aware linear item-item models for session-based recommendation",
2021). The sums depend on the places of pairs of entries alone: with W latest entries and n entries
in all, they take n W additions. As in the column ridge, columns are regressed on all others where
these are few, otherwise on those that precede them most often.

A row is scored by several decays, by its neighbours, by the column ridge, which knows no order, and
by popularity. Each part is divided by its deviation over the columns of the row; the weights of the
parts are chosen on the last entries of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import ChangedStore, EntryStore, ForgetPlan
from deepmf.recommend.column_ridge import TINY, ColumnRidge, Ridge, Score
from deepmf.recommend.next_neighbours import Memory
from deepmf.recommend.sequences import Decay, Histories, find_ages
from deepmf.scoring.learning import SteadyPart
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, below, not_negative, positive

if TYPE_CHECKING:
    import torch


# Those among which held-out entries choose.
MEMORIES = (Memory(Decay(2.0, 6, 3), 2.0), Memory(Decay(6.0, 20, 2, 0.67), 3.0))
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
        return self.model.score(self.decay.weigh(entries.below(self.model.n_trained)))


@dataclass(frozen=True)
class NextRidge(SteadyPart):
    """Scores what a row takes next.

    memories: how neighbours vote. histories: the sequences of all rows, among which they are found.
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
    histories: Histories
    undirected: float
    popularity: float
    sharpness: float
    memories: tuple[Memory, ...] = ()
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
        """Return the scores (rows, columns) of rows with these entries.

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
        for memory in self.memories:
            votes = memory.weight * scale_rows(memory.score(entries, self.histories))
            scores += votes if isinstance(scores, np.ndarray) else scores.new_tensor(votes)
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
        for memory in self.memories:
            deviation = _measure_deviations(memory.score(entries, self.histories))[0, 0]
            effects = memory.find_effects(entries, self.histories, column)
            directed += memory.weight / deviation * effects
        for decay, model, weight in self.parts:
            if column < model.n_trained:
                latest = decay.weigh(entries)
                deviation = _measure_deviations(model.score(latest))[0, 0]
                directed[find_ages(entries) < decay.window] += (
                    weight / deviation * model.find_effects(latest, column)
                )
        without = keys[column] - self.sharpness * (of_entries + directed)
        odds = np.exp(np.append(without, keys[column]) - special.logsumexp(np.delete(keys, column)))
        chances = odds / (1.0 + odds)
        return chances[-1] - chances[:-1], float(chances[-1])

    def extend(self, change: ChangedStore) -> NextRidge:
        """Return the part with the neighbours of an extension."""
        return replace(self, histories=self.histories.update(change.entries))

    def forget(self, plan: ForgetPlan, change: ChangedStore) -> NextRidge:
        """Return the part without forgotten neighbours."""
        return self.extend(change)

    def describe_choice(self) -> dict[str, float]:
        """Return what was chosen on held-out entries, by name."""
        decays = {f"next_{part.decay.length:g}": part.weight for part in self.parts}
        decays |= {
            f"next_neighbours_{memory.decay.length:g}": memory.weight for memory in self.memories
        }
        weights = {"next_undirected": self.undirected, "next_popularity": self.popularity}
        weights |= {"next_repeats": self.repeats, "allows_repeats": float(self.allows_repeats)}
        return decays | weights | {"next_liking_weight": self.liking_weight, "next_ndcg": self.ndcg}

    def pack(self) -> Packed:
        """Return the numbers as JSON content, and the weights as tensors."""
        decays = [
            part.decay._asdict() | part.model.ridge._asdict() | {"weight": part.weight}
            for part in self.parts
        ]
        memories = [
            memory.decay._asdict() | {"power": memory.power, "weight": memory.weight}
            for memory in self.memories
        ]
        content = _NEXT.pack(self, decays=decays, memories=memories).content
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
            decay = Decay(*map(stored_part.get, Decay._fields))
            ridge = Ridge(*map(stored_part.get, Ridge._fields))
            model = ColumnRidge.unpack(tensors, n_columns, ridge, prefix=f"next.{at}")
            parts.append(NextPart(decay, model, stored_part["weight"]))
        memories = tuple(
            Memory(Decay(*map(stored.get, Decay._fields)), stored["power"], stored["weight"])
            for stored in numbers.pop("memories") or ()
        )
        return cls(tuple(parts), Histories(entries), memories=memories, **numbers)


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

# Entries of a row that a stored decay weighs.
_MOST_WEIGHED = 1 << 16

_DECAY = (
    Part("length", "number", (), positive, _bounded),
    Part("window", "whole", (), positive, below(_MOST_WEIGHED)),
    Part("ahead", "whole", (), positive, below(_MOST_WEIGHED)),
    Part("reach", "number", (), positive, _bounded),
    Part("weight", "number", (), _bounded),
)

_NEXT = Form(
    Part(
        "decays",
        Form(
            *_DECAY, *(Part(name, "number", (), not_negative, _bounded) for name in Ridge._fields)
        ),
        ("decays",),
    ),
    Part(
        "memories",
        Form(*_DECAY, Part("power", "number", (), not_negative, _bounded)),
        ("memories",),
        optional=True,
    ),
    *(
        Part(name, "number", (), not_negative, _bounded)
        for name in ("undirected", "popularity", "sharpness", "liking_weight", "repeats", "ndcg")
    ),
    Part("allows_repeats", "flag"),
    Part("is_default", "flag"),
)
