"""Shares of members, chosen on held-out entries.

Members are compared by the logits of exceeding each boundary between values. A member of logits has
them; the values of another member become logits by a link, whose slope is chosen and whose
cutpoints expect each value as often as it occurs. The first member stands for itself; each further
one joins with a share if that lowers the squared error beyond doubt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.members import Conversion, FittedMember, MemberFit
from deepmf.scoring.distribution import find_support, place_cutpoints
from deepmf.scoring.predictor import Blended, Link, Predictor, share_locations
from deepmf.scoring.readouts import Readout
from deepmf.scoring.rehearsal import Rehearsal
from deepmf.training.holdout import Choice, HeldOut, choose

# Shares of a further member, and slopes of links. These are in units of the slope of a logistic
# distribution with the standard deviation of the member's errors. Steep slopes need many held-out
# entries: fewer would choose them by chance.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

# The same, of members that features bring to samples: these keep a little, as distributions are
# theirs.
FEATURE_SHARES = (*_SHARES, 0.99)
_SLOPES = (0.7, 0.85, 1.0, 1.2, 1.4)
_STEEP_SLOPES = (1.7, 2.0, 2.5)
_ENTRIES_FOR_STEEP = 1000
_LOGISTIC = np.pi / np.sqrt(3.0)

# The least error of a member, as a share of the standard deviation of values: no prediction is
# certain.
_LEAST_SPREAD = 0.05

# A slope changes, and a further member joins, where that lowers the squared error of many held-out
# entries, or of few, by this many of its own standard errors.
_LEAST_FALLS, _MANY_HELD_OUT = (0.5, 1.5), 2_000

# Held-out entries that place cutpoints, and how many of them count as much as the boundaries
# between levels.
_MOST_PLACED, _BOUNDARY_COUNT = 8192, 100

# A usual share changes where that lowers the squared error by this many standard errors.
BEYOND_DOUBT = 2.0

# Numbers of entries that are compared as few for a column.
_FEW_CANDIDATES = (0.0, 5.0, 12.0, 25.0)

# How far a count of few entries must lower the error.
_LEAST_GAIN = 2e-4


class Joining(NamedTuple):
    """A fitted member that may join others, and what it says of held-out entries; by default none.

    share: of what it says. kept: the share of what the others say. is_usual: whether it is taken
        unless held-out entries say otherwise.
    """

    fitted: FittedMember | None = None
    location: FloatArray = np.zeros(1)
    share: float = 0.0
    kept: float = 1.0
    is_usual: bool = False


def list_joinings(
    fitted: FittedMember,
    location: Array,
    shares: Sequence[float] = _SHARES,
    *,
    usual: float = 0.0,
    adds: bool = False,
) -> list[Joining]:
    """Return a member with each of some shares: it takes that part of the others or, where it adds,
    none."""
    values = location.astype(np.float64)
    return [
        Joining(fitted, values, share, 1.0 if adds else 1.0 - share, share == usual)
        for share in shares
    ]


def choose_joining(options: Sequence[Joining], measure: Callable[[Joining], FloatArray]) -> Joining:
    """Return the member and share with the least squared errors of held-out entries; the usual one,
    or none, unless these fall by standard errors."""
    options = [Joining(), *options]
    usual = next((at for at, option in enumerate(options) if option.is_usual), 0)
    at_least = BEYOND_DOUBT if usual else 1.0
    return choose(options, measure, usual=usual, at_least=at_least).candidate


def explain_steps(shares: Mapping[str, float], stages: Mapping[str, float]) -> dict[str, str]:
    """Say of each member that joined others, in turn, what it gains; stages: errors after each.

    >>> shares, stages = {"sampler": 1.0, "neighbours": 0.3}, {"sampler": 0.82, "neighbours": 0.81}
    >>> explain_steps(shares, stages)["neighbours"]
    'fitted: lowers the held-out error from 0.8200 to 0.8100'
    """
    explained = dict.fromkeys(shares, "fitted; no entries were held out")
    before: float | None = None
    for name, error in stages.items():
        if before is None:
            explained[name] = f"fitted: held-out error {error:.4f}"
        elif name in shares:
            explained[name] = f"fitted: lowers the held-out error from {before:.4f} to {error:.4f}"
        else:
            explained[name] = "left out: lowers no held-out error beyond doubt"
        before = error
    return explained


class Share(NamedTuple):
    """The share of a member in the logits, and its link; None for a member of logits."""

    share: float
    link: Link | None


Blend = dict[str, Share]


def explain_share(name: str, shares: Mapping[str, float], stages: Mapping[str, float]) -> str:
    """Say of a member of a blend what its error on held-out entries is, alone and together."""
    alone = stages.get(f"{name} alone", stages.get("refined", math.nan))
    blended = stages.get("blended", alone)
    if name not in shares:
        return f"left out: a held-out error of {alone:.4f} alone, of the others {blended:.4f}"
    words = f"fitted: held-out error {alone:.4f}"
    if len(shares) > 1:
        words += f", together {blended:.4f}"
    if f"without {name}" in stages:
        words += f", without it {stages[f'without {name}']:.4f}"
    return words


def remove_member(blend: Blend, name: str) -> Blend:
    """Return a blend without a member; the shares of the others add up to 1 again."""
    left = 1.0 - blend[name].share
    return {
        other: part._replace(share=part.share / left)
        for other, part in blend.items()
        if other != name
    }


class HeldOutValues(NamedTuple):
    """The values of held-out entries, and the distribution whose expected values are compared."""

    values: FloatArray  # (entries,)
    support: FloatArray  # (values,)
    boundaries: FloatArray  # between these, on the scale
    has_repeats: bool  # whether values repeat, as levels do

    @classmethod
    def of(cls, held_out: HeldOut, train: ObservedMatrix, *, n_bins: int) -> HeldOutValues:
        """Return the values of held-out entries."""
        scale, values, support = train.scale, held_out.values, find_support(train, n_bins=n_bins)
        has_repeats = scale.levels is not None or np.unique(values).size < values.size / 2
        boundaries = scale.from_unit(np.array(support.boundaries))
        return cls(values, np.array(support.values), boundaries, bool(has_repeats))

    def square_errors(self, logits: LatentArray) -> FloatArray:
        """Return the squared errors (entries,) of expected values by logits (entries,
        cutpoints)."""
        expected = self.support[0] + special.expit(logits) @ np.diff(self.support)
        errors: FloatArray = np.square(expected - self.values)
        return errors

    def compute_rmse(self, logits: LatentArray) -> float:
        """Return the root mean squared error of expected values by logits (entries, cutpoints)."""
        return math.sqrt(self.square_errors(logits).mean())

    def measure_slope(self, logits: LatentArray) -> float:
        """Return how much the logits of a value rise with it: by the spread of the errors."""
        spread = max(self.compute_rmse(logits), _LEAST_SPREAD * float(np.std(self.values)))
        return float(_LOGISTIC / (spread or 1.0))

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


def mix_logits(
    blend: Blend, fits: Mapping[str, MemberFit], column_counts: Array | None = None
) -> LatentArray:
    """Return the logits (entries, cutpoints) of held-out entries by a blend.

    column_counts: the numbers of entries of their columns, (entries,), where shares depend on them.
    """
    shares = share_locations(blend, column_counts)
    total: LatentArray | None = None
    for name, (share, link) in blend.items():
        scores = fits[name].scores
        assert scores is not None
        location, cutpoints = scores.location, scores.fields
        if link is not None:
            location = link.locate(location)
            cutpoints = np.array(link.cutpoints, dtype=np.float32)
        part = (shares[name] * location)[:, None] - np.float32(share) * cutpoints
        total = part if total is None else total + part
    assert total is not None
    return total


def choose_blend(fits: Mapping[str, MemberFit], held_out: HeldOutValues) -> Choice[Blend]:
    """Return the shares that predict held-out entries best, and their squared errors.

    Members join in their order, the first one without a condition.
    """
    slopes: tuple[float, ...] = _SLOPES
    if held_out.values.size >= _ENTRIES_FOR_STEEP:
        slopes += _STEEP_SLOPES
    links = {name: _make_links(fit, held_out, slopes) for name, fit in fits.items()}

    def compute_errors(blend: Blend) -> FloatArray:
        return held_out.square_errors(mix_logits(blend, fits))

    first, *other_names = fits
    if held_out.support.size < 2:
        only: Blend = {first: Share(1.0, links[first][0])}
        return Choice(only, np.zeros(held_out.values.size))
    alone: list[Blend] = [{first: Share(1.0, link)} for link in links[first]]
    usual = 0 if len(alone) == 1 else _SLOPES.index(1.0)
    at_least = _LEAST_FALLS[held_out.values.size < _MANY_HELD_OUT]
    best = choose(alone, compute_errors, usual=usual, at_least=at_least)
    for name in other_names:
        blends = [best.candidate]
        if fits[name].stands_alone:
            blends.append({name: Share(1.0, links[name][len(links[name]) // 3])})
        usual = 0
        for share in _SHARES:
            joined = _join(best.candidate, name, share, links)
            if share == fits[name].usual_share:
                usual = len(blends) + len(joined) // 3
            blends += joined
        doubt = BEYOND_DOUBT if usual else at_least
        best = choose(blends, compute_errors, usual=usual, at_least=doubt)
    return best


def _make_links(
    fit: MemberFit, held_out: HeldOutValues, slopes: Sequence[float]
) -> Sequence[Link | None]:
    if fit.gives_logits:
        return [None]
    if held_out.support.size < 2:
        return [Link(1.0, fit.units.centre, ())]
    assert fit.scores is not None
    return held_out.make_links(fit.scores.location, fit.units, slopes)


def _join(
    blend: Blend, name: str, share: float, links: Mapping[str, Sequence[Link | None]]
) -> list[Blend]:
    """Return the blends in which a further member has a share, one for each slope of its link; a
    member of logits joins with each slope of the first link there is."""
    other_shares = {
        other_name: Share(round((1.0 - share) * part, 12), link)
        for other_name, (part, link) in blend.items()
    }
    if links[name] != [None]:
        return [other_shares | {name: Share(share, link)} for link in links[name]]
    linked = next((other_name for other_name, part in blend.items() if part.link is not None), None)
    blend_with = other_shares | {name: Share(share, None)}
    if linked is None:
        return [blend_with]
    return [
        blend_with | {linked: other_shares[linked]._replace(link=link)} for link in links[linked]
    ]


def make_blind(
    blend: Blend, fits: Mapping[str, MemberFit], readout: Readout
) -> Callable[[AxisEntries, AxisEntries], Predictor] | None:
    """Return what makes the blend without held-out entries, with rows and columns of some entries
    alone; None where a member cannot."""
    if any(fits[name].blind is None for name in blend):
        return None

    def blind(rows: AxisEntries, columns: AxisEntries) -> Predictor:
        members: dict[str, Blended] = {}
        for name, share in blend.items():
            fold_in = fits[name].blind
            assert fold_in is not None
            members[name] = Blended(fold_in(rows, columns), *share)
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
