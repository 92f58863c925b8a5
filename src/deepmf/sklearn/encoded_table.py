"""A table as the imputer learns from it: columns of numbers, and the way back to what was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.column_codes import ColumnCodes
from deepmf.sklearn.feature_columns import FeatureColumns, are_numbers, as_numbers
from deepmf.sklearn.mixed_table import MixedTable, with_columns
from deepmf.sklearn.observed_table import MaskArray, dense_copy


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """The numbers of a table; where it has columns of text or categories, also these, and how they are encoded.

    features: where it has feature columns, which are no part of the above: the places of these and of all others.
    """

    numbers: Any  # (rows, columns of numbers): an array with NaN, or a sparse matrix
    mixed: MixedTable | None = None
    codes: ColumnCodes | None = None
    features: FeatureColumns | None = None

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

        Feature columns are as in `given`, in their places.

        indicators: the columns of which one more says where nothing was observed; None where none are wanted.
        """
        shown = {
            f"missingindicator_{names[at]}": self.missing()[:, at] for at in ([] if indicators is None else indicators)
        }
        filled = np.nan_to_num(numbers, nan=0.0)
        described = {} if self.features is None else self.features.cells(given)
        if self.codes is None and all(map(are_numbers, described.values())):
            whole: npt.NDArray[Any] = self._beside(filled[:, kept], described, kept)
            return np.hstack([whole, *(mask[:, None].astype(whole.dtype) for mask in shown.values())])
        columns: Sequence[Any] = list(filled.T)
        if self.codes is not None and self.mixed is not None:
            columns = self.codes.decoded(filled, self.mixed, random)
        parts = dict(zip(self._places(kept), (columns[at] for at in kept), strict=True)) | described
        if hasattr(given, "columns"):
            named = list(given.columns)
            return with_columns(given, {named[at]: parts[at] for at in sorted(parts)} | shown)
        array = np.empty((len(numbers), len(parts) + len(shown)), dtype=object)
        for place, column in enumerate([*(parts[at] for at in sorted(parts)), *shown.values()]):
            array[:, place] = column
        return array

    def ends(self, given: Any, numbers: FloatArray, kept: IndexArray) -> FloatArray:
        """Return an end of intervals for the kept columns of the table; NaN in those of text and categories."""
        described = {
            at: cells if are_numbers(cells) else [np.nan] * len(cells)
            for at, cells in ({} if self.features is None else self.features.cells(given)).items()
        }
        if self.codes is None:
            return self._beside(numbers[:, kept], described, kept)
        found = np.full((len(numbers), self.codes.n_columns), np.nan)
        for at in set(range(self.codes.n_columns)) - self.codes.categories.keys():
            found[:, at] = numbers[:, int(np.flatnonzero(self.sources == at)[0])]
        return self._beside(found[:, kept], described, kept)

    def _beside(self, whole: npt.NDArray[Any], described: dict[int, list[float]], kept: IndexArray) -> npt.NDArray[Any]:
        """Return the kept columns of the table and feature columns that are numbers, each in its place."""
        if not described:
            return whole
        parts = dict(zip(self._places(kept), whole.T, strict=True))
        parts |= {at: np.array(as_numbers(cells), dtype=whole.dtype) for at, cells in described.items()}
        return np.column_stack([parts[at] for at in sorted(parts)])

    def _places(self, kept: IndexArray) -> list[int]:
        """Return the places of the kept columns among all columns of the table."""
        places: list[int] = (kept if self.features is None else self.features.rest[kept]).tolist()
        return places
