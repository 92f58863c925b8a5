"""A list of rows, or of columns, in a file: ids of the kind that the model knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.cli.inputs import Reading, called
from deepmf.cli.unknown_ids import ids_of
from deepmf.errors import UnknownLabel

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepmf.data.roles import Role
    from deepmf.matrix.labels import Labels
    from deepmf.models.model import Model


def read_column_list(path: Path, model: Model) -> npt.NDArray[Any]:
    """Read columns that the model knows; what else a line holds is ignored."""
    from deepmf.data.roles import COLUMNS

    return _read(path, COLUMNS, model.entries_.columns)


def read_row_list(path: Path, model: Model) -> npt.NDArray[Any]:
    """Read rows that the model knows; what else a line holds is ignored."""
    from deepmf.data.roles import ROWS

    return _read(path, ROWS, model.entries_.rows)


def _read(path: Path, role: Role, labels: Labels) -> npt.NDArray[Any]:
    known = {str(label) for label in labels.array.tolist()}
    frame = Reading().columns(path, role, is_known=lambda field: field in known)
    try:
        ids = ids_of(frame.to_series(), labels.array, called(path), axis=labels.axis, unknown="error")
        labels.positions(ids.labels)
    except UnknownLabel as error:
        raise UnknownLabel(f"{called(path)}: {error}") from error
    return ids.labels
