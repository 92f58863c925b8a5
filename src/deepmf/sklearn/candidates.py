"""The choice of a model for a table: candidates predict hidden cells, and the best of them is
fitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deepmf.errors import BadSetting, CannotExtend, suggest_name
from deepmf.matrix.arrays import IndexArray
from deepmf.models import registry
from deepmf.models.base import Model
from deepmf.models.neighbours import LEAST_DENSE
from deepmf.models.registry import model_class
from deepmf.sklearn.blend import WHOLE_ROWS, Choice, Residuals, Show, can_fit_blend
from deepmf.sklearn.completers import Completer
from deepmf.sklearn.table import ColumnUnits, MaskArray, TableEntries
from deepmf.training import holdout

# Models, from the simplest on; DMF was better than all of these on no table that was measured.
MODELS = ("means", "als", "dmf-o")

AUTO = "auto"
NEIGHBOURS = "neighbours"

# The models' own defaults are for a million ratings; these are for tables of some thousand rows and
# some ten columns, chosen on masked entries of generated and of public tables.
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
    "bayesian": {"samples": 20},
}


def check_model(asked: str, given: Mapping[str, Any], *, own_units: bool) -> None:
    """Raise `BadSetting` for an unknown model or setting.

    asked: the name of a model, or "auto". given: settings. own_units: whether every column has
        units of its own.
    """
    if asked in (AUTO, *WHOLE_ROWS):
        if given:
            raise BadSetting(
                f"model={asked!r} has no settings; got {min(given)}, which is for a model such as 'dmf-o'"
            )
        if asked != AUTO and not own_units:
            raise BadSetting(f"model={asked!r} is for scale='columns'")
    elif asked not in registry.MODELS:
        raise BadSetting(
            f"there is no model {asked!r}; {suggest_name(asked, (*WHOLE_ROWS, *registry.MODELS))}"
        )
    else:
        make_model(asked, given, seed=0)


def list_candidates(
    asked: str, entries: TableEntries, sources: IndexArray, *, own_units: bool
) -> tuple[str, ...]:
    """Return the names of the candidates for a table; ("auto",) is the blend of `WHOLE_ROWS`.

    The blend needs standardised columns, and so do neighbours, which complete tables of more
    columns.
    """
    if asked != AUTO:
        return (asked,)
    if own_units and can_fit_blend(entries):
        return (AUTO,)
    is_plain = len(np.unique(sources)) == sources.size and np.ptp(entries.row_weights) == 0
    if own_units and is_plain and entries.values.size >= LEAST_DENSE * math.prod(entries.shape):
        return (*MODELS[:-1], NEIGHBOURS)
    return MODELS


def make_model(name: str, given: Mapping[str, Any], *, seed: int) -> Model:
    """Return an unfitted model with the settings for tables and the given settings."""
    model = model_class(name)
    if "II" not in model.predicts:
        able = ", ".join(
            candidate for candidate in registry.MODELS if "II" in model_class(candidate).predicts
        )
        raise CannotExtend(
            f"{name!r} cannot complete new rows: {model.cannot}; those that can are {able}"
        )
    # Nobody ranks the columns of a table by whether they have an entry.
    defaults = {"presence": None} if hasattr(model.settings_class, "presence") else {}
    return model(**(defaults | TABLE_SETTINGS.get(name, {}) | dict(given) | {"seed": seed}))


# Hidden cells make a table emptier than it is, so no more are hidden than tell enough.
_HIDDEN, _MOST_HIDDEN = 0.2, 10_000

_FEW_CELLS = 200  # below that, a network has too little to learn from

Fit = Callable[[str, TableEntries], Completer]  # takes the name of a candidate, and the entries


def choose(
    candidates: tuple[str, ...],
    entries: TableEntries,
    sources: IndexArray,
    fit: Fit,
    *,
    units: ColumnUnits,
    seed: int,
    show: Show = lambda name, done, total: None,
) -> Choice:
    """Fit each candidate without some cells of a table, and the one that predicts these best to all
    cells.

    `entries` are in the units of the model; `sources` says of each column which cell of a row it
    belongs to: the columns of one cell are hidden together, and count as one. Predictions are
    clipped to the range of their column.
    """
    hidden = _hide_cells(entries, sources, seed=seed)
    if entries.rows.size < _FEW_CELLS:
        candidates = tuple(name for name in candidates if name != "dmf-o") or candidates
    if not hidden.any():
        return Choice(fit(candidates[-1], entries), {candidates[-1]: 1.0})
    shown, asked = entries.select(~hidden), entries.select(hidden)
    shares = 1.0 / np.bincount(sources)[sources[asked.columns]]
    shares *= asked.row_weights[asked.rows]
    rows, row_of = np.unique(asked.rows, return_inverse=True)
    visible_rows = shown.take_rows(rows)
    errors, residuals = dict[str, float](), dict[str, Residuals]()
    for place, name in enumerate(candidates):
        show(name, place, 2 * len(candidates))
        predicted = units.clip(
            fit(name, shown).predict(visible_rows, row_of, asked.columns), asked.columns
        )
        residuals[name] = Residuals(
            asked.rows, asked.columns, asked.values - predicted, asked.values
        )
        errors[name] = float(np.sqrt(np.average(np.square(residuals[name].values), weights=shares)))
    best = holdout.choose(list(errors), errors.__getitem__).candidate
    return Choice(fit(best, entries), {best: 1.0}, residuals[best], errors)


def _hide_cells(entries: TableEntries, sources: IndexArray, *, seed: int) -> MaskArray:
    """Return a mask of entries to hide; the columns of one cell are hidden together."""
    cells, cell_of = np.unique(
        entries.rows * sources.size + sources[entries.columns], return_inverse=True
    )
    hidden = np.zeros(cells.size, bool)
    order = np.random.default_rng(seed).permutation(cells.size)
    hidden[order[: min(round(_HIDDEN * cells.size), _MOST_HIDDEN)]] = True
    mask: MaskArray = hidden[cell_of]
    # A row or a column of which nothing would be left stays.
    for positions in (entries.rows, entries.columns):
        n_shown = np.bincount(positions[~mask], minlength=int(positions.max()) + 1)
        mask &= n_shown[positions] > 0
    return mask
