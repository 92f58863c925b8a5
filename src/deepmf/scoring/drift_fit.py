"""The fit of drift: its components are chosen on held-out entries, and join a model as far as they
help there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray
from deepmf.matrix.axis_entries import PlacedEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import DAY, NO_TIME, TimeArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.scoring.drift import ALWAYS, Component, DatedResiduals, Drift, Kind, find_shares
from deepmf.scoring.learning import Learning
from deepmf.scoring.pairs import Fallback
from deepmf.training.holdout import choose, draw_some

# Numbers of residuals at 0 that are tried for each component, and the largest number of entries
# they are tried on.
_SHRINKAGES = (5.0, 20.0, 80.0, 320.0, 1280.0)
_MOST_TRIED = 500_000
_ONE_IN = 10

# Half-lives in the span of a row that are tried for its recent entries.
_HALVINGS = (3.0, 6.0, 12.0)


def fit_drift(learning: Learning) -> dict[str, Drift]:
    """Learn the drift of a model with the setting `times`; there is none without two times.

    Dated validation entries decide how much of the drift is added to predictions; without any,
    training entries decide, although their residuals are too small.
    """
    train, held_out = learning.entries.train, learning.held_out
    if learning.settings.get("times") is None or not train.has_values:
        return {}
    seed = learning.settings["seed"]
    drift = learn_drift(train, seed=seed)
    if drift is None:
        return {}
    if held_out is None or held_out.extras.times is None:
        values = train.values.astype(np.float64)
        held_out = PlacedEntries(train.entry_rows, train.by_row.columns, values, train.extras)
    times = held_out.extras.times
    assert times is not None
    some = draw_some(np.arange(times.size), _MOST_TRIED, seed=[seed, 34])
    pairs = held_out.rows[some], held_out.columns[some]
    residuals = held_out.values[some] - learning.predictor.predict(*pairs)
    return {"drift": drift.join(residuals, *pairs, times[some])}


def learn_drift(train: ObservedMatrix, *, seed: int = 0) -> Drift | None:
    """Learn the drift of the means of a matrix; None without at least two times.

    Components are chosen one after another. A component stays if it lowers the error of the means
    on a tenth of the entries that is held out, by the shrinkage that lowers it most.
    """
    times = train.times
    if times is None:
        return None
    dated = np.flatnonzero(times != NO_TIME)
    if times[dated].min() == times[dated].max():
        return None
    numbers, tried = (
        np.random.default_rng([seed, 33]),
        draw_some(dated, _MOST_TRIED, seed=[seed, 34]),
    )
    is_held_out = np.zeros(train.n_entries, dtype=bool)
    is_held_out[numbers.choice(tried, max(1, tried.size // _ONE_IN), replace=False)] = True
    seen, held_out = train.take_entries(~is_held_out), train.take_entries(is_held_out)
    if seen.times is None or held_out.times is None or seen.n_entries == 0:
        return None
    left, left_held_out = _find_residuals(seen), _compute_residuals(seen, held_out)
    chosen: list[tuple[Kind, float]] = []
    for kind in _list_kinds(times[dated]):
        component, which = left.build(kind)
        sums, counts = component.collect(
            held_out.entry_rows, held_out.by_row.columns, held_out.times
        )
        shrinkage = choose(
            [math.inf, *_SHRINKAGES], partial(_compute_error, left_held_out, sums, counts)
        ).candidate
        if shrinkage < math.inf:
            chosen.append((kind, shrinkage))
            left_held_out = left_held_out - sums / (counts + shrinkage)
            left = left._replace(
                residuals=left.residuals - component.evaluate_keys(shrinkage)[which]
            )
    fading, after_shares = _learn_fading(chosen, train, dated)
    chosen += fading
    if not chosen:
        return None
    between = np.array([0.0 if kind.halvings else 1.0 for kind, _ in chosen])
    shares = np.stack([between, after_shares, _find_later_shares(chosen, train, dated)])
    every_column = np.arange(train.shape[1])
    column_means = Fallback(EntryStore.of(train)).means(
        np.full(every_column.size, -1), every_column
    )
    return Drift(
        _build_all(chosen, train), shares, int(times.max()), _find_ends(train), column_means
    )


def _learn_fading(
    chosen: Sequence[tuple[Kind, float]], train: ObservedMatrix, dated: IndexArray
) -> tuple[list[tuple[Kind, float]], FloatArray]:
    """Return the fading component that is best on the last tenth of the entries of each row, and
    the shares there.

    There is no component if none lowers the error of the means.
    """
    is_last = _mark_last(train, dated)
    seen, last = train.take_entries(~is_last), train.take_entries(is_last)
    if seen.times is None or last.times is None or last.n_entries == 0:
        return [], np.zeros(len(chosen))
    every, left = _find_residuals(seen), _compute_residuals(seen, last)
    pairs = last.entry_rows, last.by_row.columns, last.times
    kinds = [Kind("row", ALWAYS, halvings) for halvings in _HALVINGS]
    collected = {kind: every.build(kind)[0].collect(*pairs) for kind in kinds}
    candidates = [(kinds[0], math.inf), *itertools.product(kinds, _SHRINKAGES)]
    best = choose(
        candidates, lambda each: _compute_error(left, *collected[each[0]], each[1])
    ).candidate
    found = [] if best[1] == math.inf else [best]
    return found, find_shares(_build_all([*chosen, *found], seen), left, *pairs)


def _compute_error(
    residuals: FloatArray, sums: FloatArray, counts: FloatArray, shrinkage: float
) -> float:
    """Return the mean square of residuals less those that a component explains; with infinite
    shrinkage, nothing."""
    return float(np.mean(np.square(residuals - sums / (counts + shrinkage))))


def _mark_last(train: ObservedMatrix, dated: IndexArray) -> BoolArray:
    """Return which entries are the last tenth of their row, by time; at least one of two or
    more."""
    assert train.times is not None
    rows = train.entry_rows[dated]
    order = np.lexsort((train.times[dated], rows))
    counts = np.bincount(rows, minlength=train.shape[0])
    ends = np.cumsum(counts)
    n_last = np.where(counts > 1, np.maximum(counts // _ONE_IN, 1), 0)
    is_last = np.zeros(train.n_entries, dtype=bool)
    is_last[dated[order]] = np.arange(rows.size) >= (ends - n_last)[rows[order]]
    return is_last


def _find_ends(train: ObservedMatrix) -> TimeArray:
    assert train.times is not None
    ends, filled = np.full(train.shape[0], NO_TIME), np.flatnonzero(train.row_counts)
    ends[filled] = np.maximum.reduceat(train.times, train.by_row.starts[filled])
    return ends


def _build_all(
    chosen: Sequence[tuple[Kind, float]], entries: ObservedMatrix
) -> tuple[Component, ...]:
    """Build the chosen components, each on the residuals of those before it; the fading one on
    those of the means."""
    every = left = _find_residuals(entries)
    components = []
    for kind, shrinkage in chosen:
        component, which = (every if kind.halvings else left).build(kind)
        components.append(component._replace(shrinkage=shrinkage))
        if not kind.halvings:
            left = left._replace(
                residuals=left.residuals - component.evaluate_keys(shrinkage)[which]
            )
    return tuple(components)


def _find_later_shares(
    chosen: Sequence[tuple[Kind, float]], train: ObservedMatrix, dated: IndexArray
) -> FloatArray:
    """Return the shares that are best for the latest tenth of the entries, given the earlier ones.

    Entries within a day of the earlier ones of their row are left out.
    """
    assert train.times is not None
    is_later = train.times >= np.quantile(train.times[dated], 1 - 1 / _ONE_IN)
    seen = train.take_entries(~is_later)
    if seen.times is not None:
        ends = _find_ends(seen)[train.entry_rows]
        is_later &= (ends == NO_TIME) | (train.times >= ends + DAY)
    later = train.take_entries(is_later)
    if seen.times is None or later.times is None or later.n_entries == 0:
        return np.zeros(len(chosen))
    residuals = _compute_residuals(seen, later)
    return find_shares(
        _build_all(chosen, seen), residuals, later.entry_rows, later.by_row.columns, later.times
    )


def _list_kinds(times: TimeArray) -> list[Kind]:
    """Return the kinds of components to try, the slowest first."""
    span = float(times.max() - times.min())
    slow, month, session = span / 6, 30.0 * DAY, DAY / 4.0
    found = [Kind("column", slow)]
    found += [Kind("column", month)] if month < slow else []
    found += [Kind("row", session)] if span > 3 * DAY else []
    return found


def _compute_residuals(seen: ObservedMatrix, entries: ObservedMatrix) -> FloatArray:
    means = Fallback(EntryStore.of(seen)).means(entries.entry_rows, entries.by_row.columns)
    return entries.values.astype(np.float64) - means


def _find_residuals(entries: ObservedMatrix) -> DatedResiduals:
    assert entries.times is not None
    dated, weights = np.flatnonzero(entries.times != NO_TIME), entries.weights
    return DatedResiduals(
        entries.entry_rows[dated],
        entries.by_row.columns[dated],
        entries.times[dated],
        _compute_residuals(entries, entries)[dated],
        None if weights is None else weights[dated],
    )
