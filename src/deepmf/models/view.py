"""The text that shows a model."""

from __future__ import annotations

from typing import Any

from deepmf.formatting import format_count
from deepmf.matrix.entries import EntryStore
from deepmf.training.history import History, describe_errors
from deepmf.training.settings import Settings, list_settings

_MOST_FEATURES = 12  # that are listed by name


def describe_model(
    name: str, own: Settings, chosen: dict[str, Any], entries: EntryStore | None, history: History
) -> str:
    """Return the constructor call of a model or, once fitted, what it knows, its errors, and its settings.

    own: the settings that no fit chooses; those that differ from their defaults are shown.
    chosen: the settings that were chosen for the matrix and the machine.
    entries: the entries that the model knows; None before it is fitted.
    """
    given = own.to_dict()
    changed = [each.name for each in list_settings(type(own)) if given[each.name] != each.default]
    changes = ", ".join(f"{each}={given[each]!r}" for each in changed)
    if entries is None:
        return f"{name}({changes})"
    size = f"{format_count(len(entries.rows))} x {format_count(len(entries.columns))}"
    facts = ", ".join(filter(None, [size, f"{format_count(entries.n_entries)} entries", describe_errors(history)]))
    choice = f"; {format_count(len(chosen))} chosen (see chosen_)" if chosen else ""
    lines = [f"{name}({facts})", f"  scale: {entries.scale}", f"  settings: {changes or 'all by default'}{choice}"]
    for axis, features in (("row", entries.row_features), ("column", entries.column_features)):
        if features is not None:
            known = [f"{column.name} ({column.kind})" for column in features.encoding.columns]
            more = f" and {format_count(len(known) - _MOST_FEATURES)} more" if len(known) > _MOST_FEATURES else ""
            lines.append(f"  {axis} features: {', '.join(known[:_MOST_FEATURES])}{more}")
    return "\n".join(lines)
