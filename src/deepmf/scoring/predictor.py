"""The predictor: the learned part of a fitted model, which scores, extends, folds in and packs itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from deepmf.errors import BadModelFile, BadSetting, CannotExtend
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.scale import Scale
from deepmf.scoring.arrivals import Arrived, TrainedRows, Unsettled, declare_arrived, find_met, find_unsettled
from deepmf.scoring.latents import Latents, check_finite, pair_products
from deepmf.storage.model_file import Packed, Tensors, has_values_to_check
from deepmf.storage.parts import Form, Part, positions_of, rising

if TYPE_CHECKING:
    from deepmf.scoring.distribution import PredictiveDistribution
    from deepmf.scoring.effects import Effects

# The smallest probability of which a logarithm is taken.
LEAST_PROBABILITY = 1e-9

LEVEL_METRICS = ("rmse", "mae", "accuracy")


NO_DISTRIBUTION = "predicts a value, not a distribution; models such as OrdinalDMF and BayesianMF predict both"


class Readout:
    """Turns products of latents into scores and predictions.

    This plain readout takes products as scores in the scale's units, and clips them to predictions. With a `support`,
    it belongs to a model that predicts distributions.

    row_fields: the numbers of a row's latent that are parameters of the readout instead of factors.
    predicts_levels: whether predictions are levels.
    ranks_by_products: whether rankings use products, which order columns as scores do and are faster to compute.
    effects: what is added to the predictions of rows and columns, beside what scores say.
    """

    row_fields: slice = slice(0, 0)
    predicts_levels: bool = False
    ranks_by_products: bool = False
    effects: Effects | None = None

    def __init__(
        self,
        scale: Scale,
        support: FloatArray | None = None,
        unit_boundaries: npt.NDArray[np.float32] | None = None,
    ) -> None:
        self.scale = scale
        self._support, self._unit_boundaries = support, unit_boundaries

    def scores(self, products: npt.NDArray[Any], row_fields: LatentArray) -> npt.NDArray[Any]:
        """Return the scores (...) of products (...) in rows with these fields (..., fields); larger is better."""
        return products

    def units(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return scores in the scale's units, between its ends."""
        return self.scale.clip(scores)

    def values(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return predictions."""
        return self.units(scores)

    def levels(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return legal levels."""
        return self.scale.nearest_level(self.values(scores))

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the learned parameters as tensors by name."""
        return {}

    @property
    def as_chosen(self) -> Readout:
        """The readout of cells that a row chooses, by which relevance is judged; others may be for any cell."""
        return self

    def calibrate(self, found: PredictiveDistribution) -> PredictiveDistribution:
        """Return distributions that a predictor computed itself as those that the readout stands for."""
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
    def unit_boundaries(self) -> npt.NDArray[np.float32]:
        """The boundaries between neighbouring values of the support, in units of [-1, 1]."""
        if self._unit_boundaries is None:
            raise BadSetting(f"this model {NO_DISTRIBUTION}")
        return self._unit_boundaries

    def distribution(self, products: npt.NDArray[Any], row_fields: LatentArray) -> PredictiveDistribution:
        """Return the distributions over the support for products (pairs,)."""
        raise BadSetting(f"this model {NO_DISTRIBUTION}")

    def lower_ends(self, levels: FloatArray) -> FloatArray:
        """Return the lowest values that round to some levels; on a scale without levels, the levels as given."""
        if self.scale.levels is None:
            return levels
        return self._level_ends[np.searchsorted(self.scale.levels, levels)]

    def find_logits(self, row_fields: LatentArray, thresholds: FloatArray) -> tuple[LatentArray, LatentArray] | None:
        """Return slopes and cutpoints (rows,): slope * product - cutpoint is the logit of P(value >= threshold).

        None if the probabilities are not logistic in the products.
        """
        return None

    def log_exceedance(
        self, products: npt.NDArray[Any], row_fields: LatentArray, thresholds: FloatArray
    ) -> npt.NDArray[Any]:
        """Return the logarithms of P(value >= threshold) for products (rows, columns); fields and thresholds by row."""
        n_rows, n_columns = products.shape
        fields = np.repeat(row_fields, n_columns, axis=0)
        found = self.distribution(products.ravel(), fields).exceed(np.repeat(self.lower_ends(thresholds), n_columns))
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

    def values(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return levels."""
        return self.scale.nearest_level(scores)


class BoundaryReadout(Readout):
    """Predictions are levels, separated by learned boundaries between neighbouring ones."""

    predicts_levels = True

    def __init__(self, scale: Scale, boundaries: FloatArray) -> None:
        super().__init__(scale)
        self.boundaries = boundaries

    def values(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return levels."""
        return self.levels(scores)

    def levels(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return levels."""
        return self.scale.level_of(scores, self.boundaries)

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the boundaries."""
        return {"boundaries": self.boundaries}

    @property
    def _level_ends(self) -> FloatArray:
        return np.concatenate([[-np.inf], self.boundaries, [np.inf]])


def check_levels(scale: Scale, metric: str) -> None:
    """Refuse to predict levels on a scale without levels, or by an unknown metric."""
    if scale.levels is None:
        raise BadSetting(f"the scale {scale} has no levels; predict gives real values")
    if metric not in LEVEL_METRICS:
        raise BadSetting(f"metric must be {' or '.join(map(repr, LEVEL_METRICS))}; got {metric!r}")


Positions = slice | IndexArray  # a slice is a range of positions, from its start to its stop


class Encoder(ABC):
    """Maps the entries of some rows, or of some columns, to latents, without training."""

    @abstractmethod
    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents (rows, latent) of rows with these entries over the trained columns."""

    @abstractmethod
    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the latents (columns, latent) of columns with these entries over the trained rows."""

    def rows_without_each(self, entries: AxisEntries, left_out: IndexArray, columns: Latents) -> LatentArray:
        """Return the latents (left out, latent) of a single row without each of some of its entries."""
        return self.rows(entries.without_each(left_out), columns)

    def columns_without_each(self, entries: AxisEntries, left_out: IndexArray, rows: Latents) -> LatentArray:
        """Return the latents (left out, latent) of a single column without each of some of its entries."""
        return self.columns(entries.without_each(left_out), rows)

    def find_deviations(self, rows: LatentArray, columns: LatentArray) -> LatentArray:
        """Return the standard deviations (pairs,) of products of latents by a posterior, if the model has one."""
        raise BadSetting(
            "this model has no posterior to draw from, so it cannot explore; BayesianMF has one, and OrdinalDMF with a "
            "linear part; leave out explore"
        )

    def pack(self) -> Packed:
        """Return the learned tensors by name."""
        return Packed({}, {})


class SolvingEncoder(Encoder):
    """Solves for the factors of a row given those of all columns that it has entries in, also of new ones.

    Factors are what others are solved by; a latent is made of them. The factors of new rows and columns are the
    `extra` of a table; those of trained ones are its `base`, unless the encoder has them itself.

    factor_type: the type in which factors are kept.
    moves_rows: whether trained rows move by their entries in new columns alone; otherwise all their entries are solved.
    """

    factor_type: ClassVar[str] = "float32"
    moves_rows: ClassVar[bool] = False

    @abstractmethod
    def solve_rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the factors of rows with these entries."""

    @abstractmethod
    def solve_columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the factors of columns with these entries."""

    def move_rows(self, trained: TrainedRows, new: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of trained rows that also have some entries in new columns.

        They move from where training left them. The trained entries hold them there as far as their number says.
        """
        raise NotImplementedError

    def count_factors(self, n_latents: int) -> int:
        """Return how many of the first numbers of factors are kept, from those of a latent."""
        return n_latents

    def finish_rows(self, factors: LatentArray) -> LatentArray:
        """Return the latents of rows with these factors."""
        return factors

    def finish_columns(self, factors: LatentArray) -> LatentArray:
        """Return the latents of columns with these factors."""
        return factors

    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents (rows, latent) of rows with these entries."""
        return self.finish_rows(self.solve_rows(entries, columns))

    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the latents (columns, latent) of columns with these entries."""
        return self.finish_columns(self.solve_columns(entries, rows))


class NoEncoder(Encoder):
    """For factors that belong to the rows and columns they were learned with."""

    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Refuse."""
        raise CannotExtend("this model has one latent for each row it was trained on, and cannot compute others")

    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Refuse."""
        raise CannotExtend("this model has one latent for each column it was trained on, and cannot compute others")


@dataclass(frozen=True)
class Predictor:
    """The latents of all rows and of all columns, the encoder they come from, and the readout of their products.

    n_beside: how many of a latent's last numbers are means, effects, constants or parameters of the readout instead of
    factors.
    arrived: the factors of new rows and columns, where the encoder reads these.
    """

    rows: Latents
    columns: Latents
    encoder: Encoder
    readout: Readout
    n_beside: int = 0
    arrived: Arrived | None = None

    def predict(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the prediction for each pair of positions, in the scale's units."""
        return self.readout.values(self.score_pairs(rows, columns))

    def score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return a score for each pair of positions: larger is better."""
        return self.readout.scores(self._products(rows, columns), self._row_fields(rows))

    def score_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return the scores (rows, columns) of all pairs of some positions."""
        return self.readout.scores(self._block_products(rows, columns), self._row_fields(rows)[:, None])

    def rank_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return keys (rows, columns) by which the columns of each row are ranked: scores, or what orders them so."""
        if self.readout.ranks_by_products:
            return self._block_products(rows, columns)
        return self.score_block(rows, columns)

    def scores_of_keys(self, rows: IndexArray, keys: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the scores that keys (rows, ...) of rankings stand for."""
        if self.readout.ranks_by_products:
            return self.readout.scores(keys, self._row_fields(rows)[:, None])
        return keys

    @property
    def keys_are_products(self) -> bool:
        """Whether `rank_block` returns products of latents."""
        return self.readout.ranks_by_products or type(self.readout.as_chosen).scores is Readout.scores

    def multiply_lines(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return the products of latents for the columns (rows, n) of each row."""
        return self._products(np.repeat(rows, columns.shape[1]), columns.ravel()).reshape(columns.shape)

    def distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the distribution over levels of each pair of positions."""
        return self.readout.distribution(self._products(rows, columns), self._row_fields(rows))

    def draw_values(self, rows: IndexArray, columns: IndexArray, noise: FloatArray) -> FloatArray:
        """Return a draw from the posterior of the expected value of each pair, by standard normal noise (pairs,)."""
        deviations = self.encoder.find_deviations(self.rows.take(rows), self.columns.take(columns))
        drawn: FloatArray = self.readout.scores(
            self._products(rows, columns) + deviations * noise, self._row_fields(rows)
        )
        return drawn

    def levels(self, rows: IndexArray, columns: IndexArray, *, metric: str) -> FloatArray:
        """Return the level of each pair of positions that is best by a metric, where there is a distribution."""
        check_levels(self.readout.scale, metric)
        if metric != "rmse" and self.readout.gives_distribution:
            return self.distribution(rows, columns).best(metric)
        return self.readout.levels(self.score_pairs(rows, columns))

    def log_exceed_block(
        self, rows: IndexArray, columns: Positions, thresholds: FloatArray, *, spread: float
    ) -> npt.NDArray[Any]:
        """Return the logarithms (rows, columns) of the probabilities that values are at least a threshold (rows,).

        If the model predicts only values, their errors are taken as normal with the given spread.
        """
        if self.readout.gives_distribution:
            products = self._block_products(rows, columns)
            return self.readout.as_chosen.log_exceedance(products, self._row_fields(rows), thresholds)
        return self._log_exceed(self.score_block(rows, columns), thresholds, spread)

    def log_exceed_pairs(
        self, rows: IndexArray, columns: IndexArray, thresholds: FloatArray, *, spread: float
    ) -> npt.NDArray[Any]:
        """Return the logarithms for n columns of each row, (rows, n)."""
        pairs = np.repeat(rows, columns.shape[1]), columns.ravel()
        if self.readout.gives_distribution:
            products = self._products(*pairs).reshape(columns.shape)
            return self.readout.as_chosen.log_exceedance(products, self._row_fields(rows), thresholds)
        return self._log_exceed(self.score_pairs(*pairs).reshape(columns.shape), thresholds, spread)

    def _log_exceed(self, scores: npt.NDArray[Any], thresholds: FloatArray, spread: float) -> npt.NDArray[Any]:
        """Return the logarithms of the probabilities that normal errors lift scores (rows, n) to thresholds (rows,)."""
        readout = self.readout.as_chosen
        margins = readout.units(scores) - readout.lower_ends(thresholds)[:, None]
        found: npt.NDArray[Any] = log_ndtr(margins / spread)
        return found

    def extend(
        self,
        entries: EntryStore,
        rows: IndexArray,
        columns: IndexArray,
        crossed: tuple[IndexArray, IndexArray] = (NOTHING, NOTHING),
    ) -> Self:
        """Return a predictor in which the rows and columns at some positions are encoded from their entries again.

        They are encoded by trained rows and columns alone. Rows and columns with the same entries as in training get
        their trained latents back. An encoder that solves then reads the entries of new rows in new columns, see
        `settle`. crossed: as in `ExtendedStore`.
        """
        if not isinstance(self.encoder, SolvingEncoder):
            return self._encode_by_trained(entries, rows, columns)
        unsettled = find_unsettled(entries, rows, columns, crossed)
        changed = self._encode_by_trained(entries, rows, np.setdiff1d(columns, unsettled.columns))
        return changed._settle(self.encoder, unsettled, entries, rows)

    def _encode_by_trained(self, entries: EntryStore, rows: IndexArray, columns: IndexArray) -> Self:
        old_rows, old_columns = entries.are_rows_as_trained(rows), entries.are_columns_as_trained(columns)
        changed = self.without(rows[old_rows], columns[old_columns])
        rows, columns, encoder, arrived = rows[~old_rows], columns[~old_columns], self.encoder, changed.arrived
        if columns.size:
            own = entries.column_entries(columns)
            if isinstance(encoder, SolvingEncoder):
                factors = encoder.solve_columns(own, Latents(self.rows.base))
                latents, arrived = encoder.finish_columns(factors), self._put("columns", arrived, columns, factors)
            else:
                latents = encoder.columns(own, changed.rows)
            changed = replace(changed, columns=changed.columns.replace(columns, latents), arrived=arrived)
        if rows.size:
            own = entries.row_entries(rows)
            if isinstance(encoder, SolvingEncoder):
                factors = encoder.solve_rows(own, Latents(self.columns.base))
                latents, arrived = encoder.finish_rows(factors), self._put("rows", arrived, rows, factors)
            else:
                latents = encoder.rows(own, changed.columns)
            changed = replace(changed, rows=changed.rows.replace(rows, latents), arrived=arrived)
        return changed

    def _settle(self, encoder: SolvingEncoder, unsettled: Unsettled, entries: EntryStore, encoded: IndexArray) -> Self:
        """Solve again for what has entries of new rows in new columns: the columns now, rows when they are read.

        A new column in which new rows have entries is solved for by all its entries, given trained rows as they were
        trained and new rows by their entries in trained columns. A row with an entry in such a column is solved for by
        all its entries, or moves by its new ones, given trained columns as they were trained and new columns as above.
        This is one pass of alternating least squares over what has new entries; it depends on the entries alone, not
        on their order.
        """
        settled, columns = self, unsettled.columns
        if columns.size:
            factors = encoder.solve_columns(entries.all_column_entries(columns), self.solve_by("rows"))
            arrived = self._put("columns", self.arrived, columns, factors)
            latents = encoder.finish_columns(factors)
            settled = replace(settled, columns=settled.columns.replace(columns, latents), arrived=arrived)
        others = settled.solve_by("columns")
        settled = settled._encode_by_trained(entries, np.setdiff1d(unsettled.rows_left, encoded), NOTHING)
        if not unsettled.are_any:
            return settled
        base = self.rows.base
        rows = settled.rows.defer(
            unsettled.rows, lambda positions: _solve_again(encoder, entries, positions, base, others)
        )
        return replace(settled, rows=rows)

    def _put(self, axis: Literal["rows", "columns"], arrived: Arrived | None, at: IndexArray, factors: Any) -> Arrived:
        """Return the factors of new rows and columns with other ones at some positions."""
        encoder, base = self.encoder, (self.rows if axis == "rows" else self.columns).base
        assert isinstance(encoder, SolvingEncoder)
        kept = factors[at >= len(base), : encoder.count_factors(base.shape[1])].astype(encoder.factor_type)
        return (arrived or Arrived()).put(axis, at[at >= len(base)] - len(base), kept)

    def solve_by(self, axis: Literal["rows", "columns"]) -> Latents:
        """Return the factors of trained rows (or columns) as they were trained, and of new ones."""
        base = (self.rows if axis == "rows" else self.columns).base
        found = None if self.arrived is None else getattr(self.arrived, axis)
        return Latents(base) if found is None else Latents(base, len(base) + np.arange(len(found)), found)

    def _find_others(self, axis: Literal["rows", "columns"]) -> Latents:
        """Return what the encoder reads of the rows (or columns) to encode unstored columns (or rows)."""
        if isinstance(self.encoder, SolvingEncoder):
            return self.solve_by(axis)
        return self.rows if axis == "rows" else self.columns

    def without(self, rows: IndexArray, columns: IndexArray) -> Self:
        """Return a predictor without the latents computed since training for some rows and columns."""
        if rows.size == columns.size == 0:
            return self
        n_rows, n_columns = len(self.rows.base), len(self.columns.base)
        arrived = self.arrived and self.arrived.without(
            rows[rows >= n_rows] - n_rows, columns[columns >= n_columns] - n_columns
        )
        return replace(self, rows=self.rows.without(rows), columns=self.columns.without(columns), arrived=arrived)

    def read_rows(self, entries: EntryStore, rows: IndexArray) -> AxisEntries:
        """Return the entries that the latents of some stored rows are made from."""
        if not isinstance(self.encoder, SolvingEncoder):
            return entries.row_entries(rows)
        found = entries.all_row_entries(rows)
        which, is_met = np.repeat(np.arange(rows.size), np.diff(found.starts)), find_met(entries)
        counts_all = np.isin(np.arange(rows.size), which[is_met[found.others]])
        return found.select(counts_all[which] | (found.others < entries.train.shape[1]))

    def read_columns(self, entries: EntryStore, columns: IndexArray) -> AxisEntries:
        """Return the entries that the latents of some stored columns are made from."""
        if not isinstance(self.encoder, SolvingEncoder):
            return entries.column_entries(columns)
        found = entries.all_column_entries(columns)
        counts_all = np.repeat(find_met(entries)[columns], np.diff(found.starts))
        return found.select(counts_all | (found.others < entries.train.shape[0]))

    def select_row_inputs(self, entries: AxisEntries) -> AxisEntries:
        """Return the entries of rows that the encoder reads: all of them, or those in trained columns."""
        return entries if isinstance(self.encoder, SolvingEncoder) else entries.below(len(self.columns.base))

    def select_column_inputs(self, entries: AxisEntries) -> AxisEntries:
        """Return the entries of columns that the encoder reads: all of them, or those in trained rows."""
        return entries if isinstance(self.encoder, SolvingEncoder) else entries.below(len(self.rows.base))

    def with_rows(self, entries: AxisEntries) -> Self:
        """Return a predictor whose only rows have these entries."""
        return replace(self, rows=Latents(check_finite(self.encoder.rows(entries, self._find_others("columns")))))

    def with_columns(self, entries: AxisEntries) -> Self:
        """Return a predictor whose only columns have these entries."""
        return replace(self, columns=Latents(check_finite(self.encoder.columns(entries, self._find_others("rows")))))

    def with_rows_without_each(self, entries: AxisEntries, left_out: IndexArray) -> Self:
        """Return a predictor whose rows are a single one with these entries, without each of some of them."""
        latents = self.encoder.rows_without_each(entries, left_out, self._find_others("columns"))
        return replace(self, rows=Latents(check_finite(latents)))

    def with_columns_without_each(self, entries: AxisEntries, left_out: IndexArray) -> Self:
        """Return a predictor whose columns are a single one with these entries, without each of some of them."""
        latents = self.encoder.columns_without_each(entries, left_out, self._find_others("rows"))
        return replace(self, columns=Latents(check_finite(latents)))

    def proper(self, latents: Latents) -> LatentArray:
        """Return latents without the numbers beside them, read-only."""
        whole = latents.whole()
        if whole.shape[1] == self.n_beside:
            raise BadSetting("this model has no latents, so neither rows nor columns can be compared")
        proper: LatentArray = whole[:, : whole.shape[1] - self.n_beside]
        proper.flags.writeable = False
        return proper

    def directions(self, latents: Latents) -> LatentArray:
        """Return latents without the numbers beside them, normalised to length 1; zero latents stay zero."""
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
            tensors |= _declare_latents("float32 float64").pack(latents, prefix=f"latents.{axis}").tensors
        tensors |= {} if self.arrived is None else declare_arrived("float32 float64 float16").pack(self.arrived).tensors
        return Packed(packed.content, tensors)

    def _block_products(self, rows: IndexArray, columns: Positions) -> LatentArray:
        """Return the products (rows, columns) of latents; a range of columns is not copied."""
        row_latents = self.rows.take(rows)
        if isinstance(columns, slice):
            return self.columns.products(row_latents, columns)
        if columns.size == len(self.columns) and np.array_equal(columns, np.arange(columns.size)):
            return self.columns.products(row_latents, slice(0, columns.size))
        products: LatentArray = row_latents @ self.columns.take(columns).T
        return products

    def _products(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return pair_products(self.rows, self.columns, rows, columns)

    def _row_fields(self, rows: IndexArray) -> LatentArray:
        return self.rows.take(rows, self.readout.row_fields)


def _solve_again(
    encoder: SolvingEncoder, entries: EntryStore, rows: IndexArray, base: LatentArray, columns: Latents
) -> LatentArray:
    """Return the latents of rows with entries in new columns that new rows have entries in."""
    moved = entries.are_rows_as_trained(rows) & encoder.moves_rows
    latents = np.empty((rows.size, base.shape[1]), dtype=base.dtype)
    if not moved.all():
        latents[~moved] = encoder.rows(entries.all_row_entries(rows[~moved]), columns)
    if moved.any():
        train, at = entries.train, rows[moved]
        totals = train.row_counts[at] if train.weights is None else entries.row_entries(at).totals
        trained = TrainedRows(base[at], totals, train.column_counts)
        latents[moved] = encoder.move_rows(trained, entries.new_row_entries(at), columns)
    return latents


@dataclass(frozen=True)
class KnownProducts(Predictor):
    """A predictor that reads only the columns (rows, n) of each row whose products of latents are known.

    Pairs come in the order of rows, and then of columns.
    """

    known: npt.NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def of(cls, predictor: Predictor, products: npt.NDArray[Any]) -> KnownProducts:
        """Return the predictor of a predictor's products (rows, n)."""
        return cls(**{each.name: getattr(predictor, each.name) for each in fields(Predictor)}, known=products)

    def _block_products(self, rows: IndexArray, columns: Positions) -> LatentArray:
        return self.known  # of a single row

    def _products(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self.known.ravel()


def unpack_latents(
    tensors: Tensors, entries: EntryStore, *, width: int, kind: str = "float32"
) -> tuple[Latents, Latents]:
    """Return the stored latents of rows and of columns; impossible ones raise `BadModelFile`."""
    trained, known = entries.train.shape, (len(entries.rows), len(entries.columns))
    rows, columns = (
        _unpack(tensors, axis, kind, known=count, trained=n_trained, width=width)
        for axis, n_trained, count in zip(("rows", "columns"), trained, known, strict=True)
    )
    if has_values_to_check(tensors) and not rows.products_are_finite(columns):
        raise BadModelFile("the stored latents are so large that their products are not finite")
    return rows, columns


def unpack_arrived(predictor: Predictor, tensors: Tensors, entries: EntryStore) -> Predictor:
    """Return a predictor with the stored factors of new rows and columns; impossible ones raise `BadModelFile`."""
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


def _unpack(tensors: Tensors, axis: str, kind: str, **sizes: int) -> Latents:
    found = Latents(**_declare_latents(kind).read({}, tensors, prefix=f"latents.{axis}", **sizes))
    if np.count_nonzero(found.positions >= sizes["trained"]) != sizes["known"] - sizes["trained"]:
        raise BadModelFile(f"some stored latents of {axis} are missing")
    return found
