"""Drift: how the levels of rows and columns move with time, as an additive part of any model.

A drift is a sum of at most four components. Three of them group the residuals of the static means by column (in bins of
a sixth of all time, and of a month) or by row (in bins of six hours, a session). The value of a group at a time is the
shrunk mean of its residuals near this time,

    sum over bins of k(distance) * sum of residuals / (sum over bins of k(distance) * number of residuals + shrinkage),

with the kernel k(d) = 2^-d over at most three bins to each side. Far from all entries of a group the value goes to 0.

The fourth component, the fading one, has no bins: it is the shrunk mean of all residuals of a row, where older ones
count less, relative to the span of the row's entries. It is used after the row's last entry only. Its shrinkage and
half-life are chosen on the last tenth of the entries of each row.

The shrinkage of each other component is chosen by the error of the means on held-out entries. The share with which a
component is added to a model is chosen on entries that the model has not seen, if there are any. After a row's last
entry, the share of a component of rows is capped at the share that is best on the last tenth of each row's entries, and
a day later, as for columns after the latest entry of all, at the share that is best on the latest tenth of all entries:
a component that helps between entries may mislead after them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.optimize

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries, PlacedEntries, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import DAY, NO_TIME, TimeArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.scoring.distribution import PredictiveDistribution
from deepmf.scoring.effects import Effects
from deepmf.scoring.pairs import SHRINKAGE, Fallback, compute_effects
from deepmf.scoring.predictor import Predictor, Readout
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, not_negative, one_of, positive, rising
from deepmf.training.holdout import choose, draw_some

_REACH = 3  # bins to each side
_KERNEL = 0.5 ** np.abs(np.arange(-_REACH, _REACH + 1))

# Numbers of residuals at 0 that are tried for each component, and the largest number of entries they are tried on.
_SHRINKAGES = (5.0, 20.0, 80.0, 320.0, 1280.0)
_MOST_TRIED = 500_000
_ONE_IN = 10

# Half-lives in the span of a row that are tried for its recent entries.
_HALVINGS = (3.0, 6.0, 12.0)

# Prior weight, in later entries of a row, of the mean share of recent entries.
_PRIOR_ENTRIES = 100

# Keys are numbered by a table if it has at most this many cells for each.
_MOST_FREE = 32

Grouping = Literal["row", "column"]

# One bin for all times.
_BEGINNING, _ALWAYS = -(10**17), 1e18


class Kind(NamedTuple):
    """A kind of component: its groups and the width of its bins in seconds.

    halvings: half-lives in the span of a row, if the component fades.
    """

    group: Grouping
    width: float
    halvings: float = 0.0


class Component(NamedTuple):
    """The sums of residuals of some groups in bins of time.

    group: whether a group has the entries of a row or of a column.
    width: the seconds of a bin; first: the time at which bin 0 begins; n_bins: the number of bins.
    keys: increasing, group * n_bins + bin; sums and counts: of the residuals of each key.
    halvings: half-lives in the span of a row, if older residuals count less.
    """

    group: Grouping
    width: float
    first: int
    n_bins: int
    keys: IndexArray
    sums: FloatArray
    counts: FloatArray
    shrinkage: float
    halvings: float = 0.0

    @property
    def fades(self) -> bool:
        """Whether its residuals count by their age, for any time after them."""
        return self.halvings > 0

    def evaluate(self, rows: IndexArray, columns: IndexArray, times: TimeArray) -> FloatArray:
        """Return the value of the component for pairs of positions at some times; 0 at no time."""
        sums, counts = self.collect(rows, columns, times)
        values: FloatArray = sums / (counts + self.shrinkage)
        return values

    def collect(self, rows: IndexArray, columns: IndexArray, times: TimeArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums and numbers of residuals near pairs of positions at some times, by the kernel."""
        groups = _find_groups(self.group, rows, columns)
        dated = np.flatnonzero((times != NO_TIME) & (groups >= 0))
        # Many pairs share a group and a bin. Far outside, one bin is as good as another: nothing is near.
        stride = self.n_bins + 2 * _REACH + 2
        bins = np.clip(find_bins(times[dated], self.first, self.width) + _REACH + 1, 0, stride - 1)
        distinct, which = _number_keys(groups[dated] * stride + bins)
        own_groups, own_bins = np.divmod(distinct, stride)
        found = self._sum_near(own_groups, own_bins - _REACH - 1)
        sums, counts = np.zeros(rows.size), np.zeros(rows.size)
        sums[dated], counts[dated] = (each[which] for each in found)
        return sums, counts

    def evaluate_keys(self, shrinkage: float) -> FloatArray:
        """Return the value of the component in the group and bin of each key."""
        sums, counts = self._sum_near(*np.divmod(self.keys, self.n_bins))
        values: FloatArray = sums / (counts + shrinkage)
        return values

    def _sum_near(self, groups: IndexArray, bins: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums and numbers of residuals near some bins of groups, by the kernel."""
        sums, counts = np.zeros(groups.size), np.zeros(groups.size)
        for offset, share in zip(range(-_REACH, _REACH + 1), _KERNEL.tolist(), strict=True):
            near = bins + offset
            at, found = locate(self.keys, groups * self.n_bins + near)
            found &= (near >= 0) & (near < self.n_bins)
            sums[found] += share * self.sums[at[found]]
            counts[found] += share * self.counts[at[found]]
        return sums, counts


def _number_keys(keys: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the distinct keys, increasing, and the number of each key among them, without sorting where few are free.

    >>> _number_keys(np.array([7, 3, 7]))
    (array([3, 7]), array([1, 0, 1]))
    """
    most = int(keys.max(initial=0)) + 1
    if most > _MOST_FREE * max(keys.size, 1):
        distinct, which = np.unique(keys, return_inverse=True)
        return distinct, which
    is_taken = np.zeros(most, dtype=bool)
    is_taken[keys] = True
    distinct = np.flatnonzero(is_taken)
    places = np.empty(most, dtype=np.int64)
    places[distinct] = np.arange(distinct.size)
    return distinct, places[keys]


def _find_groups(group: Grouping, rows: IndexArray, columns: IndexArray) -> IndexArray:
    """Return the group of each pair of positions."""
    return (rows if group == "row" else columns).astype(np.int64)


def fade_by_age(times: TimeArray, rows: IndexArray, halvings: float) -> FloatArray:
    """Return weights of entries by their age: the span of a row is `halvings` half-lives.

    `rows` are sorted.

    >>> fade_by_age(np.array([0, 10, 20, 5]), np.array([0, 0, 0, 3]), 2.0)
    array([0.25, 0.5 , 1.  , 1.  ])
    """
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    which = np.repeat(np.arange(starts.size), np.diff(starts, append=rows.size))
    first, last = np.minimum.reduceat(times, starts), np.maximum.reduceat(times, starts)
    weights: FloatArray = np.exp2(-halvings * (last[which] - times) / np.maximum(last - first, 1)[which])
    return weights


def find_bins(times: TimeArray, first: int, width: float) -> IndexArray:
    """Return the bin of each time."""
    return np.floor((times - first) / width).astype(np.int64)


def build_component(
    group: Grouping,
    width: float,
    rows: IndexArray,
    columns: IndexArray,
    times: TimeArray,
    residuals: FloatArray,
    weights: npt.NDArray[Any] | None,
) -> tuple[Component, IndexArray]:
    """Return the component of some residuals, all of which have a time, without shrinkage; and the key of each."""
    first = int(times.min())
    n_bins = int(find_bins(times.max(keepdims=True), first, width)[0]) + 1
    groups = _find_groups(group, rows, columns)
    keys, which = _number_keys(groups * n_bins + find_bins(times, first, width))
    weighted = residuals if weights is None else residuals * weights
    sums = np.bincount(which, weights=weighted, minlength=keys.size).astype(np.float64)
    counts = np.bincount(which, weights=weights, minlength=keys.size).astype(np.float64)
    return Component(group, width, first, n_bins, keys, sums, counts, 0.0), which


class Drift(NamedTuple):
    """Components, and the share of each with which it joins a model.

    shares: between known entries. after_shares: of components of rows, within a day of the row's latest entry.
    later_shares: of components of rows after this day; of the others from the latest entry of all on. After known
    entries, a component has at most its share between them, unless it fades.
    latest: the time of the latest entry; ends: the time of the latest entry of each row, NO_TIME without one.
    column_means: the means of columns, which are subtracted from the entries of rows that are added later.
    """

    components: tuple[Component, ...]
    shares: FloatArray
    after_shares: FloatArray
    later_shares: FloatArray
    latest: int
    ends: TimeArray
    column_means: FloatArray

    def evaluate(self, rows: IndexArray, columns: IndexArray, times: TimeArray) -> FloatArray:
        """Return the drift of pairs of positions at some times, in the units of the scale."""
        return self._sum_components(rows, columns, times, np.ones(len(self.components), dtype=bool))

    def _sum_components(
        self, rows: IndexArray, columns: IndexArray, times: TimeArray, which: npt.NDArray[np.bool_]
    ) -> FloatArray:
        """Return the sum of some components, each times its share."""
        total, of_rows, of_others = np.zeros(rows.size), self._find_stages(rows, times), 2 * (times >= self.latest)
        for at in np.flatnonzero(which).tolist():
            component, share = self.components[at], self.shares[at]
            most = 1.0 if component.fades else share
            by_stage = np.array([share, min(most, self.after_shares[at]), min(most, self.later_shares[at])])
            if by_stage.any():
                stages = of_rows if component.group == "row" else of_others
                total += by_stage[stages] * component.evaluate(rows, columns, times)
        return total

    def _find_stages(self, rows: IndexArray, times: TimeArray) -> IndexArray:
        """Return 0 for times between the entries of their row, 1 within a day after them, and 2 later."""
        stages = np.full(rows.size, 2)
        known = np.flatnonzero((rows >= 0) & (rows < self.ends.size))
        gaps = times[known] - self.ends[rows[known]]
        stages[known] = (gaps >= 0).astype(int) + (gaps >= DAY)
        return stages

    def evaluate_block(self, rows: IndexArray, columns: IndexArray, time: int | TimeArray) -> FloatArray:
        """Return the drift (rows, columns) of all pairs at one time, or at a time for each row."""
        times, is_of_columns = (
            np.broadcast_to(time, rows.shape),
            np.array([c.group == "column" for c in self.components]),
        )
        of_rows = self._sum_components(rows, np.full(rows.size, -1), times, ~is_of_columns)
        total = np.repeat(of_rows[:, None], columns.size, axis=1)
        for at in np.flatnonzero(is_of_columns).tolist():
            # The drift of columns is the same for all times of a bin.
            bins = 2 * find_bins(times, self.components[at].first, self.components[at].width) + (times >= self.latest)
            _, firsts, which = np.unique(bins, return_index=True, return_inverse=True)
            pairs = np.tile(columns, firsts.size), np.repeat(times[firsts], columns.size)
            found = self._sum_components(np.full(pairs[0].size, -1), *pairs, np.arange(is_of_columns.size) == at)
            total += found.reshape(firsts.size, -1)[which]
        return total

    def fold_in(self, entries: AxisEntries) -> Drift:
        """Return the drift of folded-in rows, which have the fading component of rows alone."""
        counts, times = np.diff(entries.starts), entries.extras.times
        rows, values = np.repeat(np.arange(counts.size), counts), entries.values.astype(np.float64)
        residuals = values - np.append(self.column_means, np.nan)[np.minimum(entries.others, self.column_means.size)]
        known = entries.select(~np.isnan(residuals))
        effects = compute_effects(known, residuals[~np.isnan(residuals)], SHRINKAGE)
        is_dated = np.zeros(rows.size, dtype=bool) if times is None else ~np.isnan(residuals) & (times != NO_TIME)
        ends, dated = np.full(counts.size, NO_TIME), np.flatnonzero(is_dated)
        own = None
        if times is not None and dated.size:
            weights = entries.extras.weights
            left = (residuals - effects[rows])[dated]
            own = _DatedResiduals(
                rows[dated], rows[dated], times[dated], left, None if weights is None else weights[dated]
            )
            np.maximum.at(ends, rows[dated], times[dated])

        def take(component: Component) -> Component:
            if component.group != "row":
                return component
            if own is None or not component.fades:
                nothing = np.empty(0)
                return component._replace(keys=nothing.astype(np.int64), sums=nothing, counts=nothing)
            built, _ = own.build(Kind("row", component.width, component.halvings))
            return built._replace(shrinkage=component.shrinkage)

        return self._replace(components=tuple(map(take, self.components)), ends=ends)

    def extend(self, entries: EntryStore, rows: IndexArray) -> Drift:
        """Return the drift after a change of the entries of some rows, whose fading components are built again."""
        if rows.size == 0 or not any(each.fades for each in self.components):
            return self
        own, rows = self.fold_in(entries.row_entries(rows)), rows.astype(np.int64)
        ends = np.full(max(self.ends.size, int(rows.max()) + 1), NO_TIME)
        ends[: self.ends.size] = self.ends
        ends[rows] = own.ends

        def merge(old: Component, new: Component) -> Component:
            if not old.fades:
                return old
            kept = ~np.isin(old.keys, rows)
            keys = np.concatenate([old.keys[kept], rows[new.keys]])
            order = np.argsort(keys)
            sums, counts = (
                np.concatenate([of_old[kept], of_new])[order]
                for of_old, of_new in ((old.sums, new.sums), (old.counts, new.counts))
            )
            return old._replace(keys=keys[order], sums=sums, counts=counts)

        components = tuple(merge(*pair) for pair in zip(self.components, own.components, strict=True))
        return self._replace(components=components, ends=ends)

    def without_rows(self, gone: IndexArray) -> Drift:
        """Return the drift without some rows that came after training, in increasing order; later ones move up."""

        def drop(component: Component) -> Component:
            if not component.fades:
                return component
            kept = ~np.isin(component.keys, gone)
            keys = component.keys[kept]
            keys = keys - np.searchsorted(gone, keys)
            return component._replace(keys=keys, sums=component.sums[kept], counts=component.counts[kept])

        ends = np.delete(self.ends, gone[gone < self.ends.size])
        return self._replace(components=tuple(map(drop, self.components)), ends=ends)

    def join(self, residuals: FloatArray, rows: IndexArray, columns: IndexArray, times: TimeArray) -> Drift:
        """Return the drift with the shares that explain the residuals of a model best, none of them negative."""
        fades = np.array([each.fades for each in self.components])
        steady = [each for each in self.components if not each.fades]
        shares = np.zeros(len(self.components))
        shares[~fades] = find_shares(steady, residuals, rows, columns, times)
        joined = self._replace(shares=shares)
        left = residuals - joined._sum_components(rows, columns, times, ~fades)
        fading = joined._sum_components(rows, columns, times, fades)
        n_after = np.count_nonzero(fading)
        if n_after:
            # As if some more entries were explained as well as the means are.
            squares = fading @ fading
            prior = _PRIOR_ENTRIES * squares / n_after
            kept = float(np.clip((fading @ left + prior) / (squares + prior), 0.0, 1.0))
            factors = np.where(fades, kept, 1.0)
            joined = joined._replace(
                after_shares=joined.after_shares * factors, later_shares=joined.later_shares * factors
            )
        return joined

    def pack(self) -> Packed:
        """Return the drift for a model file."""
        return _DRIFT.pack(self)

    @classmethod
    def unpack(cls, content: Any, tensors: Tensors) -> Drift:
        """Return the packed drift; impossible content raises `BadModelFile`."""
        found = _DRIFT.read(content, tensors)
        return cls(**found | {"components": tuple(Component(**each) for each in found["components"])})


_DRIFT = Form(
    Part(
        "components",
        Form(
            Part("group", "text", (), one_of(*get_args(Grouping))),
            Part("width", "number", (), positive),
            Part("first", "whole"),
            Part("n_bins", "whole", (), positive),
            Part("shrinkage", "number", (), positive),
            Part("halvings", "number"),
            Part("keys", "int64", ("bins",), rising),
            Part("sums", "float64", ("bins",)),
            Part("counts", "float64", ("bins",), not_negative),
        ),
        ("components",),
    ),
    Part("shares", "float64", ("components",)),
    Part("after_shares", "float64", ("components",)),
    Part("later_shares", "float64", ("components",)),
    Part("latest", "whole"),
    Part("ends", "int64", ("rows",)),
    Part("column_means", "float64", ("columns",)),
    prefix="drift",
)


class DriftAt(NamedTuple):
    """A drift at a time, effects of rows and columns, or both, and the scale within which predictions move.

    time: one time, or a time for each pair, or for each row of a block.
    rounds: whether predictions are levels.
    known: whether rows, and whether columns, have their own drift; folded-in rows and columns have none.
    """

    drift: Drift | None
    time: int | TimeArray
    scale: Scale
    rounds: bool = False
    known: tuple[bool, bool] = (True, True)
    effects: Effects | None = None

    @classmethod
    def of(
        cls,
        drift: Drift | None,
        time: int | TimeArray | None,
        readout: Readout,
        known: tuple[bool, bool] = (True, True),
    ) -> DriftAt | None:
        """Return what moves the predictions of a readout, by default at the latest time; None if nothing does."""
        if drift is None and readout.effects is None:
            return None
        latest = 0 if drift is None else drift.latest
        scale, rounds = readout.scale, readout.predicts_levels
        return cls(drift, latest if time is None else time, scale, rounds, known, readout.effects)

    def move_pairs(
        self, predicted: FloatArray, rows: IndexArray, columns: IndexArray, *, clips: bool = True
    ) -> FloatArray:
        """Return predictions (pairs,) at the time; NaN stays. Without clips, they may leave the scale."""
        rows, columns = self._hide(rows, 0), self._hide(columns, 1)
        moved = predicted if self.effects is None else predicted + self.effects.evaluate(rows, columns)
        if self.drift is not None:
            moved = moved + self.drift.evaluate(rows, columns, np.broadcast_to(self.time, rows.shape))
        return self._keep_on_scale(moved) if clips else moved

    def move_block(
        self, predicted: FloatArray, rows: IndexArray, columns: IndexArray, *, clips: bool = True
    ) -> FloatArray:
        """Return predictions (rows, columns) at the time; without clips, they may leave the scale."""
        rows, columns = self._hide(rows, 0), self._hide(columns, 1)
        moved = predicted if self.effects is None else predicted + self.effects.evaluate(rows[:, None], columns)
        if self.drift is not None:
            moved = moved + self.drift.evaluate_block(rows, columns, self.time)
        return self._keep_on_scale(moved) if clips else moved

    def shift(
        self, found: PredictiveDistribution, predicted: FloatArray, rows: IndexArray, columns: IndexArray
    ) -> PredictiveDistribution:
        """Return distributions that move as far as the predictions (pairs,) do."""
        return found.shift(self.move_pairs(predicted, rows, columns) - predicted)

    def _hide(self, positions: IndexArray, axis: int) -> IndexArray:
        """Return positions of an axis, -1 where it has no drift of its own."""
        return positions if self.known[axis] else np.full(positions.size, -1)

    def _keep_on_scale(self, moved: FloatArray) -> FloatArray:
        kept = self.scale.clip(moved)
        return np.where(np.isnan(kept), np.nan, self.scale.nearest_level(kept)) if self.rounds else kept


def find_shares(
    components: Sequence[Component], residuals: FloatArray, rows: IndexArray, columns: IndexArray, times: TimeArray
) -> FloatArray:
    """Return the shares from 0 to 1 with which components explain the residuals of some entries best."""
    if not components:
        return np.zeros(0)
    parts = [each.evaluate(rows, columns, times) for each in components]
    # The triangle of a QR decomposition has the same squares, in a few lines.
    triangle: FloatArray = np.asarray(np.linalg.qr(np.column_stack([*parts, residuals]), mode="r"))
    found = scipy.optimize.lsq_linear(triangle[:, :-1], triangle[:, -1], (0.0, 1.0), method="bvls", max_iter=100)
    shares: FloatArray = found.x
    return shares


def fit_drift(
    train: ObservedMatrix, predictor: Predictor, held_out: PlacedEntries | None, *, seed: int
) -> Drift | None:
    """Learn the drift of a model whose predictor was fitted to a matrix; None without at least two times.

    Dated validation entries decide how much of the drift is added to predictions; without any, training entries decide,
    although their residuals are too small.
    """
    drift = learn_drift(train, seed=seed)
    if drift is None:
        return None
    if held_out is None or held_out.extras.times is None:
        values = train.values.astype(np.float64)
        held_out = PlacedEntries(train.entry_rows, train.by_row.columns, values, train.extras)
    times = held_out.extras.times
    assert times is not None
    some = draw_some(np.arange(times.size), _MOST_TRIED, seed=[seed, 34])
    pairs = held_out.rows[some], held_out.columns[some]
    residuals = held_out.values[some] - predictor.predict(*pairs)
    return drift.join(residuals, *pairs, times[some])


def learn_drift(train: ObservedMatrix, *, seed: int = 0) -> Drift | None:
    """Learn the drift of the means of a matrix; None without at least two times.

    Components are chosen one after another. A component stays if it lowers the error of the means on a tenth of the
    entries that is held out, by the shrinkage that lowers it most.
    """
    times = train.times
    if times is None:
        return None
    dated = np.flatnonzero(times != NO_TIME)
    if times[dated].min() == times[dated].max():
        return None
    numbers, tried = np.random.default_rng([seed, 33]), draw_some(dated, _MOST_TRIED, seed=[seed, 34])
    is_held_out = np.zeros(train.n_entries, dtype=bool)
    is_held_out[numbers.choice(tried, max(1, tried.size // _ONE_IN), replace=False)] = True
    seen, held_out = train.take_entries(~is_held_out), train.take_entries(is_held_out)
    if seen.times is None or held_out.times is None or seen.n_entries == 0:
        return None
    left, left_held_out = _DatedResiduals.of(seen), _compute_residuals(seen, held_out)
    chosen: list[tuple[Kind, float]] = []
    for kind in _list_kinds(times[dated]):
        component, which = left.build(kind)
        sums, counts = component.collect(held_out.entry_rows, held_out.by_row.columns, held_out.times)
        shrinkage = choose([math.inf, *_SHRINKAGES], partial(_compute_error, left_held_out, sums, counts)).candidate
        if shrinkage < math.inf:
            chosen.append((kind, shrinkage))
            left_held_out = left_held_out - sums / (counts + shrinkage)
            left = left.subtract(component.evaluate_keys(shrinkage)[which])
    fading, after_shares = _learn_fading(chosen, train, dated)
    chosen += fading
    if not chosen:
        return None
    shares = np.array([0.0 if kind.halvings else 1.0 for kind, _ in chosen])
    later_shares = _find_later_shares(chosen, train, dated)
    every_column = np.arange(train.shape[1])
    column_means = Fallback(EntryStore.of(train)).means(np.full(every_column.size, -1), every_column)
    return Drift(
        _build_all(chosen, train),
        shares,
        after_shares,
        later_shares,
        int(times.max()),
        _find_ends(train),
        column_means,
    )


def _learn_fading(
    chosen: Sequence[tuple[Kind, float]], train: ObservedMatrix, dated: IndexArray
) -> tuple[list[tuple[Kind, float]], FloatArray]:
    """Return the fading component that is best on the last tenth of the entries of each row, and the shares there.

    There is no component if none lowers the error of the means.
    """
    is_last = _mark_last(train, dated)
    seen, last = train.take_entries(~is_last), train.take_entries(is_last)
    if seen.times is None or last.times is None or last.n_entries == 0:
        return [], np.zeros(len(chosen))
    every, left = _DatedResiduals.of(seen), _compute_residuals(seen, last)
    pairs = last.entry_rows, last.by_row.columns, last.times
    kinds = [Kind("row", _ALWAYS, halvings) for halvings in _HALVINGS]
    collected = {kind: every.build(kind)[0].collect(*pairs) for kind in kinds}
    candidates = [(kinds[0], math.inf), *itertools.product(kinds, _SHRINKAGES)]
    best = choose(candidates, lambda each: _compute_error(left, *collected[each[0]], each[1])).candidate
    found = [] if best[1] == math.inf else [best]
    return found, find_shares(_build_all([*chosen, *found], seen), left, *pairs)


def _compute_error(residuals: FloatArray, sums: FloatArray, counts: FloatArray, shrinkage: float) -> float:
    """Return the mean square of residuals less those that a component explains; with infinite shrinkage, nothing."""
    return float(np.mean(np.square(residuals - sums / (counts + shrinkage))))


def _mark_last(train: ObservedMatrix, dated: IndexArray) -> npt.NDArray[np.bool_]:
    """Return which entries are the last tenth of their row, by time; at least one of two or more."""
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
    """Return the time of the latest entry of each row."""
    assert train.times is not None
    ends, filled = np.full(train.shape[0], NO_TIME), np.flatnonzero(train.row_counts)
    ends[filled] = np.maximum.reduceat(train.times, train.by_row.starts[filled])
    return ends


def _build_all(chosen: Sequence[tuple[Kind, float]], entries: ObservedMatrix) -> tuple[Component, ...]:
    """Build the chosen components, each on the residuals of those before it; the fading one on those of the means."""
    every = left = _DatedResiduals.of(entries)
    components = []
    for kind, shrinkage in chosen:
        component, which = (every if kind.halvings else left).build(kind)
        components.append(component._replace(shrinkage=shrinkage))
        if not kind.halvings:
            left = left.subtract(component.evaluate_keys(shrinkage)[which])
    return tuple(components)


def _find_later_shares(chosen: Sequence[tuple[Kind, float]], train: ObservedMatrix, dated: IndexArray) -> FloatArray:
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
    return find_shares(_build_all(chosen, seen), residuals, later.entry_rows, later.by_row.columns, later.times)


def _list_kinds(times: TimeArray) -> list[Kind]:
    """Return the kinds of components to try, the slowest first."""
    span = float(times.max() - times.min())
    slow, month, session = span / 6, 30.0 * DAY, DAY / 4.0
    found = [Kind("column", slow)]
    found += [Kind("column", month)] if month < slow else []
    found += [Kind("row", session)] if span > 3 * DAY else []
    return found


def _compute_residuals(seen: ObservedMatrix, entries: ObservedMatrix) -> FloatArray:
    """Return the values of entries less the means of `seen`."""
    means = Fallback(EntryStore.of(seen)).means(entries.entry_rows, entries.by_row.columns)
    residuals: FloatArray = entries.values.astype(np.float64) - means
    return residuals


class _DatedResiduals(NamedTuple):
    """The entries that have a time, and their residuals."""

    rows: IndexArray
    columns: IndexArray
    times: TimeArray
    residuals: FloatArray
    weights: npt.NDArray[Any] | None

    @classmethod
    def of(cls, entries: ObservedMatrix) -> _DatedResiduals:
        """Return the residuals of the means of some entries."""
        assert entries.times is not None
        dated, weights = np.flatnonzero(entries.times != NO_TIME), entries.weights
        return cls(
            entries.entry_rows[dated],
            entries.by_row.columns[dated],
            entries.times[dated],
            _compute_residuals(entries, entries)[dated],
            None if weights is None else weights[dated],
        )

    def build(self, kind: Kind) -> tuple[Component, IndexArray]:
        """Return the component of a kind, and the key of each entry."""
        if kind.halvings == 0:
            return build_component(kind.group, kind.width, *self)
        fading = fade_by_age(self.times, self.rows, kind.halvings)
        weights = fading if self.weights is None else fading * self.weights
        own = self._replace(times=np.zeros_like(self.times), weights=weights)
        component, which = build_component(kind.group, kind.width, *own)
        return component._replace(first=_BEGINNING, halvings=kind.halvings), which

    def subtract(self, values: FloatArray) -> _DatedResiduals:
        """Return the residuals less some values."""
        return self._replace(residuals=self.residuals - values)
