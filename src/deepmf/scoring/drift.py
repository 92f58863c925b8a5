"""Drift: how the levels of rows and columns move with time, as an additive part of any model.

A drift is a sum of at most four components. Three of them group the residuals of the static means
by column (in bins of a sixth of all time, and of a month) or by row (in bins of six hours, a
session). The value of a group at a time is the shrunk mean of its residuals near this time,

    sum over bins of k(distance) * sum of residuals / (sum over bins of k(distance) * number of
    residuals + shrinkage),

with the kernel k(d) = 2^-d over at most three bins to each side. Far from all entries of a group
the value goes to 0.

The fourth component, the fading one, has no bins: it is the shrunk mean of all residuals of a row,
where older ones count less, relative to the span of the row's entries. It is used after the row's
last entry only. Its shrinkage and half-life are chosen on the last tenth of the entries of each
row.

The shrinkage of each other component is chosen by the error of the means on held-out entries. A
component joins a model with a share from 0 to 1, which is best on entries that the model has not
seen, if there are any. Shares have three stages. Between the entries of a row, the share is as
large as it helps there. Within a day after its last entry, the share is at most that which is best
on the last tenth of each row's entries. Later, and for columns after the latest entry of all, it is
at most that which is best on the latest tenth of all entries and on the tenth before. Shares after
known entries are 0 unless they lower the error there by two standard errors: a component that helps
between entries may mislead after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, NamedTuple, get_args

import numpy as np

from deepmf.matrix.arrays import Array, FloatArray, IndexArray
from deepmf.matrix.axis_entries import Axis, AxisEntries, locate
from deepmf.matrix.entries import ChangedStore, EntryStore, ForgetPlan
from deepmf.matrix.extras import DAY, NO_TIME, TimeArray
from deepmf.scoring.effects import SHRINKAGE, compute_effects
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, not_negative, one_of, positive, rising

_REACH = 3  # bins to each side
_KERNEL = 0.5 ** np.abs(np.arange(-_REACH, _REACH + 1))

# Prior weight, in later entries of a row, of the mean share of recent entries.
_PRIOR_ENTRIES = 100

# One bin for all times.
_BEGINNING, ALWAYS = -(10**17), 1e18


class Kind(NamedTuple):
    """A kind of component: its groups and the width of its bins in seconds.

    halvings: half-lives in the span of a row, if the component fades.
    """

    group: Axis
    width: float
    halvings: float = 0.0


class Component(NamedTuple):
    """The sums of residuals of some groups in bins of time.

    group: whether a group has the entries of a row or of a column.
    width: the seconds of a bin; first: the time at which bin 0 begins; n_bins: the number of bins.
    keys: increasing, group * n_bins + bin; sums and counts: of the residuals of each key.
    halvings: half-lives in the span of a row, if older residuals count less.
    """

    group: Axis
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
        return sums / (counts + self.shrinkage)

    def collect(
        self, rows: IndexArray, columns: IndexArray, times: TimeArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the sums and numbers of residuals near pairs of positions at some times, by the
        kernel."""
        groups = rows if self.group == "row" else columns
        dated = np.flatnonzero((times != NO_TIME) & (groups >= 0))
        # Many pairs share a group and a bin. Far outside, one bin is as good as another: nothing is
        # near.
        stride = self.n_bins + 2 * _REACH + 2
        bins = np.clip(find_bins(times[dated], self.first, self.width) + _REACH + 1, 0, stride - 1)
        distinct, which = np.unique(groups[dated] * stride + bins, return_inverse=True)
        own_groups, own_bins = np.divmod(distinct, stride)
        near_sums = self._sum_near(own_groups, own_bins - _REACH - 1)
        sums, counts = np.zeros(rows.size), np.zeros(rows.size)
        sums[dated], counts[dated] = (numbers[which] for numbers in near_sums)
        return sums, counts

    def take(self, which: Array) -> Component:
        """Return the component of some of its groups and bins, by places or a mask."""
        return self._replace(
            keys=self.keys[which], sums=self.sums[which], counts=self.counts[which]
        )

    def evaluate_keys(self, shrinkage: float) -> FloatArray:
        """Return the value of the component in the group and bin of each key."""
        sums, counts = self._sum_near(*np.divmod(self.keys, self.n_bins))
        return sums / (counts + shrinkage)

    def _sum_near(self, groups: IndexArray, bins: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums and numbers of residuals near some bins of groups, by the kernel."""
        sums, counts = np.zeros(groups.size), np.zeros(groups.size)
        for offset, share in zip(range(-_REACH, _REACH + 1), _KERNEL.tolist(), strict=True):
            near = bins + offset
            at, is_filled = locate(self.keys, groups * self.n_bins + near)
            is_filled &= (near >= 0) & (near < self.n_bins)
            sums[is_filled] += share * self.sums[at[is_filled]]
            counts[is_filled] += share * self.counts[at[is_filled]]
        return sums, counts


def fade_by_age(times: TimeArray, rows: IndexArray, halvings: float) -> FloatArray:
    """Return weights of entries by their age: the span of a row is `halvings` half-lives.

    `rows` are sorted.

    >>> fade_by_age(np.array([0, 10, 20, 5]), np.array([0, 0, 0, 3]), 2.0)
    array([0.25, 0.5 , 1.  , 1.  ])
    """
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    which = np.repeat(np.arange(starts.size), np.diff(starts, append=rows.size))
    first, last = np.minimum.reduceat(times, starts), np.maximum.reduceat(times, starts)
    weights: FloatArray = np.exp2(
        -halvings * (last[which] - times) / np.maximum(last - first, 1)[which]
    )
    return weights


def find_bins(times: TimeArray, first: int, width: float) -> IndexArray:
    """Return the bin of each time."""
    return np.floor((times - first) / width).astype(np.int64)


class DatedResiduals(NamedTuple):
    """The entries that have a time, and their residuals."""

    rows: IndexArray
    columns: IndexArray
    times: TimeArray
    residuals: FloatArray
    weights: Array | None

    def take(self, which: Array) -> DatedResiduals:
        """Return some of the entries, by a mask."""
        weights = None if self.weights is None else self.weights[which]
        times, residuals = self.times[which], self.residuals[which]
        return DatedResiduals(self.rows[which], self.columns[which], times, residuals, weights)

    def subtract(self, moves: FloatArray) -> DatedResiduals:
        """Return what is left of the residuals without what a component explains."""
        return self._replace(residuals=self.residuals - moves)

    def build(self, kind: Kind | Component) -> tuple[Component, IndexArray]:
        """Return the component of a kind, without shrinkage, and the key of each entry."""
        times, weights, first = self.times, self.weights, int(self.times.min())
        if kind.halvings:  # one bin for all times
            fading = fade_by_age(times, self.rows, kind.halvings)
            times, first = np.zeros_like(times), 0
            weights = fading if weights is None else fading * weights
        bins = find_bins(times, first, kind.width)
        n_bins = int(bins.max()) + 1
        groups = (self.rows if kind.group == "row" else self.columns).astype(np.int64)
        keys, which = np.unique(groups * n_bins + bins, return_inverse=True)
        weighted = self.residuals if weights is None else self.residuals * weights
        sums = np.bincount(which, weights=weighted, minlength=keys.size).astype(np.float64)
        counts = np.bincount(which, weights=weights, minlength=keys.size).astype(np.float64)
        begins = _BEGINNING if kind.halvings else first
        return Component(
            kind.group, kind.width, begins, n_bins, keys, sums, counts, 0.0, kind.halvings
        ), which


@dataclass(frozen=True)
class Drift:
    """Components, and the share of each with which it joins a model.

    shares: (stages, components): between known entries, after them, and later. A component of rows
        is after the latest entry of its row for a day, and then later; the others are later from
        the latest entry of all on. After known entries, a component has at most its share between
        them, unless it fades.
    latest: the time of the latest entry; ends: the time of the latest entry of each row, NO_TIME
        without one.
    column_means: the means of columns, which are subtracted from the entries of rows that are added
        later.
    """

    components: tuple[Component, ...]
    shares: FloatArray
    latest: int
    ends: TimeArray
    column_means: FloatArray

    def evaluate(self, rows: IndexArray, columns: IndexArray, times: TimeArray) -> FloatArray:
        """Return the drift of pairs of positions at some times, in the units of the scale; -1 has
        none of its own."""
        total = np.zeros(rows.size)
        of_rows, of_columns = self.find_stages(rows, times)
        for component, by_stage in zip(self.components, self.shares.T, strict=True):
            if by_stage.any():
                stages = of_rows if component.group == "row" else of_columns
                total += by_stage[stages] * component.evaluate(rows, columns, times)
        return total

    def find_stages(self, rows: IndexArray, times: TimeArray) -> tuple[IndexArray, IndexArray]:
        """Return the stages of the components of rows, and of columns.

        For rows: 0 between the entries of the row, 1 within a day after them, and 2 later, or where
        there are none. For columns: 0 before the latest entry of all, and 2 later.
        """
        of_rows = np.full(rows.size, 2)
        has_end = (rows >= 0) & (rows < self.ends.size)
        has_end[has_end] = self.ends[rows[has_end]] != NO_TIME
        gaps = times[has_end] - self.ends[rows[has_end]]
        of_rows[has_end] = (gaps >= 0).astype(int) + (gaps >= DAY)
        return of_rows, 2 * (times >= self.latest)

    def evaluate_block(
        self, rows: IndexArray, columns: IndexArray, time: int | TimeArray
    ) -> FloatArray:
        """Return the drift (rows, columns) of all pairs at one time, or at a time for each row."""
        of_rows = self.evaluate(rows, np.full(rows.size, -1), np.broadcast_to(time, rows.shape))
        moments, which = np.unique(time, return_inverse=True)
        pairs = np.tile(columns, moments.size), np.repeat(moments, columns.size)
        of_columns = self.evaluate(np.full(pairs[0].size, -1), *pairs).reshape(moments.size, -1)
        return of_rows[:, None] + of_columns[which.reshape(np.shape(time))]

    def without_columns(self) -> Drift:
        """Return the drift of a column of which nothing is known: that of rows alone."""
        return self._keep([component.group == "row" for component in self.components])

    def fold_in(self, entries: AxisEntries) -> Drift:
        """Return the drift of folded-in rows, which have the fading component of rows alone."""
        dated, ends = self._find_dated(entries), np.full(entries.starts.size - 1, NO_TIME)
        if dated is None:
            by_column = [component.group == "column" for component in self.components]
            return replace(self._keep(by_column), ends=ends)
        np.maximum.at(ends, dated.rows, dated.times)
        are_taken = [
            component.group == "column" or component.fades for component in self.components
        ]
        drift = self._keep(are_taken)._map_fading(
            lambda old: dated.build(old)[0]._replace(shrinkage=old.shrinkage)
        )
        return replace(drift, ends=ends)

    def _find_dated(self, entries: AxisEntries) -> DatedResiduals | None:
        """Return the entries of rows that have a time, less the means of known columns and the
        effects of the rows."""
        times, weights = entries.extras[:2]
        if times is None:
            return None
        rows = entries.group_of
        means = np.append(self.column_means, np.nan)[
            np.minimum(entries.others, self.column_means.size)
        ]
        residuals = entries.values.astype(np.float64) - means
        is_known = ~np.isnan(residuals)
        is_used = np.flatnonzero(is_known & (times != NO_TIME))
        if is_used.size == 0:
            return None
        row_residuals = (
            residuals
            - compute_effects(entries.select(is_known), residuals[is_known], SHRINKAGE)[rows]
        )
        own_weights = None if weights is None else weights[is_used]
        return DatedResiduals(
            rows[is_used], rows[is_used], times[is_used], row_residuals[is_used], own_weights
        )

    def extend(self, change: ChangedStore) -> Drift:
        """Return the drift after a change of entries; fading components of rows are built again."""
        entries, rows = change.entries, change.rows
        if rows.size == 0 or not any(component.fades for component in self.components):
            return self
        folded, rows = self.fold_in(entries.row_entries(rows)), rows.astype(np.int64)
        ends = np.full(max(self.ends.size, int(rows.max()) + 1), NO_TIME)
        ends[: self.ends.size] = self.ends
        ends[rows] = folded.ends
        rebuilt = [
            component._replace(keys=rows[component.keys])
            for component in folded.components
            if component.fades
        ]

        def merge(old: Component) -> Component:
            parts = [old.take(~np.isin(old.keys, rows)), *rebuilt]
            keys = np.concatenate([part.keys for part in parts])
            sums = np.concatenate([part.sums for part in parts])
            counts = np.concatenate([part.counts for part in parts])
            return old._replace(keys=keys, sums=sums, counts=counts).take(np.argsort(keys))

        return replace(self._map_fading(merge), ends=ends)

    def forget(self, plan: ForgetPlan, change: ChangedStore) -> Drift:
        """Return the drift without removed rows; later ones move up."""
        gone = change.gone_rows
        if gone.size == 0:
            return self

        def drop(component: Component) -> Component:
            remaining = component.take(~np.isin(component.keys, gone))
            return remaining._replace(keys=remaining.keys - np.searchsorted(gone, remaining.keys))

        ends = np.delete(self.ends, gone[gone < self.ends.size])
        return replace(self._map_fading(drop), ends=ends)

    def _keep(self, are_kept: list[bool]) -> Drift:
        """Return the drift of some of the components."""
        components = tuple(compress(self.components, are_kept))
        return replace(self, components=components, shares=self.shares[:, are_kept])

    def _map_fading(self, change: Callable[[Component], Component]) -> Drift:
        """Return the drift with changed fading components."""
        components = [
            change(component) if component.fades else component for component in self.components
        ]
        return replace(self, components=tuple(components))

    def join(
        self, residuals: FloatArray, rows: IndexArray, columns: IndexArray, times: TimeArray
    ) -> Drift:
        """Return the drift with the shares that explain the residuals of a model best, none of them
        negative."""
        fades = np.array([component.fades for component in self.components])
        steady = [component for component in self.components if not component.fades]
        shares = self.shares.copy()
        shares[0, ~fades] = find_shares(steady, residuals, rows, columns, times)
        shares[1:, ~fades] = np.minimum(shares[1:, ~fades], shares[0, ~fades])
        steady_part = replace(self, shares=np.where(fades, 0.0, shares))
        remaining = residuals - steady_part.evaluate(rows, columns, times)
        fading_part = replace(self, shares=np.where(fades, shares, 0.0))
        fading = fading_part.evaluate(rows, columns, times)
        n_after = np.count_nonzero(fading)
        if n_after:
            # As if some more entries were explained as well as the means are.
            squares = fading @ fading
            prior = _PRIOR_ENTRIES * squares / n_after
            shares[:, fades] *= float(
                np.clip((fading @ remaining + prior) / (squares + prior), 0.0, 1.0)
            )
        return replace(self, shares=shares)

    def adapt(self, predictor: Any) -> Any:
        """Return a predictor whose predictions move with time."""
        return replace(predictor, drift=self)

    def describe_choice(self) -> dict[str, float]:
        """Return nothing: shares are part of the predictions."""
        return {}

    def pack(self) -> Packed:
        """Return the drift for a model file."""
        return _DRIFT.pack(self)

    @classmethod
    def unpack(cls, content: Any, tensors: Tensors, entries: EntryStore, predictor: Any) -> Drift:
        """Return the stored drift; impossible content raises `BadModelFile`."""
        fields = _DRIFT.read(content, tensors)
        components = tuple(Component(**component) for component in fields.pop("components"))
        return cls(components, **fields)


_DRIFT = Form(
    Part(
        "components",
        Form(
            Part("group", "text", (), one_of(*get_args(Axis))),
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
    Part("shares", "float64", (3, "components")),
    Part("latest", "whole"),
    Part("ends", "int64", ("rows",)),
    Part("column_means", "float64", ("columns",)),
    prefix="drift",
)


def find_shares(
    components: Sequence[Component],
    residuals: FloatArray,
    rows: IndexArray,
    columns: IndexArray,
    times: TimeArray,
) -> FloatArray:
    """Return the shares from 0 to 1 with which components explain the residuals of some entries
    best."""
    if not components:
        return np.zeros(0)
    parts = [component.evaluate(rows, columns, times) for component in components]
    # The triangle of a QR decomposition has the same squares, in a few lines.
    triangle: FloatArray = np.asarray(np.linalg.qr(np.column_stack([*parts, residuals]), mode="r"))
    from scipy.optimize import lsq_linear  # takes half as long as all of numpy

    solution = lsq_linear(
        triangle[:, :-1], triangle[:, -1], (0.0, 1.0), method="bvls", max_iter=100
    )
    shares: FloatArray = solution.x
    return shares
