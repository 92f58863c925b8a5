"""A table as the imputer learns from it: columns of numbers, and the way back to what was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.column_codes import ColumnCodes
from deepmf.sklearn.mixed_table import MixedTable, with_columns
from deepmf.sklearn.observed_table import MaskArray, dense_copy


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """The numbers of a table; where it has columns of text or categories, also these, and how they are encoded."""

    numbers: Any  # (rows, columns of numbers): an array with NaN, or a sparse matrix
    mixed: MixedTable | None = None
    codes: ColumnCodes | None = None

    @property
    def sources(self) -> IndexArray:
        """Of each column of numbers, the column of the table that it comes from."""
        return np.arange(self.numbers.shape[1]) if self.codes is None else self.codes.sources

    def missing(self) -> MaskArray:
        """Return where nothing is observed (rows, columns of the table)."""
        return np.isnan(dense_copy(self.numbers)) if self.mixed is None else self.mixed.missing

    def completed(
        self,
        given: Any,
        numbers: npt.NDArray[Any],
        *,
        names: npt.NDArray[np.object_],
        kept: IndexArray,
        indicators: IndexArray | None,
        random: np.random.Generator | None,
    ) -> Any:
        """Return the kept columns of a completed table as it was given: an array, or a frame where some are text.

        indicators: the columns of which one more says where nothing was observed; None where none are wanted.
        """
        shown = {
            f"missingindicator_{names[at]}": self.missing()[:, at] for at in ([] if indicators is None else indicators)
        }
        if self.mixed is None or self.codes is None:
            whole: npt.NDArray[Any] = np.nan_to_num(numbers, nan=0.0)[:, kept]
            return np.hstack([whole, *(mask[:, None].astype(whole.dtype) for mask in shown.values())])
        columns = self.codes.decoded(np.nan_to_num(numbers, nan=0.0), self.mixed, random)
        if hasattr(given, "columns"):
            named = list(given.columns)
            return with_columns(given, {named[at]: columns[at] for at in kept} | shown)
        array = np.empty((len(numbers), kept.size + len(shown)), dtype=object)
        for place, column in enumerate([*(columns[at] for at in kept), *shown.values()]):
            array[:, place] = column
        return array

    def ends(self, numbers: FloatArray, kept: IndexArray) -> FloatArray:
        """Return an end of intervals for the kept columns of the table; NaN in those of text and categories."""
        if self.codes is None:
            return numbers[:, kept]
        found = np.full((len(numbers), self.codes.n_columns), np.nan)
        for at in set(range(self.codes.n_columns)) - self.codes.categories.keys():
            found[:, at] = numbers[:, int(np.flatnonzero(self.sources == at)[0])]
        return found[:, kept]
