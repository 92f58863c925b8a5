"""The text that shows a model."""

from __future__ import annotations

from deepmf.formatting import format_count
from deepmf.models.estimator import Estimator
from deepmf.training.history import describe_errors
from deepmf.training.settings import list_settings

_MOST_FEATURES = 12  # that are listed by name


def describe_model(model: Estimator) -> str:
    """Return the constructor call of a model or, once fitted, what it knows, its errors, and its settings.

    Settings that no fit chooses are shown where they differ from their defaults.
    """
    name, given = type(model).__name__, model.settings_class.from_names(model.own_settings).to_dict()
    changed = [each.name for each in list_settings(model.settings_class) if given[each.name] != each.default]
    changes = ", ".join(f"{each}={given[each]!r}" for each in changed)
    if not model.is_fitted:
        return f"{name}({changes})"
    entries, n_chosen = model.entries_, len(model._chosen)
    size = f"{format_count(len(entries.rows))} x {format_count(len(entries.columns))}"
    facts = ", ".join(
        filter(None, [size, f"{format_count(entries.n_entries)} entries", describe_errors(model.history_)])
    )
    choice = f"; {format_count(n_chosen)} chosen (see chosen_)" if n_chosen else ""
    lines = [f"{name}({facts})", f"  scale: {entries.scale}", f"  settings: {changes or 'all by default'}{choice}"]
    for axis, features in (("row", entries.row_features), ("column", entries.column_features)):
        if features is not None:
            known = [f"{column.name} ({column.kind})" for column in features.encoding.columns]
            more = f" and {format_count(len(known) - _MOST_FEATURES)} more" if len(known) > _MOST_FEATURES else ""
            lines.append(f"  {axis} features: {', '.join(known[:_MOST_FEATURES])}{more}")
    return "\n".join(lines)
