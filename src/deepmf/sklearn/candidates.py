"""The choice of a model for a table: candidates predict hidden cells, and the best of them, or a blend, is fitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from deepmf.errors import BadSetting, CannotExtend, suggest_name
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.models import registry
from deepmf.models.base import Model
from deepmf.models.registry import model_class
from deepmf.sklearn.completers import PASSES, ByMeans, Completer, Gaussians, Neighbours, WholeRows
from deepmf.sklearn.table import ColumnUnits, MaskArray, TableEntries
from deepmf.training import holdout
from deepmf.training.settings import list_settings

# Models, from the simplest on; DMF was better than all of these on no table that was measured.
MODELS = ("means", "als", "dmf-o")


# What completes whole rows of standardised columns. The first is taken where there is too little to compare them by.
WHOLE_ROWS = ("gaussian-shrunk", "gaussian", "mixture", "neighbours", "column-means")


# By how many rows for each column the columns of a Gaussian are drawn apart.
_SHRINKAGES = {"gaussian-shrunk": 1.0, "gaussian": 0.1, "mixture": 0.2}

_PARTS = {"mixture": 2}

# What Gaussians start from, the best first; with fewer rows for each column, EM that stops early after a start from
# nothing predicts better (RMSE of 178 x 13 cells: .724, and .730 from a start).
_ROWS_TO_START = 50
_STARTS = {
    "gaussian-shrunk": ("gaussian-shrunk", "gaussian"),
    "gaussian": ("gaussian", "gaussian-shrunk"),
    "mixture": ("mixture", "gaussian", "gaussian-shrunk"),
}

_ROWS_OF_A_PART = 4  # for each column: with fewer, two Gaussians were never better than one


# Covariances of more columns take longer to learn than models do.
MOST_COLUMNS = 500

# A table of more columns is wide: two Gaussians take too long, and one is as good after a few passes (RMSE on 280
# columns, of which 260 are categories: .485 after 4, .484 after 10).
_WIDE, _PASSES_OF_WIDE = 200, 5


def list_suitable(shape: tuple[int, int]) -> tuple[str, ...]:
    """Return the members of `WHOLE_ROWS` that suit a table of this shape.

    >>> list_suitable((100, 10))
    ('gaussian-shrunk', 'gaussian', 'mixture', 'neighbours', 'column-means')
    """
    unsuitable = explain_left_out(shape)
    return tuple(name for name in WHOLE_ROWS if name not in unsuitable)


def explain_left_out(shape: tuple[int, int]) -> dict[str, str]:
    """Return the members of `WHOLE_ROWS` that do not suit a table of this shape, with the reasons.

    >>> explain_left_out((50, 10))
    {'mixture': 'it needs 80 rows for 10 columns; there are 50'}
    """
    n_rows, n_columns = shape
    if n_columns > MOST_COLUMNS:
        return dict.fromkeys(WHOLE_ROWS, f"it is for at most {MOST_COLUMNS} columns; there are {n_columns}")
    unsuitable = {}
    for name, n_parts in _PARTS.items():
        least = n_parts * _ROWS_OF_A_PART * n_columns
        if n_columns > _WIDE:
            unsuitable[name] = f"it is for at most {_WIDE} columns; there are {n_columns}"
        elif n_rows < least:
            unsuitable[name] = f"it needs {least} rows for {n_columns} columns; there are {n_rows}"
    return unsuitable


def fit_whole_rows(
    name: str,
    table: FloatArray,
    *,
    weights: FloatArray | None = None,
    seed: int,
    fitted: Mapping[str, Completer] = MappingProxyType({}),
) -> WholeRows:
    """Fit one of `WHOLE_ROWS` to rows with NaN, and weights (rows,).

    Gaussians of many rows start from `fitted`.
    """
    if name == "column-means":
        return ByMeans()
    if name == "neighbours":
        return Neighbours.fit(table, weights=weights, seed=seed)
    n_rows, n_columns = table.shape
    starts = _STARTS[name] if n_rows >= _ROWS_TO_START * n_columns else ()
    start = next((found for each in starts if isinstance(found := fitted.get(each), Gaussians)), None)
    passes = PASSES if n_columns <= _WIDE else _PASSES_OF_WIDE
    return fit_gaussians(name, table, weights=weights, seed=seed, passes=passes, start=start)


def fit_gaussians(
    name: str,
    table: FloatArray,
    *,
    weights: FloatArray | None = None,
    seed: int,
    n_parts: int | None = None,
    **ending: Any,
) -> Gaussians:
    """Fit Gaussians to rows with NaN by the name of a candidate; `ending` says when EM stops.

    n_parts: number of Gaussians; None: as many as the candidate has.
    """
    n_parts, shrinkage = n_parts or _PARTS.get(name, 1), shrinkage_of(name, table)
    return Gaussians.fit(table, weights=weights, n_parts=n_parts, shrinkage=shrinkage, seed=seed, **ending)


def shrinkage_of(name: str, table: FloatArray) -> float:
    """Return by how many rows of independent columns the Gaussians of a candidate are shrunk."""
    return _SHRINKAGES[name] * int(table.shape[1])


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
        return (list_suitable(shape) if self._may_blend else ()) or MODELS

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

_CELLS_FOR_WEIGHTS = 1_000  # hidden in as many turns as that takes: several weights are to be told from each other

_LEAST_WEIGHT = 0.05  # of a part of a blend; less is not worth its fit


_OWN_RESIDUALS = 20  # from as many on, the residuals of a column are its own; with fewer, those of all columns


# Takes the name of a candidate, the entries, and the candidates that are fitted to similar entries, to start from.
Fit = Callable[[str, TableEntries, Mapping[str, Completer]], Completer]

Show = Callable[[str, int, int], None]  # takes the name of a candidate, the fits that are done, and their number


@dataclass(frozen=True)
class Residuals:
    """The residuals of hidden cells, value minus prediction, in the units of the model; and the true values."""

    columns: IndexArray
    values: FloatArray
    truths: FloatArray

    def quantiles(self, columns: IndexArray, share: float) -> FloatArray:
        """Return a quantile of the residuals of each column, (cells,)."""
        # Ranks over n + 1: right on average, however few residuals there are.
        return self._take_by_column(columns, lambda own, _: np.quantile(own, share, method="weibull"))

    def draw(self, columns: IndexArray, random: np.random.Generator) -> FloatArray:
        """Draw residuals at random for each column, (cells,)."""
        return self._take_by_column(columns, lambda own, count: random.choice(own, count))

    def _take_by_column(self, columns: IndexArray, take: Callable[[FloatArray, int], Any]) -> FloatArray:
        found = np.empty(columns.size)
        for column in np.unique(columns):
            own = self.values[self.columns == column]
            asked = columns == column
            found[asked] = take(own if own.size >= _OWN_RESIDUALS else self.values, int(asked.sum()))
        return found


@dataclass(frozen=True)
class ModelChoice:
    """The weights of the chosen candidates, the errors of all candidates, and the residuals of the choice.

    fitted: the candidates without some hidden cells.
    """

    weights: Mapping[str, float]  # of each candidate that was chosen, the largest first; together 1
    errors: Mapping[str, float]  # root mean squared, in the units of the model
    residuals: Residuals | None = None  # None where there was too little to hide anything
    fitted: Mapping[str, Completer] = field(default_factory=dict)


class _Hidden(NamedTuple):
    """The cells hidden in all turns, and the predictions of each candidate for them."""

    columns: IndexArray  # (cells,)
    values: FloatArray  # (cells,)
    predictions: dict[str, FloatArray]  # (cells,)
    shares: FloatArray  # (cells,) by which they count: the columns of one category are one cell together
    fitted: Mapping[str, Completer]  # the candidates of the last turn

    @property
    def errors(self) -> dict[str, float]:
        return {
            name: float(np.sqrt(np.average(np.square(found - self.values), weights=self.shares)))
            for name, found in self.predictions.items()
        }

    def residuals(self, predictions: FloatArray) -> Residuals:
        return Residuals(self.columns, self.values - predictions, self.values)


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
        return ModelChoice({tried[-1]: 1.0}, {})
    best = holdout.choose(list(hidden.errors), hidden.errors.__getitem__).candidate
    return ModelChoice({best: 1.0}, hidden.errors, hidden.residuals(hidden.predictions[best]), hidden.fitted)


def blend(
    candidates: tuple[str, ...],
    entries: TableEntries,
    sources: IndexArray,
    fit: Fit,
    *,
    units: ColumnUnits | None = None,
    seed: int,
    show: Show = lambda name, done, total: None,
) -> ModelChoice:
    """Fit each candidate without some cells of a table, and choose the weights by which they predict these best.

    Weights are not negative, and their sum is 1 (Breiman, Stacked regressions, 1996).
    """
    share = _choose_share(entries, sources)
    n_turns = math.ceil(_CELLS_FOR_WEIGHTS / (share * _count_cells(entries, sources)))
    hidden = _predict_hidden(
        candidates,
        entries,
        sources,
        fit,
        _draw_masks(entries, sources, min(n_turns, _MOST_TURNS), seed=seed),
        units,
        show,
    )
    if hidden is None:
        return ModelChoice({candidates[0]: 1.0}, {})
    weights = _solve_weights(np.stack(list(hidden.predictions.values()), axis=1), hidden.values, hidden.shares)
    named = {name: float(weight) for name, weight in zip(hidden.predictions, weights, strict=True) if weight > 0}
    mixed = np.asarray(sum(weight * hidden.predictions[name] for name, weight in named.items()))
    ordered = dict(sorted(named.items(), key=lambda each: -each[1]))
    return ModelChoice(ordered, hidden.errors, hidden.residuals(mixed), hidden.fitted)


def _solve_weights(predictions: FloatArray, values: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the weights (candidates,) with which predictions (cells, candidates) are nearest to the values.

    A cell counts by its share (cells,).
    """
    counted = np.sqrt(shares)
    predictions, values = predictions * counted[:, None], values * counted
    # The last equation, that their sum is 1, counts more than all cells together.
    heavy = 1e3 * max(1.0, float(np.linalg.norm(values)))
    equations = np.vstack([predictions, np.full(predictions.shape[1], heavy)])
    weights = scipy.optimize.nnls(equations, np.append(values, heavy))[0]
    weights[weights < _LEAST_WEIGHT] = 0.0
    normalised: FloatArray = weights / weights.sum()
    return normalised


