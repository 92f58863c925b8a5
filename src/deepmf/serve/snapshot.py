"""A snapshot: the model as it answers at one moment, and the versions it is known by."""

from __future__ import annotations

from dataclasses import dataclass

from deepmf.matrix.areas import AREAS
from deepmf.models.model import Model
from deepmf.serve.bodies import ModelDescription, ScaleBody, VersionBody
from deepmf.serve.served_features import described
from deepmf.serve.wire_ids import are_numbers, check_servable


@dataclass(frozen=True)
class Snapshot:
    """A model with the entries that came since it was loaded; immutable, so that an answer is of one moment.

    base: the model as its file has it.
    model: the same with the entries that came since.
    """

    base: Model
    model: Model
    model_version: int = 1
    data_version: int = 0

    @classmethod
    def of(cls, model: Model, *, model_version: int = 1) -> Snapshot:
        """Return the snapshot of a model as its file has it; one whose ids cannot be served is refused."""
        for labels in (model.entries_.rows, model.entries_.columns):
            check_servable(labels)
        return cls(model, model, model_version)

    @property
    def version(self) -> VersionBody:
        """The versions that answers carry."""
        return VersionBody(model=self.model_version, data=self.data_version)

    def describe(self) -> ModelDescription:
        """Say what model this is."""
        model, entries = self.model, self.model.entries_
        scale, (n_rows, n_columns) = model.scale_, entries.train.shape
        return ModelDescription(
            model=type(model).__name__,
            scale=ScaleBody(
                levels=None if scale.levels is None else scale.levels.tolist(), low=scale.low, high=scale.high
            ),
            n_rows=len(entries.rows),
            n_columns=len(entries.columns),
            n_entries=entries.n_entries,
            n_trained_rows=n_rows,
            n_trained_columns=n_columns,
            areas=[area for area in AREAS if area in model.predicts],  # type: ignore[misc]
            gives_distribution=model.gives_distribution,
            ids={
                axis: "number" if are_numbers(labels) else "text"
                for axis, labels in (("row", entries.rows), ("column", entries.columns))
            },
            row_features=described(model, "row"),
            column_features=described(model, "column"),
            version=self.version,
        )
