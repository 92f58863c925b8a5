"""A problem: the entries that a model is given, and by area those that it is to predict."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from deepmf.data.splits import AreaSplit, Split
from deepmf.errors import NothingObserved
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.model import Model


@dataclass(frozen=True)
class Problem:
    """What a model is given, and by area what it is to predict.

    `extension` describes new rows and columns, where there are any. `choice` holds the validation entries of each
    area, for choosing settings; `test` the entries that are looked at once, at the end.
    """

    train: ObservedMatrix
    validation: ObservedMatrix
    extension: ObservedMatrix | None
    choice: dict[str, ObservedMatrix]
    test: dict[str, ObservedMatrix]

    @classmethod
    def of_split(cls, split: Split) -> Problem:
        """Return the problem of a split whose rows and columns are all known: area I alone."""
        return cls(split.train, split.validation, None, {"I": split.validation}, {"I": split.test})

    @classmethod
    def of_areas(cls, split: AreaSplit) -> Problem:
        """Return the problem of a split by areas; with nothing new there is area I alone."""
        choice = {"I": split.validation} | split.new_validation
        extension = split.extension if split.train.shape != split.extension.shape else None
        return cls(split.train, split.validation, extension, _with_entries(choice), _with_entries(split.test))


def extended_for(model: Model, problem: Problem) -> Model:
    """Return the model with everything that describes new rows and columns, as far as it can take it."""
    if problem.extension is None or model.predicts == ("I",):
        return model
    with some_empty():
        return model.extend(within_reach(model, problem))


@contextmanager
def some_empty() -> Iterator[None]:
    """Take it that some rows and columns of a random split are always empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingObserved)
        yield


def within_reach(model: Model, problem: Problem) -> ObservedMatrix:
    """Return the entries that a model can be extended by: those of known rows, or columns, where it needs them."""
    assert problem.extension is not None
    rows, columns = (
        np.arange(len(new)) if area in model.predicts else np.flatnonzero(known.find(new.array) >= 0)
        for area, new, known in (
            ("II", problem.extension.rows, problem.train.rows),
            ("III", problem.extension.columns, problem.train.columns),
        )
    )
    return problem.extension.take(rows, columns)


def _with_entries(by_area: dict[str, ObservedMatrix]) -> dict[str, ObservedMatrix]:
    return {area: matrix for area, matrix in by_area.items() if matrix.n_entries}