def _count_cells(entries: TableEntries, sources: IndexArray) -> int:
    # The columns of one cell are observed together.
    return round(float(np.sum(1.0 / np.bincount(sources)[sources[entries.columns]])))


def _number_cells(entries: TableEntries, sources: IndexArray) -> IndexArray:
    """Return the number of the cell that each entry belongs to."""
    cells: IndexArray = entries.rows * sources.size + sources[entries.columns]
    return cells


def _choose_share(entries: TableEntries, sources: IndexArray) -> float:
    """Return the share of cells to hide in a turn."""
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
    cells, cell_of = np.unique(_number_cells(entries.where(among), sources), return_inverse=True)
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
    fitted: dict[str, Completer] = {}
    for turn, hidden in enumerate(masks):
        fitted = {}  # those of another turn have seen the cells that this one hides
        for place, name in enumerate(candidates):
            # The last turn stands for the fits to all cells that follow.
            show(name, turn * len(candidates) + place, (len(masks) + 1) * len(candidates))
            fitted[name] = fit(name, entries.where(~hidden), fitted)
            found[name].append(_predict_masked(fitted[name], entries, hidden))
    predictions = {name: np.concatenate(parts) for name, parts in found.items()}
    asked = [entries.where(hidden) for hidden in masks]
    columns = np.concatenate([each.columns for each in asked])
    if units is not None:
        predictions = {name: units.clip(each, columns) for name, each in predictions.items()}
    shares = 1.0 / np.bincount(sources)[sources[columns]]
    if entries.row_weights is not None:
        shares *= entries.row_weights[np.concatenate([each.rows for each in asked])]
    return _Hidden(columns, np.concatenate([each.values for each in asked]), predictions, shares, fitted)


def _predict_masked(completer: Completer, entries: TableEntries, hidden: MaskArray) -> FloatArray:
    """Predict the hidden entries of rows from their other entries."""
    asked = entries.where(hidden)
    rows, asked_rows = np.unique(asked.rows, return_inverse=True)
    shown = entries.where(~hidden & np.isin(entries.rows, rows))
    shown = shown._replace(shape=(rows.size, shown.shape[1]), rows=np.searchsorted(rows, shown.rows), row_weights=None)
    return completer.predict(shown, asked_rows, asked.columns, completer.features_of(rows))
