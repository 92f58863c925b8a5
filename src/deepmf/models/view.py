"""The text and the notebook view of a model."""

from __future__ import annotations

from typing import Any, NamedTuple

from deepmf.formatting import format_count
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures
from deepmf.plots import build_notebook_view
from deepmf.training.history import History, describe_errors, describe_training, list_curves
from deepmf.training.settings import Settings, list_settings

_MOST_FEATURES = 12  # that are listed by name


class ModelView(NamedTuple):
    """The parts of a model that are shown.

    own: the settings that no fit chooses.
    chosen: the settings that were chosen for the matrix and the machine.
    entries: the entries that the model knows; None before it is fitted.
    """

    name: str
    own: Settings
    chosen: dict[str, Any]
    entries: EntryStore | None
    history: History

    def text(self) -> str:
        """Return the constructor call, or, once fitted, two lines: the matrix and the errors, and the settings."""
        entries = self.entries
        if entries is None:
            return f"{self.name}({self._changes})"
        known = [
            f"{format_count(len(entries.rows))} x {format_count(len(entries.columns))}",
            f"{format_count(entries.n_entries)} entries",
        ]
        facts = ", ".join(filter(None, [*known, describe_errors(self.history)]))
        choice = f"; {format_count(len(self.chosen))} chosen (see chosen_)" if self.chosen else ""
        return f"{self.name}({facts})\n  settings: {self._settings}{choice}"

    def html(self) -> str:
        """Return the view in a notebook, with learning curves once the model is fitted."""
        if self.entries is None:
            return build_notebook_view(self.name, {"settings": self._settings, "fitted": "not yet"}, {})
        return build_notebook_view(self.name, self._list_facts(self.entries), list_curves(self.history))

    def _list_facts(self, entries: EntryStore) -> dict[str, str]:
        """Return the facts about a fitted model by name."""
        facts = {
            "matrix": f"{format_count(len(entries.rows))} rows x {format_count(len(entries.columns))} columns, "
            f"{format_count(entries.n_entries)} entries",
            "scale": str(entries.scale),
            "settings": self._settings,
        }
        if self.chosen:
            facts["chosen"] = _list_settings(self.chosen)
        for axis, features in (("row", entries.row_features), ("column", entries.column_features)):
            if features is not None:
                facts[f"{axis} features"] = _list_features(features)
        if len(self.history):
            facts["training"] = describe_training(self.history)
        if self.history.best_error is not None:
            facts["validation RMSE"] = describe_errors(self.history).removeprefix("validation RMSE ")
        return facts

    @property
    def _settings(self) -> str:
        return self._changes or "all by default"

    @property
    def _changes(self) -> str:
        """The own settings that differ from their defaults, as in a constructor call."""
        given = self.own.to_dict()
        return _list_settings(
            {each.name: given[each.name] for each in list_settings(type(self.own)) if given[each.name] != each.default}
        )


def _list_settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _list_features(features: AxisFeatures) -> str:
    """List the features of an axis by name and kind, at most twelve of them."""
    known = features.encoding.columns
    listed = ", ".join(f"{column.name} ({column.kind})" for column in known[:_MOST_FEATURES])
    more = len(known) - _MOST_FEATURES
    return listed if more <= 0 else f"{listed} and {format_count(more)} more"
