"""Predictors: what users and rankings ask a fitted model, from scores and what a readout says of
them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from deepmf.errors import BadSetting
from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, IndexPair, LatentArray
from deepmf.matrix.axis_entries import NOTHING, Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import TimeArray
from deepmf.scoring.encoders import Encoder, Scores
from deepmf.scoring.factors import Factors, Positions, list_positions
from deepmf.scoring.latents import Latents
from deepmf.scoring.readouts import LEAST_PROBABILITY, Readout, check_levels
from deepmf.storage.model_file import Packed

if TYPE_CHECKING:
    from deepmf.scoring.confidence import Confidence, OddsChange
    from deepmf.scoring.distribution import PredictiveDistribution
    from deepmf.scoring.drift import Drift
    from deepmf.scoring.effects import Effects


class PairPredictor(ABC):
    """Predicts pairs of positions: what a readout says, moved by drift to a time, and by effects of
    rows and columns.

    time: the time to predict for: one, or one for each pair (or for each row of a block); None: the
        latest.
    """

    readout: Readout
    drift: Drift | None
    effects: Effects | None
    time: int | TimeArray | None

    def at(self, time: int | TimeArray | None) -> Self:
        """Return a predictor for a time, or for one for each pair (or for each row of a block);
        None: the latest."""
        return replace(self, time=time)  # type: ignore[type-var]  # the classes below are dataclasses

    @property
    def as_chosen(self) -> Self:
        """The predictor of cells that a row chooses, by which relevance is judged."""
        readout = self.readout.as_chosen
        if readout is self.readout:
            return self
        return replace(self, readout=readout, effects=None)  # type: ignore[type-var]

    @abstractmethod
    def read_units(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return real-valued predictions (pairs,) in the scale's units, as learned without times
        and asked cells."""

    @abstractmethod
    def read_values(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return predictions (pairs,) as learned, which are levels where the readout predicts
        levels."""

    @abstractmethod
    def read_distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the distributions of pairs as learned."""

    @property
    def moves(self) -> bool:
        """Whether anything is added to what the readout says."""
        return self.drift is not None or self.effects is not None

    def predict(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the prediction for each pair of positions, in the scale's units."""
        values = self.read_values(rows, columns)
        return self._keep_on_scale(self.move(values, rows, columns)) if self.moves else values

    def predict_units(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the real-valued prediction for each pair, also where predictions are levels."""
        units = self.read_units(rows, columns)
        return self.readout.scale.clip(self.move(units, rows, columns)) if self.moves else units

    def predict_levels(self, rows: IndexArray, columns: IndexArray, *, metric: str) -> FloatArray:
        """Return the level of each pair of positions that is best by a metric, where there is a
        distribution."""
        check_levels(self.readout.scale, metric)
        if metric != "rmse" and self.readout.gives_distribution:
            return self.distribution(rows, columns).best(metric)
        return self.readout.scale.nearest_level(self.predict(rows, columns))

    def distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the distribution over levels of each pair; its mean moves as far as the
        prediction."""
        learned = self.read_distribution(rows, columns)
        if not self.moves:
            return learned
        values = self.read_values(rows, columns)
        return learned.shift(self._keep_on_scale(self.move(values, rows, columns)) - values)

    def move(self, values: FloatArray, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return predictions (pairs,) at the time and with effects, which may leave the scale; -1
        is not known."""
        if self.effects is not None:
            values = values + self.effects.evaluate(rows, columns)
        if self.drift is not None:
            values = values + self.drift.evaluate(
                rows, columns, np.broadcast_to(self._moment, rows.shape)
            )
        return values

    @property
    def _moment(self) -> int | TimeArray:
        assert self.drift is not None
        return self.drift.latest if self.time is None else self.time

    def _keep_on_scale(self, moved: FloatArray) -> FloatArray:
        scale = self.readout.scale
        return (
            scale.nearest_level(scale.clip(moved))
            if self.readout.predicts_levels
            else scale.clip(moved)
        )


ALONE = ""  # the name of a single member, which is stored without a name


class FittedMember(Protocol):
    """What is blended: it scores all pairs, and grows and shrinks with the entries.

    A member never changes: `extend`, `forget`, `fold_in` and `take_rows` return another one.
    """

    def score_pairs(self, rows: IndexArray, columns: IndexArray) -> Scores:
        """Return the scores of pairs of positions."""

    def score_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the locations (rows, columns) of all pairs of some positions."""

    def read_rows(self, rows: IndexArray) -> LatentArray:
        """Return the fields (rows, fields) of rows that a readout reads beside their locations."""

    def extend(
        self, entries: EntryStore, rows: IndexArray, columns: IndexArray, crossed: IndexPair
    ) -> Self:
        """Return a member that reads some rows and columns from their entries again.

        crossed: as in `ChangedStore`.
        """

    def forget(self, axis: Axis, positions: IndexArray) -> Self:
        """Return a member without what was computed since training for some rows (or columns);
        those behind new ones move up."""

    def fold_in(self, axis: Axis, entries: AxisEntries) -> Self:
        """Return a member whose only rows (or columns) have these entries."""

    def take_rows(self, rows: IndexArray) -> Self:
        """Return a member of some rows alone."""

    def pack(self) -> Packed:
        """Return the member for a model file."""


class Link(NamedTuple):
    """How values become logits: slope * (location - centre) - cutpoint.

    support: where it is given, values become the logits whose distribution over it expects just
    them, so that nothing is lost where bins are wider than errors.

    A column with n entries has the share of the member times 1 - 1/2 / (1 + (n / few_count)^2), in
    locations but not in cutpoints: half of it without entries. A network learns from masked columns
    what to expect of a new one, while samples of a posterior take its first entries for all it gets.
    """

    slope: float
    centre: float
    cutpoints: tuple[float, ...]
    few_count: float = 0.0
    support: tuple[float, ...] = ()

    def locate(self, locations: Array) -> Array:
        """Return the locations of logits from those of values."""
        if self.support:
            expected, tabulated = tabulate_expected(self.cutpoints, self.support)
            return np.interp(locations, expected, tabulated).astype(np.float32)
        logits: Array = np.float32(self.slope) * (locations - np.float32(self.centre))
        return logits

    def keep_shares(self, counts: Array) -> LatentArray:
        """Return the part of its share that the member keeps in columns with numbers of entries.

        >>> link = Link(1.0, 0.0, (), few_count=20.0)
        >>> link.keep_shares(np.array([0, 20, 40])).astype(float).round(2).tolist()
        [0.5, 0.75, 0.9]
        """
        if self.few_count == 0.0:
            return np.ones(counts.shape, dtype=np.float32)
        shares = 1.0 - 0.5 / (1.0 + np.square(counts / self.few_count))
        return shares.astype(np.float32)


# Locations that are tabulated around each cutpoint, in logits, and beyond the outermost ones.
_AROUND = np.linspace(-8.0, 8.0, 65)
_BEYOND = 16.0


@lru_cache(maxsize=16)
def tabulate_expected(
    cutpoints: tuple[float, ...], support: tuple[float, ...]
) -> tuple[FloatArray, FloatArray]:
    """Return expected values, increasing, and the locations whose logits have them.

    >>> expected, locations = tabulate_expected((0.0,), (1.0, 3.0))
    >>> float(np.interp(2.0, expected, locations))
    0.0
    """
    cuts = np.array(cutpoints)
    ends = [cuts[0] - _BEYOND, cuts[-1] + _BEYOND]
    around = (cuts[:, None] + _AROUND).ravel()
    locations = np.unique(np.concatenate([ends, around, (cuts[1:] + cuts[:-1]) / 2.0]))
    expected = support[0] + special.expit(locations[:, None] - cuts) @ np.diff(support)
    is_rising = np.append(True, np.diff(np.maximum.accumulate(expected)) > 0)
    return expected[is_rising], locations[is_rising]


class Blended(NamedTuple):
    """A member, its share of the logits, and how its values become logits; None: they are.

    adds: whether it is added to the others, which keep their shares.
    """

    fitted: FittedMember
    share: float = 1.0
    link: Link | None = None
    adds: bool = False

    def locate(self, locations: Array, share: Any) -> Array:
        """Return the part of the member in the locations of the blend, with a share there."""
        if self.link is None:
            return locations if self.share == 1.0 else share * locations
        located: Array = share * self.link.locate(locations)
        return located

    def fill(self, fields: LatentArray) -> LatentArray:
        """Return the part of the member in the fields of the blend: its cutpoints, or the link's."""
        if self.link is None:
            return fields if self.share == 1.0 else np.float32(self.share) * fields
        cutpoints = np.float32(self.share) * np.array(self.link.cutpoints, dtype=np.float32)
        return np.broadcast_to(cutpoints, (len(fields), cutpoints.size))


class Shared(Protocol):
    """A member with a share."""

    @property
    def share(self) -> float:
        """The share in the logits."""

    @property
    def link(self) -> Link | None:
        """How values become logits; None: they are."""

    @property
    def adds(self) -> bool:
        """Whether it is added to the others, which keep their shares."""


def share_locations(members: Mapping[str, Shared], counts: Array | None) -> dict[str, Any]:
    """Return the share of each member in the locations: a number, or one for each of the columns
    with some numbers of entries."""
    shares: dict[str, Any] = {name: np.float32(member.share) for name, member in members.items()}
    blended = {name: member.link for name, member in members.items() if not member.adds}
    few = {name: link for name, link in blended.items() if link and link.few_count}
    if not few or counts is None:
        return shares
    total = 1.0 - sum(shares[name] for name in few)
    for name, link in few.items():
        shares[name] = shares[name] * link.keep_shares(counts)
    factor = (1.0 - sum(shares[name] for name in few)) / total
    return shares | {name: shares[name] * factor for name in blended if name not in few}


@dataclass(frozen=True)
class Predictor(PairPredictor):
    """A blend of fitted members: it adds what they say, times their shares, and a readout reads it.

    It predicts pairs and blocks of pairs from their locations, and ranks columns by them.

    confidence: how far distributions can be trusted, by the numbers of entries of rows and columns;
    None where no entries were held out. drift: how predictions move with time. effects: what is
    added to those of rows and columns.
    """

    members: dict[str, Blended]
    readout: Readout
    confidence: Confidence | None = None
    drift: Drift | None = None
    effects: Effects | None = None
    time: int | TimeArray | None = None

    @classmethod
    def of(cls, factors: Factors, readout: Readout) -> Self:
        """Return the predictor of a single member."""
        return cls({ALONE: Blended(factors)}, readout)

    @property
    def factors(self) -> Factors:
        """The first member that has latents, by which rows and columns are compared."""
        for member in self.members.values():
            if isinstance(member.fitted, Factors):
                return member.fitted
        raise BadSetting("this model has no latents, so neither rows nor columns can be compared")

    @property
    def has_latents(self) -> bool:
        """Whether rows and columns can be compared."""
        fitted_members = (member.fitted for member in self.members.values())
        return any(
            isinstance(fitted, Factors) and fitted.columns.base.shape[1] > fitted.n_beside
            for fitted in fitted_members
        )

    @property
    def rows(self) -> Latents:
        """The latents by which rows are compared."""
        return self.factors.rows

    @property
    def columns(self) -> Latents:
        """The latents by which columns are compared."""
        return self.factors.columns

    @property
    def encoder(self) -> Encoder:
        """The encoder of the latents by which rows and columns are compared."""
        return self.factors.encoder

    def score(self, rows: IndexArray, columns: IndexArray) -> Scores:
        """Return the scores of pairs of positions."""
        shares = self._share_columns(columns)
        deviations: list[LatentArray] = []
        location = fields = None
        for name, member in self.members.items():
            scores = member.fitted.score_pairs(rows, columns)
            located = member.locate(scores.location, shares[name])
            location = located if location is None else location + located
            if not member.adds:
                filled = member.fill(scores.fields)
                fields = filled if fields is None else fields + filled
            if scores.deviation is not None:
                slope = 1.0 if member.link is None else member.link.slope
                deviations.append(shares[name] * np.float32(slope) * scores.deviation)
        assert location is not None and fields is not None
        deviation = np.sqrt(sum(map(np.square, deviations))) if deviations else None
        return Scores(location, self._average(fields), deviation)

    def locate_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the locations (rows, columns) of all pairs of some positions."""
        shares = self._share_columns(columns)
        parts = [
            member.locate(member.fitted.score_block(rows, columns), shares[name])
            for name, member in self.members.items()
        ]
        return reduce(np.add, parts)

    def read_rows(self, rows: IndexArray) -> LatentArray:
        """Return the fields (rows, fields) that the readout reads beside the locations of rows."""
        members = [member for member in self.members.values() if not member.adds]
        parts = [member.fill(member.fitted.read_rows(rows)) for member in members]
        return self._average(reduce(np.add, parts))

    def _average(self, fields: LatentArray) -> LatentArray:
        """Return the sum of fields, which shares have multiplied, by the sum of these shares."""
        total = sum(member.share for member in self.members.values() if not member.adds)
        return fields if math.isclose(total, 1.0, abs_tol=1e-6) else fields / np.float32(total)

    def _share_columns(self, columns: Positions) -> dict[str, Any]:
        confidence = self.confidence
        counts = None if confidence is None else confidence.columns.counts[columns]
        return share_locations(self.members, counts)

    def read_units(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        return self.readout.units(self.score_pairs(rows, columns))

    def read_values(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        return self.readout.values(self.score_pairs(rows, columns))

    def read_distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        scores = self.score(rows, columns)
        readout, variances = self.readout.as_chosen, self.find_variances(rows, columns)
        if variances is None:
            learned = readout.distribution(scores.location, scores.fields)
        else:
            learned = readout.widen(scores.location, scores.fields, variances)
        return self.readout.calibrate(self.trust(learned, rows, columns))

    def predict_block(self, rows: IndexArray, columns: Positions) -> FloatArray:
        """Return the predictions (rows, columns) of all pairs of some positions."""
        values = self.readout.values(self.score_block(rows, columns))
        return (
            self._keep_on_scale(self._move_block(values, rows, columns)) if self.moves else values
        )

    def _move_block(self, values: FloatArray, rows: IndexArray, columns: Positions) -> FloatArray:
        at = list_positions(columns)
        if self.effects is not None:
            values = values + self.effects.evaluate(rows[:, None], at)
        return (
            values
            if self.drift is None
            else values + self.drift.evaluate_block(rows, at, self._moment)
        )

    def score_pairs(self, rows: IndexArray, columns: IndexArray) -> Array:
        """Return a score for each pair of positions: larger is better."""
        scores = self.score(rows, columns)
        return self.readout.scores(scores.location, scores.fields)

    def score_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the scores (rows, columns) of all pairs of some positions."""
        return self._read_block(self.locate_block(rows, columns), rows)

    def _read_block(self, locations: Array, rows: IndexArray) -> Array:
        return self.readout.scores(locations, self.read_rows(rows)[:, None])

    def rank_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return keys (rows, columns) by which the columns of each row are ranked: scores, or what
        orders them so."""
        if self.moves:
            return self._move_block(
                self.readout.units(self.score_block(rows, columns)), rows, columns
            )
        if self.readout.ranks_by_products:
            return self.locate_block(rows, columns)
        return self.score_block(rows, columns)

    def predict_lines(
        self, rows: IndexArray, columns: IndexArray, keys: Array | None = None
    ) -> FloatArray:
        """Return the predictions for the columns (rows, n) of each row, from their keys of
        `rank_block` if given."""
        if keys is None or self.moves:
            return self.predict(np.repeat(rows, columns.shape[1]), columns.ravel()).reshape(
                columns.shape
            )
        by_products = self.readout.ranks_by_products
        return self.readout.values(self._read_block(keys, rows) if by_products else keys)

    @property
    def keys_are_products(self) -> bool:
        """Whether `rank_block` returns locations."""
        as_scored = type(self.readout.as_chosen).scores is Readout.scores
        return not self.moves and (self.readout.ranks_by_products or as_scored)

    def draw_values(self, rows: IndexArray, columns: IndexArray, noise: FloatArray) -> FloatArray:
        """Return a draw from the posterior of the expected value of each pair, by standard normal
        noise (pairs,)."""
        scores = self.score(rows, columns)
        if scores.deviation is None:
            raise BadSetting(
                "this model has no posterior to draw from, so it cannot explore; BayesianMF has one, and OrdinalDMF "
                "with a sampler; leave out explore"
            )
        return self.readout.scores(scores.location + scores.deviation * noise, scores.fields)

    def log_exceed_block(
        self, rows: IndexArray, columns: Positions, thresholds: FloatArray, *, spread: float
    ) -> Array:
        """Return the logarithms (rows, columns) of the probabilities that values are at least a
        threshold (rows,)."""
        products = self.locate_block(rows, columns)
        return self._log_exceed(products, rows, list_positions(columns), thresholds, spread)

    def log_exceed_pairs(
        self, rows: IndexArray, columns: IndexArray, thresholds: FloatArray, *, spread: float
    ) -> Array:
        """Return the logarithms for n columns of each row, (rows, n)."""
        locations = self.score(np.repeat(rows, columns.shape[1]), columns.ravel()).location
        products = locations.reshape(columns.shape)
        return self._log_exceed(products, rows, columns, thresholds, spread)

    def _log_exceed(
        self,
        products: Array,
        rows: IndexArray,
        columns: IndexArray,
        thresholds: FloatArray,
        spread: float,
    ) -> Array:
        """Return the logarithms for products (rows, n), of all columns (n,) or of n of each row.

        If the model predicts only values, their errors are taken as normal with the given spread.
        """
        readout, row_fields = self.readout.as_chosen, self.read_rows(rows)
        if not readout.gives_distribution:
            units = readout.units(readout.scores(products, row_fields[:, None]))
            margins = units - readout.lower_ends(thresholds)[:, None]
            log_chances: Array = special.log_ndtr(margins / spread)
            return log_chances
        if readout.scale.levels is not None:
            learned = readout.log_exceedance(products, row_fields, thresholds)
            change = self.change_odds(rows, columns, thresholds)
            return learned if change is None else change.apply_to_logarithms(learned)
        n_each = products.shape[1]
        distribution = readout.distribution(products.ravel(), np.repeat(row_fields, n_each, axis=0))
        pairs = np.repeat(rows, n_each), np.broadcast_to(columns, products.shape).ravel()
        chances = self.trust(distribution, *pairs).exceed(np.repeat(thresholds, n_each))
        return np.log(np.maximum(chances, LEAST_PROBABILITY)).reshape(products.shape)

    def trust(
        self, learned: PredictiveDistribution, rows: IndexArray, columns: IndexArray
    ) -> PredictiveDistribution:
        """Return the distributions of pairs as far as they can be trusted."""
        if self.confidence is None:
            return learned
        return self.confidence.apply(learned, rows, columns)

    def find_variances(self, rows: IndexArray, columns: IndexArray) -> FloatArray | None:
        """Return the variances of pairs that the distributions of a readout lack; None without
        any."""
        variances = None
        for member in self.members.values():
            if isinstance(member.fitted, Factors) and member.fitted.encoder.widens:
                deviations = member.fitted.score_pairs(rows, columns).deviation
                assert deviations is not None
                variances = np.square(member.share * deviations.astype(np.float64))
        return variances

    def change_odds(
        self, rows: IndexArray, columns: IndexArray, thresholds: FloatArray
    ) -> OddsChange | None:
        """Return the change of the log-odds that values are at least a threshold (rows,), as in
        `Confidence.change_block`; None where they stay as learned."""
        if self.confidence is None:
            return None
        return self.confidence.change_block(rows, columns, thresholds)

    def with_few_count(self, few_count: float) -> Self:
        """Return a predictor whose linked members have smaller shares in columns of few entries."""
        members = {
            name: member._replace(link=member.link._replace(few_count=few_count))
            if member.link
            else member
            for name, member in self.members.items()
        }
        return replace(self, members=members)

    def extend(
        self,
        entries: EntryStore,
        rows: IndexArray,
        columns: IndexArray,
        crossed: IndexPair = (NOTHING, NOTHING),
    ) -> Self:
        """Return a predictor in which members read some rows and columns from their entries again.

        crossed: as in `ChangedStore`.
        """
        confidence = self.confidence and self.confidence.extend(entries, rows, columns)
        changed = self._change(lambda member: member.extend(entries, rows, columns, crossed))
        return replace(changed, confidence=confidence)

    def without(self, axis: Axis, positions: IndexArray) -> Self:
        """Return a predictor without what was computed since training for some rows (or
        columns)."""
        if positions.size == 0:
            return self
        confidence = self.confidence and self.confidence.without(axis, positions)
        changed = self._change(lambda member: member.forget(axis, positions))
        return replace(changed, confidence=confidence)

    def with_only(
        self, axis: Axis, entries: AxisEntries, *, without: IndexArray | None = None
    ) -> Self:
        """Return a predictor whose only rows (or columns) have these entries.

        without: there is a single row (or column) in them; the predictor has it without each of
            these entries.
        """
        read = entries if without is None else entries.without_each(without)
        effects, drift = self.effects and self.effects.without(axis), self.drift
        if drift is not None:
            drift = drift.fold_in(entries) if axis == "row" else drift.without_columns()
        confidence = self.confidence and self.confidence.with_only(axis, read)
        folded = self._change(lambda member: member.fold_in(axis, read))
        return replace(folded, effects=effects, drift=drift, confidence=confidence)

    def take_rows(self, rows: IndexArray) -> Self:
        """Return a predictor of some rows alone."""
        confidence = self.confidence and self.confidence.take_rows(rows)
        changed = self._change(lambda member: member.take_rows(rows))
        return replace(changed, confidence=confidence)

    def _change(self, change: Callable[[FittedMember], FittedMember]) -> Self:
        members = {
            name: member._replace(fitted=change(member.fitted))
            for name, member in self.members.items()
        }
        return replace(self, members=members)

    def directions(self, latents: Latents) -> LatentArray:
        """Return latents without the numbers beside them, normalised to length 1; zero latents stay
        zero."""
        proper = self.factors.drop_beside(latents)
        lengths = np.linalg.norm(proper, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        directions: LatentArray = (proper / lengths).astype(np.float32)
        return directions

    @property
    def is_stacked(self) -> bool:
        """Whether all members have latents, so that locations are products of one latent each."""
        return all(
            isinstance(member.fitted, Factors) and not (member.link and member.link.support)
            for member in self.members.values()
        )

    def stack_rows(self, rows: IndexArray) -> LatentArray:
        """Return latents of rows whose products with `stack_columns` are the locations."""
        parts: list[LatentArray] = []
        for member in self.members.values():
            assert isinstance(member.fitted, Factors)
            parts += [member.fitted.stack_rows(rows), np.ones((rows.size, 1), dtype=np.float32)]
        return np.hstack(parts)

    def stack_columns(self, columns: IndexArray) -> LatentArray:
        """Return latents of columns whose products with `stack_rows` are the locations."""
        shares, parts = self._share_columns(columns), []
        for name, member in self.members.items():
            assert isinstance(member.fitted, Factors)
            latents, link = member.fitted.columns.take(columns), member.link or Link(1.0, 0.0, ())
            constant = np.full((columns.size, 1), -link.centre, dtype=latents.dtype)
            weights = np.broadcast_to(shares[name] * np.float32(link.slope), columns.size)
            parts.append(np.hstack([latents, constant]) * weights[:, None])
        return np.hstack(parts)

    def products_are_finite(self) -> bool:
        """Whether no product of latents leaves the range of their type."""
        fitted_members = (member.fitted for member in self.members.values())
        return all(
            fitted.products_are_finite() for fitted in fitted_members if isinstance(fitted, Factors)
        )

    def pack(self) -> Packed:
        """Return the members and the readout as JSON content and tensors."""
        tensors = dict(self.readout.pack())
        if self.confidence is not None:
            tensors |= self.confidence.pack()
        if ALONE in self.members:
            packed = self.members[ALONE].fitted.pack()
            return Packed(packed.content, tensors | packed.tensors)
        content: dict[str, Any] = {}
        for name, member in self.members.items():
            packed = member.fitted.pack()
            link = None if member.link is None else member.link._asdict()
            content[name] = {"share": member.share, "link": link, "content": packed.content}
            content[name] |= {"adds": True} if member.adds else {}
            tensors |= {f"{name}.{key}": tensor for key, tensor in packed.tensors.items()}
        return Packed({"members": content}, tensors)


@dataclass(frozen=True)
class KnownProducts(Predictor):
    """A predictor that reads only the columns (rows, n) of each row whose locations are known.

    Pairs come in the order of rows, and then of columns.
    """

    known: Array = field(kw_only=True)

    def locate_block(self, rows: IndexArray, columns: Positions) -> Array:
        return self.known  # of a single row

    def score(self, rows: IndexArray, columns: IndexArray) -> Scores:
        return super().score(rows, columns)._replace(location=self.known.ravel())
