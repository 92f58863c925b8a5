"""The predictor: the learned part of a fitted model, which scores, extends, folds in and packs
itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from scipy.special import log_ndtr

from deepmf.errors import BadModelFile, BadSetting, CannotExtend, check_choice
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, IndexPair, LatentArray, SingleArray
from deepmf.matrix.axis_entries import NOTHING, Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import TimeArray
from deepmf.matrix.scale import Scale
from deepmf.scoring.arrivals import (
    Arrived,
    TrainedRows,
    Unsettled,
    declare_arrived,
    find_met,
    find_unsettled,
)
from deepmf.scoring.latents import Latents, check_finite, pair_products
from deepmf.storage.model_file import Packed, Tensors, has_values_to_check
from deepmf.storage.parts import Form, Part, positions_of, rising

if TYPE_CHECKING:
    from deepmf.scoring.distribution import PredictiveDistribution
    from deepmf.scoring.drift import Drift
    from deepmf.scoring.effects import Effects

# The smallest probability of which a logarithm is taken.
LEAST_PROBABILITY = 1e-9

LEVEL_METRICS = ("rmse", "mae", "accuracy")

NO_DISTRIBUTION = (
    "predicts a value, not a distribution; models such as OrdinalDMF and BayesianMF predict both"
)


class Readout:
    """Turns products of latents into scores and predictions.

    This plain readout takes products as scores in the scale's units, and clips them to predictions.
    With a `support`, it belongs to a model that predicts distributions.

    row_fields: the numbers of a row's latent that are parameters of the readout instead of factors.
    predicts_levels: whether predictions are levels.
    ranks_by_products: whether rankings use products, which order columns as scores do and are
        faster to compute.
    """

    row_fields: slice = slice(0, 0)
    predicts_levels: bool = False
    ranks_by_products: bool = False

    def __init__(
        self,
        scale: Scale,
        support: FloatArray | None = None,
        unit_boundaries: SingleArray | None = None,
    ) -> None:
        self.scale = scale
        self._support, self._unit_boundaries = support, unit_boundaries

    def scores(self, products: Array, row_fields: LatentArray) -> Array:
        """Return the scores (...) of products (...) in rows with these fields (..., fields); larger
        is better."""
        return products

    def units(self, scores: Array) -> FloatArray:
        """Return scores in the scale's units, between its ends."""
        return self.scale.clip(scores)

    def values(self, scores: Array) -> FloatArray:
        """Return predictions."""
        return self.units(scores)

    def pack(self) -> dict[str, Array]:
        """Return the learned parameters as tensors by name."""
        return {}

    @property
    def as_chosen(self) -> Readout:
        """The readout of cells that a row chooses, by which relevance is judged; others may be for
        any cell."""
        return self

    def calibrate(self, found: PredictiveDistribution) -> PredictiveDistribution:
        """Return distributions that a predictor computed itself as those that the readout stands
        for."""
        return found

    @property
    def gives_distribution(self) -> bool:
        """Whether the model predicts distributions."""
        return self._support is not None

    @property
    def support(self) -> FloatArray:
        """The values of a distribution: the levels, or the means of bins."""
        if self._support is None:
            raise BadSetting(f"this model {NO_DISTRIBUTION}")
        return self._support

    @property
    def unit_boundaries(self) -> SingleArray:
        """The boundaries between neighbouring values of the support, in units of [-1, 1]."""
        if self._unit_boundaries is None:
            raise BadSetting(f"this model {NO_DISTRIBUTION}")
        return self._unit_boundaries

    def distribution(self, products: Array, row_fields: LatentArray) -> PredictiveDistribution:
        """Return the distributions over the support for products (pairs,)."""
        raise BadSetting(f"this model {NO_DISTRIBUTION}")

    def lower_ends(self, levels: FloatArray) -> FloatArray:
        """Return the lowest values that round to some levels; on a scale without levels, the levels
        as given."""
        if self.scale.levels is None:
            return levels
        return self._level_ends[np.searchsorted(self.scale.levels, levels)]

    def find_logits(
        self, row_fields: LatentArray, thresholds: FloatArray
    ) -> tuple[LatentArray, LatentArray] | None:
        """Return slopes and cutpoints (rows,): slope * product - cutpoint is the logit of P(value
        >= threshold).

        None if the probabilities are not logistic in the products.
        """
        return None

    def log_exceedance(
        self, products: Array, row_fields: LatentArray, thresholds: FloatArray
    ) -> Array:
        """Return the logarithms of P(value >= threshold) for products (rows, columns); fields and
        thresholds by row."""
        n_rows, n_columns = products.shape
        fields = np.repeat(row_fields, n_columns, axis=0)
        found = self.distribution(products.ravel(), fields).exceed(
            np.repeat(self.lower_ends(thresholds), n_columns)
        )
        return np.log(np.maximum(found, LEAST_PROBABILITY)).reshape(n_rows, n_columns)

    @property
    def _level_ends(self) -> FloatArray:
        """The lower ends of the levels, in the scale's units; nothing lies below the first."""
        levels = self.scale.levels
        assert levels is not None
        return np.concatenate([[-np.inf], (levels[:-1] + levels[1:]) / 2.0, [np.inf]])


