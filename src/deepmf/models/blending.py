"""Shares of members, chosen on held-out entries.

A blend starts with one member; others join in turn, each where that lowers the squared errors of
held-out entries beyond doubt. An objective says what these errors are. Members of OrdinalDMF are
compared by the logits of exceeding each boundary between values: a member of logits has them; the
values of another become logits by a link, whose slope is chosen and whose cutpoints expect each
value as often as it occurs. Members of BayesianMF are compared by their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.members import Conversion, MemberFit
from deepmf.scoring.distribution import find_support, place_cutpoints
from deepmf.scoring.predictor import Blended, Link, Predictor, share_locations
from deepmf.scoring.readouts import Readout
from deepmf.scoring.rehearsal import Rehearsal
from deepmf.training.holdout import Choice, HeldOut, choose

# Shares of a further member, and slopes of links. These are in units of the slope of a logistic
# distribution with the standard deviation of the member's errors. Steep slopes need many held-out
# entries: fewer would choose them by chance.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SLOPES = (0.7, 0.85, 1.0, 1.2, 1.4)
_STEEP_SLOPES = (1.7, 2.0, 2.5)
_ENTRIES_FOR_STEEP = 1000
_LOGISTIC = np.pi / np.sqrt(3.0)

# The least error of a member, as a share of the standard deviation of values: no prediction is
# certain.
_LEAST_SPREAD = 0.05

# A slope changes, and a further member joins, where that lowers the squared error of many held-out
# entries, or of few, by this many of its own standard errors. Few entries need less where there is
# a single link, as fewer options are compared; a usual share changes where the error falls by more.
_LEAST_FALLS, _MANY_HELD_OUT = (0.5, 1.5), 2_000
_LEAST_FALL_BY_ONE_LINK = 1.0
_BEYOND_DOUBT = 2.0

# Held-out entries that place cutpoints, and how many of them count as much as the boundaries
# between levels.
_MOST_PLACED, _BOUNDARY_COUNT = 8192, 100

# Numbers of entries that are compared as few for a column.
_FEW_CANDIDATES = (0.0, 5.0, 12.0, 25.0)

# How far a count of few entries must lower the error.
_LEAST_GAIN = 2e-4


class Share(NamedTuple):
    """A fitted member of a blend, its share, and how its values become logits; None: they stay."""

    fit: MemberFit
    share: float
    link: Link | None = None

    @property
    def adds(self) -> bool:
        """Whether the other members keep their shares."""
        return self.fit.adds

    def to_blended(self) -> Blended:
        """Return the member as a predictor has it."""
        return Blended(self.fit.fitted, self.share, self.link, self.adds)


Blend = dict[str, Share]


class Objective(Protocol):
    """What shares are chosen by: the squared errors of held-out entries."""

    @property
    def values(self) -> FloatArray:
        """The values (entries,) of held-out entries."""

    @property
    def most_share(self) -> float:
        """The largest share of a further member that has latents."""

    def list_links(self, fit: MemberFit, blend: Blend) -> Sequence[Link | None]:
        """Return the links with which a member may join a blend, from flat to steep."""

    def measure(self, blend: Blend) -> FloatArray:
        """Return the squared errors (entries,) of a blend."""


class Choices(NamedTuple):
    """A blend, and its error on held-out entries after each member had its turn."""

    blend: Blend
    stages: dict[str, float]


def choose_blend(
    fits: Mapping[str, Sequence[MemberFit]], objective: Objective, blend: Blend | None = None
) -> Choices:
    """Return the shares that predict held-out entries best.

    Members join in their order, each by one of its fits; without a blend to join, the first one
    joins without a condition.
    """
    blend, stages = dict(blend or {}), {}
    for name, alternatives in fits.items():
        blend, errors = _join_member(blend, name, alternatives, objective)
        stages[name] = math.sqrt(errors.mean())
    return Choices(blend, stages)


def _join_member(
    blend: Blend, name: str, fits: Sequence[MemberFit], objective: Objective
) -> Choice[Blend]:
    """Return a blend that one of the fits of a further member joins, and its squared errors; the
    same blend unless these fall beyond doubt.

    A share that is usual for the member is taken unless errors fall beyond doubt without it.
    """
    options, usual = [blend], 0
    at_least = _LEAST_FALLS[objective.values.size < _MANY_HELD_OUT]
    for fit in fits:
        variants, links = _list_variants(blend, fit, objective), objective.list_links(fit, blend)
        usual_slope = min(_SLOPES.index(1.0), len(variants) * len(links) - 1)
        if not blend:
            options = [{name: Share(fit, 1.0, link)} for link in links]
            return choose(options, objective.measure, usual=usual_slope, at_least=at_least)
        if len(variants) == len(links) == 1:
            at_least = min(at_least, _LEAST_FALL_BY_ONE_LINK)
        shares: tuple[float, ...] = _SHARES
        if fit.stands_alone:
            shares = *_SHARES, objective.most_share
        for share in shares:
            if share == fit.usual_share:
                usual, at_least = len(options) + usual_slope, _BEYOND_DOUBT
            options += [
                _join(variant, name, Share(fit, share, link))
                for variant in variants
                for link in links
            ]
    return choose(options, objective.measure, usual=usual, at_least=at_least)


def _list_variants(blend: Blend, fit: MemberFit, objective: Objective) -> list[Blend]:
    """Return a blend with each link of its first member of values, where a member of logits joins
    it; otherwise as it is."""
    linked = next((name for name, part in blend.items() if part.link is not None), None)
    if linked is None or not fit.gives_logits:
        return [blend]
    links = objective.list_links(blend[linked].fit, {})
    return [blend | {linked: blend[linked]._replace(link=link)} for link in links]


def _join(blend: Blend, name: str, joining: Share) -> Blend:
    """Return a blend with a further member, which takes its share from the others or is added."""
    kept = 1.0 if joining.adds else 1.0 - joining.share
    others = {
        other_name: part._replace(share=round(kept * part.share, 12))
        for other_name, part in blend.items()
        if kept
    }
    return others | {name: joining}


class ValueErrors(NamedTuple):
    """The objective of a blend of values: further members keep a little of the first one, as
    distributions are its own."""

    scale: Scale
    values: FloatArray  # (entries,)
    most_share: float = 0.99

    def list_links(self, fit: MemberFit, blend: Blend) -> Sequence[Link | None]:
        """Return the link of a member: values stay as they are."""
        return [Link(1.0, 0.0, ()) if blend else None]

    def predict(self, blend: Blend) -> FloatArray:
        """Return the values (entries,) of a blend."""
        predicted = np.zeros(self.values.size)
        for part in blend.values():
            predicted += part.share * part.fit.held_out_scores.location.astype(np.float64)
        return predicted

    def measure(self, blend: Blend) -> FloatArray:
        """Return the squared errors (entries,) of a blend, clipped to the scale."""
        errors: FloatArray = np.square(self.scale.clip(self.predict(blend)) - self.values)
        return errors


class HeldOutValues(NamedTuple):
    """The objective of a blend of logits: the values of held-out entries, and the distribution
    whose expected values are compared."""

    values: FloatArray  # (entries,)
    support: FloatArray  # (values,)
    boundaries: FloatArray  # between these, on the scale
    has_repeats: bool  # whether values repeat, as levels do
    column_counts: Array | None = None  # entries of their columns, (entries,)
    most_share: float = 1.0

    @classmethod
    def of(
        cls,
        held_out: HeldOut,
        train: ObservedMatrix,
        *,
        n_bins: int,
        column_counts: Array | None = None,
    ) -> HeldOutValues:
        """Return the values of held-out entries."""
        scale, values, support = train.scale, held_out.values, find_support(train, n_bins=n_bins)
        has_repeats = scale.levels is not None or np.unique(values).size < values.size / 2
        boundaries = scale.from_unit(np.array(support.boundaries))
        return cls(values, np.array(support.values), boundaries, bool(has_repeats), column_counts)

    def square_errors(self, logits: LatentArray) -> FloatArray:
        """Return the squared errors (entries,) of expected values by logits (entries,
        cutpoints)."""
        expected = self.support[0] + special.expit(logits) @ np.diff(self.support)
        errors: FloatArray = np.square(expected - self.values)
        return errors

    def mix_logits(self, blend: Blend) -> LatentArray:
        """Return the logits (entries, cutpoints) of held-out entries by a blend."""
        shares = share_locations(blend, self.column_counts)
        total: LatentArray | None = None
        for name, part in blend.items():
            location, cutpoints, _ = part.fit.held_out_scores
            if part.link is not None:
                location = part.link.locate(location)
                cutpoints = np.array(part.link.cutpoints, dtype=np.float32)
            logits = (shares[name] * location)[:, None] - np.float32(part.share) * cutpoints
            total = logits if total is None else total + logits
        assert total is not None
        return total

    def measure(self, blend: Blend) -> FloatArray:
        """Return the squared errors (entries,) of the values that a blend expects."""
        return self.square_errors(self.mix_logits(blend))

    def compute_rmse(self, blend: Blend) -> float:
        """Return the root mean squared error of the values that a blend expects."""
        return math.sqrt(self.measure(blend).mean())

    def list_links(self, fit: MemberFit, blend: Blend) -> Sequence[Link | None]:
        """Return the links with which a member may join a blend: none for logits, and one for
        residuals, by the errors of the blend."""
        if fit.gives_logits:
            return [None]
        if fit.adds:
            spread = max(self.compute_rmse(blend), _LEAST_SPREAD * float(np.std(self.values)))
            slope = float(_LOGISTIC / (spread or 1.0))
            return [Link(slope, 0.0, (0.0,) * self.boundaries.size)]
        if self.support.size < 2:
            return [Link(1.0, fit.units.centre, ())]
        slopes: tuple[float, ...] = _SLOPES
        if self.values.size >= _ENTRIES_FOR_STEEP:
            slopes += _STEEP_SLOPES
        return self.make_links(fit.held_out_scores.location, fit.units, slopes)

    def make_links(self, location: Array, units: Conversion, slopes: Sequence[float]) -> list[Link]:
        """Return the links of a member of values with some slopes.

        Cutpoints lie at the boundaries. Where values repeat, they move towards cutpoints with which
        the member expects each value as often as it occurs, the farther the more held-out entries
        there are. Where they do not, the blend expects what a member of values in their own units
        says.
        """
        predicted = location - units.centre
        targets = units.convert(self.values) - units.centre
        boundaries = units.convert(self.boundaries) - units.centre
        least = _LEAST_SPREAD * float(np.std(targets))
        spread = math.hypot(float(np.std(targets - predicted)), least)
        width = float(np.ptp(units.convert(self.support)))
        unit = float(_LOGISTIC / max(spread, 1e-6 * width))
        trust = self.has_repeats * self.values.size / (self.values.size + _BOUNDARY_COUNT)
        support: tuple[float, ...] = ()
        if not self.has_repeats and units.keeps(self.boundaries):
            support = tuple(self.support.tolist())
        links = []
        for slope in slopes:
            cutpoints = slope * unit * boundaries
            if trust:
                placed = self._place(slope * unit * predicted)
                cutpoints = trust * placed + (1.0 - trust) * cutpoints
            link = Link(slope * unit, units.centre, tuple(cutpoints.tolist()), support=support)
            links.append(link)
        return links

    def measure_alone(self, location: Array, units: Conversion) -> float:
        """Return the mean squared error of values that are linked with the usual slope."""
        if self.support.size < 2:
            return 0.0
        (link,) = self.make_links(location, units, (1.0,))
        logits = link.locate(location)[:, None] - np.array(link.cutpoints, dtype=np.float32)
        return float(self.square_errors(logits).mean())

    def _place(self, locations: FloatArray) -> FloatArray:
        """Return the cutpoints with which logistic distributions expect each value as often as it
        occurs."""
        values = self.values
        if values.size > _MOST_PLACED:
            sample = np.random.default_rng(0).choice(values.size, _MOST_PLACED, replace=False)
            locations, values = locations[sample], values[sample]
        n_above = (values[:, None] > self.boundaries).sum(axis=0)
        return place_cutpoints(special.expit, locations, np.ones(values.size), n_above)


def find_own_link(fit: MemberFit, boundaries: FloatArray) -> Link:
    """Return the link by a member's own noise, where no entries are held out."""
    slope = _LOGISTIC / max(fit.noise, 1e-9)
    cutpoints = slope * (fit.units.convert(boundaries) - fit.units.centre)
    return Link(float(slope), fit.units.centre, tuple(cutpoints.tolist()))


