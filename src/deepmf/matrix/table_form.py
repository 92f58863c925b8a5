"""The form of a table that a matrix came from: what its fields are called, and whether it is long or wide."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

# What tables call whole numbers that labels hold in another type.
WHOLE_TYPES = ("Int8", "Int16", "Int32", "UInt8", "UInt16", "UInt32", "UInt64")


class TableForm(NamedTuple):
    """The names of the fields, and whether there is a line per entry or, in a wide table, per row.

    It says how a matrix is written, and is no part of what the matrix is. row_type, column_type: the type of ids that
    are whole numbers, one of `WHOLE_TYPES`; None where they are of 64 bits with a sign, as labels are, or no numbers.
    """

    row: str = "row"
    column: str = "column"
    value: str = "value"
    wide: bool = False
    row_type: str | None = None
    column_type: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON content, without the types of ids that it leaves open."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @classmethod
    def from_dict(cls, content: Any) -> TableForm | None:
        """Return the form that such content tells of; None where it tells of none."""
        if not isinstance(content, dict):
            return None
        kinds = {"row": str, "column": str, "value": str, "wide": bool}
        types = {name: content[name] for name in content.keys() & {"row_type", "column_type"}}
        named = content.keys() - types.keys() == kinds.keys()
        if not named or not all(isinstance(content[name], kind) for name, kind in kinds.items()):
            return None
        return cls(**content) if all(each in WHOLE_TYPES for each in types.values()) else None

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of row, column and value in a long table, all different."""
        return *self.ids_beside([self.value]), self.value

    def is_called(self, other: TableForm | None) -> bool:
        """Say whether another table has the same names and is as wide, whatever the types of its ids."""
        return other is not None and self[:4] == other[:4]

    def ids_beside(self, taken: Collection[str]) -> tuple[str, str]:
        """Return the names of row and column ids for a table that has other fields too, whose names are theirs.

        >>> TableForm("user", "area").ids_beside(["prediction", "area"])
        ('user', 'column')
        """
        row = "row" if self.row in taken else self.row
        column = "column" if self.column in taken else self.column
        return (row, column) if row != column else ("row", "column")


PLAIN = TableForm()
