"""The search that chooses a recipe's settings: every candidate measured on validation entries."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from deepmf.experiments.recipe import Recipe, layout_of
from deepmf.experiments.result_table import NAMES
from deepmf.experiments.trial import Record, Trial, trials_of


def candidates(recipe: Recipe, *, n_splits: int = 1) -> list[Trial]:
    """Return the trials of every combination of settings that a recipe's search names, on the first splits."""
    return [
        trial
        for candidate in recipe.candidates()
        for trial in trials_of(
            replace(candidate, name=_named(candidate), new_shares=candidate.new_shares[:1]), n_splits=n_splits
        )
    ]


def best_of(recipes: Iterable[Recipe], records: Sequence[Record]) -> str:
    """Return, for each recipe, its candidates from best to worst by the mean over areas of its table's first metric."""
    text = []
    for recipe in recipes:
        names = [_named(candidate) for candidate in recipe.candidates()]
        metric = layout_of(recipe.table).metrics[0]
        if not any(record["recipe"] in names for record in records):
            continue
        ranked = sorted((_mean_error(records, name, metric), name) for name in names)
        areas = dict.fromkeys(record["area"] for record in records if record["recipe"] in names)
        text.append(f"\n{recipe.title}\n\n| settings | {' | '.join(areas)} | mean {NAMES[metric]} | seconds |")
        text.append(f"| --- |{' --- |' * (len(areas) + 2)}")
        for mean, name in ranked:
            own = [record for record in records if record["recipe"] == name]
            if not own:
                text.append(f"| {name.partition('?')[2]} |{' - |' * (len(areas) + 2)}")
                continue
            shown = [f"{_mean_error(own, name, metric, area):.4f}" for area in areas]
            seconds = statistics.mean(record["seconds"] for record in own)
            text.append(f"| {name.partition('?')[2]} | {' | '.join(shown)} | {mean:.4f} | {seconds:.0f} |")
    return "\n".join(text) + "\n"


def _named(candidate: Recipe) -> str:
    """Name a candidate by what is searched: `table1/i-autorec?gamma=100`."""
    given = ", ".join(f"{name}={json.dumps(candidate.settings[name])}" for name in candidate.search)
    return f"{candidate.name}?{given}"


def _mean_error(records: Sequence[Record], name: str, metric: str, area: str | None = None) -> float:
    own = [record for record in records if record["recipe"] == name and area in (None, record["area"])]
    return statistics.mean(record[metric] for record in own) if own else float("inf")
