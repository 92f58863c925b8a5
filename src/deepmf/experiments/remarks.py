"""The notes under a table: use of validation entries, kind of levels, source that ran, assumptions."""

from __future__ import annotations

from collections.abc import Sequence

from deepmf.experiments.recipe import layout_of, read_table
from deepmf.experiments.result_table import COLUMN_OF, cells, uses_of_validation
from deepmf.experiments.trial import Record

# What rows may do with validation entries: said once where all do the same, otherwise in a column.
ALIKE = {
    "choose": "Validation entries choose the best epoch; no row has them as inputs or learns from them.",
    "choose, then inputs": "Validation entries choose the best epoch; every row has them as inputs at test time.",
    "choose, then training": "Validation entries choose the best epoch; every row is then fitted on them too.",
}
USES = (
    "Validation entries choose the best epoch in every row; where the column says so they are inputs at test time as "
    'well ("inputs"), or the method is then fitted again on them too ("training"). Rows that differ in this have not '
    "had the same information."
)
MEDIANS = (
    "Both errors of a row are those of the same levels: the method's own, or its prediction rounded to the nearest. "
    "Median levels are those of the same fits by the median of the predicted distribution, which is best by MAE; "
    "- where they were not measured."
)


def remarks(table: str, records: Sequence[Record]) -> list[str]:
    """Return what stands under a table: its remarks, where published figures are from, what was assumed for which."""
    run = {record["recipe"] for record in records}
    recipes = [recipe for recipe in read_table(table) if recipe.name in run]
    sources = dict.fromkeys(f"Published in {recipe.source}." for recipe in recipes if recipe.source)
    assumed: dict[str, list[str]] = {}
    for recipe in recipes:
        for assumption in recipe.assumptions:
            assumed.setdefault(assumption, []).append(recipe.title)
    assumptions = [f"Assumed for {', '.join(titles)}: {assumption}." for assumption, titles in assumed.items()]
    return [*layout_of(table).remarks, *notes(table, records), *sources, *assumptions]


def notes(table: str, records: Sequence[Record]) -> list[str]:
    """Return what a table must never be shown without.

    What its rows may do with validation entries, which levels its errors are of, and which source measured them.
    """
    uses = set(uses_of_validation(table, records).values())
    said = [ALIKE.get(use, USES) for use in uses] if len(uses) < 2 else [USES]
    if any(cell.mean is not None for cell in cells(table, records) if cell.metric in COLUMN_OF):
        said.append(MEDIANS)
    return said + _states(table, records)


def _states(table: str, records: Sequence[Record]) -> list[str]:
    """Return the state of the source that measured the rows: which rows each, where there are several."""
    titles = {recipe.name: recipe.title for recipe in read_table(table)}
    states: dict[str, dict[str, None]] = {}
    for record in records:
        states.setdefault(_state(record), {})[titles[record["recipe"]]] = None
    if len(states) < 2:
        return [f"Measured with {state}." for state in states]
    shown = (f"{state[0].upper()}{state[1:]}: {'; '.join(rows)}." for state, rows in states.items())
    return [f"Rows come from different states of the source. {' '.join(shown)}"]


def _state(record: Record) -> str:
    digest, commit = record.get("digest"), record.get("commit", "unknown")
    return f"commit {commit}, digest {digest[:12]}" if digest else f"commit {commit}, no digest kept"
