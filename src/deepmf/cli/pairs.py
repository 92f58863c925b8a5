"""The pairs to predict: a row and a column per line of a text or Parquet file, or of standard input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.cli.fields import read_fields
from deepmf.cli.inputs import Reading, called, local_file, name_or_position
from deepmf.cli.unknown_ids import Ids, ids_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepmf.models.model import Model


class Pairs(NamedTuple):
    """Rows and columns of one length."""

    rows: Ids
    columns: Ids

    @property
    def labels(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The pairs as the model is asked for them."""
        return self.rows.labels, self.columns.labels


def read_pairs(path: Path, model: Model, reading: Reading, *, unknown: str = "error") -> Pairs:
    """Read pairs; what else a line holds is ignored.

    In text, a first line that is made of names rather than of ids is the header: one that has usual names (user,
    item, ...), or neither numbers nor gaps nor an id that the model knows.
    """
    with local_file(path) as file:
        frame = read_fields(
            file, ("row", "column"), reading, is_header=lambda fields: _is_header(fields, model, reading)
        )
    rows, columns = frame.get_columns()
    return Pairs(
        ids_of(rows, model.row_labels_, called(path), axis="row", unknown=unknown),
        ids_of(columns, model.column_labels_, called(path), axis="column", unknown=unknown),
    )


def _is_header(fields: list[str], model: Model, reading: Reading) -> bool:
    from deepmf.data.delimited import is_missing, is_whole
    from deepmf.matrix.frames import has_usual_names

    if any(isinstance(name_or_position(name), str) for name in (reading.row, reading.column)):
        return True
    if has_usual_names(fields, ("row", "column")):
        return True
    if any(map(is_missing, fields[:2])):
        return False
    seen = model.entries_
    return not any(is_whole(field) or field in seen.rows or field in seen.columns for field in fields)
