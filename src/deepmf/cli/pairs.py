"""The pairs to predict, with ids of the kind that the model knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.cli.inputs import Reading, called
from deepmf.cli.output import say
from deepmf.cli.unknown_ids import Ids, ids_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepmf.models.model import Model


class Pairs(NamedTuple):
    """Rows and columns of one length, and what their file calls them (None: nothing)."""

    rows: Ids
    columns: Ids
    names: tuple[str, str] | None

    @property
    def labels(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The pairs as the model is asked for them."""
        return self.rows.labels, self.columns.labels


def read_pairs(path: Path, model: Model, reading: Reading, *, unknown: str = "error") -> Pairs:
    """Read pairs with ids of the model's kind; a first line with an id that the model knows is no header."""
    from deepmf.data.roles import PAIRS

    seen = model.entries_
    read = reading.role_columns(path, PAIRS, is_known=lambda field: field in seen.rows or field in seen.columns)
    rows, columns = read.frame.get_columns()
    if read.guessed and (rows.name, columns.name) != seen.train.form[:2]:
        say(f"deepmf: {called(path)}: {read.told(PAIRS)} (--row and --column say otherwise)", err=True)
    return Pairs(
        ids_of(rows, model.row_labels_, called(path), axis="row", unknown=unknown),
        ids_of(columns, model.column_labels_, called(path), axis="column", unknown=unknown),
        (rows.name, columns.name) if read.has_names else None,
    )
