"""A model in a few lines: its class says how rows are solved given columns, and columns given
rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from deepmf.matrix.arrays import Array, FloatArray, LatentArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import AREAS
from deepmf.models.solver import Arrays, FactorModel, Solver
from deepmf.scoring.encoders import SolvingEncoder
from deepmf.scoring.latents import Latents, multiply_each
from deepmf.training.settings import WIDEST, LoopSettings, Settings, setting, settings_dataclass


@settings_dataclass
class SimpleSettings(LoopSettings):
    """The settings of every simple model."""

    latent_size: int = setting(
        10, "Number of factors; at most the smaller side of the matrix.", low=1, high=WIDEST
    )


class SimpleModel(FactorModel):
    """The base class of models of the form mean + row factors x column factors; they cover all four
    areas.

    A model class defines `solve_rows` and `solve_columns`, which depend on their arguments and on
    `settings` alone. An epoch calls one after the other, from random factors of the columns;
    `extend` and `fold_in` call them for new rows and columns. If there are more settings than those
    of `SimpleSettings`, the class declares `settings_class`.

    In `entries`, the values are those of the matrix minus the mean of training, and
    `entries.groups()` yields the positions and the values of each row (or column).
    """

    settings_class: ClassVar[type[Settings]] = SimpleSettings
    predicts: ClassVar[tuple[str, ...]] = AREAS
    cannot: ClassVar[str] = ""
    n_beside: ClassVar[int] = 1  # the mean, and the constant by which it is multiplied

    @abstractmethod
    def solve_rows(self, entries: AxisEntries, columns: FloatArray) -> FloatArray:
        """Return the factors (rows, latent) of rows with these entries, given the factors of all
        trained columns."""

    @abstractmethod
    def solve_columns(self, entries: AxisEntries, rows: FloatArray) -> FloatArray:
        """Return the factors (columns, latent) of columns with these entries, given the factors of
        all trained rows."""

    def _solve(self, axis: Axis, entries: AxisEntries, others: FloatArray) -> FloatArray:
        """Return what the class solves for, of the shape that it promises."""
        factors = (self.solve_rows if axis == "row" else self.solve_columns)(entries, others)
        shape = entries.starts.size - 1, others.shape[1]
        if np.shape(factors) != shape:
            raise ValueError(
                f"solve_{axis}s must return an array of the shape {shape}; it has {np.shape(factors)}"
            )
        return factors

    def _make_solver(self, entries: EntryStore) -> SimpleSolver:
        return SimpleSolver(self, entries, self._count_latents(entries.train))

    def _make_encoder(self, solver: Any, entries: EntryStore) -> SimpleEncoder:
        return SimpleEncoder(type(self)(**self.settings.to_dict()), entries.train.mean)


class SimpleSolver(Solver):
    """Solves for all rows and for all columns in turn."""

    def __init__(self, model: SimpleModel, entries: EntryStore, size: int) -> None:
        n_rows, n_columns = entries.train.shape
        self._model, self.mean = model, entries.train.mean
        self._by_row = subtract_mean(entries.row_entries(np.arange(n_rows)), self.mean)
        self._by_column = subtract_mean(entries.column_entries(np.arange(n_columns)), self.mean)
        self.rows = np.zeros((n_rows, size))
        self.columns = np.random.default_rng(model.settings.seed).standard_normal((n_columns, size))

    def sweep(self) -> float:
        """Solve for the rows, then for the columns; return the root mean squared error on the
        training entries."""
        self.rows = self._model._solve("row", self._by_row, self.columns)
        self.columns = self._model._solve("column", self._by_column, self.rows)
        fitted = multiply_each(self.rows, self.columns, self._by_row)
        # may be infinite: training has diverged
        return math.sqrt(np.mean(np.square(fitted - self._by_row.values)))

    def finish(self) -> None:
        """Solve for the rows once more, so that they are what the encoder returns for their
        entries."""
        self.rows = self._model._solve("row", self._by_row, self.columns)

    def compute_latents(self) -> tuple[Array, Array]:
        """Return the factors, and the mean as a further product."""
        return append(self.rows, self.mean), append(self.columns, 1.0)

    def get_arrays(self) -> Arrays:
        return {"rows": self.rows, "columns": self.columns}

    def set_arrays(self, arrays: Arrays) -> None:
        self.rows, self.columns = arrays["rows"], arrays["columns"]


class SimpleEncoder(SolvingEncoder):
    """Solves for new rows given the columns, and for new columns given the rows."""

    def __init__(self, model: SimpleModel, mean: float) -> None:
        self._model, self._mean = model, mean  # the model has only settings

    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        other_factors = others.whole()[:, :-1].astype(np.float64)
        factors = self._model._solve(axis, subtract_mean(entries, self._mean), other_factors)
        return append(factors, self._mean if axis == "row" else 1.0).astype(np.float32)


def subtract_mean(entries: AxisEntries, mean: float) -> AxisEntries:
    """Return entries whose values are deviations from the mean."""
    return entries._replace(values=entries.values - mean)


def append(factors: FloatArray, constant: float) -> FloatArray:
    """Return factors with a constant as their last column."""
    return np.column_stack([factors, np.full(len(factors), constant)])
