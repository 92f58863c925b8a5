"""The areas that a method predicts in, and the refusal of rows and columns that lie in others."""

from __future__ import annotations

from dataclasses import dataclass

from deepmf.errors import CannotExtend
from deepmf.matrix.labels import Labels
from deepmf.models.explanation import Axis

# Where a new row meets trained columns, and a new column trained rows.
_AREA_OF_NEW: dict[Axis, str] = {"row": "II", "column": "III"}


@dataclass(frozen=True)
class PredictedAreas:
    """The areas that a method predicts in, and why not in the others.

    >>> PredictedAreas("ALS", ("I", "II"), "it has no factors of new columns").covers_new("column")
    False
    """

    method: str
    areas: tuple[str, ...]
    cannot: str

    def covers_new(self, axis: Axis) -> bool:
        """Say whether it predicts for new rows, or for new columns."""
        return _AREA_OF_NEW[axis] in self.areas

    def check_extends(self) -> None:
        """Refuse where the method predicts in area I alone."""
        if self.areas == ("I",):
            raise CannotExtend(f"{self.method} cannot be extended: {self.cannot}")

    def check_folds_in(self, axis: Axis) -> None:
        """Refuse to fold in a row, or a column, where the method cannot predict for new ones."""
        if not self.covers_new(axis):
            raise CannotExtend(f"{self.method} cannot predict for new {axis}s: {self.cannot}")

    def check_explains(self, axis: Axis) -> None:
        """Refuse to explain by the entries of a row, or of a column, where the method does not predict from them."""
        if not self.covers_new(axis):
            raise CannotExtend(f"{self.method} cannot explain by the entries of a {axis}: {self.cannot}")

    def check_new(self, axis: Axis, known: Labels, labels: Labels) -> None:
        """Refuse labels beyond the known ones, which they begin with, where the method cannot predict for them."""
        if self.covers_new(axis) or len(labels) == len(known):
            return
        first = labels[len(known) : len(known) + 1].tolist()[0]
        raise CannotExtend(f"{self.method} cannot predict for new {axis}s, such as {first!r}: {self.cannot}")
