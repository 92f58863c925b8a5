"""The map: latents of rows and columns in the two dimensions in which they differ most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deepmf.matrix.arrays import FloatArray
from deepmf.models.latents import Latents
from deepmf.models.model import Model
from deepmf.models.predictor import Predictor

MOST_ROWS = MOST_COLUMNS = 1_000  # shown


@dataclass(frozen=True)
class Projection:
    """The plane that a map shows, made once of a model as its file has it, and what lies on it.

    columns: labels of the columns with most entries, and where they are (columns, 2).
    rows: where some rows are, evenly chosen (rows, 2).
    """

    centre: FloatArray
    plane: FloatArray  # (latent, 2)
    columns: list[Any]
    column_places: FloatArray
    rows: FloatArray

    @classmethod
    def of(cls, model: Model) -> Projection:
        """Return the map of a model; one without latents is refused (`BadSetting`)."""
        entries, predictor = model.entries_, model.predictor_
        row_at = np.linspace(0, len(entries.rows) - 1, min(len(entries.rows), MOST_ROWS)).astype(np.int64)
        column_at = np.argsort(-entries.column_counts, kind="stable")[:MOST_COLUMNS]
        rows = predictor.directions(Latents(predictor.rows.take(row_at))).astype(np.float64)
        columns = predictor.directions(Latents(predictor.columns.take(column_at))).astype(np.float64)
        together = np.concatenate([rows, columns])
        centre = together.mean(axis=0)
        _, _, axes = np.linalg.svd(together - centre, full_matrices=False)
        plane = np.zeros((together.shape[1], 2))
        plane[:, : min(2, len(axes))] = axes[:2].T
        plane *= np.where(plane.sum(axis=0) < 0, -1.0, 1.0)  # an axis has no direction of its own
        labels = entries.columns[column_at].tolist()
        return cls(centre, plane, labels, (columns - centre) @ plane, (rows - centre) @ plane)

    def place(self, predictor: Predictor, row: int) -> tuple[float, float]:
        """Return where a row of a predictor lies, by its position."""
        directions = predictor.directions(Latents(predictor.rows.take(np.array([row])))).astype(np.float64)
        x, y = ((directions[0] - self.centre) @ self.plane).tolist()
        return x, y
