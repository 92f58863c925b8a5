"""The fit of drift: components join as far as they help on held-out entries, and later ones decide
what is used later."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

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

# Numbers of residuals at 0 that are tried for each component. Five, four times apart: the error
# changes by less than its noise between them.
_SHRINKAGES = (5.0, 20.0, 80.0, 320.0, 1280.0)

# Half-lives in the span of a row that are tried for its recent entries.
_HALVINGS = (3.0, 6.0, 12.0)

_MOST_TRIED = 500_000  # entries on which components are tried

_HELD_OUT = 0.1  # the share of entries that is held out to choose by

_DOUBT = 2.0  # standard errors by which the error must fall for drift after known entries

_FEWEST = 20  # held-out entries that decide


class _Chosen(NamedTuple):
    """A kind of component and its shrinkage."""

    kind: Kind
    shrinkage: float


def fit_drift(learning: Learning) -> dict[str, Drift]:
    """Learn the drift of a model with the setting `times`; there is none without two times.

    Dated validation entries decide how much of the drift is added to predictions, and where enough
    of them are later than known entries, whether any is added there. Without validation entries,
    training entries decide, although their residuals are too small.
    """
    train = learning.entries.train
    if learning.settings.get("times") is None or not train.has_values:
        return {}
    seed = learning.settings["seed"]
    drift = learn_drift(train, seed=seed)
    if drift is None:
        return {}
    held_out = learning.held_out
    if held_out is None or held_out.extras.times is None:
        values = train.values.astype(np.float64)
        entries = PlacedEntries(train.entry_rows, train.by_row.columns, values, train.extras)
        drift = _join(drift, _find_left(learning, entries, seed))
    else:
        residuals = _find_left(learning, held_out, seed)
        drift = keep_helpful(_join(drift, residuals), residuals)
    return {"drift": drift}


def _find_left(learning: Learning, entries: PlacedEntries, seed: int) -> DatedResiduals:
    """Return what the predictions of a model leave of some entries with times."""
    times = entries.extras.times
    assert times is not None
    tried = draw_some(np.arange(times.size), _MOST_TRIED, seed=[seed, 34])
    rows, columns = entries.rows[tried], entries.columns[tried]
    residuals = entries.values[tried] - learning.predictor.predict(rows, columns)
    return DatedResiduals(rows, columns, times[tried], residuals, None)


def _join(drift: Drift, left: DatedResiduals) -> Drift:
    return drift.join(left.residuals, left.rows, left.columns, left.times)


def keep_helpful(drift: Drift, left: DatedResiduals) -> Drift:
    """Return a drift without the shares that do not help on held-out entries, beyond doubt.

    The shares of the components of rows, and of columns, are tried stage by stage on the entries of
    the stage; where these are few, shares stay.
    """
    by_row = np.array([component.group == "row" for component in drift.components])
    of_rows, of_columns = drift.find_stages(left.rows, left.times)
    for are_concerned, stages in ((by_row, of_rows), (~by_row, of_columns)):
        for stage in np.unique(stages):
            entries = left.take(stages == stage)
            if entries.times.size < _FEWEST:
                continue
            shares = drift.shares.copy()
            shares[stage, are_concerned] = 0.0
            candidates = [replace(drift, shares=shares), drift]
            measure = partial(_measure_drift, entries)
            drift = choose(candidates, measure, at_least=_DOUBT).candidate
    return drift


def _measure_drift(left: DatedResiduals, drift: Drift) -> FloatArray:
    """Return the squares of what drift leaves of residuals."""
    return np.square(left.residuals - drift.evaluate(left.rows, left.columns, left.times))


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
    steady = _choose_steady(train, dated, seed)
    fading, after_shares = _learn_fading(steady, train, dated)
    components = [*steady, *fading]
    if not components:
        return None
    between = np.array([float(component.kind.halvings == 0) for component in components])
    shares = np.stack([between, after_shares, _find_later_shares(components, train, dated)])
    every_column = np.arange(train.shape[1])
    no_row = np.full(every_column.size, -1)
    column_means = Fallback(EntryStore.of(train)).means(no_row, every_column)
    latest = int(times.max())
    return Drift(_build_all(components, train), shares, latest, _find_ends(train), column_means)


def _choose_steady(train: ObservedMatrix, dated: IndexArray, seed: int) -> list[_Chosen]:
    """Return the components that help between known entries, the slowest first."""
    assert train.times is not None
    tried = draw_some(dated, _MOST_TRIED, seed=[seed, 34])
    n_held_out = max(1, int(tried.size * _HELD_OUT))
    is_held_out = np.zeros(train.n_entries, dtype=bool)
    numbers = np.random.default_rng([seed, 33])
    is_held_out[numbers.choice(tried, n_held_out, replace=False)] = True
    visible, held_out = train.take_entries(~is_held_out), train.take_entries(is_held_out)
    components: list[_Chosen] = []
    if visible.times is None or held_out.times is None or visible.n_entries == 0:
        return components
    visible_residuals = _find_residuals(visible, visible)
    hidden_residuals = _find_residuals(held_out, visible)
    for kind in _list_kinds(train.times[dated]):
        component, keys = visible_residuals.build(kind)
        sums, counts = component.collect(*hidden_residuals[:3])
        measure = partial(_compute_error, hidden_residuals.residuals, sums, counts)
        shrinkage = choose([math.inf, *_SHRINKAGES], measure).candidate
        if shrinkage < math.inf:
            components.append(_Chosen(kind, shrinkage))
            hidden_residuals = hidden_residuals.subtract(sums / (counts + shrinkage))
            visible_residuals = visible_residuals.subtract(component.evaluate_keys(shrinkage)[keys])
    return components


def _learn_fading(
    steady: Sequence[_Chosen], train: ObservedMatrix, dated: IndexArray
) -> tuple[list[_Chosen], FloatArray]:
    """Return the fading component that is best on the last tenth of the entries of each row, and
    the shares there.

    There is no component, and all shares are 0, unless the error of the means falls beyond doubt.
    """
    is_last = _mark_last(train, dated)
    visible, last = train.take_entries(~is_last), train.take_entries(is_last)
    if visible.times is None or last.times is None or last.n_entries == 0:
        return [], np.zeros(len(steady))
    every_residual = _find_residuals(visible, visible)
    last_residuals = _find_residuals(last, visible)
    kinds = [Kind("row", ALWAYS, halvings) for halvings in _HALVINGS]
    collected = {kind: every_residual.build(kind)[0].collect(*last_residuals[:3]) for kind in kinds}

    def measure(candidate: _Chosen) -> FloatArray:
        sums, counts = collected[candidate.kind]
        return np.square(last_residuals.residuals - sums / (counts + candidate.shrinkage))

    none = _Chosen(kinds[0], math.inf)
    candidates = itertools.starmap(_Chosen, itertools.product(kinds, _SHRINKAGES))
    best = choose([none, *candidates], measure, at_least=_DOUBT).candidate
    fading = [] if best is none else [best]
    evidence = _Evidence(_build_all([*steady, *fading], visible), last_residuals)
    return fading, evidence.choose_shares(evidence.find_shares())


class _Evidence(NamedTuple):
    """Components of some entries, and what the means leave of entries that are later."""

    components: Sequence[Component]
    left: DatedResiduals

    def find_shares(self) -> FloatArray:
        """Return the shares of the components that explain the residuals best."""
        rows, columns, times, residuals, _ = self.left
        return find_shares(self.components, residuals, rows, columns, times)

    def choose_shares(self, shares: FloatArray) -> FloatArray:
        """Return shares, or zeros unless these explain the residuals beyond doubt."""
        zeros = np.zeros(len(self.components))
        return choose([zeros, shares], self._measure, at_least=_DOUBT).candidate

    def _measure(self, shares: FloatArray) -> FloatArray:
        """Return the squares of what shares of the components leave of the residuals."""
        residuals = self.left.residuals
        for component, share in zip(self.components, shares.tolist(), strict=True):
            moves = component.evaluate(self.left.rows, self.left.columns, self.left.times)
            residuals = residuals - share * moves
        return np.square(residuals)


def _find_later_shares(
    chosen: Sequence[_Chosen], train: ObservedMatrix, dated: IndexArray
) -> FloatArray:
    """Return the shares that are best for both the latest tenth of the entries and the one before,
    given the earlier entries.

    They are 0 unless those of the tenth before help in the latest one, beyond doubt.
    """
    none = np.zeros(len(chosen))
    latest = _gather_later(chosen, train, dated, 0)
    before = _gather_later(chosen, train, dated, 1)
    if latest is None or before is None:
        return none
    shares = latest.choose_shares(before.find_shares())
    return np.minimum(shares, latest.find_shares())


def _gather_later(
    chosen: Sequence[_Chosen], train: ObservedMatrix, dated: IndexArray, n_after: int
) -> _Evidence | None:
    """Return a tenth of the entries by time, which `n_after` tenths follow, and the earlier ones.

    Entries within a day of the earlier ones of their row are left out.
    """
    assert train.times is not None
    shares = 1 - _HELD_OUT * (n_after + np.array([1, 0]))
    start, end = np.quantile(train.times[dated], shares)
    is_later = (train.times >= start) & ((train.times < end) | (n_after == 0))
    visible = train.take_entries(train.times < start)
    if visible.times is None:
        return None
    ends = _find_ends(visible)[train.entry_rows]
    is_later &= (ends == NO_TIME) | (train.times >= ends + DAY)
    later = train.take_entries(is_later)
    if later.times is None or later.n_entries == 0:
        return None
    return _Evidence(_build_all(chosen, visible), _find_residuals(later, visible))


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
    n_last = np.where(counts > 1, np.maximum((counts * _HELD_OUT).astype(int), 1), 0)
    is_last = np.zeros(train.n_entries, dtype=bool)
    is_last[dated[order]] = np.arange(rows.size) >= (ends - n_last)[rows[order]]
    return is_last


def _find_ends(train: ObservedMatrix) -> TimeArray:
    """Return the time of the latest entry of each row."""
    assert train.times is not None
    ends, nonempty = np.full(train.shape[0], NO_TIME), np.flatnonzero(train.row_counts)
    ends[nonempty] = np.maximum.reduceat(train.times, train.by_row.starts[nonempty])
    return ends


def _build_all(chosen: Sequence[_Chosen], entries: ObservedMatrix) -> tuple[Component, ...]:
    """Build components, each on the residuals of those before it; the fading one on those of the
    means."""
    every_residual = unexplained = _find_residuals(entries, entries)
    components = []
    for kind, shrinkage in chosen:
        if kind.halvings:
            component, _ = every_residual.build(kind)
        else:
            component, keys = unexplained.build(kind)
            unexplained = unexplained.subtract(component.evaluate_keys(shrinkage)[keys])
        components.append(component._replace(shrinkage=shrinkage))
    return tuple(components)


def _list_kinds(times: TimeArray) -> list[Kind]:
    """Return the kinds of components to try, the slowest first."""
    span = float(times.max() - times.min())
    slow, month, session = span / 6, 30.0 * DAY, DAY / 4.0
    kinds = [Kind("column", slow)]
    if month < slow:
        kinds.append(Kind("column", month))
    if span > 3 * DAY:
        kinds.append(Kind("row", session))
    return kinds


def _find_residuals(entries: ObservedMatrix, seen: ObservedMatrix) -> DatedResiduals:
    """Return what the means of seen entries leave of the entries with a time."""
    assert entries.times is not None
    means = Fallback(EntryStore.of(seen)).means(entries.entry_rows, entries.by_row.columns)
    pairs = entries.entry_rows, entries.by_row.columns, entries.times
    residuals = DatedResiduals(*pairs, entries.values - means, entries.weights)
    return residuals.take(entries.times != NO_TIME)
