"""What a part of a model learns from, and what a part does that changes of a model leave alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_entries import PlacedEntries
from deepmf.matrix.entries import ChangedStore, EntryStore, ForgetPlan
from deepmf.scoring.pairs import PairFunction
from deepmf.scoring.predictor import Predictor

PredictFold = Callable[[int], tuple[Predictor, PairFunction]]


@dataclass(frozen=True)
class AskedCells:
    """Entries of cells that nobody chose.

    cells: by positions of trained rows and columns. fold_of: the fold of each cell. predict_fold:
    returns a predictor that has not seen the cells of a fold, and the function of its means.
    """

    cells: PlacedEntries
    fold_of: IndexArray
    predict_fold: PredictFold


@dataclass(frozen=True)
class Learning:
    """What a part of a model learns from.

    entries, predictor: the training entries, and what was learned from their values.
    held_out: the validation entries; None without any.
    asked: the asked cells; None without any.
    settings: the settings of the model, by name.
    folds_in: whether the predictor can encode new rows.
    device: the name of the device to fit on.
    parts: the parts that were fitted before, by name.
    """

    entries: EntryStore
    predictor: Predictor
    held_out: PlacedEntries | None
    asked: AskedCells | None
    settings: Mapping[str, Any]
    folds_in: bool
    device: str
    parts: Mapping[str, Any] = field(default_factory=dict)


class SteadyPart:
    """A part that neither new nor forgotten entries change, and that leaves predictions alone."""

    def extend(self, change: ChangedStore) -> Self:
        """Return the part after an extension."""
        return self

    def forget(self, plan: ForgetPlan, change: ChangedStore) -> Self:
        """Return the part without what was learned from forgotten rows and columns alone."""
        return self

    def adapt(self, predictor: Predictor) -> Predictor:
        """Return a predictor that predicts with this part."""
        return predictor

    def describe_choice(self) -> dict[str, float]:
        """Return what was chosen on held-out entries, by name."""
        return {}
