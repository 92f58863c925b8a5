"""How a model is shown: in two lines, and with its learning curves in a notebook."""

from __future__ import annotations

from typing import Any, NamedTuple

from deepmf.charts.notebook_view import notebook_view
from deepmf.charts.wording import count
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.entry_store import EntryStore
from deepmf.training.declarations import declared
from deepmf.training.history import History
from deepmf.training.history_view import errors_in_words, learning_curves, training_in_words
from deepmf.training.settings import Settings

_MOST_FEATURES = 12  # that are listed


class ShownSettings(NamedTuple):
    """The settings that a model was made with, and those that were chosen for its matrix and the machine."""

    own: Settings
    chosen: dict[str, Any]

    @property
    def changed(self) -> str:
        """The own settings that are not the default ones, as they are given."""
        given = self.own.to_dict()
        return _listed(
            {each.name: given[each.name] for each in declared(type(self.own)) if given[each.name] != each.default}
        )

    def __str__(self) -> str:
        told = self.changed or "all by default"
        return f"{told}; {count(len(self.chosen))} chosen (see chosen_)" if self.chosen else told


def model_line(name: str, settings: ShownSettings) -> str:
    """Return a model that is not fitted, as it is made: its name and the settings that are not the default ones."""
    return f"{name}({settings.changed})"


def fitted_lines(name: str, settings: ShownSettings, entries: EntryStore, history: History) -> str:
    """Return a fitted model in two lines: what it knows and how well it predicts, and its settings."""
    known = [f"{count(len(entries.rows))} x {count(len(entries.columns))}", f"{count(entries.n_entries)} entries"]
    said = ", ".join(filter(None, [*known, errors_in_words(history)]))
    return f"{name}({said})\n  settings: {settings}"


def fitted_html(name: str, settings: ShownSettings, entries: EntryStore, history: History) -> str:
    """Return a fitted model with its learning curves, as a notebook shows it."""
    facts = {
        "matrix": f"{count(len(entries.rows))} rows x {count(len(entries.columns))} columns, "
        f"{count(entries.n_entries)} entries",
        "scale": str(entries.scale),
        "settings": settings.changed or "all by default",
    }
    if settings.chosen:
        facts["chosen"] = _listed(settings.chosen)
    for axis, features in (("row", entries.row_features), ("column", entries.column_features)):
        if features is not None:
            facts[f"{axis} features"] = _features(features)
    if len(history):
        facts["training"] = training_in_words(history)
    if history.best_error is not None:
        facts["validation RMSE"] = errors_in_words(history).removeprefix("validation RMSE ")
    return notebook_view(name, facts, learning_curves(history))


def not_fitted_html(name: str, settings: ShownSettings) -> str:
    """Return a model that is not fitted, as a notebook shows it."""
    return notebook_view(name, {"settings": settings.changed or "all by default", "fitted": "not yet"})


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _features(features: AxisFeatures) -> str:
    """Return the features of an axis by name and kind, some of them where there are many."""
    known = features.encoding.columns
    listed = ", ".join(f"{column.name} ({column.kind})" for column in known[:_MOST_FEATURES])
    more = len(known) - _MOST_FEATURES
    return listed if more <= 0 else f"{listed} and {count(more)} more"
