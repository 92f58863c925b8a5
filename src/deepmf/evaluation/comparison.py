"""A comparison: the errors of several models on the same splits of a matrix, and which of them errs least."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepmf.evaluation.split_errors import ALL, SplitErrors
from deepmf.evaluation.split_plan import SplitPlan
from deepmf.files.frame_library import import_polars
from deepmf.matrix.areas import AREAS
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.description import Description

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class ComparedModel:
    """One model: its errors on each split, and its peak memory, None where it had no process of its own.

    `failure` says why it could not be fitted; then it has no splits.
    """

    label: str
    model: str
    settings: dict[str, Any]
    splits: tuple[SplitErrors, ...]
    peak_memory_mb: int | None = None
    failure: str | None = None

    def errors(self, metric: str = "rmse", area: str = ALL) -> FloatArray:
        """Return the error on each split; nothing where the model does not predict in the area."""
        found = [getattr(split.areas[area], metric) for split in self.splits if area in split.areas]
        return np.array([error for error in found if error is not None], dtype=np.float64)

    def mean(self, metric: str = "rmse", area: str = ALL) -> float | None:
        """Return the mean error over the splits."""
        errors = self.errors(metric, area)
        return float(errors.mean()) if errors.size else None

    def spread(self, metric: str = "rmse", area: str = ALL) -> float | None:
        """Return the standard deviation of the error over the splits; None with fewer than two."""
        errors = self.errors(metric, area)
        return float(errors.std(ddof=1)) if errors.size > 1 else None

    @property
    def seconds(self) -> float | None:
        """How long a fit took, on average."""
        return float(np.mean([split.seconds for split in self.splits])) if self.splits else None


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison; `print` shows it as a table."""

    models: tuple[ComparedModel, ...]
    plan: SplitPlan
    data: Description

    @property
    def areas(self) -> list[str]:
        """The areas that some model predicts in, and last all of them where there are several."""
        found = {area for model in self.models for split in model.splits for area in split.areas}
        inside = [area for area in AREAS if area in found]
        return [*inside, ALL] if len(inside) > 1 and ALL in found else inside

    def ranked(self, area: str = ALL) -> list[ComparedModel]:
        """Return the models that predict in an area, the one with the smallest mean RMSE first."""
        errors = {model.label: model.mean("rmse", area) for model in self.models}
        able = [model for model in self.models if errors[model.label] is not None]
        return sorted(able, key=lambda model: errors[model.label] or 0.0)

    @property
    def best(self) -> str | None:
        """The model with the smallest mean RMSE on all test entries; None if no model predicts all of them."""
        ranked = self.ranked()
        return ranked[0].label if ranked else None

    @property
    def best_by_area(self) -> dict[str, str]:
        """The model with the smallest mean RMSE in each area that some model predicts in."""
        return {area: self.ranked(area)[0].label for area in self.areas if area != ALL}

    @property
    def verdict(self) -> str:
        """Which model is best, and on how many splits it is better than the next, as a sentence."""
        ranked = self.ranked()
        if not ranked:
            by_area = ", ".join(f"{label} in area {area}" for area, label in self.best_by_area.items())
            return f"no model predicts all test entries{by_area and f'; best: {by_area}'}"
        best = ranked[0]
        told = f"best: {best.label}, RMSE {best.mean():.4f}"
        if len(ranked) == 1:
            return told
        following = ranked[1]
        ours, theirs = best.errors(), following.errors()
        n_better = int(np.count_nonzero(ours < theirs))
        return (
            f"{told}; the next is {following.label}, {following.mean():.4f}: "
            f"{best.label} is better on {n_better} of {ours.size} {self.plan.part}{'s' * (ours.size > 1)}"
        )

    def to_frame(self) -> pl.DataFrame:
        """Return a polars frame with a line per model and area: mean errors, spreads, seconds and peak memory."""
        lines = [
            {
                "model": model.label,
                "area": area,
                **{
                    name: found
                    for metric in ("rmse", "mae", "level_rmse", "level_mae")
                    for name, found in (
                        (metric, model.mean(metric, area)),
                        (f"{metric}_spread", model.spread(metric, area)),
                    )
                },
                "seconds": model.seconds,
                "peak_memory_mb": model.peak_memory_mb,
            }
            for model in self.models
            for area in self.areas
        ]
        frame: pl.DataFrame = import_polars().DataFrame(lines, infer_schema_length=None)
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: every error of every model on every split, and their means."""
        models = [
            {
                "label": model.label,
                "model": model.model,
                "settings": model.settings,
                "rmse": {area: model.mean("rmse", area) for area in self.areas},
                "rmse_spread": {area: model.spread("rmse", area) for area in self.areas},
                "mae": {area: model.mean("mae", area) for area in self.areas},
                "mae_spread": {area: model.spread("mae", area) for area in self.areas},
                "seconds": model.seconds,
                "peak_memory_mb": model.peak_memory_mb,
                "failure": model.failure,
                "splits": [split.to_dict() for split in model.splits],
            }
            for model in self.models
        ]
        best = {"best": self.best, "best_by_area": self.best_by_area}
        return best | {"verdict": self.verdict, "plan": asdict(self.plan), "models": models}

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the names of the columns of a table, and a line for each model."""
        only = len(self.areas) == 1
        metrics = [("RMSE" if only else f"RMSE, {area}", "rmse", area) for area in self.areas]
        metrics += [("MAE", "mae", area) for area in self.areas if only]
        names = ["model", *(title for title, _, _ in metrics)]
        names += ["seconds"] + ["peak MB"] * any(model.peak_memory_mb is not None for model in self.models)
        lines = []
        for model in self.models:
            line = [
                model.label,
                *(_told(model.mean(metric, area), model.spread(metric, area)) for _, metric, area in metrics),
            ]
            line.append("" if model.seconds is None else f"{model.seconds:.2f}")
            line += ["" if model.peak_memory_mb is None else f"{model.peak_memory_mb:,}"] * ("peak MB" in names)
            lines.append(line)
        return names, lines

    def __str__(self) -> str:
        names, lines = self.cells()
        widths = [max(len(line[at]) for line in [names, *lines]) for at in range(len(names))]
        shown = [
            "  ".join(
                [
                    line[0].ljust(widths[0]),
                    *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
                ]
            )
            for line in [names, *lines]
        ]
        failed = [f"{model.label} failed: {model.failure}" for model in self.models if model.failure]
        return "\n".join([*shown, *failed, self.verdict])


def _told(mean: float | None, spread: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.4f}" if spread is None else f"{mean:.4f} ± {spread:.4f}"