class LevelReadout(Readout):
    """Predictions are the levels nearest to scores."""

    predicts_levels = True

    def values(self, scores: Array) -> FloatArray:
        return self.scale.nearest_level(scores)


class BoundaryReadout(Readout):
    """Predictions are levels, separated by learned boundaries between neighbouring ones."""

    predicts_levels = True

    def __init__(self, scale: Scale, boundaries: FloatArray) -> None:
        super().__init__(scale)
        self.boundaries = boundaries

    def values(self, scores: Array) -> FloatArray:
        return self.scale.level_of(scores, self.boundaries)

    def pack(self) -> dict[str, Array]:
        return {"boundaries": self.boundaries}

    @property
    def _level_ends(self) -> FloatArray:
        return np.concatenate([[-np.inf], self.boundaries, [np.inf]])


def check_levels(scale: Scale, metric: str) -> None:
    """Refuse to predict levels on a scale without levels, or by an unknown metric."""
    if scale.levels is None:
        raise BadSetting(f"the scale {scale} has no levels; predict gives real values")
    check_choice("metric", metric, LEVEL_METRICS)


OTHER_AXIS: dict[Axis, Axis] = {"row": "column", "column": "row"}

Positions = slice | IndexArray  # a slice is a range of positions, from its start to its stop


def list_positions(columns: Positions) -> IndexArray:
    """Return a range of positions as an array."""
    return np.arange(columns.start, columns.stop) if isinstance(columns, slice) else columns


