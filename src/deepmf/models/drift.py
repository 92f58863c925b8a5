"""Drift: how the level of rows, of columns and of all entries moves with time, as an additive part of any model.

A drift is a sum of components. A component groups the residuals of the static means by row, by column or all together,
and by bins of time. Its value for a group at a time is the mean of the group's residuals near this time,

    sum over bins of k(distance) * sum of residuals / (sum over bins of k(distance) * number of residuals + shrinkage),

with the kernel k(d) = 2^-d over at most three bins to each side. Far from all entries of a group the value goes to 0.
The shrinkage of each component is chosen on held-out entries of the means, and the share with which a component joins a
model on entries that this model has not seen, where there are any. From the time of the latest entry on, a component
has at most the share that is best for the latest tenth of the entries, given the earlier ones alone: a component that
helps between entries may mislead after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.optimize

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import DAY, NO_TIME, TimeArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.distribution import PredictiveDistribution
from deepmf.models.pairs import Fallback
from deepmf.storage.model_file import Packed, Tensors, read_field, read_number, read_numbers, read_vector

_REACH = 3  # bins to each side
_KERNEL = 0.5 ** np.abs(np.arange(-_REACH, _REACH + 1))

# Numbers of residuals at 0 that are tried for each component, and the largest number of entries they are tried on.
_SHRINKAGES = (5.0, 20.0, 80.0, 320.0, 1280.0)
_MOST_TRIED = 500_000
_ONE_IN = 10

Grouping = Literal["all", "row", "column"]


class Component(NamedTuple):
    """The sums of residuals of some groups in bins of time.

    group: whether all entries, those of a row or those of a column form a group.
    width: the seconds of a bin; first: the time at which bin 0 begins; n_bins: how many there are.
    keys: increasing, group * n_bins + bin; sums and counts: of the residuals of each key.
    """

    group: Grouping
    width: float
    first: int
    n_bins: int
    keys: IndexArray
    sums: FloatArray
    counts: FloatArray
    shrinkage: float

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
        distinct, which = np.unique(groups[dated] * stride + bins, return_inverse=True)
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


def _find_groups(group: Grouping, rows: IndexArray, columns: IndexArray) -> IndexArray:
    """Return the group of each pair of positions."""
    return {"all": np.zeros_like(rows), "row": rows, "column": columns}[group].astype(np.int64)


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
    keys, which = np.unique(groups * n_bins + find_bins(times, first, width), return_inverse=True)
    weighted = residuals if weights is None else residuals * weights
    sums = np.bincount(which, weights=weighted, minlength=keys.size).astype(np.float64)
    counts = np.bincount(which, weights=weights, minlength=keys.size).astype(np.float64)
    return Component(group, width, first, n_bins, keys, sums, counts, 0.0), which


class Drift(NamedTuple):
    """Components, and the share of each with which it joins a model before the latest entry, and from its time on."""

    components: tuple[Component, ...]
    shares: FloatArray
    later_shares: FloatArray
    latest: int

    def evaluate(self, rows: IndexArray, columns: IndexArray, times: TimeArray) -> FloatArray:
        """Return the drift of pairs of positions at some times, in the units of the scale."""
        total, is_later = np.zeros(rows.size), times >= self.latest
        for component, share, later in zip(self.components, self.shares, self.later_shares, strict=True):
            if share > 0:
                shares = np.where(is_later, min(share, later), share)
                total += shares * component.evaluate(rows, columns, times)
        return total

    def evaluate_block(self, rows: IndexArray, columns: IndexArray, time: int) -> FloatArray:
        """Return the drift (rows, columns) of all pairs at one time: a part of the rows plus a part of the columns."""
        nobody = np.full(1, -1)

        def evaluate(rows: IndexArray, columns: IndexArray) -> FloatArray:
            rows, columns = np.broadcast_arrays(rows, columns)
            return self.evaluate(rows, columns, np.full(rows.size, time))

        of_columns = evaluate(nobody, columns) - evaluate(nobody, nobody)  # the drift of all is in both parts
        return np.asarray(evaluate(rows, nobody)[:, None] + of_columns)

    def join(self, residuals: FloatArray, rows: IndexArray, columns: IndexArray, times: TimeArray) -> Drift:
        """Return the drift with the shares that explain the residuals of a model best, none of them negative."""
        return self._replace(shares=find_shares(self.components, residuals, rows, columns, times))

    def pack(self) -> Packed:
        """Return the drift for a model file."""
        content = {
            "latest": self.latest,
            "shares": self.shares.tolist(),
            "later_shares": self.later_shares.tolist(),
            "components": [
                {"group": c.group, "width": c.width, "first": c.first, "n_bins": c.n_bins, "shrinkage": c.shrinkage}
                for c in self.components
            ],
        }
        tensors = {
            f"drift.{number}.{name}": getattr(component, name)
            for number, component in enumerate(self.components)
            for name in ("keys", "sums", "counts")
        }
        return Packed(content, tensors)

    @classmethod
    def unpack(cls, content: Any, tensors: Tensors) -> Drift:
        """Return the packed drift; impossible content raises `BadModelFile`."""
        listed, *both = (read_field(content, name) for name in ("components", "shares", "later_shares"))
        if not all(isinstance(each, list) and len(each) == len(listed) for each in (listed, *both)):
            raise BadModelFile("the stored drift must have a share for each of its components")
        components = []
        for number, each in enumerate(listed):
            group = read_field(each, "group")
            if group not in ("all", "row", "column"):
                raise BadModelFile(f"the stored drift has the unknown group {group!r}")
            width, first, n_bins, shrinkage = (
                read_number(read_field(each, name), "a stored drift")
                for name in ("width", "first", "n_bins", "shrinkage")
            )
            keys = read_vector(tensors, f"drift.{number}.keys", "int64")
            sums, counts = (
                read_numbers(tensors, f"drift.{number}.{name}", "float64", (keys.size,)) for name in ("sums", "counts")
            )
            if width <= 0 or n_bins < 1 or shrinkage <= 0 or np.any(keys[1:] <= keys[:-1]) or np.any(counts < 0):
                raise BadModelFile("the stored drift is damaged")
            components.append(Component(group, width, int(first), int(n_bins), keys, sums, counts, shrinkage))
        shares, later = (np.array([read_number(share, "a stored drift") for share in each]) for each in both)
        latest = int(read_number(read_field(content, "latest"), "a stored drift"))
        return cls(tuple(components), shares, later, latest)


class DriftAt(NamedTuple):
    """A drift at a time, or at one time for each pair, and the scale within which predictions move.

    rounds: whether predictions are levels.
    known: whether rows, and whether columns, have drifts of their own; those that are folded in have none.
    """

    drift: Drift
    time: int | TimeArray
    scale: Scale
    rounds: bool = False
    known: tuple[bool, bool] = (True, True)

    def move_pairs(
        self, predicted: FloatArray, rows: IndexArray, columns: IndexArray, *, clips: bool = True
    ) -> FloatArray:
        """Return predictions (pairs,) at the time; NaN stays. Without clips, they may leave the scale."""
        rows, columns = self._hide(rows, 0), self._hide(columns, 1)
        moved = predicted + self.drift.evaluate(rows, columns, np.broadcast_to(self.time, rows.shape))
        return self._keep_on_scale(moved) if clips else moved

    def move_block(
        self, predicted: FloatArray, rows: IndexArray, columns: IndexArray, *, clips: bool = True
    ) -> FloatArray:
        """Return predictions (rows, columns) at a single time; without clips, they may leave the scale."""
        rows, columns = self._hide(rows, 0), self._hide(columns, 1)
        moved = predicted + self.drift.evaluate_block(rows, columns, int(self.time))
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
    parts = np.column_stack([each.evaluate(rows, columns, times) for each in components])
    shares, _ = scipy.optimize.nnls(parts.T @ parts + 1e-9 * np.eye(parts.shape[1]), parts.T @ residuals)
    bounded: FloatArray = np.minimum(shares, 1.0)
    return bounded


def sample_places(count: int, *, seed: int) -> IndexArray:
    """Return the places of all entries, or of a random sample that is enough to choose shares on."""
    if count <= _MOST_TRIED:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, 34]).choice(count, _MOST_TRIED, replace=False))


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
    numbers, tried = np.random.default_rng([seed, 33]), dated[sample_places(dated.size, seed=seed)]
    is_held_out = np.zeros(train.n_entries, dtype=bool)
    is_held_out[numbers.choice(tried, max(1, tried.size // _ONE_IN), replace=False)] = True
    seen, held_out = train.take_entries(~is_held_out), train.take_entries(is_held_out)
    if seen.times is None or held_out.times is None or seen.n_entries == 0:
        return None
    left, left_held_out = _DatedResiduals.of(seen), _compute_residuals(seen, held_out)
    chosen: list[tuple[Grouping, float, float]] = []
    for group, width in _list_widths(times[dated]):
        component, which = left.build(group, width)
        sums, counts = component.collect(held_out.entry_rows, held_out.by_row.columns, held_out.times)
        errors = [np.mean(np.square(left_held_out - sums / (counts + each))) for each in _SHRINKAGES]
        best = int(np.argmin(errors))
        if errors[best] < np.mean(np.square(left_held_out)):
            chosen.append((group, width, _SHRINKAGES[best]))
            left_held_out = left_held_out - sums / (counts + _SHRINKAGES[best])
            left = left.subtract(component.evaluate_keys(_SHRINKAGES[best])[which])
    if not chosen:
        return None
    components = _build_all(chosen, train)
    return Drift(components, np.ones(len(chosen)), _find_later_shares(chosen, train, dated), int(times.max()))


def _build_all(chosen: Sequence[tuple[Grouping, float, float]], entries: ObservedMatrix) -> tuple[Component, ...]:
    """Return components of groups, widths and shrinkages, each of what the ones before it leave."""
    left, components = _DatedResiduals.of(entries), []
    for group, width, shrinkage in chosen:
        component, which = left.build(group, width)
        left = left.subtract(component.evaluate_keys(shrinkage)[which])
        components.append(component._replace(shrinkage=shrinkage))
    return tuple(components)


def _find_later_shares(
    chosen: Sequence[tuple[Grouping, float, float]], train: ObservedMatrix, dated: IndexArray
) -> FloatArray:
    """Return the shares that are best for the latest tenth of the entries, given the earlier ones."""
    assert train.times is not None
    is_later = train.times >= np.quantile(train.times[dated], 1 - 1 / _ONE_IN)
    seen, later = train.take_entries(~is_later), train.take_entries(is_later)
    if seen.times is None or later.times is None:
        return np.zeros(len(chosen))
    residuals = _compute_residuals(seen, later)
    return find_shares(_build_all(chosen, seen), residuals, later.entry_rows, later.by_row.columns, later.times)


def _list_widths(times: TimeArray) -> list[tuple[Grouping, float]]:
    """Return the groups and widths of bins to try, the slowest first."""
    span = float(times.max() - times.min())
    slow, month, week = span / 6, 30.0 * DAY, 7.0 * DAY
    found: list[tuple[Grouping, float]] = [("all", slow), ("column", slow), ("row", slow)]
    found += [(group, width) for width in (month, week) if width < slow for group in ("all", "column", "row")]
    if span > 3 * DAY:
        found.append(("row", DAY / 4.0))
    return found


def _compute_residuals(seen: ObservedMatrix, entries: ObservedMatrix) -> FloatArray:
    """Return the values of entries less the means of `seen`."""
    means = Fallback(EntryStore.of(seen)).means(entries.entry_rows, entries.by_row.columns)
    residuals: FloatArray = entries.values.astype(np.float64) - means
    return residuals


class _DatedResiduals(NamedTuple):
    """The entries that have a time, and what is left of their values."""

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

    def build(self, group: Grouping, width: float) -> tuple[Component, IndexArray]:
        """Return the component of a group and a width, and the key of each entry."""
        return build_component(group, width, *self)

    def subtract(self, values: FloatArray) -> _DatedResiduals:
        """Return what is left after some values."""
        return self._replace(residuals=self.residuals - values)
