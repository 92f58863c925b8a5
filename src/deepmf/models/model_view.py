"""How a model is shown: in two lines, and with its learning curves in a notebook."""

from __future__ import annotations

from typing import Any, NamedTuple

from deepmf.formatting import format_count
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.entry_store import EntryStore
from deepmf.plots import build_notebook_view
from deepmf.training.declarations import declared
from deepmf.training.history import History
from deepmf.training.history_view import errors_in_words, learning_curves, training_in_words
from deepmf.training.settings import Settings

_MOST_FEATURES = 12  # that are listed


class ModelView(NamedTuple):
    """What is shown of a model.

    own: the settings that it was made with.
    chosen: those that were chosen for its matrix and the machine.
    entries: those that it knows; None before it is fitted.
    """

    name: str
    own: Settings
    chosen: dict[str, Any]
    entries: EntryStore | None
    history: History

    def text(self) -> str:
        """Return the model as it is made, or in two lines: what it knows, how well it predicts, and its settings."""
        entries = self.entries
        if entries is None:
            return f"{self.name}({self._changed})"
        known = [
            f"{format_count(len(entries.rows))} x {format_count(len(entries.columns))}",
            f"{format_count(entries.n_entries)} entries",
        ]
        said = ", ".join(filter(None, [*known, errors_in_words(self.history)]))
        choice = f"; {format_count(len(self.chosen))} chosen (see chosen_)" if self.chosen else ""
        return f"{self.name}({said})\n  settings: {self._settings}{choice}"

    def html(self) -> str:
        """Return the model as a notebook shows it, with its learning curves once it is fitted."""
        if self.entries is None:
            return build_notebook_view(self.name, {"settings": self._settings, "fitted": "not yet"}, {})
        return build_notebook_view(self.name, self._facts(self.entries), learning_curves(self.history))

    def _facts(self, entries: EntryStore) -> dict[str, str]:
        """Return what is told of a fitted model, by name."""
        facts = {
            "matrix": f"{format_count(len(entries.rows))} rows x {format_count(len(entries.columns))} columns, "
            f"{format_count(entries.n_entries)} entries",
            "scale": str(entries.scale),
            "settings": self._settings,
        }
        if self.chosen:
            facts["chosen"] = _listed(self.chosen)
        for axis, features in (("row", entries.row_features), ("column", entries.column_features)):
            if features is not None:
                facts[f"{axis} features"] = _features(features)
        if len(self.history):
            facts["training"] = training_in_words(self.history)
        if self.history.best_error is not None:
            facts["validation RMSE"] = errors_in_words(self.history).removeprefix("validation RMSE ")
        return facts

    @property
    def _settings(self) -> str:
        return self._changed or "all by default"

    @property
    def _changed(self) -> str:
        """The own settings that are not the default ones, as they are given."""
        given = self.own.to_dict()
        return _listed(
            {each.name: given[each.name] for each in declared(type(self.own)) if given[each.name] != each.default}
        )


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _features(features: AxisFeatures) -> str:
    """Return the features of an axis by name and kind, some of them where there are many."""
    known = features.encoding.columns
    listed = ", ".join(f"{column.name} ({column.kind})" for column in known[:_MOST_FEATURES])
    more = len(known) - _MOST_FEATURES
    return listed if more <= 0 else f"{listed} and {format_count(more)} more"