def make_blind(
    blend: Blend, readout: Readout
) -> Callable[[AxisEntries, AxisEntries], Predictor] | None:
    """Return what makes the blend without held-out entries, with rows and columns of some entries
    alone; None where a member cannot."""
    if any(part.fit.blind is None for part in blend.values()):
        return None

    def blind(rows: AxisEntries, columns: AxisEntries) -> Predictor:
        members: dict[str, Blended] = {}
        for name, part in blend.items():
            assert part.fit.blind is not None
            members[name] = part.to_blended()._replace(fitted=part.fit.blind(rows, columns))
        return Predictor(members, readout)

    return blind


def choose_few_count(blind: Predictor, rehearsal: Rehearsal) -> float:
    """Return the count of few entries with which a blend predicts columns of few entries best."""
    rows, columns = (places[rehearsal.few_columns] for places in rehearsal.pairs)
    values = np.tile(rehearsal.values, rows.size // rehearsal.values.size)

    def compute_error(few_count: float) -> float:
        predicted = blind.with_few_count(few_count).score_pairs(rows, columns)
        return math.sqrt(np.mean(np.square(predicted - values)))

    return choose(_FEW_CANDIDATES, compute_error, at_least=_LEAST_GAIN).candidate


def explain_members(shares: Mapping[str, float], stages: Mapping[str, float]) -> dict[str, str]:
    """Say of each member that had its turn what it gains; stages: errors after each turn.

    >>> shares, stages = {"sampler": 1.0, "neighbours": 0.3}, {"sampler": 0.82, "neighbours": 0.81}
    >>> explain_members(shares, stages)["neighbours"]
    'fitted: lowers the held-out error from 0.8200 to 0.8100'
    """
    explained = dict.fromkeys(shares, "fitted; no entries were held out")
    before: float | None = None
    for name, error in stages.items():
        if name not in shares:
            explained[name] = "left out: lowers no held-out error beyond doubt"
        elif before is None:
            explained[name] = f"fitted: held-out error {error:.4f}"
        else:
            explained[name] = f"fitted: lowers the held-out error from {before:.4f} to {error:.4f}"
        before = error
    return explained
