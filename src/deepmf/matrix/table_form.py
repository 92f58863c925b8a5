"""The form of a table: the names and types of its fields, and whether it is long or wide."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, NamedTuple


class Detect(Enum):
    """The default of `value=`: a column of values is looked for, while None reads interactions."""

    DETECT = "detect"

    def __repr__(self) -> str:
        return "DETECT"


DETECT = Detect.DETECT
ValueColumn = str | int | Detect | None

COUNT = "interactions"  # name of the counts of interactions that came without a name


class TableForm(NamedTuple):
    """How a matrix is written as a table; it does not affect equality of matrices.

    Parameters
    ----------
    row, column, value : names of the fields.
    wide : whether there is one line per row instead of one per entry.
    time, weight : names of the fields of times and weights; None for "time" and "weight".
    time_type : one of `TIME_TYPES`; None for Unix seconds.
    """

    row: str = "row"
    column: str = "column"
    value: str = "value"
    wide: bool = False
    time: str | None = None
    time_type: str | None = None
    weight: str | None = None

    @classmethod
    def of_roles(cls, names: Mapping[str, str], time_type: str | None) -> TableForm:
        """Return the form of a long table from the names of its fields by role."""
        value = names.get("value", names.get("count", COUNT))
        time = names.get("time")
        weight = names.get("weight")
        return cls(
            names["row"], names["column"], value, time=time, time_type=time_type, weight=weight
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the form as JSON content."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @property
    def names(self) -> tuple[str, str, str]:
        """Distinct names of row, column and value in a long table."""
        return *self.name_ids_beside([self.value]), self.value

    @property
    def nouns(self) -> tuple[str, str]:
        """Words for a row and a column, from the names of their fields.

        >>> TableForm("userId", "movie_id").nouns, TableForm("id", "Film title").nouns, TableForm("0", "1").nouns
        (('user', 'movie'), ('row', 'film title'), ('row', 'column'))
        """
        return _make_noun(self.row) or "row", _make_noun(self.column) or "column"

    def name_extras(self) -> tuple[str, str]:
        """Return names of times and weights that are not those of other fields."""
        field_names = self.names
        time = self.time if self.time is not None and self.time not in field_names else "time"
        weight = (
            self.weight
            if self.weight is not None and self.weight not in (*field_names, time)
            else "weight"
        )
        return time, weight

    def has_names_of(self, other: TableForm | None) -> bool:
        """Whether another form has the same names and layout."""
        return other is not None and self[:4] == other[:4]

    def name_ids_beside(self, taken: Collection[str]) -> tuple[str, str]:
        """Return names of row and column ids that are not taken by other fields of a table.

        >>> TableForm("user", "area").name_ids_beside(["prediction", "area"])
        ('user', 'column')
        """
        row = "row" if self.row in taken else self.row
        column = "column" if self.column in taken else self.column
        return (row, column) if row != column else ("row", "column")


_ID_ENDING = re.compile(r"([_ .-]+(id|ids|uuid|key)|(?<=[a-z])I[Dd]|(?<=user|item|film|book)id)$")


def _make_noun(name: str) -> str | None:
    """Return the noun in the name of a field of ids; None if it has none."""
    words = re.sub(r"[_.-]+", " ", _ID_ENDING.sub("", name.strip())).strip().lower()
    if words.replace(" ", "").isalpha() and words not in ("id", "index", "key", "col"):
        return words
    return None


PLAIN = TableForm()
