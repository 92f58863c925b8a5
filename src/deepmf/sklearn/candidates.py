"""The choice of a model for a table: candidates predict hidden cells, and the best of them is fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadSetting, CannotExtend, suggest_name
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.models import registry
from deepmf.models.base import Model
from deepmf.models.registry import model_class
from deepmf.sklearn.blend import MOST_COLUMNS, MOST_COLUMNS_OF_TREES, WHOLE_ROWS, Residuals, Show
from deepmf.sklearn.completers import Completer
from deepmf.sklearn.table import ColumnUnits, MaskArray, TableEntries
from deepmf.training import holdout
from deepmf.training.settings import list_settings

# Models, from the simplest on; DMF was better than all of these on no table that was measured.
MODELS = ("means", "als", "dmf-o")


def explain_left_out(shape: tuple[int, int]) -> dict[str, str]:
    """Return the members of `WHOLE_ROWS` that do not suit a table of this shape, with the reasons.

    >>> explain_left_out((50, 100))
    {'trees': 'it is for at most 64 columns; there are 100'}
    """
    n_columns = shape[1]
    most = {name: MOST_COLUMNS_OF_TREES if name == "trees" else MOST_COLUMNS for name in WHOLE_ROWS}
    reason = "it is for at most {} columns; there are {}"
    return {name: reason.format(limit, n_columns) for name, limit in most.items() if n_columns > limit}


AUTO = "auto"


# The models' own defaults are for a million ratings; these are for tables of some thousand rows and some ten columns,
# chosen on masked entries of generated and of public tables.
_BRANCHES = {
    "hidden_sizes": (256,),
    "latent_size": 64,
    "dropout": 0.8,
    "epochs": 100,
    "learning_rate": 0.03,
    "averaging": 0.99,
}

_ORDINAL = {
    "hidden_sizes": (128,),
    "latent_size": 32,
    "dropout": 0.3,
    "epochs": 100,
    "learning_rate": 0.01,
    "mask_rate": 0.3,
}

TABLE_SETTINGS: dict[str, dict[str, Any]] = {
    "dmf": _BRANCHES,
    "dmf-d": _BRANCHES,
    "dmf-o": _ORDINAL,
    "als": {"penalty": 0.05},
    "bayesian": {"samples": 20},  # one for each table that `impute_many` draws unless it is asked for more
}


@dataclass(frozen=True)
class TableModels:
    """What an imputer was asked to complete by.

    asked: the name of a model, or "auto".
    given: the settings of models that were given.
    own_units: whether every column has units of its own. has_features: whether some columns describe the rows.
    """

    asked: str
    given: Mapping[str, Any]
    own_units: bool
    has_features: bool
    seed: int

    def check(self) -> None:
        """Raise `BadSetting` for an unknown model, or for settings that no candidate has."""
        if self.asked in WHOLE_ROWS:
            if self.given:
                raise BadSetting(f"model={self.asked!r} has no settings; got {min(self.given)}")
            if not self.own_units or self.has_features:
                raise BadSetting(f"model={self.asked!r} is for scale='columns' without feature_columns")
        elif self.asked not in (AUTO, *registry.MODELS):
            raise BadSetting(
                f"there is no model {self.asked!r}; {suggest_name(self.asked, (*WHOLE_ROWS, *registry.MODELS))}"
            )
        elif self.asked != AUTO:
            self.make_model(self.asked)
        elif self.given:
            known = sorted(
                {setting.name for name in MODELS for setting in list_settings(model_class(name).settings_class)}
            )
            for name in self.given:
                if name not in known:
                    raise BadSetting(f"none of {', '.join(MODELS)} has a setting {name!r}; {suggest_name(name, known)}")
            for name in MODELS:
                self.make_model(name)

    def candidates(self, shape: tuple[int, int]) -> tuple[str, ...]:
        """Return the names of the candidates for a table of this shape."""
        if self.asked != AUTO:
            return (self.asked,)
        return (AUTO,) if self._may_blend and shape[1] <= MOST_COLUMNS else MODELS

    def explain_left_out(self, shape: tuple[int, int]) -> dict[str, str]:
        """Return the candidates that do not suit a table of this shape, with the reasons."""
        return explain_left_out(shape) if self.asked == AUTO and self._may_blend else {}

    @property
    def _may_blend(self) -> bool:
        """Whether `WHOLE_ROWS` are candidates: they have no settings and need standardised columns."""
        return self.own_units and not self.has_features and not self.given

    def make_model(self, name: str) -> Model:
        """Return an unfitted model with the settings for tables and the given settings."""
        found = model_class(name)
        if "II" not in found.predicts:
            able = ", ".join(each for each in registry.MODELS if "II" in model_class(each).predicts)
            raise CannotExtend(f"{name!r} cannot complete new rows: {found.cannot}; those that can are {able}")
        given = dict(self.given)
        if self.asked == AUTO:
            own = {setting.name for setting in list_settings(found.settings_class)}
            given = {setting: value for setting, value in given.items() if setting in own}
        return found(**(TABLE_SETTINGS.get(name, {}) | given | {"seed": self.seed}))


# Below this many cells a network has too little to learn from, and cells are hidden in turns: one turn would be chance.
_FEW_CELLS = 200

_MOST_TURNS = 5

# Hidden cells make a table emptier than it is, so that no more are hidden than tell enough: a fifth of few cells; of
# many, a tenth or, if these are more than enough, at least a fiftieth.
_MANY_CELLS, _ENOUGH_CELLS, _ENOUGH_OF_A_COLUMN, _LEAST_SHARE = 10_000, 5_000, 25, 0.02

_MOST_HIDDEN = 10_000  # cells, in a turn of few rows; more would not tell more, and all of their rows are predicted

Fit = Callable[[str, TableEntries], Completer]  # takes the name of a candidate, and the entries


@dataclass(frozen=True)
class ModelChoice:
    """The chosen candidate, the errors of all candidates, and the residuals of the choice."""

    name: str
    errors: Mapping[str, float]  # root mean squared, in the units of the model
    residuals: Residuals | None = None  # None where there was too little to hide anything


class _Hidden(NamedTuple):
    """The cells hidden in all turns, and the predictions of each candidate for them."""

    columns: IndexArray  # (cells,)
    values: FloatArray  # (cells,)
    predictions: dict[str, FloatArray]  # (cells,)
    shares: FloatArray  # (cells,) by which they count: the columns of one category are one cell together

    @property
    def errors(self) -> dict[str, float]:
        return {
            name: float(np.sqrt(np.average(np.square(found - self.values), weights=self.shares)))
            for name, found in self.predictions.items()
        }


def choose(
    candidates: tuple[str, ...],
    entries: TableEntries,
    sources: IndexArray,
    fit: Fit,
    *,
    units: ColumnUnits | None = None,
    seed: int,
    show: Show = lambda name, done, total: None,
) -> ModelChoice:
    """Fit each candidate without some cells of a table, and choose the one that predicts these best.

    `entries` are in the units of the model; `sources` says of each column which cell of a row it belongs to: the
    columns of one cell are hidden together. With `units`, predictions are clipped to the range of their column.
    """
    n_cells = _count_cells(entries, sources)
    few = n_cells < _FEW_CELLS
    tried = [name for name in candidates if not few or name != "dmf-o"] or list(candidates)
    hidden = _predict_hidden(
        tried, entries, sources, fit, _draw_masks(entries, sources, _MOST_TURNS if few else 1, seed=seed), units, show
    )
    if hidden is None:
        return ModelChoice(tried[-1], {})
    best = holdout.choose(list(hidden.errors), hidden.errors.__getitem__).candidate
    return ModelChoice(
        best, hidden.errors, Residuals(hidden.columns, hidden.values - hidden.predictions[best], hidden.values)
    )


def _count_cells(entries: TableEntries, sources: IndexArray) -> int:
    # The columns of one cell are observed together.
    return round(float(np.sum(1.0 / np.bincount(sources)[sources[entries.columns]])))


def _choose_share(entries: TableEntries, sources: IndexArray) -> float:
    n_cells = _count_cells(entries, sources)
    if n_cells < _MANY_CELLS:
        return 0.2
    enough = max(_ENOUGH_CELLS, _ENOUGH_OF_A_COLUMN * np.unique(sources).size)
    return min(max(enough / n_cells, _LEAST_SHARE), 0.1)


def _draw_masks(entries: TableEntries, sources: IndexArray, n_turns: int, *, seed: int) -> Iterator[MaskArray]:
    """Yield a mask of hidden entries for each turn; no cell is hidden twice.

    Of a large table, they are entries of some rows, so that these are all that is predicted.
    """
    random, n_cells = np.random.default_rng(seed), _count_cells(entries, sources)
    share = _choose_share(entries, sources)
    among = np.arange(entries.rows.size)
    if share * n_cells > _MOST_HIDDEN:
        among = np.flatnonzero((random.random(entries.shape[0]) < _MOST_HIDDEN / (share * n_cells))[entries.rows])
    some = entries.where(among)
    cells, cell_of = np.unique(some.rows * sources.size + sources[some.columns], return_inverse=True)
    order, width = random.permutation(cells.size), share * cells.size
    for turn in range(n_turns):
        hidden = np.zeros(entries.rows.size, bool)
        hidden[among] = np.isin(cell_of, order[round(turn * width) : round((turn + 1) * width)])
        # A row or a column of which nothing would be left stays.
        for positions in (entries.rows, entries.columns):
            left = np.bincount(positions[~hidden], minlength=int(positions.max()) + 1)
            hidden &= left[positions] > 0
        if hidden.any():
            yield hidden


def _predict_hidden(
    candidates: Sequence[str],
    entries: TableEntries,
    sources: IndexArray,
    fit: Fit,
    turns: Iterator[MaskArray],
    units: ColumnUnits | None,
    show: Show,
) -> _Hidden | None:
    """Fit each candidate without the hidden cells of each turn and predict them; None without turns."""
    masks = list(turns)
    if not masks:
        return None
    found: dict[str, list[FloatArray]] = {name: [] for name in candidates}
    for turn, hidden in enumerate(masks):
        for place, name in enumerate(candidates):
            # The last turn stands for the fits to all cells that follow.
            show(name, turn * len(candidates) + place, (len(masks) + 1) * len(candidates))
            found[name].append(_predict_masked(fit(name, entries.where(~hidden)), entries, hidden))
    predictions = {name: np.concatenate(parts) for name, parts in found.items()}
    asked = [entries.where(hidden) for hidden in masks]
    columns = np.concatenate([each.columns for each in asked])
    if units is not None:
        predictions = {name: units.clip(each, columns) for name, each in predictions.items()}
    shares = 1.0 / np.bincount(sources)[sources[columns]]
    if entries.row_weights is not None:
        shares *= entries.row_weights[np.concatenate([each.rows for each in asked])]
    return _Hidden(columns, np.concatenate([each.values for each in asked]), predictions, shares)


def _predict_masked(completer: Completer, entries: TableEntries, hidden: MaskArray) -> FloatArray:
    asked = entries.where(hidden)
    rows, asked_rows = np.unique(asked.rows, return_inverse=True)
    shown = entries.where(~hidden & np.isin(entries.rows, rows))
    shown = shown._replace(shape=(rows.size, shown.shape[1]), rows=np.searchsorted(rows, shown.rows), row_weights=None)
    return completer.predict(shown, asked_rows, asked.columns, completer.features_of(rows))
