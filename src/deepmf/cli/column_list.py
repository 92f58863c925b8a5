"""A list of columns to choose from, or to leave out, with ids of the kind that the model knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepmf.cli.inputs import Reading, called
from deepmf.cli.unknown_ids import ids_of
from deepmf.errors import UnknownLabel

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepmf.models.model import Model


def read_column_list(path: Path, model: Model) -> npt.NDArray[Any]:
    """Read columns that the model knows; what else a line holds is ignored."""
    from deepmf.data.roles import COLUMNS

    known = {str(label) for label in model.column_labels_.tolist()}
    frame = Reading().columns(path, COLUMNS, is_known=lambda field: field in known)
    try:
        ids = ids_of(frame.to_series(), model.column_labels_, called(path), axis="column", unknown="error")
        model.entries_.columns.positions(ids.labels)
    except UnknownLabel as error:
        raise UnknownLabel(f"{called(path)}: {error}") from error
    return ids.labels