class Encoder(ABC):
    """Maps the entries of some rows, or of some columns, to latents, without training."""

    @abstractmethod
    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the latents of rows (or columns) with these entries over the trained columns (or
        rows)."""

    def find_deviations(self, rows: LatentArray, columns: LatentArray) -> LatentArray:
        """Return the standard deviations (pairs,) of products of latents by a posterior, if the
        model has one."""
        raise BadSetting(
            "this model has no posterior to draw from, so it cannot explore; BayesianMF has one, and OrdinalDMF with a "
            "linear part; leave out explore"
        )

    def pack(self) -> Packed:
        """Return the learned tensors by name."""
        return Packed({}, {})


class SolvingEncoder(Encoder):
    """Solves for the factors of a row given those of all columns that it has entries in, also of
    new ones.

    Factors are what others are solved by; a latent is made of them. The factors of new rows and
    columns are the `extra` of a table; those of trained ones are its `base`, unless the encoder has
    them itself.

    factor_type: the type in which factors are kept.
    moves_rows: whether trained rows move by their entries in new columns alone; otherwise all their
        entries are solved.
    """

    factor_type: ClassVar[str] = "float32"
    moves_rows: ClassVar[bool] = False

    @abstractmethod
    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the factors of rows (or columns) with these entries."""

    def move_rows(self, trained: TrainedRows, new: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of trained rows that also have some entries in new columns.

        They move from where training left them. The trained entries hold them there as far as their
        number says.
        """
        raise NotImplementedError

    def count_factors(self, n_latents: int) -> int:
        """Return how many of the first numbers of factors are kept, from those of a latent."""
        return n_latents

    def finish(self, axis: Axis, factors: LatentArray) -> LatentArray:
        """Return the latents of rows (or columns) with these factors."""
        return factors

    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        return self.finish(axis, self.solve(axis, entries, others))


class NoEncoder(Encoder):
    """For factors that belong to the rows and columns they were learned with."""

    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        raise CannotExtend(
            f"this model has one latent for each {axis} it was trained on, and cannot compute others"
        )


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
        found = self.read_distribution(rows, columns)
        if not self.moves:
            return found
        values = self.read_values(rows, columns)
        return found.shift(self._keep_on_scale(self.move(values, rows, columns)) - values)

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


@dataclass(frozen=True)
class Predictor(PairPredictor):
    """The latents of all rows and of all columns, the encoder they come from, and the readout of
    their products.

    n_beside: how many of a latent's last numbers are means, effects, constants or parameters of the
        readout instead of factors.
    arrived: the factors of new rows and columns, where the encoder reads these.
    drift: how predictions move with time. effects: what is added to those of rows and columns.
    """

    rows: Latents
    columns: Latents
    encoder: Encoder
    readout: Readout
    n_beside: int = 0
    arrived: Arrived | None = None
    drift: Drift | None = None
    effects: Effects | None = None
    time: int | TimeArray | None = None

    def read_units(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        return self.readout.units(self.score_pairs(rows, columns))

    def read_values(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        return self.readout.values(self.score_pairs(rows, columns))

    def read_distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        return self.readout.distribution(self._products(rows, columns), self._row_fields(rows))

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
        return self.readout.scores(self._products(rows, columns), self._row_fields(rows))

    def score_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the scores (rows, columns) of all pairs of some positions."""
        return self.readout.scores(
            self._block_products(rows, columns), self._row_fields(rows)[:, None]
        )

    def rank_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return keys (rows, columns) by which the columns of each row are ranked: scores, or what
        orders them so."""
        if self.moves:
            return self._move_block(
                self.readout.units(self.score_block(rows, columns)), rows, columns
            )
        if self.readout.ranks_by_products:
            return self._block_products(rows, columns)
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
        scores = self.readout.scores(keys, self._row_fields(rows)[:, None]) if by_products else keys
        return self.readout.values(scores)

    @property
    def keys_are_products(self) -> bool:
        """Whether `rank_block` returns products of latents."""
        as_scored = type(self.readout.as_chosen).scores is Readout.scores
        return not self.moves and (self.readout.ranks_by_products or as_scored)

    def draw_values(self, rows: IndexArray, columns: IndexArray, noise: FloatArray) -> FloatArray:
        """Return a draw from the posterior of the expected value of each pair, by standard normal
        noise (pairs,)."""
        deviations = self.encoder.find_deviations(self.rows.take(rows), self.columns.take(columns))
        products = self._products(rows, columns) + deviations * noise
        return self.readout.scores(products, self._row_fields(rows))

    def log_exceed_block(
        self, rows: IndexArray, columns: Positions, thresholds: FloatArray, *, spread: float
    ) -> Array:
        """Return the logarithms (rows, columns) of the probabilities that values are at least a
        threshold (rows,)."""
        return self.log_exceed(self._block_products(rows, columns), rows, thresholds, spread)

    def log_exceed_pairs(
        self, rows: IndexArray, columns: IndexArray, thresholds: FloatArray, *, spread: float
    ) -> Array:
        """Return the logarithms for n columns of each row, (rows, n)."""
        products = self._products(np.repeat(rows, columns.shape[1]), columns.ravel())
        return self.log_exceed(products.reshape(columns.shape), rows, thresholds, spread)

    def log_exceed(
        self, products: Array, rows: IndexArray, thresholds: FloatArray, spread: float
    ) -> Array:
        """Return the logarithms for products (rows, n).

        If the model predicts only values, their errors are taken as normal with the given spread.
        """
        readout, row_fields = self.readout.as_chosen, self._row_fields(rows)
        if readout.gives_distribution:
            return readout.log_exceedance(products, row_fields, thresholds)
        units = readout.units(readout.scores(products, row_fields[:, None]))
        margins = units - readout.lower_ends(thresholds)[:, None]
        found: Array = log_ndtr(margins / spread)
        return found

    def extend(
        self,
        entries: EntryStore,
        rows: IndexArray,
        columns: IndexArray,
        crossed: IndexPair = (NOTHING, NOTHING),
    ) -> Self:
        """Return a predictor in which the rows and columns at some positions are encoded from their
        entries again.

        They are encoded by trained rows and columns alone. Rows and columns with the same entries
        as in training get their trained latents back. An encoder that solves then reads the entries
        of new rows in new columns, see `settle`. crossed: as in `ChangedStore`.
        """
        encoder = self.encoder
        if not isinstance(encoder, SolvingEncoder):
            return self._encode_by_trained("column", entries, columns)._encode_by_trained(
                "row", entries, rows
            )
        unsettled = find_unsettled(entries, rows, columns, crossed)
        settled = np.setdiff1d(columns, unsettled.columns)
        changed = self._encode_by_trained("column", entries, settled)._encode_by_trained(
            "row", entries, rows
        )
        return changed._settle(encoder, unsettled, entries, rows)

    def _encode_by_trained(self, axis: Axis, entries: EntryStore, positions: IndexArray) -> Self:
        is_old = entries.are_as_trained(axis, positions)
        changed = self.without(axis, positions[is_old])
        positions = positions[~is_old]
        if positions.size == 0:
            return changed
        own = entries.row_entries(positions) if axis == "row" else entries.column_entries(positions)
        others = self._get_latents(OTHER_AXIS[axis])
        if not isinstance(self.encoder, SolvingEncoder):
            return changed._replace_latents(axis, positions, self.encoder.encode(axis, own, others))
        factors = self.encoder.solve(axis, own, Latents(others.base))
        return changed._put_solved(axis, positions, factors)

    def _get_latents(self, axis: Axis) -> Latents:
        return self.rows if axis == "row" else self.columns

    def _set_latents(self, axis: Axis, latents: Latents) -> Self:
        return replace(self, rows=latents) if axis == "row" else replace(self, columns=latents)

    def _replace_latents(self, axis: Axis, positions: IndexArray, latents: LatentArray) -> Self:
        return self._set_latents(axis, self._get_latents(axis).replace(positions, latents))

    def _settle(
        self,
        encoder: SolvingEncoder,
        unsettled: Unsettled,
        entries: EntryStore,
        encoded: IndexArray,
    ) -> Self:
        """Solve again for what has entries of new rows in new columns: the columns now, rows when
        they are read.

        A new column in which new rows have entries is solved for by all its entries, given trained
        rows as they were trained and new rows by their entries in trained columns. A row with an
        entry in such a column is solved for by all its entries, or moves by its new ones, given
        trained columns as they were trained and new columns as above. This is one pass of
        alternating least squares over what has new entries; it depends on the entries alone, not on
        their order.
        """
        settled, columns = self, unsettled.columns
        if columns.size:
            factors = encoder.solve(
                "column", entries.all_entries("column", columns), self.solve_by("row")
            )
            settled = self._put_solved("column", columns, factors)
        others = settled.solve_by("column")
        settled = settled._encode_by_trained(
            "row", entries, np.setdiff1d(unsettled.rows_left, encoded)
        )
        if not unsettled.are_any:
            return settled
        solve = partial(_solve_again, encoder, entries, base=self.rows.base, columns=others)
        return replace(settled, rows=settled.rows.defer(unsettled.rows, solve))

    def _put_solved(self, axis: Axis, at: IndexArray, factors: LatentArray) -> Self:
        """Take the latents of rows (or columns) at some positions from factors; keep the factors of
        new ones."""
        encoder, base = self.encoder, self._get_latents(axis).base
        assert isinstance(encoder, SolvingEncoder)
        latents = encoder.finish(axis, factors)
        kept = factors[at >= len(base), : encoder.count_factors(base.shape[1])].astype(
            encoder.factor_type
        )
        arrived = (self.arrived or Arrived()).put(axis, at[at >= len(base)] - len(base), kept)
        return replace(self, arrived=arrived)._replace_latents(axis, at, latents)

    def solve_by(self, axis: Axis) -> Latents:
        """Return what the encoder solves the other axis by: factors of trained rows (or columns),
        and of new ones."""
        if not isinstance(self.encoder, SolvingEncoder):
            return self._get_latents(axis)
        base, arrived = self._get_latents(axis).base, self.arrived or Arrived()
        found = arrived.rows if axis == "row" else arrived.columns
        return (
            Latents(base)
            if found is None
            else Latents(base, len(base) + np.arange(len(found)), found)
        )

    def without(self, axis: Axis, positions: IndexArray) -> Self:
        """Return a predictor without the latents computed since training for some rows (or
        columns)."""
        if positions.size == 0:
            return self
        latents = self._get_latents(axis)
        new = positions[positions >= len(latents.base)]
        changed = self._set_latents(axis, latents.without(positions))
        if new.size == 0:
            return changed
        arrived = self.arrived and self.arrived.without(axis, new - len(latents.base))
        return replace(changed, arrived=arrived)

    def read_entries(self, axis: Axis, entries: EntryStore, positions: IndexArray) -> AxisEntries:
        """Return the entries that the latents of some stored rows (or columns) are made from."""
        is_row = axis == "row"
        if not isinstance(self.encoder, SolvingEncoder):
            return entries.row_entries(positions) if is_row else entries.column_entries(positions)
        found = entries.all_entries(axis, positions)
        which, is_met = found.group_of, find_met(entries)
        counts_all = (
            np.isin(np.arange(positions.size), which[is_met[found.others]])
            if is_row
            else is_met[positions]
        )
        return found.select(counts_all[which] | (found.others < entries.train.shape[is_row]))

    def select_inputs(self, axis: Axis, entries: AxisEntries) -> AxisEntries:
        """Return the entries of rows (or columns) that the encoder reads: all, or those in trained
        columns (rows)."""
        if isinstance(self.encoder, SolvingEncoder):
            return entries
        return entries.below(len(self._get_latents(OTHER_AXIS[axis]).base))

    def with_only(
        self, axis: Axis, entries: AxisEntries, *, without: IndexArray | None = None
    ) -> Self:
        """Return a predictor whose only rows (or columns) have these entries.

        without: there is a single row (or column) in them; the predictor has it without each of
            these entries.
        """
        others = self.solve_by(OTHER_AXIS[axis])
        encoded = entries if without is None else entries.without_each(without)
        latents = self.encoder.encode(axis, encoded, others)
        effects, drift = self.effects and self.effects.without(axis), self.drift
        if drift is not None:
            drift = drift.fold_in(entries) if axis == "row" else drift.without_columns()
        return replace(
            self._set_latents(axis, Latents(check_finite(latents))), effects=effects, drift=drift
        )

    def proper(self, latents: Latents) -> LatentArray:
        """Return latents without the numbers beside them, read-only."""
        whole = latents.whole()
        if whole.shape[1] == self.n_beside:
            raise BadSetting(
                "this model has no latents, so neither rows nor columns can be compared"
            )
        proper: LatentArray = whole[:, : whole.shape[1] - self.n_beside]
        proper.flags.writeable = False
        return proper

    def directions(self, latents: Latents) -> LatentArray:
        """Return latents without the numbers beside them, normalised to length 1; zero latents stay
        zero."""
        proper = self.proper(latents)
        lengths = np.linalg.norm(proper, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        directions: LatentArray = (proper / lengths).astype(np.float32)
        return directions

    def pack(self) -> Packed:
        """Return the latents, the encoder and the readout as JSON content and tensors."""
        packed = self.encoder.pack()
        tensors = dict(packed.tensors) | self.readout.pack()
        for axis, latents in (("rows", self.rows), ("columns", self.columns)):
            tensors |= (
                _declare_latents("float32 float64").pack(latents, prefix=f"latents.{axis}").tensors
            )
        tensors |= (
            {}
            if self.arrived is None
            else declare_arrived("float32 float64 float16").pack(self.arrived).tensors
        )
        return Packed(packed.content, tensors)

    def _block_products(self, rows: IndexArray, columns: Positions) -> LatentArray:
        """Return the products (rows, columns) of latents; a range of columns is not copied."""
        row_latents = self.rows.take(rows)
        if isinstance(columns, slice):
            return self.columns.products(row_latents, columns)
        if columns.size == len(self.columns) and np.array_equal(columns, np.arange(columns.size)):
            return self.columns.products(row_latents, slice(0, columns.size))
        return row_latents @ self.columns.take(columns).T

    def _products(self, rows: IndexArray, columns: IndexArray) -> Array:
        return pair_products(self.rows, self.columns, rows, columns)

    def _row_fields(self, rows: IndexArray) -> LatentArray:
        return self.rows.take(rows, self.readout.row_fields)


def _solve_again(
    encoder: SolvingEncoder,
    entries: EntryStore,
    rows: IndexArray,
    base: LatentArray,
    columns: Latents,
) -> LatentArray:
    """Return the latents of rows with entries in new columns that new rows have entries in."""
    moved = entries.are_as_trained("row", rows) & encoder.moves_rows
    latents = np.empty((rows.size, base.shape[1]), dtype=base.dtype)
    if not moved.all():
        latents[~moved] = encoder.encode("row", entries.all_entries("row", rows[~moved]), columns)
    if moved.any():
        train, at = entries.train, rows[moved]
        totals = train.row_counts[at] if train.weights is None else entries.row_entries(at).totals
        trained = TrainedRows(base[at], totals, train.column_counts)
        latents[moved] = encoder.move_rows(trained, entries.new_row_entries(at), columns)
    return latents


@dataclass(frozen=True)
class KnownProducts(Predictor):
    """A predictor that reads only the columns (rows, n) of each row whose products of latents are
    known.

    Pairs come in the order of rows, and then of columns.
    """

    known: Array = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def of(cls, predictor: Predictor, products: Array) -> KnownProducts:
        """Return the predictor of a predictor's products (rows, n)."""
        return cls(
            **{each.name: getattr(predictor, each.name) for each in fields(Predictor)},
            known=products,
        )

    def _block_products(self, rows: IndexArray, columns: Positions) -> LatentArray:
        return self.known  # of a single row

    def _products(self, rows: IndexArray, columns: IndexArray) -> Array:
        return self.known.ravel()


def unpack_latents(
    tensors: Tensors, entries: EntryStore, *, width: int, kind: str = "float32"
) -> tuple[Latents, Latents]:
    """Return the stored latents of rows and of columns; impossible ones raise `BadModelFile`."""
    form, found = _declare_latents(kind), []
    for axis, n_trained, n_known in zip(
        ("rows", "columns"),
        entries.train.shape,
        (len(entries.rows), len(entries.columns)),
        strict=True,
    ):
        sizes = {"known": n_known, "trained": n_trained, "width": width}
        latents = Latents(**form.read({}, tensors, prefix=f"latents.{axis}", **sizes))
        if np.count_nonzero(latents.positions >= n_trained) != n_known - n_trained:
            raise BadModelFile(f"some stored latents of {axis} are missing")
        found.append(latents)
    rows, columns = found
    if has_values_to_check(tensors) and not rows.products_are_finite(columns):
        raise BadModelFile("the stored latents are so large that their products are not finite")
    return rows, columns


def unpack_arrived(predictor: Predictor, tensors: Tensors, entries: EntryStore) -> Predictor:
    """Return a predictor with the stored factors of new rows and columns; impossible ones raise
    `BadModelFile`."""
    encoder = predictor.encoder
    if not isinstance(encoder, SolvingEncoder):
        return predictor
    new = len(entries.rows) - entries.train.shape[0], len(entries.columns) - entries.train.shape[1]
    width = encoder.count_factors(predictor.rows.base.shape[1])
    form = declare_arrived(encoder.factor_type)
    found = Arrived(**form.read({}, tensors, new_rows=new[0], new_columns=new[1], factors=width))
    if any((table is None) != (count == 0) for table, count in zip(found, new, strict=True)):
        raise BadModelFile("some stored factors of new rows or columns are missing")
    return replace(predictor, arrived=found) if any(new) else predictor


def _declare_latents(kind: str) -> Form:
    return Form(
        Part("base", kind, ("trained", "width")),
        Part("positions", "int64", ("changed",), rising, positions_of("known")),
        Part("extra", kind, ("changed", "width")),
    )
